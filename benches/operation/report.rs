//! The report: Markdown tables of medians, and the goals beside what was found. It states and never fails; a figure is
//! judged by whoever knows how quiet the machine was.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use crate::cycle::{Calls, Turn, Turns};
use crate::memory::Space;
use crate::peers::{Format, Peer};
use crate::scale::Scale;

/// Everything a run found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) turns: Turns,
    pub(crate) calls: BTreeMap<Peer, Calls>,
    /// Microseconds of a cycle on one thread.
    pub(crate) cycles: BTreeMap<Peer, f64>,
    /// Microseconds of a replay.
    pub(crate) replays: BTreeMap<(Format, u64), f64>,
    pub(crate) space: Vec<Space>,
}

/// Which side of a bound is wanted.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Report {
    pub(crate) fn print(&self, scale: &Scale) {
        let mut text = String::new();
        self.write(&mut text, scale).expect("writing to memory succeeds");
        println!("{text}");
    }

    fn write(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        writeln!(out, "\n# Operation benchmark ({} run)", scale.name)?;
        self.write_turns(out, scale)?;
        self.write_one_thread(out)?;
        self.write_replays(out, scale)?;
        self.write_space(out, scale)?;
        self.write_goals(out, scale)
    }

    fn write_turns(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        let (records, rounds) = (scale.cycle_records, scale.rounds);
        writeln!(out, "\n## Durable cycle (begin + succeed) on {records} records, medians of {rounds}\n")?;
        let names = ["cycles/s", "min–max", "× sqlite", "p50 ms", "p99 ms"];
        write!(out, "| contestant |")?;
        for threads in Scale::THREADS {
            names.iter().try_for_each(|name| write!(out, " {threads} thr: {name} |"))?;
        }
        writeln!(out, "\n|{}", " --- |".repeat(1 + names.len() * Scale::THREADS.len()))?;
        for peer in Peer::ALL {
            write!(out, "| {} |", peer.name())?;
            for threads in Scale::THREADS {
                let speed = self.median(peer, threads, |turn| turn.cycles_per_s);
                let turns = self.turns.get(&(peer, threads)).map_or(&[][..], Vec::as_slice);
                let speeds = || turns.iter().map(|turn| turn.cycles_per_s);
                write!(out, " {:.0} |", Cell(speed))?;
                write!(
                    out,
                    " {:.0}–{:.0} |",
                    Cell(speeds().min_by(f64::total_cmp)),
                    Cell(speeds().max_by(f64::total_cmp))
                )?;
                write!(out, " {:.2} |", Cell(self.speed_ratio(peer, threads)))?;
                write!(out, " {:.2} |", Cell(self.median(peer, threads, |turn| turn.p50_ms)))?;
                write!(out, " {:.1} |", Cell(self.median(peer, threads, |turn| turn.p99_ms)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_one_thread(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\n## One caller alone\n")?;
        writeln!(
            out,
            "| contestant | µs a cycle (criterion) | × sqlite's time | writes a command | by strace | syncs a command |"
        )?;
        writeln!(out, "|{}", " --- |".repeat(6))?;
        let sqlite = self.cycles.get(&Peer::Sqlite).copied();
        for peer in Peer::ALL {
            let micros = self.cycles.get(&peer).copied();
            let calls = self.calls.get(&peer);
            write!(out, "| {} | {:.0} |", peer.name(), Cell(micros))?;
            write!(out, " {:.2} |", Cell(ratio(micros, sqlite)))?;
            write!(out, " {:.1} |", Cell(self.writes(peer)))?;
            write!(out, " {:.1} |", Cell(calls.map(|calls| calls.page_writes)))?;
            writeln!(out, " {:.2} |", Cell(calls.map(|calls| calls.syncs)))?;
        }
        Ok(())
    }

    fn write_replays(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        writeln!(out, "\n## Replay of a random settled key, one thread\n")?;
        write!(out, "| contestant |")?;
        scale.replay_records.iter().try_for_each(|records| write!(out, " {records}: µs | × sqlite's time |"))?;
        writeln!(out, "\n|{}", " --- |".repeat(1 + 2 * scale.replay_records.len()))?;
        for format in Format::ALL {
            write!(out, "| {} |", format.peer().name())?;
            for &records in scale.replay_records {
                let micros = self.replays.get(&(format, records)).copied();
                write!(out, " {:.2} | {:.2} |", Cell(micros), Cell(self.replay_ratio(format, records)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_space(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        let most = scale.replay_records.last().copied().unwrap_or_default();
        writeln!(out, "\n## Space\n")?;
        writeln!(
            out,
            "| contestant | bytes a record on disk, file of {} | by its length | resident MiB after replays from {most} |",
            scale.cycle_records
        )?;
        writeln!(out, "|{}", " --- |".repeat(4))?;
        for space in &self.space {
            let name = space.format.peer().name();
            let (on_disk, length) = (space.bytes_per_record, space.length_per_record);
            writeln!(out, "| {name} | {on_disk:.0} | {length:.0} | {:.1} |", Cell(space.resident_mib))?;
        }
        Ok(())
    }

    fn write_goals(&self, out: &mut String, scale: &Scale) -> fmt::Result {
        use Wanted::{AtLeast, AtMost};

        writeln!(out, "\n## Goals\n")?;
        writeln!(out, "| what | goal | found | met |")?;
        writeln!(out, "|{}", " --- |".repeat(4))?;
        let ours = Peer::Dupeproof;
        let space = self.space.iter().find(|space| space.format == Format::Dupeproof);
        let calls = self.calls.get(&ours);
        let mut goal = |what: &str, wanted: Wanted, found: Option<f64>| {
            let met = match (found, wanted) {
                (None, _) => "–",
                (Some(found), AtLeast(bound)) if found >= bound => "yes",
                (Some(found), AtMost(bound)) if found <= bound => "yes",
                (Some(_), _) => "no",
            };
            writeln!(out, "| {what} | {wanted} | {:.2} | {met} |", Cell(found))
        };
        goal("cycles at 64 threads, × sqlite", AtLeast(2.8), self.speed_ratio(ours, 64))?;
        goal("p99 at 64 threads, ms", AtMost(50.0), self.median(ours, 64, |turn| turn.p99_ms))?;
        goal("cycles at 8 threads, × sqlite", AtLeast(1.0), self.speed_ratio(ours, 8))?;
        goal(
            "page writes a lone command",
            AtMost(14.0),
            calls.map_or_else(|| self.writes(ours), |calls| Some(calls.page_writes)),
        )?;
        goal("syncs a lone command", AtMost(2.0), calls.map(|calls| calls.syncs))?;
        for &records in scale.replay_records {
            let bound = if records >= 1_000_000 { 1.0 } else { 0.75 };
            let found = self.replay_ratio(Format::Dupeproof, records);
            goal(&format!("replay from {records}, × sqlite's time"), AtMost(bound), found)?;
        }
        goal("bytes a record", AtMost(600.0), space.map(|space| space.bytes_per_record))?;
        goal("resident memory, MiB", AtMost(48.0), space.and_then(|space| space.resident_mib))?;
        writeln!(out, "\nWithout a goal:\n")?;
        writeln!(out, "- cycles at 1 thread, × sqlite: {:.2}", Cell(self.speed_ratio(ours, 1)))?;
        writeln!(out, "- the same with `settle_and_begin`: {:.2}", Cell(self.speed_ratio(Peer::DupeproofChain, 1)))?;
        for threads in Scale::THREADS {
            let bare = self.median(Peer::RedbGroup, threads, |turn| turn.cycles_per_s);
            let ratio = ratio(self.median(ours, threads, |turn| turn.cycles_per_s), bare);
            writeln!(out, "- cycles at {threads} thread(s), × the same commits on bare redb: {:.2}", Cell(ratio))?;
        }
        Ok(())
    }

    fn median(&self, peer: Peer, threads: usize, figure: impl Fn(&Turn) -> f64) -> Option<f64> {
        median(self.turns.get(&(peer, threads))?.iter().map(figure))
    }

    fn writes(&self, peer: Peer) -> Option<f64> {
        median(self.turns.get(&(peer, 1))?.iter().filter_map(|turn| turn.writes_per_command))
    }

    fn speed_ratio(&self, peer: Peer, threads: usize) -> Option<f64> {
        let speed = |peer| self.median(peer, threads, |turn| turn.cycles_per_s);
        ratio(speed(peer), speed(Peer::Sqlite))
    }

    fn replay_ratio(&self, format: Format, records: u64) -> Option<f64> {
        let micros = |format| self.replays.get(&(format, records)).copied();
        ratio(micros(format), micros(Format::Sqlite))
    }
}

impl Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// A figure that may be missing.
struct Cell(Option<f64>);

impl Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(figure) if figure.is_finite() => figure.fmt(f),
            _ => f.write_str("–"),
        }
    }
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    ours.zip(theirs).map(|(ours, theirs)| ours / theirs)
}

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
