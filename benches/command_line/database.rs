//! The table by hand with the same records.

use std::path::Path;

use rusqlite::Connection;

use crate::fill::{RESPONSE, key};
use crate::{Fallible, KEY};

/// A table of the same records, padded to the same length.
pub(crate) fn make(path: &Path, records: u64, bytes: u64) -> Fallible<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
         CREATE TABLE operations (key TEXT PRIMARY KEY, status INTEGER NOT NULL, response BLOB NOT NULL) WITHOUT ROWID;",
    )?;
    let padded = usize::try_from(bytes / records.max(1))?.saturating_sub(80).max(RESPONSE.len());
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO operations VALUES (?1, 5, ?2)")?;
        for number in 0..records {
            insert.execute((key(number), vec![b'x'; padded]))?;
        }
        insert.execute((KEY, vec![b'x'; padded]))?;
    }
    transaction.commit()?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}
