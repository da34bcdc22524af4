//! Where a message is found. The storage layer writes exactly these side rows, and `verify` recomputes them.

use super::stored::{Dead, Due, LaneWhenDead, Lease, State, StoredMessage};
use crate::machine::time::Timestamp;

/// Where a message stands among those that are not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// Nobody of its lane is before it, or it has no lane.
    Head,
    /// It waits for others of its lane.
    Behind,
}

/// The side rows of one message: at most one of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places<'a> {
    /// By which it is found at its next step. Nothing while it waits in its lane, where it is found.
    pub(crate) shelf: Option<Shelf<'a>>,
    /// The lane that it keeps its place in.
    pub(crate) lane: Option<&'a str>,
}

/// One kind is one table, so that a table's length is a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shelf<'a> {
    Due { topic: &'a str, at: Timestamp },
    InFlight { until: Timestamp, incarnation: u64 },
    Dead { since: Timestamp },
    Delivered { purge_at: Timestamp },
    Discarded { purge_at: Timestamp },
}

impl StoredMessage {
    pub(crate) fn places(&self, position: Position) -> Places<'_> {
        let lane = self.lane_kept();
        let shelf = match &self.state {
            State::Delivered { purge_at, .. } => Some(Shelf::Delivered { purge_at: *purge_at }),
            State::Discarded { purge_at, .. } => Some(Shelf::Discarded { purge_at: *purge_at }),
            State::Dead(Dead { since, .. }) => Some(Shelf::Dead { since: *since }),
            State::InFlight(Lease { until, incarnation, .. }) => {
                Some(Shelf::InFlight { until: *until, incarnation: *incarnation })
            }
            State::Due(Due { since: at, .. }) | State::Scheduled { at } => match position {
                Position::Head => Some(Shelf::Due { topic: &self.head.message.topic, at: *at }),
                Position::Behind => None,
            },
        };
        Places { shelf, lane }
    }

    /// The lane that it keeps its place in: until it is finished, and as a dead letter if the lane is held.
    pub(crate) fn lane_kept(&self) -> Option<&str> {
        let is_kept = match &self.state {
            State::Due(_) | State::InFlight(_) | State::Scheduled { .. } => true,
            State::Dead(Dead { lane, .. }) => *lane == LaneWhenDead::IsHeld,
            State::Delivered { .. } | State::Discarded { .. } => false,
        };
        self.head.message.lane.as_deref().filter(|_| is_kept)
    }

    /// Whether it may stand there: only the head of a lane is ever in flight or was tried.
    pub(crate) fn may_be(&self, position: Position) -> bool {
        match (position, &self.state) {
            (Position::Head, _) => true,
            (Position::Behind, State::Due(_) | State::Scheduled { .. }) => self.head.attempts == 0,
            (
                Position::Behind,
                State::InFlight(_) | State::Delivered { .. } | State::Dead(_) | State::Discarded { .. },
            ) => false,
        }
    }
}
