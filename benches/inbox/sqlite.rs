//! By hand: a table of ids with a unique index, and the business row in the same transaction.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior, params};

use crate::connection::connect;
use crate::work::Item;
use crate::{CACHE_BYTES, Contestant, Fallible};

const SCHEMA: &str = "
    CREATE TABLE inbox (source TEXT NOT NULL, id TEXT NOT NULL, fingerprint BLOB NOT NULL, handled_at INTEGER NOT NULL,
        PRIMARY KEY (source, id)) WITHOUT ROWID;
    CREATE INDEX inbox_age ON inbox (handled_at);
    CREATE TABLE business (number INTEGER PRIMARY KEY, tenant TEXT NOT NULL);";

/// A connection for each thread.
struct ByHand(PathBuf);

pub(crate) fn open(path: &Path) -> Fallible<Box<dyn Contestant>> {
    connect(path, CACHE_BYTES)?.execute_batch(SCHEMA)?;
    Ok(Box::new(ByHand(path.to_owned())))
}

impl Contestant for ByHand {
    fn handler(&self) -> Fallible<Box<dyn FnMut(u64) -> Fallible<bool> + '_>> {
        let mut connection = connect(&self.0, CACHE_BYTES)?;
        Ok(Box::new(move |number| handle(&mut connection, number)))
    }
}

fn handle(connection: &mut Connection, number: u64) -> Fallible<bool> {
    let (item, number) = (Item::number(number), i64::try_from(number)?);
    let known = connection
        .prepare_cached("SELECT fingerprint = ?3 FROM inbox WHERE source = ?1 AND id = ?2")?
        .query_row(params!["orders", item.key, item.fingerprint.as_slice()], |row| row.get::<_, bool>(0));
    match known {
        Ok(true) => return Ok(false),
        Ok(false) => return Err("another message under the same id".into()),
        Err(rusqlite::Error::QueryReturnedNoRows) => {}
        Err(error) => return Err(error.into()),
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let inserted = transaction
        .prepare_cached("INSERT INTO inbox VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")?
        .execute(params!["orders", item.key, item.fingerprint.as_slice(), number])?;
    if inserted == 1 {
        transaction.prepare_cached("INSERT INTO business VALUES (?1, ?2)")?.execute(params![number, item.tenant])?;
    }
    transaction.commit()?;
    Ok(inserted == 1)
}
