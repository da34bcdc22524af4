//! How a store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::machine::limits::{OUTBOX_RETENTION_DEFAULT, RESPONSE_BYTES_DEFAULT, RESPONSE_BYTES_MAX, RETENTION_MAX};
use crate::progress::{Progress, Reporter};

/// Who else may have the store open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Sharing {
    /// Nobody: one process, fastest. A second one gets [`OpenElsewhere`](crate::ErrorKind::OpenElsewhere).
    #[default]
    Exclusive,
    /// Any number of processes, all in this mode. Every commit costs two syncs, and a claim of another process ends by
    /// its lease only. Linux, Apple platforms and Windows; never on a network file system.
    Shared,
}

/// What opening after a crash costs, against what every commit costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// A crash costs a walk of the file at the next open, about 0.25 s for 100 MiB, which also checks every page.
    #[default]
    Scan,
    /// Opens in milliseconds after a crash, but every commit also writes the allocator's state, which grows with the
    /// file, and what the crash left is not checked.
    Quick,
}

/// Whether a missing file is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// Whether the whole file is checked at open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OpenCheck {
    AfterCrash,
    Always,
}

/// Smallest page cache: below it, every look-up reads the disk.
const CACHE_BYTES_MIN: usize = 1024 * 1024;
/// Page cache unless said otherwise: suits an edge device. The engine's own default is 1 GiB.
const CACHE_BYTES_DEFAULT: usize = 32 * 1024 * 1024;
/// Longest wait for a store that is open elsewhere.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(3600);
/// How often the compactor looks, unless said otherwise.
const SWEEP_EVERY_DEFAULT: Duration = Duration::from_secs(1);
/// Shortest interval of the compactor.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(10);

/// How to open a store: start from [`Options::new`], then [`open`](Options::open).
///
/// # Example
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("effects.redb");
/// use dupeproof::{Options, Recovery};
/// let store = Options::new().with_recovery(Recovery::Quick).open(&path)?;
/// store.close()?;
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) sharing: Sharing,
    pub(crate) recovery: Recovery,
    pub(crate) missing: Missing,
    pub(crate) open_check: OpenCheck,
    pub(crate) open_wait: Duration,
    pub(crate) cache_bytes: usize,
    pub(crate) response_bytes_max: usize,
    pub(crate) outbox_retention: Duration,
    pub(crate) sweep_every: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reporter: Reporter,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Exclusive, created if missing, 32 MiB of cache, responses up to 1 MiB, the system's clocks.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// let store = dupeproof::Options::new().open(&path)?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new() -> Self {
        Self {
            sharing: Sharing::Exclusive,
            recovery: Recovery::Scan,
            missing: Missing::Create,
            open_check: OpenCheck::AfterCrash,
            open_wait: Duration::ZERO,
            cache_bytes: CACHE_BYTES_DEFAULT,
            response_bytes_max: RESPONSE_BYTES_DEFAULT,
            outbox_retention: OUTBOX_RETENTION_DEFAULT.as_duration(),
            sweep_every: Some(SWEEP_EVERY_DEFAULT),
            clock: Arc::new(SystemClock),
            reporter: Reporter::default(),
        }
    }

    /// Who else may have the store open. Default: nobody.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// use dupeproof::{Options, Sharing};
    /// let options = Options::new().with_sharing(Sharing::Shared);
    /// let (one, other) = (options.open(&path)?, options.open(&path)?);
    /// # drop((one, other));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// What a crash costs at the next open. Default: [`Recovery::Scan`].
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// use dupeproof::{Options, Recovery};
    /// // Opens in milliseconds after a crash, for somewhat slower commits.
    /// let store = Options::new().with_recovery(Recovery::Quick).open(&path)?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = recovery;
        self
    }

    /// Refuses a missing file instead of creating it, for callers who know that the store is there: a store that
    /// forgot its keys would let every operation run again.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let error = dupeproof::Options::new().must_exist().open(dir.path().join("typo.redb")).unwrap_err();
    /// assert_eq!(error.kind(), dupeproof::ErrorKind::NotFound);
    /// ```
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.missing = Missing::Refuse;
        self
    }

    /// Checks the checksum of every page at open, not only after a crash: 0.25 s for 100 MiB. Without it, a flipped
    /// bit in the index can make a key look absent, and an absent key *runs*.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// let store = dupeproof::Options::new().with_verify_on_open().open(&path)?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_verify_on_open(mut self) -> Self {
        self.open_check = OpenCheck::Always;
        self
    }

    /// Waits so long for a store that is open elsewhere. Default: not at all; at most an hour.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// use std::time::Duration;
    /// let store = dupeproof::Options::new().with_open_wait(Duration::from_secs(5)).open(&path)?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_open_wait(mut self, wait: Duration) -> Self {
        self.open_wait = wait;
        self
    }

    /// Memory for cached pages, in bytes. Default 32 MiB, at least 1 MiB. Too small, and look-ups read the disk; too
    /// large, and it is not there for others.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// let store = dupeproof::Options::new().with_cache_bytes(8 * 1024 * 1024).open(&path)?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Largest response that is stored, in bytes. Default 1 MiB, at most 16 MiB. A larger one is recorded as a success
    /// whose body was too large, never as a failure.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Options, Response, Store};
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// let store = Options::new().with_response_limit(4).in_memory()?;
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let replay = claim.succeed_raw("more than four")?;
    /// assert!(replay.is_success() && matches!(replay.raw(), Response::TooLarge { len: 14, .. }));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_response_limit(mut self, bytes: usize) -> Self {
        self.response_bytes_max = bytes;
        self
    }

    /// How long delivered and discarded messages are remembered, without their content: so long is a message recognised
    /// that is sent again. Default 7 days; 0 to 100 years. Too short, and what is sent again is delivered again; too
    /// long, and the file grows. Dead letters stay until somebody decides.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// let store = dupeproof::Options::new().with_outbox_retention(Duration::from_secs(30 * 86_400)).in_memory()?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_outbox_retention(mut self, retention: Duration) -> Self {
        self.outbox_retention = retention;
        self
    }

    /// How often the compactor looks for lapsed leases and ended retentions. Default: every second; at least 10 ms.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// let store = dupeproof::Options::new().with_sweep_every(Duration::from_secs(60)).in_memory()?;
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_sweep_every(mut self, interval: Duration) -> Self {
        self.sweep_every = Some(interval);
        self
    }

    /// No compactor: the application calls [`Store::sweep`](crate::Store::sweep) itself. Answers do not depend on the
    /// sweep; the size of the file does.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Options::new().without_compactor().in_memory()?;
    /// store.sweep(1000)?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn without_compactor(mut self) -> Self {
        self.sweep_every = None;
        self
    }

    /// Other clocks than the system's, such as a [`ManualClock`](crate::ManualClock) in tests.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{ManualClock, Options};
    /// use std::time::Duration;
    /// let clock = ManualClock::at(Duration::from_secs(1_790_000_000));
    /// let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// clock.advance(Duration::from_secs(86_400));
    /// # drop(store);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Tells `listener` how far a repair or check at open, a verify, a compaction, a backup, an export or an import has
    /// come: on the thread that does the work, which waits for it, a few thousand times at most for a million records.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Options, Work};
    /// use std::sync::{Arc, Mutex};
    /// let seen = Arc::new(Mutex::new(Vec::new()));
    /// let store = Options::new()
    ///     .with_progress({
    ///         let seen = seen.clone();
    ///         move |progress| seen.lock().unwrap().push(progress.work)
    ///     })
    ///     .in_memory()?;
    /// store.verify()?;
    /// assert_eq!(*seen.lock().unwrap(), [Work::Verify, Work::Verify]);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_progress(mut self, listener: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.reporter = Reporter::to(listener);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.cache_bytes < CACHE_BYTES_MIN {
            let found = self.cache_bytes;
            return Err(Error::invalid_input(format!("cache is {found} bytes: at least {CACHE_BYTES_MIN} expected")));
        }
        if self.response_bytes_max > RESPONSE_BYTES_MAX {
            let found = self.response_bytes_max;
            return Err(Error::invalid_input(format!(
                "response limit is {found} bytes: at most {RESPONSE_BYTES_MAX} expected"
            )));
        }
        if self.outbox_retention > RETENTION_MAX.as_duration() {
            let (found, most) = (self.outbox_retention, RETENTION_MAX.as_duration());
            return Err(Error::invalid_input(format!("outbox retention is {found:?}: at most {most:?} expected")));
        }
        if self.open_wait > OPEN_WAIT_MAX {
            let found = self.open_wait;
            return Err(Error::invalid_input(format!("open wait is {found:?}: at most {OPEN_WAIT_MAX:?} expected")));
        }
        if self.sweep_every.is_some_and(|interval| interval < SWEEP_EVERY_MIN) {
            return Err(Error::invalid_input(format!("sweep interval is below {SWEEP_EVERY_MIN:?}")));
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("sharing", &self.sharing)
            .field("recovery", &self.recovery)
            .field("missing", &self.missing)
            .field("cache_bytes", &self.cache_bytes)
            .field("response_bytes_max", &self.response_bytes_max)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
