//! The hand-written table most programs would have instead: one row an operation, one statement a step.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::{Connection, OptionalExtension, params};

use super::connection::connect;
use super::{CACHE_BYTES, Contestant, Fallible, Session};
use crate::work::{Item, OPERATION, RETENTION, response};

const EXECUTING: i64 = 1;
const SUCCEEDED: i64 = 2;
/// Rows in one transaction while loading.
const LOAD_ROWS: u64 = 64;

const SCHEMA: &str = "
    CREATE TABLE operations (
        tenant TEXT NOT NULL,
        operation TEXT NOT NULL,
        key TEXT NOT NULL,
        state INTEGER NOT NULL,
        fingerprint BLOB NOT NULL,
        response BLOB,
        expires_at INTEGER,
        PRIMARY KEY (tenant, operation, key)
    ) WITHOUT ROWID;
    CREATE INDEX operations_expiry ON operations (expires_at) WHERE expires_at IS NOT NULL;";
const BEGIN: &str = "INSERT INTO operations (tenant, operation, key, state, fingerprint)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
const SUCCEED: &str = "UPDATE operations SET state = ?4, response = ?5, expires_at = ?6
    WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND state = 1";
const REPLAY: &str = "SELECT fingerprint, state, response FROM operations
    WHERE tenant = ?1 AND operation = ?2 AND key = ?3";

/// A connection for each thread, each statement a transaction of its own.
pub(super) struct ByHand(PathBuf);

struct Connected(Connection);

pub(super) fn load(path: &Path, records: u64) -> Fallible<()> {
    let mut connected = Connected(connect(path, CACHE_BYTES)?);
    connected.0.execute_batch(SCHEMA)?;
    connected.0.pragma_update(None, "synchronous", "OFF")?;
    for first in (0..records).step_by(usize::try_from(LOAD_ROWS)?) {
        connected.0.execute_batch("BEGIN IMMEDIATE")?;
        for number in first..records.min(first + LOAD_ROWS) {
            connected.cycle(&Item::number(number), response(number))?;
        }
        connected.0.execute_batch("COMMIT")?;
    }
    connected.0.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

impl ByHand {
    pub(super) fn open(path: &Path) -> Fallible<Self> {
        connect(path, CACHE_BYTES)?;
        Ok(Self(path.to_owned()))
    }
}

impl Contestant for ByHand {
    fn session(&self) -> Fallible<Box<dyn Session + '_>> {
        Ok(Box::new(Connected(connect(&self.0, CACHE_BYTES)?)))
    }

    fn close(self: Box<Self>) -> Fallible<()> {
        Ok(())
    }
}

impl Session for Connected {
    fn cycle(&mut self, item: &Item, response: String) -> Fallible<()> {
        let Item { tenant, key, fingerprint } = item;
        let begun = self.0.prepare_cached(BEGIN)?.execute(params![
            tenant,
            OPERATION,
            key,
            EXECUTING,
            fingerprint.as_slice()
        ])?;
        if begun != 1 {
            return Err("a new key was there already".into());
        }
        let expires_at = unix_seconds() + i64::try_from(RETENTION.as_secs())?;
        let settled = self.0.prepare_cached(SUCCEED)?.execute(params![
            tenant,
            OPERATION,
            key,
            SUCCEEDED,
            response.as_bytes(),
            expires_at
        ])?;
        if settled != 1 { Err("a claimed key was gone".into()) } else { Ok(()) }
    }

    fn replay(&mut self, item: &Item) -> Fallible<Vec<u8>> {
        let Item { tenant, key, fingerprint } = item;
        let found = self
            .0
            .prepare_cached(REPLAY)?
            .query_row(params![tenant, OPERATION, key], |row| {
                let same = row.get_ref(0)?.as_blob().is_ok_and(|stored| stored == fingerprint);
                let settled = row.get::<_, i64>(1)? == SUCCEEDED;
                Ok((same && settled, row.get::<_, Vec<u8>>(2)?))
            })
            .optional()?;
        match found {
            Some((true, response)) => Ok(response),
            Some((false, _)) => Err("a settled key has another payload or state".into()),
            None => Err("a settled key is missing".into()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the hand-written store has no clock but the system's")]
fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
