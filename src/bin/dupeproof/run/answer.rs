//! What a run is told when the command does not run, and with which exit code.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use dupeproof::{Conflict, Expired, Identity, InProgress, Replay, Response, RetryLater, UnknownOutcome};
use serde_json::{Value, json};

use crate::args::StoreArgs;
use crate::code;
use crate::failure::{Voice, command_about, say, say_json};
use crate::text::{escaped, instant};

use super::recording::{Captured, Recording};

/// What a failure for good exits with if no command was recorded with it.
const FAILED: u8 = 1;

/// Says on standard error what becomes of a run. Standard output is the command's.
pub(crate) struct Speaker<'a> {
    pub(crate) voice: Voice,
    pub(crate) quiet: bool,
    pub(crate) store: &'a StoreArgs,
    pub(crate) identity: &'a Identity,
}

impl Speaker<'_> {
    fn tell(&self, text: &str, answer: &str, mut value: Value) {
        match self.voice {
            Voice::Human => say(text),
            Voice::Json => {
                value["answer"] = answer.into();
                say_json(&value);
            }
        }
    }

    /// Prints what was recorded, byte for byte, and returns the recorded code.
    pub(crate) fn replay(&self, replay: &Replay) -> u8 {
        let recording = match replay.raw() {
            Response::Bytes(bytes) => Recording::decode(bytes),
            _ if replay.is_success() => Recording::default(),
            _ => Recording { exit_code: FAILED, ..Recording::default() },
        };
        if !self.quiet {
            let (at, reference) = (instant(replay.settled_at()), replay.external_reference());
            let failure = replay.failure().map(|failure| failure.message());
            let mut text = format!("ran before ({at})");
            text.extend(reference.map(|reference| format!(", known as {}", escaped(reference))));
            text.extend(failure.map(|failure| format!(", and failed for good: {}", escaped(failure))));
            let value = json!({ "settled_at": at, "external_reference": reference, "failure": failure });
            self.tell(&text, "replay", value);
        }
        // The repeat is answered whether or not anybody reads it.
        let _ = print(&mut io::stdout().lock(), &recording.stdout);
        let _ = print(&mut io::stderr().lock(), &recording.stderr);
        for (name, stream) in [("output", &recording.stdout), ("error output", &recording.stderr)] {
            if stream.is_cut() {
                let (kept, whole) = (stream.kept.len(), stream.whole_len);
                let text = format!("the {name} was too long to keep: the first {kept} of {whole} bytes");
                self.tell(&text, "cut", json!({ "stream": name, "kept_bytes": kept, "whole_bytes": whole }));
            }
        }
        recording.exit_code
    }

    pub(crate) fn in_progress(&self, other: &InProgress) -> u8 {
        let left = other.lease_left();
        let text = format!("somebody else is running it (attempt {}, good for {left:.1?} more)", other.attempt());
        self.tell(&text, "in_progress", json!({ "attempt": other.attempt(), "lease_left_ms": millis(left) }));
        code::RUN_IN_PROGRESS
    }

    pub(crate) fn retry_later(&self, later: &RetryLater) -> u8 {
        let failure = later.failure().map(|failure| failure.message());
        let mut text = format!("it did not happen and may be tried again in {:.1?}", later.wait());
        text.extend(failure.map(|failure| format!("; the last attempt {}", escaped(failure))));
        let value = json!({ "wait_ms": millis(later.wait()), "attempts": later.attempts(), "failure": failure });
        self.tell(&text, "retry_later", value);
        code::RUN_RETRY_LATER
    }

    pub(crate) fn unknown(&self, unknown: &UnknownOutcome) -> u8 {
        self.lost(unknown);
        code::RUN_UNKNOWN
    }

    /// How the outcome was lost, and what to do about it.
    pub(crate) fn lost(&self, unknown: &UnknownOutcome) {
        let attempt = unknown.attempt().to_string();
        let resolve = command_about(self.store, "resolve", unknown.identity(), &["--attempt", &attempt]);
        let cause = match unknown.failure() {
            Some(failure) => failure.message().to_owned(),
            None => unknown.cause().to_string(),
        };
        // Of a run, another step may be in the way.
        let other = (unknown.identity() != self.identity).then(|| unknown.identity().step_key()).flatten();
        let what = other.map_or("it".to_owned(), |step| format!("the step {} before it", escaped(&step.to_string())));
        let text = format!(
            "nobody knows whether {what} happened (since {}: {})\n  look for {} at the remote side, and then:\n  \
             {resolve} --happened|--failed|--did-not-happen --by YOU --reason WHY",
            instant(unknown.since()),
            escaped(&cause),
            unknown.downstream_key(),
        );
        let value = json!({
            "since": instant(unknown.since()),
            "cause": cause,
            "attempt": unknown.attempt(),
            "downstream_key": unknown.downstream_key(),
            "external_reference": unknown.external_reference(),
            "resolve": resolve,
            "blocked_by": other.map(ToString::to_string),
        });
        self.tell(&text, "unknown", value);
    }

    pub(crate) fn conflict(&self, conflict: &Conflict) -> u8 {
        let (status, since) = (conflict.status(), instant(conflict.created_at()));
        let text = format!("this key was used for another command, file or input ({since}, now {status})");
        let reference = conflict.external_reference();
        let value = json!({ "status": status.as_str(), "created_at": since, "external_reference": reference });
        self.tell(&text, "conflict", value);
        code::RUN_CONFLICT
    }

    pub(crate) fn expired(&self, expired: &Expired) -> u8 {
        let ended = if expired.was_success() { "it happened" } else { "it failed for good" };
        let (at, reference) = (instant(expired.settled_at()), expired.external_reference());
        let mut text = format!("{ended} long ago ({at}), and its output is gone");
        text.extend(reference.map(|reference| format!("; known as {}", escaped(reference))));
        let value = json!({ "succeeded": expired.was_success(), "settled_at": at, "external_reference": reference });
        self.tell(&text, "expired", value);
        code::RUN_EXPIRED
    }

    pub(crate) fn resending(&self) {
        let text = "an earlier attempt may have happened: sending it again under the same IDEMPOTENCY_KEY";
        self.tell(text, "resending", json!({}));
    }

    pub(crate) fn not_swept(&self, error: &dupeproof::Error) {
        let text = format!("the outcome is recorded, but old records could not be tidied up: {error}");
        self.tell(&text, "not_swept", json!({ "error": error.to_string() }));
    }

    pub(crate) fn exhausted(&self) {
        self.tell("that was the last permitted attempt: it failed for good", "attempts_exhausted", json!({}));
    }

    pub(crate) fn not_started(&self, command: &[OsString], error: &io::Error) -> u8 {
        let name = command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = format!("start {}: {error}; nothing was run", escaped(&name));
        self.tell(&text, "not_started", json!({ "command": name, "error": error.to_string() }));
        if error.kind() == io::ErrorKind::NotFound { code::RUN_NOT_FOUND } else { code::RUN_NOT_EXECUTABLE }
    }
}

fn print(to: &mut impl Write, stream: &Captured) -> io::Result<()> {
    to.write_all(&stream.kept)?;
    to.flush()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
