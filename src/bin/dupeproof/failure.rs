//! What went wrong, and how it is said: a message for people or an object for programs, and an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind as Usage;
use dupeproof::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::args::Cli;
use crate::text::escaped;

/// Who listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Human,
    Json,
}

/// Exit codes of everything but `run`.
const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;
const NOT_FOUND: u8 = 3;
const REFUSED: u8 = 4;
/// The exit code of `run` when dupeproof itself failed, wrong usage included: 2 could be the command's.
pub(crate) const RUN_FAILED: u8 = 125;

/// Why a command of ours failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(Error),
    Other { message: String, code: u8 },
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Other { message: message.into(), code: FAILED }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::Other { message: message.into(), code: NOT_FOUND }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Other { code, .. } => *code,
            Self::Store(error) => match error.kind() {
                ErrorKind::InvalidInput => WRONG_USAGE,
                ErrorKind::NotFound => NOT_FOUND,
                ErrorKind::Refused => REFUSED,
                _ => FAILED,
            },
        }
    }

    pub(crate) fn report(&self, voice: Voice) -> ExitCode {
        self.report_as(voice, self.code())
    }

    pub(crate) fn report_as(&self, voice: Voice, code: u8) -> ExitCode {
        match (voice, self) {
            (Voice::Human, Self::Store(error)) => {
                say(&format!("{}\n  {}", escaped(&error.to_string()), error.kind().advice()));
            }
            (Voice::Human, Self::Other { message, .. }) => say(&escaped(message)),
            (Voice::Json, Self::Store(error)) => {
                let kind = error.kind();
                say_json(&json!({
                    "error": error.to_string(),
                    "kind": format!("{kind:?}"),
                    "advice": kind.advice(),
                    "outcome_is_known": kind.outcome_is_known(),
                    "may_retry": kind.may_retry(),
                    "is_damage": kind.is_damage(),
                    "exit_code": code,
                }));
            }
            (Voice::Json, Self::Other { message, .. }) => say_json(&json!({ "error": message, "exit_code": code })),
        }
        ExitCode::from(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// A note on standard error, which may be gone.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "dupeproof: {text}");
}

pub(crate) fn say_json(value: &Value) {
    let _ = writeln!(std::io::stderr().lock(), "{value}");
}

/// Wrong arguments, or a request for help.
pub(crate) fn usage(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    // What cannot be printed was not wanted.
    let _ = error.print();
    if matches!(error.kind(), Usage::DisplayHelp | Usage::DisplayVersion) {
        return ExitCode::SUCCESS;
    }
    let program = Cli::command();
    let is_run = arguments
        .take_while(|argument| argument != "--")
        .filter_map(|argument| argument.into_string().ok())
        .find(|argument| program.find_subcommand(argument).is_some())
        .is_some_and(|name| name == "run");
    ExitCode::from(if is_run { RUN_FAILED } else { WRONG_USAGE })
}
