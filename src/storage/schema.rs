//! The format of a store as a whole: the image a new file starts from, and whether an existing one can be read.

use redb::{
    Builder, Database, Durability, ReadableDatabase, SetDurabilityError, TableError, TableHandle, TransactionError,
    WriteTransaction,
};

use super::codec::{decode_meta, encode_meta};
use super::fault;
use super::memory::MemoryBackend;
use super::tables::{self, META, meta};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::index::Shelf;

/// The newest store format this release reads and the one it writes. Raised when an older release must not open the
/// file any more.
pub(super) const STORE_FORMAT: u64 = 1;

/// The bytes of an empty, cleanly closed store.
pub(crate) fn image() -> Result<Vec<u8>> {
    image_of_format(STORE_FORMAT)
}

pub(super) fn image_of_format(format: u64) -> Result<Vec<u8>> {
    fault::guard(|| {
        let backend = MemoryBackend::default();
        let mut builder = Builder::new();
        builder.set_cache_size(1024 * 1024);
        let database = builder.create_with_backend(backend.clone()).map_err(fault::database)?;
        let txn = database.begin_write().map_err(fault::transaction)?;
        make_tables(&txn, format)?;
        txn.commit().map_err(fault::commit)?;
        database.close().map_err(fault::database)?;
        Ok(backend.image())
    })
}

fn make_tables(txn: &WriteTransaction, format: u64) -> Result<()> {
    txn.open_table(tables::INDEX).map_err(fault::table)?;
    txn.open_table(tables::RECORDS).map_err(fault::table)?;
    txn.open_table(tables::UNSETTLED).map_err(fault::table)?;
    for shelf in Shelf::ALL {
        txn.open_table(tables::shelf(shelf)).map_err(fault::table)?;
    }
    super::outbox::OutboxTables::open(txn)?;
    let mut meta = txn.open_table(META).map_err(fault::table)?;
    let row = encode_meta(meta::FORMAT, [format]);
    meta.insert(meta::FORMAT, row.as_slice()).map_err(fault::storage)?;
    Ok(())
}

/// Makes our tables beside those of an application, if they are not there. Durable on return.
pub(super) fn move_in(database: &Database) -> Result<()> {
    let mut txn = begin(database)?;
    // Decided within the transaction: another process may be at the same.
    let is_there = txn.list_tables().map_err(fault::storage)?.any(|table| table.name() == META.name());
    if is_there {
        return txn.abort().map_err(fault::storage);
    }
    txn.set_two_phase_commit(true);
    make_tables(&txn, STORE_FORMAT)?;
    txn.commit().map_err(fault::commit)
}

/// Whether our tables are in the database. A part of them is no new store: its records would answer again.
pub(super) fn lives_in(database: &Database) -> Result<bool> {
    let txn = database.begin_read().map_err(fault::transaction)?;
    let names = txn.list_tables().map_err(fault::storage)?.map(|table| table.name().to_owned());
    let ours: Vec<String> = names.filter(|name| name.starts_with(tables::PREFIX)).collect();
    match ours.first() {
        None => Ok(false),
        Some(_) if ours.iter().any(|name| name == META.name()) => Ok(true),
        Some(name) => {
            Err(Error::new(ErrorKind::Damaged, format!("the database has table {name}, but no {}", META.name())))
        }
    }
}

/// Never waits: the write transaction in the way may be open on this very thread.
fn begin(database: &Database) -> Result<WriteTransaction> {
    database.try_begin_write().map_err(|error| match error {
        TransactionError::WouldBlock => {
            Error::new(ErrorKind::Busy, "a write transaction is open on the database: end it first")
        }
        other => fault::transaction(other),
    })
}

/// Whether other processes may write to the open database: what it was opened for is not told otherwise than by what it
/// refuses.
pub(super) fn is_shared(database: &Database) -> Result<bool> {
    let mut txn = begin(database)?;
    let is_refused =
        matches!(txn.set_durability(Durability::None), Err(SetDurabilityError::NonDurableCommitUnsupported));
    txn.abort().map_err(fault::storage)?;
    Ok(is_refused)
}

/// Accepts or refuses an open database, before anything of it is used.
pub(super) fn check_format(database: &Database) -> Result<()> {
    let txn = database.begin_read().map_err(fault::transaction)?;
    let table = match txn.open_table(META) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => {
            return Err(Error::new(
                ErrorKind::NotAStore,
                "the file is a redb database of another program, not a dupeproof store",
            ));
        }
        Err(error) => return Err(fault::table(error)),
    };
    let row = table.get(meta::FORMAT).map_err(fault::storage)?;
    let row = row.ok_or_else(|| Error::new(ErrorKind::Damaged, "the store's format row is missing"))?;
    let [format] = decode_meta(meta::FORMAT, row.value()).map_err(|error| fault::row("the format row", error))?;
    if format > STORE_FORMAT {
        return Err(Error::new(
            ErrorKind::NewerFormat,
            format!("the store has format {format}; this release reads up to {STORE_FORMAT}"),
        ));
    }
    if format < STORE_FORMAT {
        return Err(Error::new(ErrorKind::Damaged, format!("the store has format {format}, which was never written")));
    }
    Ok(())
}
