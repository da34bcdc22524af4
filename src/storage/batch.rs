//! One write transaction: read a row, ask the machine, write the row and its derived side rows.
//!
//! The engine below cannot roll back one command inside an open transaction, so a command decides everything before
//! its first write: a refused command leaves no trace, and its neighbours in the same commit go on.

use redb::{ReadableTable, Table, WriteTransaction};

use super::codec::{decode, encode, encode_meta};
use super::fault;
use super::outbox::OutboxTables;
use super::tables::{self, DueKey, IndexKey, META, UnsettledValue, index_key, meta, shelf, unsettled_value};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{Answer, Change, Context, Event, Rejection};
use crate::machine::index::{Shelf, SideRow};
use crate::machine::key::Identity;
use crate::machine::record::{Record, RecordId};
use crate::machine::time::{Anchor, Timestamp};
use crate::machine::transition::transition;
use crate::machine::workflow::Members;

/// To whom claims are granted by a command that grants none that outlives its commit.
pub(crate) const NOBODY: u64 = 0;

/// Which row an event is for.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Key(Identity),
    Id(RecordId),
}

/// One event for one row.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) target: Target,
    pub(crate) event: Event,
}

/// The two clocks at the moment of a decision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Timestamp,
    pub(crate) wall: Timestamp,
}

/// Why a command did nothing.
#[derive(Debug)]
pub(crate) enum DriveError {
    /// The machine said no.
    Rejected(Rejection),
    /// A row could not be read. Only this command is concerned.
    Unreadable(Error),
    /// The transaction as a whole cannot go on.
    Transaction(Error),
}

/// A row a command works on.
pub(super) struct Slot {
    identity: Option<Identity>,
    stored: Option<(RecordId, SideRow)>,
    record: Option<Record>,
    verdict: Change,
}

impl Slot {
    pub(super) fn is_of(&self, identity: &Identity) -> bool {
        self.identity.as_ref() == Some(identity)
    }

    /// The number of the record, unless it is over for good.
    pub(super) fn living(&self, now: Timestamp) -> Option<RecordId> {
        self.record.as_ref().filter(|record| !record.is_gone(now)).map(|record| record.head.id)
    }

    /// What the command has made of a record so far, if it changed it.
    pub(super) fn pending(&self, id: RecordId) -> Option<&Record> {
        match &self.verdict {
            Change::Put(record) if record.head.id == id => Some(record),
            Change::Put(_) | Change::Keep | Change::Remove => None,
        }
    }
}

/// Whether a row could be removed: the one with the highest number stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Gone,
    Kept,
}

/// An open write transaction with the tables every command needs.
pub(crate) struct Batch<'txn> {
    pub(super) txn: &'txn WriteTransaction,
    pub(super) index: Table<'txn, IndexKey, u64>,
    pub(super) records: Table<'txn, u64, &'static [u8]>,
    pub(super) unsettled: Table<'txn, u64, UnsettledValue>,
    shelves: [Option<Table<'txn, DueKey, ()>>; Shelf::ALL.len()],
    outbox: Option<OutboxTables<'txn>>,
    id_next: Option<u64>,
    freed: Vec<Identity>,
    /// Rows and numbers written so far.
    changes: u64,
}

impl<'txn> Batch<'txn> {
    pub(super) fn open(txn: &'txn WriteTransaction) -> Result<Self> {
        Ok(Self {
            txn,
            index: txn.open_table(tables::INDEX).map_err(fault::table)?,
            records: txn.open_table(tables::RECORDS).map_err(fault::table)?,
            unsettled: txn.open_table(tables::UNSETTLED).map_err(fault::table)?,
            shelves: [const { None }; Shelf::ALL.len()],
            outbox: None,
            id_next: None,
            freed: Vec::new(),
            changes: 0,
        })
    }

    /// Drives a command: one event, or several that stand or fall together.
    ///
    /// `incarnation` is whose claims are granted. The answers are in the order of the steps.
    pub(crate) fn drive(
        &mut self,
        steps: Vec<Step>,
        moment: Moment,
        incarnation: u64,
    ) -> Result<Vec<Answer>, DriveError> {
        let mut slots: Vec<Slot> = Vec::with_capacity(steps.len());
        let mut answers = Vec::with_capacity(steps.len());
        let mut steps = steps.into_iter();
        let mut parent = None;
        // Ids are taken for good only if the command writes; a refused one gives its ids back.
        let id_before = self.id_next;
        while let Some(Step { target, event }) = steps.next() {
            let at = self.slot(&mut slots, &target).map_err(unreadable)?;
            let mut context = self.context(moment, incarnation).map_err(DriveError::Transaction)?;
            context.parent = parent;
            if let Event::Run(intent, act) = &event {
                context.members = self.members(&intent.identity, act, &slots, &context).map_err(unreadable)?;
            }
            let is_begin = matches!(event, Event::Begin(_));
            let is_parent = matches!(event, Event::Run(..) | Event::Compensate);
            // A later step may be for the same row, so it must find this one's result.
            let record = if steps.len() > 0 { slots[at].record.clone() } else { slots[at].record.take() };
            let transition = match transition(record, event, &context) {
                Ok(transition) => transition,
                Err(rejection) => {
                    self.id_next = id_before;
                    return Err(DriveError::Rejected(rejection));
                }
            };
            if is_parent && let Answer::Accepted(record) = &transition.answer {
                parent = Some(record.head.id);
            }
            // What comes behind a begin has conditions of its own.
            parent = parent.filter(|_| !is_begin);
            answers.push(transition.answer);
            match transition.change {
                Change::Keep => {}
                Change::Put(record) => {
                    if record.head.id == context.fresh_id {
                        self.id_next = Some(context.fresh_id.0.saturating_add(1));
                    }
                    slots[at].identity = Some(record.head.identity.clone());
                    if steps.len() > 0 {
                        slots[at].record = Some((*record).clone());
                    }
                    slots[at].verdict = Change::Put(record);
                }
                Change::Remove => {
                    slots[at].record = None;
                    slots[at].verdict = Change::Remove;
                }
            }
        }
        for slot in slots {
            self.write(slot).map_err(DriveError::Transaction)?;
        }
        Ok(answers)
    }

    /// What an event would be answered, without writing anything: the same at the same moment of the same transaction.
    pub(crate) fn foresee(&mut self, identity: &Identity, event: Event, moment: Moment) -> Result<Answer, DriveError> {
        let record = self.find(identity).map_err(unreadable)?;
        let context = self.context(moment, NOBODY).map_err(DriveError::Transaction)?;
        transition(record, event, &context).map(|foreseen| foreseen.answer).map_err(DriveError::Rejected)
    }

    /// The identities whose claim ended in this batch: whoever waits for them may look again after the commit.
    pub(crate) fn take_freed(&mut self) -> Vec<Identity> {
        std::mem::take(&mut self.freed)
    }

    /// Something was written that is not ours.
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Whether anything was written. A transaction that wrote nothing need not be committed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.changes > 0 || self.outbox.as_ref().is_some_and(OutboxTables::is_dirty)
    }

    /// The tables of the outbox, opened on first use.
    pub(super) fn outbox(&mut self) -> Result<&mut OutboxTables<'txn>> {
        match &mut self.outbox {
            Some(outbox) => Ok(outbox),
            place => Ok(place.insert(OutboxTables::open(self.txn)?)),
        }
    }

    /// Whether a message became due in this batch: relays may look again after the commit.
    pub(crate) fn has_mail(&self) -> bool {
        self.outbox.as_ref().is_some_and(OutboxTables::has_mail)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn context(&mut self, moment: Moment, incarnation: u64) -> Result<Context> {
        let fresh_id = match self.id_next {
            Some(id) => id,
            None => self.last_id()?.map_or(1, |id| id.saturating_add(1)),
        };
        self.id_next = Some(fresh_id);
        Ok(Context {
            now: moment.now,
            wall: moment.wall,
            incarnation,
            fresh_id: RecordId(fresh_id),
            parent: None,
            members: Members::default(),
        })
    }

    pub(super) fn last_id(&self) -> Result<Option<u64>> {
        Ok(self.records.last().map_err(fault::storage)?.map(|(id, _)| id.value()))
    }

    /// The place of a step's row among those the command has read already, reading it if need be.
    fn slot(&self, slots: &mut Vec<Slot>, target: &Target) -> Result<usize> {
        let known = slots.iter().position(|slot| match target {
            Target::Key(identity) => slot.identity.as_ref() == Some(identity),
            Target::Id(id) => slot.stored.is_some_and(|(stored, _)| stored == *id),
        });
        if let Some(at) = known {
            return Ok(at);
        }
        let record = match target {
            Target::Key(identity) => self.find(identity)?,
            Target::Id(id) => self.read(*id)?,
        };
        // A step by id and one by key may mean the same row.
        if let Some(found) = &record
            && let Some(at) = slots.iter().position(|slot| slot.identity.as_ref() == Some(&found.head.identity))
        {
            return Ok(at);
        }
        let identity = match (target, &record) {
            (Target::Key(identity), _) => Some(identity.clone()),
            (Target::Id(_), Some(record)) => Some(record.head.identity.clone()),
            (Target::Id(_), None) => None,
        };
        let stored = record.as_ref().map(|record| (record.head.id, record.side_row()));
        slots.push(Slot { identity, stored, record, verdict: Change::Keep });
        Ok(slots.len() - 1)
    }

    fn find(&self, identity: &Identity) -> Result<Option<Record>> {
        let Some(id) = self.index.get(index_key(identity)).map_err(fault::storage)? else {
            return Ok(None);
        };
        let id = RecordId(id.value());
        let record = self.read(id)?.ok_or_else(|| missing_row(id))?;
        super::snapshot::same_identity(identity, record).map(Some)
    }

    pub(super) fn read(&self, id: RecordId) -> Result<Option<Record>> {
        let Some(row) = self.records.get(id.0).map_err(fault::storage)? else {
            return Ok(None);
        };
        decode(id, row.value()).map(Some).map_err(|error| fault::row(format_args!("record {}", id.0), error))
    }

    fn write(&mut self, slot: Slot) -> Result<()> {
        match slot.verdict {
            Change::Keep => Ok(()),
            Change::Put(record) => self.put(slot.stored, *record),
            Change::Remove => match slot.stored {
                Some((id, side)) => self.remove(id, side, slot.identity.as_ref()).map(drop),
                None => Ok(()),
            },
        }
    }

    fn put(&mut self, stored: Option<(RecordId, SideRow)>, record: Record) -> Result<()> {
        let id = record.head.id;
        let side = record.side_row();
        let row = encode(&record);
        self.changes += 1;
        let replaced = stored.filter(|(old, _)| *old != id);
        if let Some((old, _)) = replaced {
            self.records.remove(old.0).map_err(fault::storage)?;
        }
        self.records.insert(id.0, row.as_slice()).map_err(fault::storage)?;
        if stored.is_none() || replaced.is_some() {
            self.index.insert(index_key(&record.head.identity), id.0).map_err(fault::storage)?;
        }
        match stored {
            Some((old, before)) if old == id && before == side => {}
            Some((old, before)) => {
                // An unsettled row of the same id is overwritten in place.
                let overwritten = old == id && is_unsettled(&before) && is_unsettled(&side);
                if !overwritten {
                    self.remove_side(old, before)?;
                }
                self.insert_side(id, side)?;
            }
            None => self.insert_side(id, side)?,
        }
        let was_held = stored.is_some_and(|(_, side)| is_held(&side));
        if was_held && !is_held(&side) {
            self.freed.push(record.head.identity);
        }
        Ok(())
    }

    /// Forgets a record, unless it has the highest id: that row is the counter from which the next id comes, and an id
    /// used twice would let an old claim pass for a new one.
    fn remove(&mut self, id: RecordId, side: SideRow, identity: Option<&Identity>) -> Result<Removed> {
        if self.last_id()? == Some(id.0) {
            // What it answered with is over all the same, and must not lie on the disk.
            let kept = self.read(id)?.and_then(Record::entombed);
            kept.map_or(Ok(()), |tombstone| self.put(Some((id, side)), tombstone))?;
            return Ok(Removed::Kept);
        }
        self.changes += 1;
        self.records.remove(id.0).map_err(fault::storage)?;
        self.remove_side(id, side)?;
        if let Some(identity) = identity {
            self.index.remove(index_key(identity)).map_err(fault::storage)?;
        }
        Ok(Removed::Gone)
    }

    /// Forgets a record, whatever it is.
    pub(super) fn forget(&mut self, id: RecordId) -> Result<Removed> {
        let Some(record) = self.read(id)? else { return Err(missing_row(id)) };
        self.remove(id, record.side_row(), Some(&record.head.identity))
    }

    fn insert_side(&mut self, id: RecordId, side: SideRow) -> Result<()> {
        match side {
            SideRow::Unsettled(row) => {
                self.unsettled.insert(id.0, unsettled_value(&row)).map_err(fault::storage)?;
            }
            SideRow::Retention(shelf, due) => {
                self.shelf(shelf)?.insert((due.as_unix_millis(), id.0), ()).map_err(fault::storage)?;
            }
        }
        Ok(())
    }

    fn remove_side(&mut self, id: RecordId, side: SideRow) -> Result<()> {
        // One that is not there is damage, which `verify` reports; it is no reason to lose an outcome.
        match side {
            SideRow::Unsettled(_) => drop(self.unsettled.remove(id.0).map_err(fault::storage)?),
            SideRow::Retention(shelf, due) => {
                self.shelf(shelf)?.remove((due.as_unix_millis(), id.0)).map_err(fault::storage)?;
            }
        }
        Ok(())
    }

    /// Opened on first use: a commit that only begins operations touches none of them.
    pub(super) fn shelf(&mut self, which: Shelf) -> Result<&mut Table<'txn, DueKey, ()>> {
        let place = &mut self.shelves[which as usize];
        if place.is_none() {
            *place = Some(self.txn.open_table(shelf(which)).map_err(fault::table)?);
        }
        Ok(place.as_mut().expect("the table was just opened"))
    }

    /// The next incarnation of this store, persisted with this commit and so before any claim of it is heard of.
    pub(crate) fn next_incarnation(&mut self) -> Result<u64> {
        let [last] = super::snapshot::meta(&self.meta_table()?, meta::INCARNATION)?.unwrap_or([0]);
        let next = last.saturating_add(1);
        self.set_meta(meta::INCARNATION, [next])?;
        Ok(next)
    }

    /// Takes over a record of another store under its number, behind all that are there.
    #[cfg(feature = "json")]
    pub(super) fn take_over(&mut self, record: Record) -> Result<()> {
        let id = record.head.id.0;
        if id == 0 || self.last_id()?.is_some_and(|last| id <= last) {
            return Err(Error::invalid_input(format!("record {id} is out of order")));
        }
        if self.index.get(index_key(&record.head.identity)).map_err(fault::storage)?.is_some() {
            return Err(Error::invalid_input(format!("record {id} is the second of its operation")));
        }
        self.put(None, record)
    }

    /// Gives messages numbers from at least the one after this.
    #[cfg(feature = "json")]
    pub(super) fn reach_sequence(&mut self, least: u64) -> Result<()> {
        let [last] = super::snapshot::meta(&self.meta_table()?, meta::SEQUENCE)?.unwrap_or([0]);
        if last < least { self.set_meta(meta::SEQUENCE, [least]) } else { Ok(()) }
    }

    /// Counts this store's opens from at least so many.
    #[cfg(feature = "json")]
    pub(super) fn reach_incarnation(&mut self, least: u64) -> Result<()> {
        let [last] = super::snapshot::meta(&self.meta_table()?, meta::INCARNATION)?.unwrap_or([0]);
        if last < least { self.set_meta(meta::INCARNATION, [least]) } else { Ok(()) }
    }

    /// The clocks the file has seen, if it has seen any.
    pub(crate) fn anchor(&self) -> Result<Option<Anchor>> {
        super::snapshot::anchor(&self.meta_table()?)
    }

    /// Notes the clocks with this commit.
    pub(crate) fn set_anchor(&mut self, anchor: Anchor) -> Result<()> {
        let Anchor { mark, wall, wall_max, mark_at_max } = anchor;
        self.set_meta(meta::CLOCKS, [mark, wall, wall_max, mark_at_max].map(Timestamp::as_unix_millis))
    }

    fn meta_table(&self) -> Result<Table<'txn, &'static str, &'static [u8]>> {
        self.txn.open_table(META).map_err(fault::table)
    }

    fn set_meta<const N: usize>(&mut self, name: &str, values: [u64; N]) -> Result<()> {
        self.meta_table()?.insert(name, encode_meta(name, values).as_slice()).map_err(fault::storage)?;
        self.changes += 1;
        Ok(())
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("id_next", &self.id_next).finish_non_exhaustive()
    }
}

const fn is_unsettled(side: &SideRow) -> bool {
    matches!(side, SideRow::Unsettled(_))
}

fn is_held(side: &SideRow) -> bool {
    matches!(side, SideRow::Unsettled(row) if row.incarnation != 0)
}

pub(super) fn missing_row(id: RecordId) -> Error {
    Error::new(ErrorKind::Damaged, format!("the index names record {}, which is missing", id.0))
}

/// Damage concerns one row; everything else concerns the transaction.
fn unreadable(error: Error) -> DriveError {
    match error.kind() {
        ErrorKind::Damaged | ErrorKind::NewerFormat => DriveError::Unreadable(error),
        _ => DriveError::Transaction(error),
    }
}
