//! Two files with the same records: ours, and a table by hand.

use std::path::Path;

use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Options};
use rusqlite::Connection;

use crate::{Fallible, KEY};

/// Operations begun in one commit while loading.
const BATCH: u64 = 1000;
/// As long as a receipt.
const RESPONSE: [u8; 200] = [b'x'; 200];

/// Settled operations, under keys that are spread over the index.
pub(crate) fn store(path: &Path, records: u64) -> Fallible<()> {
    let store = Options::new().without_compactor().open(path)?;
    for first in (0..records).step_by(usize::try_from(BATCH)?) {
        let operations = (first..records.min(first + BATCH))
            .map(|number| Ok(Operation::new(OperationKey::new("default", "command", key(number))?, payload(number))))
            .collect::<Fallible<Vec<_>>>()?;
        let claims = store.begin_many(&operations)?;
        std::thread::scope(|scope| {
            for begun in claims {
                if let Begin::Execute(claim) = begun {
                    scope.spawn(move || claim.succeed_raw(&RESPONSE[..]));
                }
            }
        });
    }
    Ok(store.close()?)
}

/// A table of the same records, padded to the same length.
pub(crate) fn database(path: &Path, records: u64, bytes: u64) -> Fallible<()> {
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

fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn payload(number: u64) -> Fingerprint {
    Fingerprint::of_bytes(&number.to_le_bytes())
}
