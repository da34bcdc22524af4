//! The provider, who judges: one line for each effect, whoever asked for it and whatever became of them. And the client
//! who has it performed, and repeats.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use dupeproof::{Begin, Claim, Operation, Replay, Store, Verdict};

use super::{World, decision, key, operation};

/// The effects that happened, as `key attempt`.
pub struct Ledger(PathBuf);

impl Ledger {
    fn of(folder: &Path) -> Self {
        Self(folder.join("ledger"))
    }

    /// Here it happens. Durable on return.
    pub fn perform(&self, claim: &Claim) {
        self.perform_as(claim.key().key(), claim);
    }

    /// The same under another name: of a step, say.
    pub fn perform_as(&self, name: &str, claim: &Claim) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.0).expect("the ledger opens");
        // In one write, so that lines of several processes do not mix.
        file.write_all(format!("{name} {}\n", claim.attempt()).as_bytes()).expect("a line is written");
        file.sync_data().expect("the ledger is synced");
    }

    /// The attempts that had an effect, by key.
    pub fn effects(&self) -> BTreeMap<String, Vec<u32>> {
        let text = match std::fs::read_to_string(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.expect("the ledger can be read"),
        };
        let mut effects = BTreeMap::<_, Vec<_>>::new();
        for line in text.split_inclusive('\n') {
            let (key, attempt) = line.strip_suffix('\n').and_then(|line| line.rsplit_once(' ')).expect("a whole line");
            effects.entry(key.to_owned()).or_default().push(attempt.parse().expect("a number"));
        }
        effects
    }

    /// The one attempt that had an effect, if one had.
    #[track_caller]
    pub fn effect(&self, name: &str) -> Option<u32> {
        let attempts = self.effects().remove(name).unwrap_or_default();
        assert!(attempts.len() <= 1, "{name} happened {} times: attempts {attempts:?}", attempts.len());
        attempts.first().copied()
    }
}

impl World {
    pub fn ledger(&self) -> Ledger {
        Ledger::of(self.folder())
    }
}

/// What a client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// To run, which it did.
    Ran,
    Replayed,
    InProgress,
    RetryLater,
    Unknown,
    Conflict,
    Expired,
}

pub fn receipt(name: &str) -> String {
    format!("receipt of {name}")
}

pub fn reference(name: &str) -> String {
    format!("ch_{name}")
}

/// The claim's effect happens and is settled.
pub fn perform(ledger: &Ledger, claim: Claim) {
    let name = claim.key().key().to_owned();
    ledger.perform(&claim);
    claim.with_external_reference(&reference(&name)).succeed_raw(receipt(&name)).expect("the claim is settled");
}

/// One delivery of a message: its effect is performed if, and only if, the store says so.
pub fn deliver(store: &Store, ledger: &Ledger, operation: &Operation) -> Told {
    match store.begin(operation).expect("begin answers") {
        Begin::Execute(claim) => {
            perform(ledger, claim);
            Told::Ran
        }
        Begin::Replay(replay) => {
            check_receipt(&replay, operation.key().key());
            Told::Replayed
        }
        Begin::InProgress(_) => Told::InProgress,
        Begin::RetryLater(_) => Told::RetryLater,
        Begin::Unknown(_) => Told::Unknown,
        Begin::Conflict(_) => Told::Conflict,
        Begin::Expired(_) => Told::Expired,
    }
}

/// A hundred deliveries of one message, one after the other: how often each answer was given.
pub fn deliver_100(store: &Store, ledger: &Ledger, name: &str) -> Vec<(Told, usize)> {
    let mut told = BTreeMap::new();
    for _ in 0..100 {
        *told.entry(deliver(store, ledger, &operation(name))).or_default() += 1;
    }
    told.into_iter().collect()
}

#[track_caller]
pub fn check_receipt(replay: &Replay, name: &str) {
    assert_eq!(replay.value().expect("a success"), receipt(name).as_bytes());
    assert_eq!(replay.external_reference(), Some(reference(name).as_str()));
}

/// What the provider says about an unknown outcome.
pub fn resolve_by(ledger: &Ledger, store: &Store, name: &str) {
    let verdict = match ledger.effect(name) {
        Some(_) => Verdict::Happened { response: receipt(name).into(), external_reference: Some(reference(name)) },
        None => Verdict::DidNotHappen,
    };
    store.resolve(key(name), verdict, &decision()).expect("the outcome is unknown");
}
