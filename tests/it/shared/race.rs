//! Two processes race over a thousand keys, and one of them is killed half-way: no key is run twice, and none is lost.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dupeproof::{Begin, Claim, Reserve, Status, Store};

use super::open;
use crate::support::child::{Child, Task, die_of_any_panic, park, say};
use crate::support::ledger::{Ledger, Told, deliver, perform, resolve_by};
use crate::support::*;

/// With those that the other process holds when it is killed, a thousand.
const KEYS: usize = 998;
const WORKERS: usize = 4;
/// Wins of the other process before this one joins in.
const HEAD_START: usize = 10;

/// Runs what it can of some keys, in the same order as the other process. `each` is told of every key, and whether it
/// ran here.
fn run_all(store: &Store, ledger: &Ledger, keys: Range<usize>, each: impl Fn(String, bool) + Sync) {
    let each = &each;
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let mine = keys.clone().skip(worker).step_by(WORKERS);
            scope.spawn(move || {
                for at in mine {
                    let name = at.to_string();
                    let claim = if at % 2 == 0 { begun(store, &name) } else { reserved_and_started(store, &name) };
                    let is_won = claim.is_some();
                    if let Some(claim) = claim {
                        perform(ledger, claim);
                    }
                    each(name, is_won);
                }
            });
        }
    });
}

fn begun(store: &Store, name: &str) -> Option<Claim> {
    match store.begin(&operation(name)).unwrap() {
        Begin::Execute(claim) => Some(claim),
        Begin::InProgress(_) | Begin::Replay(_) => None,
        other => panic!("{other:?}"),
    }
}

fn reserved_and_started(store: &Store, name: &str) -> Option<Claim> {
    match store.reserve(&operation(name)).unwrap() {
        Reserve::Reserved(reservation) => Some(reservation.start().unwrap()),
        Reserve::InProgress(_) | Reserve::Replay(_) => None,
        other => panic!("{other:?}"),
    }
}

/// The other process, which is killed while it runs.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    die_of_any_panic();
    let [from, to] = task.words().map(|at| at.parse().unwrap());
    let store = open(&task.world);
    let held = begun(&store, "held");
    let reserved = store.reserve(&operation("reserved")).unwrap();
    run_all(&store, &task.world.ledger(), from..to, |name, is_won| {
        if is_won {
            say(name);
        }
    });
    park("all are run");
    drop((held, reserved));
}

/// Races another process over all keys, which in each of its lives has its share of them, and is killed when this one
/// has been through half of it.
fn race(lives: usize) {
    let world = World::new();
    let (store, ledger) = (open(&world), world.ledger());
    let won = Mutex::new(Vec::new());
    let share = KEYS.div_ceil(lives);
    for from in (0..KEYS).step_by(share) {
        let to = KEYS.min(from + share);
        let other = Mutex::new(Child::start(module_path!(), &world, format!("{from} {to}")));
        for _ in 0..HEAD_START {
            assert!(other.lock().unwrap().hear().is_some());
        }
        let seen = AtomicUsize::new(0);
        run_all(&store, &ledger, from..to, |name, is_won| {
            if is_won {
                won.lock().unwrap().push(name);
            }
            if seen.fetch_add(1, Ordering::Relaxed) == (to - from) / 2 {
                other.lock().unwrap().kill();
            }
        });
    }
    let won = won.into_inner().unwrap();
    every_key_is_run_once(&world, store, &won);
}

fn every_key_is_run_once(world: &World, store: Store, won: &[String]) {
    let ledger = world.ledger();
    let effects = ledger.effects();
    assert!(effects.values().all(|attempts| attempts.len() == 1), "a key was run twice: {effects:?}");
    assert!(won.iter().all(|name| status(&store, name) == Status::Succeeded && effects.contains_key(name)));
    assert!(won.len() < effects.len(), "the other process won nothing");
    assert!(!won.is_empty(), "the other process won everything");

    // What the killed process held is over with its leases.
    assert_eq!(status(&store, "held"), Status::Executing);
    assert_eq!(status(&store, "reserved"), Status::Reserved);
    world.clock.advance(HOUR);
    assert_eq!(status(&store, "held"), Status::Unknown);
    assert_eq!(status(&store, "reserved"), Status::FailedRetryable);
    let names: Vec<_> = (0..KEYS).map(|at| at.to_string()).chain(["held".into(), "reserved".into()]).collect();
    let mut unknown = Vec::new();
    for name in &names {
        match (status(&store, name), ledger.effect(name)) {
            (Status::Unknown, _) => unknown.push(name),
            (Status::Succeeded, Some(_)) | (Status::FailedRetryable, None) => {}
            (status, effect) => panic!("{name} is {status}, and of effects there is {effect:?}"),
        }
    }
    println!("won here: {}, there: {}, cut off: {}", won.len(), effects.len() - won.len(), unknown.len());

    unknown.into_iter().for_each(|name| resolve_by(&ledger, &store, name));
    for name in &names {
        assert!(matches!(deliver(&store, &ledger, &operation(name)), Told::Ran | Told::Replayed), "{name}");
    }
    world.throughout(store, |store| {
        assert!(names.iter().all(|name| deliver(store, &ledger, &operation(name)) == Told::Replayed));
        let effects = ledger.effects();
        assert_eq!(effects.len(), names.len());
        assert!(effects.values().all(|attempts| attempts.len() == 1));
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn thousand_keys_are_run_once_each_by_two_processes_of_which_one_is_killed_half_way() {
    race(1);
}

#[test]
fn thousand_keys_are_run_once_each_though_the_other_process_is_killed_twenty_times() {
    race(20);
}
