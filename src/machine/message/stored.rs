//! A message as it is kept: what is common to all states, and what each state needs, inside its variant.

use serde::{Deserialize, Serialize};

use super::content::Message;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::time::Timestamp;

/// The row number of a message, which is also its place in its lane: ascending, never used twice in the life of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sequence(pub(crate) u64);

/// What a relay proves its right to speak with: which take of which message. Takes are counted durably and for ever, so
/// no two takes have the same ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    pub(crate) sequence: Sequence,
    pub(crate) take: u32,
}

/// One row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredMessage {
    pub(crate) head: Head,
    pub(crate) state: State,
}

/// What every state has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) sequence: Sequence,
    /// Payload and headers are empty once it is finished.
    pub(crate) message: Message,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) sent_at: Timestamp,
    /// Attempts since it was sent, or redriven. Counted when granted, durably.
    pub(crate) attempts: u32,
    /// How often it was taken in all.
    pub(crate) takes: u32,
    pub(crate) redrives: u32,
    pub(crate) last_error: Option<Box<str>>,
}

/// The state of a message. The order of variants is part of the stored format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// It may be taken, if it is at the head of its lane.
    Due(Due),
    InFlight(Lease),
    /// It waits for its time: a delay, or the next attempt.
    Scheduled {
        at: Timestamp,
    },
    Delivered {
        at: Timestamp,
        purge_at: Timestamp,
    },
    Dead(Dead),
    Discarded {
        at: Timestamp,
        by: Box<str>,
        reason: Box<str>,
        purge_at: Timestamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Due {
    pub(crate) since: Timestamp,
    /// Its last take ended without a word. It may be what killed its relay, so it is taken alone: the attempts of others
    /// must not be used up with its own.
    pub(crate) is_suspect: bool,
}

/// Who has it, until when, and on which terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) incarnation: u64,
    pub(crate) until: Timestamp,
    pub(crate) terms: Terms,
}

/// What becomes of a message whose attempts are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) attempts_max: u32,
    pub(crate) lane_when_dead: LaneWhenDead,
}

/// Whether those behind a dead message go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LaneWhenDead {
    GoesOn,
    IsHeld,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dead {
    pub(crate) since: Timestamp,
    pub(crate) cause: DeadCause,
    pub(crate) lane: LaneWhenDead,
}

/// Why a message is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeadCause {
    /// The last permitted attempt failed.
    AttemptsExhausted,
    /// The last permitted attempt ended without a word: the relay was killed, or slower than its lease.
    NeverAnswered,
    /// The handler said that no attempt can succeed.
    Refused,
}

impl std::fmt::Display for DeadCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::AttemptsExhausted => "the last permitted attempt failed",
            Self::NeverAnswered => "the last permitted attempt ended without a word",
            Self::Refused => "no attempt can succeed",
        })
    }
}

/// The status of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MessageStatus {
    /// It can be delivered now, or waits for those before it in its lane.
    Due,
    /// A relay has it.
    InFlight,
    /// It waits for its time: a delay, or the next attempt.
    Scheduled,
    /// Finished: the handler took it.
    Delivered,
    /// A dead letter: it waits for a person, for ever.
    Dead,
    /// Finished: a person decided that it will not be delivered.
    Discarded,
}

impl MessageStatus {
    /// All of them, in the order of a message's life.
    pub const ALL: [Self; 6] =
        [Self::Due, Self::InFlight, Self::Scheduled, Self::Delivered, Self::Dead, Self::Discarded];

    /// The name that the docs use.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::MessageStatus::InFlight.as_str(), "in_flight");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::InFlight => "in_flight",
            Self::Scheduled => "scheduled",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }
}

impl std::fmt::Display for MessageStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What time alone has made of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Aged {
    /// It is as it was stored.
    Same(StoredMessage),
    /// A lease lapsed or a waiting time ended; nobody has written it yet.
    Moved(StoredMessage),
    /// It was finished long ago: its id is new again.
    Gone,
}

impl State {
    pub(crate) fn status(&self) -> MessageStatus {
        match self {
            Self::Due(_) => MessageStatus::Due,
            Self::InFlight(_) => MessageStatus::InFlight,
            Self::Scheduled { .. } => MessageStatus::Scheduled,
            Self::Delivered { .. } => MessageStatus::Delivered,
            Self::Dead(_) => MessageStatus::Dead,
            Self::Discarded { .. } => MessageStatus::Discarded,
        }
    }
}

impl StoredMessage {
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { sequence: self.head.sequence, take: self.head.takes }
    }

    pub(crate) fn status(&self) -> MessageStatus {
        self.state.status()
    }

    /// Whether it must not be taken together with others.
    pub(crate) fn goes_alone(&self) -> bool {
        matches!(self.state, State::Due(Due { is_suspect: true, .. }))
    }

    /// The message as it is at `now`. It depends on the stored row and the time alone, so it does not matter who looks
    /// first.
    pub(crate) fn at(self, now: Timestamp) -> Aged {
        let Self { head, state } = self;
        match state {
            State::InFlight(lease) if lease.until <= now => Aged::Moved(silent(head, lease, lease.until)),
            State::Scheduled { at } if at <= now => {
                Aged::Moved(head.with(State::Due(Due { since: at, is_suspect: false })))
            }
            State::Delivered { purge_at, .. } | State::Discarded { purge_at, .. } if purge_at <= now => Aged::Gone,
            state => Aged::Same(head.with(state)),
        }
    }

    /// What must be true of every message, checked before it is encoded and after it was decoded.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let Self { head, state } = self;
        if head.message.check().is_err() {
            return Err("the message is out of bounds");
        }
        if head.attempts > head.takes {
            return Err("more attempts than takes");
        }
        match state {
            State::InFlight(lease) if lease.incarnation == 0 => Err("the lease has no owner"),
            State::InFlight(_) if head.attempts == 0 => Err("an attempt was not counted"),
            State::Delivered { at, purge_at } | State::Discarded { at, purge_at, .. } => {
                let is_empty = head.message.payload.is_empty() && head.message.headers.is_empty();
                if at > purge_at {
                    Err("the end and the purge are out of order")
                } else if !is_empty {
                    Err("a finished message still has its content")
                } else {
                    Ok(())
                }
            }
            State::Due(_) | State::InFlight(_) | State::Scheduled { .. } | State::Dead(_) => Ok(()),
        }
    }
}

/// A take ended without a word. The message is due again under the same id, unless that was the last permitted attempt:
/// a crash loop ends in a dead letter.
pub(super) fn silent(head: Head, lease: Lease, at: Timestamp) -> StoredMessage {
    if head.attempts >= lease.terms.attempts_max {
        return dead(head, lease.terms, DeadCause::NeverAnswered, at);
    }
    head.with(State::Due(Due { since: at, is_suspect: true }))
}

pub(super) fn dead(head: Head, terms: Terms, cause: DeadCause, since: Timestamp) -> StoredMessage {
    head.with(State::Dead(Dead { since, cause, lane: terms.lane_when_dead }))
}

impl Head {
    pub(crate) fn with(self, state: State) -> StoredMessage {
        StoredMessage { head: self, state }
    }

    /// Without what nobody needs once it is finished.
    pub(super) fn emptied(mut self) -> Self {
        self.message.payload = Vec::new();
        self.message.headers = Vec::new();
        self
    }
}
