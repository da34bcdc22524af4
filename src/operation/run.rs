//! The same in one closure: begin, perform, settle.

use std::error::Error as StdError;
use std::fmt;

use super::answer::{Begin, Conflict, Expired, InProgress, Replay, RetryLater, UnknownOutcome};
use super::claim::{AfterFailure, Claim, Settlement};
use super::spec::Operation;
use crate::error::Result;
use crate::machine::policy::Retry;
use crate::machine::response::{FailureReport, Response};
use crate::store::Store;

/// How an effect failed, as the one who tried it knows. A plain `?` on a foreign error means *unknown*: an error that
/// nobody classified must not be repeated.
///
/// # Example
/// ```
/// use dupeproof::{Failure, Retry};
/// fn charge() -> Result<String, Failure> {
///     let number: u32 = "12".parse()?; // An error here would make the outcome unknown.
///     if number > 50 {
///         return Err(Failure::terminal("over the limit"));
///     }
///     Err(Failure::retryable("no route to the provider", Retry::backoff()))
/// }
/// # assert!(charge().is_err());
/// ```
#[derive(Debug)]
pub struct Failure(Settlement);

impl Failure {
    /// The effect is *known* not to have happened; try again when `retry` says.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Failure, Fingerprint, Operation, OperationKey, Outcome, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// let outcome = store.run_raw(&operation, |_claim| Err(Failure::retryable("connection refused", Retry::backoff())))?;
    /// assert!(matches!(outcome, Outcome::RetryLater(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn retryable(why: impl fmt::Display, retry: Retry) -> Self {
        Self(Settlement::FailedRetryable(FailureReport::new(why), retry))
    }

    /// The effect did not happen and will not be tried again.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Failure, Fingerprint, Operation, OperationKey, Outcome, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// let outcome = store.run_raw(&operation, |_claim| Err(Failure::terminal("card declined")))?;
    /// assert!(matches!(outcome, Outcome::FailedTerminal(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn terminal(why: impl fmt::Display) -> Self {
        Self::terminal_with(FailureReport::new(why))
    }

    /// The same with a report that can carry a body.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Failure, FailureReport, Fingerprint, Operation, OperationKey, Outcome, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// let report = FailureReport::new("card declined").with_response(r#"{"code":51}"#);
    /// let outcome = store.run_raw(&operation, |_claim| Err(Failure::terminal_with(report)))?;
    /// assert!(matches!(outcome, Outcome::FailedTerminal(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn terminal_with(report: FailureReport) -> Self {
        Self(Settlement::FailedTerminal(report))
    }

    /// Nobody can tell whether the effect happened.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Failure, Fingerprint, Operation, OperationKey, Outcome, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// let outcome = store.run_raw(&operation, |_claim| Err(Failure::unknown("connection lost")))?;
    /// assert!(matches!(outcome, Outcome::Unknown(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn unknown(why: impl fmt::Display) -> Self {
        Self(Settlement::GaveUp(FailureReport::new(why)))
    }

    /// The effect was not started.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Failure, Fingerprint, Operation, OperationKey, Outcome, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// let outcome = store.run_raw(&operation, |_claim| Err(Failure::not_started()))?;
    /// assert!(matches!(outcome, Outcome::NotStarted));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn not_started() -> Self {
        Self(Settlement::Released)
    }
}

/// Unclassified means unknown.
impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::unknown(error.into())
    }
}

/// How [`run`](Store::run) ended.
#[derive(Debug)]
#[must_use = "most of these mean that the effect did not run"]
pub enum Outcome<T> {
    /// The effect happened, now or earlier: the value as every repeat gets it.
    Succeeded(T),
    /// The effect happened, and its value is not stored: none was given, it was too large, or it is withheld.
    SucceededWithoutValue(Replay),
    /// It failed for good, now or earlier.
    FailedTerminal(Replay),
    /// It is known not to have happened; it may be tried again later.
    RetryLater(RetryLater),
    /// It was handed back without having been started; it may be tried again at once.
    NotStarted,
    /// Nobody knows whether it happened.
    Unknown(UnknownOutcome),
    /// Somebody else is on it.
    InProgress(InProgress),
    /// The key was used with another payload.
    Conflict(Conflict),
    /// It was settled so long ago that the response is gone.
    Expired(Expired),
}

impl Store {
    /// Begins the operation, performs the effect if it is its turn, and settles it, with bytes as the response.
    ///
    /// The closure gets the claim, for its downstream key and to record the external reference early. If the closure
    /// panics, the outcome is unknown and the panic goes on.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin) and of settling. If settling fails, the effect may have happened without having
    /// been recorded: the record then is, or becomes, unknown. Use [`begin`](Self::begin) and
    /// [`reattach`](Self::reattach) where the value must survive a failing disk.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Outcome, Response, Store};
    /// # let store = Store::in_memory()?;
    /// let operation = Operation::new(OperationKey::new("acme", "mail", "welcome/jane")?, Fingerprint::unchecked());
    /// for _ in 0..2 {
    ///     let outcome = store.run_raw(&operation, |_claim| Ok(Response::from("message 17")))?;
    ///     assert!(matches!(outcome, Outcome::Succeeded(bytes) if bytes == b"message 17"));
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn run_raw(
        &self,
        operation: &Operation,
        effect: impl FnOnce(&Claim) -> std::result::Result<Response, Failure>,
    ) -> Result<Outcome<Vec<u8>>> {
        self.run_with(operation, effect, |replay| replay.value().map(<[u8]>::to_vec))
    }

    /// Begins the operation, performs the effect if it is its turn, and settles it, with a value that is stored as
    /// JSON. First callers and repeats get the value decoded from what is stored.
    ///
    /// # Errors
    /// As for [`run_raw`](Self::run_raw); and [`Response`](crate::ErrorKind::Response) if the value cannot be written
    /// as JSON (the outcome then is unknown) or read back as a `T` (the operation is settled all the same).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Outcome, Store};
    /// # let store = Store::in_memory()?;
    /// let operation = Operation::new(OperationKey::new("acme", "quote", "order-7")?, Fingerprint::unchecked());
    /// let outcome = store.run(&operation, |_claim| Ok(1200_u32))?;
    /// assert!(matches!(outcome, Outcome::Succeeded(1200)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn run<T: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        operation: &Operation,
        effect: impl FnOnce(&Claim) -> std::result::Result<T, Failure>,
    ) -> Result<Outcome<T>> {
        let effect = |claim: &Claim| {
            let value = effect(claim)?;
            // It happened, so its outcome must not be lost with its value.
            Ok(super::claim::to_json(&value)?.into())
        };
        self.run_with(operation, effect, Replay::response)
    }

    fn run_with<T>(
        &self,
        operation: &Operation,
        effect: impl FnOnce(&Claim) -> std::result::Result<Response, Failure>,
        value: impl FnOnce(&Replay) -> Result<T>,
    ) -> Result<Outcome<T>> {
        let claim = match self.begin(operation)? {
            Begin::Execute(claim) => claim,
            Begin::Replay(replay) => return replayed(replay, value),
            Begin::InProgress(other) => return Ok(Outcome::InProgress(other)),
            Begin::RetryLater(later) => return Ok(Outcome::RetryLater(later)),
            Begin::Unknown(unknown) => return Ok(Outcome::Unknown(unknown)),
            Begin::Conflict(conflict) => return Ok(Outcome::Conflict(conflict)),
            Begin::Expired(expired) => return Ok(Outcome::Expired(expired)),
        };
        match effect(&claim).map_err(|Failure(settlement)| settlement) {
            Ok(response) => replayed(claim.succeed_raw(response)?, value),
            Err(Settlement::Succeeded(response)) => replayed(claim.succeed_raw(response)?, value),
            Err(Settlement::FailedTerminal(report)) => claim.fail_terminal_with(report).map(Outcome::FailedTerminal),
            Err(Settlement::FailedRetryable(report, retry)) => {
                Ok(match claim.fail_retryable(report.message(), retry)? {
                    AfterFailure::RetryLater(later) => Outcome::RetryLater(later),
                    AfterFailure::Exhausted(replay) => Outcome::FailedTerminal(replay),
                    AfterFailure::StillUnknown(unknown) => Outcome::Unknown(unknown),
                })
            }
            Err(Settlement::GaveUp(report)) => claim.give_up(report.message()).map(Outcome::Unknown),
            Err(Settlement::Released) => claim.release().map(|()| Outcome::NotStarted),
        }
    }
}

fn replayed<T>(replay: Replay, value: impl FnOnce(&Replay) -> Result<T>) -> Result<Outcome<T>> {
    if !replay.is_success() {
        return Ok(Outcome::FailedTerminal(replay));
    }
    if replay.raw().bytes().is_none() {
        return Ok(Outcome::SucceededWithoutValue(replay));
    }
    value(&replay).map(Outcome::Succeeded)
}
