//! `verify` of the outbox: every message is read, and where it should be found is computed again and compared.

use redb::{ReadOnlyTable, ReadableTable};

use super::{codec, fault, head_of};
use crate::error::Result;
use crate::machine::message::index::{Position, Shelf};
use crate::machine::message::stored::{Sequence, StoredMessage};
use crate::storage::audit::{Problem, VerifyReport};
use crate::storage::snapshot::Snapshot;
use crate::storage::tables::{self, DueKey, LaneKey, TopicKey};

/// The side tables.
struct Sides {
    ids: ReadOnlyTable<&'static str, u64>,
    due: ReadOnlyTable<TopicKey, ()>,
    in_flight: ReadOnlyTable<DueKey, u64>,
    lanes: ReadOnlyTable<LaneKey, ()>,
    dead: ReadOnlyTable<u64, u64>,
    delivered: ReadOnlyTable<DueKey, ()>,
    discarded: ReadOnlyTable<DueKey, ()>,
}

/// Where a message should be found.
struct Expected {
    stored: StoredMessage,
    position: Position,
}

impl Snapshot {
    pub(in crate::storage) fn audit_outbox(&self, report: &mut VerifyReport) -> Result<()> {
        let txn = &self.txn;
        let sides = Sides {
            ids: txn.open_table(tables::MESSAGE_IDS).map_err(fault::table)?,
            due: txn.open_table(tables::MESSAGES_DUE).map_err(fault::table)?,
            in_flight: txn.open_table(tables::MESSAGES_IN_FLIGHT).map_err(fault::table)?,
            lanes: txn.open_table(tables::MESSAGE_LANES).map_err(fault::table)?,
            dead: txn.open_table(tables::MESSAGES_DEAD).map_err(fault::table)?,
            delivered: txn.open_table(tables::MESSAGES_DELIVERED).map_err(fault::table)?,
            discarded: txn.open_table(tables::MESSAGES_DISCARDED).map_err(fault::table)?,
        };
        let messages = txn.open_table(tables::MESSAGES).map_err(fault::table)?;
        for entry in messages.iter().map_err(fault::storage)? {
            let (sequence, row) = entry.map_err(fault::storage)?;
            report.messages += 1;
            match codec::decode(Sequence(sequence.value()), row.value()) {
                Ok(stored) => sides.audit(sides.expected(stored)?, report)?,
                Err(error) => {
                    report.note(Problem::UnreadableMessage { message: sequence.value(), reason: error.to_string() })
                }
            }
        }
        sides.audit_strays(self, report)
    }
}

impl Sides {
    fn expected(&self, stored: StoredMessage) -> Result<Expected> {
        let head = stored.lane_kept().map(|lane| head_of(&self.lanes, lane)).transpose()?.flatten();
        let is_head = head.is_none_or(|head| stored.head.sequence <= head);
        Ok(Expected { stored, position: if is_head { Position::Head } else { Position::Behind } })
    }

    fn audit(&self, Expected { stored, position }: Expected, report: &mut VerifyReport) -> Result<()> {
        let message = stored.head.sequence.0;
        let mut expect = |is_there: bool, expected: String| {
            if !is_there {
                report.note(Problem::MessageSideRow { message, expected });
            }
        };
        let found = self.ids.get(&*stored.head.message.id).map_err(fault::storage)?;
        expect(found.map(|found| found.value()) == Some(message), "its id".into());
        if let Some(lane) = stored.lane_kept() {
            let found = self.lanes.get((lane, message)).map_err(fault::storage)?;
            expect(found.is_some(), "its place in its lane".into());
        }
        expect(stored.may_be(position), "nobody before it in its lane".into());
        if let Some(shelf) = stored.places(position).shelf {
            expect(self.has(shelf, message)?, format!("{shelf:?}"));
        }
        Ok(())
    }

    fn has(&self, shelf: Shelf<'_>, message: u64) -> Result<bool> {
        Ok(match shelf {
            Shelf::Due { topic, at } => {
                self.due.get((topic, at.as_unix_millis(), message)).map_err(fault::storage)?.is_some()
            }
            Shelf::InFlight { until, incarnation } => {
                let found = self.in_flight.get((until.as_unix_millis(), message)).map_err(fault::storage)?;
                found.map(|found| found.value()) == Some(incarnation)
            }
            Shelf::Dead { since } => {
                let found = self.dead.get(message).map_err(fault::storage)?;
                found.map(|found| found.value()) == Some(since.as_unix_millis())
            }
            Shelf::Delivered { purge_at } => {
                self.delivered.get((purge_at.as_unix_millis(), message)).map_err(fault::storage)?.is_some()
            }
            Shelf::Discarded { purge_at } => {
                self.discarded.get((purge_at.as_unix_millis(), message)).map_err(fault::storage)?.is_some()
            }
        })
    }

    /// Every side row must come from a message that has it.
    fn audit_strays(&self, snapshot: &Snapshot, report: &mut VerifyReport) -> Result<()> {
        let mut check = |message: u64, is_own: &dyn Fn(&StoredMessage, Option<Shelf<'_>>) -> bool| -> Result<()> {
            // An unreadable row was reported where it lies.
            let stored = snapshot.read_message(Sequence(message)).ok().flatten();
            let expected = stored.map(|stored| self.expected(stored)).transpose()?;
            let is_own =
                expected.is_some_and(|Expected { stored, position }| is_own(&stored, stored.places(position).shelf));
            if !is_own {
                report.note(Problem::StrayMessageSideRow { message });
            }
            Ok(())
        };
        for entry in self.ids.iter().map_err(fault::storage)? {
            let (id, message) = entry.map_err(fault::storage)?;
            check(message.value(), &|stored, _| &*stored.head.message.id == id.value())?;
        }
        for entry in self.lanes.iter().map_err(fault::storage)? {
            let (key, _) = entry.map_err(fault::storage)?;
            let (lane, message) = key.value();
            check(message, &|stored, _| stored.lane_kept() == Some(lane))?;
        }
        for entry in self.due.iter().map_err(fault::storage)? {
            let (key, _) = entry.map_err(fault::storage)?;
            let (topic, due, message) = key.value();
            let is_own = |_: &StoredMessage, shelf: Option<Shelf<'_>>| matches!(shelf, Some(Shelf::Due { topic: own, at }) if own == topic && at.as_unix_millis() == due);
            check(message, &is_own)?;
        }
        for entry in self.in_flight.iter().map_err(fault::storage)? {
            let (at, message) = entry.map_err(fault::storage)?.0.value();
            let is_own = |_: &StoredMessage, shelf: Option<Shelf<'_>>| matches!(shelf, Some(Shelf::InFlight { until, .. }) if until.as_unix_millis() == at);
            check(message, &is_own)?;
        }
        for entry in self.dead.iter().map_err(fault::storage)? {
            let message = entry.map_err(fault::storage)?.0.value();
            check(message, &|_, shelf| matches!(shelf, Some(Shelf::Dead { .. })))?;
        }
        for entry in self.delivered.iter().map_err(fault::storage)? {
            let (at, message) = entry.map_err(fault::storage)?.0.value();
            let is_own = |_: &StoredMessage, shelf: Option<Shelf<'_>>| matches!(shelf, Some(Shelf::Delivered { purge_at }) if purge_at.as_unix_millis() == at);
            check(message, &is_own)?;
        }
        for entry in self.discarded.iter().map_err(fault::storage)? {
            let (at, message) = entry.map_err(fault::storage)?.0.value();
            let is_own = |_: &StoredMessage, shelf: Option<Shelf<'_>>| matches!(shelf, Some(Shelf::Discarded { purge_at }) if purge_at.as_unix_millis() == at);
            check(message, &is_own)?;
        }
        Ok(())
    }
}
