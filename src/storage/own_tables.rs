//! The application's own tables in our file, as a transaction opens them.

use redb::{
    Key, MultimapTable, MultimapTableDefinition, MultimapTableHandle, ReadOnlyMultimapTable, ReadOnlyTable, Table,
    TableDefinition, TableError, TableHandle, Value,
};

use super::batch::Batch;
use super::fault;
use super::snapshot::Snapshot;
use super::tables::PREFIX;
use crate::error::{Error, ErrorKind, Result};

impl<'txn> Batch<'txn> {
    pub(crate) fn open_own<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Table<'txn, K, V>> {
        check_name(definition.name())?;
        self.opened(self.txn.open_table(definition))
    }

    pub(crate) fn open_own_multimap<K: Key + 'static, V: Key + 'static>(
        &mut self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'txn, K, V>> {
        check_name(definition.name())?;
        self.opened(self.txn.open_multimap_table(definition))
    }

    pub(crate) fn delete_own(&mut self, table: impl TableHandle) -> Result<bool> {
        check_name(table.name())?;
        self.opened(self.txn.delete_table(table))
    }

    pub(crate) fn delete_own_multimap(&mut self, table: impl MultimapTableHandle) -> Result<bool> {
        check_name(table.name())?;
        self.opened(self.txn.delete_multimap_table(table))
    }

    /// Nobody tells us what is written to a table once it is open.
    fn opened<T>(&mut self, result: Result<T, TableError>) -> Result<T> {
        let opened = result.map_err(misopened)?;
        self.note_change();
        Ok(opened)
    }
}

impl Snapshot {
    pub(crate) fn open_own<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Option<ReadOnlyTable<K, V>>> {
        check_name(definition.name())?;
        if_there(self.txn.open_table(definition))
    }

    pub(crate) fn open_own_multimap<K: Key + 'static, V: Key + 'static>(
        &self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<Option<ReadOnlyMultimapTable<K, V>>> {
        check_name(definition.name())?;
        if_there(self.txn.open_multimap_table(definition))
    }
}

fn if_there<T>(opened: Result<T, TableError>) -> Result<Option<T>> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(misopened(error)),
    }
}

fn misopened(error: TableError) -> Error {
    match error {
        TableError::Storage(error) => fault::storage(error),
        other => Error::new(ErrorKind::InvalidInput, other.to_string()).with_source(other),
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.starts_with(PREFIX) {
        return Err(Error::invalid_input(format!("table {name} is the store's own: names that begin with {PREFIX}")));
    }
    Ok(())
}
