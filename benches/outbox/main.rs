//! What it costs to relay a message to a handler that does nothing, beside an outbox written by hand on SQLite:
//! `cargo bench --bench outbox`. With `DUPEPROOF_BENCH=quick` it takes seconds.
//!
//! Absolute figures are the machine's; the ratio is ours. Both keep what they delivered as a row without its payload,
//! and both survive a crash at any point: a commit that takes a batch, and one that notes what became of it.

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
const TOPIC: &str = "mail";
/// Messages a relay takes at once.
const BATCHES: [usize; 2] = [1, 100];
const ROUNDS: usize = 3;

/// Fills a new outbox and relays all of it, `batch` at a time. The seconds that the relaying took.
type Contestant = fn(&Path, u64, usize) -> Fallible<f64>;

const CONTESTANTS: [(&str, Contestant); 3] =
    [("sqlite", sqlite::relay), ("dupeproof, run_once", dupeproof::run), ("dupeproof, spawn", dupeproof::spawn)];

fn main() -> Fallible<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return Ok(());
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let (scale, commits) = match env::var("DUPEPROOF_BENCH").as_deref() {
        _ if !is_bench => ("smoke", 4),
        Ok("quick") => ("quick", 100),
        _ => ("full", 1000),
    };
    // Beside the build, because a temporary directory may be in memory, and what is measured is a disk.
    let dir = tempfile::Builder::new().prefix("outbox-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("\n# Outbox benchmark ({scale} run): one relay, a handler that does nothing, medians of {ROUNDS}\n");
    println!("| contestant | batch | messages | messages/s | × sqlite |");
    println!("|{}", " --- |".repeat(5));
    for batch in BATCHES {
        let messages = commits * batch as u64;
        let mut speeds = vec![Vec::new(); CONTESTANTS.len()];
        // By turns, so that a noisy moment hits all of them.
        for round in 0..ROUNDS {
            for (at, (_, contestant)) in CONTESTANTS.iter().enumerate() {
                let path = dir.path().join(format!("{batch}-{round}-{at}"));
                speeds[at].push(messages as f64 / contestant(&path, messages, batch)?);
            }
        }
        let medians = speeds.iter_mut().map(|speeds| {
            speeds.sort_by(f64::total_cmp);
            speeds[ROUNDS / 2]
        });
        let medians: Vec<f64> = medians.collect();
        for ((name, _), speed) in CONTESTANTS.iter().zip(&medians) {
            println!("| {name} | {batch} | {messages} | {speed:.0} | {:.2} |", speed / medians[0]);
        }
    }
    Ok(())
}

/// Seconds that the work took.
fn timed(work: impl FnOnce() -> Fallible<()>) -> Fallible<f64> {
    let started = now();
    work()?;
    Ok((now() - started).as_secs_f64())
}
