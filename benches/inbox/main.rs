//! What it costs to handle a message once, beside the same by hand on SQLite (a dedupe insert and a business row in one
//! transaction): `cargo bench --bench inbox`. With `DUPEPROOF_BENCH=quick` it takes seconds.
//!
//! Absolute figures are the machine's; the ratios are ours. Every message is new, and every commit is durable. The last
//! lines are duplicates, which are answered without a commit.

#[path = "../operation/peers/connection.rs"]
mod connection;
mod dupeproof;
mod sqlite;
#[allow(dead_code, reason = "shared with the other benchmarks, which need more of it")]
#[path = "../operation/work.rs"]
mod work;

use std::env;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::work::now;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Page cache of both.
const CACHE_BYTES: usize = 32 * 1024 * 1024;
const THREADS: [usize; 2] = [1, 64];
const ROUNDS: usize = 3;

/// Who handles messages: each thread has a handler of its own.
trait Contestant: Sync {
    /// Handles the message of this number. Whether it was new.
    fn handler(&self) -> Fallible<Box<dyn FnMut(u64) -> Fallible<bool> + '_>>;
}

type Open = fn(&Path) -> Fallible<Box<dyn Contestant>>;

const CONTESTANTS: [(&str, Open); 2] = [("sqlite", sqlite::open), ("dupeproof", dupeproof::open)];

fn main() -> Fallible<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return Ok(());
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let (scale, messages) = match env::var("DUPEPROOF_BENCH").as_deref() {
        _ if !is_bench => ("smoke", 64),
        Ok("quick") => ("quick", 500),
        _ => ("full", 5000),
    };
    let dir = tempfile::Builder::new().prefix("inbox-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("\n# Inbox benchmark ({scale} run): medians of {ROUNDS}\n");
    println!("| messages | threads | sqlite, a second | dupeproof, a second | ratio |");
    println!("| --- | --- | --- | --- | --- |");
    for threads in THREADS {
        let (mut new, mut duplicates) = (vec![Vec::new(); 2], vec![Vec::new(); 2]);
        // By turns, so that a noisy moment hits both.
        for round in 0..ROUNDS {
            for (at, (name, open)) in CONTESTANTS.iter().enumerate() {
                let contestant = open(&dir.path().join(format!("{name}-{threads}-{round}")))?;
                new[at].push(speed(&*contestant, threads, messages, true)?);
                duplicates[at].push(speed(&*contestant, threads, messages, false)?);
            }
        }
        for (what, speeds) in [("new", new), ("duplicates", duplicates)] {
            let [theirs, ours] = [0, 1].map(|at| median(speeds[at].clone()));
            println!("| {what} | {threads} | {theirs:.0} | {ours:.0} | {:.2} |", ours / theirs);
        }
    }
    Ok(())
}

/// Messages a second, by as many threads.
fn speed(contestant: &dyn Contestant, threads: usize, messages: u64, are_new: bool) -> Fallible<f64> {
    let next = AtomicU64::new(0);
    let started = now();
    thread::scope(|scope| {
        let handle = || -> Fallible<()> {
            let mut handler = contestant.handler()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= messages {
                    return Ok(());
                }
                if handler(number)? != are_new {
                    return Err(format!("message {number}: new is expected to be {are_new}").into());
                }
            }
        };
        let handlers: Vec<_> = (0..threads).map(|_| scope.spawn(handle)).collect();
        handlers.into_iter().try_for_each(|handler| handler.join().expect("a handler does not panic"))
    })?;
    Ok(messages as f64 / now().duration_since(started).as_secs_f64())
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_unstable_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}
