//! The worker's process: it says where it is, and dies there of SIGKILL, which no program can catch.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Fallible;

/// In the worker: at its last place it says so and waits for death.
pub(crate) fn reached(place: &str, last: &str) {
    if place == last {
        println!("{place}");
        // Returns only if there is nobody left to kill us.
        let _ = std::io::stdin().read(&mut [0]);
    }
}

/// Starts this program again, as a worker, and kills it where it says that it is at `last`. If that is `never`, it works
/// to its end.
pub(crate) fn run_and_kill(store: &Path, job: &str, last: &str, ports: &[u16]) -> Fallible<()> {
    let mut worker = Command::new(std::env::current_exe()?)
        .arg("worker")
        .arg(store)
        .args([job, last])
        .args(ports.iter().map(u16::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(worker.stdout.take().ok_or("no standard output")?).read_line(&mut said)?;
    if !said.is_empty() {
        worker.kill()?;
    }
    let status = worker.wait()?;
    let is_as_told = if last == "never" { status.success() } else { said.trim_end() == last && !status.success() };
    if is_as_told { Ok(()) } else { Err(format!("the worker said {said:?} and ended with {status}").into()) }
}
