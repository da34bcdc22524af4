//! One workload with every way an operation can go, played on a store, and a small model of what each act promises.

use std::collections::{BTreeMap, HashMap};

use super::backend::LabBackend;
use super::letters::{self, Letter, Letters, Postman, Says};
use super::{Rows, StoreFile, clock_at, quiet, rows_of};
use crate::clock::ManualClock;
use crate::error::Result;
use crate::machine::record::{Record, State, Status};
use crate::machine::response::Response;
use crate::options::{Options, Recovery};
use crate::{Begin, Claim, Decision, Fingerprint, Operation, OperationKey, Reservation, Reserve, Retention, Retry};
use crate::{Settlement, Store, Verdict};

/// Response bytes of a value that takes several pages.
const LARGE: usize = 20_000;
const RESPONSE_SECS: u64 = 10;
const TOMBSTONE_SECS: u64 = 20;

/// One call, by the name of its key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Begin(&'static str),
    Reserve(&'static str),
    Start(&'static str),
    Succeed(&'static str, usize),
    FailTerminal(&'static str),
    FailRetryable(&'static str),
    GiveUp(&'static str),
    Release(&'static str),
    Drop(&'static str),
    Heartbeat(&'static str),
    Checkpoint(&'static str),
    Refer(&'static str),
    Happened(&'static str),
    DidNotHappen(&'static str),
    BeginMany(&'static [&'static str]),
    SettleAndBegin(&'static str, &'static str),
    Outbox(Letter),
    /// Lets so many seconds pass and sweeps.
    Sweep(u64),
    Close,
}

use Act::{
    Begin as B, BeginMany, Checkpoint, Close, DidNotHappen, Drop as D, FailRetryable, FailTerminal, GiveUp, Happened,
    Heartbeat, Outbox as O, Refer, Release, Reserve as R, SettleAndBegin, Start, Succeed, Sweep,
};

use Letter::{Discard, Redrive, Send, Take, Tell};
use Says::{Delivered, Failed, GaveBack};

pub(super) const SCRIPT: &[Act] = &[
    B("a"),
    Refer("a"),
    Succeed("a", 40),
    B("b"),
    FailTerminal("b"),
    B("c"),
    FailRetryable("c"),
    B("c"),
    GiveUp("c"),
    Happened("c"),
    O(Send(&["m1", "m2", "m3"])),
    O(Take(&["m1", "m3"])),
    O(Tell(&[("m1", Failed), ("m3", Delivered)])),
    O(Send(&["m4", "m3"])),
    O(Take(&["m1"])),
    O(Tell(&[("m1", Failed)])),
    // Its lane goes on without it, and it comes back to its end.
    O(Redrive("m1")),
    O(Take(&["m2"])),
    O(Tell(&[("m2", Delivered)])),
    O(Discard("m4")),
    O(Take(&["m1"])),
    O(Tell(&[("m1", GaveBack)])),
    R("d"),
    Start("d"),
    Checkpoint("d"),
    Heartbeat("d"),
    Succeed("d", 0),
    R("e"),
    Release("e"),
    B("f"),
    GiveUp("f"),
    DidNotHappen("f"),
    B("f"),
    BeginMany(&["g1", "g2", "g3", "g4"]),
    SettleAndBegin("g1", "h"),
    Succeed("g2", 3),
    Release("g3"),
    D("g4"),
    Succeed("h", LARGE),
    R("i"),
    Sweep(RESPONSE_SECS + 1),
    B("j"),
    Succeed("j", 10),
    O(Send(&["m5", "m6"])),
    O(Take(&["m1", "m5", "m6"])),
    O(Tell(&[("m5", Failed), ("m6", Failed)])),
    O(Take(&["m5", "m6"])),
    O(Tell(&[("m6", Failed)])),
    Sweep(TOMBSTONE_SECS),
    B("a"),
    Succeed("a", LARGE),
    GiveUp("f"),
    B("k"),
    Close,
];

/// Every key of the script, and one more that only some tests use.
pub(super) const KEYS: [&str; 15] = ["a", "b", "c", "d", "e", "f", "g1", "g2", "g3", "g4", "h", "i", "j", "k", "z"];

/// What the last answer about a key promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) response: Option<Vec<u8>>,
}

pub(super) type Promises = BTreeMap<&'static str, Promise>;

/// The state after an act was answered.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) act: Option<Act>,
    /// How many changing operations the disk had seen by then.
    pub(super) issued: usize,
    /// Whether the answer must survive a power cut. A heartbeat need not.
    pub(super) durable: bool,
    pub(super) second: u64,
    pub(super) promises: Promises,
    pub(super) letters: Letters,
    pub(super) rows: Rows,
}

pub(super) fn operation(key: &str) -> Operation {
    let key = OperationKey::new("lab", "act", key).expect("valid key");
    let retention = Retention::default()
        .with_response(std::time::Duration::from_secs(RESPONSE_SECS))
        .with_tombstone(std::time::Duration::from_secs(TOMBSTONE_SECS));
    let hour = std::time::Duration::from_secs(3600);
    // As long as the execution may take, so that the keeper has nothing to renew and the trace is the same every time.
    Operation::new(key, Fingerprint::unchecked()).with_lease(hour).with_max_execution(hour).with_retention(retention)
}

pub(super) fn value(key: &str, len: usize) -> Vec<u8> {
    key.bytes().cycle().take(len).collect()
}

/// Somebody who performs acts on a store and holds the claims.
pub(super) struct Player {
    pub(super) store: Store,
    pub(super) clock: ManualClock,
    claims: HashMap<&'static str, Claim>,
    reservations: HashMap<&'static str, Reservation>,
    postman: Postman,
}

impl Player {
    pub(super) fn open(backend: &LabBackend, recovery: Recovery) -> Result<Self> {
        let clock = clock_at(0);
        Self::open_with(backend, &options(&clock, recovery), clock)
    }

    pub(super) fn open_with(backend: &LabBackend, options: &Options, clock: ManualClock) -> Result<Self> {
        let store = Store::on(StoreFile::on(backend.clone(), None, options)?, options)?;
        let postman = Postman::default();
        Ok(Self { store, clock, claims: HashMap::new(), reservations: HashMap::new(), postman })
    }

    /// Performs one act. Every expected answer is demanded here; an error is handed back.
    pub(super) fn perform(&mut self, act: Act) -> Result<()> {
        match act {
            Act::Begin(key) => self.begin(key)?,
            Act::Reserve(key) => {
                let Reserve::Reserved(reservation) = self.store.reserve(&operation(key))? else {
                    panic!("{key} was not reserved");
                };
                self.reservations.insert(key, reservation);
            }
            Act::Start(key) => {
                let reservation = self.reservations.remove(key).expect("reserved before");
                self.claims.insert(key, reservation.start()?);
            }
            Act::Succeed(key, len) => drop(self.claims[key].succeed_raw(value(key, len))?),
            Act::FailTerminal(key) => drop(self.claims[key].fail_terminal("declined")?),
            Act::FailRetryable(key) => drop(self.claims[key].fail_retryable("busy", Retry::now())?),
            Act::GiveUp(key) => drop(self.claims[key].give_up("timed out")?),
            Act::Release(key) => match self.reservations.remove(key) {
                Some(reservation) => reservation.release()?,
                None => self.claims[key].release()?,
            },
            Act::Drop(key) => {
                drop(self.claims.remove(key));
                // Nobody answers a drop, so what it did is looked up.
                while self.store.get(operation(key).key())?.is_some_and(|view| view.status == Status::Executing) {
                    self.store.engine().check_health()?;
                    std::thread::yield_now();
                }
            }
            Act::Heartbeat(key) => self.claims[key].heartbeat()?,
            Act::Checkpoint(key) => self.claims[key].checkpoint(b"half-way")?,
            Act::Refer(key) => self.claims[key].record_external_reference("ext-1")?,
            Act::Happened(key) => {
                let verdict = Verdict::Happened { response: Response::from(value(key, 7)), external_reference: None };
                self.resolve(key, verdict)?;
            }
            Act::DidNotHappen(key) => self.resolve(key, Verdict::DidNotHappen)?,
            Act::BeginMany(keys) => {
                let operations: Vec<_> = keys.iter().map(|key| operation(key)).collect();
                for (key, begin) in keys.iter().zip(self.store.begin_many(&operations)?) {
                    self.keep(key, begin);
                }
            }
            Act::SettleAndBegin(key, next) => {
                let settlement = Settlement::Succeeded(Response::from(value(key, 5)));
                let begin = self.claims[key].settle_and_begin(settlement, &operation(next))?;
                self.keep(next, begin);
            }
            Act::Outbox(letter) => self.postman.perform(&self.store, letter)?,
            Act::Sweep(seconds) => {
                self.clock.advance(std::time::Duration::from_secs(seconds));
                self.store.sweep(1000)?;
            }
            Act::Close => self.store.close()?,
        }
        Ok(())
    }

    fn begin(&mut self, key: &'static str) -> Result<()> {
        let begin = self.store.begin(&operation(key))?;
        self.keep(key, begin);
        Ok(())
    }

    fn keep(&mut self, key: &'static str, begin: Begin) {
        let Begin::Execute(claim) = begin else { panic!("{key} was not granted: {begin:?}") };
        self.claims.insert(key, claim);
    }

    fn resolve(&self, key: &str, verdict: Verdict) -> Result<()> {
        self.store.resolve(operation(key).key(), verdict, &Decision::new("lab", "looked it up")).map(drop)
    }
}

pub(super) fn options(clock: &ManualClock, recovery: Recovery) -> Options {
    quiet(clock).with_recovery(recovery)
}

/// What an act promises, said independently of the store.
pub(super) fn promise(before: &Promises, act: Act) -> Promises {
    let mut after = before.clone();
    let mut set = |key: &'static str, status, response: Option<Vec<u8>>| {
        let attempts = after.get(key).map_or(1, |promise| promise.attempts);
        after.insert(key, Promise { status, attempts, response });
    };
    match act {
        Act::Begin(key) => grant(&mut after, key, Status::Executing),
        Act::Reserve(key) => grant(&mut after, key, Status::Reserved),
        Act::Start(key) => set(key, Status::Executing, None),
        Act::Succeed(key, len) => set(key, Status::Succeeded, Some(value(key, len))),
        Act::FailTerminal(key) => set(key, Status::FailedTerminal, None),
        Act::FailRetryable(key) | Act::Release(key) | Act::DidNotHappen(key) => set(key, Status::FailedRetryable, None),
        Act::GiveUp(key) | Act::Drop(key) => set(key, Status::Unknown, None),
        Act::Happened(key) => set(key, Status::Succeeded, Some(value(key, 7))),
        Act::Heartbeat(_) | Act::Checkpoint(_) | Act::Refer(_) | Act::Outbox(_) => {}
        Act::BeginMany(keys) => keys.iter().for_each(|key| grant(&mut after, key, Status::Executing)),
        Act::SettleAndBegin(key, next) => {
            set(key, Status::Succeeded, Some(value(key, 5)));
            grant(&mut after, next, Status::Executing);
        }
        Act::Sweep(seconds) => after.retain(|_, promise| match promise.status {
            // The script sweeps twice: once when responses are over, once when those tombstones are.
            Status::Succeeded | Status::FailedTerminal if seconds > RESPONSE_SECS => {
                *promise = Promise { status: Status::Tombstone, response: None, ..promise.clone() };
                true
            }
            Status::Tombstone => seconds < TOMBSTONE_SECS,
            _ => true,
        }),
        Act::Close => return after_open(before),
    }
    after
}

fn promised_letters(before: &Letters, act: Act) -> Letters {
    match act {
        Act::Outbox(letter) => letters::promise(before, letter),
        Act::Sweep(seconds) => letters::after_sweep(before, seconds),
        Act::Close => letters::after_open(before),
        _ => before.clone(),
    }
}

fn grant(promises: &mut Promises, key: &'static str, status: Status) {
    let attempts = match promises.get(key) {
        Some(promise) if promise.status == Status::FailedRetryable => promise.attempts + 1,
        _ => 1,
    };
    promises.insert(key, Promise { status, attempts, response: None });
}

/// An open or a close ends the claims there were.
pub(super) fn after_open(before: &Promises) -> Promises {
    let mut after = before.clone();
    for promise in after.values_mut() {
        promise.status = match promise.status {
            Status::Reserved => Status::FailedRetryable,
            Status::Executing => Status::Unknown,
            other => other,
        };
    }
    after
}

pub(super) fn promised_by(rows: &[Record]) -> Promises {
    rows.iter()
        .map(|record| {
            let key = KEYS.into_iter().find(|key| *key == record.head.identity.key.key()).expect("a known key");
            let response = match &record.state {
                State::Succeeded { response, .. } => response.bytes().map(<[u8]>::to_vec),
                _ => None,
            };
            (key, Promise { status: record.status(), attempts: record.head.attempt, response })
        })
        .collect()
}

/// Plays the whole script on a disk that works, and checks every act against the model.
pub(super) fn play(backend: &LabBackend, recovery: Recovery) -> Vec<Answered> {
    let mut player = Player::open(backend, recovery).expect("a good disk");
    let mut second = 0;
    let mut history = vec![Answered {
        act: None,
        issued: 0,
        durable: true,
        second,
        promises: Promises::new(),
        letters: Letters::new(),
        rows: Rows::default(),
    }];
    for act in SCRIPT {
        let before = history.last().expect("never empty");
        let promises = promise(&before.promises, *act);
        let letters = promised_letters(&before.letters, *act);
        player.perform(*act).unwrap_or_else(|error| panic!("{act:?}: {error}"));
        if let Act::Sweep(seconds) = act {
            second += seconds;
        }
        let rows = match act {
            Act::Close => rows(backend, second, recovery),
            _ => player.store.engine().read(rows_of).expect("a good disk"),
        };
        assert_eq!(promised_by(&rows.records), promises, "after {act:?}");
        assert_eq!(letters::promised_by(&rows.messages), letters, "after {act:?}");
        history.push(Answered {
            act: Some(*act),
            issued: backend.changes(),
            durable: !matches!(act, Act::Heartbeat(_)),
            second,
            promises,
            letters,
            rows,
        });
    }
    history
}

fn rows(backend: &LabBackend, second: u64, recovery: Recovery) -> Rows {
    let copy = LabBackend::of(backend.cache());
    let file = StoreFile::on(copy, None, &options(&clock_at(second), recovery)).expect("a closed store opens");
    super::rows(&file).expect("a closed store is read")
}
