//! What the tests share: a ready store in one line, operations, a clock.

pub mod child;
pub mod dice;
pub mod ledger;

use std::path::{Path, PathBuf};
use std::time::Duration;

use dupeproof::{
    Begin, Claim, Conflict, Decision, ErrorKind, Expired, Fingerprint, InProgress, ManualClock, Operation,
    OperationKey, OperationView, Options, Replay, Reservation, Reserve, Retry, RetryLater, Status, Store,
    UnknownOutcome, Verdict,
};

/// A day in 2026, as the wall clock of tests that do not care.
pub const START: Duration = Duration::from_secs(1_790_000_000);

/// A store in its own folder, with a clock that only the test moves and no compactor.
pub struct World {
    folder: PathBuf,
    pub clock: ManualClock,
    /// Removed at the end by the one who made it.
    _made: Option<tempfile::TempDir>,
}

impl World {
    pub fn new() -> Self {
        let made = tempfile::tempdir().expect("a temporary folder");
        Self { folder: made.path().to_owned(), clock: ManualClock::at(START), _made: Some(made) }
    }

    /// That of another process, with a clock of its own.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), clock: ManualClock::at(START), _made: None }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("store.redb")
    }

    pub fn options(&self) -> Options {
        Options::new().with_clock(self.clock.clone()).without_compactor()
    }

    pub fn open(&self) -> Store {
        self.options().open(self.path()).expect("the store opens")
    }
}

pub fn key(name: &str) -> OperationKey {
    OperationKey::new("acme", "charge", name).expect("a valid key")
}

pub fn operation(name: &str) -> Operation {
    Operation::new(key(name), Fingerprint::of_bytes(b"payload"))
}

pub fn altered(name: &str) -> Operation {
    Operation::new(key(name), Fingerprint::of_bytes(b"another payload"))
}

#[track_caller]
pub fn execute(store: &Store, operation: &Operation) -> Claim {
    match store.begin(operation).expect("begin answers") {
        Begin::Execute(claim) => claim,
        other => panic!("expected a claim, found {other:?}"),
    }
}

// Answers, states and what lies on the disk.

pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);
pub const DAY: Duration = Duration::from_secs(86_400);

impl World {
    /// Closes the store and opens it again.
    pub fn reopen(&self, store: Store) -> Store {
        store.close().expect("the store closes");
        self.open()
    }

    /// Checks what is told now, and that the same is told after the store was closed and opened again.
    pub fn now_and_reopened(&self, store: Store, check: impl Fn(&Store)) -> Store {
        check(&store);
        let store = self.reopen(store);
        check(&store);
        store
    }

    /// The file as it lies on the disk.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).expect("the file is there")
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// One function for each answer: begins, and expects exactly it.
macro_rules! answers {
    ($($name:ident: $variant:ident($answer:ty)),* $(,)?) => {$(
        #[track_caller]
        pub fn $name(store: &Store, operation: &Operation) -> $answer {
            match store.begin(operation).expect("begin answers") {
                Begin::$variant(answer) => answer,
                other => panic!("expected {}, found {other:?}", stringify!($variant)),
            }
        }
    )*};
}

answers! {
    replay: Replay(Replay),
    in_progress: InProgress(InProgress),
    retry_later: RetryLater(RetryLater),
    unknown: Unknown(UnknownOutcome),
    conflict: Conflict(Conflict),
    expired: Expired(Expired),
}

#[track_caller]
pub fn reserve(store: &Store, operation: &Operation) -> Reservation {
    match store.reserve(operation).expect("reserve answers") {
        Reserve::Reserved(reservation) => reservation,
        other => panic!("expected a reservation, found {other:?}"),
    }
}

/// The record, which must be there.
#[track_caller]
pub fn get(store: &Store, name: &str) -> OperationView {
    store.get(key(name)).expect("the store looks").expect("the record is there")
}

#[track_caller]
pub fn status(store: &Store, name: &str) -> Status {
    get(store, name).status
}

pub fn decision() -> Decision {
    Decision::new("jane", "looked it up")
}

/// Waits until what dropped claims left in the queue is committed: the queue is in order, and this goes through it
/// without changing anything.
#[track_caller]
pub fn after_drops(store: &Store) {
    let nobody = OperationKey::new("nobody", "nothing", "nowhere").expect("a valid key");
    let error = store.resolve(&nobody, Verdict::DidNotHappen, &decision()).expect_err("no such record");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// The statuses that an operation can have: every one but that of a run.
pub const STATUSES: [Status; 7] = [
    Status::Reserved,
    Status::Executing,
    Status::FailedRetryable,
    Status::Unknown,
    Status::Succeeded,
    Status::FailedTerminal,
    Status::Tombstone,
];

/// Brings a new key to a status. For a tombstone, eight days pass. What it returns holds the record until it is
/// dropped, if anything does.
pub fn bring_to(world: &World, store: &Store, name: &str, status: Status) -> Option<Box<dyn Send>> {
    let operation = operation(name);
    if status == Status::Reserved {
        return Some(Box::new(reserve(store, &operation)));
    }
    let claim = execute(store, &operation).with_external_reference("ch_1");
    match status {
        Status::Executing => return Some(Box::new(claim)),
        Status::FailedRetryable => drop(claim.fail_retryable("no route", Retry::after(HOUR)).unwrap()),
        Status::Unknown => drop(claim.give_up("the answer was lost").unwrap()),
        Status::FailedTerminal => drop(claim.fail_terminal("declined").unwrap()),
        Status::Succeeded => drop(claim.succeed_raw("receipt").unwrap()),
        Status::Tombstone => {
            claim.succeed_raw("receipt").unwrap();
            world.clock.advance(8 * DAY);
        }
        other => panic!("no way to {other} is known"),
    }
    assert_eq!(get(store, name).status, status);
    None
}

/// Waits for what another thread does in its own time. Fails only if it never does.
#[track_caller]
pub fn eventually(is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("it never came");
}
