//! What went wrong, and how it is said: a message for people or an object for programs, the next command to type, and
//! an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anstyle::AnsiColor;
use clap::CommandFactory;
use clap::error::ErrorKind as Usage;
use dupeproof::{Error, ErrorKind, Identity};
use serde_json::{Value, json};

use crate::args::{Cli, StoreArgs, arguments_of};
use crate::print::painted;
use crate::text::{escaped, quoted};
use crate::{code, place};

/// Who listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Human,
    Json,
}

/// Why a command of ours failed, and what to type next where that is plain.
#[derive(Debug)]
pub(crate) struct Failure {
    cause: Cause,
    next: Option<String>,
}

#[derive(Debug)]
enum Cause {
    Store(Error),
    Other { message: String, code: u8 },
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::with_code(code::FAILED, message)
    }

    pub(crate) fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self { cause: Cause::Other { message: message.into(), code }, next: None }
    }

    /// What to type next.
    pub(crate) fn next(self, command: String) -> Self {
        Self { next: Some(command), ..self }
    }

    fn code(&self) -> u8 {
        match &self.cause {
            Cause::Other { code, .. } => *code,
            Cause::Store(error) => match error.kind() {
                ErrorKind::InvalidInput => code::WRONG_USAGE,
                ErrorKind::NotFound => code::NOT_FOUND,
                ErrorKind::Refused => code::REFUSED,
                _ => code::FAILED,
            },
        }
    }

    /// What to type next: what whoever failed knows, or what the kind of the error says.
    fn next_step(&self, store: &StoreArgs) -> Option<String> {
        let kind = match &self.cause {
            Cause::Store(error) if self.next.is_none() => error.kind(),
            _ => return self.next.clone(),
        };
        match kind {
            // Whoever has it open is a process of this machine.
            ErrorKind::OpenElsewhere => {
                let path = place::path(store).ok()?;
                Some(format!("fuser -v {}", quoted(&path.display().to_string())))
            }
            ErrorKind::Damaged => Some(next_command(store, &["verify"])),
            _ => None,
        }
    }

    pub(crate) fn report(&self, store: &StoreArgs, voice: Voice) -> ExitCode {
        self.report_as(store, voice, self.code())
    }

    pub(crate) fn report_as(&self, store: &StoreArgs, voice: Voice, code: u8) -> ExitCode {
        let next = self.next_step(store);
        match voice {
            Voice::Human => {
                let mut text = match &self.cause {
                    Cause::Store(error) => {
                        format!("{}\n  {}", escaped(&error.to_string()), advice(error.kind()))
                    }
                    Cause::Other { message, .. } => escaped(message),
                };
                text.extend(next.map(|next| format!("\n  next: {next}")));
                let name = painted("dupeproof:", AnsiColor::Red.on_default().bold());
                let _ = writeln!(anstream::stderr().lock(), "{name} {text}");
            }
            Voice::Json => {
                let mut value = match &self.cause {
                    Cause::Store(error) => {
                        let kind = error.kind();
                        json!({
                            "error": error.to_string(),
                            "kind": format!("{kind:?}"),
                            "advice": advice(kind),
                            "outcome_is_known": kind.outcome_is_known(),
                            "may_retry": kind.may_retry(),
                            "is_damage": kind.is_damage(),
                        })
                    }
                    Cause::Other { message, .. } => json!({ "error": message }),
                };
                value["exit_code"] = code.into();
                value["next"] = next.into();
                say_json(&value);
            }
        }
        ExitCode::from(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { cause: Cause::Store(error), next: None }
    }
}

/// The library speaks to programmers; whoever sits here has options to give.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::OpenElsewhere => {
            "wait for it with --open-wait 30s, or stop the program that has the store for itself; one that opens it in \
             shared mode can stay"
        }
        kind => kind.advice(),
    }
}

/// A command of this program on this store, as a shell reads it.
pub(crate) fn next_command(store: &StoreArgs, words: &[&str]) -> String {
    let mut command = vec!["dupeproof".to_owned()];
    command.extend(words.first().map(|word| quoted(word)));
    if let Some(store) = &store.store {
        command.extend(["--store".to_owned(), quoted(&store.display().to_string())]);
    }
    command.extend(words.iter().skip(1).map(|word| quoted(word)));
    command.join(" ")
}

/// A command about a record.
pub(crate) fn command_about(store: &StoreArgs, word: &str, identity: &Identity, more: &[&str]) -> String {
    let name = arguments_of(identity);
    let words: Vec<&str> =
        [word].into_iter().chain(name.iter().map(String::as_str)).chain(more.iter().copied()).collect();
    next_command(store, &words)
}

/// How to see all that is recorded of something.
pub(crate) fn look_up(store: &StoreArgs, identity: &Identity) -> String {
    command_about(store, "show", identity, &[])
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
        return ExitCode::from(code::DONE);
    }
    let program = Cli::command();
    let is_run = arguments
        .take_while(|argument| argument != "--")
        .filter_map(|argument| argument.into_string().ok())
        .find(|argument| program.find_subcommand(argument).is_some())
        .is_some_and(|name| name == "run");
    ExitCode::from(if is_run { code::RUN_FAILED } else { code::WRONG_USAGE })
}
