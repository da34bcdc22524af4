//! Outcomes that nobody knows: everybody is told so, nobody runs them again, and evidence alone ends it.

use std::time::Duration;

use dupeproof::{
    Decision, ErrorKind, FailureReport, Response, Ruling, Status, Store, Timestamp, UnknownCause, Verdict,
};

use crate::support::*;

fn resolve(store: &Store, verdict: Verdict) -> dupeproof::OperationView {
    store.resolve(key("a"), verdict, &decision()).unwrap()
}

fn happened(response: &str) -> Verdict {
    Verdict::Happened { response: response.into(), external_reference: None }
}

fn failed() -> Verdict {
    Verdict::FailedForGood { failure: FailureReport::new("refused by the bank") }
}

/// An operation that was given up after a reference was recorded.
fn given_up(world: &World) -> Store {
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.record_external_reference("ch_1").unwrap();
    claim.give_up("the answer was lost").unwrap();
    store
}

#[test]
fn what_was_given_up_is_unknown_to_everyone() {
    let world = World::new();
    let store = given_up(&world);
    let since = get(&store, "a").unknown.unwrap().0;
    world.clock.advance(DAY);
    let store = world.now_and_reopened(store, |store| {
        for _ in 0..100 {
            let told = unknown(store, &operation("a"));
            assert_eq!(told.cause(), UnknownCause::GaveUp);
            assert_eq!((told.attempt(), told.since(), told.probes()), (1, since, 0));
            assert_eq!(told.failure().unwrap().message(), "the answer was lost");
            assert_eq!(told.external_reference(), Some("ch_1"));
            assert_eq!(told.downstream_key(), get(store, "a").downstream_key);
        }
        assert_eq!(get(store, "a").failure.as_deref(), Some("the answer was lost"));
    });
    // Neither a reservation nor a batch nor patience is a way around.
    assert!(matches!(store.reserve(&operation("a")).unwrap(), dupeproof::Reserve::Unknown(_)));
    assert!(matches!(store.begin_many(&[operation("a")]).unwrap()[0], dupeproof::Begin::Unknown(_)));
    unknown(&store, &operation("a").with_wait(HOUR).with_attempts(u32::MAX));
    assert_eq!(get(&store, "a").attempts, 1);
}

#[test]
fn reason_of_an_unknown_outcome_is_told() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("gave up")).give_up("lost").unwrap();
    drop(execute(&store, &operation("dropped")));
    after_drops(&store);
    let open_claim = execute(&store, &operation("lapsed"));
    world.clock.advance(2 * HOUR);
    let gone = execute(&store, &operation("owner gone"));
    let store = world.reopen(store);
    drop((open_claim, gone));
    let cause = |name| unknown(&store, &operation(name)).cause();
    assert_eq!(cause("gave up"), UnknownCause::GaveUp);
    assert_eq!(cause("dropped"), UnknownCause::ClaimDropped);
    assert_eq!(cause("lapsed"), UnknownCause::LeaseLapsed);
    assert_eq!(cause("owner gone"), UnknownCause::OwnerGone);
}

#[test]
fn outcome_is_unknown_since_its_lease_ended_whoever_looks_and_whenever() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let lease_ends = get(&store, "a").lease_until.unwrap();
    world.clock.advance(10 * HOUR);
    let since = |store: &Store| unknown(store, &operation("a")).since();
    assert_eq!(since(&store), lease_ends);
    assert_eq!(store.sweep(10).unwrap().leases_ended, 1);
    world.clock.advance(HOUR);
    assert_eq!(since(&store), lease_ends);
    let store = world.reopen(store);
    assert_eq!(since(&store), lease_ends);
    drop(claim);
}

#[test]
fn verdict_that_it_happened_is_replayed_to_everyone() {
    let world = World::new();
    let store = given_up(&world);
    world.clock.advance(HOUR);
    let verdict = Verdict::Happened { response: "receipt".into(), external_reference: Some("ch_2".into()) };
    let view = resolve(&store, verdict);
    assert_eq!(view.status, Status::Succeeded);
    assert_eq!(view.settled_at.unwrap().since(view.created_at), HOUR);
    world.now_and_reopened(store, |store| {
        let told = replay(store, &operation("a"));
        assert_eq!(told.value().unwrap(), b"receipt");
        assert_eq!(told.external_reference(), Some("ch_2"));
        assert_eq!(told.attempt(), 1);
        conflict(store, &altered("a"));
    });
}

#[test]
fn verdict_without_a_reference_keeps_the_one_on_record() {
    let world = World::new();
    let store = given_up(&world);
    resolve(&store, happened("receipt"));
    assert_eq!(replay(&store, &operation("a")).external_reference(), Some("ch_1"));
}

#[test]
fn verdict_with_a_response_over_the_limit_is_a_success_all_the_same() {
    let world = World::new();
    let store = world.options().with_response_limit(4).open(world.path()).unwrap();
    execute(&store, &operation("a")).give_up("lost").unwrap();
    let view = resolve(&store, happened("receipt"));
    assert_eq!(view.status, Status::Succeeded);
    assert!(matches!(view.response, Some(Response::TooLarge { len: 7, .. })));
}

#[test]
fn verdict_that_it_failed_for_good_is_replayed_to_everyone() {
    let world = World::new();
    let store = given_up(&world);
    assert_eq!(resolve(&store, failed()).status, Status::FailedTerminal);
    world.now_and_reopened(store, |store| {
        let told = replay(store, &operation("a"));
        assert_eq!(told.failure().unwrap().message(), "refused by the bank");
        assert!(!told.attempts_exhausted());
    });
}

#[test]
fn verdict_that_it_did_not_happen_permits_one_more_attempt_also_beyond_the_limit() {
    let world = World::new();
    let store = world.open();
    let once = operation("a").with_attempts(1);
    execute(&store, &once).give_up("lost").unwrap();
    unknown(&store, &once);
    assert_eq!(resolve(&store, Verdict::DidNotHappen).status, Status::FailedRetryable);
    let store = world.reopen(store);
    let claim = execute(&store, &once);
    assert_eq!(claim.attempt(), 2);
    assert!(!claim.is_resend());
    in_progress(&store, &once);
    claim.give_up("lost again").unwrap();
    unknown(&store, &once);
}

#[test]
fn verdict_that_nobody_knows_yet_changes_no_answer() {
    let world = World::new();
    let store = given_up(&world);
    let before = unknown(&store, &operation("a"));
    let view = resolve(&store, Verdict::StillUnknown { next: HOUR });
    assert_eq!((view.status, view.decisions.len()), (Status::Unknown, 1));
    world.now_and_reopened(store, |store| assert_eq!(unknown(store, &operation("a")), before));
}

#[test]
fn unknown_outcomes_alone_can_be_resolved() {
    for status in STATUSES.into_iter().filter(|status| *status != Status::Unknown) {
        let world = World::new();
        let store = world.open();
        let held = bring_to(&world, &store, "a", status);
        let (before, view) = (world.bytes(), get(&store, "a"));
        for verdict in [happened("x"), failed(), Verdict::DidNotHappen, Verdict::StillUnknown { next: Duration::ZERO }]
        {
            let error = store.resolve(key("a"), verdict, &decision()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{status}");
        }
        assert_eq!(get(&store, "a"), view);
        assert!(world.bytes() == before, "{status}: a refused verdict wrote to the file");
        drop(held);
    }
    let store = Store::in_memory().unwrap();
    let error = store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn lease_that_lapsed_a_moment_ago_can_be_resolved_before_any_sweep() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(2 * HOUR);
    assert_eq!(resolve(&store, happened("receipt")).status, Status::Succeeded);
    assert_eq!(replay(&store, &operation("a")).value().unwrap(), b"receipt");
    drop(claim);
}

#[test]
fn decisions_are_kept_with_the_operation_in_their_order() {
    let world = World::new();
    let store = given_up(&world);
    let told =
        |by: &str, verdict| store.resolve(key("a"), verdict, &Decision::new(by, format!("{by} looked"))).unwrap();
    told("ann", Verdict::StillUnknown { next: HOUR });
    world.clock.advance(HOUR);
    told("ben", Verdict::StillUnknown { next: HOUR });
    told("cem", Verdict::DidNotHappen);
    execute(&store, &operation("a")).give_up("lost again").unwrap();
    told("dee", happened("receipt"));
    let created_at = get(&store, "a").created_at;
    let at = |span: Duration| Timestamp::from_unix_millis(created_at.as_unix_millis() + span.as_millis() as u64);
    let expected = [
        ("ann", Ruling::StillUnknown, at(Duration::ZERO)),
        ("ben", Ruling::StillUnknown, at(HOUR)),
        ("cem", Ruling::DidNotHappen, at(HOUR)),
        ("dee", Ruling::Happened, at(HOUR)),
    ];
    world.now_and_reopened(store, |store| {
        let decisions = get(store, "a").decisions;
        let found: Vec<_> = decisions.iter().map(|one| (one.by.as_str(), one.ruling, one.at)).collect();
        assert_eq!(found, expected);
        assert_eq!(decisions[1].reason, "ben looked");
    });
}

#[test]
fn decisions_of_a_tombstone_are_still_shown() {
    let world = World::new();
    let store = given_up(&world);
    resolve(&store, happened("receipt"));
    world.clock.advance(8 * DAY);
    store.sweep(10).unwrap();
    world.now_and_reopened(store, |store| {
        let view = get(store, "a");
        assert_eq!((view.status, view.ended), (Status::Tombstone, Some(Status::Succeeded)));
        assert_eq!(view.decisions[0].by, "jane");
    });
}

#[test]
fn oldest_decisions_go_when_there_are_too_many() {
    let world = World::new();
    let store = given_up(&world);
    for at in 0..40 {
        let by = Decision::new(format!("person {at}"), "looked");
        store.resolve(key("a"), Verdict::StillUnknown { next: Duration::ZERO }, &by).unwrap();
    }
    let decisions = get(&store, "a").decisions;
    assert_eq!(decisions.len(), 16);
    assert_eq!((decisions[0].by.as_str(), decisions[15].by.as_str()), ("person 24", "person 39"));
}

#[test]
fn unknown_outcome_stays_so_for_as_long_as_nobody_finds_out() {
    let world = World::new();
    let store = given_up(&world);
    world.clock.advance(100 * 365 * DAY);
    while store.sweep(1000).unwrap().more {}
    store.compact().unwrap();
    world.now_and_reopened(store, |store| {
        unknown(store, &operation("a"));
    });
}

/// A nonce is for begins that never heard of their claim. One who got it and died must not pass for such a one.
#[test]
fn nonce_of_a_claim_that_was_received_is_no_way_around() {
    let world = World::new();
    let store = world.open();
    let nonce = dupeproof::Nonce::new();
    let remembered = operation("a").with_nonce(&nonce);
    let claim = execute(&store, &remembered);
    in_progress(&store, &remembered);
    let store = world.reopen(store);
    unknown(&store, &remembered);
    drop(claim);
    let store = world.reopen(store);
    unknown(&store, &remembered);
    assert_eq!(get(&store, "a").attempts, 1);
}
