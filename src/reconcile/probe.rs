//! What a probe is asked, and what it answers.

use std::error::Error as StdError;
use std::time::Duration;

use super::verdict::Verdict;
use crate::machine::event::About;
use crate::machine::key::{Identity, Kind, StepKey};
use crate::machine::record::{Record, State};
use crate::machine::response::{FailureReport, Response};
use crate::operation::UnknownOutcome;

/// Looks an operation up at its provider: did it happen?
///
/// Implemented by every closure of that shape. A probe only reads: it is asked again after a crash, and, when it takes
/// longer than its [lease](crate::Reconciler::with_lease), perhaps twice at once. An error or a panic counts as
/// [`Verdict::StillUnknown`], with what it said as the reason.
///
/// # Example
/// ```
/// use dupeproof::{Finding, Inquiry, Reconcile, Response};
/// # struct Ledger;
/// # impl Ledger { fn find(&self, _: &str) -> std::io::Result<Option<String>> { Ok(None) } }
/// struct AtTheBank(Ledger);
///
/// impl Reconcile for AtTheBank {
///     fn look_up(&self, inquiry: &Inquiry) -> Result<Finding, Box<dyn std::error::Error + Send + Sync>> {
///         Ok(match self.0.find(inquiry.downstream_key())? {
///             Some(receipt) => Finding::happened(receipt).because("it is in the bank's ledger"),
///             None => Finding::did_not_happen(),
///         })
///     }
/// }
/// ```
pub trait Reconcile: Send + Sync {
    /// Asks the provider by the downstream key or the external reference.
    ///
    /// # Errors
    /// Whatever kept it from finding out: the outcome stays unknown.
    fn look_up(&self, inquiry: &Inquiry) -> Result<Finding, Box<dyn StdError + Send + Sync>>;
}

impl<F> Reconcile for F
where
    F: Fn(&Inquiry) -> Result<Finding, Box<dyn StdError + Send + Sync>> + Send + Sync,
{
    fn look_up(&self, inquiry: &Inquiry) -> Result<Finding, Box<dyn StdError + Send + Sync>> {
        self(inquiry)
    }
}

/// What a probe found out, and how it knows.
///
/// # Example
/// ```
/// let finding = dupeproof::Finding::did_not_happen().because("no such charge in today's ledger");
/// # let _ = finding;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub(super) verdict: Verdict,
    pub(super) reason: Option<String>,
}

impl Finding {
    /// The effect happened. Repeats are answered with this response.
    ///
    /// # Example
    /// ```
    /// let finding = dupeproof::Finding::happened("receipt 17");
    /// # let _ = finding;
    /// ```
    pub fn happened(response: impl Into<Response>) -> Self {
        Verdict::Happened { response: response.into(), external_reference: None }.into()
    }

    /// It did not happen: exactly one more attempt may run. Say so only of what cannot happen any more.
    ///
    /// # Example
    /// ```
    /// let finding = dupeproof::Finding::did_not_happen();
    /// # let _ = finding;
    /// ```
    pub fn did_not_happen() -> Self {
        Verdict::DidNotHappen.into()
    }

    /// It did not happen and will not be tried again.
    ///
    /// # Example
    /// ```
    /// let finding = dupeproof::Finding::failed_for_good(dupeproof::FailureReport::new("declined"));
    /// # let _ = finding;
    /// ```
    pub fn failed_for_good(failure: FailureReport) -> Self {
        Verdict::FailedForGood { failure }.into()
    }

    /// Nobody knows yet. The next probe comes after the reconciler's backoff.
    ///
    /// # Example
    /// ```
    /// let finding = dupeproof::Finding::still_unknown().because("the bank is closed");
    /// # let _ = finding;
    /// ```
    pub fn still_unknown() -> Self {
        Verdict::StillUnknown { next: Duration::ZERO }.into()
    }

    /// Says how one knows: recorded with the operation, cut to 4,096 bytes.
    ///
    /// # Example
    /// See [`Finding`].
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

impl From<Verdict> for Finding {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, reason: None }
    }
}

/// Which operations a probe can look up.
///
/// # Example
/// ```
/// use dupeproof::Subject;
/// let charges = Subject::from("charge");
/// assert_eq!(charges, Subject::operation("charge"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject {
    kind: Kind,
    name: String,
    step: Option<String>,
}

impl Subject {
    /// Operations of this name.
    ///
    /// # Example
    /// See [`Subject`].
    pub fn operation(name: impl Into<String>) -> Self {
        Self { kind: Kind::Operation, name: name.into(), step: None }
    }

    /// Messages that came in from this source and are processed with a claim.
    ///
    /// # Example
    /// ```
    /// let orders = dupeproof::Subject::message("mqtt/orders");
    /// # let _ = orders;
    /// ```
    pub fn message(source: impl Into<String>) -> Self {
        Self { kind: Kind::Inbox, name: source.into(), step: None }
    }

    /// Steps of this name in runs of this workflow, whichever turn of a loop.
    ///
    /// # Example
    /// ```
    /// let charges = dupeproof::Subject::step("publish", "charge");
    /// # let _ = charges;
    /// ```
    pub fn step(workflow: impl Into<String>, step: impl Into<String>) -> Self {
        Self { kind: Kind::Step, name: workflow.into(), step: Some(step.into()) }
    }

    /// The compensations of these operations or steps.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Subject;
    /// let refunds = [Subject::from("charge").compensation(), Subject::step("publish", "charge").compensation()];
    /// # let _ = refunds;
    /// ```
    #[must_use]
    pub fn compensation(mut self) -> Self {
        self.kind = Kind::Compensation;
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn admits(&self, identity: &Identity) -> bool {
        let step = identity.step_key().map(StepKey::name);
        self.kind == identity.kind && *self.name == *identity.name() && self.step.as_deref() == step
    }
}

impl From<&str> for Subject {
    fn from(name: &str) -> Self {
        Self::operation(name)
    }
}

/// What a probe is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    identity: Identity,
    unknown: UnknownOutcome,
    checkpoint: Option<Vec<u8>>,
}

impl Inquiry {
    pub(super) fn of(record: Record) -> Option<Self> {
        let unknown = UnknownOutcome::of(&record)?;
        let State::Unknown(unresolved) = record.state else { return None };
        Some(Self { identity: record.head.identity, unknown, checkpoint: unresolved.work.checkpoint })
    }

    /// Which operation it is.
    ///
    /// # Example
    /// ```
    /// # fn look_up(inquiry: &dupeproof::Inquiry) {
    /// println!("what became of {}?", inquiry.identity().key());
    /// # }
    /// ```
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The key that the provider saw.
    ///
    /// # Example
    /// ```
    /// # fn look_up(inquiry: &dupeproof::Inquiry) {
    /// println!("GET /charges?idempotency_key={}", inquiry.downstream_key());
    /// # }
    /// ```
    pub fn downstream_key(&self) -> &str {
        self.unknown.downstream_key()
    }

    /// The provider's own name for the effect, if the holder recorded one.
    ///
    /// # Example
    /// ```
    /// # fn look_up(inquiry: &dupeproof::Inquiry) {
    /// if let Some(charge) = inquiry.external_reference() {
    ///     println!("GET /charges/{charge}");
    /// }
    /// # }
    /// ```
    pub fn external_reference(&self) -> Option<&str> {
        self.unknown.external_reference()
    }

    /// Everything that is known of the unknown outcome: attempt, since when, why, how often it was asked.
    ///
    /// # Example
    /// ```
    /// # fn look_up(inquiry: &dupeproof::Inquiry) {
    /// println!("attempt {}, probe {}", inquiry.unknown().attempt(), inquiry.unknown().probes());
    /// # }
    /// ```
    pub fn unknown(&self) -> &UnknownOutcome {
        &self.unknown
    }

    /// The last checkpoint of the attempt.
    ///
    /// # Example
    /// ```
    /// # fn look_up(inquiry: &dupeproof::Inquiry) {
    /// let came_to = inquiry.checkpoint().unwrap_or_default();
    /// # let _ = came_to;
    /// # }
    /// ```
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.checkpoint.as_deref()
    }

    pub(super) fn about(&self, terms: crate::machine::event::ProbeTerms) -> About {
        About::Probe { attempt: self.unknown.attempt(), number: self.unknown.probes(), terms }
    }
}
