//! Retention: what is kept of a settled record, for how long, and what time alone does to a record.

use super::lease::{lost, released};
use super::policy::Policy;
use super::record::{Ended, Record, RetryCause, State, Terms, UnknownCause};
use super::time::Timestamp;

/// The terms of a record settled at `at`. Both ends are fixed now: retention counts from settlement, and repeats
/// never extend it.
pub(crate) fn terms(policy: &Policy, at: Timestamp) -> Terms {
    Terms { settled_at: at, expires_at: policy.retention.expires_at(at), purge_at: policy.retention.purge_at(at) }
}

/// What time alone has made of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Aged {
    /// It is as it was stored.
    Same(Record),
    /// A lease lapsed or a response expired; the sweep has not written it yet.
    Moved(Record),
    /// Its tombstone is over: the key is new again.
    Gone,
}

impl Record {
    /// A settled record without its response, whatever the time. Nothing for one that has none to lose.
    pub(crate) fn entombed(self) -> Option<Self> {
        let (ended, terms) = match self.state {
            State::Succeeded { terms, .. } => (Ended::Succeeded, terms),
            State::FailedTerminal { terms, .. } => (Ended::FailedTerminal, terms),
            State::Reserved(_)
            | State::Executing(_)
            | State::FailedRetryable(_)
            | State::Unknown(_)
            | State::Tombstone { .. }
            | State::Open(_) => return None,
        };
        Some(self.head.with(State::Tombstone { ended, terms }))
    }

    /// Whether it answers nothing any more: its tombstone is over.
    pub(crate) fn is_gone(&self, now: Timestamp) -> bool {
        match &self.state {
            State::Succeeded { terms, .. } | State::FailedTerminal { terms, .. } | State::Tombstone { terms, .. } => {
                terms.purge_at <= now
            }
            State::Reserved(_)
            | State::Executing(_)
            | State::FailedRetryable(_)
            | State::Unknown(_)
            | State::Open(_) => false,
        }
    }

    /// The record as it is at `now`. The result depends on the stored row and the time alone, so it does not matter
    /// who looks first, and a caller who is turned away need not write anything.
    pub(crate) fn at(self, now: Timestamp) -> Aged {
        let mut record = self;
        let mut moved = false;
        // Each round ends or goes on to a later state, so this takes at most three.
        loop {
            record = match (record.head, record.state) {
                (head, State::Reserved(held)) if held.lease.has_lapsed(now) => {
                    let at = held.lease.until;
                    released(head, held, RetryCause::Lapsed, at)
                }
                (head, State::Executing(held)) if held.lease.has_lapsed(now) => {
                    let since = held.lease.until;
                    lost(head, held, UnknownCause::LeaseLapsed, since)
                }
                (head, State::Succeeded { terms, .. }) if terms.expires_at <= now => {
                    head.with(State::Tombstone { ended: Ended::Succeeded, terms })
                }
                (head, State::FailedTerminal { terms, .. }) if terms.expires_at <= now => {
                    head.with(State::Tombstone { ended: Ended::FailedTerminal, terms })
                }
                (_, State::Tombstone { terms, .. }) if terms.purge_at <= now => return Aged::Gone,
                (head, state) => {
                    let record = head.with(state);
                    return if moved { Aged::Moved(record) } else { Aged::Same(record) };
                }
            };
            moved = true;
        }
    }
}
