//! What a repeat costs a shell: `dupeproof run -- true` on a key that ran before, beside the `sqlite3` shell selecting
//! one row by its key from a file of the same size: `cargo bench --bench command_line --features cli`. With
//! `DUPEPROOF_BENCH=quick` without the largest store.
//!
//! Both are whole processes: start, open, look up, print, close. The ratio of the medians is what counts; the two take
//! turns, so that a noisy machine disturbs both.

mod database;
#[path = "../common/fill.rs"]
mod fill;

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Records in the stores.
const RECORDS: [u64; 3] = [10_000, 100_000, 1_000_000];
/// Runs of each; the median is reported.
const RUNS: usize = 101;
const KEY: &str = "the one that is asked for";

fn main() -> Fallible<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return Ok(());
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let (records, runs) = match env::var("DUPEPROOF_BENCH").as_deref() {
        _ if !is_bench => (&RECORDS[..0], 0),
        Ok("quick") => (&RECORDS[..2], 21),
        _ => (&RECORDS[..], RUNS),
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("records     file of dupeproof   of sqlite3   dupeproof run   sqlite3   ratio (goal 2.00)");
    for records in records {
        let store = dir.path().join(format!("{records}.redb"));
        let database = dir.path().join(format!("{records}.db"));
        fill::fill(&store, *records)?;
        run(&mut replay(&store))?;
        database::make(&database, *records, std::fs::metadata(&store)?.len())?;
        let Some(line) = compare(*records, &store, &database, runs)? else { return Ok(()) };
        println!("{line}");
    }
    Ok(())
}

fn compare(records: u64, store: &Path, database: &Path, runs: usize) -> Fallible<Option<String>> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(run(&mut replay(store))?);
        match run(&mut select(database)) {
            Ok(took) => theirs.push(took),
            Err(error) => {
                println!("SKIPPED: the sqlite3 shell: {error}");
                return Ok(None);
            }
        }
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let mib = |path: &Path| std::fs::metadata(path).map(|meta| meta.len() as f64 / 1024.0 / 1024.0);
    Ok(Some(format!(
        "{records:>7}  {:>15.1} MiB  {:>7.1} MiB  {:>10.2} ms  {:>5.2} ms   {:.2}",
        mib(store)?,
        mib(database)?,
        ours.as_secs_f64() * 1e3,
        theirs.as_secs_f64() * 1e3,
        ours.as_secs_f64() / theirs.as_secs_f64(),
    )))
}

fn replay(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dupeproof"));
    command.args(["run", "--quiet", "--key", KEY, "--store"]).arg(store).args(["--", "true"]);
    command
}

fn select(database: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command.arg(database).arg(format!("SELECT status, response FROM operations WHERE key = '{KEY}'"));
    command
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn run(command: &mut Command) -> Fallible<Duration> {
    let started = Instant::now();
    let status = command.stdout(Stdio::null()).status()?;
    let took = started.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}
