//! A shell command that finds out what became of an unknown outcome.

use std::error::Error;
use std::process::{Command, Output, Stdio};

use dupeproof::{Finding, Inquiry, Reconciled, Response, Ruling, StepKey};

use crate::run::recording::{Captured, Recording};

/// A probe's exit: it happened, and what the probe printed is what repeats get.
const HAPPENED: i32 = 0;
/// It did not happen.
const DID_NOT_HAPPEN: i32 = 1;

/// Asks the shell command. Everything but a clear answer leaves the outcome unknown.
pub(crate) fn ask(command: &str, inquiry: &Inquiry) -> Result<Finding, Box<dyn Error + Send + Sync>> {
    let (identity, unknown) = (inquiry.identity(), inquiry.unknown());
    let index = identity.step_key().and_then(StepKey::index);
    let Output { status, stdout, .. } = Command::new("sh")
        .args(["-c", command])
        .env("IDEMPOTENCY_KEY", inquiry.downstream_key())
        .env("DUPEPROOF_KEY", identity.key())
        .env("DUPEPROOF_TENANT", identity.tenant())
        .env("DUPEPROOF_OPERATION", identity.name())
        .env("DUPEPROOF_KIND", identity.kind().as_str())
        .env("DUPEPROOF_STEP", identity.step_key().map(StepKey::name).unwrap_or_default())
        .env("DUPEPROOF_INDEX", index.map(|index| index.to_string()).unwrap_or_default())
        .env("DUPEPROOF_ATTEMPT", unknown.attempt().to_string())
        .env("DUPEPROOF_REFERENCE", inquiry.external_reference().unwrap_or_default())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let finding = match status.code() {
        Some(HAPPENED) => {
            let mut printed = Captured::default();
            printed.push(&stdout);
            let recording = Recording { stdout: printed, ..Recording::default() };
            Finding::happened(Response::from(recording.encode()))
        }
        Some(DID_NOT_HAPPEN) => Finding::did_not_happen(),
        _ => Finding::still_unknown(),
    };
    Ok(finding.because(format!("the probe's {status}")))
}

/// What became of an outcome, in one word.
pub(crate) fn word(one: &Reconciled) -> &'static str {
    match one.ruling {
        Some(Ruling::Happened) => "happened",
        Some(Ruling::DidNotHappen) => "did_not_happen",
        Some(Ruling::FailedForGood) => "failed_for_good",
        _ if one.waits_for_person => "waits_for_person",
        Some(_) => "still_unknown",
        // Somebody else asked or decided meanwhile.
        None => "overtaken",
    }
}
