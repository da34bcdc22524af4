//! The whole store as text, and back: to look at with other tools, to keep beside a backup, to move to another machine.

use std::io::{BufRead, Write};

use crate::error::Result;
use crate::store::Store;

impl Store {
    /// Writes every record, tombstones and responses included, as lines of JSON while the store is in use. Every row is
    /// checked on the way. Returns how many there were.
    ///
    /// The lines are as of one moment. While they are written the file may grow by what is committed meanwhile, so a
    /// slow reader costs space.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if `to` refuses a write: its error is the [source](std::error::Error::source), and
    /// the store goes on; [`Damaged`](crate::ErrorKind::Damaged) if a row cannot be read.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// let mut lines = Vec::new();
    /// assert_eq!(store.export(&mut lines)?, 0);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn export(&self, to: impl Write) -> Result<u64> {
        let reporter = self.engine().file().reporter();
        self.engine().read(|snapshot| snapshot.export(to, reporter))
    }

    /// Takes over an export into this store, which has to be empty: everything in one durable commit, or nothing.
    /// Returns how many records there were.
    ///
    /// Claims that were held at the time of the export stand as they stood: they end with their leases, or at the next
    /// exclusive open. The store's time goes on from the original's, and record numbers stay, so that fencing tokens
    /// only grow.
    ///
    /// What the original answers after the export, the copy does not know: never let both work.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) with the line that is wrong, or if the export was cut or changed
    /// after it was written; [`NewerFormat`](crate::ErrorKind::NewerFormat); [`Refused`](crate::ErrorKind::Refused) if
    /// the store has records; [`Io`](crate::ErrorKind::Io) if `from` cannot be read. None of them wrote anything.
    /// [`Indeterminate`](crate::ErrorKind::Indeterminate) if the commit failed: reopen the store and look.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let store = Store::in_memory()?;
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.succeed_raw("receipt")?;
    /// let mut lines = Vec::new();
    /// store.export(&mut lines)?;
    ///
    /// let elsewhere = Store::in_memory()?;
    /// assert_eq!(elsewhere.import(lines.as_slice())?, 1);
    /// assert!(matches!(elsewhere.begin(&operation)?, Begin::Replay(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn import(&self, from: impl BufRead) -> Result<u64> {
        let reporter = self.engine().file().reporter();
        let (records, time) = self.engine().transact(|batch, _| batch.import(from, reporter))?;
        self.engine().observe(time);
        Ok(records)
    }
}
