//! A worker killed at each step: what the hundred repeats of its message are told, and how often the effect happens.

use dupeproof::{Status, Store, UnknownCause};

use super::recovery_of;
use crate::support::child::{Child, Task, park};
use crate::support::ledger::{Told, deliver_100, receipt, reference, resolve_by};
use crate::support::*;

/// The worker, who is killed where it parks.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [point, way, recovery] = task.words();
    let at = |here| {
        if here == point {
            park(here);
        }
    };
    let store = task.world.options().with_recovery(recovery_of(recovery)).open(task.world.path()).unwrap();

    at("opened");
    let claim = if way == "begin" {
        execute(&store, &operation("a"))
    } else {
        let reservation = reserve(&store, &operation("a"));
        at("reserved");
        reservation.start().unwrap()
    };
    at("started");
    task.world.ledger().perform(&claim);
    at("performed");
    claim.record_external_reference(&reference("a")).unwrap();
    at("referred");
    claim.succeed_raw(receipt("a")).unwrap();
    at("settled");
}

/// Looks at what a worker leaves that is killed at the point, however it begins and however the store recovers.
fn killed_at(point: &str, look: impl Fn(&World, Store)) {
    for way in ["reserve", "begin"].into_iter().filter(|way| point != "reserved" || *way == "reserve") {
        for recovery in ["scan", "quick"] {
            let world = World::new();
            let mut worker = Child::start(module_path!(), &world, format!("{point} {way} {recovery}"));
            worker.expect(point);
            worker.kill();
            look(&world, world.open());
        }
    }
}

/// No repeat runs, however often and after whatever reopening it comes.
fn nobody_knows(world: &World, store: Store, effect: Option<u32>) -> Store {
    world.throughout(store, |store| {
        assert_eq!(deliver_100(store, &world.ledger(), "a"), [(Told::Unknown, 100)]);
        assert_eq!(unknown(store, &operation("a")).cause(), UnknownCause::OwnerGone);
        assert_eq!((get(store, "a").attempts, world.ledger().effect("a")), (1, effect));
        assert!(store.verify().unwrap().is_clean());
    })
}

/// Of a hundred repeats the first runs, as the given attempt.
fn one_runs(world: &World, store: Store, attempt: u32) {
    assert_eq!(deliver_100(&store, &world.ledger(), "a"), [(Told::Ran, 1), (Told::Replayed, 99)]);
    all_are_replayed(world, store, attempt);
}

fn all_are_replayed(world: &World, store: Store, attempt: u32) {
    world.throughout(store, |store| {
        assert_eq!(deliver_100(store, &world.ledger(), "a"), [(Told::Replayed, 100)]);
        assert_eq!(world.ledger().effect("a"), Some(attempt));
        assert_eq!(get(store, "a").attempts, attempt);
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn worker_killed_before_it_reserves_has_done_nothing_and_one_repeat_runs() {
    killed_at("opened", |world, store| {
        assert!(store.get(key("a")).unwrap().is_none());
        one_runs(world, store, 1);
    });
}

#[test]
fn worker_killed_with_a_reservation_has_started_nothing_and_one_repeat_runs() {
    killed_at("reserved", |world, store| {
        let store = world.throughout(store, |store| assert_eq!(status(store, "a"), Status::FailedRetryable));
        one_runs(world, store, 2);
    });
}

#[test]
fn worker_killed_after_the_start_leaves_an_unknown_outcome_until_the_provider_was_asked() {
    killed_at("started", |world, store| {
        let store = nobody_knows(world, store, None);
        resolve_by(&world.ledger(), &store, "a");
        let store = world.throughout(store, |store| assert_eq!(status(store, "a"), Status::FailedRetryable));
        one_runs(world, store, 2);
    });
}

#[test]
fn worker_killed_after_the_effect_leaves_an_unknown_outcome_until_the_provider_was_asked() {
    killed_at("performed", |world, store| {
        let store = nobody_knows(world, store, Some(1));
        resolve_by(&world.ledger(), &store, "a");
        all_are_replayed(world, store, 1);
    });
}

#[test]
fn reference_recorded_before_the_kill_is_there_to_ask_the_provider_about() {
    killed_at("referred", |world, store| {
        let store = nobody_knows(world, store, Some(1));
        assert_eq!(unknown(&store, &operation("a")).external_reference(), Some(reference("a").as_str()));
        resolve_by(&world.ledger(), &store, "a");
        all_are_replayed(world, store, 1);
    });
}

#[test]
fn worker_killed_after_settling_is_replayed_to_every_repeat() {
    killed_at("settled", |world, store| all_are_replayed(world, store, 1));
}
