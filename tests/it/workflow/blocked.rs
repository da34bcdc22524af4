//! A step whose outcome nobody knows: it blocks its run, visibly, until somebody knows.

use dupeproof::{Begin, Finding, RunStatus, Status, Subject, Verdict};

use super::*;
use crate::support::*;

/// A run of which the second of three steps is unknown.
fn blocked(store: &Store) {
    let run = run(store);
    succeed(&run, "reserve");
    claimed(run.step("charge", payload()).unwrap()).give_up("the line went dead").unwrap();
}

fn charge(store: &Store) -> dupeproof::Identity {
    view(store).summary.blocked_by.expect("a step is unknown").0
}

#[test]
fn unknown_step_blocks_its_run_visibly_and_a_hundred_resumes_do_not_help() {
    let world = World::new();
    let store = world.open();
    blocked(&store);
    let since = view(&store).summary.blocked_by.unwrap().1;
    world.clock.advance(DAY);
    world.throughout(store, |store| {
        for _ in 0..100 {
            let run = run(store);
            assert_eq!(replayed(run.step("reserve", payload()).unwrap()).value().unwrap(), b"reserve");
            for step in ["charge", "mail"] {
                let Begin::Unknown(unknown) = run.step(step, payload()).unwrap() else { panic!("{step} began") };
                assert_eq!(unknown.identity().step_key().unwrap().name(), "charge");
            }
            assert!(run.finish_raw("done").is_err() && run.fail("why").is_err());
            assert!(run.compensate(|_| panic!("nothing is undone before it is known what happened")).is_err());
        }
        let view = view(store);
        assert_eq!(view.summary.status, RunStatus::BlockedUnknown);
        let (identity, at) = view.summary.blocked_by.clone().unwrap();
        assert_eq!((identity.step_key().unwrap().name(), at), ("charge", since));
        assert_eq!(view.steps.len(), 2, "the third was never recorded");
    });
}

#[test]
fn sweep_leaves_a_blocked_run_alone_for_ever() {
    let world = World::new();
    let store = world.open();
    blocked(&store);
    world.clock.advance(400 * DAY);
    while store.sweep(10).unwrap().more {}
    let store = world.reopen(store);
    assert_eq!(run_status(&store), RunStatus::BlockedUnknown);
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn probe_of_the_step_lets_the_run_go_on() {
    let world = World::new();
    let store = world.open();
    blocked(&store);
    let reconciler = store
        .reconciler()
        .with_probe(Subject::step("trip", "reserve"), |_: &dupeproof::Inquiry| panic!("the wrong step is asked about"))
        .with_probe(Subject::from("trip"), |_: &dupeproof::Inquiry| panic!("it is no operation"))
        .with_probe(Subject::step("trip", "charge"), |_: &dupeproof::Inquiry| Ok(Finding::happened("ch_1")));
    world.clock.advance(DAY);
    assert_eq!(reconciler.run_once(10).unwrap().happened, 1);
    world.throughout(store, |store| {
        let run = run(store);
        assert_eq!(replayed(run.step("charge", payload()).unwrap()).value().unwrap(), b"ch_1");
        assert_eq!(run_status(store), RunStatus::Running);
    });
}

#[test]
fn each_verdict_of_a_person_lets_the_run_go_on_as_it_says() {
    let happened = Verdict::Happened { response: "ch_1".into(), external_reference: None };
    let failed = Verdict::FailedForGood { failure: dupeproof::FailureReport::new("declined") };
    for (verdict, status) in [
        (happened, Status::Succeeded),
        (failed, Status::FailedTerminal),
        (Verdict::DidNotHappen, Status::FailedRetryable),
    ] {
        let world = World::new();
        let store = world.open();
        blocked(&store);
        store.resolve(charge(&store), verdict, &decision()).unwrap();
        let store = world.throughout(store, |store| {
            assert_eq!(run_status(store), RunStatus::Running);
            assert_eq!(view(store).steps[1].operation.status, status);
            assert_eq!(view(store).steps[1].operation.decisions.len(), 1);
        });
        let run = run(&store);
        match run.step("charge", payload()).unwrap() {
            Begin::Execute(claim) => {
                assert_eq!((status, claim.attempt()), (Status::FailedRetryable, 2));
                claim.succeed_raw("ch_2").unwrap();
            }
            Begin::Replay(replay) => assert_eq!(replay.is_success(), status == Status::Succeeded),
            other => panic!("{other:?}"),
        }
        succeed(&run, "mail");
        run.finish_raw("done").unwrap();
    }
}

#[test]
fn step_that_nobody_can_look_up_waits_for_a_person_and_is_listed() {
    let world = World::new();
    let store = world.open();
    blocked(&store);
    for _ in 0..30 {
        world.clock.advance(DAY);
        store.reconcile(10, |_| Finding::still_unknown()).unwrap();
    }
    world.clock.advance(400 * DAY);
    while store.sweep(10).unwrap().more {}
    world.throughout(store, |store| {
        let waiting = dupeproof::Filter::new().with_kind(dupeproof::Kind::Step).with_waiting_for_person();
        let listed = store.list(&waiting, &dupeproof::Page::first(10)).unwrap().operations;
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].identity.step_key().unwrap().name(), "charge");
        assert_eq!(run_status(store), RunStatus::BlockedUnknown);
    });
}

#[test]
fn lease_that_ends_blocks_the_run_although_no_sweep_came_by() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    let terms = run.operation("charge", payload()).unwrap().with_lease(MINUTE).with_max_execution(MINUTE);
    let claim = execute(&store, &terms);
    world.clock.advance(MINUTE);
    assert_eq!(run_status(&store), RunStatus::BlockedUnknown);
    assert!(matches!(run.step("mail", payload()).unwrap(), Begin::Unknown(_)));
    // The owner was late, not dead.
    claim.succeed_raw("ch_1").unwrap();
    succeed(&run, "mail");
}

#[test]
fn resend_of_the_unknown_step_itself_is_not_blocked() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    let remote = dupeproof::Remote::DedupesOnKey { window: DAY };
    let terms = run.operation("charge", payload()).unwrap().with_remote(remote);
    execute(&store, &terms).give_up("lost").unwrap();
    let claim = execute(&store, &terms);
    assert!(claim.is_resend());
    claim.succeed_raw("ch_1").unwrap();
    succeed(&run, "mail");
}
