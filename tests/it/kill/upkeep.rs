//! Killed while cleaning up: nothing unsettled, nothing retained and no tombstone is lost, wherever the sweep or the
//! compaction stood.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dupeproof::{Claim, Operation, Retention, Retry, Status, Store};

use super::recovery_of;
use crate::support::child::{Child, Task, die_of_any_panic, park, say};
use crate::support::dice::Dice;
use crate::support::*;

const ROUNDS: usize = 20;
/// Records of each kind.
const RECORDS: usize = 60;
/// Claims that are held, and reservations.
const HELD: usize = 10;
/// More than a page, so that compaction has something to move.
const RESPONSE_BYTES: usize = 6000;

/// What is in the store, by name, and what becomes of it within a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its response stays.
    Retained,
    /// Its response goes, its tombstone stays.
    Expiring,
    /// It is forgotten.
    Forgotten,
    Unknown,
    Retryable,
    /// Held by the child that is killed.
    Held,
    Reserved,
}

use Kind::{Expiring, Forgotten, Held, Reserved, Retained, Retryable, Unknown};

const FILLED: [Kind; 5] = [Expiring, Forgotten, Unknown, Retryable, Retained];

impl Kind {
    fn name(self, at: usize) -> String {
        format!("{self:?} {at}")
    }

    fn operation(self, at: usize) -> Operation {
        let short = Retention::default().with_response(MINUTE);
        operation(&self.name(at)).with_lease(MINUTE).with_retention(match self {
            Expiring => short.with_tombstone_forever(),
            Forgotten => short.with_tombstone(MINUTE),
            Retained | Unknown | Retryable | Held | Reserved => Retention::forever(),
        })
    }

    fn settle(self, at: usize, claim: Claim) {
        let claim = claim.with_external_reference(&self.name(at));
        match self {
            Retained | Expiring | Forgotten => drop(claim.succeed_raw(self.response(at)).unwrap()),
            Unknown => drop(claim.give_up("lost").unwrap()),
            Retryable => drop(claim.fail_retryable("busy", Retry::after(30 * DAY)).unwrap()),
            Held | Reserved => unreachable!("held to the end"),
        }
    }

    fn response(self, at: usize) -> Vec<u8> {
        self.name(at).into_bytes().into_iter().cycle().take(RESPONSE_BYTES).collect()
    }

    /// What is told a day later.
    fn check(self, at: usize, store: &Store) {
        let (name, operation) = (self.name(at), self.operation(at));
        match self {
            Retained => {
                let told = replay(store, &operation);
                assert_eq!(told.value().unwrap(), self.response(at));
                assert_eq!(told.external_reference(), Some(name.as_str()));
            }
            Expiring => assert_eq!(expired(store, &operation).external_reference(), Some(name.as_str())),
            Forgotten => assert!(store.get(key(&name)).unwrap().is_none(), "{name}"),
            Unknown => assert_eq!(unknown(store, &operation).external_reference(), Some(name.as_str())),
            Held => assert_eq!(unknown(store, &operation).attempt(), 1),
            Retryable => assert_eq!(retry_later(store, &operation).failure().unwrap().message(), "busy"),
            Reserved => assert_eq!(status(store, &name), Status::FailedRetryable),
        }
    }
}

/// A store with all that can be settled, the kinds among one another.
fn filled() -> World {
    let world = World::new();
    let store = world.open();
    std::thread::scope(|scope| {
        for kind in FILLED {
            let store = &store;
            scope.spawn(move || (0..RECORDS).for_each(|at| kind.settle(at, execute(store, &kind.operation(at)))));
        }
    });
    store.close().unwrap();
    world
}

fn copy(of: &World) -> World {
    let world = World::new();
    std::fs::copy(of.path(), world.path()).unwrap();
    world
}

/// Sweeps or compacts a day later, and says all along that it is still on it.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    die_of_any_panic();
    let [what, recovery] = task.words();
    let store = task.world.options().with_recovery(recovery_of(recovery)).open(task.world.path()).unwrap();
    let operations: Vec<_> = (0..HELD).map(|at| Held.operation(at)).collect();
    let held = store.begin_many(&operations).unwrap();
    let reserved: Vec<_> = (0..HELD).map(|at| reserve(&store, &Reserved.operation(at))).collect();
    task.world.clock.advance(DAY);
    if what == "sweep" {
        while store.sweep(5).unwrap().more {
            say("swept");
        }
    } else {
        store.sweep(1_000_000).unwrap();
        let (is_heard, is_done) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                say("compacting");
                is_heard.wait();
                while !is_done.load(Ordering::Relaxed) {
                    std::thread::park_timeout(Duration::from_micros(20));
                    say("compacting");
                }
            });
            is_heard.wait();
            while store.compact().unwrap() {}
            is_done.store(true, Ordering::Relaxed);
        });
    }
    park("done");
    drop((held, reserved));
}

/// Kills a child at many moments of its work, found by the lines it says, and looks at what it leaves each time.
fn killed_while(what: &str) {
    let filled = filled();
    let mut dice = Dice::fresh();
    let world = copy(&filled);
    let mut undisturbed = Child::start(module_path!(), &world, format!("{what} scan"));
    let lines = std::iter::from_fn(|| undisturbed.hear().filter(|line| line != "done")).count();
    assert!(lines > 0, "it is over before it is heard of");

    let mut cut_short = 0;
    let mut rounds = 0;
    // Under load the undisturbed child may have said much more than the others will: go on until a kill came in time.
    while rounds < ROUNDS || cut_short == 0 && rounds < 20 * ROUNDS {
        let round = rounds;
        rounds += 1;
        let recovery = ["scan", "quick"][round % 2];
        let world = copy(&filled);
        let mut child = Child::start(module_path!(), &world, format!("{what} {recovery}"));
        let is_done = |line: String| line == "done";
        let at_most = 1 + dice.below(lines);
        let was_done = std::iter::from_fn(|| child.hear()).take(1 + dice.below(at_most)).any(is_done);
        child.kill();
        // What it had said by then and nobody had heard.
        let was_done = was_done || std::iter::from_fn(|| child.hear()).any(is_done);
        cut_short += usize::from(!was_done);

        world.clock.advance(DAY);
        let store = world.options().with_recovery(recovery_of(recovery)).open(world.path()).unwrap();
        nothing_is_lost(&store);
        let store = world.reopen(store);
        while store.sweep(1000).unwrap().more {}
        store.compact().unwrap();
        nothing_is_lost(&store);
        // Only what was to go is gone.
        let stats = store.stats().unwrap();
        let (settled, unsettled) = (RECORDS as u64, (RECORDS + HELD) as u64);
        assert_eq!((stats.succeeded, stats.tombstones), (settled, settled));
        assert_eq!((stats.unknown, stats.failed_retryable), (unsettled, unsettled));
    }
    println!("{what}: {cut_short} of {rounds} rounds were cut short");
    assert!(cut_short > 0, "no kill came in time");
}

fn nothing_is_lost(store: &Store) {
    for kind in FILLED {
        (0..RECORDS).for_each(|at| kind.check(at, store));
    }
    for kind in [Held, Reserved] {
        (0..HELD).for_each(|at| kind.check(at, store));
    }
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn nothing_is_lost_by_a_kill_during_a_sweep() {
    killed_while("sweep");
}

#[test]
fn nothing_is_lost_by_a_kill_during_a_compaction() {
    killed_while("compact");
}
