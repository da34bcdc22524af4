//! What repeats are given: the stored outcome, as it was stored.

use dupeproof::{ErrorKind, FailureReport, Replay, Response, ResponsePolicy, Status};
use xxhash_rust::xxh3::xxh3_128;

use crate::support::*;

/// Succeeds with `response`, and checks that the one who did it and every repeat are told the same.
#[track_caller]
fn succeeded_with(response: impl Into<Response>) -> Replay {
    let world = World::new();
    let store = world.open();
    let first = execute(&store, &operation("a")).succeed_raw(response).unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &operation("a")), first);
        assert_eq!(get(store, "a").response.as_ref(), Some(first.raw()));
        assert_eq!(get(store, "a").attempts, 1);
    });
    first
}

#[test]
fn five_responses_that_look_like_nothing_replay_as_five() {
    let all = [Response::Absent, "".into(), "null".into(), "false".into(), "0".into()];
    for (at, response) in all.iter().enumerate() {
        let told = succeeded_with(response.clone());
        assert!(told.is_success());
        for (other_at, other) in all.iter().enumerate() {
            assert_eq!(told.raw() == other, at == other_at, "{response:?} against {other:?}");
        }
    }
    assert_eq!(succeeded_with("").value().unwrap(), b"");
    assert_eq!(succeeded_with(Response::Absent).value().unwrap_err().kind(), ErrorKind::Response);
}

#[test]
fn every_byte_comes_back_whatever_the_length() {
    for len in [1, 255, 256, 4095, 4096, 4097, 70_000] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 256) as u8).collect();
        assert_eq!(succeeded_with(bytes.clone()).value().unwrap(), bytes);
    }
}

#[test]
fn response_over_the_limit_is_a_success_that_keeps_length_and_hash() {
    let world = World::new();
    let store = world.options().with_response_limit(10).open(world.path()).unwrap();
    let first = execute(&store, &operation("a")).succeed_raw("eleven char").unwrap();
    assert_eq!(first.raw(), &Response::TooLarge { len: 11, xxh3_128: xxh3_128(b"eleven char") });
    world.now_and_reopened(store, |store| {
        assert_eq!(status(store, "a"), Status::Succeeded);
        assert_eq!(replay(store, &operation("a")), first);
        assert!(first.is_success());
        assert_eq!(first.value().unwrap_err().kind(), ErrorKind::Response);
    });
}

#[test]
fn response_at_the_limit_is_stored_and_a_byte_more_is_not() {
    let mebibyte = vec![7; 1024 * 1024];
    assert_eq!(succeeded_with(mebibyte.clone()).value().unwrap(), mebibyte);
    assert!(matches!(succeeded_with([mebibyte, vec![7]].concat()).raw(), Response::TooLarge { len: 1_048_577, .. }));
}

#[test]
fn largest_response_that_may_be_asked_for_replays() {
    let world = World::new();
    let most = 16 * 1024 * 1024;
    let store = world.options().with_response_limit(most).open(world.path()).unwrap();
    execute(&store, &operation("a")).succeed_raw(vec![9; most]).unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &operation("a")).value().unwrap(), vec![9; most]);
    });
}

#[test]
fn response_limit_of_none_stores_no_value_and_still_tells_empty_from_absent() {
    let world = World::new();
    let store = world.options().with_response_limit(0).open(world.path()).unwrap();
    execute(&store, &operation("empty")).succeed_raw("").unwrap();
    execute(&store, &operation("absent")).succeed_raw(Response::Absent).unwrap();
    execute(&store, &operation("full")).succeed_raw("x").unwrap();
    assert_eq!(replay(&store, &operation("empty")).raw(), &Response::from(""));
    assert_eq!(replay(&store, &operation("absent")).raw(), &Response::Absent);
    assert!(matches!(replay(&store, &operation("full")).raw(), Response::TooLarge { len: 1, .. }));
}

#[test]
fn withheld_response_never_reaches_the_disk_and_its_reference_does() {
    let world = World::new();
    let store = world.open();
    let secret = "password-of-the-new-account";
    let told = operation("a").with_response_policy(ResponsePolicy::ReferenceOnly);
    let first = execute(&store, &told).with_external_reference("account-17").succeed_raw(secret).unwrap();
    assert_eq!(first.raw(), &Response::Withheld);
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &told), first);
        assert_eq!(first.external_reference(), Some("account-17"));
        assert!(first.is_success());
        assert_eq!(first.value().unwrap_err().kind(), ErrorKind::Response);
    });
    let failing = operation("b").with_response_policy(ResponsePolicy::ReferenceOnly);
    let report = FailureReport::new("declined").with_response(secret);
    execute(&store, &failing).fail_terminal_with(report).unwrap();
    assert_eq!(replay(&store, &failing).raw(), &Response::Withheld);
    store.close().unwrap();
    assert!(!holds(&world.bytes(), secret), "the secret lies on the disk");
    assert!(holds(&world.bytes(), "account-17"));
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_value_of_an_operation_that_withholds_is_still_no_value() {
    let world = World::new();
    let store = world.open();
    let withholding = operation("a").with_response_policy(ResponsePolicy::ReferenceOnly);
    execute(&store, &withholding).succeed_raw(Response::Absent).unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &withholding).raw(), &Response::Absent);
    });
}

#[test]
fn terminal_failure_replays_with_its_words_body_and_reference() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a")).with_external_reference("ch_1");
    let report = FailureReport::new("card declined").with_response(r#"{"code":51}"#);
    let first = claim.fail_terminal_with(report.clone()).unwrap();
    world.now_and_reopened(store, |store| {
        let told = replay(store, &operation("a"));
        assert_eq!(told, first);
        assert!(!told.is_success());
        assert!(!told.attempts_exhausted());
        assert_eq!(told.failure(), Some(&report));
        assert_eq!(told.raw().bytes(), Some(br#"{"code":51}"#.as_slice()));
        assert_eq!(told.external_reference(), Some("ch_1"));
        assert_eq!(told.value().unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(get(store, "a").failure.as_deref(), Some("card declined"));
    });
}

#[test]
fn body_of_a_failure_over_the_limit_stays_a_failure() {
    let world = World::new();
    let store = world.options().with_response_limit(3).open(world.path()).unwrap();
    let report = FailureReport::new("declined").with_response("four");
    execute(&store, &operation("a")).fail_terminal_with(report).unwrap();
    world.now_and_reopened(store, |store| {
        let told = replay(store, &operation("a"));
        assert!(!told.is_success());
        assert!(matches!(told.raw(), Response::TooLarge { len: 4, .. }));
    });
}

#[test]
fn replay_tells_when_and_by_which_attempt_it_was_settled() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).release().unwrap();
    world.clock.advance(MINUTE / 2);
    let claim = execute(&store, &operation("a"));
    let settled_at = claim.succeed_raw("ok").unwrap().settled_at();
    assert_eq!(settled_at.since(get(&store, "a").created_at), MINUTE / 2);
    world.clock.advance(HOUR);
    world.now_and_reopened(store, |store| {
        let told = replay(store, &operation("a"));
        assert_eq!((told.attempt(), told.settled_at()), (2, settled_at));
    });
}

#[test]
fn repeats_of_a_settled_operation_write_nothing() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ok").unwrap();
    let before = world.bytes();
    for _ in 0..100 {
        replay(&store, &operation("a"));
    }
    assert!(matches!(store.begin_many(&vec![operation("a"); 100]).unwrap()[99], dupeproof::Begin::Replay(_)));
    assert!(world.bytes() == before, "a repeat wrote to the file");
}

#[cfg(feature = "json")]
mod typed {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Receipt {
        id: String,
        amount: u64,
        lines: BTreeMap<String, Option<f64>>,
    }

    #[test]
    fn typed_response_replays_as_the_value_it_was() {
        let receipt = Receipt {
            id: "ch_1 ⚡ \"quoted\"\n".into(),
            amount: u64::MAX,
            lines: BTreeMap::from([("vat".into(), Some(0.1 + 0.2)), ("fee".into(), None)]),
        };
        let world = World::new();
        let store = world.open();
        let first = execute(&store, &operation("a")).succeed(&receipt).unwrap();
        assert_eq!(first.response::<Receipt>().unwrap(), receipt);
        world.now_and_reopened(store, |store| {
            assert_eq!(replay(store, &operation("a")).response::<Receipt>().unwrap(), receipt);
        });
    }

    #[test]
    fn typed_values_that_look_like_nothing_keep_their_types() {
        let world = World::new();
        let store = world.open();
        execute(&store, &operation("unit")).succeed(&()).unwrap();
        execute(&store, &operation("none")).succeed(&None::<u32>).unwrap();
        execute(&store, &operation("false")).succeed(&false).unwrap();
        execute(&store, &operation("zero")).succeed(&0).unwrap();
        execute(&store, &operation("empty text")).succeed("").unwrap();
        execute(&store, &operation("no value")).succeed_raw(Response::Absent).unwrap();
        world.now_and_reopened(store, |store| {
            let replay = |name| replay(store, &operation(name));
            replay("unit").response::<()>().unwrap();
            assert_eq!(replay("none").response::<Option<u32>>().unwrap(), None);
            assert!(!replay("false").response::<bool>().unwrap());
            assert_eq!(replay("zero").response::<u32>().unwrap(), 0);
            assert_eq!(replay("empty text").response::<String>().unwrap(), "");
            // No value is not even an absent one.
            assert_eq!(replay("no value").response::<Option<u32>>().unwrap_err().kind(), ErrorKind::Response);
        });
    }

    #[test]
    fn asking_for_another_type_is_an_error_and_changes_nothing() {
        let world = World::new();
        let store = world.open();
        execute(&store, &operation("a")).succeed(&17).unwrap();
        let told = replay(&store, &operation("a"));
        assert_eq!(told.response::<String>().unwrap_err().kind(), ErrorKind::Response);
        assert_eq!(told.response::<u8>().unwrap(), 17);
        execute(&store, &operation("b")).succeed_raw([0xff, 0xfe].as_slice()).unwrap();
        assert_eq!(replay(&store, &operation("b")).response::<String>().unwrap_err().kind(), ErrorKind::Response);
    }

    #[test]
    fn value_that_cannot_be_written_leaves_the_claim_to_be_settled_otherwise() {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        // JSON has no keys but strings.
        let error = claim.succeed(&BTreeMap::from([((1, 2), 3)])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Response);
        assert_eq!(status(&store, "a"), Status::Executing);
        claim.succeed_raw("ok").unwrap();
        assert_eq!(replay(&store, &operation("a")).value().unwrap(), b"ok");
    }
}
