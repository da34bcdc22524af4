//! The open file: the one place that begins transactions, compacts, and closes.
//!
//! The database sits behind a gate. Reading and writing pass it side by side; compacting and closing need it alone.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::backends::FileBackend;
use redb::{Builder, ConcurrencyMode, Database, Durability, ReadableDatabase, StorageBackend, WriteTransaction};

use super::attached::{self, Attachment};
use super::batch::Batch;
use super::create::{self, Existing};
use super::fault::{self, guard};
use super::inside::{Inside, database_of};
use super::memory::MemoryBackend;
use super::place::FileIdentity;
use super::probation::Probation;
use super::schema;
use super::snapshot::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Missing, OpenCheck, Options, Recovery, Sharing};

/// Why a write transaction gave no result.
#[derive(Debug)]
pub(crate) enum WriteError<A = Error> {
    /// Nothing was written.
    Aborted(A),
    /// The commit failed: what it wrote may be found after a restart.
    Indeterminate(Error),
}

/// Why a transaction of the application was aborted.
#[derive(Debug)]
pub(crate) enum Abort<E> {
    /// The store could not go on.
    Ours(Error),
    /// The application said so.
    Theirs(E),
    /// The application's code panicked, with this.
    Panicked(Box<dyn Any + Send>),
}

impl<E> From<Error> for Abort<E> {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

/// What a commit must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// A power cut, once the call returned.
    Yes,
    /// Nothing: fine for a heartbeat in exclusive mode, whose owner dies with the process.
    No,
}

/// A store's file while it is open.
pub(crate) struct StoreFile {
    gate: RwLock<Option<Arc<Database>>>,
    /// Held while the store is open in a database of the application.
    attachment: Mutex<Option<Attachment>>,
    /// What readers share until the next commit, because opening a view costs as much as a look-up in it. Not where
    /// others commit too: they would not see it, and it would keep the file from using its space again.
    latest: RwLock<Option<Arc<Snapshot>>>,
    place: Option<Place>,
    owner: Owner,
    is_new: bool,
    recovery: Recovery,
    sharing: Sharing,
}

/// Whose the database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Store,
    Application,
}

/// Where the file is, and which one it is.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    identity: FileIdentity,
    created: bool,
}

impl StoreFile {
    /// Opens the store at `path`, creating it if the options say so.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self> {
        let existing = match options.missing {
            Missing::Create => Existing::OrCreate,
            Missing::Refuse => Existing::MustExist,
        };
        let opened = create::open_or_create(path, existing, schema::image).map_err(fault::open)?;
        let backend = FileBackend::new(opened.file).map_err(fault::database)?;
        let place = Place { path: opened.path, identity: opened.identity, created: opened.created };
        Self::on(backend, Some(place), options)
    }

    /// A store without a file.
    pub(crate) fn in_memory(options: &Options) -> Result<Self> {
        Self::on(MemoryBackend::of(schema::image()?), None, options)
    }

    /// The seam that any backend fits: the file's, the one in memory, and those of the tests that fail or tear.
    pub(super) fn on(backend: impl StorageBackend, place: Option<Place>, options: &Options) -> Result<Self> {
        let database = guard(|| {
            let mut builder = Builder::new();
            builder
                .set_cache_size(options.cache_bytes)
                .set_check_integrity_on_open(options.open_check == OpenCheck::Always)
                .set_concurrency_mode(match options.sharing {
                    Sharing::Exclusive => ConcurrencyMode::ExclusiveWriter,
                    Sharing::Shared => ConcurrencyMode::MultiWriter,
                });
            let backend = match options.sharing {
                Sharing::Exclusive => Probation::of(backend).map_err(fault::io)?,
                Sharing::Shared => Probation::without(backend),
            };
            // Never initialises: the image is complete before it has the store's name, and an empty file was refused.
            let database = builder.create_with_backend(backend.clone()).map_err(fault::database)?;
            schema::check_format(&database)?;
            backend.accept().map_err(fault::io)?;
            Ok(database)
        })?;
        let is_new = place.as_ref().is_none_or(|place| place.created);
        Ok(Self {
            gate: RwLock::new(Some(Arc::new(database))),
            attachment: Mutex::new(None),
            latest: RwLock::new(None),
            place,
            owner: Owner::Store,
            is_new,
            recovery: options.recovery,
            sharing: options.sharing,
        })
    }

    /// In a database that the application has open.
    pub(crate) fn attached(database: Arc<Database>, options: &Options) -> Result<Self> {
        let attachment = Attachment::take(&database)?;
        let is_new = guard(|| attached::lay_out(&database, options))?;
        Ok(Self {
            gate: RwLock::new(Some(database)),
            attachment: Mutex::new(Some(attachment)),
            latest: RwLock::new(None),
            place: None,
            owner: Owner::Application,
            is_new,
            recovery: options.recovery,
            sharing: options.sharing,
        })
    }

    /// Runs `work` on the store as of the last commit.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        if let Some(database) = database_of(self) {
            return guard(|| work(&*self.latest(&database)?));
        }
        let gate = self.gate.read();
        let database = gate.as_ref().ok_or_else(closed)?;
        guard(|| work(&*self.latest(database)?))
    }

    /// The store as of the last commit, for code of the application, which must not hold the gate while it runs.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        if let Some(database) = database_of(self) {
            return guard(|| self.latest(&database));
        }
        let gate = self.gate.read();
        let database = gate.as_ref().ok_or_else(closed)?;
        guard(|| self.latest(database))
    }

    fn latest(&self, database: &Database) -> Result<Arc<Snapshot>> {
        let open = || Snapshot::open(database.begin_read().map_err(fault::transaction)?).map(Arc::new);
        if self.sharing == Sharing::Shared || self.owner == Owner::Application {
            return open();
        }
        if let Some(snapshot) = &*self.latest.read() {
            return Ok(snapshot.clone());
        }
        // Opened while the place is locked: a commit that ends meanwhile waits here, and then clears it.
        let mut latest = self.latest.write();
        match &*latest {
            Some(snapshot) => Ok(snapshot.clone()),
            None => Ok(latest.insert(open()?).clone()),
        }
    }

    /// The next reader sees what is committed by now.
    fn outdate(&self) {
        self.latest.write().take();
    }

    /// Runs `work` in a write transaction and commits what it wrote. What wrote nothing costs nothing.
    pub(crate) fn write<T>(
        &self,
        durable: Durable,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T>,
    ) -> Result<T, WriteError> {
        self.transact(durable, |_, txn| {
            guard(|| {
                let mut batch = Batch::open(txn)?;
                let value = work(&mut batch)?;
                Ok((value, batch.is_dirty()))
            })
        })
    }

    /// The same, durably, for code of the application: its errors and its panics are its own. `work` says whether
    /// anything was written.
    pub(crate) fn write_own<T, E>(
        &self,
        work: impl FnOnce(Batch<'_>) -> Result<(T, bool), E>,
    ) -> Result<T, WriteError<Abort<E>>> {
        self.transact(Durable::Yes, |database, txn| {
            let _inside = Inside::enter(self, database.clone());
            let batch = guard(|| Batch::open(txn))?;
            match catch_unwind(AssertUnwindSafe(|| work(batch))) {
                Ok(worked) => worked.map_err(Abort::Theirs),
                Err(panic) => Err(Abort::Panicked(panic)),
            }
        })
    }

    /// Whether this thread is inside a transaction of the application on this file.
    pub(crate) fn is_inside(&self) -> bool {
        database_of(self).is_some()
    }

    fn transact<T, A: From<Error>>(
        &self,
        durable: Durable,
        work: impl FnOnce(&Arc<Database>, &WriteTransaction) -> Result<(T, bool), A>,
    ) -> Result<T, WriteError<A>> {
        let aborted = |error: Error| WriteError::Aborted(error.into());
        let gate = self.gate.read();
        let database = gate.as_ref().ok_or_else(|| aborted(closed()))?;
        let txn = guard(|| self.begin(database, durable)).map_err(aborted)?;
        let (value, dirty) = match work(database, &txn) {
            Ok(worked) => worked,
            Err(error) => {
                // The first error is the one to report; an abort that fails too changes nothing about it.
                let _ = guard(|| txn.abort().map_err(fault::storage));
                return Err(WriteError::Aborted(error));
            }
        };
        if !dirty {
            return guard(|| txn.abort().map_err(fault::storage)).map(|()| value).map_err(aborted);
        }
        let committed = guard(|| txn.commit().map_err(fault::commit));
        self.outdate();
        committed.map(|()| value).map_err(|error| match error.kind() {
            ErrorKind::Indeterminate => WriteError::Indeterminate(error),
            ErrorKind::Refused => aborted(error),
            // A panic on the way leaves the outcome as open as an error does.
            _ => {
                let text = format!("the commit broke off: {error}");
                WriteError::Indeterminate(Error::new(ErrorKind::Indeterminate, text).with_source(error))
            }
        })
    }

    fn begin(&self, database: &Database, durable: Durable) -> Result<WriteTransaction> {
        let mut txn = database.begin_write().map_err(fault::transaction)?;
        if durable == Durable::No && self.sharing == Sharing::Exclusive {
            txn.set_durability(Durability::None)
                .map_err(|error| Error::new(ErrorKind::Io, format!("begin a volatile commit: {error}")))?;
            return Ok(txn);
        }
        // Two phases always: after one failed sync and a power cut, a one-phase store can be unreadable.
        match self.recovery {
            Recovery::Scan => txn.set_two_phase_commit(true),
            Recovery::Quick => txn.set_quick_repair(true),
        }
        Ok(txn)
    }

    /// Gives free pages back to the file system. Waits for running reads and writes, and holds up new ones.
    pub(crate) fn compact(&self) -> Result<bool> {
        if self.owner == Owner::Application {
            let text = "the store lives in a database of the application: close it, and compact the database yourself";
            return Err(Error::new(ErrorKind::Refused, text));
        }
        let mut gate = self.gate.write();
        let database = gate.as_mut().ok_or_else(closed)?;
        self.outdate();
        let database = Arc::get_mut(database).ok_or_else(|| Error::new(ErrorKind::Busy, "the file is in use"))?;
        guard(|| database.compact().map_err(fault::compaction))
    }

    /// Closes the file and reports what dropping it would swallow.
    pub(crate) fn close(&self) -> Result<()> {
        let database = self.gate.write().take();
        self.outdate();
        let closed = match (database, self.owner) {
            (Some(database), Owner::Store) => match Arc::into_inner(database) {
                Some(database) => guard(|| database.close().map_err(fault::database)),
                None => Ok(()),
            },
            (Some(_), Owner::Application) | (None, _) => Ok(()),
        };
        // Last: from now on another store may be attached.
        self.attachment.lock().take();
        closed
    }

    /// Whether the path still names the open file. Two live stores would each say "first time".
    pub(crate) fn check_place(&self) -> Result<()> {
        let Some(place) = &self.place else { return Ok(()) };
        match place.identity.still_at(&place.path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(
                ErrorKind::Replaced,
                format!("{} no longer names the file that is open: it was deleted or replaced", place.path.display()),
            )),
            Err(error) => Err(Error::new(ErrorKind::Replaced, format!("look for {}: {error}", place.path.display()))
                .with_source(error)),
        }
    }

    /// Whether this open made the store. One in memory is always new.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.place.as_ref().map(|place| place.path.as_path())
    }

    /// Length of the file in bytes; nothing for a store in memory.
    pub(crate) fn len(&self) -> Result<Option<u64>> {
        let Some(path) = self.path() else { return Ok(None) };
        let meta = std::fs::metadata(path).map_err(|error| {
            Error::new(ErrorKind::Io, format!("look at {}: {error}", path.display())).with_source(error)
        })?;
        Ok(Some(meta.len()))
    }
}

impl std::fmt::Debug for StoreFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreFile").field("place", &self.place).field("sharing", &self.sharing).finish_non_exhaustive()
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}
