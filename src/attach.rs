//! A store in a database that the application has open already.

use std::sync::Arc;

use redb::Database;

use crate::error::{Error, Result};
use crate::options::{OpenCheck, Options};
use crate::storage::file::StoreFile;
use crate::store::Store;

impl Options {
    /// Puts a store into a [`redb`](crate::redb) database that you have open: your tables, a
    /// [transaction](Store::transaction) over both, one file. Our tables, whose names begin with `dupeproof/`, are
    /// created in it if it has none, in one durable commit.
    ///
    /// The database stays yours. Cache and integrity check are its own, [`compact`](Store::compact) is refused (close
    /// the store, then compact the database yourself), and [`close`](Store::close) leaves it open. Nobody looks whether
    /// its path still names the open file.
    ///
    /// Four things to know:
    /// - Do not call a store that is attached while a write transaction of your own is open on the same thread: the call
    ///   waits for a place that you hold. Use [`Store::transaction`].
    /// - Never restore a savepoint and never delete our tables: both take back what was answered.
    /// - A database opened in one of redb's modes for several processes needs [`Sharing::Shared`](crate::Sharing), there
    ///   and in every other process. It is refused otherwise, because an exclusive store ends the claims that others
    ///   hold.
    /// - Our commits are two-phase. Yours are as you make them, and one-phase is redb's default: then a sync that fails,
    ///   followed by a power cut, can leave the whole file unreadable, our records included. Say
    ///   `set_two_phase_commit(true)` if that matters. A commit of yours that is rolled back after a crash, because a bit
    ///   of it flipped or because it was not durable, takes nothing of ours with it that was answered.
    ///
    /// # Errors
    /// [`OpenElsewhere`](crate::ErrorKind::OpenElsewhere) if another store of this process is attached to it;
    /// [`Busy`](crate::ErrorKind::Busy) if a write transaction is open on it (both are tried again for the
    /// [wait](Options::with_open_wait) given); [`InvalidInput`](crate::ErrorKind::InvalidInput) for an exclusive store in
    /// a database that others may write to, or with [`with_verify_on_open`](Options::with_verify_on_open);
    /// [`NotFound`](crate::ErrorKind::NotFound) with [`must_exist`](Options::must_exist);
    /// [`NewerFormat`](crate::ErrorKind::NewerFormat), [`Damaged`](crate::ErrorKind::Damaged). None of them changed
    /// anything. [`Indeterminate`](crate::ErrorKind::Indeterminate) if the commit that creates the tables failed.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("app.redb");
    /// use dupeproof::{Options, redb};
    /// use std::sync::Arc;
    ///
    /// let database = Arc::new(redb::Database::create(&path)?);
    /// let store = Options::new().attach(database.clone())?;
    /// assert!(store.is_new());
    /// store.close()?;
    /// database.begin_write()?.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach(&self, database: Arc<Database>) -> Result<Store> {
        self.check()?;
        if self.open_check == OpenCheck::Always {
            return Err(Error::invalid_input("the integrity check is the application's, who opened the database"));
        }
        self.open_patiently(|| Store::on(StoreFile::attached(database.clone(), self)?, self))
            .map_err(|error| error.context("attach a store"))
    }
}
