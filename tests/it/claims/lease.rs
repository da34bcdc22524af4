//! Leases: renewed while the claim is held, never beyond what one execution may take, and over at their instant.

use std::time::Duration;

use dupeproof::{ErrorKind, Status};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

/// How long the lease of "a" still runs.
fn lease_left(store: &dupeproof::Store) -> Duration {
    in_progress(store, &operation("a")).lease_left()
}

#[test]
fn lease_is_over_at_its_instant_and_not_before() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(MINUTE).with_max_execution(MINUTE));
    assert_eq!(lease_left(&store), MINUTE);
    world.clock.advance(MINUTE - Duration::from_millis(1));
    assert!(claim.is_current());
    assert_eq!(lease_left(&store), Duration::from_millis(1));
    world.clock.advance(Duration::from_millis(1));
    assert!(!claim.is_current());
    assert_eq!(claim.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
    unknown(&store, &operation("a"));
}

#[test]
fn heartbeat_renews_from_now() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    for _ in 0..10 {
        world.clock.advance(50 * SECOND);
        claim.heartbeat().unwrap();
        assert_eq!(lease_left(&store), MINUTE);
        assert!(claim.is_current());
    }
    let reservation = reserve(&store, &operation("b"));
    world.clock.advance(50 * SECOND);
    reservation.heartbeat().unwrap();
    world.clock.advance(50 * SECOND);
    assert!(reservation.is_current());
    reservation.start().unwrap().succeed_raw("ok").unwrap();
}

#[test]
fn no_renewal_reaches_beyond_the_longest_execution() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(MINUTE).with_max_execution(90 * SECOND));
    world.clock.advance(50 * SECOND);
    claim.heartbeat().unwrap();
    assert_eq!(lease_left(&store), 40 * SECOND);
    world.clock.advance(39 * SECOND);
    claim.heartbeat().unwrap();
    assert_eq!(lease_left(&store), SECOND);
    assert!(claim.is_current());
    world.clock.advance(SECOND);
    assert!(!claim.is_current());
    assert_eq!(claim.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
    unknown(&store, &operation("a"));
    claim.succeed_raw("late, and true").unwrap();
}

#[test]
fn start_of_a_reservation_does_not_renew_its_lease() {
    let world = World::new();
    let store = world.open();
    let short = operation("a").with_lease(MINUTE).with_max_execution(MINUTE);
    let reservation = reserve(&store, &short);
    world.clock.advance(50 * SECOND);
    let claim = reservation.start().unwrap();
    assert_eq!(lease_left(&store), 10 * SECOND);
    world.clock.advance(10 * SECOND);
    unknown(&store, &operation("a"));
    drop(claim);
}

/// The engine renews at a third of the lease. The clock is moved by the test, the engine looks at it by itself.
#[test]
fn held_claim_outlives_many_leases_without_a_word() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(50 * Duration::from_millis(1)));
    let reservation = reserve(&store, &operation("b").with_lease(50 * Duration::from_millis(1)));
    for _ in 0..10 {
        world.clock.advance(Duration::from_millis(20));
        for name in ["a", "b"] {
            let full = || in_progress(&store, &operation(name)).lease_left() == Duration::from_millis(50);
            eventually(full);
        }
    }
    assert!(claim.is_current());
    assert!(reservation.is_current());
    // Once settled, nobody renews it any more, and nothing is left to renew.
    claim.succeed_raw("ok").unwrap();
    reservation.release().unwrap();
    world.clock.advance(HOUR);
    assert!(replay(&store, &operation("a")).is_success());
}

#[test]
fn renewal_that_failed_reaches_the_holder() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(Duration::from_millis(50)));
    // The machine slept through the lease.
    world.clock.advance(HOUR / 2);
    assert!(!claim.is_current());
    unknown(&store, &operation("a"));
    eventually(|| claim.heartbeat().is_err_and(|error| error.kind() == ErrorKind::LeaseLost));
    assert!(!claim.is_current());
}

#[test]
fn settled_claim_is_no_longer_current() {
    for settle in super::settle::ALL {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        assert!(claim.is_current());
        settle.by(&claim).unwrap();
        assert!(!claim.is_current(), "{settle:?}");
    }
}

#[test]
fn lease_left_of_a_reopened_store_is_none() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(7 * DAY).with_max_execution(30 * DAY));
    let store = world.reopen(store);
    // The lock of the file proves that the owner cannot write any more: nobody waits a week for it.
    unknown(&store, &operation("a"));
    assert_eq!(get(&store, "a").lease_until, None);
    assert_eq!(status(&store, "a"), Status::Unknown);
    drop(claim);
}

/// Store time counts whole milliseconds from where the store was opened, and a claim once counted them from elsewhere:
/// for a part of a millisecond it said that it was current, and the store that its outcome was unknown.
#[test]
fn claim_is_never_current_when_its_lease_is_over_between_two_milliseconds() {
    let micros = Duration::from_micros;
    for (opened_at, begun_after) in [(0, 0), (500, 900), (900, 500), (999, 1), (1, 999), (300, 1300)] {
        let world = World::new();
        world.clock.advance(micros(opened_at));
        let store = world.open();
        world.clock.advance(micros(begun_after));
        let claim = execute(&store, &operation("a").with_lease(SECOND).with_max_execution(SECOND));
        world.clock.advance(SECOND - micros(2500));
        assert!(claim.is_current());
        for _ in 0..50 {
            world.clock.advance(micros(100));
            let is_over = status(&store, "a") == Status::Unknown;
            assert!(!(is_over && claim.is_current()), "opened at {opened_at}, begun {begun_after} after");
        }
        assert!(!claim.is_current());
    }
}
