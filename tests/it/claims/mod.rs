//! Claims: who may write, for how long, and what their last word does.

mod lease;
mod reference;
mod settle;
pub mod stale;

use dupeproof::{Claim, Reservation, Status, Store};

use crate::support::*;

#[test]
fn claims_move_between_threads_and_stores_are_shared_by_them() {
    fn moves<T: Send + 'static>() {}
    fn shared<T: Clone + Send + Sync + 'static>() {}
    moves::<Claim>();
    moves::<Reservation>();
    moves::<dupeproof::Begin>();
    moves::<dupeproof::Error>();
    shared::<Store>();
    shared::<dupeproof::Options>();
    shared::<dupeproof::Operation>();
    shared::<dupeproof::Replay>();
}

#[test]
fn claim_can_be_settled_by_another_thread() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    std::thread::scope(|scope| drop(scope.spawn(move || claim.succeed_raw("ok").unwrap())));
    assert_eq!(replay(&store, &operation("a")).value().unwrap(), b"ok");
}

#[test]
fn fencing_tokens_ascend_over_attempts_reopenings_and_purges() {
    let world = World::new();
    let mut store = world.open();
    let mut tokens = Vec::new();
    for round in 0..4 {
        let short =
            operation("a").with_retention(dupeproof::Retention::default().with_response(MINUTE).with_tombstone(MINUTE));
        for _ in 0..3 {
            let claim = execute(&store, &short);
            tokens.push(claim.fencing_token());
            claim.release().unwrap();
        }
        let claim = execute(&store, &short);
        tokens.push(claim.fencing_token());
        claim.succeed_raw(round.to_string()).unwrap();
        // It is forgotten: the same key is a new operation, and its old holders must not pass for new ones.
        world.clock.advance(HOUR);
        store.sweep(100).unwrap();
        store = world.reopen(store);
    }
    assert_eq!(tokens.len(), 16);
    assert!(tokens.is_sorted_by(|one, next| one < next));
    assert!(tokens.is_sorted_by(|one, next| one.as_u128() < next.as_u128()));
    assert!(tokens.is_sorted_by(|one, next| one.to_string() < next.to_string()), "also as text");
}

#[test]
fn dropped_reservation_is_released_and_dropped_execution_is_unknown() {
    let world = World::new();
    let store = world.open();
    drop(reserve(&store, &operation("reserved")));
    drop(execute(&store, &operation("executing")));
    drop(reserve(&store, &operation("started")).start().unwrap());
    after_drops(&store);
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(status(store, "reserved"), Status::FailedRetryable);
        unknown(store, &operation("executing"));
        unknown(store, &operation("started"));
    });
    assert_eq!(execute(&store, &operation("reserved")).attempt(), 2);
}

#[test]
fn claim_that_is_dropped_after_its_last_word_says_nothing_more() {
    for settle in settle::ALL {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        settle.by(&claim).unwrap();
        let view = get(&store, "a");
        drop(claim);
        after_drops(&store);
        assert_eq!(get(&store, "a"), view, "{settle:?}");
    }
}

#[test]
fn claims_of_a_closed_store_are_over() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let reservation = reserve(&store, &operation("b"));
    store.close().unwrap();
    assert!(!claim.is_current());
    assert!(!reservation.is_current());
    for error in [
        claim.succeed_raw("ok").unwrap_err(),
        claim.heartbeat().unwrap_err(),
        claim.checkpoint(b"x").unwrap_err(),
        reservation.heartbeat().unwrap_err(),
        reservation.start().unwrap_err(),
    ] {
        assert_eq!(error.kind(), dupeproof::ErrorKind::Closed);
    }
    let store = world.open();
    unknown(&store, &operation("a"));
    execute(&store, &operation("b")).release().unwrap();
}
