//! A shell command that finds out what became of an unknown outcome.

use std::process::{Command, Output, Stdio};

use dupeproof::{Decision, ErrorKind, OperationKey, Response, Store, Verdict};

use crate::Fallible;
use crate::failure::Failure;
use crate::run::recording::{Captured, Recording};

/// A probe's exit: it happened, and what the probe printed is what repeats get.
const HAPPENED: i32 = 0;
/// It did not happen.
const DID_NOT_HAPPEN: i32 = 1;

/// What a probe is asked about.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) key: &'a OperationKey,
    pub(crate) attempt: u32,
    pub(crate) downstream_key: &'a str,
    pub(crate) external_reference: Option<&'a str>,
}

/// What became of the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Happened,
    DidNotHappen,
    StillUnknown,
    /// Somebody else decided meanwhile, or another attempt is unknown by now: the probe's word was about the past.
    Overtaken,
}

impl Finding {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::DidNotHappen => "did_not_happen",
            Self::StillUnknown => "still_unknown",
            Self::Overtaken => "overtaken",
        }
    }
}

/// Asks the probe and records its verdict, as `by`.
pub(crate) fn ask(store: &Store, question: &Question<'_>, probe: &str, by: &str) -> Fallible<Finding> {
    let key = question.key;
    let Output { status, stdout, .. } = Command::new("sh")
        .args(["-c", probe])
        .env("IDEMPOTENCY_KEY", question.downstream_key)
        .env("DUPEPROOF_KEY", key.key())
        .env("DUPEPROOF_TENANT", key.tenant())
        .env("DUPEPROOF_OPERATION", key.operation())
        .env("DUPEPROOF_ATTEMPT", question.attempt.to_string())
        .env("DUPEPROOF_REFERENCE", question.external_reference.unwrap_or_default())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("start the probe: {error}; the outcome is as unknown as before")))?;
    let (verdict, finding) = match status.code() {
        Some(HAPPENED) => {
            let mut printed = Captured::default();
            printed.push(&stdout);
            let recording = Recording { stdout: printed, ..Recording::default() };
            let response = Response::from(recording.encode());
            (Verdict::Happened { response, external_reference: None }, Finding::Happened)
        }
        Some(DID_NOT_HAPPEN) => (Verdict::DidNotHappen, Finding::DidNotHappen),
        _ => return Ok(Finding::StillUnknown),
    };
    // The probe looked at this attempt and at no other.
    let decision = Decision::new(by, format!("the probe's {status}")).about_attempt(question.attempt);
    match store.resolve(key, verdict, &decision) {
        Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotFound) => Ok(Finding::Overtaken),
        resolved => Ok(resolved.map(|_| finding)?),
    }
}
