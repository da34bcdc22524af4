//! Standard output: what was asked for, and nothing else. Colours only where a person looks at a terminal that has
//! them, and not against `NO_COLOR`.

use std::io::{self, ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use dupeproof::{RunStatus, Status};

use crate::Fallible;
use crate::failure::Failure;

/// Prints text for people, painted or not. A reader who has seen enough (`| head`) is no failure.
pub(crate) fn print_out(text: &str) -> Fallible<()> {
    print_to(anstream::stdout().lock(), text.as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn print_out_bytes(bytes: &[u8]) -> Fallible<()> {
    print_to(io::stdout().lock(), bytes)
}

fn print_to(mut out: impl Write, bytes: &[u8]) -> Fallible<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(format!("print the result: {error}"))),
        _ => Ok(()),
    }
}

pub(crate) fn painted(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

/// What needs a person is red, what is under way yellow, what is over green or grey.
pub(crate) fn status_style(status: Status) -> Style {
    match status {
        Status::Unknown => AnsiColor::Red.on_default().bold(),
        Status::FailedTerminal => AnsiColor::Red.on_default(),
        Status::Reserved | Status::Executing | Status::FailedRetryable => AnsiColor::Yellow.on_default(),
        Status::Succeeded => AnsiColor::Green.on_default(),
        _ => Style::new().dimmed(),
    }
}

/// The same for a run.
pub(crate) fn run_status_style(status: RunStatus) -> Style {
    match status {
        RunStatus::BlockedUnknown | RunStatus::CompensationUnknown => AnsiColor::Red.on_default().bold(),
        RunStatus::Failed | RunStatus::PartiallyCompensated => AnsiColor::Red.on_default(),
        RunStatus::Running | RunStatus::Compensating => AnsiColor::Yellow.on_default(),
        RunStatus::Succeeded | RunStatus::Compensated => AnsiColor::Green.on_default(),
        _ => Style::new().dimmed(),
    }
}
