//! The outbox in one write transaction: read a row, ask the machine, write the row and its derived side rows.

pub(super) mod audit;
pub(super) mod codec;
pub(crate) mod look;
pub(crate) mod work;

use redb::{ReadableTable, Table, WriteTransaction};

use super::fault;
use super::tables::{self, DueKey, LaneKey, META, TopicKey, meta};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::message::event::{Answer, Change, Context, Event, Rejection};
use crate::machine::message::index::{Position, Shelf};
use crate::machine::message::stored::{Sequence, StoredMessage};
use crate::machine::message::transition::transition;
use crate::machine::time::{Span, Timestamp};

/// The tables of the outbox within a write transaction.
pub(crate) struct OutboxTables<'txn> {
    txn: &'txn WriteTransaction,
    messages: Table<'txn, u64, &'static [u8]>,
    ids: Table<'txn, &'static str, u64>,
    due: Table<'txn, TopicKey, ()>,
    in_flight: Table<'txn, DueKey, u64>,
    lanes: Table<'txn, LaneKey, ()>,
    dead: Table<'txn, u64, u64>,
    delivered: Table<'txn, DueKey, ()>,
    discarded: Table<'txn, DueKey, ()>,
    next: Option<u64>,
    changes: u64,
    has_mail: bool,
}

/// Why an event did nothing.
#[derive(Debug)]
pub(crate) enum OutboxError {
    /// The machine said no to the event of this place in its command.
    Rejected(Rejection, usize),
    /// A row could not be read. Only this command is concerned.
    Unreadable(Error),
    /// The transaction as a whole cannot go on.
    Transaction(Error),
}

impl From<Error> for OutboxError {
    /// Damage concerns one row; everything else concerns the transaction.
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Damaged | ErrorKind::NewerFormat => Self::Unreadable(error),
            _ => Self::Transaction(error),
        }
    }
}

impl<'txn> OutboxTables<'txn> {
    pub(super) fn open(txn: &'txn WriteTransaction) -> Result<Self> {
        Ok(Self {
            txn,
            messages: txn.open_table(tables::MESSAGES).map_err(fault::table)?,
            ids: txn.open_table(tables::MESSAGE_IDS).map_err(fault::table)?,
            due: txn.open_table(tables::MESSAGES_DUE).map_err(fault::table)?,
            in_flight: txn.open_table(tables::MESSAGES_IN_FLIGHT).map_err(fault::table)?,
            lanes: txn.open_table(tables::MESSAGE_LANES).map_err(fault::table)?,
            dead: txn.open_table(tables::MESSAGES_DEAD).map_err(fault::table)?,
            delivered: txn.open_table(tables::MESSAGES_DELIVERED).map_err(fault::table)?,
            discarded: txn.open_table(tables::MESSAGES_DISCARDED).map_err(fault::table)?,
            next: None,
            changes: 0,
            has_mail: false,
        })
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.changes > 0
    }

    pub(super) fn has_mail(&self) -> bool {
        self.has_mail
    }

    fn context(&mut self, now: Timestamp, incarnation: u64, retention: Span) -> Result<Context> {
        let fresh = match self.next {
            Some(next) => next,
            None => {
                let gone = self.txn.open_table(META).map_err(fault::table)?;
                let [gone] = super::snapshot::meta(&gone, meta::SEQUENCE)?.unwrap_or([0]);
                self.last()?.unwrap_or(0).max(gone).saturating_add(1)
            }
        };
        self.next = Some(fresh);
        Ok(Context { now, incarnation, fresh: Sequence(fresh), retention })
    }

    /// Takes over a message of another store under its number, behind all that are there.
    #[cfg(feature = "json")]
    pub(super) fn take_over(&mut self, stored: &StoredMessage) -> Result<()> {
        let sequence = stored.head.sequence.0;
        if sequence == 0 || self.last()?.is_some_and(|last| sequence <= last) {
            return Err(Error::invalid_input(format!("message {sequence} is out of order")));
        }
        if self.ids.get(&*stored.head.message.id).map_err(fault::storage)?.is_some() {
            return Err(Error::invalid_input(format!("message {sequence} is the second of its id")));
        }
        self.put(None, stored)
    }

    pub(super) fn last(&self) -> Result<Option<u64>> {
        Ok(self.messages.last().map_err(fault::storage)?.map(|(sequence, _)| sequence.value()))
    }

    fn read(&self, sequence: Sequence) -> Result<Option<StoredMessage>> {
        let Some(row) = self.messages.get(sequence.0).map_err(fault::storage)? else {
            return Ok(None);
        };
        decoded(sequence, row.value()).map(Some)
    }

    fn find(&self, id: &str) -> Result<Option<StoredMessage>> {
        let Some(sequence) = self.ids.get(id).map_err(fault::storage)? else {
            return Ok(None);
        };
        let sequence = Sequence(sequence.value());
        same_id(id, sequence, self.read(sequence)?).map(Some)
    }

    /// Where it stands. Of a message that is not in its lane any more, nobody is before it.
    fn position(&self, stored: &StoredMessage) -> Result<Position> {
        let Some(lane) = stored.lane_kept() else { return Ok(Position::Head) };
        let head = head_of(&self.lanes, lane)?;
        Ok(if head.is_none_or(|head| stored.head.sequence <= head) { Position::Head } else { Position::Behind })
    }

    /// Drives one event. What is refused leaves no trace.
    fn drive(&mut self, stored: Option<StoredMessage>, event: Event, context: &Context) -> Result<Driven, OutboxError> {
        let transition =
            transition(stored.clone(), event, context).map_err(|rejection| OutboxError::Rejected(rejection, 0))?;
        let after = self.apply(stored, transition.change).map_err(OutboxError::Transaction)?;
        Ok(Driven { answer: transition.answer, after })
    }

    /// Writes a change, and returns the message as it is then, if it changed and is still there.
    fn apply(&mut self, before: Option<StoredMessage>, change: Change) -> Result<Option<StoredMessage>> {
        match change {
            Change::Keep => Ok(None),
            Change::Put(after) => {
                self.next = self.next.max(Some(after.head.sequence.0.saturating_add(1)));
                self.put(before.as_ref(), &after)?;
                Ok(Some(*after))
            }
            Change::Remove => {
                if let Some(before) = before {
                    self.remove(&before)?;
                }
                Ok(None)
            }
        }
    }

    fn put(&mut self, before: Option<&StoredMessage>, after: &StoredMessage) -> Result<()> {
        self.changes += 1;
        let sequence = after.head.sequence;
        let moved = before.is_none_or(|before| before.head.sequence != sequence);
        let old_lane = before.and_then(StoredMessage::lane_kept);
        let led = old_lane.is_some() && before.map(|before| self.position(before)).transpose()? == Some(Position::Head);
        if let Some(before) = before {
            self.remove_shelf(before)?;
            if moved {
                self.messages.remove(before.head.sequence.0).map_err(fault::storage)?;
            }
        }
        self.messages.insert(sequence.0, codec::encode(after).as_slice()).map_err(fault::storage)?;
        if moved {
            self.ids.insert(&*after.head.message.id, sequence.0).map_err(fault::storage)?;
        }
        // Before the shelf, which depends on who is the head.
        let left = old_lane.filter(|_| moved || after.lane_kept().is_none());
        if let (Some(lane), Some(before)) = (left, before) {
            self.lanes.remove((lane, before.head.sequence.0)).map_err(fault::storage)?;
        }
        if let Some(lane) = after.lane_kept().filter(|_| moved || old_lane.is_none()) {
            self.lanes.insert((lane, sequence.0), ()).map_err(fault::storage)?;
        }
        self.insert_shelf(after)?;
        match left {
            Some(lane) if led => self.promote(lane, sequence),
            _ => Ok(()),
        }
    }

    /// The next of a lane is due now or at its time, since the one before it has gone.
    fn promote(&mut self, lane: &str, gone: Sequence) -> Result<()> {
        let Some(head) = head_of(&self.lanes, lane)?.filter(|head| *head != gone) else { return Ok(()) };
        match self.read(head) {
            Ok(Some(next)) => self.insert_shelf(&next),
            // It holds up its lane. `verify` reports it, and it is no reason to lose what became of the one before it.
            Ok(None) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NewerFormat) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn remove(&mut self, stored: &StoredMessage) -> Result<()> {
        self.changes += 1;
        let sequence = stored.head.sequence.0;
        if self.last()? == Some(sequence) {
            // Or the next message would get its number, and an old ticket would pass for a new one.
            let row = super::codec::encode_meta(meta::SEQUENCE, [sequence]);
            let mut table = self.txn.open_table(META).map_err(fault::table)?;
            table.insert(meta::SEQUENCE, row.as_slice()).map_err(fault::storage)?;
        }
        self.remove_shelf(stored)?;
        self.messages.remove(sequence).map_err(fault::storage)?;
        self.ids.remove(&*stored.head.message.id).map_err(fault::storage)?;
        Ok(())
    }

    fn insert_shelf(&mut self, stored: &StoredMessage) -> Result<()> {
        let sequence = stored.head.sequence.0;
        let position = self.position(stored)?;
        match stored.places(position).shelf {
            None => {}
            Some(Shelf::Due { topic, at }) => {
                self.due.insert((topic, at.as_unix_millis(), sequence), ()).map_err(fault::storage)?;
                self.has_mail = true;
            }
            Some(Shelf::InFlight { until, incarnation }) => {
                self.in_flight.insert((until.as_unix_millis(), sequence), incarnation).map_err(fault::storage)?;
            }
            Some(Shelf::Dead { since }) => {
                self.dead.insert(sequence, since.as_unix_millis()).map_err(fault::storage)?;
            }
            Some(Shelf::Delivered { purge_at }) => {
                self.delivered.insert((purge_at.as_unix_millis(), sequence), ()).map_err(fault::storage)?;
            }
            Some(Shelf::Discarded { purge_at }) => {
                self.discarded.insert((purge_at.as_unix_millis(), sequence), ()).map_err(fault::storage)?;
            }
        }
        Ok(())
    }

    fn remove_shelf(&mut self, stored: &StoredMessage) -> Result<()> {
        let sequence = stored.head.sequence.0;
        let position = self.position(stored)?;
        // One that is not there is damage, which `verify` reports; it is no reason to lose an outcome.
        match stored.places(position).shelf {
            None => {}
            Some(Shelf::Due { topic, at }) => {
                self.due.remove((topic, at.as_unix_millis(), sequence)).map_err(fault::storage)?;
            }
            Some(Shelf::InFlight { until, .. }) => {
                self.in_flight.remove((until.as_unix_millis(), sequence)).map_err(fault::storage)?;
            }
            Some(Shelf::Dead { .. }) => drop(self.dead.remove(sequence).map_err(fault::storage)?),
            Some(Shelf::Delivered { purge_at }) => {
                self.delivered.remove((purge_at.as_unix_millis(), sequence)).map_err(fault::storage)?;
            }
            Some(Shelf::Discarded { purge_at }) => {
                self.discarded.remove((purge_at.as_unix_millis(), sequence)).map_err(fault::storage)?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for OutboxTables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxTables").field("changes", &self.changes).finish_non_exhaustive()
    }
}

/// What one event did.
struct Driven {
    answer: Answer,
    after: Option<StoredMessage>,
}

/// Who may be delivered next of a lane, or holds it.
fn head_of(lanes: &impl ReadableTable<LaneKey, ()>, lane: &str) -> Result<Option<Sequence>> {
    let mut places = lanes.range((lane, 0)..=(lane, u64::MAX)).map_err(fault::storage)?;
    let first = places.next().transpose().map_err(fault::storage)?;
    Ok(first.map(|(place, _)| Sequence(place.value().1)))
}

/// Whether the row can be read.
pub(super) fn checked(sequence: u64, row: &[u8]) -> Result<()> {
    decoded(Sequence(sequence), row).map(drop)
}

fn decoded(sequence: Sequence, row: &[u8]) -> Result<StoredMessage> {
    codec::decode(sequence, row).map_err(|error| fault::row(format_args!("message {}", sequence.0), error))
}

/// The table of ids has no sums of its own, so a row found through it must say that it is the one looked for.
fn same_id(id: &str, sequence: Sequence, stored: Option<StoredMessage>) -> Result<StoredMessage> {
    let found = stored.filter(|stored| &*stored.head.message.id == id);
    found.ok_or_else(|| {
        Error::new(ErrorKind::Damaged, format!("an id leads to message {}, which is not its own", sequence.0))
    })
}
