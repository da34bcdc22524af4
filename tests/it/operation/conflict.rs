//! Callers who are turned away: another payload is a conflict in every state, and nobody who is told no leaves a trace.

use dupeproof::{Begin, Fingerprint, Operation, Reserve, Status, Store};

use crate::support::*;

/// Every way to ask, all of which must be told the same.
#[track_caller]
fn told(store: &Store, asked: &Operation) -> String {
    let begun = store.begin(asked).unwrap();
    let word = word(&begun);
    assert_eq!(self::word(&store.begin_many(std::slice::from_ref(asked)).unwrap()[0]), word, "through the writer");
    let reserved = match store.reserve(asked).unwrap() {
        Reserve::Reserved(_) => "Execute".to_owned(),
        other => format!("{other:?}").split('(').next().unwrap().to_owned(),
    };
    assert_eq!(reserved, word, "when reserving");
    if word != "InProgress" {
        assert_eq!(self::word(&store.begin(&asked.clone().with_wait(HOUR)).unwrap()), word, "when waiting");
    }
    word
}

fn word(begin: &Begin) -> String {
    format!("{begin:?}").split('(').next().unwrap().to_owned()
}

/// What a repeat is told in each state, and after the store was opened again.
fn answers(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Reserved => ("InProgress", "Execute"),
        Status::Executing => ("InProgress", "Unknown"),
        Status::FailedRetryable => ("RetryLater", "RetryLater"),
        Status::Unknown => ("Unknown", "Unknown"),
        Status::Succeeded | Status::FailedTerminal => ("Replay", "Replay"),
        Status::Tombstone => ("Expired", "Expired"),
        other => panic!("{other} is new here"),
    }
}

#[test]
fn nobody_who_is_turned_away_leaves_a_trace() {
    for status in STATUSES {
        let world = World::new();
        let store = world.open();
        let held = bring_to(&world, &store, "a", status);
        let (before, view) = (world.bytes(), get(&store, "a"));
        assert_eq!(view.status, status);

        assert_eq!(told(&store, &operation("a")), answers(status).0);
        assert_eq!(told(&store, &altered("a")), "Conflict");

        assert_eq!(get(&store, "a"), view, "{status}");
        assert!(world.bytes() == before, "{status}: somebody who was turned away wrote to the file");
        drop(held);
    }
}

#[test]
fn changed_payload_is_a_conflict_in_every_state_also_after_reopening() {
    for status in STATUSES {
        let world = World::new();
        let store = world.open();
        let held = bring_to(&world, &store, "a", status);
        let before = conflict(&store, &altered("a"));
        assert_eq!(before.status(), status);
        let has_reference = !matches!(status, Status::Reserved | Status::Executing | Status::FailedRetryable);
        assert_eq!(before.external_reference(), has_reference.then_some("ch_1"), "{status}");

        let store = world.reopen(store);
        drop(held);
        let after = conflict(&store, &altered("a"));
        assert_eq!(after.status(), get(&store, "a").status);
        assert_eq!(after.created_at(), before.created_at());
        assert_eq!(told(&store, &altered("a")), "Conflict");
        assert_eq!(word(&store.begin(&operation("a")).unwrap()), answers(status).1);
        assert!(store.verify().unwrap().is_clean());
    }
}

#[test]
fn conflict_shows_nothing_of_the_stored_payload_or_response() {
    let world = World::new();
    let store = world.open();
    let report = dupeproof::FailureReport::new("secret words").with_response("secret body");
    execute(&store, &operation("a")).fail_terminal_with(report).unwrap();
    let shown = format!("{:?}", conflict(&store, &altered("a")));
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn holder_goes_on_undisturbed_by_those_who_were_turned_away() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    for _ in 0..10 {
        conflict(&store, &altered("a"));
        in_progress(&store, &operation("a"));
    }
    assert!(claim.is_current());
    claim.succeed_raw("ok").unwrap();
}

#[test]
fn who_is_in_progress_is_told_by_attempt_and_rest_of_the_lease() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).release().unwrap();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(MINUTE / 6);
    let told = in_progress(&store, &operation("a"));
    assert_eq!((told.attempt(), told.lease_left()), (2, MINUTE * 5 / 6));
    drop(claim);
}

#[test]
fn time_alone_makes_no_conflict_a_repeat_and_no_repeat_a_conflict() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(2 * HOUR);
    // The lease has lapsed and no sweep came by: the answers change, the row does not.
    let before = world.bytes();
    assert_eq!(conflict(&store, &altered("a")).status(), Status::Unknown);
    unknown(&store, &operation("a"));
    assert!(world.bytes() == before);
    drop(claim);
}

#[test]
fn same_payload_in_another_way_of_fingerprinting_is_a_conflict() {
    let payload = b"payload";
    let ways = [
        Fingerprint::of_bytes(payload),
        Fingerprint::of_parts(&[("body", payload)]).unwrap(),
        Fingerprint::from_digest_128([0; 16]),
        Fingerprint::from_digest_256([0; 32]),
        Fingerprint::unchecked(),
    ];
    for stored in &ways {
        let world = World::new();
        let store = world.open();
        execute(&store, &Operation::new(key("a"), stored.clone())).succeed_raw("ok").unwrap();
        world.now_and_reopened(store, |store| {
            for asked in &ways {
                let asked_for = Operation::new(key("a"), asked.clone());
                let expected = if asked == stored { "Replay" } else { "Conflict" };
                assert_eq!(word(&store.begin(&asked_for).unwrap()), expected, "{asked:?} after {stored:?}");
            }
        });
    }
}

#[test]
fn longer_payload_with_the_same_start_is_a_conflict() {
    let world = World::new();
    let store = world.open();
    for len in [0, 1, 16, 240, 241, 1024, 1_000_000] {
        let (short, long) = (vec![0; len], vec![0; len + 1]);
        let name = len.to_string();
        let with = |payload: &[u8]| Operation::new(key(&name), Fingerprint::of_bytes(payload));
        execute(&store, &with(&short)).succeed_raw("ok").unwrap();
        conflict(&store, &with(&long));
        replay(&store, &with(&short));
    }
}

#[cfg(feature = "json")]
#[test]
fn json_that_says_the_same_is_a_repeat_and_json_that_does_not_is_a_conflict() {
    let world = World::new();
    let store = world.open();
    let with = |text: &str| Operation::new(key("a"), Fingerprint::of_json(text.as_bytes()).unwrap());
    execute(&store, &with(r#"{"amount": 10, "to": "Zoë"}"#)).succeed_raw("ok").unwrap();
    world.now_and_reopened(store, |store| {
        replay(store, &with("{\"to\":\"Zo\\u00eb\",\n\"amount\":1.0e1}"));
        conflict(store, &with(r#"{"amount": "10", "to": "Zoë"}"#));
        conflict(store, &with(r#"{"amount": 10, "to": "Zoë", "note": null}"#));
    });
    // Two ids that a double would merge are never taken for one.
    assert!(Fingerprint::of_json(br#"{"id": 9007199254740993}"#).is_err());
}

#[test]
fn conflict_ends_with_the_record() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ok").unwrap();
    world.clock.advance(97 * DAY);
    // The tombstone is over: the key is new, whatever the payload.
    execute(&store, &altered("a")).succeed_raw("ok").unwrap();
    conflict(&store, &operation("a"));
}
