//! The checkpoints most programs would write by hand: one row a step, its end and the start of the next in one commit.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::connection::connect;
use crate::work::{Item, response};
use crate::{CACHE_BYTES, Fallible, STEPS, timed};

const SCHEMA: &str = "
    CREATE TABLE runs (run TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, state INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE steps (
        run TEXT NOT NULL,
        step TEXT NOT NULL,
        turn INTEGER NOT NULL,
        fingerprint BLOB NOT NULL,
        state INTEGER NOT NULL,
        artifact BLOB,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        PRIMARY KEY (run, step, turn)
    ) WITHOUT ROWID;";
const BEGIN_RUN: &str = "INSERT INTO runs (run, fingerprint, state) VALUES (?1, ?2, 1)";
const BLOCKED: &str = "SELECT count(*) FROM steps WHERE run = ?1 AND state = 1";
const BEGIN_STEP: &str =
    "INSERT INTO steps (run, step, turn, fingerprint, state, started_at) VALUES (?1, 'step', ?2, ?3, 1, ?4)";
const END_STEP: &str =
    "UPDATE steps SET state = 2, artifact = ?3, ended_at = ?4 WHERE run = ?1 AND step = 'step' AND turn = ?2";
const END_RUN: &str = "UPDATE runs SET state = 2 WHERE run = ?1";
const NOW: i64 = 1_790_000_000;

pub(super) fn runs(path: &Path, runs: u64) -> Fallible<f64> {
    let connection = connect(path, CACHE_BYTES)?;
    connection.execute_batch(SCHEMA)?;
    let seconds = timed(|| (0..runs).try_for_each(|number| run(&connection, number)))?;
    let done: i64 = connection.query_row("SELECT count(*) FROM steps WHERE state = 2", [], |row| row.get(0))?;
    if done == i64::try_from(runs * STEPS)? { Ok(seconds) } else { Err("not every step is done".into()) }
}

fn run(connection: &Connection, number: u64) -> Fallible<()> {
    let Item { key, fingerprint, .. } = Item::number(number);
    let begin = |turn: u64| -> Fallible<()> {
        let blocked: i64 = connection.prepare_cached(BLOCKED)?.query_row(params![key], |row| row.get(0))?;
        if blocked > 0 {
            return Err("a step is under way".into());
        }
        let payload = Item::number(turn).fingerprint;
        connection.prepare_cached(BEGIN_STEP)?.execute(params![key, i64::try_from(turn)?, payload, NOW])?;
        Ok(())
    };
    let end = |turn: u64| -> Fallible<()> {
        let artifact = response(turn);
        connection.prepare_cached(END_STEP)?.execute(params![
            key,
            i64::try_from(turn)?,
            artifact.as_bytes(),
            NOW + 1
        ])?;
        Ok(())
    };
    connection.execute_batch("BEGIN IMMEDIATE")?;
    connection.prepare_cached(BEGIN_RUN)?.execute(params![key, fingerprint])?;
    begin(0)?;
    connection.execute_batch("COMMIT")?;
    for turn in 1..STEPS {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        end(turn - 1)?;
        begin(turn)?;
        connection.execute_batch("COMMIT")?;
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    end(STEPS - 1)?;
    connection.prepare_cached(END_RUN)?.execute(params![key])?;
    connection.execute_batch("COMMIT")?;
    Ok(())
}
