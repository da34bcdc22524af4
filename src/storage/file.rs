//! The open file: the one place that begins transactions, compacts, and closes.
//!
//! The database sits behind a gate. Reading and writing pass it side by side; compacting and closing need it alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{Builder, ConcurrencyMode, Database, Durability, ReadableDatabase, StorageBackend, WriteTransaction};

use super::attached::{Lent, Owned};
use super::batch::Batch;
use super::create::{self, Existing};
use super::fault::{self, guard};
use super::memory::MemoryBackend;
use super::place::FileIdentity;
use super::probation::Probation;
use super::schema;
use super::snapshot::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Missing, OpenCheck, Options, Recovery, Sharing};
use crate::progress::{Reporter, Work};

/// Why a write transaction gave no result.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// Nothing was written.
    Aborted(Error),
    /// The commit failed: what it wrote may be found after a restart.
    Indeterminate(Error),
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
    gate: RwLock<Option<Owned>>,
    /// What readers share until the next commit, because opening a view costs as much as a look-up in it. Not in shared
    /// mode, where others commit too, nor in a database of an application's, whose commits would make the file grow.
    latest: RwLock<Option<Arc<Snapshot>>>,
    keeps_latest: bool,
    place: Option<Place>,
    is_new: bool,
    recovery: Recovery,
    sharing: Sharing,
    reporter: Reporter,
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
            let repaired = Arc::new(AtomicBool::new(false));
            builder
                .set_repair_callback({
                    let (repaired, reporter) = (repaired.clone(), options.reporter.clone());
                    move |repair| {
                        repaired.store(true, Ordering::Relaxed);
                        reporter.report(Work::Repair, thousandths(repair.progress()), Some(THOUSAND));
                    }
                })
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
            if repaired.load(Ordering::Relaxed) {
                options.reporter.report(Work::Repair, THOUSAND, Some(THOUSAND));
            }
            schema::check_format(&database)?;
            backend.accept().map_err(fault::io)?;
            Ok(database)
        })?;
        Ok(Self {
            gate: RwLock::new(Some(Owned::Ours(database))),
            keeps_latest: options.sharing == Sharing::Exclusive,
            latest: RwLock::new(None),
            is_new: place.as_ref().is_none_or(|place| place.created),
            place,
            recovery: options.recovery,
            sharing: options.sharing,
            reporter: options.reporter.clone(),
        })
    }

    /// A store in a database that an application has open: our tables beside its own.
    pub(crate) fn attached(database: Arc<Database>, options: &Options) -> Result<Self> {
        let database = Owned::Lent(Lent::by(database)?);
        let is_new = guard(|| {
            // Asked in any case: it also says whether a write transaction is in the way.
            let is_shared = schema::is_shared(&database)?;
            if options.sharing == Sharing::Exclusive && is_shared {
                return Err(Error::invalid_input(
                    "the database is open for several processes, and an exclusive store would end their claims: attach \
                     with Sharing::Shared",
                ));
            }
            let is_new = !schema::lives_in(&database)?;
            match options.missing {
                Missing::Create if is_new => schema::move_in(&database)?,
                Missing::Refuse if is_new => {
                    return Err(Error::new(ErrorKind::NotFound, "there is no store in the database"));
                }
                Missing::Create | Missing::Refuse => {}
            }
            schema::check_format(&database)?;
            Ok(is_new)
        })?;
        Ok(Self {
            gate: RwLock::new(Some(database)),
            latest: RwLock::new(None),
            keeps_latest: false,
            place: None,
            is_new,
            recovery: options.recovery,
            sharing: options.sharing,
            reporter: options.reporter.clone(),
        })
    }

    /// Runs `work` on the store as of the last commit.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        let gate = self.gate.read();
        let database = gate.as_ref().ok_or_else(closed)?;
        guard(|| work(&*self.latest(database)?))
    }

    /// The store as of the last commit, for code of an application, which must not hold the gate while it runs.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let gate = self.gate.read();
        let database = gate.as_ref().ok_or_else(closed)?;
        guard(|| self.latest(database))
    }

    fn latest(&self, database: &Database) -> Result<Arc<Snapshot>> {
        let open = || Snapshot::open(database.begin_read().map_err(fault::transaction)?).map(Arc::new);
        if !self.keeps_latest {
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
        self.write_beside(durable, |batch, _| work(batch))
    }

    /// The same, and hands out the store as it was before, for whoever looks at it meanwhile without passing the gate a
    /// second time.
    pub(crate) fn write_beside<T>(
        &self,
        durable: Durable,
        work: impl FnOnce(&mut Batch<'_>, &dyn Fn() -> Result<Arc<Snapshot>>) -> Result<T>,
    ) -> Result<T, WriteError> {
        let gate = self.gate.read();
        let database = gate.as_ref().ok_or_else(|| WriteError::Aborted(closed()))?;
        let txn = guard(|| self.begin(database, durable)).map_err(WriteError::Aborted)?;
        let worked = guard(|| {
            let mut batch = Batch::open(&txn)?;
            let value = work(&mut batch, &|| self.latest(database))?;
            Ok((value, batch.is_dirty()))
        });
        let (value, dirty) = match worked {
            Ok(worked) => worked,
            Err(error) => {
                // The first error is the one to report; an abort that fails too changes nothing about it.
                let _ = guard(|| txn.abort().map_err(fault::storage));
                return Err(WriteError::Aborted(error));
            }
        };
        if dirty {
            let committed = guard(|| txn.commit().map_err(fault::commit));
            self.outdate();
            committed.map_err(|error| match error.kind() {
                ErrorKind::Indeterminate => WriteError::Indeterminate(error),
                ErrorKind::Refused => WriteError::Aborted(error),
                // A panic on the way leaves the outcome as open as an error does.
                _ => {
                    let text = format!("the commit broke off: {error}");
                    WriteError::Indeterminate(Error::new(ErrorKind::Indeterminate, text).with_source(error))
                }
            })?;
        } else {
            guard(|| txn.abort().map_err(fault::storage)).map_err(WriteError::Aborted)?;
        }
        Ok(value)
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
        let mut gate = self.gate.write();
        let database = gate.as_mut().ok_or_else(closed)?;
        self.outdate();
        self.reporter.report(Work::Compact, 0, None);
        let compacted = guard(|| database.compact())?;
        self.reporter.report(Work::Compact, 1, None);
        Ok(compacted)
    }

    /// Closes the file and reports what dropping it would swallow.
    pub(crate) fn close(&self) -> Result<()> {
        let database = self.gate.write().take();
        self.outdate();
        match database {
            Some(database) => guard(|| database.close()),
            None => Ok(()),
        }
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

    /// Whether this open made the file. A store in memory is always new.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn reporter(&self) -> &Reporter {
        &self.reporter
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

/// A repair says how far it has come as a fraction.
const THOUSAND: u64 = 1000;

fn thousandths(fraction: f64) -> u64 {
    // A cast keeps within bounds, and takes what is no number for 0.
    (fraction * THOUSAND as f64) as u64
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}
