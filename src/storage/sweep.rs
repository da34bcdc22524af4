//! The bounded steps of cleaning up: ending leases, turning expired responses into tombstones, forgetting tombstones.
//!
//! Side rows only say where to look; what happens to a record is decided from the record itself, by the machine.

use redb::ReadableTable;

use super::batch::{Batch, DriveError, Moment, NOBODY, Step, Target};
use super::fault;
use super::tables::unsettled_row;
use crate::error::{ErrorKind, Result};
use crate::machine::event::{Answer, Event};
use crate::machine::index::{Shelf, UnsettledRow};
use crate::machine::record::{RecordId, Status};

/// How many side rows one step may look at for each row it may change: unknown outcomes lie between the leases.
const LOOKED_AT_PER_ROW: usize = 16;

/// What one sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Swept {
    pub(crate) leases_ended: u64,
    pub(crate) tombstoned: u64,
    pub(crate) purged: u64,
    /// Leases of messages that had lapsed.
    pub(crate) messages_released: u64,
    /// Finished messages that were forgotten.
    pub(crate) messages_purged: u64,
    pub(crate) unreadable: u64,
    /// Where the next step goes on among the unsettled; nothing at their end.
    pub(crate) next: Option<RecordId>,
    /// Whether the bound was reached, so that another step would find more.
    pub(crate) more: bool,
}

impl Swept {
    pub(crate) fn add(&mut self, other: Self) {
        self.leases_ended += other.leases_ended;
        self.tombstoned += other.tombstoned;
        self.purged += other.purged;
        self.messages_released += other.messages_released;
        self.messages_purged += other.messages_purged;
        self.unreadable += other.unreadable;
        self.next = other.next;
        self.more = other.more;
    }

    /// Rows that count against the bound.
    pub(crate) fn rows(&self) -> usize {
        let records = self.leases_ended + self.tombstoned + self.purged + self.unreadable;
        usize::try_from(records + self.messages_released + self.messages_purged).unwrap_or(usize::MAX)
    }

    fn end_lease(&mut self, touched: Touched) {
        match touched {
            Touched::Same => {}
            Touched::Changed | Touched::Removed => self.leases_ended += 1,
            Touched::Unreadable => self.unreadable += 1,
        }
    }
}

/// Whose claims are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Everybody's but this incarnation's: the file lock proves that they cannot write any more.
    AllBut(u64),
    /// This incarnation's: it closes.
    Only(u64),
}

impl Owners {
    pub(super) fn include(self, incarnation: u64) -> bool {
        match self {
            Self::AllBut(mine) => incarnation != mine,
            Self::Only(mine) => incarnation == mine,
        }
    }
}

impl Batch<'_> {
    /// Brings at most `rows_max` records up to `moment`. `after` is where the last step stopped among the unsettled.
    pub(crate) fn sweep(&mut self, rows_max: usize, after: Option<RecordId>, moment: Moment) -> Result<Swept> {
        let (lapsed, next) = self.held(rows_max, after, |row| row.due <= moment.now)?;
        let mut swept = Swept { next, ..Swept::default() };
        let mut rows_left = rows_max - lapsed.len();
        for id in lapsed {
            swept.end_lease(self.touch(id, Event::Tick, moment)?);
        }
        for shelf in Shelf::ALL {
            // One more than may change: the row with the highest id never goes, and must not be in the others' way.
            for id in self.due(shelf, moment, rows_left.saturating_add(1))? {
                if rows_left == 0 {
                    break;
                }
                if shelf == Shelf::Run && !self.clear_run(id, &mut rows_left, &mut swept, moment)? {
                    continue;
                }
                match self.touch(id, Event::Tick, moment)? {
                    Touched::Unreadable => swept.unreadable += 1,
                    Touched::Same => continue,
                    Touched::Changed => swept.tombstoned += 1,
                    Touched::Removed => swept.purged += 1,
                }
                rows_left -= 1;
            }
        }
        let outbox = self.outbox()?;
        swept.messages_released = outbox.end_lapsed(rows_left, moment.now)?;
        rows_left -= usize::try_from(swept.messages_released).unwrap_or(rows_left).min(rows_left);
        swept.messages_purged = outbox.purge(rows_left, moment.now)?;
        rows_left -= usize::try_from(swept.messages_purged).unwrap_or(rows_left).min(rows_left);
        swept.more = next.is_some() || rows_left == 0;
        Ok(swept)
    }

    /// Clears away what belongs to a run that is due, and says whether the run itself may follow. It is forgotten after
    /// its steps: they must not outlive what answers for them.
    fn clear_run(&mut self, id: RecordId, rows_left: &mut usize, swept: &mut Swept, moment: Moment) -> Result<bool> {
        let run = match self.read(id) {
            Ok(Some(run)) => run,
            // Left to what reports it.
            Ok(None) => return Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NewerFormat) => return Ok(true),
            Err(error) => return Err(error),
        };
        let cleared = self.clear_members(&run.head.identity, *rows_left)?;
        swept.purged += cleared.gone as u64;
        swept.unreadable += cleared.unreadable as u64;
        *rows_left -= (cleared.gone + cleared.unreadable).min(*rows_left);
        let stays = cleared.more || *rows_left == 0 || cleared.kept && run.is_gone(moment.now);
        Ok(!stays)
    }

    /// Ends at most `rows_max` claims and leases of messages of the given owners, from behind `after`.
    pub(crate) fn end_claims(
        &mut self,
        owners: Owners,
        rows_max: usize,
        after: Option<RecordId>,
        moment: Moment,
    ) -> Result<Swept> {
        let (held, next) = self.held(rows_max, after, |row| owners.include(row.incarnation))?;
        let mut swept = Swept { next, more: next.is_some(), ..Swept::default() };
        for id in held {
            swept.end_lease(self.touch(id, Event::OwnerGone, moment)?);
        }
        // In the same commit, so that no crash finds an owner half gone.
        let rows_left = rows_max.saturating_sub(swept.rows());
        swept.messages_released = self.outbox()?.end_leases(owners, rows_left, moment.now)?;
        swept.more |= swept.messages_released == rows_left as u64;
        Ok(swept)
    }

    /// Ids of held records that match, from behind `after`, and where to go on, if that was not all.
    fn held(
        &self,
        rows_max: usize,
        after: Option<RecordId>,
        matches: impl Fn(&UnsettledRow) -> bool,
    ) -> Result<(Vec<RecordId>, Option<RecordId>)> {
        let start = after.map_or(0, |id| id.0.saturating_add(1));
        let mut ids = Vec::new();
        let mut reached = None;
        let rows = self.unsettled.range(start..).map_err(fault::storage)?;
        for (looked_at, entry) in rows.enumerate() {
            if ids.len() == rows_max || looked_at == rows_max.saturating_mul(LOOKED_AT_PER_ROW) {
                break;
            }
            let (id, row) = entry.map_err(fault::storage)?;
            let id = RecordId(id.value());
            reached = Some(id);
            // A row without a status is damage; `verify` reports it, and the record itself is safe.
            let row = unsettled_row(row.value());
            if row.is_some_and(|row| matches!(row.status, Status::Reserved | Status::Executing) && matches(&row)) {
                ids.push(id);
            }
        }
        let last = self.unsettled.last().map_err(fault::storage)?.map(|(id, _)| RecordId(id.value()));
        Ok((ids, reached.filter(|_| reached != last)))
    }

    fn due(&mut self, shelf: Shelf, moment: Moment, rows_max: usize) -> Result<Vec<RecordId>> {
        let end = (moment.now.as_unix_millis(), u64::MAX);
        let table = self.shelf(shelf)?;
        let rows = table.range(..=end).map_err(fault::storage)?;
        rows.take(rows_max).map(|entry| entry.map(|(key, _)| RecordId(key.value().1)).map_err(fault::storage)).collect()
    }

    /// Drives one event. A row that cannot be read is left alone: it must not stop the sweep of the others.
    fn touch(&mut self, id: RecordId, event: Event, moment: Moment) -> Result<Touched> {
        let step = Step { target: Target::Id(id), event };
        let before = self.changes();
        match self.drive(vec![step], moment, NOBODY) {
            Ok(_) | Err(DriveError::Rejected(_)) if self.changes() == before => Ok(Touched::Same),
            Ok(answers) if matches!(answers[..], [Answer::Nothing]) => Ok(Touched::Removed),
            Ok(_) | Err(DriveError::Rejected(_)) => Ok(Touched::Changed),
            Err(DriveError::Unreadable(_)) => Ok(Touched::Unreadable),
            Err(DriveError::Transaction(error)) => Err(error),
        }
    }
}

/// What one event did to one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    Same,
    Changed,
    Removed,
    Unreadable,
}
