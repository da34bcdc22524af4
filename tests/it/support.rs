//! What the tests share: a ready store in one line, operations, a clock.

use std::path::PathBuf;
use std::time::Duration;

use dupeproof::{Begin, Claim, Fingerprint, ManualClock, Operation, OperationKey, Options, Store};

/// A day in 2026, as the wall clock of tests that do not care.
pub const START: Duration = Duration::from_secs(1_790_000_000);

/// A store in its own folder, with a clock that only the test moves and no compactor.
pub struct World {
    dir: tempfile::TempDir,
    pub clock: ManualClock,
}

impl World {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder"), clock: ManualClock::at(START) }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("store.redb")
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
