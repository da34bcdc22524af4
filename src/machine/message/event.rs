//! What can happen to a message, and what the one who asked is told.

use super::content::Message;
use super::index::Position;
use super::stored::{MessageStatus, Sequence, StoredMessage, Terms, Ticket};
use crate::machine::policy::Backoff;
use crate::machine::time::{Span, Timestamp};

/// The world at the moment of a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) now: Timestamp,
    /// Whose takes are granted now: this open of the store.
    pub(crate) incarnation: u64,
    /// The number a message would get that goes to the end.
    pub(crate) fresh: Sequence,
    /// How long a finished message is remembered.
    pub(crate) retention: Span,
}

/// Something that happens to one message.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Somebody has something to say.
    Send(Box<Message>),
    /// A relay wants to deliver it.
    Take(Grant, Position),
    /// The handler took it.
    Delivered(Ticket),
    /// The handler failed.
    Failed(Ticket, Failure),
    /// The relay did not come to it, and closes.
    GaveBack(Ticket),
    /// The relay is alive, and did not come to it yet.
    Heartbeat(Ticket, Span),
    /// The relay's incarnation is over.
    OwnerGone,
    /// Time passed: somebody looks at the message.
    Tick,
    /// A person wants it delivered after all.
    Redrive,
    /// A person decided that it will not be delivered.
    Discard { by: Box<str>, reason: Box<str> },
}

/// On which terms a relay takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) lease: Span,
    pub(crate) terms: Terms,
}

/// What a handler says of a failed delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) error: Box<str>,
    pub(crate) again: Again,
}

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    Backoff(Backoff),
    After(Span),
    Never,
}

/// What becomes of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It stays as it is, byte for byte.
    Keep,
    /// This takes its place; under another number, the old row goes.
    Put(Box<StoredMessage>),
    /// It goes.
    Remove,
}

/// What the one who asked is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is in the outbox now.
    Enqueued,
    /// It was before, with the same content.
    Duplicate,
    /// The relay has it.
    Taken,
    /// The word counts.
    Accepted,
    /// Nothing to say to anybody.
    Nothing,
}

/// Why an event was refused. The message stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("the id was used for another content before")]
    Conflict,
    #[error("the message is not the relay's any more")]
    Late,
    #[error("the message cannot be taken: it is {0}")]
    NotDue(MessageStatus),
    #[error("the message cannot be taken before those in front of it in its lane")]
    Behind,
    #[error("there is no such message")]
    Absent,
    #[error("only a dead letter can be redriven: the message is {0}")]
    NotDead(MessageStatus),
    #[error("the message cannot be discarded: it is {0}")]
    NotDiscardable(MessageStatus),
}

/// A change and an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) change: Change,
    pub(crate) answer: Answer,
}

impl Event {
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Delivered(ticket) | Self::Failed(ticket, _) | Self::GaveBack(ticket) | Self::Heartbeat(ticket, _) => {
                Some(*ticket)
            }
            Self::Send(_) | Self::Take(..) | Self::OwnerGone | Self::Tick | Self::Redrive | Self::Discard { .. } => {
                None
            }
        }
    }
}
