//! The store: opened, shared between threads, closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{deadline_in, has_passed, pause};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::options::{OpenCheck, Options};
use crate::storage::file::StoreFile;

/// First pause between two tries to open a store that is open elsewhere; doubled up to the longest.
const OPEN_PAUSE_MIN: Duration = Duration::from_millis(5);
/// Longest pause between two tries.
const OPEN_PAUSE_MAX: Duration = Duration::from_millis(250);

/// An open idempotency store. Cheap to clone; all clones share one file and its threads.
///
/// The last clone that is dropped closes the file. [`close`](Store::close) does it now and reports what a drop would
/// swallow.
///
/// # Example
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("effects.redb");
/// let store = dupeproof::Store::open(&path)?;
/// let for_another_thread = store.clone();
/// # drop(for_another_thread);
/// store.close()?;
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    response_bytes_max: usize,
}

impl Store {
    /// Opens the store at `path` with the default [`Options`], creating it if there is none.
    ///
    /// When it returns, a new file and its name are durable, and the claims of earlier opens are over: what they had
    /// reserved can be begun at once, what they had started is unknown.
    ///
    /// # Errors
    /// [`OpenElsewhere`](ErrorKind::OpenElsewhere), [`NotAStore`](ErrorKind::NotAStore) for an empty file or one of
    /// another program, [`NewerFormat`](ErrorKind::NewerFormat), [`Damaged`](ErrorKind::Damaged),
    /// [`Io`](ErrorKind::Io). None of them changed a byte of the file; in shared mode, nothing that it holds.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// let store = dupeproof::Store::open(&path)?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// A store without a file, for tests: everything but surviving the process.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if its threads cannot be started.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn in_memory() -> Result<Self> {
        Options::new().in_memory()
    }

    /// Ends this open's claims (reserved ones are released, started ones become unknown), stops the threads and closes
    /// the file, for all clones.
    ///
    /// Everything that was answered before is durable. Calls that come later find the store closed. A second close
    /// does nothing.
    ///
    /// # Errors
    /// What a drop would swallow: [`Stopped`](ErrorKind::Stopped) if the store had stopped before,
    /// [`Io`](ErrorKind::Io).
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// store.close()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        self.inner.engine.close()
    }

    /// Whether this open created the store. Worth a word in the log: a store that should have been there and is new has
    /// forgotten its keys.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// assert!(dupeproof::Store::open(&path)?.is_new());
    /// assert!(!dupeproof::Store::open(&path)?.is_new());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_new(&self) -> bool {
        self.inner.engine.file().is_new()
    }

    /// Whether the two are handles of one open store.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn response_bytes_max(&self) -> usize {
        self.inner.response_bytes_max
    }

    pub(crate) fn on(file: StoreFile, options: &Options) -> Result<Self> {
        let engine = Engine::start(file, options)?;
        Ok(Self { inner: Arc::new(Inner { engine, response_bytes_max: options.response_bytes_max }) })
    }
}

impl Options {
    /// Opens the store at `path` with these options. See [`Store::open`].
    ///
    /// # Errors
    /// Those of [`Store::open`], [`InvalidInput`](ErrorKind::InvalidInput) for options out of bounds, and
    /// [`NotFound`](ErrorKind::NotFound) with [`must_exist`](Options::must_exist).
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// let store = dupeproof::Options::new().with_verify_on_open().open(&path)?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store> {
        let path = path.as_ref();
        self.check()?;
        let deadline = deadline_in(self.open_wait);
        let mut wait = OPEN_PAUSE_MIN;
        loop {
            match StoreFile::open(path, self).and_then(|file| Store::on(file, self)) {
                Err(error) if error.kind() == ErrorKind::OpenElsewhere && !has_passed(deadline) => {
                    pause(wait);
                    wait = (wait * 2).min(OPEN_PAUSE_MAX);
                }
                opened => {
                    return opened.map_err(|error| error.context(format_args!("open store at {}", path.display())));
                }
            }
        }
    }

    /// A store in a redb database that the application has open: our tables beside its own, so that
    /// [`Store::transaction`] spans both and no second file is needed. The tables are made if they are not there, in a
    /// durable commit.
    ///
    /// The file stays the application's. Page cache, page checks and compaction are its own affair, and closing the
    /// store leaves the database open. [`Recovery`](crate::Recovery) is what *our* commits do; each of them is
    /// two-phase. One of the application's that is not may be rolled back after a failed sync and a power cut, and what
    /// was built on it with it: let the application commit in two phases too (`set_two_phase_commit`).
    ///
    /// # Errors
    /// [`OpenElsewhere`](ErrorKind::OpenElsewhere) if another store is attached to it;
    /// [`Busy`](ErrorKind::Busy) if a write transaction is open on the database, which this does not wait for;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options out of bounds, with
    /// [`with_verify_on_open`](Options::with_verify_on_open), or if the database is open for several processes and these
    /// options are not; [`NotFound`](ErrorKind::NotFound) with
    /// [`must_exist`](Options::must_exist); [`NewerFormat`](ErrorKind::NewerFormat), [`Damaged`](ErrorKind::Damaged).
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use dupeproof::{Options, redb::Database};
    /// use std::sync::Arc;
    /// let database = Arc::new(Database::create(dir.path().join("app.redb"))?);
    /// let store = Options::new().attach(database.clone())?;
    /// store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach(&self, database: Arc<redb::Database>) -> Result<Store> {
        self.check()?;
        if self.open_check == OpenCheck::Always {
            return Err(Error::invalid_input("check at open: the database is open, and its check the application's"));
        }
        let attached = StoreFile::attached(database, self).and_then(|file| Store::on(file, self));
        attached.map_err(|error| error.context("attach to a database"))
    }

    /// A store without a file, with these options.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options out of bounds.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{ManualClock, Options};
    /// use std::time::Duration;
    /// let clock = ManualClock::at(Duration::from_secs(1_700_000_000));
    /// let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// clock.advance(Duration::from_secs(60));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn in_memory(&self) -> Result<Store> {
        self.check()?;
        Store::on(StoreFile::in_memory(self)?, self)
    }
}
