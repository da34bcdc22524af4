//! Leases in real time: renewed while somebody holds the claim, and not a moment longer than they may be.

use std::time::Duration;

use dupeproof::{ErrorKind, Operation, Options, Status, Store, UnknownCause};

use crate::support::*;

/// So long that a machine under load still renews it in time, which it has two thirds of this to do.
const LEASE: Duration = Duration::from_secs(2);

fn open(world: &World) -> Store {
    Options::new().open(world.path()).unwrap()
}

fn brief(name: &str) -> Operation {
    operation(name).with_lease(LEASE)
}

#[test]
fn held_claim_stays_in_progress_beyond_its_first_lease() {
    let world = World::new();
    let store = open(&world);
    let claim = execute(&store, &brief("a"));
    let reservation = reserve(&store, &brief("b"));
    let lease_until = |name| get(&store, name).lease_until.expect("it is held");
    let first = ["a", "b"].map(lease_until);
    eventually(|| {
        in_progress(&store, &brief("a"));
        in_progress(&store, &brief("b"));
        ["a", "b"].map(lease_until).iter().zip(first).all(|(now, first)| now.since(first) > LEASE)
    });
    assert!(claim.is_current());
    claim.succeed_raw("receipt").unwrap();
    reservation.start().unwrap().succeed_raw("receipt").unwrap();
}

#[test]
fn claim_is_renewed_up_to_the_longest_execution_and_is_unknown_from_then_on() {
    let world = World::new();
    let store = open(&world);
    // No renewal ends there by itself.
    let longest = LEASE * 2 + LEASE / 5;
    let claim = execute(&store, &brief("a").with_max_execution(longest));
    eventually(|| status(&store, "a") == Status::Unknown);
    let view = get(&store, "a");
    let (since, cause) = view.unknown.unwrap();
    assert_eq!(cause, UnknownCause::LeaseLapsed);
    let held_for = since.since(view.created_at);
    assert!(LEASE < held_for && held_for <= longest, "{held_for:?}");

    assert!(!claim.is_current());
    assert_eq!(claim.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
    unknown(&store, &brief("a"));
    claim.succeed_raw("late, and true").unwrap();
    assert!(replay(&store, &brief("a")).is_success());
}

#[test]
fn dropped_claim_is_renewed_no_more() {
    let world = World::new();
    let store = open(&world);
    let claim = execute(&store, &brief("a"));
    let until = get(&store, "a").lease_until.unwrap();
    drop(claim);
    after_drops(&store);
    let dropped = get(&store, "a");
    assert_eq!(dropped.unknown.unwrap().1, UnknownCause::ClaimDropped);
    eventually(|| store.stats().unwrap().now > until);
    assert_eq!(get(&store, "a"), dropped);
}
