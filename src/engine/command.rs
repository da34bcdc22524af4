//! What callers ask of the writer.

use crossbeam_channel::Sender;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{Answer, Event, Rejection};
use crate::machine::message::event::Rejection as MessageRejection;
use crate::machine::record::RecordId;
use crate::storage::batch::{DriveError, Moment, Step};
use crate::storage::file::Durable;
use crate::storage::outbox::OutboxError;
use crate::storage::outbox::work::{Done, Work};
use crate::storage::sweep::{Owners, Swept};

/// Where the answer goes. Capacity one, so that answering never blocks the writer.
pub(super) type Reply<T> = Sender<Result<T>>;

/// One unit of a commit.
#[derive(Debug)]
pub(super) enum Command {
    Drive { steps: Vec<Step>, durable: Durable, reply: Option<Reply<Driven>> },
    Sweep { rows_max: usize, after: Option<RecordId>, reply: Reply<Swept> },
    Outbox { work: Work, reply: Reply<Done> },
    EndClaims { owners: Owners, rows_max: usize, after: Option<RecordId>, reply: Reply<Swept> },
}

/// What travels in the queue.
#[derive(Debug)]
pub(super) enum Message {
    Do(Command),
    /// Everything before it is answered; the writer ends.
    Stop,
}

/// What a command was told, and when it was decided.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) answers: Vec<Answer>,
    pub(crate) moment: Moment,
}

impl Driven {
    /// The answer of a command of one step.
    pub(crate) fn only(mut self) -> Answer {
        self.answers.pop().unwrap_or(Answer::Nothing)
    }
}

/// What a decided command will hear once the commit has returned.
pub(super) enum Outcome {
    Drive(Result<Driven>, Option<Reply<Driven>>),
    Sweep(Result<Swept>, Reply<Swept>),
    Outbox(Result<Done>, Reply<Done>),
}

impl Outcome {
    /// A caller who is gone needs no answer.
    pub(super) fn deliver(self) {
        match self {
            Self::Drive(result, Some(reply)) => drop(reply.try_send(result)),
            Self::Drive(_, None) => {}
            Self::Sweep(result, reply) => drop(reply.try_send(result)),
            Self::Outbox(result, reply) => drop(reply.try_send(result)),
        }
    }
}

impl Command {
    /// Whether a group that holds only such commands may be lost in a crash.
    pub(super) fn durable(&self) -> Durable {
        match self {
            Self::Drive { durable, .. } => *durable,
            Self::Sweep { .. } | Self::EndClaims { .. } | Self::Outbox { .. } => Durable::Yes,
        }
    }

    /// Whether it may grant a claim, which needs an incarnation to grant it to.
    pub(super) fn may_grant(&self) -> bool {
        match self {
            Self::Drive { steps, .. } => steps.iter().any(|step| matches!(step.event, Event::Begin(_))),
            Self::Outbox { work, .. } => work.may_grant(),
            Self::Sweep { .. } | Self::EndClaims { .. } => false,
        }
    }

    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Drive { reply, .. } => Outcome::Drive(Err(error), reply).deliver(),
            Self::Sweep { reply, .. } | Self::EndClaims { reply, .. } => Outcome::Sweep(Err(error), reply).deliver(),
            Self::Outbox { reply, .. } => Outcome::Outbox(Err(error), reply).deliver(),
        }
    }
}

/// Why a command that was driven without the writer did nothing.
#[derive(Debug)]
pub(crate) enum Unheard {
    /// It alone is concerned.
    Refused(Error),
    /// The transaction as a whole cannot go on: something may be written half.
    Broken(Error),
}

pub(crate) fn heard<T>(driven: std::result::Result<T, DriveError>) -> std::result::Result<T, Unheard> {
    driven.map_err(|error| match error {
        DriveError::Rejected(rejection) => Unheard::Refused(rejected(rejection)),
        DriveError::Unreadable(error) => Unheard::Refused(error),
        DriveError::Transaction(error) => Unheard::Broken(error),
    })
}

pub(crate) fn heard_message<T>(driven: std::result::Result<T, OutboxError>) -> std::result::Result<T, Unheard> {
    driven.map_err(|error| match error {
        OutboxError::Rejected(rejection, at) => Unheard::Refused(rejected_message(rejection, at)),
        OutboxError::Unreadable(error) => Unheard::Refused(error),
        OutboxError::Transaction(error) => Unheard::Broken(error),
    })
}

pub(super) fn rejected(rejection: Rejection) -> Error {
    let kind = match rejection {
        Rejection::LeaseLost => ErrorKind::LeaseLost,
        Rejection::AlreadySettled(_) => ErrorKind::AlreadySettled,
        Rejection::Absent => ErrorKind::NotFound,
        Rejection::NotStarted
        | Rejection::OtherRun
        | Rejection::OtherDefinition
        | Rejection::RunOver(_)
        | Rejection::TurnedBack
        | Rejection::NotTurnedBack
        | Rejection::Blocked
        | Rejection::StepsHeld
        | Rejection::NotCompensated
        | Rejection::RunFull
        | Rejection::NotRun
        | Rejection::IsRun
        | Rejection::NotCompensable(_)
        | Rejection::NotUnknown(_)
        | Rejection::OtherAttempt(_)
        | Rejection::AskedElsewhere
        | Rejection::NotDue
        | Rejection::ForPerson => ErrorKind::Refused,
    };
    Error::new(kind, rejection.to_string())
}

/// The place is that of the message in its command.
pub(super) fn rejected_message(rejection: MessageRejection, at: usize) -> Error {
    let kind = match rejection {
        MessageRejection::Absent => ErrorKind::NotFound,
        MessageRejection::Late => ErrorKind::LeaseLost,
        MessageRejection::Conflict
        | MessageRejection::NotDue(_)
        | MessageRejection::Behind
        | MessageRejection::NotDead(_)
        | MessageRejection::NotDiscardable(_) => ErrorKind::Refused,
    };
    match at {
        0 => Error::new(kind, rejection.to_string()),
        at => Error::new(kind, format!("message {at}, counted from 0: {rejection}")),
    }
}
