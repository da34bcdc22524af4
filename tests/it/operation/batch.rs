//! Several operations in one commit: all or nothing, and told apart.

use dupeproof::{Begin, ErrorKind, FailureReport, Response, Retry, Settlement, Status, Store, UnknownCause};

use crate::support::*;

#[test]
fn batch_answers_in_order_and_a_key_that_comes_twice_runs_once() {
    let world = World::new();
    let store = world.open();
    for (name, status) in
        [("settled", Status::Succeeded), ("lost", Status::Unknown), ("later", Status::FailedRetryable)]
    {
        bring_to(&world, &store, name, status);
    }
    let batch = ["new", "settled", "new", "lost", "later", "other"].map(operation);
    let batch = [batch.as_slice(), &[altered("new"), altered("settled")]].concat();
    let answers = store.begin_many(&batch).unwrap();
    let [
        Begin::Execute(new),
        Begin::Replay(_),
        Begin::InProgress(_),
        Begin::Unknown(_),
        Begin::RetryLater(_),
        Begin::Execute(other),
        Begin::Conflict(_),
        Begin::Conflict(_),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}");
    };
    assert_eq!((new.key(), new.attempt()), (&key("new"), 1));
    assert_eq!((other.key(), other.attempt()), (&key("other"), 1));
    assert!(new.fencing_token() < other.fencing_token());
    new.succeed_raw("done").unwrap();
    other.succeed_raw("done").unwrap();
    world.now_and_reopened(store, |store| {
        assert!(store.begin_many(&batch[..2]).unwrap().iter().all(|answer| matches!(answer, Begin::Replay(_))));
    });
}

#[test]
fn thousand_copies_of_one_key_in_one_batch_are_one_claim() {
    let world = World::new();
    let store = world.open();
    let answers = store.begin_many(&vec![operation("a"); 1000]).unwrap();
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Begin::Execute(_))).count(), 1);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Begin::InProgress(_))).count(), 999);
    assert_eq!(store.stats().unwrap().executing, 1);
}

#[test]
fn batch_with_one_bad_operation_begins_none() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("before")).release().unwrap();
    let before = world.bytes();
    let error = store.begin_many(&[operation("a"), operation("b").with_attempts(0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = store.begin_many(&vec![operation("a"); 1001]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(store.begin_many(&[]).unwrap().is_empty());
    assert!(store.get(key("a")).unwrap().is_none());
    assert!(world.bytes() == before);
}

#[test]
fn claims_of_a_dropped_batch_are_unknown_each() {
    let world = World::new();
    let store = world.open();
    drop(store.begin_many(&["a", "b"].map(operation)).unwrap());
    after_drops(&store);
    for name in ["a", "b"] {
        assert_eq!(unknown(&store, &operation(name)).cause(), UnknownCause::ClaimDropped);
    }
}

/// What settling "first" with `settlement`, while "second" is begun, leaves of it.
fn settled(settlement: Settlement) -> (World, Store) {
    let world = World::new();
    let store = world.open();
    let first = execute(&store, &operation("first"));
    let next = first.settle_and_begin(settlement, &operation("second")).unwrap();
    let Begin::Execute(second) = next else { panic!("{next:?}") };
    // It is settled: dropping it says nothing more.
    drop(first);
    after_drops(&store);
    assert_eq!((second.key(), second.attempt()), (&key("second"), 1));
    second.succeed_raw("two").unwrap();
    let store = world.reopen(store);
    assert_eq!(replay(&store, &operation("second")).value().unwrap(), b"two");
    assert!(store.verify().unwrap().is_clean());
    (world, store)
}

#[test]
fn one_commit_settles_and_begins() {
    let (_world, store) = settled(Settlement::Succeeded("one".into()));
    assert_eq!(replay(&store, &operation("first")).value().unwrap(), b"one");
    let (_world, store) = settled(Settlement::Succeeded(Response::Absent));
    assert_eq!(replay(&store, &operation("first")).raw(), &Response::Absent);
    let (_world, store) = settled(Settlement::FailedTerminal(FailureReport::new("declined")));
    assert_eq!(replay(&store, &operation("first")).failure().unwrap().message(), "declined");
    let (_world, store) = settled(Settlement::FailedRetryable(FailureReport::new("busy"), Retry::after(HOUR)));
    assert_eq!(retry_later(&store, &operation("first")).wait(), HOUR);
    let (_world, store) = settled(Settlement::GaveUp(FailureReport::new("lost")));
    assert_eq!(unknown(&store, &operation("first")).failure().unwrap().message(), "lost");
    let (_world, store) = settled(Settlement::Released);
    assert_eq!(execute(&store, &operation("first")).attempt(), 2);
}

#[test]
fn settlement_stands_whatever_the_next_operation_is_told() {
    for status in STATUSES {
        let world = World::new();
        let store = world.open();
        let held = bring_to(&world, &store, "next", status);
        let view = get(&store, "next");
        let first = execute(&store, &operation("first"));
        let told = first.settle_and_begin(Settlement::Succeeded("one".into()), &altered("next")).unwrap();
        assert!(matches!(told, Begin::Conflict(_)), "{status}: {told:?}");
        assert_eq!(replay(&store, &operation("first")).value().unwrap(), b"one");
        assert_eq!(get(&store, "next"), view);
        drop(held);
    }
}

#[test]
fn next_may_be_the_operation_that_is_settled() {
    let world = World::new();
    let store = world.open();
    let first = execute(&store, &operation("a"));
    let busy = Settlement::FailedRetryable(FailureReport::new("busy"), Retry::now());
    let Begin::Execute(second) = first.settle_and_begin(busy, &operation("a")).unwrap() else { panic!() };
    assert_eq!(second.attempt(), 2);
    assert!(first.fencing_token() < second.fencing_token());
    let told = second.settle_and_begin(Settlement::Succeeded("ok".into()), &operation("a")).unwrap();
    assert!(matches!(told, Begin::Replay(replay) if replay.value().unwrap() == b"ok"));
}

#[test]
fn refused_settlement_begins_nothing() {
    let world = World::new();
    let store = world.open();
    let first = execute(&store, &operation("first"));
    first.succeed_raw("one").unwrap();
    let before = world.bytes();
    let declined = Settlement::FailedTerminal(FailureReport::new("declined"));
    let error = first.settle_and_begin(declined, &operation("next")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadySettled);
    let error = first.settle_and_begin(Settlement::Succeeded("one".into()), &operation("next").with_attempts(0));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(store.get(key("next")).unwrap().is_none());
    assert!(world.bytes() == before);
}

#[test]
fn next_operation_out_of_bounds_leaves_the_claim_to_be_settled() {
    let world = World::new();
    let store = world.open();
    let first = execute(&store, &operation("first"));
    let error = first.settle_and_begin(Settlement::Succeeded("one".into()), &operation("next").with_attempts(0));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(status(&store, "first"), Status::Executing);
    first.succeed_raw("one").unwrap();
}

#[test]
fn queue_loop_of_chained_operations_runs_each_once() {
    let world = World::new();
    let store = world.open();
    let mut claim = execute(&store, &operation("0"));
    for at in 1..50 {
        let done = Settlement::Succeeded(claim.key().key().into());
        let Begin::Execute(next) = claim.settle_and_begin(done, &operation(&at.to_string())).unwrap() else { panic!() };
        claim = next;
    }
    claim.succeed_raw("49").unwrap();
    world.now_and_reopened(store, |store| {
        for at in 0..50 {
            let told = replay(store, &operation(&at.to_string()));
            assert_eq!((told.attempt(), told.value().unwrap()), (1, at.to_string().as_bytes()));
        }
    });
}
