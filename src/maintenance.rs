//! Keeping a store in shape: sweep, verify, compact, back up.

use std::path::Path;

use crate::error::{Error, Result};
use crate::storage::audit::VerifyReport;
use crate::store::Store;

/// Records one `sweep` call may change; call again for more.
const SWEEP_RECORDS_MAX: usize = 1_000_000;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SweepReport {
    /// Leases that had lapsed: their records were released or became unknown.
    pub leases_ended: u64,
    /// Settled records that became tombstones.
    pub tombstoned: u64,
    /// Tombstones that were forgotten.
    pub purged: u64,
    /// Leases of messages that had lapsed: these are due again, or dead letters.
    pub messages_released: u64,
    /// Delivered and discarded messages that were forgotten.
    pub messages_purged: u64,
    /// Rows that could not be read and were left alone. Run `verify`.
    pub unreadable: u64,
    /// Whether the limit was reached before the end.
    pub more: bool,
}

impl Store {
    /// Ends lapsed leases, turns expired responses into tombstones and forgets tombstones and finished messages whose time
    /// is over: at most `limit` rows (up to 1,000,000), in small commits between those of others. The compactor does the
    /// same every second.
    ///
    /// No answer depends on it: what time has ended counts as ended before the sweep comes by. Nothing unsettled, and no
    /// message that was not delivered or discarded, is ever swept away.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a limit of 0 or above the bound;
    /// [`Replaced`](crate::ErrorKind::Replaced) if the path no longer names the open file: the store stops.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// let report = store.sweep(10_000)?;
    /// assert!(!report.more);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn sweep(&self, limit: usize) -> Result<SweepReport> {
        if limit == 0 || limit > SWEEP_RECORDS_MAX {
            return Err(Error::invalid_input(format!("sweep limit is {limit}: 1 to {SWEEP_RECORDS_MAX} expected")));
        }
        let swept = self.engine().sweep(limit)?;
        Ok(SweepReport {
            leases_ended: swept.leases_ended,
            tombstoned: swept.tombstoned,
            purged: swept.purged,
            messages_released: swept.messages_released,
            messages_purged: swept.messages_purged,
            unreadable: swept.unreadable,
            more: swept.more,
        })
    }

    /// Reads every row, computes again what is derived from it, and compares. Changes nothing. While it runs the file
    /// may grow by what is written meanwhile.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged) if the file cannot be walked at all; what is wrong with single rows is in
    /// the report.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// for problem in store.verify()?.problems {
    ///     eprintln!("{problem}");
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn verify(&self) -> Result<VerifyReport> {
        let reporter = self.engine().file().reporter();
        self.engine().read(|snapshot| snapshot.audit(reporter))
    }

    /// Gives free space back to the file system. Commits wait meanwhile; in shared mode no other process may be in the
    /// middle of a transaction. Returns whether there was anything to do.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) if a transaction is in progress elsewhere: try again.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// store.compact()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn compact(&self) -> Result<bool> {
        self.engine().compact()
    }

    /// Writes a consistent copy to a new file while the store is in use. Every row is checked on the way. The copy has
    /// its name only when it is complete and durable; a crash half-way leaves nothing under that name. Returns how many
    /// records were copied.
    ///
    /// A restored copy has forgotten what came after it: operations begun since would run again. Restore one only
    /// together with everything else of that moment, or with the providers' help.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if something is at `path` already or its folder is missing;
    /// [`Damaged`](crate::ErrorKind::Damaged) if a row cannot be read; [`Io`](crate::ErrorKind::Io).
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = dupeproof::Store::in_memory()?;
    /// store.backup(dir.path().join("copy.redb"))?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<u64> {
        let path = path.as_ref();
        let reporter = self.engine().file().reporter();
        self.engine()
            .read(|snapshot| snapshot.copy_to(path, reporter))
            .map_err(|error| error.context(format_args!("back up to {}", path.display())))
    }
}
