//! Reading: a view of the store as of the last commit. It never leaves the storage layer, because a read transaction
//! that lives on makes the file grow.

use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::batch::missing_row;
use super::codec::{decode, decode_meta};
use super::fault;
use super::tables::{self, IndexKey, META, index_key, meta, shelf, unsettled_row};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::index::{Shelf, UnsettledRow};
use crate::machine::key::{Identity, Kind};
use crate::machine::record::{Record, RecordId};
use crate::machine::time::{Anchor, Timestamp};

/// A consistent view of the whole store.
pub(crate) struct Snapshot {
    pub(super) txn: ReadTransaction,
    index: ReadOnlyTable<IndexKey, u64>,
    records: ReadOnlyTable<u64, &'static [u8]>,
}

impl Snapshot {
    pub(super) fn open(txn: ReadTransaction) -> Result<Self> {
        let index = txn.open_table(tables::INDEX).map_err(fault::table)?;
        let records = txn.open_table(tables::RECORDS).map_err(fault::table)?;
        Ok(Self { txn, index, records })
    }

    pub(crate) fn find(&self, identity: &Identity) -> Result<Option<Record>> {
        let Some(id) = self.index.get(index_key(identity)).map_err(fault::storage)? else {
            return Ok(None);
        };
        let id = RecordId(id.value());
        let record = self.read(id)?.ok_or_else(|| missing_row(id))?;
        same_identity(identity, record).map(Some)
    }

    pub(crate) fn read(&self, id: RecordId) -> Result<Option<Record>> {
        let Some(row) = self.records.get(id.0).map_err(fault::storage)? else {
            return Ok(None);
        };
        decode(id, row.value()).map(Some).map_err(|error| fault::row(format_args!("record {}", id.0), error))
    }

    /// Visits records of a kind in the order of (tenant, operation, key, step), from behind `after`, until `visit` says
    /// stop.
    pub(crate) fn scan(
        &self,
        kind: Kind,
        after: Option<&Identity>,
        mut visit: impl FnMut(Record) -> Result<Visit>,
    ) -> Result<()> {
        let start = after.map_or((kind.code(), "", "", "", "", 0), index_key);
        let end = (kind.code() + 1, "", "", "", "", 0);
        for entry in self.index.range(start..end).map_err(fault::storage)? {
            let (key, id) = entry.map_err(fault::storage)?;
            if after.is_some() && key.value() == start {
                continue;
            }
            let id = RecordId(id.value());
            let record = self.read(id)?.ok_or_else(|| missing_row(id))?;
            if index_key(&record.head.identity) != key.value() {
                return Err(crossed_index(id));
            }
            if visit(record)? == Visit::Stop {
                break;
            }
        }
        Ok(())
    }

    /// Visits unsettled rows in the order of their ids, from behind `after`, until `visit` says stop.
    pub(crate) fn scan_unsettled(
        &self,
        after: Option<RecordId>,
        mut visit: impl FnMut(RecordId, UnsettledRow) -> Result<Visit>,
    ) -> Result<()> {
        let table = self.txn.open_table(tables::UNSETTLED).map_err(fault::table)?;
        let start = after.map_or(0, |id| id.0.saturating_add(1));
        for entry in table.range(start..).map_err(fault::storage)? {
            let (id, row) = entry.map_err(fault::storage)?;
            let id = RecordId(id.value());
            let row = unsettled_row(row.value()).ok_or_else(|| {
                Error::new(ErrorKind::Damaged, format!("the unsettled row of record {} has no status", id.0))
            })?;
            if visit(id, row)? == Visit::Stop {
                break;
            }
        }
        Ok(())
    }

    /// How many records there are, without counting them.
    pub(crate) fn count(&self) -> Result<u64> {
        self.records.len().map_err(fault::storage)
    }

    /// How many records a shelf holds, without counting them.
    pub(crate) fn shelf_len(&self, which: Shelf) -> Result<u64> {
        self.txn.open_table(shelf(which)).map_err(fault::table)?.len().map_err(fault::storage)
    }

    pub(super) fn index(&self) -> &ReadOnlyTable<IndexKey, u64> {
        &self.index
    }

    pub(super) fn records(&self) -> &ReadOnlyTable<u64, &'static [u8]> {
        &self.records
    }

    /// A number of the meta table; 0 if it was never written.
    #[cfg(feature = "json")]
    pub(super) fn number(&self, name: &str) -> Result<u64> {
        let table = self.txn.open_table(META).map_err(fault::table)?;
        let [number] = meta(&table, name)?.unwrap_or([0]);
        Ok(number)
    }

    /// The clocks the file has seen, if it has seen any.
    pub(crate) fn anchor(&self) -> Result<Option<Anchor>> {
        let table = self.txn.open_table(META).map_err(fault::table)?;
        anchor(&table)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

/// Whether a scan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    Next,
    Stop,
}

pub(super) fn anchor(table: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Option<Anchor>> {
    let clocks = meta(table, meta::CLOCKS)?;
    Ok(clocks.map(|clocks| {
        let [mark, wall, wall_max, mark_at_max] = clocks.map(Timestamp::from_unix_millis);
        Anchor { mark, wall, wall_max, mark_at_max }
    }))
}

pub(super) fn meta<const N: usize>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<[u64; N]>> {
    let Some(row) = table.get(name).map_err(fault::storage)? else {
        return Ok(None);
    };
    decode_meta(name, row.value()).map(Some).map_err(|error| fault::row(format_args!("the {name} row"), error))
}

/// The index has no sums of its own, so a row found through it must say that it is the one that was looked for.
pub(super) fn same_identity(identity: &Identity, record: Record) -> Result<Record> {
    if record.head.identity == *identity { Ok(record) } else { Err(crossed_index(record.head.id)) }
}

fn crossed_index(id: RecordId) -> Error {
    Error::new(ErrorKind::Damaged, format!("the index leads to record {}, which is of another operation", id.0))
}
