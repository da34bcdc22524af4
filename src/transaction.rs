//! Transactions: the application's own tables and the settlement of claims, in one commit.

use std::fmt;
use std::sync::Arc;

use redb::{
    Key, MultimapTable, MultimapTableDefinition, MultimapTableHandle, ReadableMultimapTable, ReadableTable, Table,
    TableDefinition, TableHandle, Value,
};

use crate::error::{Error, Result};
use crate::operation::{Claim, Settled, Settlement};
use crate::storage::batch::Batch;
use crate::storage::snapshot::Snapshot;
use crate::store::Store;

/// An open write transaction on the file of a store: see [`Store::transaction`].
pub struct Transaction<'txn> {
    store: Store,
    batch: Batch<'txn>,
    /// Claims that are over once this is committed.
    settled: Vec<Settled>,
}

impl Store {
    /// Runs `work` in one durable commit: what it does to your own tables in this file and which claims it settles
    /// appear together, or not at all.
    ///
    /// `Err` aborts all of it, and so does a panic, which then goes on. If nothing was written, nothing is committed;
    /// opening a table of your own counts as writing. Replays and look-ups inside see the state before.
    ///
    /// **Keep it short**: the whole store waits for it, the heartbeats of claims included, so one that takes longer than
    /// a lease makes outcomes unknown. **Never perform an external effect inside**: an abort cannot take it back. Begin
    /// an operation, perform the effect, and settle the claim in here together with what follows from it.
    ///
    /// `E` is your error type; `Box<dyn std::error::Error + Send + Sync>` takes those of this crate and of
    /// [`redb`](crate::redb).
    ///
    /// # Errors
    /// What `work` returned; and [`Refused`](crate::ErrorKind::Refused) inside another transaction on the same store: it
    /// would wait for itself. So does every call inside that would write: begin, settle, sweep, close. The same goes for
    /// another thread that you wait for inside; nobody can see that.
    /// [`Indeterminate`](crate::ErrorKind::Indeterminate) if the commit failed: reopen the store and look.
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::TableDefinition;
    /// use dupeproof::{Begin, Settlement, Store};
    /// # use dupeproof::{Fingerprint, Operation, OperationKey};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// const PAID: TableDefinition<'_, &str, u64> = TableDefinition::new("paid");
    ///
    /// let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// // The effect happens here. Then, in one commit:
    /// store.transaction(|tx| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     tx.open_table(PAID)?.insert("i-1", 1200)?;
    ///     tx.settle(&claim, Settlement::Succeeded("ch_1".into()))?;
    ///     Ok(())
    /// })?;
    /// assert!(matches!(store.begin(&operation)?, Begin::Replay(_)));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn transaction<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (value, settled) = self.engine().transact(|batch| {
            let mut tx = Transaction { store: self.clone(), batch, settled: Vec::new() };
            let value = work(&mut tx)?;
            Ok::<_, E>(((value, tx.settled), tx.batch))
        })?;
        settled.into_iter().for_each(Settled::committed);
        Ok(value)
    }
}

/// Your own tables as of the last commit: see [`Store::read`].
#[derive(Debug)]
pub struct Tables {
    snapshot: Arc<Snapshot>,
}

impl Store {
    /// Reads your own tables as of the last commit. Waits for nobody; what is open when it ends is closed, because a
    /// view that lives on makes the file grow.
    ///
    /// # Errors
    /// What `work` returned; [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::{ReadableTable, TableDefinition};
    /// # let store = dupeproof::Store::in_memory()?;
    /// const STOCK: TableDefinition<'_, &str, u64> = TableDefinition::new("stock");
    /// let apples = store.read(|tables| -> Result<_, Box<dyn std::error::Error + Send + Sync>> {
    ///     let Some(stock) = tables.open_table(STOCK)? else { return Ok(0) };
    ///     Ok(stock.get("apples")?.map_or(0, |count| count.value()))
    /// })?;
    /// assert_eq!(apples, 0);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn read<T, E: From<Error>>(&self, work: impl FnOnce(&Tables) -> Result<T, E>) -> Result<T, E> {
        let snapshot = self.engine().file().snapshot()?;
        work(&Tables { snapshot })
    }
}

impl Tables {
    /// A table of your own, if it is there.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that begins with `dupeproof/` or a table of other
    /// types.
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::TableDefinition;
    /// # let store = dupeproof::Store::in_memory()?;
    /// const STOCK: TableDefinition<'_, &str, u64> = TableDefinition::new("stock");
    /// assert!(!store.read(|tables| tables.open_table(STOCK).map(|table| table.is_some()))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn open_table<'a, K: Key + 'static, V: Value + 'static>(
        &'a self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Option<impl ReadableTable<K, V> + use<'a, K, V>>> {
        self.snapshot.open_own(definition)
    }

    /// A multimap table of your own, if it is there.
    ///
    /// # Errors
    /// As for [`open_table`](Self::open_table).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::MultimapTableDefinition;
    /// # let store = dupeproof::Store::in_memory()?;
    /// const TAGS: MultimapTableDefinition<'_, &str, &str> = MultimapTableDefinition::new("tags");
    /// assert!(!store.read(|tables| tables.open_multimap_table(TAGS).map(|table| table.is_some()))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn open_multimap_table<'a, K: Key + 'static, V: Key + 'static>(
        &'a self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<Option<impl ReadableMultimapTable<K, V> + use<'a, K, V>>> {
        self.snapshot.open_own_multimap(definition)
    }
}

impl<'txn> Transaction<'txn> {
    /// Opens a table of your own for reading and writing; it is created if there is none. Several may be open at a time,
    /// each once.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that begins with `dupeproof/`, a table of other
    /// types, or one that is open already.
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::TableDefinition;
    /// # let store = dupeproof::Store::in_memory()?;
    /// const STOCK: TableDefinition<'_, &str, u64> = TableDefinition::new("stock");
    /// store.transaction(|tx| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     tx.open_table(STOCK)?.insert("apples", 3)?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn open_table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Table<'txn, K, V>> {
        self.batch.open_own(definition)
    }

    /// Opens a multimap table of your own.
    ///
    /// # Errors
    /// As for [`open_table`](Self::open_table).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::MultimapTableDefinition;
    /// # let store = dupeproof::Store::in_memory()?;
    /// const TAGS: MultimapTableDefinition<'_, &str, &str> = MultimapTableDefinition::new("tags");
    /// store.transaction(|tx| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     tx.open_multimap_table(TAGS)?.insert("apples", "red")?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn open_multimap_table<K: Key + 'static, V: Key + 'static>(
        &mut self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'txn, K, V>> {
        self.batch.open_own_multimap(definition)
    }

    /// Deletes a table of your own. Returns whether there was one.
    ///
    /// # Errors
    /// As for [`open_table`](Self::open_table).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::TableDefinition;
    /// # let store = dupeproof::Store::in_memory()?;
    /// const STOCK: TableDefinition<'_, &str, u64> = TableDefinition::new("stock");
    /// assert!(!store.transaction(|tx| tx.delete_table(STOCK))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn delete_table(&mut self, table: impl TableHandle) -> Result<bool> {
        self.batch.delete_own(table)
    }

    /// Deletes a multimap table of your own. Returns whether there was one.
    ///
    /// # Errors
    /// As for [`open_table`](Self::open_table).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::MultimapTableDefinition;
    /// # let store = dupeproof::Store::in_memory()?;
    /// const TAGS: MultimapTableDefinition<'_, &str, &str> = MultimapTableDefinition::new("tags");
    /// assert!(!store.transaction(|tx| tx.delete_multimap_table(TAGS))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn delete_multimap_table(&mut self, table: impl MultimapTableHandle) -> Result<bool> {
        self.batch.delete_own_multimap(table)
    }

    /// Says how a claim's effect ended, as part of this commit.
    ///
    /// If the commit does not come about, the claim is as it was: its effect has happened all the same, so settle it
    /// again. Dropped instead, its outcome is unknown, as always.
    ///
    /// # Errors
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost), [`AlreadySettled`](crate::ErrorKind::AlreadySettled): this changed
    /// nothing, and the transaction may go on. [`InvalidInput`](crate::ErrorKind::InvalidInput) for a claim of another
    /// store.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Settlement, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = |key| OperationKey::new("t", "o", key).map(|key| Operation::new(key, Fingerprint::unchecked()));
    /// let Begin::Execute(one) = store.begin(&operation("1")?)? else { unreachable!() };
    /// let Begin::Execute(other) = store.begin(&operation("2")?)? else { unreachable!() };
    /// store.transaction(|tx| {
    ///     tx.settle(&one, Settlement::Succeeded("done".into()))?;
    ///     tx.settle(&other, Settlement::Released)
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn settle(&mut self, claim: &Claim, settlement: Settlement) -> Result<()> {
        if !claim.is_of(&self.store) {
            return Err(Error::invalid_input("the claim is of another open store"));
        }
        let driven = self.store.engine().drive_within(&mut self.batch, vec![claim.settling(settlement)]);
        claim.heard(driven)?;
        self.settled.push(claim.settled());
        Ok(())
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("settled", &self.settled.len()).finish_non_exhaustive()
    }
}
