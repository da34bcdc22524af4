//! A consistent copy of a running store, row by row, under another name.

use std::path::Path;

use redb::{Builder, Database, Key, ReadableTable, TableDefinition, Value};

use super::codec::decode;
use super::fault;
use super::place::NewFile;
use super::snapshot::Snapshot;
use super::tables;
use crate::error::Result;
use crate::machine::index::Shelf;
use crate::machine::record::RecordId;
use crate::progress::{Reporter, Work};

/// Rows copied in one commit: bounds the memory a copy takes, not its consistency, which the snapshot gives.
const ROWS_PER_COMMIT: usize = 10_000;
/// Page cache of the copy.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

impl Snapshot {
    /// Writes everything this snapshot sees to a new file. Every row is checked on the way, so that damage is found now
    /// and not when the copy is needed. Returns how many records were copied.
    ///
    /// The copy gets its name when it is complete; a crash half-way leaves nothing under that name.
    pub(crate) fn copy_to(&self, path: &Path, reporter: &Reporter) -> Result<u64> {
        let file = NewFile::beside(path).map_err(fault::create)?;
        let copied = self.count()?;
        let mut counter = reporter.count(Work::Backup, Some(copied));
        {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE_BYTES);
            let copy = builder.create(file.path()).map_err(fault::database)?;
            self.copy_table(&copy, tables::META, |_, _| Ok(()))?;
            self.copy_table(&copy, tables::INDEX, |_, _| Ok(()))?;
            self.copy_table(&copy, tables::RECORDS, |id, row| {
                counter.row();
                decode(RecordId(id), row).map(drop).map_err(|error| fault::row(format_args!("record {id}"), error))
            })?;
            self.copy_table(&copy, tables::UNSETTLED, |_, _| Ok(()))?;
            for shelf in Shelf::ALL {
                self.copy_table(&copy, tables::shelf(shelf), |_, ()| Ok(()))?;
            }
            self.copy_table(&copy, tables::MESSAGES, super::outbox::checked)?;
            self.copy_table(&copy, tables::MESSAGE_IDS, |_, _| Ok(()))?;
            self.copy_table(&copy, tables::MESSAGES_DUE, |_, ()| Ok(()))?;
            self.copy_table(&copy, tables::MESSAGES_IN_FLIGHT, |_, _| Ok(()))?;
            self.copy_table(&copy, tables::MESSAGE_LANES, |_, ()| Ok(()))?;
            self.copy_table(&copy, tables::MESSAGES_DEAD, |_, _| Ok(()))?;
            self.copy_table(&copy, tables::MESSAGES_DELIVERED, |_, ()| Ok(()))?;
            self.copy_table(&copy, tables::MESSAGES_DISCARDED, |_, ()| Ok(()))?;
            copy.close().map_err(fault::database)?;
        }
        file.publish().map_err(fault::create)?;
        counter.finish();
        Ok(copied)
    }

    fn copy_table<K: Key + 'static, V: Value + 'static>(
        &self,
        copy: &Database,
        definition: TableDefinition<'_, K, V>,
        mut check: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<()>,
    ) -> Result<()> {
        let source = self.txn.open_table(definition).map_err(fault::table)?;
        let mut rows = source.iter().map_err(fault::storage)?;
        loop {
            let txn = copy.begin_write().map_err(fault::transaction)?;
            let mut left = ROWS_PER_COMMIT;
            {
                let mut target = txn.open_table(definition).map_err(fault::table)?;
                for row in rows.by_ref().take(ROWS_PER_COMMIT) {
                    let (key, value) = row.map_err(fault::storage)?;
                    check(key.value(), value.value())?;
                    target.insert(key.value(), value.value()).map_err(fault::storage)?;
                    left -= 1;
                }
            }
            txn.commit().map_err(fault::commit)?;
            if left > 0 {
                return Ok(());
            }
        }
    }
}
