//! `--reconcile`: a command that finds out what became of an unknown outcome.

use std::process::{Command, Output, Stdio};

use dupeproof::{Decision, ErrorKind, OperationKey, Response, Store, UnknownOutcome, Verdict};

use super::recording::{Captured, Recording};
use crate::Fallible;
use crate::failure::Failure;

/// Who decided, in the record.
const BY: &str = "--reconcile";
/// A probe's exit: it happened, and what the probe printed is what repeats get.
const HAPPENED: i32 = 0;
/// It did not happen.
const DID_NOT_HAPPEN: i32 = 1;

/// Asks the probe and records its verdict. Says whether to begin again.
pub(crate) fn settle(store: &Store, key: &OperationKey, unknown: &UnknownOutcome, probe: &str) -> Fallible<bool> {
    let Output { status, stdout, .. } = Command::new("sh")
        .args(["-c", probe])
        .env("IDEMPOTENCY_KEY", unknown.downstream_key())
        .env("DUPEPROOF_ATTEMPT", unknown.attempt().to_string())
        .env("DUPEPROOF_REFERENCE", unknown.external_reference().unwrap_or_default())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("start the probe: {error}; the outcome is as unknown as before")))?;
    let verdict = match status.code() {
        Some(HAPPENED) => {
            let mut printed = Captured::default();
            printed.push(&stdout);
            let recording = Recording { stdout: printed, ..Recording::default() };
            Verdict::Happened { response: Response::from(recording.encode()), external_reference: None }
        }
        Some(DID_NOT_HAPPEN) => Verdict::DidNotHappen,
        _ => return Ok(false),
    };
    // The probe looked at this attempt. If another one is unknown by now, or somebody else has decided, it says nothing.
    let decision = Decision::new(BY, format!("the probe's {status}")).about_attempt(unknown.attempt());
    match store.resolve(key, verdict, &decision) {
        Err(error) if error.kind() != ErrorKind::Refused => Err(error.into()),
        _ => Ok(true),
    }
}
