//! Re-sending an unknown outcome to a provider that dedupes on our key: within its window, under the same key, and
//! never otherwise.

use std::time::Duration;

use dupeproof::{AfterFailure, ErrorKind, Operation, Remote, Reserve, Retry, Status, Store, Verdict};

use crate::support::*;

const MILLI: Duration = Duration::from_millis(1);

fn deduping(name: &str) -> Operation {
    operation(name).with_remote(Remote::DedupesOnKey { window: HOUR })
}

/// An operation whose outcome is unknown, and the key it was sent under.
fn in_doubt(world: &World) -> (Store, String) {
    let store = world.open();
    let claim = execute(&store, &deduping("a"));
    assert!(!claim.is_resend());
    let sent_under = claim.downstream_key();
    claim.give_up("the answer was lost").unwrap();
    (store, sent_under)
}

#[test]
fn unknown_outcome_is_re_sent_under_the_same_key_as_a_counted_attempt() {
    let world = World::new();
    let (store, sent_under) = in_doubt(&world);
    let store = world.reopen(store);
    let again = execute(&store, &deduping("a"));
    assert!(again.is_resend());
    assert_eq!((again.attempt(), again.downstream_key()), (2, sent_under.clone()));
    in_progress(&store, &deduping("a"));
    again.give_up("lost again").unwrap();
    let third = execute(&store, &deduping("a"));
    assert!(third.is_resend());
    assert_eq!((third.attempt(), third.downstream_key()), (3, sent_under));
    third.succeed_raw("receipt").unwrap();
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &deduping("a")).attempt(), 3));
}

#[test]
fn dead_owner_of_a_deduping_remote_is_re_sent_after_reopening() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &deduping("a"));
    let store = world.reopen(store);
    let again = execute(&store, &deduping("a"));
    assert!(again.is_resend());
    assert_eq!(again.downstream_key(), claim.downstream_key());
}

#[test]
fn last_moment_of_the_window_still_re_sends_and_its_end_does_not() {
    for (passed, is_within) in [(HOUR - MILLI, true), (HOUR, false), (HOUR + MILLI, false)] {
        let world = World::new();
        let (store, _) = in_doubt(&world);
        world.clock.advance(passed);
        // Waiting changes nothing: it is counted from the first start, not from the last look.
        let store = world.reopen(store);
        match is_within {
            true => assert!(execute(&store, &deduping("a")).is_resend()),
            false => drop(unknown(&store, &deduping("a"))),
        }
    }
}

#[test]
fn window_counts_from_the_first_start_over_every_re_send() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    world.clock.advance(HOUR / 2);
    execute(&store, &deduping("a")).give_up("lost again").unwrap();
    world.clock.advance(HOUR / 2);
    unknown(&store, &deduping("a"));
}

#[test]
fn wall_clock_alone_ends_the_window() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    world.clock.step_wall(START + HOUR);
    unknown(&store, &deduping("a"));
    // It may have been off for days before it was set back.
    world.clock.step_wall(START - MILLI);
    unknown(&store, &deduping("a"));
    world.clock.step_wall(START + HOUR - MILLI);
    assert!(execute(&store, &deduping("a")).is_resend());
}

#[test]
fn lease_of_a_re_send_ends_with_the_window() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    world.clock.advance(HOUR - Duration::from_secs(10));
    let again = execute(&store, &deduping("a"));
    assert_eq!(in_progress(&store, &deduping("a")).lease_left(), Duration::from_secs(10));
    again.heartbeat().unwrap();
    assert!(again.is_current());
    world.clock.advance(Duration::from_secs(10));
    assert!(!again.is_current());
    assert_eq!(again.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
    unknown(&store, &deduping("a"));
    // Its own late word still counts.
    again.succeed_raw("receipt").unwrap();
    assert!(replay(&store, &deduping("a")).is_success());
}

#[test]
fn both_the_attempt_in_doubt_and_the_caller_must_have_declared_it() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    unknown(&store, &operation("a"));
    unknown(&store, &operation("a").with_remote(Remote::Queryable));
    execute(&store, &operation("opaque")).give_up("lost").unwrap();
    unknown(&store, &deduping("opaque"));
    // The shorter of the two windows counts.
    world.clock.advance(MINUTE);
    unknown(&store, &operation("a").with_remote(Remote::DedupesOnKey { window: MINUTE }));
    assert!(execute(&store, &operation("a").with_remote(Remote::DedupesOnKey { window: DAY })).is_resend());
}

#[test]
fn nothing_is_re_sent_beyond_the_attempt_limit() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    unknown(&store, &deduping("a").with_attempts(1));
    execute(&store, &deduping("a").with_attempts(2)).give_up("lost again").unwrap();
    unknown(&store, &deduping("a").with_attempts(2));
}

#[test]
fn reservation_never_re_sends() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    assert!(matches!(store.reserve(&deduping("a")).unwrap(), Reserve::Unknown(_)));
    assert_eq!(get(&store, "a").attempts, 1);
}

#[test]
fn altered_payload_is_never_re_sent() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    conflict(&store, &altered("a").with_remote(Remote::DedupesOnKey { window: HOUR }));
}

#[test]
fn failed_re_send_says_nothing_of_the_first_and_keeps_its_key() {
    let world = World::new();
    let (store, sent_under) = in_doubt(&world);
    let since = get(&store, "a").unknown.unwrap();
    let again = execute(&store, &deduping("a"));
    let retry = Retry::after(MINUTE).with_fresh_downstream_key();
    let AfterFailure::StillUnknown(told) = again.fail_retryable("no route", retry).unwrap() else {
        panic!("the first attempt may have happened");
    };
    assert_eq!((told.downstream_key(), told.since()), (sent_under.as_str(), since.0));
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(unknown(store, &deduping("a")).downstream_key(), sent_under);
        assert_eq!(get(store, "a").unknown, Some(since));
    });
    world.clock.advance(MINUTE);
    let third = execute(&store, &deduping("a"));
    assert!(third.is_resend());
    third.release().unwrap();
    assert_eq!(status(&store, "a"), Status::Unknown);
    world.clock.advance(HOUR);
    unknown(&store, &deduping("a"));
}

#[test]
fn first_owner_has_no_say_once_another_re_sent() {
    let world = World::new();
    let store = world.open();
    let first = execute(&store, &deduping("a").with_max_execution(MINUTE));
    world.clock.advance(MINUTE);
    let again = execute(&store, &deduping("a"));
    assert_eq!(first.succeed_raw("mine").unwrap_err().kind(), ErrorKind::LeaseLost);
    again.succeed_raw("theirs").unwrap();
    assert_eq!(replay(&store, &deduping("a")).value().unwrap(), b"theirs");
}

#[test]
fn fresh_key_after_a_known_failure_starts_a_fresh_window() {
    let world = World::new();
    let store = world.open();
    let fresh = Retry::now().with_fresh_downstream_key();
    execute(&store, &deduping("a")).fail_retryable("the key is burnt", fresh).unwrap();
    world.clock.advance(2 * HOUR);
    let second = execute(&store, &deduping("a"));
    let sent_under = second.downstream_key();
    second.give_up("lost").unwrap();
    world.clock.advance(HOUR - MILLI);
    let again = execute(&store, &deduping("a"));
    assert!(again.is_resend());
    assert_eq!(again.downstream_key(), sent_under);
}

#[test]
fn kept_key_after_a_known_failure_keeps_its_window() {
    let world = World::new();
    let store = world.open();
    execute(&store, &deduping("a")).fail_retryable("no route", Retry::now()).unwrap();
    world.clock.advance(HOUR);
    // A new attempt, for the first is known not to have happened; but the provider counts from the first request.
    let second = execute(&store, &deduping("a"));
    assert!(!second.is_resend());
    second.give_up("lost").unwrap();
    unknown(&store, &deduping("a"));
}

#[test]
fn verdict_that_it_did_not_happen_ends_the_doubt() {
    let world = World::new();
    let (store, sent_under) = in_doubt(&world);
    execute(&store, &deduping("a")).give_up("lost again").unwrap();
    store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
    let claim = execute(&store, &deduping("a"));
    assert!(!claim.is_resend());
    assert_eq!(claim.downstream_key(), sent_under);
    assert!(matches!(claim.fail_retryable("no route", Retry::now()).unwrap(), AfterFailure::RetryLater(_)));
}

#[test]
fn wait_before_the_next_look_holds_the_re_send_back() {
    let world = World::new();
    let (store, _) = in_doubt(&world);
    store.resolve(key("a"), Verdict::StillUnknown { next: MINUTE }, &decision()).unwrap();
    unknown(&store, &deduping("a"));
    world.clock.advance(MINUTE);
    assert!(execute(&store, &deduping("a")).is_resend());
}
