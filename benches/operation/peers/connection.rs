//! SQLite as whoever needs every commit to survive would open it.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn connect(path: &Path, cache_bytes: usize) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", format!("-{}", cache_bytes / 1024))?;
    Ok(connection)
}
