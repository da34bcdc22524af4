//! Every table of a store, declared once.
//!
//! Records are addressed by an ascending number in the middle, not by their key: a commit that adds rows side by side
//! touches fewer pages than one that scatters them, and pages touched are what a commit costs.

use redb::TableDefinition;

use crate::machine::index::{Shelf, UnsettledRow};
use crate::machine::key::Identity;
use crate::machine::record::Status;
use crate::machine::time::Timestamp;

/// All our tables share it, so that an application's own tables in the same file cannot meet them.
pub(super) const PREFIX: &str = "dupeproof/";

macro_rules! table {
    ($name:literal) => {
        TableDefinition::new(concat!("dupeproof/", $name))
    };
}

/// `(kind, tenant, operation, key, step, turn)`: separate fields, never joined. The turn of a step that is taken once
/// is 0, the first one of a loop 1.
pub(super) type IndexKey = (u8, &'static str, &'static str, &'static str, &'static str, u64);
/// `(status, due, incarnation, since)`.
pub(super) type UnsettledValue = (u8, u64, u64, u64);
/// `(due, id)`.
pub(super) type DueKey = (u64, u64);

pub(super) const INDEX: TableDefinition<'_, IndexKey, u64> = table!("index");
pub(super) const RECORDS: TableDefinition<'_, u64, &[u8]> = table!("records");
pub(super) const UNSETTLED: TableDefinition<'_, u64, UnsettledValue> = table!("unsettled");
pub(super) const META: TableDefinition<'_, &str, &[u8]> = table!("meta");
/// `(topic, due, sequence)`: a relay for one topic does not walk over those of the others.
pub(super) type TopicKey = (&'static str, u64, u64);
/// `(lane, sequence)`.
pub(super) type LaneKey = (&'static str, u64);

/// The messages of the outbox, by sequence.
pub(super) const MESSAGES: TableDefinition<'_, u64, &[u8]> = table!("outbox/messages");
/// Message id → sequence.
pub(super) const MESSAGE_IDS: TableDefinition<'_, &str, u64> = table!("outbox/ids");
/// What can be delivered now or at its time: the heads of the lanes, and what has no lane.
pub(super) const MESSAGES_DUE: TableDefinition<'_, TopicKey, ()> = table!("outbox/due");
/// `(until, sequence)` → incarnation.
pub(super) const MESSAGES_IN_FLIGHT: TableDefinition<'_, DueKey, u64> = table!("outbox/in_flight");
/// Everybody who keeps a place in a lane.
pub(super) const MESSAGE_LANES: TableDefinition<'_, LaneKey, ()> = table!("outbox/lanes");
/// Sequence → since when.
pub(super) const MESSAGES_DEAD: TableDefinition<'_, u64, u64> = table!("outbox/dead");
pub(super) const MESSAGES_DELIVERED: TableDefinition<'_, DueKey, ()> = table!("outbox/delivered");
pub(super) const MESSAGES_DISCARDED: TableDefinition<'_, DueKey, ()> = table!("outbox/discarded");

const RETENTION_SUCCEEDED: TableDefinition<'_, DueKey, ()> = table!("retention/succeeded");
const RETENTION_FAILED: TableDefinition<'_, DueKey, ()> = table!("retention/failed_terminal");
const RETENTION_TOMBSTONE: TableDefinition<'_, DueKey, ()> = table!("retention/tombstone");
const RETENTION_INBOX: TableDefinition<'_, DueKey, ()> = table!("retention/inbox");
const RETENTION_RUN: TableDefinition<'_, DueKey, ()> = table!("retention/run");
const RETENTION_MEMBER: TableDefinition<'_, DueKey, ()> = table!("retention/member");

/// One table a shelf: the length of the table is the count of the status, so that statistics cost no scan and no
/// counter can drift.
pub(super) const fn shelf(shelf: Shelf) -> TableDefinition<'static, DueKey, ()> {
    match shelf {
        Shelf::Succeeded => RETENTION_SUCCEEDED,
        Shelf::FailedTerminal => RETENTION_FAILED,
        Shelf::Tombstone => RETENTION_TOMBSTONE,
        Shelf::Inbox => RETENTION_INBOX,
        Shelf::Run => RETENTION_RUN,
        Shelf::Member => RETENTION_MEMBER,
    }
}

/// Names in the meta table.
pub(super) mod meta {
    /// The format of the whole store.
    pub(in crate::storage) const FORMAT: &str = "format";
    /// How often the store was opened for writing.
    pub(in crate::storage) const INCARNATION: &str = "incarnation";
    /// The clocks that the file has seen.
    pub(in crate::storage) const CLOCKS: &str = "clocks";
    /// The highest sequence of a message that is not there any more, so that none is used twice.
    pub(in crate::storage) const SEQUENCE: &str = "sequence";
}

pub(super) fn index_key(identity: &Identity) -> (u8, &str, &str, &str, &str, u64) {
    let key = &identity.key;
    let (step, index) = identity.step_parts();
    let turn = index.map_or(0, |index| u64::from(index) + 1);
    (identity.kind.code(), key.tenant(), key.operation(), key.key(), step, turn)
}

pub(super) fn unsettled_value(row: &UnsettledRow) -> UnsettledValue {
    (row.status as u8, row.due.as_unix_millis(), row.incarnation, row.since.as_unix_millis())
}

pub(super) fn unsettled_row((status, due, incarnation, since): UnsettledValue) -> Option<UnsettledRow> {
    Some(UnsettledRow {
        status: Status::from_code(status)?,
        due: Timestamp::from_unix_millis(due),
        incarnation,
        since: Timestamp::from_unix_millis(since),
    })
}
