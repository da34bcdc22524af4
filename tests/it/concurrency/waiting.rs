//! Those who wait for another's execution: told how it ended, or given their turn.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dupeproof::{Begin, Claim, Replay, Retry, Store, UnknownCause, Verdict};

use super::{THREADS, at_once, waiting};
use crate::support::*;

#[test]
fn those_who_wait_get_the_replay_of_the_one_who_runs() {
    let world = World::new();
    let store = world.open();
    let told: Vec<Replay> = at_once(THREADS, |at| match store.begin(&waiting("a")).unwrap() {
        Begin::Execute(claim) => claim.succeed_raw(format!("receipt of thread {at}")).unwrap(),
        Begin::Replay(replay) => replay,
        other => panic!("{other:?}"),
    });
    assert!(told.iter().all(|replay| *replay == told[0]));
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &operation("a")), told[0]));
}

/// What somebody is told who waits for a claim on "a" that ends as `end` says.
fn waiter_of(end: impl FnOnce(&World, &Store, Claim)) -> Begin {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_max_execution(MINUTE));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.begin(&waiting("a")).unwrap());
        end(&world, &store, claim);
        waiter.join().unwrap()
    })
}

#[test]
fn waiter_is_told_how_the_claim_ended() {
    let told = waiter_of(|_, _, claim| drop(claim.succeed_raw("receipt").unwrap()));
    assert!(matches!(told, Begin::Replay(replay) if replay.value().unwrap() == b"receipt"));
    let told = waiter_of(|_, _, claim| drop(claim.fail_terminal("declined").unwrap()));
    assert!(matches!(told, Begin::Replay(replay) if !replay.is_success()));
    let told = waiter_of(|_, _, claim| drop(claim.give_up("lost").unwrap()));
    assert!(matches!(told, Begin::Unknown(unknown) if unknown.cause() == UnknownCause::GaveUp));
    let told = waiter_of(|_, _, claim| drop(claim));
    assert!(matches!(told, Begin::Unknown(unknown) if unknown.cause() == UnknownCause::ClaimDropped));
    let told = waiter_of(|_, _, claim| drop(claim.fail_retryable("busy", Retry::after(HOUR)).unwrap()));
    assert!(matches!(told, Begin::RetryLater(_)));
    let told = waiter_of(|world, _, claim| {
        world.clock.advance(MINUTE);
        drop(claim);
    });
    assert!(matches!(told, Begin::Unknown(unknown) if unknown.cause() == UnknownCause::LeaseLapsed));
}

#[test]
fn waiter_runs_if_the_one_before_did_not() {
    let told = waiter_of(|_, _, claim| claim.release().unwrap());
    assert!(matches!(told, Begin::Execute(claim) if claim.attempt() == 2));
    let told = waiter_of(|_, _, claim| drop(claim.fail_retryable("busy", Retry::now()).unwrap()));
    assert!(matches!(told, Begin::Execute(claim) if claim.attempt() == 2));
    let told = waiter_of(|_, store, claim| {
        claim.give_up("lost").unwrap();
        // The waiter may have been told before that it is unknown; then there is nothing more to tell.
        let _ = store.resolve(key("a"), Verdict::DidNotHappen, &decision());
    });
    assert!(matches!(told, Begin::Execute(_) | Begin::Unknown(_)));
}

#[test]
fn waiters_run_one_after_another_and_never_two_at_once() {
    let world = World::new();
    let store = world.open();
    let (running, effects) = (AtomicU32::new(0), AtomicU32::new(0));
    let first = execute(&store, &operation("a"));
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let Begin::Execute(claim) = store.begin(&waiting("a")).unwrap() else { panic!("not its turn") };
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two run at once");
                    effects.fetch_add(1, Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                    claim.release().unwrap();
                })
            })
            .collect();
        first.release().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(effects.load(Ordering::SeqCst), 16);
    assert_eq!(get(&store, "a").attempts, 17);
}

#[test]
fn waiter_whose_time_is_over_is_told_that_it_is_in_progress() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(2 * HOUR).with_max_execution(2 * HOUR));
    assert!(matches!(store.begin(&operation("a").with_wait(Duration::ZERO)).unwrap(), Begin::InProgress(_)));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.begin(&operation("a").with_wait(MINUTE)).unwrap());
        // Moved until it notices: it may begin to wait only now.
        while !waiter.is_finished() {
            world.clock.advance(MINUTE / 60);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert!(matches!(waiter.join().unwrap(), Begin::InProgress(_)));
    });
    claim.succeed_raw("ok").unwrap();
}
