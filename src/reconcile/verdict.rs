//! A verdict, recorded with who gave it and why.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{About, Answer, Event, Verdict as Machine};
use crate::machine::key::Identity;
use crate::machine::limits::{DECIDER_BYTES_MAX, DELAY_MAX, REASON_BYTES_MAX};
use crate::machine::record::{Decision as Recorded, Ruling, Witness};
use crate::machine::response::{ExternalReference, FailureReport, Response, ResponsePolicy, bounded_text};
use crate::machine::time::{Span, Timestamp};
use crate::operation::{OperationView, view};
use crate::storage::batch::{Step, Target};
use crate::store::Store;

/// What is now known of an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The effect happened. Repeats are answered with this response.
    Happened {
        /// The response, as far as it is known.
        response: Response,
        /// The provider's own name for the effect.
        external_reference: Option<String>,
    },
    /// The effect did not happen and will not be tried again.
    FailedForGood {
        /// What repeats are told.
        failure: FailureReport,
    },
    /// The effect did not happen: exactly one more attempt may run, also beyond the attempt limit.
    DidNotHappen,
    /// Nobody knows yet.
    StillUnknown {
        /// How long to wait before the next look.
        next: Duration,
    },
}

/// Who decides, and why. Recorded with the operation.
///
/// # Example
/// ```
/// let decision = dupeproof::Decision::new("jane", "charge ch_12 is in the provider's dashboard");
/// # let _ = decision;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    by: String,
    reason: String,
    attempt: Option<u32>,
}

impl Decision {
    /// `by` takes 1–256 bytes, `reason` 1–4,096; both are checked when the decision is used.
    ///
    /// # Example
    /// ```
    /// let decision = dupeproof::Decision::new("jane", "no such charge in the dashboard");
    /// # let _ = decision;
    /// ```
    pub fn new(by: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { by: by.into(), reason: reason.into(), attempt: None }
    }

    /// Says which attempt was looked into. Refused if by then another one's outcome is unknown: somebody else decided in
    /// the meantime, and what was found says nothing about the newer attempt.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Decision, ErrorKind, Fingerprint, Operation, OperationKey, Store, Verdict};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.give_up("connection lost")?;
    /// let Begin::Unknown(unknown) = store.begin(&operation)? else { unreachable!() };
    /// // Look at the provider's books. Then:
    /// let why = Decision::new("jane", "no such charge").about_attempt(unknown.attempt());
    /// store.resolve(operation.key(), Verdict::DidNotHappen, &why)?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn about_attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    pub(crate) fn recorded(&self) -> Result<Recorded> {
        Ok(Recorded {
            at: Timestamp::from_unix_millis(0),
            by: bounded_text("by", &self.by, DECIDER_BYTES_MAX)?,
            reason: bounded_text("reason", &self.reason, REASON_BYTES_MAX)?,
            ruling: Ruling::StillUnknown,
            witness: Witness::Person,
            attempt: 0,
        })
    }
}

impl Store {
    /// Records a person's verdict on an unknown outcome. Durable on return.
    ///
    /// After [`Verdict::StillUnknown`] the provider may be asked as often as before: it ends the wait for a person.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound); [`Refused`](ErrorKind::Refused) if the outcome is not unknown, or that of
    /// another attempt than the decision is [about](Decision::about_attempt); [`InvalidInput`](ErrorKind::InvalidInput).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Decision, Fingerprint, Operation, OperationKey, Store, Verdict};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::unchecked());
    /// let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.give_up("connection lost")?;
    ///
    /// let why = Decision::new("jane", "no such charge in the provider's dashboard");
    /// store.resolve(operation.key(), Verdict::DidNotHappen, &why)?;
    /// assert!(matches!(store.begin(&operation)?, Begin::Execute(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn resolve(&self, key: impl Into<Identity>, verdict: Verdict, decision: &Decision) -> Result<OperationView> {
        let recorded = decision.recorded()?;
        let verdict = verdict.admitted(self.response_bytes_max())?;
        let target = Target::Key(key.into());
        let about = decision.attempt.map_or(About::Whatever, About::Attempt);
        let driven = self.engine().drive(vec![Step { target, event: Event::Resolve(verdict, recorded, about) }])?;
        match driven.only() {
            Answer::Accepted(record) => Ok(view(*record)),
            _ => Err(Error::new(ErrorKind::Damaged, "the machine neither accepted nor refused a verdict")),
        }
    }
}

impl Verdict {
    /// What the machine is told, with responses cut to what may be stored.
    pub(super) fn admitted(self, bytes_max: usize) -> Result<Machine> {
        let policy = ResponsePolicy::Store;
        Ok(match self {
            Self::Happened { response, external_reference } => Machine::Happened {
                response: response.admitted(policy, bytes_max),
                reference: external_reference.as_deref().map(ExternalReference::new).transpose()?,
            },
            Self::FailedForGood { failure } => Machine::FailedForGood { failure: failure.admitted(policy, bytes_max) },
            Self::DidNotHappen => Machine::DidNotHappen,
            Self::StillUnknown { next } => Machine::StillUnknown { next: Span::from_duration(next).min(DELAY_MAX) },
        })
    }
}
