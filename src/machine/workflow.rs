//! Runs: what may be begun in one, when it is over, and what is said of it.
//!
//! A run remembers who it is and which way it goes; what its steps did stands in their own records. Every rule that
//! looks at the steps is given a count of them, made in the same transaction.

use serde::{Deserialize, Serialize};

use super::event::{Answer, Change, Context, Rejection, Transition};
use super::fingerprint::{Comparison, Fingerprint};
use super::key::{Identity, Kind, StepKey};
use super::limits::RUN_STEPS_MAX;
use super::policy::Policy;
use super::record::{Ended, Head, Record, RecordId, State, Status, TerminalCause};
use super::response::{FailureReport, Response};
use super::retention::terms;
use super::time::Timestamp;
use super::transition::{accept, unchanged};

/// A run that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenRun {
    pub(crate) policy: Policy,
    /// What the workflow was when the run was begun, or last adopted.
    pub(crate) definition: Option<Fingerprint>,
    pub(crate) course: Course,
}

/// Which way a run goes. It turns once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Course {
    /// Steps are taken.
    Forward,
    /// What was done is compensated.
    Backward { since: Timestamp, why: FailureReport },
}

/// Who wants something of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunIntent {
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) policy: Policy,
    pub(crate) definition: Option<Fingerprint>,
    /// Goes on with a run of another definition, which from then on is this one.
    pub(crate) adopts: bool,
}

/// What is wanted of a run.
#[derive(Debug, Clone)]
pub(crate) enum RunAct {
    /// To take this step.
    Enter(StepKey),
    /// To end it, all steps being settled.
    Finish(Finish),
    /// To take no more steps and compensate those that were taken.
    TurnBack(FailureReport),
    /// To compensate a step.
    Undo,
}

/// How a run ends.
#[derive(Debug, Clone)]
pub(crate) enum Finish {
    Succeeded(Response),
    Failed(FailureReport),
    /// Everything that was done has been dealt with, for better or worse.
    Compensated,
}

/// The steps of a run and their compensations, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Members {
    steps: u32,
    /// Whether the step that is to be taken is one of them.
    has_entered: bool,
    /// Outcomes that nobody knows, but for that of the step that is to be taken.
    unknown: u32,
    /// What somebody holds.
    held: u32,
    succeeded: u32,
    /// Compensations that are over, for better or worse.
    compensated: u32,
}

impl Members {
    /// Counts one. `entered` says whether it is the step that is to be taken.
    pub(crate) fn add(&mut self, kind: Kind, status: Status, entered: bool) {
        if kind == Kind::Step {
            self.steps = self.steps.saturating_add(1);
            self.has_entered |= entered;
        }
        match (kind, status) {
            (_, Status::Unknown) if !entered => self.unknown += 1,
            (_, Status::Reserved | Status::Executing) => self.held += 1,
            (Kind::Step, Status::Succeeded) => self.succeeded += 1,
            (Kind::Compensation, Status::Succeeded | Status::FailedTerminal | Status::Tombstone) => {
                self.compensated += 1;
            }
            _ => {}
        }
    }

    /// A step whose outcome nobody knows blocks the run, and what somebody holds may yet become that.
    fn are_known(self) -> Result<(), Rejection> {
        match self {
            Self { unknown: 1.., .. } => Err(Rejection::Blocked),
            Self { held: 1.., .. } => Err(Rejection::StepsHeld),
            Self { .. } => Ok(()),
        }
    }

    fn are_compensated(self) -> bool {
        self.compensated >= self.succeeded
    }
}

/// Decides what becomes of a run. `stored` was aged to `context.now`.
pub(crate) fn act(
    stored: Option<Record>,
    intent: RunIntent,
    act: RunAct,
    context: &Context,
) -> Result<Transition, Rejection> {
    let now = context.now;
    let (head, state, is_new) = match stored {
        Some(Record { head, state }) => (head, state, false),
        None if matches!(act, RunAct::Undo | RunAct::Finish(Finish::Compensated)) => return Err(Rejection::Absent),
        None => {
            let open =
                OpenRun { policy: intent.policy, definition: intent.definition.clone(), course: Course::Forward };
            (fresh(&intent, context), State::Open(open), true)
        }
    };
    if intent.fingerprint.compare(&head.fingerprint) == Comparison::Differs {
        return Err(Rejection::OtherRun);
    }
    let status = state.status();
    let mut run = match state {
        State::Open(run) => run,
        state @ (State::Succeeded { .. } | State::FailedTerminal { .. } | State::Tombstone { .. }) => {
            return match act {
                RunAct::Finish(finish) if ends_the_same(&state, &finish) => unchanged(head.with(state)),
                _ => Err(Rejection::RunOver(status)),
            };
        }
        State::Reserved(_) | State::Executing(_) | State::FailedRetryable(_) | State::Unknown(_) => {
            return Err(Rejection::NotRun);
        }
    };
    let changed = run.definition != intent.definition;
    if changed && !intent.adopts {
        return Err(Rejection::OtherDefinition);
    }
    run.definition = intent.definition;
    let members = context.members;
    let written = |record: Record| if is_new || changed { accept(record) } else { unchanged(record) };
    match (act, run.course.clone()) {
        (RunAct::Enter(_) | RunAct::Finish(Finish::Succeeded(_) | Finish::Failed(_)), Course::Backward { .. }) => {
            Err(Rejection::TurnedBack)
        }
        (RunAct::Enter(_), Course::Forward) => {
            if members.unknown > 0 {
                return Err(Rejection::Blocked);
            }
            if !members.has_entered && members.steps >= RUN_STEPS_MAX {
                return Err(Rejection::RunFull);
            }
            written(head.with(State::Open(run)))
        }
        (RunAct::Finish(Finish::Succeeded(response)), Course::Forward) => {
            members.are_known()?;
            accept(head.with(State::Succeeded { response, terms: terms(&run.policy, now) }))
        }
        (RunAct::Finish(Finish::Failed(failure)), Course::Forward) => {
            members.are_known()?;
            accept(failed(head, &run, failure, now))
        }
        (RunAct::TurnBack(why), Course::Forward) => {
            members.are_known()?;
            if members.succeeded == 0 {
                return accept(failed(head, &run, why, now));
            }
            run.course = Course::Backward { since: now, why };
            accept(head.with(State::Open(run)))
        }
        (RunAct::TurnBack(_) | RunAct::Undo, Course::Backward { .. }) => written(head.with(State::Open(run))),
        (RunAct::Undo | RunAct::Finish(Finish::Compensated), Course::Forward) => Err(Rejection::NotTurnedBack),
        (RunAct::Finish(Finish::Compensated), Course::Backward { why, .. }) => {
            members.are_known()?;
            if !members.are_compensated() {
                return Err(Rejection::NotCompensated);
            }
            accept(failed(head, &run, why, now))
        }
    }
}

fn fresh(intent: &RunIntent, context: &Context) -> Head {
    Head {
        id: context.fresh_id,
        identity: intent.identity.clone(),
        fingerprint: intent.fingerprint.clone(),
        created_at: context.now,
        attempt: 1,
        generation: 0,
        reference: None,
        decisions: Vec::new(),
    }
}

fn failed(head: Head, run: &OpenRun, failure: FailureReport, now: Timestamp) -> Record {
    head.with(State::FailedTerminal { failure, cause: TerminalCause::Reported, terms: terms(&run.policy, now) })
}

/// Whether a second end repeats the first. A tombstone kept only how it ended.
fn ends_the_same(state: &State, finish: &Finish) -> bool {
    match (state, finish) {
        (State::Succeeded { response: first, .. }, Finish::Succeeded(response)) => first == response,
        (State::FailedTerminal { failure: first, .. }, Finish::Failed(failure)) => first == failure,
        (State::FailedTerminal { .. }, Finish::Compensated) => true,
        (State::Tombstone { ended, .. }, finish) => match finish {
            Finish::Succeeded(_) => *ended == Ended::Succeeded,
            Finish::Failed(_) | Finish::Compensated => *ended == Ended::FailedTerminal,
        },
        _ => false,
    }
}

/// Lets only what happened be compensated. Nobody compensates what is not known to have happened: it might happen yet.
pub(super) fn compensable(head: Head, state: State) -> Result<Transition, Rejection> {
    match state {
        State::Succeeded { .. } | State::Tombstone { ended: Ended::Succeeded, .. } => {
            Ok(Transition { change: Change::Keep, answer: Answer::Accepted(head.with(state).into()) })
        }
        State::Reserved(_)
        | State::Executing(_)
        | State::FailedRetryable(_)
        | State::Unknown(_)
        | State::FailedTerminal { .. }
        | State::Tombstone { ended: Ended::FailedTerminal, .. }
        | State::Open(_) => Err(Rejection::NotCompensable(state.status())),
    }
}

impl Record {
    /// Whether it is a run that takes steps.
    pub(crate) fn goes_forward(&self) -> bool {
        matches!(&self.state, State::Open(OpenRun { course: Course::Forward, .. }))
    }

    /// Whether it is a run whose result has expired by now: its steps answer nothing any more, swept away or not.
    pub(crate) fn has_expired_with_its_steps(&self, now: Timestamp) -> bool {
        let is_over = match &self.state {
            State::Succeeded { terms, .. } | State::FailedTerminal { terms, .. } => terms.expires_at <= now,
            State::Tombstone { .. } => true,
            State::Reserved(_)
            | State::Executing(_)
            | State::FailedRetryable(_)
            | State::Unknown(_)
            | State::Open(_) => false,
        };
        self.head.identity.kind() == Kind::Run && is_over
    }

    /// Whether it belongs to an earlier life of its key: what it belongs to is newer than itself. It answers nothing any
    /// more, unless its effect may yet happen.
    pub(crate) fn is_of_earlier_life(&self, parent: RecordId) -> bool {
        let may_yet_happen = matches!(self.status(), Status::Reserved | Status::Executing | Status::Unknown);
        !may_yet_happen && self.head.id < parent
    }
}

/// Where a run stands: what it says of itself and what its steps did, put together. It never says more than is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RunStatus {
    /// Steps are being taken, or wait to be.
    Running,
    /// Nobody knows whether a step happened: no further one is taken before that is known.
    BlockedUnknown,
    /// Finished.
    Succeeded,
    /// Given up. What its steps did stands as it is.
    Failed,
    /// What was done is being compensated.
    Compensating,
    /// Nobody knows whether a compensation happened.
    CompensationUnknown,
    /// The compensations are over, and not all of them succeeded.
    PartiallyCompensated,
    /// Every step that had succeeded was compensated.
    Compensated,
    /// Over for so long that only a residue is left, without the steps.
    Expired,
}

impl RunStatus {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Running,
        Self::BlockedUnknown,
        Self::Succeeded,
        Self::Failed,
        Self::Compensating,
        Self::CompensationUnknown,
        Self::PartiallyCompensated,
        Self::Compensated,
        Self::Expired,
    ];

    /// The name that the command line and the docs use.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::RunStatus::BlockedUnknown.as_str(), "blocked_unknown");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::BlockedUnknown => "blocked_unknown",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Compensating => "compensating",
            Self::CompensationUnknown => "compensation_unknown",
            Self::PartiallyCompensated => "partially_compensated",
            Self::Compensated => "compensated",
            Self::Expired => "expired",
        }
    }

    /// Whether nothing more will happen.
    ///
    /// # Example
    /// ```
    /// use dupeproof::RunStatus;
    /// assert!(RunStatus::PartiallyCompensated.is_final() && !RunStatus::CompensationUnknown.is_final());
    /// ```
    pub const fn is_final(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::PartiallyCompensated | Self::Compensated | Self::Expired => true,
            Self::Running | Self::BlockedUnknown | Self::Compensating | Self::CompensationUnknown => false,
        }
    }

    /// What a run's own state and those of its steps, each with its compensation's, come to.
    pub(crate) fn of(run: &State, steps: impl Iterator<Item = (Status, Option<Status>)>) -> Self {
        let (mut unknown, mut unknown_compensations, mut standing, mut compensations) = (false, false, false, false);
        for (step, compensation) in steps {
            unknown |= step == Status::Unknown;
            unknown_compensations |= compensation == Some(Status::Unknown);
            standing |= step == Status::Succeeded && compensation != Some(Status::Succeeded);
            compensations |= compensation.is_some();
        }
        match run {
            State::Open(OpenRun { course: Course::Forward, .. }) if unknown => Self::BlockedUnknown,
            State::Open(OpenRun { course: Course::Forward, .. }) => Self::Running,
            State::Open(OpenRun { course: Course::Backward { .. }, .. }) if unknown_compensations => {
                Self::CompensationUnknown
            }
            State::Open(OpenRun { course: Course::Backward { .. }, .. }) => Self::Compensating,
            State::Succeeded { .. } => Self::Succeeded,
            State::FailedTerminal { .. } if unknown_compensations => Self::CompensationUnknown,
            State::FailedTerminal { .. } if compensations && standing => Self::PartiallyCompensated,
            State::FailedTerminal { .. } if compensations => Self::Compensated,
            State::FailedTerminal { .. } => Self::Failed,
            // A run is never one of the last four: no event makes it so.
            State::Tombstone { .. }
            | State::Reserved(_)
            | State::Executing(_)
            | State::FailedRetryable(_)
            | State::Unknown(_) => Self::Expired,
        }
    }
}

impl std::fmt::Display for RunStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
