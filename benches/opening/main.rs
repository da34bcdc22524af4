//! What opening costs after SIGKILL, and what each way to be opened costs with every commit:
//! `cargo bench --bench opening`. With `DUPEPROOF_BENCH=quick` without the larger stores.
//!
//! The killed process is this program once more: it opens, commits one operation, and is killed where it stands. The
//! file is warm in the page cache, as after a crash of the process alone; after a power cut the disk's speed counts.

#[path = "../common/fill.rs"]
mod fill;

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dupeproof::{Begin, Options, Recovery, Sharing, Store};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const RECORDS: [u64; 3] = [10_000, 100_000, 1_000_000];
/// Openings of each kind; the median and the slowest are reported.
const ROUNDS: usize = 5;
/// Commits whose bytes are counted: half of them begin an operation, half of them settle it.
const COMMITS: u64 = 200;
/// The first argument of the process that is killed.
const VICTIM: &str = "--victim";

#[derive(Debug, Clone, Copy)]
enum Mode {
    Scan,
    Quick,
    Shared,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Scan, Self::Quick, Self::Shared];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Scan => "Recovery::Scan",
            Self::Quick => "Recovery::Quick",
            Self::Shared => "Sharing::Shared",
        }
    }

    fn options(self) -> Options {
        let options = Options::new().without_compactor();
        match self {
            Self::Scan => options,
            Self::Quick => options.with_recovery(Recovery::Quick),
            Self::Shared => options.with_sharing(Sharing::Shared),
        }
    }
}

fn main() -> Fallible<()> {
    let mut arguments = env::args_os().skip(1);
    let first = arguments.next();
    if first.as_deref().is_some_and(|first| first == VICTIM) {
        return victim(arguments);
    }
    let is_bench = first.into_iter().chain(arguments).any(|argument| argument == "--bench");
    let records = match env::var("DUPEPROOF_BENCH").as_deref() {
        _ if !is_bench => &RECORDS[..0],
        Ok("quick") => &RECORDS[..1],
        _ => &RECORDS[..],
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!(
        "| records | file | opened with | after SIGKILL | checked, after SIGKILL | after a close | checked, after a close | written per commit | time per commit |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for records in records {
        let path = dir.path().join(records.to_string());
        fill::fill(&path, *records)?;
        let mut next = *records;
        for mode in Mode::ALL {
            println!("{}", line(*records, &mut next, mode, &path)?);
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn line(records: u64, next: &mut u64, mode: Mode, path: &Path) -> Fallible<String> {
    let killed = times(|| {
        kill(mode, path, next)?;
        opened(mode.options(), path)
    })?;
    let killed_and_checked = times(|| {
        kill(mode, path, next)?;
        opened(mode.options().with_verify_on_open(), path)
    })?;
    let closed = times(|| opened(mode.options(), path))?;
    let closed_and_checked = times(|| opened(mode.options().with_verify_on_open(), path))?;
    let (bytes, took) = commits(mode, path, next)?;
    let mib = std::fs::metadata(path)?.len() / 1024 / 1024;
    let name = mode.name();
    Ok(format!(
        "| {records} | {mib} MiB | `{name}` | {killed} | {killed_and_checked} | {closed} | {closed_and_checked} | \
         {:.1} KiB | {:.2} ms |",
        bytes / 1024.0,
        took.as_secs_f64() * 1e3
    ))
}

/// Median and slowest of several.
fn times(mut once: impl FnMut() -> Fallible<Duration>) -> Fallible<String> {
    let mut took = (0..ROUNDS).map(|_| once()).collect::<Fallible<Vec<_>>>()?;
    took.sort_unstable();
    let millis = |took: Duration| took.as_secs_f64() * 1e3;
    Ok(format!("{:.1} ms (≤ {:.1})", millis(took[ROUNDS / 2]), millis(took[ROUNDS - 1])))
}

fn opened(options: Options, path: &Path) -> Fallible<Duration> {
    let started = now();
    let store = options.open(path)?;
    let took = now().duration_since(started);
    store.close()?;
    Ok(took)
}

/// Has another process open the store, commit, and die.
fn kill(mode: Mode, path: &Path, next: &mut u64) -> Fallible<()> {
    let mut victim = Command::new(env::current_exe()?)
        .arg(VICTIM)
        .arg(mode.name())
        .arg(path)
        .arg(next.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    *next += 1;
    let mut said = String::new();
    if let Some(stdout) = victim.stdout.take() {
        BufReader::new(stdout).read_line(&mut said)?;
    }
    victim.kill()?;
    victim.wait()?;
    if said.trim() == "committed" { Ok(()) } else { Err("the victim did not commit".into()) }
}

fn victim(mut arguments: impl Iterator<Item = OsString>) -> Fallible<()> {
    let odd = || "a victim's arguments do not fit";
    let mode = arguments.next().as_deref().and_then(|name| Mode::named(name.to_str()?)).ok_or_else(odd)?;
    let path = arguments.next().ok_or_else(odd)?;
    let number = arguments.next().and_then(|text| text.to_str()?.parse().ok()).ok_or_else(odd)?;
    let store = mode.options().open(path)?;
    cycle(&store, number)?;
    println!("committed");
    // Until it is killed, or its parent is gone.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn cycle(store: &Store, number: u64) -> Fallible<()> {
    match store.begin(&fill::operation(number)?)? {
        Begin::Execute(claim) => Ok(claim.succeed_raw(&fill::RESPONSE[..]).map(drop)?),
        other => Err(format!("a new key was not granted: {other:?}").into()),
    }
}

/// Bytes handed to the system for each commit, and the time it took.
fn commits(mode: Mode, path: &Path, next: &mut u64) -> Fallible<(f64, Duration)> {
    let store = mode.options().open(path)?;
    // The first takes the open's number, which is a commit more.
    cycle(&store, *next)?;
    let (before, started) = (written()?, now());
    for number in 1..=COMMITS / 2 {
        cycle(&store, *next + number)?;
    }
    let (after, took) = (written()?, now().duration_since(started));
    *next += COMMITS;
    store.close()?;
    Ok(((after - before) as f64 / COMMITS as f64, took / u32::try_from(COMMITS)?))
}

/// Bytes that this process has written so far, to whatever: it is at work on the store alone.
fn written() -> Fallible<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(bytes.ok_or("the system does not count")?.parse()?)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
