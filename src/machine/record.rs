//! The record of one operation: what is common to all states, and what each state needs, inside its variant.

use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::key::{Identity, Kind};
use super::limits::DECISIONS_MAX;
use super::policy::Policy;
use super::response::{ExternalReference, FailureReport, Response};
use super::time::Timestamp;
use super::workflow::OpenRun;

/// The row number of a record: ascending, never used twice in the life of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordId(pub(crate) u64);

/// What a holder proves its right to write with: rule 2 of the design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token {
    pub(crate) id: RecordId,
    pub(crate) attempt: u32,
}

/// Which open of which store granted a claim, and by which of its grants. Unique in the life of a file, because
/// the incarnation is persisted before any of its grants is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) incarnation: u64,
    pub(crate) grant: u64,
}

/// One row: the record of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) head: Head,
    pub(crate) state: State,
}

/// What every state has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: RecordId,
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) created_at: Timestamp,
    /// Attempts granted so far, this one included. Counted when granted, durably.
    pub(crate) attempt: u32,
    /// Which downstream key is in use: see `Retry::with_fresh_downstream_key`.
    pub(crate) generation: u32,
    pub(crate) reference: Option<ExternalReference>,
    pub(crate) decisions: Vec<Decision>,
}

/// The state of an operation. The order of variants is part of the stored format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Reserved(Held),
    Executing(Held),
    FailedRetryable(Retryable),
    Unknown(Unresolved),
    Succeeded {
        response: Response,
        terms: Terms,
    },
    FailedTerminal {
        failure: FailureReport,
        cause: TerminalCause,
        terms: Terms,
    },
    Tombstone {
        ended: Ended,
        terms: Terms,
    },
    /// Of a run only: its steps have records of their own.
    Open(OpenRun),
}

/// What an unsettled record carries along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) policy: Policy,
    /// When an effect under the present downstream key was first started.
    pub(crate) first_start: Option<FirstStart>,
    pub(crate) checkpoint: Option<Vec<u8>>,
    /// Set while an attempt re-sends what an earlier one may have done.
    pub(crate) doubt: Option<Doubt>,
}

/// Why and since when it is unknown whether an earlier attempt happened. What a re-sending attempt says of itself does
/// not end it, unless it says how the operation as a whole ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubt {
    pub(crate) cause: UnknownCause,
    pub(crate) since: Timestamp,
}

/// Both clocks at a first start: a provider's window is over as soon as either of them says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstStart {
    pub(crate) store: Timestamp,
    pub(crate) wall: Timestamp,
}

/// A record somebody holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) work: Work,
    pub(crate) lease: Lease,
}

/// How long a holder's claim is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) holder: Holder,
    pub(crate) granted_at: Timestamp,
    pub(crate) until: Timestamp,
    /// No renewal reaches beyond this: `max_execution` after the grant.
    pub(crate) ends_by: Timestamp,
}

/// A record whose effect is known not to have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retryable {
    pub(crate) work: Work,
    pub(crate) cause: RetryCause,
    pub(crate) retry_at: Timestamp,
}

/// How it became known that the effect did not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RetryCause {
    /// The holder said so.
    Reported(FailureReport),
    /// The holder handed the claim back.
    Released,
    /// The lease ended before the start.
    Lapsed,
    /// The holder's incarnation ended before the start.
    OwnerGone,
    /// A verdict said so.
    Verdict,
}

/// A record of which nobody knows whether the effect happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unresolved {
    pub(crate) work: Work,
    pub(crate) cause: UnknownCause,
    pub(crate) since: Timestamp,
    pub(crate) failure: Option<FailureReport>,
    pub(crate) holder: Holder,
    /// Probes asked about this attempt so far, counted when they are let through.
    pub(crate) probes: u32,
    pub(crate) inquiry: Inquiry,
}

/// How far the questions to the provider have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Inquiry {
    /// The provider may be asked, or a re-send be tried, from then on.
    Open { at: Timestamp },
    /// A probe asks. If no word of it comes until then, the next one may ask.
    Asking { until: Timestamp },
    /// It was asked as often as it may be: a person decides, and nobody asks again.
    ForPerson,
}

impl Inquiry {
    /// From when on somebody may ask, or send again.
    pub(crate) const fn due(self) -> Timestamp {
        match self {
            Self::Open { at } | Self::Asking { until: at } => at,
            Self::ForPerson => Timestamp::FOREVER,
        }
    }
}

/// Why the outcome of an operation is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum UnknownCause {
    /// The holder could not tell whether the effect happened.
    GaveUp,
    /// The lease ended without a word.
    LeaseLapsed,
    /// The holder's process or store handle ended without a word.
    OwnerGone,
    /// The claim was dropped without settling: a panic, an early return, a `?`.
    ClaimDropped,
}

/// Why a failure is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TerminalCause {
    /// The holder, a probe or a person said so.
    Reported,
    /// The last permitted attempt ended without the effect.
    AttemptsExhausted,
}

/// How a tombstone's operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Ended {
    Succeeded,
    FailedTerminal,
}

/// The instants that govern a settled record, fixed at its settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) settled_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) purge_at: Timestamp,
}

/// A word on an unknown outcome, and who gave it, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    pub(crate) at: Timestamp,
    pub(crate) witness: Witness,
    pub(crate) by: Box<str>,
    pub(crate) reason: Box<str>,
    pub(crate) ruling: Ruling,
    /// The attempt it is about.
    pub(crate) attempt: u32,
}

/// How somebody who gave a word on an unknown outcome came to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Witness {
    /// The owner itself, which spoke up after its claim had ended.
    Owner,
    /// A probe, which asked the provider.
    Probe,
    /// A person.
    Person,
}

impl Witness {
    /// The name that the command line and the docs use.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::Witness::Probe.as_str(), "probe");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Probe => "probe",
            Self::Person => "person",
        }
    }
}

/// What a recorded decision said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Ruling {
    /// The effect happened.
    Happened,
    /// It did not happen and never will.
    FailedForGood,
    /// It did not happen; a new attempt may run.
    DidNotHappen,
    /// Nobody knows yet.
    StillUnknown,
}

/// The status of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// Claimed, the effect certainly not started.
    Reserved = 1,
    /// The effect may have started.
    Executing = 2,
    /// The effect is known not to have happened; a new attempt may start.
    FailedRetryable = 3,
    /// Nobody knows whether the effect happened.
    Unknown = 4,
    /// Settled: the effect happened.
    Succeeded = 5,
    /// Settled: the effect did not happen and will not be tried again.
    FailedTerminal = 6,
    /// Settled long ago: only a compact residue is left.
    Tombstone = 7,
    /// A workflow's run that is not over.
    Open = 8,
}

impl Status {
    /// All of them, in the order of an operation's life.
    pub const ALL: [Self; 8] = [
        Self::Reserved,
        Self::Executing,
        Self::FailedRetryable,
        Self::Unknown,
        Self::Succeeded,
        Self::FailedTerminal,
        Self::Tombstone,
        Self::Open,
    ];

    /// The name that the command line and the docs use.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::Status::FailedRetryable.as_str(), "failed_retryable");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Executing => "executing",
            Self::FailedRetryable => "failed_retryable",
            Self::Unknown => "unknown",
            Self::Succeeded => "succeeded",
            Self::FailedTerminal => "failed_terminal",
            Self::Tombstone => "tombstone",
            Self::Open => "open",
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| *status as u8 == code)
    }

    pub(crate) const fn is_settled(self) -> bool {
        match self {
            Self::Succeeded | Self::FailedTerminal | Self::Tombstone => true,
            Self::Reserved | Self::Executing | Self::FailedRetryable | Self::Unknown | Self::Open => false,
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl State {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Reserved(_) => Status::Reserved,
            Self::Executing(_) => Status::Executing,
            Self::FailedRetryable(_) => Status::FailedRetryable,
            Self::Unknown(_) => Status::Unknown,
            Self::Succeeded { .. } => Status::Succeeded,
            Self::FailedTerminal { .. } => Status::FailedTerminal,
            Self::Tombstone { .. } => Status::Tombstone,
            Self::Open(_) => Status::Open,
        }
    }
}

impl State {
    /// The response a state carries, if its variant has room for one.
    pub(crate) fn response(&self) -> Option<&Response> {
        match self {
            Self::Succeeded { response, .. } => Some(response),
            Self::FailedTerminal { failure, .. } => Some(failure.response()),
            Self::FailedRetryable(Retryable { cause: RetryCause::Reported(failure), .. }) => Some(failure.response()),
            Self::Unknown(Unresolved { failure, .. }) => failure.as_ref().map(FailureReport::response),
            Self::FailedRetryable(_)
            | Self::Reserved(_)
            | Self::Executing(_)
            | Self::Tombstone { .. }
            | Self::Open(_) => None,
        }
    }

    pub(crate) fn response_mut(&mut self) -> Option<&mut Response> {
        match self {
            Self::Succeeded { response, .. } => Some(response),
            Self::FailedTerminal { failure, .. } => Some(failure.response_mut()),
            Self::FailedRetryable(Retryable { cause: RetryCause::Reported(failure), .. }) => {
                Some(failure.response_mut())
            }
            Self::Unknown(Unresolved { failure, .. }) => failure.as_mut().map(FailureReport::response_mut),
            Self::FailedRetryable(_)
            | Self::Reserved(_)
            | Self::Executing(_)
            | Self::Tombstone { .. }
            | Self::Open(_) => None,
        }
    }
}

impl Record {
    pub(crate) fn status(&self) -> Status {
        self.state.status()
    }

    /// Whether nobody asks the provider any more.
    pub(crate) fn waits_for_person(&self) -> bool {
        matches!(&self.state, State::Unknown(unresolved) if unresolved.inquiry == Inquiry::ForPerson)
    }

    pub(crate) fn token(&self) -> Token {
        Token { id: self.head.id, attempt: self.head.attempt }
    }

    /// What must be true of every record, checked before it is encoded and after it was decoded.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.head.attempt == 0 {
            return Err("no attempt was granted");
        }
        if self.head.decisions.len() > DECISIONS_MAX {
            return Err("more decisions than are kept");
        }
        match &self.state {
            State::Reserved(held) | State::Executing(held) => held.check(),
            State::FailedRetryable(_) | State::Unknown(_) => Ok(()),
            State::Open(_) if self.head.identity.kind == Kind::Run => Ok(()),
            State::Open(_) => Err("what is no run is open"),
            State::Succeeded { terms, .. } | State::FailedTerminal { terms, .. } | State::Tombstone { terms, .. } => {
                terms.check()
            }
        }
    }
}

impl Held {
    fn check(&self) -> Result<(), &'static str> {
        if self.lease.until > self.lease.ends_by {
            return Err("the lease is longer than the execution may be");
        }
        if self.lease.holder.incarnation == 0 {
            return Err("the lease has no owner");
        }
        Ok(())
    }
}

impl Terms {
    fn check(&self) -> Result<(), &'static str> {
        if self.settled_at <= self.expires_at && self.expires_at <= self.purge_at {
            Ok(())
        } else {
            Err("settlement, expiry and purge are out of order")
        }
    }
}

impl Head {
    pub(crate) fn with(self, state: State) -> Record {
        Record { head: self, state }
    }

    /// Adds a decision. When there are too many, the oldest goes that decided nothing; if all did, the oldest.
    pub(crate) fn decided(mut self, decision: Decision) -> Self {
        if self.decisions.len() >= DECISIONS_MAX {
            let least = self.decisions.iter().position(|decision| decision.ruling == Ruling::StillUnknown);
            self.decisions.remove(least.unwrap_or_default());
        }
        self.decisions.push(decision);
        self
    }
}
