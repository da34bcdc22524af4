//! The provider's own name for an effect, and checkpoints: durable at once, and kept for whoever comes next.

use dupeproof::{Retention, Retry, Status, Verdict};

use crate::support::*;

#[test]
fn reference_survives_into_the_unknown_the_replay_and_the_tombstone() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.record_external_reference("ch_1").unwrap();
    assert_eq!(get(&store, "a").external_reference.as_deref(), Some("ch_1"));
    // The owner dies next: a probe can use it.
    let store = world.reopen(store);
    assert_eq!(unknown(&store, &operation("a")).external_reference(), Some("ch_1"));
    assert_eq!(conflict(&store, &altered("a")).external_reference(), Some("ch_1"));
    store.reattach(claim).unwrap().succeed_raw("receipt").unwrap();
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &operation("a")).external_reference(), Some("ch_1"));
    });
    world.clock.advance(8 * DAY);
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(expired(store, &operation("a")).external_reference(), Some("ch_1"));
        assert_eq!(conflict(store, &altered("a")).external_reference(), Some("ch_1"));
    });
    store.sweep(10).unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!(expired(store, &operation("a")).external_reference(), Some("ch_1"));
    });
}

#[test]
fn last_reference_counts_and_one_at_the_settlement_is_written_with_it() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.record_external_reference("draft").unwrap();
    claim.record_external_reference("ch_1").unwrap();
    assert_eq!(get(&store, "a").external_reference.as_deref(), Some("ch_1"));
    claim.with_external_reference("ch_2").succeed_raw("receipt").unwrap();
    assert_eq!(replay(&store, &operation("a")).external_reference(), Some("ch_2"));
    let claim = execute(&store, &operation("b")).with_external_reference("ch_3");
    assert_eq!(get(&store, "b").external_reference, None, "not before the settlement");
    claim.fail_terminal("declined").unwrap();
    assert_eq!(replay(&store, &operation("b")).external_reference(), Some("ch_3"));
    execute(&store, &operation("c")).with_external_reference("ch_4").give_up("lost").unwrap();
    assert_eq!(unknown(&store, &operation("c")).external_reference(), Some("ch_4"));
}

#[test]
fn reference_of_an_attempt_that_did_not_happen_is_not_that_of_the_next() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.record_external_reference("ch_1").unwrap();
    claim.fail_retryable("refunded", Retry::now()).unwrap();
    assert_eq!(get(&store, "a").external_reference.as_deref(), Some("ch_1"));
    let claim = execute(&store, &operation("a"));
    assert_eq!(get(&store, "a").external_reference, None);
    claim.give_up("lost").unwrap();
    assert_eq!(unknown(&store, &operation("a")).external_reference(), None);
}

#[test]
fn label_of_a_success_that_is_no_reference_is_cut_and_never_costs_the_success() {
    let world = World::new();
    let store = world.open();
    for (name, label, kept) in [
        ("empty", String::new(), None),
        ("long", "é".repeat(600), Some("é".repeat(512))),
        ("lines", "ch\n1".into(), Some("ch\u{fffd}1".into())),
        ("most", "x".repeat(1024), Some("x".repeat(1024))),
    ] {
        let told = execute(&store, &operation(name)).with_external_reference(&label).succeed_raw("receipt").unwrap();
        assert!(told.is_success());
        assert_eq!(told.external_reference(), kept.as_deref(), "{name}");
        assert_eq!(replay(&store, &operation(name)), told);
    }
}

#[test]
fn checkpoint_is_durable_at_once_and_shown() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.checkpoint(b"page 3").unwrap();
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(get(store, "a").checkpoint.as_deref(), Some(b"page 3".as_slice()));
    });
    store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
    let next = execute(&store, &operation("a"));
    assert_eq!(next.last_checkpoint(), Some(b"page 3".as_slice()));
    let largest = vec![7; 64 * 1024];
    next.checkpoint(&largest).unwrap();
    assert_eq!(get(&store, "a").checkpoint, Some(largest));
    drop(claim);
}

#[test]
fn checkpoint_of_a_forgotten_operation_is_forgotten_too() {
    let world = World::new();
    let store = world.open();
    let short = Retention::default().with_response(MINUTE).with_tombstone(MINUTE);
    let claim = execute(&store, &operation("a").with_retention(short));
    claim.checkpoint(b"page 3").unwrap();
    claim.succeed_raw("ok").unwrap();
    world.clock.advance(HOUR);
    let claim = execute(&store, &operation("a"));
    assert_eq!((claim.attempt(), claim.last_checkpoint()), (1, None));
    assert_eq!(status(&store, "a"), Status::Executing);
}
