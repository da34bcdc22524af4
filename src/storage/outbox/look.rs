//! Looking into the outbox without touching it.

use redb::{ReadableTable, ReadableTableMetadata};

use super::{decoded, fault, same_id};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::message::stored::{Sequence, StoredMessage};
use crate::machine::time::Timestamp;
use crate::storage::snapshot::{Snapshot, Visit};
use crate::storage::tables::{self, DueKey, TopicKey};

/// Counts of the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OutboxStats {
    /// To be delivered: now, at their time, or behind others of their lane.
    pub pending: u64,
    /// Handed to a relay.
    pub in_flight: u64,
    /// Delivered, and remembered for a while.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Discarded, and remembered for a while.
    pub discarded: u64,
    /// Since when the one that has waited longest could have been delivered.
    pub oldest_due: Option<Timestamp>,
}

/// What there is to do for a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outlook {
    pub(crate) is_due: bool,
    /// When there is something next, unless it is sent before.
    pub(crate) next_at: Option<Timestamp>,
}

impl Snapshot {
    pub(crate) fn find_message(&self, id: &str) -> Result<Option<StoredMessage>> {
        let ids = self.txn.open_table(tables::MESSAGE_IDS).map_err(fault::table)?;
        let Some(sequence) = ids.get(id).map_err(fault::storage)? else {
            return Ok(None);
        };
        let sequence = Sequence(sequence.value());
        same_id(id, sequence, self.read_message(sequence)?).map(Some)
    }

    pub(super) fn read_message(&self, sequence: Sequence) -> Result<Option<StoredMessage>> {
        let messages = self.txn.open_table(tables::MESSAGES).map_err(fault::table)?;
        let Some(row) = messages.get(sequence.0).map_err(fault::storage)? else {
            return Ok(None);
        };
        decoded(sequence, row.value()).map(Some)
    }

    /// How many messages there are, without counting them.
    #[cfg(feature = "json")]
    pub(crate) fn message_count(&self) -> Result<u64> {
        self.txn.open_table(tables::MESSAGES).map_err(fault::table)?.len().map_err(fault::storage)
    }

    /// Visits messages in the order of their sequence, from behind `after`, until `visit` says stop.
    pub(crate) fn scan_messages(
        &self,
        after: Option<Sequence>,
        mut visit: impl FnMut(StoredMessage) -> Result<Visit>,
    ) -> Result<()> {
        let messages = self.txn.open_table(tables::MESSAGES).map_err(fault::table)?;
        for entry in messages.range(behind(after)..).map_err(fault::storage)? {
            let (sequence, row) = entry.map_err(fault::storage)?;
            if visit(decoded(Sequence(sequence.value()), row.value())?)? == Visit::Stop {
                break;
            }
        }
        Ok(())
    }

    /// Visits dead letters, likewise.
    pub(crate) fn scan_dead(
        &self,
        after: Option<Sequence>,
        mut visit: impl FnMut(StoredMessage) -> Result<Visit>,
    ) -> Result<()> {
        let dead = self.txn.open_table(tables::MESSAGES_DEAD).map_err(fault::table)?;
        for entry in dead.range(behind(after)..).map_err(fault::storage)? {
            let sequence = Sequence(entry.map_err(fault::storage)?.0.value());
            let stored = self
                .read_message(sequence)?
                .ok_or_else(|| Error::new(ErrorKind::Damaged, format!("dead letter {} is missing", sequence.0)))?;
            if visit(stored)? == Visit::Stop {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn outlook(&self, topics: Option<&[Box<str>]>, now: Timestamp) -> Result<Outlook> {
        let due = self.txn.open_table(tables::MESSAGES_DUE).map_err(fault::table)?;
        let in_flight = self.txn.open_table(tables::MESSAGES_IN_FLIGHT).map_err(fault::table)?;
        outlook(&due, &in_flight, topics, now)
    }

    /// By the lengths of the tables, so that nothing is walked through.
    pub(crate) fn outbox_stats(&self, now: Timestamp) -> Result<OutboxStats> {
        let len_of = |table| self.txn.open_table(table).map_err(fault::table)?.len().map_err(fault::storage);
        let all = self.txn.open_table(tables::MESSAGES).map_err(fault::table)?.len().map_err(fault::storage)?;
        let in_flight = self.txn.open_table(tables::MESSAGES_IN_FLIGHT).map_err(fault::table)?;
        let in_flight = in_flight.len().map_err(fault::storage)?;
        let dead = self.txn.open_table(tables::MESSAGES_DEAD).map_err(fault::table)?.len().map_err(fault::storage)?;
        let (delivered, discarded) = (len_of(tables::MESSAGES_DELIVERED)?, len_of(tables::MESSAGES_DISCARDED)?);
        let pending = all.saturating_sub(in_flight + dead + delivered + discarded);
        let due = self.txn.open_table(tables::MESSAGES_DUE).map_err(fault::table)?;
        let mut oldest_due = None;
        for topic in topics_of(&due, None)? {
            oldest_due = first_of(&due, &topic)?.filter(|at| *at <= now).into_iter().chain(oldest_due).min();
        }
        Ok(OutboxStats { pending, in_flight, delivered, dead, discarded, oldest_due })
    }
}

fn behind(after: Option<Sequence>) -> u64 {
    after.map_or(0, |sequence| sequence.0.saturating_add(1))
}

/// The topics that a relay looks at: those it was given, or all that have something.
pub(super) fn topics_of(due: &impl ReadableTable<TopicKey, ()>, given: Option<&[Box<str>]>) -> Result<Vec<Box<str>>> {
    if let Some(given) = given {
        return Ok(given.to_vec());
    }
    let mut topics: Vec<Box<str>> = Vec::new();
    loop {
        // From topic to topic, and not over what lies between.
        let start = topics.last().map_or(("", 0, 0), |topic| (&**topic, u64::MAX, u64::MAX));
        let next = due.range(start..).map_err(fault::storage)?.next().transpose().map_err(fault::storage)?;
        let Some(next) = next.map(|(key, _)| Box::<str>::from(key.value().0)) else { return Ok(topics) };
        if topics.last() == Some(&next) {
            return Ok(topics);
        }
        topics.push(next);
    }
}

fn first_of(due: &impl ReadableTable<TopicKey, ()>, topic: &str) -> Result<Option<Timestamp>> {
    let mut rows = due.range((topic, 0, 0)..=(topic, u64::MAX, u64::MAX)).map_err(fault::storage)?;
    let first = rows.next().transpose().map_err(fault::storage)?;
    Ok(first.map(|(key, _)| Timestamp::from_unix_millis(key.value().1)))
}

pub(super) fn outlook(
    due: &impl ReadableTable<TopicKey, ()>,
    in_flight: &impl ReadableTable<DueKey, u64>,
    topics: Option<&[Box<str>]>,
    now: Timestamp,
) -> Result<Outlook> {
    let mut outlook = Outlook::default();
    let mut note = |at: Timestamp| {
        if at <= now {
            outlook.is_due = true;
        } else {
            outlook.next_at = Some(outlook.next_at.map_or(at, |next| next.min(at)));
        }
    };
    for topic in topics_of(due, topics)? {
        first_of(due, &topic)?.into_iter().for_each(&mut note);
    }
    let first = in_flight.first().map_err(fault::storage)?;
    first.map(|(key, _)| Timestamp::from_unix_millis(key.value().0)).into_iter().for_each(&mut note);
    Ok(outlook)
}
