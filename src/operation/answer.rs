//! What a caller is told. Expected answers, never errors.

use std::fmt;
use std::time::Duration;

use super::claim::{Claim, Reservation};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::key::Identity;
use crate::machine::record::{Ended, Record, RetryCause, State, Status, TerminalCause, UnknownCause};
use crate::machine::response::{Artifact, ExternalReference, FailureReport, Response};
use crate::machine::time::Timestamp;

/// The answer to [`begin`](crate::Store::begin).
#[derive(Debug)]
#[must_use = "an ignored claim is given up, and its outcome becomes unknown"]
pub enum Begin {
    /// You own this attempt: perform the effect, then settle the claim.
    Execute(Claim),
    /// It was settled before: here is how.
    Replay(Replay),
    /// Somebody else is on it.
    InProgress(InProgress),
    /// It failed without having happened, and its time to be tried again has not come.
    RetryLater(RetryLater),
    /// Nobody knows whether it happened. Find out first.
    Unknown(UnknownOutcome),
    /// The key was used with another payload.
    Conflict(Conflict),
    /// It was settled so long ago that the response is gone. It does not run again.
    Expired(Expired),
}

/// The answer to [`reserve`](crate::Store::reserve): like [`Begin`], but the effect must not start before
/// [`Reservation::start`].
#[derive(Debug)]
#[must_use = "an ignored reservation is released"]
pub enum Reserve {
    /// You own this attempt. Start it before the effect.
    Reserved(Reservation),
    /// It was settled before: here is how.
    Replay(Replay),
    /// Somebody else is on it.
    InProgress(InProgress),
    /// It failed without having happened, and its time to be tried again has not come.
    RetryLater(RetryLater),
    /// Nobody knows whether it happened. Find out first.
    Unknown(UnknownOutcome),
    /// The key was used with another payload.
    Conflict(Conflict),
    /// It was settled so long ago that the response is gone. It does not run again.
    Expired(Expired),
}

/// How a settled operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    ending: Ending,
    reference: Option<ExternalReference>,
    attempt: u32,
    settled_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Succeeded(Response),
    FailedTerminal(FailureReport, TerminalCause),
}

impl Replay {
    /// Whether the effect happened. A terminal failure is replayed too.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.fail_terminal("card declined")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert!(!replay.is_success());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_success(&self) -> bool {
        matches!(self.ending, Ending::Succeeded(_))
    }

    /// The response: of the success, or the body recorded with the failure.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(replay.raw().bytes(), Some(b"paid".as_slice()));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn raw(&self) -> &Response {
        match &self.ending {
            Ending::Succeeded(response) => response,
            Ending::FailedTerminal(failure, _) => failure.response(),
        }
    }

    /// The response of a success, decoded from JSON.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) if the operation failed for good; [`Response`](ErrorKind::Response) if there is
    /// no stored value (none was given, it was too large, or it is withheld) or it is not a `T`.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("t", "o", "k")?, Fingerprint::unchecked());
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let replay = claim.succeed(&vec![1, 2, 3])?;
    /// assert_eq!(replay.response::<Vec<u8>>()?, [1, 2, 3]);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn response<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(self.value()?).map_err(|error| {
            Error::new(ErrorKind::Response, format!("the stored response is not of the asked type: {error}"))
                .with_source(error)
        })
    }

    /// The bytes of a success.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) if the operation failed for good; [`Response`](ErrorKind::Response) if there is
    /// no stored value.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(replay.value()?, b"paid");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn value(&self) -> Result<&[u8]> {
        let no_value = |why: &str| Error::new(ErrorKind::Response, format!("there is no stored value: {why}"));
        match &self.ending {
            Ending::Succeeded(Response::Bytes(bytes)) => Ok(bytes),
            Ending::Succeeded(Response::Absent) => Err(no_value("the operation ended without one")),
            Ending::Succeeded(Response::TooLarge { len, .. }) => {
                Err(no_value(&format!("{len} bytes were more than the store keeps")))
            }
            Ending::Succeeded(Response::Artifact(_)) => Err(no_value("it lies in a file: read the artifact")),
            Ending::Succeeded(Response::Withheld) => Err(no_value("the operation keeps values out of the store")),
            Ending::FailedTerminal(failure, _) => {
                Err(Error::new(ErrorKind::Refused, format!("the operation failed for good: {}", failure.message())))
            }
        }
    }

    /// Why it failed, if it did.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.fail_terminal("card declined")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(replay.failure().map(|failure| failure.message()), Some("card declined"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn failure(&self) -> Option<&FailureReport> {
        match &self.ending {
            Ending::Succeeded(_) => None,
            Ending::FailedTerminal(failure, _) => Some(failure),
        }
    }

    /// The file that holds the value, if it is kept in one.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// assert!(claim.succeed_raw("paid")?.artifact().is_none());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn artifact(&self) -> Option<&Artifact> {
        match self.raw() {
            Response::Artifact(artifact) => Some(artifact),
            Response::Absent | Response::Bytes(_) | Response::TooLarge { .. } | Response::Withheld => None,
        }
    }

    /// Whether it failed because every permitted attempt was used up.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.release()?;
    /// let once = operation.with_attempts(1);
    /// # let Begin::Execute(claim) = store.begin(&once)? else { unreachable!() };
    /// claim.fail_retryable("connection refused", Retry::now())?;
    /// let Begin::Replay(replay) = store.begin(&once)? else { unreachable!() };
    /// assert!(replay.attempts_exhausted());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempts_exhausted(&self) -> bool {
        matches!(self.ending, Ending::FailedTerminal(_, TerminalCause::AttemptsExhausted))
    }

    /// The provider's own name for the effect.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(replay.external_reference(), Some("ch_1"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn external_reference(&self) -> Option<&str> {
        self.reference.as_ref().map(ExternalReference::as_str)
    }

    /// The attempt that settled it.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(replay.attempt(), 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When it was settled, in store time.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// println!("paid at {} ms", replay.settled_at().as_unix_millis());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn settled_at(&self) -> Timestamp {
        self.settled_at
    }

    /// Nothing for a record that is not settled.
    pub(super) fn of(record: Record) -> Option<Self> {
        let (ending, terms) = match record.state {
            State::Succeeded { response, terms } => (Ending::Succeeded(response), terms),
            State::FailedTerminal { failure, cause, terms } => (Ending::FailedTerminal(failure, cause), terms),
            State::Reserved(_)
            | State::Executing(_)
            | State::FailedRetryable(_)
            | State::Unknown(_)
            | State::Tombstone { .. }
            | State::Open(_) => return None,
        };
        Some(Self {
            ending,
            reference: record.head.reference,
            attempt: record.head.attempt,
            settled_at: terms.settled_at,
        })
    }
}

/// Somebody else holds the operation. Says nothing about its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InProgress {
    attempt: u32,
    lease_left: Duration,
}

impl InProgress {
    /// The running attempt.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let Begin::InProgress(other) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(other.attempt(), claim.attempt());
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long its lease still runs unless it is renewed.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let Begin::InProgress(other) = store.begin(&operation)? else { unreachable!() };
    /// assert!(other.lease_left() <= std::time::Duration::from_secs(60));
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn lease_left(&self) -> Duration {
        self.lease_left
    }

    pub(super) fn of(record: &Record, now: Timestamp) -> Option<Self> {
        let (State::Reserved(held) | State::Executing(held)) = &record.state else { return None };
        Some(Self { attempt: record.head.attempt, lease_left: held.lease.until.since(now) })
    }
}

/// The effect is known not to have happened, and it is too early to try again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryLater {
    attempt: u32,
    wait: Duration,
    failure: Option<FailureReport>,
}

impl RetryLater {
    /// The attempts granted so far.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.fail_retryable("rate limited", Retry::after(std::time::Duration::from_secs(30)))?;
    /// let Begin::RetryLater(later) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(later.attempts(), 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempts(&self) -> u32 {
        self.attempt
    }

    /// How long to wait.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.fail_retryable("rate limited", Retry::after(std::time::Duration::from_secs(30)))?;
    /// let Begin::RetryLater(later) = store.begin(&operation)? else { unreachable!() };
    /// assert!(later.wait() <= std::time::Duration::from_secs(30));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Why the last attempt failed, if its holder said so.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.fail_retryable("rate limited", Retry::after(std::time::Duration::from_secs(30)))?;
    /// let Begin::RetryLater(later) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(later.failure().map(|failure| failure.message()), Some("rate limited"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn failure(&self) -> Option<&FailureReport> {
        self.failure.as_ref()
    }

    pub(super) fn of(record: &Record, now: Timestamp) -> Option<Self> {
        let State::FailedRetryable(retryable) = &record.state else { return None };
        let failure = match &retryable.cause {
            RetryCause::Reported(failure) => Some(failure.clone()),
            RetryCause::Released | RetryCause::Lapsed | RetryCause::OwnerGone | RetryCause::Verdict => None,
        };
        Some(Self { attempt: record.head.attempt, wait: retryable.retry_at.since(now), failure })
    }
}

/// Nobody knows whether the effect happened: ask the provider, or let a person [`resolve`](crate::Store::resolve) it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownOutcome {
    identity: Identity,
    attempt: u32,
    since: Timestamp,
    cause: UnknownCause,
    failure: Option<FailureReport>,
    reference: Option<ExternalReference>,
    downstream_key: String,
    probes: u32,
    waits_for_person: bool,
}

impl UnknownOutcome {
    /// Of what nobody knows the outcome. Of a run, it may be another step than the one that was asked for: it is the one
    /// that blocks it.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let unknown = claim.give_up("connection lost")?;
    /// assert_eq!(unknown.identity().key(), "i-1");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether nobody asks the provider any more: a person must [`resolve`](crate::Store::resolve) it.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert!(!unknown.waits_for_person());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn waits_for_person(&self) -> bool {
        self.waits_for_person
    }

    /// The attempt whose outcome is unknown.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.record_external_reference("ch_1")?;
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(unknown.attempt(), 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Since when, in store time.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.record_external_reference("ch_1")?;
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// println!("unknown since {} ms", unknown.since().as_unix_millis());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Why.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store, UnknownCause};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.record_external_reference("ch_1")?;
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(unknown.cause(), UnknownCause::GaveUp);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn cause(&self) -> UnknownCause {
        self.cause
    }

    /// What the holder said when it gave up.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.record_external_reference("ch_1")?;
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(unknown.failure().map(|failure| failure.message()), Some("connection lost"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn failure(&self) -> Option<&FailureReport> {
        self.failure.as_ref()
    }

    /// The provider's own name for the effect, if the holder recorded one.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.record_external_reference("ch_1")?;
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(unknown.external_reference(), Some("ch_1"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn external_reference(&self) -> Option<&str> {
        self.reference.as_ref().map(ExternalReference::as_str)
    }

    /// The key under which the provider may know the effect.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let sent = claim.downstream_key();
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(unknown.downstream_key(), sent);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn downstream_key(&self) -> &str {
        &self.downstream_key
    }

    /// How often the provider was asked so far.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.record_external_reference("ch_1")?;
    /// claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(unknown.probes(), 0);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn probes(&self) -> u32 {
        self.probes
    }

    pub(crate) fn of(record: &Record) -> Option<Self> {
        let State::Unknown(unresolved) = &record.state else { return None };
        let head = &record.head;
        Some(Self {
            identity: head.identity.clone(),
            attempt: head.attempt,
            since: unresolved.since,
            cause: unresolved.cause,
            failure: unresolved.failure.clone(),
            reference: head.reference.clone(),
            downstream_key: head.identity.downstream_key(head.generation),
            probes: unresolved.probes,
            waits_for_person: record.waits_for_person(),
        })
    }
}

/// The key was used with another payload. Shows the stored status and reference, never the stored payload or response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    status: Status,
    reference: Option<ExternalReference>,
    created_at: Timestamp,
}

impl Conflict {
    /// Where the stored operation stands.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Status, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let altered = Operation::new(operation.key().clone(), Fingerprint::of_bytes(b"99.00"));
    /// let Begin::Conflict(conflict) = store.begin(&altered)? else { unreachable!() };
    /// assert_eq!(conflict.status(), Status::Executing);
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn status(&self) -> Status {
        self.status
    }

    /// The provider's own name for the stored operation's effect.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let altered = Operation::new(operation.key().clone(), Fingerprint::of_bytes(b"99.00"));
    /// let Begin::Conflict(conflict) = store.begin(&altered)? else { unreachable!() };
    /// assert_eq!(conflict.external_reference(), Some("ch_1"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn external_reference(&self) -> Option<&str> {
        self.reference.as_ref().map(ExternalReference::as_str)
    }

    /// When the key was first used, in store time.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// let altered = Operation::new(operation.key().clone(), Fingerprint::of_bytes(b"99.00"));
    /// let Begin::Conflict(conflict) = store.begin(&altered)? else { unreachable!() };
    /// println!("first used at {} ms", conflict.created_at().as_unix_millis());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    pub(crate) fn of(record: &Record) -> Self {
        Self { status: record.status(), reference: record.head.reference.clone(), created_at: record.head.created_at }
    }
}

/// The response is gone, the fact is not: it ended, and it does not run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    succeeded: bool,
    reference: Option<ExternalReference>,
    settled_at: Timestamp,
    purge_at: Timestamp,
}

impl Expired {
    /// Whether the effect happened.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, ManualClock, Operation, OperationKey, Options};
    /// # let clock = ManualClock::at(std::time::Duration::from_secs(1_790_000_000));
    /// # let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// clock.advance(8 * std::time::Duration::from_secs(86_400));
    /// let Begin::Expired(expired) = store.begin(&operation)? else { unreachable!() };
    /// assert!(expired.was_success());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn was_success(&self) -> bool {
        self.succeeded
    }

    /// The provider's own name for the effect.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, ManualClock, Operation, OperationKey, Options};
    /// # let clock = ManualClock::at(std::time::Duration::from_secs(1_790_000_000));
    /// # let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// clock.advance(8 * std::time::Duration::from_secs(86_400));
    /// let Begin::Expired(expired) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(expired.external_reference(), Some("ch_1"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn external_reference(&self) -> Option<&str> {
        self.reference.as_ref().map(ExternalReference::as_str)
    }

    /// When it was settled, in store time.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, ManualClock, Operation, OperationKey, Options};
    /// # let clock = ManualClock::at(std::time::Duration::from_secs(1_790_000_000));
    /// # let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// clock.advance(8 * std::time::Duration::from_secs(86_400));
    /// let Begin::Expired(expired) = store.begin(&operation)? else { unreachable!() };
    /// println!("paid at {} ms", expired.settled_at().as_unix_millis());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn settled_at(&self) -> Timestamp {
        self.settled_at
    }

    /// When this memory goes too, and the key is new again.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, ManualClock, Operation, OperationKey, Options};
    /// # let clock = ManualClock::at(std::time::Duration::from_secs(1_790_000_000));
    /// # let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// clock.advance(8 * std::time::Duration::from_secs(86_400));
    /// let Begin::Expired(expired) = store.begin(&operation)? else { unreachable!() };
    /// assert!(expired.purge_at() > expired.settled_at());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn purge_at(&self) -> Timestamp {
        self.purge_at
    }

    pub(crate) fn of(record: &Record) -> Option<Self> {
        let State::Tombstone { ended, terms } = &record.state else { return None };
        Some(Self {
            succeeded: *ended == Ended::Succeeded,
            reference: record.head.reference.clone(),
            settled_at: terms.settled_at,
            purge_at: terms.purge_at,
        })
    }
}

impl fmt::Display for UnknownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GaveUp => "the holder could not tell",
            Self::LeaseLapsed => "the lease ended without a word",
            Self::OwnerGone => "the holder's process ended without a word",
            Self::ClaimDropped => "the claim was dropped without a word",
        })
    }
}
