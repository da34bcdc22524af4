//! Durable cycles: a begin and a settlement, each on the disk before the next call.
//!
//! Many threads are a closed loop: each starts its next cycle as soon as the last one ended. Contestants take turns, so
//! that a disk that slows down slows down all of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::Criterion;

use crate::peers::{Contestant, Fallible, Peer, Session};
use crate::replay::estimated;
use crate::scale::Scale;
use crate::stores::Stores;
use crate::visit::{Task, Visit, proc_field};
use crate::work::{Item, now, pause, response};

/// Keys apart enough that threads and visits never meet.
const THREAD_STRIDE: u64 = 1 << 32;

/// What one visit found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) cycles_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Writing system calls a durable command; nothing where the system does not tell.
    pub(crate) writes_per_command: Option<f64>,
}

/// All visits by contestant and number of threads.
pub(crate) type Turns = BTreeMap<(Peer, usize), Vec<Turn>>;

/// System calls a durable command, from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calls {
    pub(crate) page_writes: f64,
    pub(crate) syncs: f64,
}

pub(crate) fn take_turns(stores: &mut Stores, scale: &Scale) -> Fallible<Turns> {
    let mut turns = Turns::new();
    for round in 0..scale.rounds {
        for threads in Scale::THREADS {
            let mut peers: Vec<Peer> =
                Peer::ALL.into_iter().filter(|peer| *peer != Peer::DupeproofChain || threads == 1).collect();
            let first = round % peers.len();
            peers.rotate_left(first);
            for peer in peers {
                let copied = stores.copied(peer.format(), scale.cycle_records)?;
                let task = Task::Cycle { threads, warm_up: scale.warm_up, window: scale.window };
                let visit = Visit { peer, path: copied.path.clone(), records: scale.cycle_records, task };
                let turn = match visit.start()?[..] {
                    [cycles_per_s, p50_ms, p99_ms, writes] => {
                        Turn { cycles_per_s, p50_ms, p99_ms, writes_per_command: (!writes.is_nan()).then_some(writes) }
                    }
                    _ => return Err("a visit's figures do not fit".into()),
                };
                let name = peer.name();
                eprintln!("round {round}, {threads} threads, {name}: {:.0} cycles/s", turn.cycles_per_s);
                turns.entry((peer, threads)).or_default().push(turn);
            }
        }
    }
    Ok(turns)
}

/// In the visit's process: cycles/s, median, 99th percentile, writes a command.
pub(crate) fn run(
    peer: Peer,
    path: &Path,
    records: u64,
    threads: usize,
    warm_up: Duration,
    window: Duration,
) -> Fallible<Vec<f64>> {
    let contestant = peer.open(path)?;
    let barrier = Barrier::new(threads + 1);
    let (cycles, latencies, writes) = thread::scope(|scope| -> Fallible<_> {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (contestant, barrier) = (&*contestant, &barrier);
                scope.spawn(move || {
                    let session = contestant.session();
                    barrier.wait();
                    let from = now() + warm_up;
                    closed_loop(session?, records, thread as u64, from, from + window)
                })
            })
            .collect();
        barrier.wait();
        pause(warm_up);
        let before = proc_field("io", "syscw");
        pause(window);
        let after = proc_field("io", "syscw");
        let writes = before.zip(after).map(|(before, after)| after - before);
        let (mut cycles, mut latencies) = (0, Vec::new());
        for worker in workers {
            let lap = worker.join().map_err(|_| "a worker panicked")??;
            cycles += lap.cycles;
            latencies.extend(lap.latencies);
        }
        Ok((cycles as f64, latencies, writes))
    })?;
    contestant.close()?;

    let mut ms: Vec<f64> = latencies.iter().map(|latency| latency.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    let writes = writes.map_or(f64::NAN, |writes| writes as f64 / (cycles * peer.commands_per_cycle()));
    Ok(vec![cycles / window.as_secs_f64(), quantile(&ms, 0.5), quantile(&ms, 0.99), writes])
}

/// What one thread did within the window.
struct Lap {
    cycles: u64,
    /// Of all cycles that had a part in the window: a caller who starves until its end counts, too.
    latencies: Vec<Duration>,
}

fn closed_loop(
    mut session: Box<dyn Session + '_>,
    records: u64,
    thread: u64,
    from: Instant,
    until: Instant,
) -> Fallible<Lap> {
    let mut lap = Lap { cycles: 0, latencies: Vec::new() };
    let mut number = records + thread * THREAD_STRIDE;
    loop {
        let (item, response) = (Item::number(number), response(number));
        let started = now();
        session.cycle(&item, response)?;
        let ended = now();
        if ended >= from && started < until {
            lap.latencies.push(ended - started);
        }
        if ended >= until {
            return Ok(lap);
        }
        if ended >= from {
            lap.cycles += 1;
        }
        number += 1;
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// In the visit's process: so many cycles from one thread.
pub(crate) fn count(peer: Peer, path: &Path, records: u64, cycles: u64) -> Fallible<Vec<f64>> {
    let contestant = peer.open(path)?;
    {
        let mut session = contestant.session()?;
        for number in records..records + cycles {
            session.cycle(&Item::number(number), response(number))?;
        }
    }
    contestant.close()?;
    Ok(Vec::new())
}

/// Counts page writes and syncs with strace, if it is there: the difference of two runs, so that opening and closing do
/// not count.
pub(crate) fn count_calls(stores: &mut Stores, scale: &Scale) -> Fallible<BTreeMap<Peer, Calls>> {
    let has_strace = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_strace.is_ok_and(|status| status.success()) {
        return Ok(BTreeMap::new());
    }
    let runs = [scale.counted_cycles / 4, scale.counted_cycles];
    let mut calls = BTreeMap::new();
    for peer in Peer::ALL {
        let mut found = [[0.0; 2]; 2];
        for (cycles, found) in runs.into_iter().zip(&mut found) {
            let copied = stores.copied(peer.format(), scale.cycle_records)?;
            let log = stores.dir().join("strace");
            let log = log.to_str().ok_or("the build's directory is not UTF-8")?;
            let task = Task::Count { cycles };
            let visit = Visit { peer, path: copied.path.clone(), records: scale.cycle_records, task };
            let tracer = ["strace", "-f", "-c", "-o", log, "-e", "trace=pwrite64,fdatasync,fsync"];
            if visit.start_under(&tracer).is_err() {
                // A container may forbid tracing.
                return Ok(BTreeMap::new());
            }
            *found = counted(&fs::read_to_string(log)?);
        }
        let commands = (runs[1] - runs[0]) as f64 * peer.commands_per_cycle();
        let [few, many] = found;
        let calls_of = |what: usize| (many[what] - few[what]) / commands;
        calls.insert(peer, Calls { page_writes: calls_of(0), syncs: calls_of(1) });
    }
    Ok(calls)
}

/// Writes and syncs in a summary of strace: `% time, seconds, usecs/call, calls, [errors,] syscall` a line.
fn counted(summary: &str) -> [f64; 2] {
    let mut found = [0.0; 2];
    for line in summary.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(name), Some(Ok(calls))) = (words.last(), words.get(3).map(|calls| calls.parse::<f64>())) else {
            continue;
        };
        match *name {
            "pwrite64" => found[0] += calls,
            "fdatasync" | "fsync" => found[1] += calls,
            _ => {}
        }
    }
    found
}

/// One thread, under criterion. Microseconds a cycle.
pub(crate) fn bench(criterion: &mut Criterion, stores: &mut Stores, scale: &Scale) -> Fallible<BTreeMap<Peer, f64>> {
    let mut estimates = BTreeMap::new();
    let mut group = criterion.benchmark_group("cycle");
    group.sample_size(scale.sample_size).warm_up_time(scale.sample_warm_up).measurement_time(scale.sample_time);
    for peer in Peer::ALL {
        let copied = stores.copied(peer.format(), scale.cycle_records)?;
        let contestant = peer.open(&copied.path)?;
        let ran = Cell::new(false);
        let mut number = scale.cycle_records;
        let mut session = contestant.session()?;
        group.bench_function(peer.name(), |bencher| {
            ran.set(true);
            bencher.iter_custom(|cycles| timed(&mut *session, &mut number, cycles));
        });
        drop(session);
        Contestant::close(contestant)?;
        if ran.get() {
            estimates.extend(estimated("cycle", peer.name()).map(|micros| (peer, micros)));
        }
    }
    group.finish();
    Ok(estimates)
}

fn timed(session: &mut dyn Session, number: &mut u64, cycles: u64) -> Duration {
    let work: Vec<_> = (*number..*number + cycles).map(|number| (Item::number(number), response(number))).collect();
    *number += cycles;
    let started = now();
    for (item, response) in work {
        session.cycle(&item, response).expect("a cycle on a new key succeeds");
    }
    now() - started
}
