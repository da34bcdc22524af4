//! The outbox most programs would write by hand: one table, a statement to take, one to mark.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::connection::connect;
use crate::work::{Item, response};
use crate::{CACHE_BYTES, Fallible, TOPIC, timed};

const SCHEMA: &str = "
    CREATE TABLE outbox (
        sequence INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        topic TEXT NOT NULL,
        payload BLOB,
        state INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX outbox_due ON outbox (topic, due_at, sequence) WHERE state < 3;";
const SEND: &str = "INSERT INTO outbox (id, topic, payload, state, due_at) VALUES (?1, ?2, ?3, 1, 0)";
const SELECT: &str = "SELECT sequence, id, payload FROM outbox
    WHERE topic = ?1 AND due_at <= ?2 AND state < 3 ORDER BY due_at, sequence LIMIT ?3";
const TAKE: &str = "UPDATE outbox SET state = 2, due_at = ?2, attempts = attempts + 1 WHERE sequence = ?1";
const DELIVERED: &str = "UPDATE outbox SET state = 3, due_at = ?2, payload = NULL WHERE sequence = ?1 AND state = 2";
const NOW: i64 = 1_790_000_000;
const LEASE_UNTIL: i64 = NOW + 60;
const PURGE_AT: i64 = NOW + 7 * 86_400;

pub(super) fn relay(path: &Path, messages: u64, batch: usize) -> Fallible<f64> {
    let connection = connect(path, CACHE_BYTES)?;
    connection.execute_batch(SCHEMA)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for number in 0..messages {
        let mut send = connection.prepare_cached(SEND)?;
        send.execute(params![Item::number(number).key, TOPIC, response(number).as_bytes()])?;
    }
    connection.execute_batch("COMMIT")?;

    let seconds = timed(|| {
        while run_once(&connection, batch, |_, _| true)? {}
        Ok(())
    })?;
    let delivered: i64 = connection.query_row("SELECT count(*) FROM outbox WHERE state = 3", [], |row| row.get(0))?;
    if delivered == i64::try_from(messages)? { Ok(seconds) } else { Err("not every message was delivered".into()) }
}

/// Takes a batch, hands it over, and marks what was delivered. Whether there was any.
fn run_once(connection: &Connection, batch: usize, handler: impl Fn(&str, &[u8]) -> bool) -> Fallible<bool> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let taken: Vec<(i64, String, Vec<u8>)> = {
        let mut select = connection.prepare_cached(SELECT)?;
        let rows = select
            .query_map(params![TOPIC, NOW, i64::try_from(batch)?], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    for (sequence, ..) in &taken {
        connection.prepare_cached(TAKE)?.execute(params![sequence, LEASE_UNTIL])?;
    }
    connection.execute_batch("COMMIT")?;
    if taken.is_empty() {
        return Ok(false);
    }
    let delivered: Vec<i64> =
        taken.iter().filter(|(_, id, payload)| handler(id, payload)).map(|(sequence, ..)| *sequence).collect();
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for sequence in delivered {
        connection.prepare_cached(DELIVERED)?.execute(params![sequence, PURGE_AT])?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(true)
}
