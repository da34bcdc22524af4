//! Failures of which it is known that the effect did not happen: when the next attempt may start, and when none may.

use std::time::Duration;

use dupeproof::{AfterFailure, Backoff, Begin, ErrorKind, Operation, Retry, Status};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn retryable_failure_waits_until_its_time_and_then_is_a_new_attempt() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let AfterFailure::RetryLater(later) = claim.fail_retryable("no route", Retry::after(10 * SECOND)).unwrap() else {
        panic!("attempts are left");
    };
    assert_eq!((later.attempts(), later.wait()), (1, 10 * SECOND));
    assert_eq!(later.failure().unwrap().message(), "no route");

    world.clock.advance(10 * SECOND - Duration::from_millis(1));
    let store = world.now_and_reopened(store, |store| {
        let later = retry_later(store, &operation("a"));
        assert_eq!((later.attempts(), later.wait()), (1, Duration::from_millis(1)));
        assert_eq!(later.failure().unwrap().message(), "no route");
        assert_eq!(get(store, "a").failure.as_deref(), Some("no route"));
    });

    world.clock.advance(Duration::from_millis(1));
    let claim = execute(&store, &operation("a"));
    assert_eq!(claim.attempt(), 2);
    assert!(!claim.is_resend());
    assert_eq!(claim.key(), &key("a"));
    claim.succeed_raw("ok").unwrap();
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &operation("a")).attempt(), 2));
}

#[test]
fn retry_now_may_run_at_once() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).fail_retryable("busy", Retry::now()).unwrap();
    let store = world.reopen(store);
    assert_eq!(execute(&store, &operation("a")).attempt(), 2);
}

#[test]
fn backoff_doubles_up_to_its_cap() {
    let world = World::new();
    let store = world.open();
    let patient = operation("a").with_backoff(Backoff::exponential(SECOND, 60 * SECOND));
    for attempt in 1..20 {
        let claim = execute(&store, &patient);
        assert_eq!(claim.attempt(), attempt);
        claim.fail_retryable("busy", Retry::backoff()).unwrap();
        let full = (SECOND * (1 << (attempt - 1).min(6))).min(60 * SECOND);
        let wait = retry_later(&store, &patient).wait();
        assert!(full / 2 <= wait && wait <= full, "attempt {attempt} waits {wait:?}");
        world.clock.advance(wait);
    }
}

#[test]
fn callers_that_failed_together_do_not_come_back_together() {
    let world = World::new();
    let store = world.open();
    let waits: std::collections::BTreeSet<Duration> = (0..20)
        .map(|at| {
            let patient = operation(&at.to_string()).with_backoff(Backoff::exponential(HOUR, HOUR));
            execute(&store, &patient).fail_retryable("busy", Retry::backoff()).unwrap();
            retry_later(&store, &patient).wait()
        })
        .collect();
    assert!(waits.len() > 15, "{waits:?}");
}

/// Uses up `attempts` attempts, of which the last one is final.
fn exhaust(attempts: u32) {
    let world = World::new();
    let store = world.open();
    let limited = operation("a").with_attempts(attempts);
    let mut effects = 0;
    while let Begin::Execute(claim) = store.begin(&limited).unwrap() {
        effects += 1;
        let after = claim.fail_retryable("busy", Retry::now()).unwrap();
        assert_eq!(matches!(after, AfterFailure::Exhausted(_)), effects == attempts, "attempt {effects}");
    }
    assert_eq!(effects, attempts);
    world.now_and_reopened(store, |store| {
        let told = replay(store, &limited);
        assert!(told.attempts_exhausted());
        assert!(!told.is_success());
        assert_eq!(told.failure().unwrap().message(), "busy");
        assert_eq!(told.attempt(), attempts);
        assert_eq!(status(store, "a"), Status::FailedTerminal);
        // A more patient caller cannot revive it.
        replay(store, &operation("a").with_attempts(1000));
    });
}

#[test]
fn last_permitted_attempt_makes_the_failure_final() {
    exhaust(1);
    exhaust(2);
    exhaust(7);
}

#[test]
fn effect_that_fails_for_ever_is_tried_a_hundred_times_by_default() {
    let store = dupeproof::Store::in_memory().unwrap();
    let mut effects = 0;
    while let Begin::Execute(claim) = store.begin(&operation("a")).unwrap() {
        effects += 1;
        claim.fail_retryable("busy", Retry::now()).unwrap();
    }
    assert_eq!(effects, 100);
}

#[test]
fn limit_that_was_lowered_meanwhile_ends_with_the_next_failure() {
    let world = World::new();
    let store = world.open();
    for _ in 0..3 {
        execute(&store, &operation("a")).fail_retryable("busy", Retry::now()).unwrap();
    }
    // The fourth attempt is granted, for the failure of the third was not final; under the new terms, its own is.
    let stricter = operation("a").with_attempts(2);
    assert!(matches!(
        execute(&store, &stricter).fail_retryable("busy", Retry::now()).unwrap(),
        AfterFailure::Exhausted(_)
    ));
    assert!(replay(&store, &operation("a")).attempts_exhausted());
}

#[test]
fn crash_loop_counts_its_attempts() {
    let world = World::new();
    let limited = operation("a").with_attempts(3);
    for attempt in 1..=3 {
        let store = world.open();
        let reservation = reserve(&store, &limited);
        assert_eq!(reservation.attempt(), attempt);
        // The process ends before the start; what a crash leaves is the same as what a close leaves of a reservation.
        store.close().unwrap();
    }
    let store = world.open();
    let told = replay(&store, &limited);
    assert!(told.attempts_exhausted());
    assert_eq!(told.attempt(), 3);
}

#[test]
fn released_claim_may_run_at_once_also_at_the_attempt_limit() {
    let world = World::new();
    let store = world.open();
    let limited = operation("a").with_attempts(2);
    for _ in 0..5 {
        execute(&store, &limited).release().unwrap();
        assert_eq!(status(&store, "a"), Status::FailedRetryable);
        reserve(&store, &limited).release().unwrap();
    }
    let store = world.reopen(store);
    execute(&store, &limited).succeed_raw("ok").unwrap();
    assert!(replay(&store, &limited).is_success());
}

/// Every attempt is counted when it is granted, or a loop of grants could go on uncounted.
#[test]
fn released_attempt_stays_counted_towards_the_limit_of_failures() {
    let world = World::new();
    let store = world.open();
    let limited = operation("a").with_attempts(2);
    execute(&store, &limited).release().unwrap();
    let after = execute(&store, &limited).fail_retryable("busy", Retry::now()).unwrap();
    assert!(matches!(after, AfterFailure::Exhausted(_)));
}

#[test]
fn reservation_that_is_started_runs_and_one_that_is_not_costs_nothing() {
    let world = World::new();
    let store = world.open();
    let reservation = reserve(&store, &operation("a"));
    assert_eq!(status(&store, "a"), Status::Reserved);
    assert_eq!(reservation.attempt(), 1);
    assert!(reservation.is_current());
    reservation.heartbeat().unwrap();
    in_progress(&store, &operation("a"));
    let claim = reservation.start().unwrap();
    assert_eq!(status(&store, "a"), Status::Executing);
    claim.succeed_raw("ok").unwrap();
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &operation("a")).attempt(), 1));
}

#[test]
fn reservation_whose_owner_is_gone_can_be_begun_at_once() {
    let world = World::new();
    let store = world.open();
    let reservation = reserve(&store, &operation("a"));
    let store = world.reopen(store);
    assert_eq!(status(&store, "a"), Status::FailedRetryable);
    let claim = execute(&store, &operation("a"));
    assert_eq!(claim.attempt(), 2);
    claim.succeed_raw("ok").unwrap();
    assert!(reservation.start().is_err());
    assert_eq!(replay(&store, &operation("a")).attempt(), 2);
}

#[test]
fn reservation_whose_lease_lapsed_can_be_begun_and_no_longer_started() {
    let world = World::new();
    let store = world.open();
    let reservation = reserve(&store, &operation("a"));
    world.clock.advance(2 * HOUR);
    assert!(!reservation.is_current());
    let claim = execute(&store, &operation("a"));
    assert_eq!(reservation.start().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(claim.attempt(), 2);
    claim.succeed_raw("ok").unwrap();
}

#[test]
fn fresh_downstream_key_comes_only_when_asked_for() {
    let world = World::new();
    let store = world.open();
    let next = |store: &dupeproof::Store| execute(store, &operation("a"));

    let first = next(&store);
    let original = first.downstream_key();
    first.fail_retryable("busy", Retry::now()).unwrap();
    let second = next(&store);
    assert_eq!(second.downstream_key(), original, "after a failure");
    second.release().unwrap();
    let third = next(&store);
    assert_eq!(third.downstream_key(), original, "after a release");
    third.give_up("lost").unwrap();
    assert_eq!(unknown(&store, &operation("a")).downstream_key(), original, "while unknown");
    store.resolve(key("a"), dupeproof::Verdict::DidNotHappen, &decision()).unwrap();
    let store = world.reopen(store);
    let fourth = next(&store);
    assert_eq!(fourth.downstream_key(), original, "after a verdict");

    fourth.fail_retryable("the key is burnt", Retry::now().with_fresh_downstream_key()).unwrap();
    let store = world.reopen(store);
    let fifth = next(&store);
    let fresh = fifth.downstream_key();
    assert_ne!(fresh, original);
    assert_eq!(get(&store, "a").downstream_key, fresh);
    fifth.fail_retryable("busy", Retry::now()).unwrap();
    let sixth = next(&store);
    assert_eq!(sixth.downstream_key(), fresh, "the fresh key stays");
    sixth.fail_retryable("burnt too", Retry::now().with_fresh_downstream_key()).unwrap();
    let seventh = next(&store);
    assert!(![original, fresh].contains(&seventh.downstream_key()));
    assert_eq!(seventh.attempt(), 7);
}

#[test]
fn checkpoint_reaches_the_next_attempt_and_goes_with_the_outcome() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    assert_eq!(claim.last_checkpoint(), None);
    claim.checkpoint(b"page 1").unwrap();
    claim.checkpoint(b"page 2").unwrap();
    assert_eq!(get(&store, "a").checkpoint.as_deref(), Some(b"page 2".as_slice()));
    claim.fail_retryable("busy", Retry::now()).unwrap();
    let store = world.reopen(store);
    let claim = execute(&store, &operation("a"));
    assert_eq!(claim.last_checkpoint(), Some(b"page 2".as_slice()));
    claim.checkpoint(b"").unwrap();
    claim.release().unwrap();
    let claim = execute(&store, &operation("a"));
    assert_eq!(claim.last_checkpoint(), Some(b"".as_slice()), "an empty checkpoint is one");
    claim.succeed_raw("ok").unwrap();
    assert_eq!(get(&store, "a").checkpoint, None);
}

#[test]
fn terms_of_the_next_attempt_are_those_of_its_caller() {
    let world = World::new();
    let store = world.open();
    let longer = |lease| -> Operation { operation("a").with_lease(lease) };
    execute(&store, &longer(MINUTE)).release().unwrap();
    let claim = execute(&store, &longer(5 * MINUTE));
    assert_eq!(in_progress(&store, &operation("a")).lease_left(), 5 * MINUTE);
    drop(claim);
}
