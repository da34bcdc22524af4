//! One file and a hundred kills at random moments: several workers in a process, and after each kill a look at what the
//! provider and the store say.

use std::time::Duration;

use dupeproof::{Begin, Options, Reserve, Retry, Status, Store};

use super::recovery_of;
use crate::support::child::{Child, Task, die_of_any_panic, hear, say};
use crate::support::dice::Dice;
use crate::support::ledger::{Ledger, Told, check_receipt, deliver, perform, receipt, reference, resolve_by};
use crate::support::*;

/// Another number of kills.
const KILLS: &str = "DUPEPROOF_SOAK_KILLS";
const KILLS_DEFAULT: usize = 100;
/// Keys that are new in each life of the process.
const KEYS_PER_LIFE: usize = 20;
const WORKERS: u64 = 4;

fn open(world: &World, recovery: &str) -> Store {
    let options = Options::new().with_sweep_every(Duration::from_millis(10));
    options.with_recovery(recovery_of(recovery)).open(world.path()).unwrap()
}

/// Workers who deliver messages until they are killed.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    die_of_any_panic();
    let [recovery, seed, keys] = task.words();
    let (seed, keys): (u64, usize) = (seed.parse().unwrap(), keys.parse().unwrap());
    let store = open(&task.world, recovery);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (store, ledger) = (&store, task.world.ledger());
            scope.spawn(move || {
                let mut dice = Dice::of(seed.wrapping_add(worker));
                loop {
                    // Mostly what is new, at times what is old.
                    let among = if dice.below(4) == 0 { keys } else { 2 * KEYS_PER_LIFE };
                    let name = (keys - 1 - dice.below(among.min(keys))).to_string();
                    work(store, &ledger, &name, &mut dice);
                    say(name);
                }
            });
        }
        // Ends them all if the parent is gone.
        hear();
    });
}

/// One delivery, which goes one of the ways that deliveries go.
fn work(store: &Store, ledger: &Ledger, name: &str, dice: &mut Dice) {
    let operation = operation(name);
    let begun = if dice.below(2) == 0 {
        store.begin(&operation).unwrap()
    } else {
        match store.reserve(&operation).unwrap() {
            Reserve::Reserved(reservation) => match dice.below(4) {
                0 => return reservation.release().unwrap(),
                1 => return drop(reservation),
                _ => Begin::Execute(reservation.start().unwrap()),
            },
            Reserve::Replay(replay) => Begin::Replay(replay),
            _ => return,
        }
    };
    let claim = match begun {
        Begin::Execute(claim) => claim,
        Begin::Replay(replay) => return check_receipt(&replay, name),
        Begin::InProgress(_) | Begin::RetryLater(_) | Begin::Unknown(_) => return,
        Begin::Conflict(_) | Begin::Expired(_) => panic!("{name}: {begun:?}"),
    };
    match dice.below(9) {
        0 => drop(claim.fail_retryable("not sent", Retry::now()).unwrap()),
        1 => claim.release().unwrap(),
        2 => drop(claim),
        3 => {
            ledger.perform(&claim);
            drop(claim);
        }
        4 => {
            ledger.perform(&claim);
            claim.give_up("the answer was lost").unwrap();
        }
        5 => {
            claim.checkpoint(b"half-way").unwrap();
            claim.heartbeat().unwrap();
            ledger.perform(&claim);
            claim.record_external_reference(&reference(name)).unwrap();
            claim.succeed_raw(receipt(name)).unwrap();
        }
        _ => perform(ledger, claim),
    }
}

/// What the provider says and what the store says must go together. Returns the keys of unknown outcomes.
fn judge(store: &Store, ledger: &Ledger, keys: usize) -> Vec<String> {
    let effects = ledger.effects();
    let mut unknown = Vec::new();
    for name in (0..keys).map(|key| key.to_string()) {
        let happened = effects.get(&name).map_or(0, Vec::len);
        assert!(happened <= 1, "{name} happened {happened} times");
        match (store.get(key(&name)).unwrap().map(|view| view.status), happened) {
            (Some(Status::Unknown), _) => unknown.push(name),
            (Some(Status::Succeeded), 1) | (Some(Status::FailedRetryable) | None, 0) => {}
            (status, happened) => panic!("{name} happened {happened} times and is {status:?}"),
        }
    }
    let report = store.verify().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    unknown
}

fn soak(recovery: &str) {
    let kills = std::env::var(KILLS).map_or(KILLS_DEFAULT, |kills| kills.parse().expect("a number of kills"));
    let mut dice = Dice::fresh();
    let world = World::new();
    let ledger = world.ledger();
    let (mut keys, mut unknowns) = (0, 0);
    for _ in 0..kills {
        keys += KEYS_PER_LIFE;
        let mut child = Child::start(module_path!(), &world, format!("{recovery} {} {keys}", dice.throw()));
        for _ in 0..dice.below(2 * KEYS_PER_LIFE) {
            assert!(child.hear().is_some(), "the workers work until they are killed");
        }
        child.kill();

        let store = open(&world, recovery);
        let unknown = judge(&store, &ledger, keys);
        unknown.iter().for_each(|name| resolve_by(&ledger, &store, name));
        unknowns += unknown.len();
        store.close().unwrap();
    }
    println!("{kills} kills, {keys} keys, {unknowns} unknown outcomes");

    let store = open(&world, recovery);
    for name in (0..keys).map(|key| key.to_string()) {
        assert!(matches!(deliver(&store, &ledger, &operation(&name)), Told::Ran | Told::Replayed), "{name}");
        assert_eq!(deliver(&store, &ledger, &operation(&name)), Told::Replayed, "{name}");
    }
    assert!(judge(&store, &ledger, keys).is_empty());
    assert_eq!(ledger.effects().len(), keys);
    assert_eq!(store.stats().unwrap().succeeded, keys as u64);
    assert!(unknowns > 0, "no kill and no worker left an unknown outcome");
}

#[test]
fn hundred_kills_cause_no_second_effect_with_scan_recovery() {
    soak("scan");
}

#[test]
fn hundred_kills_cause_no_second_effect_with_quick_recovery() {
    soak("quick");
}
