//! Bad input: refused with the right kind of error, before anything is written.

#[cfg(target_os = "linux")]
mod disk;
mod files;

use std::time::Duration;

use dupeproof::{
    Backoff, Decision, ErrorKind, FailureReport, Fingerprint, Operation, OperationKey, Options, Remote, Result,
    Retention, Retry, Status, Verdict,
};

use crate::support::*;

const TEN_MEGABYTES: usize = 10 * 1024 * 1024;

#[track_caller]
fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    let error = result.expect_err("bad input is refused");
    assert!(!error.to_string().is_empty());
    assert!(!error.kind().advice().is_empty());
    error.kind()
}

#[test]
fn keys_out_of_bounds_are_refused() {
    let long = "x".repeat(TEN_MEGABYTES);
    let (name, key) = ("x".repeat(129), "x".repeat(513));
    for (tenant, operation, key) in [
        ("", "o", "k"),
        ("t", "", "k"),
        ("t", "o", ""),
        (&long, "o", "k"),
        ("t", &long, "k"),
        ("t", "o", &long),
        (&name, "o", "k"),
        ("t", &name, "k"),
        ("t", "o", &key),
        ("t", "o", "é".repeat(257).as_str()),
    ] {
        assert_eq!(kind(OperationKey::new(tenant, operation, key)), ErrorKind::InvalidInput);
    }
    for control in ['\0', '\n', '\r', '\t', '\u{1b}', '\u{7f}', '\u{85}', '\u{9f}'] {
        for at in 0..3 {
            let mut parts = ["t".to_owned(), "o".to_owned(), "k".to_owned()];
            parts[at].push(control);
            let [tenant, operation, key] = &parts;
            assert_eq!(kind(OperationKey::new(tenant, operation, key)), ErrorKind::InvalidInput, "{control:?}");
        }
    }
}

#[test]
fn refused_key_says_what_was_found_and_not_what_was_given() {
    let error = OperationKey::new("acme", "charge", format!("jane@example.org{}", "x".repeat(500))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("516") && text.contains("512"), "{text}");
    assert!(!text.contains("jane"), "{text}");
}

#[test]
fn fingerprints_of_nothing_or_of_one_name_twice_are_refused() {
    assert_eq!(kind(Fingerprint::of_parts(&[])), ErrorKind::InvalidInput);
    assert_eq!(kind(Fingerprint::of_parts(&[("a", b"1"), ("a", b"2")])), ErrorKind::InvalidInput);
}

/// Terms that nobody can mean.
fn absurd() -> Vec<(&'static str, Operation)> {
    let a = || operation("a");
    let retention = Retention::default();
    vec![
        ("no lease", a().with_lease(Duration::ZERO)),
        ("lease too short", a().with_lease(Duration::from_millis(49))),
        ("lease too long", a().with_lease(7 * DAY + Duration::from_millis(1)).with_max_execution(30 * DAY)),
        ("endless lease", a().with_lease(Duration::MAX).with_max_execution(Duration::MAX)),
        ("no execution", a().with_max_execution(Duration::ZERO)),
        ("execution shorter than its lease", a().with_max_execution(MINUTE - Duration::from_millis(1))),
        ("execution too long", a().with_max_execution(31 * DAY)),
        ("endless execution", a().with_max_execution(Duration::MAX)),
        ("no response", a().with_retention(retention.with_response(Duration::ZERO))),
        ("response too short", a().with_retention(retention.with_response(Duration::from_millis(999)))),
        ("response too long", a().with_retention(retention.with_response(200 * 366 * DAY))),
        ("tombstone too long", a().with_retention(retention.with_tombstone(200 * 366 * DAY))),
        ("no attempt", a().with_attempts(0)),
        ("backoff that shrinks", a().with_backoff(Backoff::exponential(HOUR, MINUTE))),
        ("endless backoff", a().with_backoff(Backoff::exponential(Duration::MAX, Duration::MAX))),
        ("endless cap", a().with_backoff(Backoff::exponential(MINUTE, Duration::MAX))),
        ("endless window", a().with_remote(Remote::DedupesOnKey { window: Duration::MAX })),
        ("window too long", a().with_remote(Remote::DedupesOnKey { window: 367 * DAY })),
        ("endless wait", a().with_wait(Duration::MAX)),
        ("wait too long", a().with_wait(366 * DAY + Duration::from_millis(1))),
    ]
}

#[test]
fn absurd_terms_are_refused_in_every_state_before_anything_is_written() {
    for status in [None].into_iter().chain(STATUSES.map(Some)) {
        let world = World::new();
        let store = world.open();
        execute(&store, &operation("before")).release().unwrap();
        let held = status.map(|status| bring_to(&world, &store, "a", status));
        let (before, view) = (world.bytes(), store.get(key("a")).unwrap());
        for (name, asked) in absurd() {
            assert_eq!(kind(store.begin(&asked)), ErrorKind::InvalidInput, "{name}");
            assert_eq!(kind(store.reserve(&asked)), ErrorKind::InvalidInput, "{name}");
            assert_eq!(kind(store.begin_many(&[asked])), ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(store.get(key("a")).unwrap(), view);
        assert!(world.bytes() == before);
        drop(held);
    }
}

#[test]
fn terms_at_their_bounds_are_good() {
    let world = World::new();
    let store = world.open();
    let least = Duration::from_millis(50);
    let century = 100 * 366 * DAY;
    for (at, good) in [
        operation("0").with_lease(least).with_max_execution(least),
        operation("1").with_lease(7 * DAY).with_max_execution(30 * DAY),
        operation("2").with_retention(Retention::default().with_response(Duration::from_secs(1))),
        operation("3").with_retention(Retention::default().with_response(century).with_tombstone(century)),
        operation("4").with_attempts(u32::MAX).with_wait(366 * DAY),
        operation("5").with_remote(Remote::DedupesOnKey { window: 366 * DAY }),
        operation("6").with_remote(Remote::DedupesOnKey { window: Duration::ZERO }),
        operation("7").with_backoff(Backoff::exponential(Duration::ZERO, 366 * DAY)),
        operation("8").with_retention(Retention::default().with_response(Duration::from_nanos(999_000_001))),
    ]
    .into_iter()
    .enumerate()
    {
        execute(&store, &good).succeed_raw("ok").unwrap();
        assert!(replay(&store, &operation(&at.to_string())).is_success());
    }
}

#[test]
fn endless_retry_is_a_year_and_no_retry_is_lost() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).fail_retryable("busy", Retry::after(Duration::MAX)).unwrap();
    assert_eq!(retry_later(&store, &operation("a")).wait(), 366 * DAY);
    world.clock.advance(366 * DAY);
    assert_eq!(execute(&store, &operation("a")).attempt(), 2);
}

#[test]
fn what_a_holder_notes_is_bounded_and_the_claim_goes_on() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let (before, view) = (world.bytes(), get(&store, "a"));
    let huge = "x".repeat(TEN_MEGABYTES);
    assert_eq!(kind(claim.checkpoint(huge.as_bytes())), ErrorKind::InvalidInput);
    assert_eq!(kind(claim.checkpoint(&[0; 64 * 1024 + 1])), ErrorKind::InvalidInput);
    for reference in ["", &huge, &"x".repeat(1025), "ch\n1", "ch\0"] {
        assert_eq!(kind(claim.record_external_reference(reference)), ErrorKind::InvalidInput);
    }
    assert_eq!(get(&store, "a"), view);
    assert!(world.bytes() == before);
    claim.record_external_reference(&"x".repeat(1024)).unwrap();
    claim.succeed_raw("ok").unwrap();
}

#[test]
fn words_of_a_failure_are_cut_whatever_their_length() {
    let world = World::new();
    let store = world.open();
    let huge = "€".repeat(TEN_MEGABYTES / 3);
    let ends = ["terminal", "retryable", "unknown"];
    let end = |name: &str, operation: &Operation, words: &str| {
        let claim = execute(&store, operation);
        match name {
            "terminal" => drop(claim.fail_terminal(words).unwrap()),
            "retryable" => drop(claim.fail_retryable(words, Retry::after(HOUR)).unwrap()),
            _ => drop(claim.give_up(words).unwrap()),
        }
    };
    for name in ends {
        end(name, &operation(name), &huge);
        end(name, &operation(&format!("{name} in silence")), "");
    }
    world.now_and_reopened(store, |store| {
        for name in ends {
            let words = get(store, name).failure.unwrap();
            assert!(words.len() <= 4096 && words.starts_with("€€€") && words.ends_with("€…"), "{}", words.len());
            assert_eq!(get(store, &format!("{name} in silence")).failure.as_deref(), Some(""));
        }
    });
}

#[test]
fn decisions_out_of_bounds_are_refused_and_decide_nothing() {
    let world = World::new();
    let store = world.open();
    bring_to(&world, &store, "a", Status::Unknown);
    let (before, view) = (world.bytes(), get(&store, "a"));
    let (by, reason, huge) = ("x".repeat(257), "x".repeat(4097), "x".repeat(TEN_MEGABYTES));
    for (by, reason) in [
        ("", "why"),
        ("jane", ""),
        (" \t", "why"),
        ("jane", "\n"),
        (&by, "why"),
        ("jane", &reason),
        (&huge, "why"),
        ("jane", &huge),
    ] {
        let decided = store.resolve(key("a"), Verdict::DidNotHappen, &Decision::new(by, reason));
        assert_eq!(kind(decided), ErrorKind::InvalidInput);
    }
    for reference in ["", &huge, "ch\n1"] {
        let happened = Verdict::Happened { response: "ok".into(), external_reference: Some(reference.into()) };
        assert_eq!(kind(store.resolve(key("a"), happened, &decision())), ErrorKind::InvalidInput);
    }
    assert_eq!(get(&store, "a"), view);
    assert!(world.bytes() == before);
    let longest = Decision::new("x".repeat(256), "x".repeat(4096));
    let next = Verdict::StillUnknown { next: Duration::MAX };
    assert_eq!(store.resolve(key("a"), next, &longest).unwrap().decisions.len(), 1);
    let failed = Verdict::FailedForGood { failure: FailureReport::new(&huge) };
    store.resolve(key("a"), failed, &longest).unwrap();
    assert!(replay(&store, &operation("a")).failure().unwrap().message().len() <= 4096);
}

#[test]
fn sweep_of_nothing_or_of_too_much_is_refused() {
    let store = World::new().options().in_memory().unwrap();
    for limit in [0, 1_000_001, usize::MAX] {
        assert_eq!(kind(store.sweep(limit)), ErrorKind::InvalidInput, "{limit}");
    }
    store.sweep(1_000_000).unwrap();
}

#[test]
fn refused_operation_leaves_options_and_store_usable() {
    let world = World::new();
    assert!(Options::new().open(world.folder()).is_err());
    let store = world.open();
    assert!(store.begin(&operation("a").with_attempts(0)).is_err());
    execute(&store, &operation("a")).succeed_raw("ok").unwrap();
}
