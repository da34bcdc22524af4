//! Asking the provider: one at a time, not too often, not for ever; and what stays on record of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dupeproof::{
    Backoff, Begin, Decision, ErrorKind, Filter, Finding, Fingerprint, Inquiry, Operation, Outcome, Page, Remote,
    Response, Ruling, Status, Store, Subject, Verdict, Witness,
};

use crate::support::*;

/// Longer than any wait between two probes.
const WAIT: Duration = Duration::from_secs(3600);

fn given_up(store: &Store, name: &str) {
    execute(store, &operation(name)).give_up("the answer was lost").unwrap();
}

fn vain(_: &Inquiry) -> Finding {
    Finding::still_unknown().because("the bank is closed")
}

/// Asks in vain until a person is waited for.
fn ask_out(world: &World, store: &Store) {
    while !get(store, "a").waits_for_person {
        world.clock.advance(WAIT);
        assert_eq!(store.reconcile(10, vain).unwrap().asked, 1);
    }
}

#[test]
fn each_verdict_of_a_probe_ends_what_it_is_about() {
    let world = World::new();
    let store = world.open();
    for name in ["happened", "failed", "did not happen", "unknown"] {
        given_up(&store, name);
    }
    let report = store
        .reconcile(10, |inquiry| match inquiry.identity().key() {
            "happened" => Finding::happened("receipt"),
            "failed" => Finding::failed_for_good(dupeproof::FailureReport::new("declined")),
            "did not happen" => Finding::did_not_happen(),
            _ => Finding::still_unknown(),
        })
        .unwrap();
    assert_eq!((report.asked, report.happened, report.failed_for_good), (4, 1, 1));
    assert_eq!((report.did_not_happen, report.still_unknown, report.more), (1, 1, false));
    world.now_and_reopened(store, |store| {
        assert_eq!(status(store, "happened"), Status::Succeeded);
        assert_eq!(status(store, "failed"), Status::FailedTerminal);
        assert_eq!(status(store, "did not happen"), Status::FailedRetryable);
        assert_eq!(status(store, "unknown"), Status::Unknown);
        assert_eq!(replay(store, &operation("happened")).value().unwrap(), b"receipt");
    });
}

#[test]
fn probe_is_told_what_the_provider_knows_the_effect_by() {
    let store = Store::in_memory().unwrap();
    let claim = execute(&store, &operation("a"));
    claim.checkpoint(b"half-way").unwrap();
    claim.record_external_reference("ch_1").unwrap();
    let downstream_key = claim.downstream_key().to_owned();
    claim.give_up("lost").unwrap();
    let report = store.reconcile(1, |inquiry| {
        assert_eq!(inquiry.downstream_key(), downstream_key);
        assert_eq!(inquiry.external_reference(), Some("ch_1"));
        assert_eq!(inquiry.checkpoint(), Some(b"half-way".as_slice()));
        assert_eq!((inquiry.unknown().attempt(), inquiry.unknown().probes()), (1, 1));
        Verdict::Happened { response: Response::Absent, external_reference: Some("ch_2".into()) }
    });
    assert_eq!(report.unwrap().happened, 1);
    assert_eq!(get(&store, "a").external_reference.as_deref(), Some("ch_2"));
}

#[test]
fn probe_in_vain_is_followed_by_a_wait_that_grows() {
    let world = World::new();
    let store = world.open();
    given_up(&store, "a");
    let backoff = Backoff::exponential(Duration::from_secs(60), WAIT);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let reconciler = store.reconciler().with_backoff(backoff).with_probe("act", move |inquiry: &Inquiry| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vain(inquiry))
    });
    let reconciler = reconciler.with_probe(get(&store, "a").key.operation(), {
        let counted = asked.clone();
        move |inquiry: &Inquiry| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(vain(inquiry))
        }
    });
    let mut waited = Vec::new();
    for probe in 1..=5 {
        assert_eq!(reconciler.run_once(10).unwrap().asked, 1, "probe {probe}");
        assert_eq!(reconciler.run_once(10).unwrap().asked, 0, "its time has not come");
        let view = get(&store, "a");
        assert_eq!(view.probes, probe);
        let next = view.next_probe_at.unwrap();
        let wait = next.as_unix_millis() - store.stats().unwrap().now.as_unix_millis();
        waited.push(wait);
        world.clock.advance(Duration::from_millis(wait - 1));
        assert_eq!(reconciler.run_once(10).unwrap().asked, 0, "one millisecond early");
        world.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    assert!(waited[4] > 2 * waited[0], "{waited:?}");
}

#[test]
fn probe_that_asks_for_a_longer_wait_gets_it() {
    let world = World::new();
    let store = world.open();
    given_up(&store, "a");
    store.reconcile(1, |_| Verdict::StillUnknown { next: 24 * WAIT }).unwrap();
    world.clock.advance(23 * WAIT);
    assert_eq!(store.reconcile(1, vain).unwrap().asked, 0);
    world.clock.advance(WAIT);
    assert_eq!(store.reconcile(1, vain).unwrap().asked, 1);
}

#[test]
fn outcome_asked_about_in_vain_for_ever_waits_for_a_person_and_nothing_else_touches_it() {
    let world = World::new();
    let store = world.open();
    // Even a provider that drops a second request gets none.
    let resendable = operation("a").with_remote(Remote::DedupesOnKey { window: Duration::from_secs(300 * 86_400) });
    execute(&store, &resendable).give_up("lost").unwrap();
    ask_out(&world, &store);
    let probes = get(&store, "a").probes;
    assert_eq!(probes, 30);
    let store = world.now_and_reopened(store, |store| {
        for _ in 0..100 {
            let told = unknown(store, &resendable.clone().with_attempts(u32::MAX));
            assert!(told.waits_for_person());
        }
        world.clock.advance(10 * WAIT);
        assert_eq!(store.reconcile(10, |_| Finding::did_not_happen()).unwrap().asked, 0);
        let reconciler = store.reconciler().early().with_probe("charge", |_: &Inquiry| Ok(Finding::did_not_happen()));
        assert_eq!(reconciler.run_once(10).unwrap().asked, 0);
        assert_eq!(reconciler.run_for(key("a")).unwrap().asked, 0);
        while store.sweep(1000).unwrap().more {}
        let waiting = store.list(&Filter::new().with_waiting_for_person(), &Page::first(10)).unwrap().operations;
        assert_eq!(waiting.len(), 1);
        assert_eq!((waiting[0].status, waiting[0].probes, waiting[0].next_probe_at), (Status::Unknown, probes, None));
        let stats = store.stats().unwrap();
        assert_eq!((stats.unknown, stats.waiting_for_person), (1, 1));
        assert!(store.verify().unwrap().is_clean());
    });
    world.clock.advance(Duration::from_secs(90 * 365 * 86_400));
    while store.sweep(1000).unwrap().more {}
    assert_eq!(status(&store, "a"), Status::Unknown);
    store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
}

#[test]
fn person_who_wants_another_look_ends_the_wait_for_a_person() {
    let world = World::new();
    let store = world.open();
    given_up(&store, "a");
    ask_out(&world, &store);
    store.resolve(key("a"), Verdict::StillUnknown { next: WAIT }, &decision()).unwrap();
    let view = get(&store, "a");
    assert_eq!((view.waits_for_person, view.probes), (false, 0));
    assert_eq!(store.reconcile(10, vain).unwrap().asked, 0, "not before the person wants it");
    world.clock.advance(WAIT);
    assert_eq!(store.reconcile(10, |_| Finding::happened("receipt")).unwrap().happened, 1);
}

#[test]
fn two_reconcilers_never_ask_about_one_record_at_once() {
    let world = World::new();
    let store = world.open();
    given_up(&store, "a");
    let report = store.reconcile(10, |_| {
        assert_eq!(store.reconcile(10, |_| -> Finding { panic!("a second probe") }).unwrap().asked, 0);
        let early = store.reconciler().early().with_probe("charge", |_: &Inquiry| Ok(Finding::did_not_happen()));
        let second = early.run_for(key("a")).unwrap();
        assert_eq!(second.asked, 0);
        Finding::happened("receipt")
    });
    assert_eq!(report.unwrap().happened, 1);
    assert_eq!(get(&store, "a").decisions.len(), 1);
}

#[test]
fn many_reconcilers_at_once_ask_about_each_record_once() {
    let world = World::new();
    let store = world.open();
    for at in 0..40 {
        given_up(&store, &format!("op {at}"));
    }
    let asked = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let probe = |_: &Inquiry| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Finding::did_not_happen()
                };
                store.reconcile(100, probe).unwrap();
            });
        }
    });
    assert_eq!(asked.load(Ordering::Relaxed), 40);
    assert!((0..40).all(|at| get(&store, &format!("op {at}")).decisions.len() == 1));
}

#[test]
fn probe_that_outlives_its_lease_is_overtaken_and_changes_nothing() {
    for word in [Finding::did_not_happen(), Finding::still_unknown()] {
        let world = World::new();
        let store = world.open();
        given_up(&store, "a");
        let report = store.reconcile(10, |_| {
            world.clock.advance(Duration::from_secs(61));
            assert_eq!(store.reconcile(10, |_| Finding::happened("receipt")).unwrap().happened, 1);
            word.clone()
        });
        let report = report.unwrap();
        assert_eq!((report.asked, report.overtaken), (1, 1));
        assert_eq!(status(&store, "a"), Status::Succeeded);
    }
}

#[test]
fn late_word_of_an_overtaken_probe_that_knows_nothing_does_not_end_the_newer_ones_lease() {
    let world = World::new();
    let store = world.open();
    given_up(&store, "a");
    store
        .reconcile(10, |_| {
            world.clock.advance(Duration::from_secs(61));
            let newer = store.reconcile(10, |_| {
                assert_eq!(get(&store, "a").probes, 2);
                Finding::still_unknown()
            });
            assert_eq!(newer.unwrap().still_unknown, 1);
            Finding::still_unknown()
        })
        .unwrap();
    let view = get(&store, "a");
    assert_eq!((view.probes, view.decisions.len()), (2, 1));
}

/// A verdict about an attempt says nothing about the next.
#[test]
fn verdict_of_a_probe_about_an_earlier_attempt_is_not_taken() {
    let world = World::new();
    let store = world.open();
    given_up(&store, "a");
    let report = store.reconcile(10, |_| {
        store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
        given_up(&store, "a");
        Finding::did_not_happen()
    });
    assert_eq!(report.unwrap().overtaken, 1);
    assert_eq!((status(&store, "a"), get(&store, "a").attempts), (Status::Unknown, 2));
}

#[test]
fn failing_and_panicking_probes_leave_the_outcome_unknown_with_what_they_said() {
    let world = World::new();
    let store = world.open();
    for name in ["a", "b", "c"] {
        given_up(&store, name);
    }
    let reconciler = store.reconciler().with_name("till 3").with_probe("charge", |inquiry: &Inquiry| {
        match inquiry.identity().key() {
            "a" => Err("no route to the bank".into()),
            "b" => panic!("out of paper"),
            // Longer than a reference may be.
            _ => {
                Ok(Verdict::Happened { response: Response::Absent, external_reference: Some("x".repeat(9999)) }.into())
            }
        }
    });
    let report = reconciler.run_once(10).unwrap();
    assert_eq!((report.asked, report.still_unknown), (3, 3));
    let said = |name| get(&store, name).decisions[0].reason.clone();
    assert_eq!(said("a"), "the probe failed: no route to the bank");
    assert_eq!(said("b"), "the probe panicked: out of paper");
    assert!(said("c").starts_with("the probe's finding cannot be recorded: "), "{}", said("c"));
    assert_eq!(get(&store, "a").decisions[0].by, "till 3");
}

#[test]
fn history_says_who_said_what_when_and_why() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(2 * WAIT);
    store.reconcile(10, vain).unwrap();
    let why = Decision::new("jane", "no such charge");
    store.resolve(key("a"), Verdict::StillUnknown { next: Duration::ZERO }, &why).unwrap();
    claim.succeed_raw("receipt").unwrap();
    world.now_and_reopened(store, |store| {
        let view = get(store, "a");
        let told: Vec<_> = view.decisions.iter().map(|one| (one.witness, one.by.as_str(), one.ruling)).collect();
        let expected = [
            (Witness::Probe, "reconciler", Ruling::StillUnknown),
            (Witness::Person, "jane", Ruling::StillUnknown),
            (Witness::Owner, "owner", Ruling::Happened),
        ];
        assert_eq!(told, expected);
        assert_eq!(view.decisions[0].reason, "the bank is closed");
        assert!(view.decisions.iter().all(|one| one.attempt == 1 && one.at >= view.created_at));
        assert_eq!(view.status, Status::Succeeded);
    });
}

#[test]
fn probes_are_asked_about_what_they_are_registered_for_and_nothing_else() {
    let world = World::new();
    let store = world.open();
    let named = |tenant: &str, name: &str| {
        let key = dupeproof::OperationKey::new(tenant, name, "k").unwrap();
        let operation = Operation::new(key, Fingerprint::unchecked());
        execute(&store, &operation).give_up("lost").unwrap();
    };
    named("acme", "charge");
    named("acme", "mail");
    named("globex", "charge");
    let orders = store.inbox("acme", "charge").unwrap();
    let Begin::Execute(claim) = orders.claim("k", Fingerprint::unchecked()).unwrap() else { panic!("first time") };
    claim.give_up("lost").unwrap();
    let happened = |inquiry: &Inquiry| Ok(Finding::happened(inquiry.identity().tenant()));
    let reconciler = store.reconciler().with_probe("charge", happened);
    assert_eq!(reconciler.clone().with_tenant("acme").run_once(10).unwrap().happened, 1);
    assert_eq!(reconciler.run_once(10).unwrap().happened, 1, "globex");
    assert_eq!(reconciler.run_once(10).unwrap().asked, 0);
    let messages = store.reconciler().with_probe(Subject::message("charge"), happened);
    assert_eq!(messages.run_once(10).unwrap().happened, 1);
    assert_eq!(store.stats().unwrap().unknown, 1, "mail has no probe");
}

#[test]
fn limit_is_kept_and_what_is_left_is_said() {
    let store = Store::in_memory().unwrap();
    for at in 0..5 {
        given_up(&store, &at.to_string());
    }
    let report = store.reconcile(3, |_| Finding::did_not_happen()).unwrap();
    assert_eq!((report.asked, report.more), (3, true));
    let report = store.reconcile(3, |_| Finding::did_not_happen()).unwrap();
    assert_eq!((report.asked, report.more), (2, false));
    assert_eq!(store.reconcile(0, vain).unwrap().asked, 0);
}

#[test]
fn reconciler_in_a_thread_asks_about_what_becomes_unknown_until_it_is_stopped() {
    let store = Store::in_memory().unwrap();
    let reconciler = store
        .reconciler()
        .with_interval(Duration::from_millis(1))
        .with_probe("charge", |_: &Inquiry| Ok(Finding::happened("receipt")))
        .spawn()
        .unwrap();
    given_up(&store, "a");
    eventually(|| status(&store, "a") == Status::Succeeded);
    assert!(reconciler.is_running());
    reconciler.stop().unwrap();
    given_up(&store, "b");
    assert_eq!(status(&store, "b"), Status::Unknown);
    let reconciler = store.reconciler().spawn().unwrap();
    store.close().unwrap();
    assert!(!reconciler.is_running(), "closing waits for its end");
}

#[test]
fn settings_out_of_bounds_are_refused_before_anybody_is_asked() {
    let store = Store::in_memory().unwrap();
    given_up(&store, "a");
    let asks = || store.reconciler().with_probe("charge", |_: &Inquiry| panic!("asked"));
    let wrong = [
        asks().with_lease(Duration::ZERO),
        asks().with_probes_max(0),
        asks().with_name(""),
        asks().with_name("x".repeat(257)),
        asks().with_probe("", |_: &Inquiry| panic!("asked")),
    ];
    for reconciler in wrong {
        assert_eq!(reconciler.run_once(1).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(reconciler.spawn().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(reconciler.run_for(key("a")).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(get(&store, "a").probes, 0);
}

#[test]
fn run_or_reconcile_runs_only_what_the_probe_says_did_not_happen() {
    let world = World::new();
    let store = world.open();
    let effects = AtomicU32::new(0);
    let run = |finding: Finding| {
        let effect = |_: &dupeproof::Claim| {
            effects.fetch_add(1, Ordering::Relaxed);
            Ok(Response::from("ran"))
        };
        store.run_or_reconcile(&operation("a"), effect, |_| finding.clone()).unwrap()
    };
    given_up(&store, "a");
    assert!(matches!(run(Finding::still_unknown()), Outcome::Unknown(_)));
    assert_eq!(effects.load(Ordering::Relaxed), 0);
    // Who comes by hand is not made to wait.
    assert!(matches!(run(Finding::did_not_happen()), Outcome::Succeeded(told) if told == b"ran"));
    assert!(matches!(run(Finding::did_not_happen()), Outcome::Succeeded(told) if told == b"ran"));
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}
