//! Which side rows a record has. The storage layer writes exactly these, and `verify` recomputes them.

use super::key::Kind;
use super::record::{Record, State, Status};
use super::time::Timestamp;

/// The side rows of one record. A record has exactly one of the two: what is unsettled is never swept away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideRow {
    Unsettled(UnsettledRow),
    Retention(Shelf, Timestamp),
}

/// The row of an unsettled record in the small table that open and sweep read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsettledRow {
    pub(crate) status: Status,
    /// When something is due: the lease's end, the retry, the next probe.
    pub(crate) due: Timestamp,
    /// The incarnation that holds it; 0 if nobody does.
    pub(crate) incarnation: u64,
    /// Since when the record is in this state.
    pub(crate) since: Timestamp,
}

/// The retention index is kept in three tables, so that a table's length is the count of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Shelf {
    Succeeded,
    FailedTerminal,
    Tombstone,
    /// Messages that came in, however they ended: their marks are counted apart.
    Inbox,
    /// Runs, however they ended.
    Run,
    /// Steps of runs and their compensations: they are kept as long as their run, and never due by themselves.
    Member,
}

impl Shelf {
    pub(crate) const ALL: [Self; 6] =
        [Self::Succeeded, Self::FailedTerminal, Self::Tombstone, Self::Inbox, Self::Run, Self::Member];
}

impl Record {
    pub(crate) fn side_row(&self) -> SideRow {
        let unsettled = |due, incarnation, since| {
            SideRow::Unsettled(UnsettledRow { status: self.status(), due, incarnation, since })
        };
        let retention = |shelf, due| match self.head.identity.kind {
            Kind::Inbox => SideRow::Retention(Shelf::Inbox, due),
            Kind::Run => SideRow::Retention(Shelf::Run, due),
            Kind::Step | Kind::Compensation if self.head.identity.step.is_some() => {
                SideRow::Retention(Shelf::Member, due)
            }
            Kind::Operation | Kind::Step | Kind::Compensation => SideRow::Retention(shelf, due),
        };
        match &self.state {
            State::Reserved(held) | State::Executing(held) => {
                let lease = &held.lease;
                unsettled(lease.until, lease.holder.incarnation, lease.granted_at)
            }
            State::FailedRetryable(retryable) => unsettled(retryable.retry_at, 0, retryable.retry_at),
            State::Unknown(unresolved) => unsettled(unresolved.inquiry.due(), 0, unresolved.since),
            State::Open(_) => unsettled(Timestamp::FOREVER, 0, self.head.created_at),
            State::Succeeded { terms, .. } => retention(Shelf::Succeeded, terms.expires_at),
            State::FailedTerminal { terms, .. } => retention(Shelf::FailedTerminal, terms.expires_at),
            State::Tombstone { terms, .. } => retention(Shelf::Tombstone, terms.purge_at),
        }
    }
}
