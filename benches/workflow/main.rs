//! What it costs to remember the steps of a run, beside ten plain operations and beside a table of checkpoints written
//! by hand on SQLite: `cargo bench --bench workflow`. With `DUPEPROOF_BENCH=quick` it takes seconds.
//!
//! Absolute figures are the machine's; the ratio is ours. The steps do nothing, so that only the remembering is seen.
//! Each contestant knows after a kill at any instant which steps are done and which one may have been under way.

#[path = "../operation/peers/connection.rs"]
mod connection;
mod dupeproof;
mod sqlite;
#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
#[path = "../operation/work.rs"]
mod work;

use std::env;
use std::error::Error;
use std::path::Path;

use crate::work::now;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Page cache of both.
const CACHE_BYTES: usize = 32 * 1024 * 1024;
const STEPS: u64 = 10;
const ROUNDS: usize = 3;
/// Steps that a run has before the one that is measured.
const SIZES: [u64; 4] = [10, 100, 1000, 9_900];

/// Does so many runs on a new file. The seconds that they took.
type Contestant = fn(&Path, u64) -> Fallible<f64>;

/// With the commits that ten steps take.
const CONTESTANTS: [(&str, u64, Contestant); 4] = [
    ("sqlite, one row a step", 11, sqlite::runs),
    ("dupeproof, settle_and_step", 11, dupeproof::together),
    ("dupeproof, step by step", 21, dupeproof::apart),
    ("dupeproof, ten plain operations", 20, dupeproof::plain),
];

fn main() -> Fallible<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return Ok(());
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let (scale, runs, sizes) = match env::var("DUPEPROOF_BENCH").as_deref() {
        _ if !is_bench => ("smoke", 1, &SIZES[..1]),
        Ok("quick") => ("quick", 20, &SIZES[..3]),
        _ => ("full", 200, &SIZES[..]),
    };
    // Beside the build, because a temporary directory may be in memory, and what is measured is a disk.
    let dir = tempfile::Builder::new().prefix("workflow-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("\n# Workflow benchmark ({scale} run): runs of {STEPS} steps that do nothing, medians of {ROUNDS}\n");
    println!("| contestant | commits a run | runs | ms a run | × sqlite |");
    println!("|{}", " --- |".repeat(5));
    let mut seconds = vec![Vec::new(); CONTESTANTS.len()];
    // By turns, so that a noisy moment hits all of them.
    for round in 0..ROUNDS {
        for (at, (_, _, contestant)) in CONTESTANTS.iter().enumerate() {
            seconds[at].push(contestant(&dir.path().join(format!("{round}-{at}")), runs)?);
        }
    }
    let medians: Vec<f64> = seconds
        .iter_mut()
        .map(|seconds| {
            seconds.sort_by(f64::total_cmp);
            seconds[ROUNDS / 2]
        })
        .collect();
    for ((name, commits, _), seconds) in CONTESTANTS.iter().zip(&medians) {
        let each = seconds * 1000.0 / runs as f64;
        println!("| {name} | {commits} | {runs} | {each:.2} | {:.2} |", seconds / medians[0]);
    }

    println!("\nThe next step of a run that has many, in memory: what the look at the others costs.\n");
    println!("| steps before | µs a step | µs a replay |");
    println!("|{}", " --- |".repeat(3));
    for size in sizes {
        let (step, replay) = dupeproof::next_step(*size)?;
        println!("| {size} | {:.0} | {:.1} |", step * 1e6, replay * 1e6);
    }
    Ok(())
}

/// Seconds that the work took.
fn timed(work: impl FnOnce() -> Fallible<()>) -> Fallible<f64> {
    let started = now();
    work()?;
    Ok((now() - started).as_secs_f64())
}
