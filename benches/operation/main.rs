//! What an operation costs, beside a hand-written SQLite table and the same commits on bare redb, all in one run:
//! `cargo bench --bench operation --features json`. With `DUPEPROOF_BENCH=quick` it takes a minute, not five.
//!
//! Absolute figures are the machine's; the ratios in the table at the end are ours. A filter, as in
//! `cargo bench … -- replay`, leaves only what criterion times.

mod cycle;
mod memory;
mod peers;
mod replay;
mod report;
mod scale;
mod stores;
mod visit;
mod work;

use std::env;
use std::ffi::OsString;

use criterion::Criterion;

use crate::peers::Fallible;
use crate::report::Report;
use crate::scale::Scale;
use crate::stores::Stores;
use crate::visit::Visit;

fn main() -> Fallible<()> {
    let mut arguments = env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == visit::FLAG).is_some() {
        return Visit::run(arguments);
    }
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return Ok(());
    }
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let has_filter = arguments.iter().any(|argument| !argument.to_string_lossy().starts_with('-'));

    let scale = Scale::from_env(is_bench);
    let mut stores = Stores::new()?;
    let mut criterion =
        Criterion::default().without_plots().output_directory(&replay::results_dir()).configure_from_args();
    let mut report = Report::default();
    if !has_filter {
        report.turns = cycle::take_turns(&mut stores, &scale)?;
        report.calls = cycle::count_calls(&mut stores, &scale)?;
    }
    report.cycles = cycle::bench(&mut criterion, &mut stores, &scale)?;
    report.replays = replay::bench(&mut criterion, &mut stores, &scale)?;
    if !has_filter {
        report.space = memory::measure(&mut stores, &scale)?;
    }
    report.print(&scale);
    Ok(())
}
