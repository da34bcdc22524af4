//! What can happen to a record, and what the one who asked is told.

use super::fingerprint::Fingerprint;
use super::key::Identity;
use super::limits::RUN_STEPS_MAX;
use super::policy::{Backoff, Policy, Retry};
use super::record::{Decision, Holder, Record, RecordId, Ruling, Status, Token};
use super::response::{ExternalReference, FailureReport, Response};
use super::time::{Span, Timestamp};
use super::workflow::{Members, RunAct, RunIntent};

/// The world at the moment of a decision: one reading, taken inside the write transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) now: Timestamp,
    pub(crate) wall: Timestamp,
    /// Whose claims are granted now: this open of the store.
    pub(crate) incarnation: u64,
    /// The id a new record would get.
    pub(crate) fresh_id: RecordId,
    /// What the record belongs to, as found before in the same transaction: the run of a step, what a compensation
    /// compensates.
    pub(crate) parent: Option<RecordId>,
    /// The steps of the run that the event is for.
    pub(crate) members: Members,
}

/// Something that happens to one record.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A caller wants to run the operation.
    Begin(Intent),
    /// The holder is about to start the effect.
    Start(Token),
    /// The holder is alive.
    Heartbeat(Token),
    /// The holder notes how far it came.
    Checkpoint(Token, Vec<u8>),
    /// The holder learned the provider's name for the effect.
    Refer(Token, ExternalReference),
    /// The holder says how it ended.
    Settle(Token, Settlement),
    /// The holder dropped its claim without a word.
    Abandon(Token),
    /// The holder's incarnation is over.
    OwnerGone,
    /// Time passed: the sweep looks at the record.
    Tick,
    /// A reconciler wants to ask the provider.
    Probe(ProbeTerms),
    /// Somebody found out, or decided, what an unknown outcome was.
    Resolve(Verdict, Decision, About),
    /// Somebody wants something of a run.
    Run(RunIntent, RunAct),
    /// Somebody is about to compensate it.
    Compensate,
}

/// On which terms a reconciler asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProbeTerms {
    /// For so long nobody else asks.
    pub(crate) lease: Span,
    /// After so many probes the record waits for a person.
    pub(crate) probes_max: u32,
    /// How long to wait after a probe that found nothing.
    pub(crate) backoff: Backoff,
    /// Asks although the time for it has not come.
    pub(crate) early: bool,
}

/// What a verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// Whatever is unknown now.
    Whatever,
    /// This attempt: refused if another one's outcome is unknown by now.
    Attempt(u32),
    /// The same, as the given probe found it.
    Probe { attempt: u32, number: u32, terms: ProbeTerms },
}

impl About {
    pub(crate) const fn attempt(self) -> Option<u32> {
        match self {
            Self::Whatever => None,
            Self::Attempt(attempt) | Self::Probe { attempt, .. } => Some(attempt),
        }
    }
}

/// What a caller wants to run, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct Intent {
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) policy: Policy,
    pub(crate) phase: Phase,
    /// Numbers the grant within its incarnation, so that the caller can recognise it.
    pub(crate) grant: u64,
    /// Grants of ours that we never heard of, because their commits were indeterminate.
    pub(crate) unheard: Vec<Holder>,
}

/// Whether the effect counts as started at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Reserve,
    Start,
}

/// How the holder says an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    Succeeded { response: Response, reference: Option<ExternalReference> },
    FailedTerminal { failure: FailureReport, reference: Option<ExternalReference> },
    FailedRetryable { failure: FailureReport, retry: Retry },
    GaveUp { failure: FailureReport, reference: Option<ExternalReference> },
    Released,
}

/// What is now known of an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Happened { response: Response, reference: Option<ExternalReference> },
    FailedForGood { failure: FailureReport },
    DidNotHappen,
    StillUnknown { next: Span },
}

impl Verdict {
    pub(crate) fn ruling(&self) -> Ruling {
        match self {
            Self::Happened { .. } => Ruling::Happened,
            Self::FailedForGood { .. } => Ruling::FailedForGood,
            Self::DidNotHappen => Ruling::DidNotHappen,
            Self::StillUnknown { .. } => Ruling::StillUnknown,
        }
    }
}

impl Event {
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::Start(token)
            | Self::Heartbeat(token)
            | Self::Checkpoint(token, _)
            | Self::Refer(token, _)
            | Self::Settle(token, _)
            | Self::Abandon(token) => Some(*token),
            Self::Begin(_)
            | Self::OwnerGone
            | Self::Tick
            | Self::Probe(_)
            | Self::Resolve(..)
            | Self::Run(..)
            | Self::Compensate => None,
        }
    }
}

/// What becomes of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It stays as it is, byte for byte.
    Keep,
    /// This record takes its place; under another id, the old row goes.
    Put(Box<Record>),
    /// It goes.
    Remove,
}

/// What the one who asked is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The caller owns this attempt: the record as it was written.
    Granted(Box<Record>, Grant),
    Replay(Box<Record>),
    InProgress(Box<Record>),
    RetryLater(Box<Record>),
    Unknown(Box<Record>),
    Conflict(Box<Record>),
    Expired(Box<Record>),
    /// The holder's write was accepted: the record as it is now.
    Accepted(Box<Record>),
    /// The reconciler is the one who asks now: the record as it was written.
    Probing(Box<Record>),
    /// Nothing to say to anybody.
    Nothing,
}

/// How a granted attempt differs from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The effect was not tried, or is known not to have happened.
    Fresh,
    /// The outcome of an earlier attempt is unknown, and the remote side drops a second request under the same
    /// downstream key.
    Resend,
}

/// Why an event was refused. The record stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("the claim is no longer the current one")]
    LeaseLost,
    #[error("the operation was settled before, as {0}")]
    AlreadySettled(Status),
    #[error("the effect was not started: start the reservation first")]
    NotStarted,
    #[error("there is no such record")]
    Absent,
    #[error("the verdict is about another attempt: unknown by now is what became of attempt {0}")]
    OtherAttempt(u32),
    #[error("the outcome is not unknown: the record is {0}")]
    NotUnknown(Status),
    #[error("another probe asks at the moment")]
    AskedElsewhere,
    #[error("the time for the next probe has not come")]
    NotDue,
    #[error("the provider was asked as often as it may be: the record waits for a person")]
    ForPerson,
    #[error("the run was begun with another payload")]
    OtherRun,
    #[error(
        "the run was begun by another definition of the workflow: accept the change, or finish it with the old one"
    )]
    OtherDefinition,
    #[error("the run is over: {0}")]
    RunOver(Status),
    #[error("the run has turned back: its steps are compensated, and no further one is taken")]
    TurnedBack,
    #[error("the run has not turned back: nothing of it is compensated while steps are taken")]
    NotTurnedBack,
    #[error("the outcome of a step is unknown: find it out first")]
    Blocked,
    #[error("a step is being executed: let it end first")]
    StepsHeld,
    #[error("not every step that succeeded has been compensated")]
    NotCompensated,
    #[error("the run has {RUN_STEPS_MAX} steps, which is as many as it may have")]
    RunFull,
    #[error("the record is no run")]
    NotRun,
    #[error("the record is a run: its steps are begun and settled, not the run itself")]
    IsRun,
    #[error("only what succeeded is compensated: it is {0}")]
    NotCompensable(Status),
}

/// A change and an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) change: Change,
    pub(crate) answer: Answer,
}
