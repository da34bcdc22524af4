//! The application's own changes and ours in one commit.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use redb::{
    Key, MultimapTable, MultimapTableDefinition, MultimapTableHandle, ReadableMultimapTable, ReadableTable, Table,
    TableDefinition, TableHandle, Value,
};

use crate::engine::{Ended, Unheard, heard};
use crate::error::{Error, ErrorKind, Result};
use crate::operation::{Claim, Settlement};
use crate::storage::batch::{Batch, Moment, NOBODY};
use crate::storage::fault::guard;
use crate::storage::snapshot::Snapshot;
use crate::store::Store;

/// What happens in one commit: everything, or nothing.
///
/// Got from [`Store::transaction`]. The application's tables are redb's: [`crate::redb`] is the release that the store
/// was built with.
pub struct Transaction<'b, 'txn> {
    pub(crate) batch: &'b mut Batch<'txn>,
    pub(crate) moment: Moment,
    pub(crate) store: &'b Store,
    /// Claims that are over once this is committed.
    ended: Vec<Ended>,
    /// Something of ours was written half: nothing may be committed, whatever the closure says.
    broken: Option<Error>,
}

impl Store {
    /// Runs `work` and commits what it did: changes of the application's own tables, settlements, messages. Whatever
    /// `work` returns, durable when this returns `Ok`; with an `Err` of it, or a panic, nothing of it happened.
    ///
    /// It runs on this thread, inside the store's one write transaction: nobody else's commit goes on meanwhile, and no
    /// lease is renewed. Keep it short, and never perform an external effect in it: what is sent cannot be undone with
    /// the rest, and a crash before the commit would send it again. Send a message through the outbox instead, or settle
    /// afterwards.
    ///
    /// Calls of the same store that write, from inside on the same thread, are
    /// [`Refused`](ErrorKind::Refused); look-ups see the state before.
    ///
    /// # Errors
    /// Those of `work`; [`Indeterminate`](ErrorKind::Indeterminate) if the commit failed: reopen the store and look;
    /// [`Stopped`](ErrorKind::Stopped), [`Closed`](ErrorKind::Closed).
    ///
    /// # Example: an order and the settlement of its charge
    /// ```
    /// use dupeproof::redb::TableDefinition;
    /// use dupeproof::{Begin, Settlement};
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// const ORDERS: TableDefinition<&str, &str> = TableDefinition::new("orders");
    ///
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// store.transaction(|tx| {
    ///     tx.open_table(ORDERS)?.insert("i-1", "paid")?;
    ///     tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transaction<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&mut Transaction<'_, '_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut given_up = None;
        let done = self.engine().transact(|batch, moment| {
            let mut tx = Transaction { batch, moment, store: self, ended: Vec::new(), broken: None };
            // Our own error says only that it is to be undone; what was said is handed on from here.
            let undo = || Error::new(ErrorKind::Refused, "the transaction was given up");
            match catch_unwind(AssertUnwindSafe(|| work(&mut tx))) {
                Ok(Ok(value)) => match tx.broken {
                    None => Ok((value, tx.ended)),
                    Some(error) => Err(error),
                },
                Ok(Err(error)) => {
                    given_up = Some(Ok(error));
                    Err(undo())
                }
                Err(panic) => {
                    given_up = Some(Err(panic));
                    Err(undo())
                }
            }
        });
        match (done, given_up) {
            (Ok((value, ended)), _) => {
                ended.iter().for_each(|ended| ended.tell(self.engine()));
                Ok(value)
            }
            (Err(_), Some(Ok(error))) => Err(error),
            (Err(_), Some(Err(panic))) => resume_unwind(panic),
            (Err(error), None) => Err(error.into()),
        }
    }
}

/// The application's own tables as of the last commit. Got from [`Store::read`].
#[derive(Debug)]
pub struct Tables {
    snapshot: Arc<Snapshot>,
}

impl Store {
    /// Reads the application's own tables as of the last commit. Waits for no transaction. What is open when it ends is
    /// closed: a view that lived on would make the file grow.
    ///
    /// # Errors
    /// Those of `work`; [`Closed`](ErrorKind::Closed).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::{ReadableTable, TableDefinition};
    /// const STOCK: TableDefinition<&str, u64> = TableDefinition::new("stock");
    /// # let store = dupeproof::Store::in_memory()?;
    /// let apples = store.read(|tables| {
    ///     let Some(stock) = tables.open_table(STOCK)? else { return Ok(0) };
    ///     Ok::<_, Box<dyn std::error::Error>>(stock.get("apples")?.map_or(0, |count| count.value()))
    /// })?;
    /// assert_eq!(apples, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Tables) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        work(&Tables { snapshot: self.engine().snapshot()? })
    }
}

impl Tables {
    /// A table of the application's, if it is there.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that begins with `dupeproof/` or a table of other types.
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::TableDefinition;
    /// const STOCK: TableDefinition<&str, u64> = TableDefinition::new("stock");
    /// # let store = dupeproof::Store::in_memory()?;
    /// assert!(!store.read(|tables| tables.open_table(STOCK).map(|table| table.is_some()))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn open_table<'a, K: Key + 'static, V: Value + 'static>(
        &'a self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Option<impl ReadableTable<K, V> + use<'a, K, V>>> {
        self.snapshot.open_own(definition)
    }

    /// The same for a table with several values a key.
    ///
    /// # Errors
    /// Those of [`open_table`](Tables::open_table).
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::MultimapTableDefinition;
    /// const TAGS: MultimapTableDefinition<&str, &str> = MultimapTableDefinition::new("tags");
    /// # let store = dupeproof::Store::in_memory()?;
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

impl<'txn> Transaction<'_, 'txn> {
    /// Opens a table of the application's, making it if there is none. Its changes are committed with everything else.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that begins with `dupeproof/`, which is ours, for a table
    /// of other types, and for one that is open already in this transaction.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::redb::{ReadableTable, TableDefinition};
    /// const ORDERS: TableDefinition<&str, u64> = TableDefinition::new("orders");
    /// # let store = dupeproof::Store::in_memory()?;
    /// let orders = store.transaction(|tx| {
    ///     let mut orders = tx.open_table(ORDERS)?;
    ///     orders.insert("i-1", 1200)?;
    ///     let paid = orders.get("i-1")?.map(|cents| cents.value());
    ///     Ok::<_, Box<dyn std::error::Error>>(paid)
    /// })?;
    /// assert_eq!(orders, Some(1200));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Table<'txn, K, V>> {
        self.batch.open_own(definition)
    }

    /// The same for a table with several values a key.
    ///
    /// # Errors
    /// Those of [`open_table`](Transaction::open_table).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::redb::MultimapTableDefinition;
    /// const TAGS: MultimapTableDefinition<&str, &str> = MultimapTableDefinition::new("tags");
    /// # let store = dupeproof::Store::in_memory()?;
    /// store.transaction(|tx| {
    ///     tx.open_multimap_table(TAGS)?.insert("i-1", "urgent")?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_multimap_table<K: Key + 'static, V: Key + 'static>(
        &mut self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'txn, K, V>> {
        self.batch.open_own_multimap(definition)
    }

    /// Deletes a table of the application's. Whether there was one.
    ///
    /// # Errors
    /// Those of [`open_table`](Transaction::open_table).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::redb::TableDefinition;
    /// const ORDERS: TableDefinition<&str, u64> = TableDefinition::new("orders");
    /// # let store = dupeproof::Store::in_memory()?;
    /// assert!(!store.transaction(|tx| tx.delete_table(ORDERS))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn delete_table(&mut self, table: impl TableHandle) -> Result<bool> {
        self.batch.delete_own(table)
    }

    /// The same for a table with several values a key.
    ///
    /// # Errors
    /// Those of [`open_table`](Transaction::open_table).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::redb::MultimapTableDefinition;
    /// const TAGS: MultimapTableDefinition<&str, &str> = MultimapTableDefinition::new("tags");
    /// # let store = dupeproof::Store::in_memory()?;
    /// assert!(!store.transaction(|tx| tx.delete_multimap_table(TAGS))?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn delete_multimap_table(&mut self, table: impl MultimapTableHandle) -> Result<bool> {
        self.batch.delete_own_multimap(table)
    }

    /// Says how the claim's attempt ended, in this commit. Until it is committed the claim is held as before: if the
    /// transaction is given up, the effect has happened all the same, and the claim is there to be settled otherwise.
    ///
    /// # Errors
    /// Those of settling the claim by itself; [`InvalidInput`](ErrorKind::InvalidInput) for a claim of another store.
    /// The transaction can go on.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Settlement, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let given_up = store.transaction(|tx| {
    ///     tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
    ///     Err::<(), Box<dyn std::error::Error>>("no such order".into())
    /// });
    /// assert!(given_up.is_err());
    /// claim.succeed_raw("receipt")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle(&mut self, claim: &Claim, settlement: Settlement) -> Result<()> {
        let (step, ended) = claim.settled_by(self.store, settlement)?;
        self.drive(|batch, moment| heard(batch.drive(vec![step], moment, NOBODY)))?;
        self.ended.push(ended);
        Ok(())
    }

    /// A command of ours. One that broke off half-way breaks the whole transaction, whatever the closure makes of it; a
    /// panic of the storage engine is such an error, and not one of the application's.
    pub(crate) fn drive<T>(
        &mut self,
        work: impl FnOnce(&mut Batch<'txn>, Moment) -> std::result::Result<T, Unheard>,
    ) -> Result<T> {
        let told = guard(|| Ok(work(self.batch, self.moment))).unwrap_or_else(|error| Err(Unheard::Broken(error)));
        told.map_err(|unheard| match unheard {
            Unheard::Refused(error) => error,
            Unheard::Broken(error) => {
                self.broken.get_or_insert_with(|| Error::new(error.kind(), error.to_string()));
                error
            }
        })
    }
}

impl fmt::Debug for Transaction<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("store", &self.store).finish_non_exhaustive()
    }
}
