//! Going back: what succeeded is compensated once each, the last one first, and people are told how it really went.

use dupeproof::{
    Begin, ErrorKind, Failure, Finding, Kind, Operation, Response, Retry, RunEntry, RunStatus, Status, Subject, Verdict,
};

use super::*;
use crate::support::*;

/// A run of three steps, the third of which failed for good.
fn failed_run(store: &Store) -> Run {
    let run = run(store);
    succeed(&run, "flight");
    succeed(&run, "hotel");
    let failed = run.step_with_raw("car", payload(), |_claim| Err(Failure::terminal("none left"))).unwrap();
    assert!(matches!(failed, Outcome::FailedTerminal(_)));
    run
}

/// The run as somebody finds it who has to go on with it.
fn turned_back(store: &Store) -> Run {
    match trip(store).run("t-1", payload()).unwrap() {
        RunEntry::Compensating(run) => run,
        other => panic!("expected a run that turned back, found {other:?}"),
    }
}

/// Of each step, how its compensation stands.
fn compensations(view: &RunView) -> Vec<(&str, Option<Status>)> {
    let status = |step: &dupeproof::StepView| step.operation.compensation.as_ref().map(|it| it.status);
    view.steps.iter().map(|step| (step.step.name(), status(step))).collect()
}

fn cancelled() -> std::result::Result<Response, Failure> {
    Ok("cancelled".into())
}

#[test]
fn every_step_that_succeeded_is_compensated_once_the_last_one_first() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    let mut order = Vec::new();
    let view = run
        .compensate(|undo| {
            assert_eq!(undo.done().value().unwrap(), undo.step().name().as_bytes());
            assert_eq!(undo.claim().identity().kind(), Kind::Compensation);
            order.push(undo.step().name().to_owned());
            cancelled()
        })
        .unwrap();
    assert_eq!(order, ["hotel", "flight"]);
    assert_eq!(view.summary.status, RunStatus::Compensated);
    assert_eq!(view.failure.as_deref(), Some("step car failed: none left"));
    drop(run);
    world.throughout(store, |store| {
        let view = view_of(store);
        assert_eq!(view.summary.status, RunStatus::Compensated);
        let ok = Some(Status::Succeeded);
        assert_eq!(compensations(&view), [("flight", ok), ("hotel", ok), ("car", None)]);
        let RunEntry::Replay(replay) = trip(store).run("t-1", payload()).unwrap() else { panic!("it is over") };
        assert!(!replay.is_success());
    });
}

fn view_of(store: &Store) -> RunView {
    super::view(store)
}

#[test]
fn compensation_that_failed_for_good_makes_the_run_partially_compensated_for_ever() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    let view = run
        .compensate(
            |undo| if undo.step().name() == "hotel" { Err(Failure::terminal("no refund")) } else { cancelled() },
        )
        .unwrap();
    assert_eq!(view.summary.status, RunStatus::PartiallyCompensated);
    let again = run.compensate(|_| panic!("it is over")).unwrap();
    assert_eq!(again.summary.status, RunStatus::PartiallyCompensated);
    drop(run);
    world.throughout(store, |store| {
        let view = view_of(store);
        assert_eq!(view.summary.status, RunStatus::PartiallyCompensated);
        let (ok, failed) = (Some(Status::Succeeded), Some(Status::FailedTerminal));
        assert_eq!(compensations(&view), [("flight", ok), ("hotel", failed), ("car", None)]);
    });
}

#[test]
fn unknown_compensation_is_shown_keeps_no_other_from_being_tried_and_is_never_repeated() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    let view = run
        .compensate(|undo| if undo.step().name() == "hotel" { Err(Failure::unknown("timeout")) } else { cancelled() })
        .unwrap();
    assert_eq!(view.summary.status, RunStatus::CompensationUnknown);
    drop(run);
    let store = world.throughout(store, |store| {
        for _ in 0..100 {
            let view = turned_back(store).compensate(|_| panic!("nothing is done again")).unwrap();
            assert_eq!(view.summary.status, RunStatus::CompensationUnknown);
        }
        let view = view_of(store);
        let (ok, unknown) = (Some(Status::Succeeded), Some(Status::Unknown));
        assert_eq!(compensations(&view), [("flight", ok), ("hotel", unknown), ("car", None)]);
        let (identity, _) = view.summary.blocked_by.unwrap();
        assert_eq!((identity.kind(), identity.step_key().unwrap().name()), (Kind::Compensation, "hotel"));
    });
    // It is reconciled like any other operation.
    let subject = Subject::step("trip", "hotel").compensation();
    let asked =
        store.reconciler().early().with_probe(subject, |_: &dupeproof::Inquiry| Ok(Finding::happened("cancelled")));
    assert_eq!(asked.run_once(10).unwrap().happened, 1);
    assert_eq!(run_status(&store), RunStatus::Compensating, "the run itself is not over before somebody ends it");
    let view = turned_back(&store).compensate(|_| panic!("nothing is done again")).unwrap();
    assert_eq!(view.summary.status, RunStatus::Compensated);
}

#[test]
fn compensation_that_did_not_happen_is_tried_again_and_the_done_ones_are_not() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    let busy = |_: &dupeproof::Undo<'_>| Err(Failure::retryable("busy", Retry::after(MINUTE)));
    let view = run.compensate(|undo| if undo.step().name() == "flight" { busy(undo) } else { cancelled() }).unwrap();
    assert_eq!(view.summary.status, RunStatus::Compensating);
    drop(run);
    let store = world.reopen(store);
    // Too early: it is not asked again before its time.
    let view = turned_back(&store).compensate(|_| panic!("too early")).unwrap();
    assert_eq!(view.summary.status, RunStatus::Compensating);
    world.clock.advance(MINUTE);
    let mut again = Vec::new();
    let view = turned_back(&store)
        .compensate(|undo| {
            again.push((undo.step().name().to_owned(), undo.claim().attempt()));
            cancelled()
        })
        .unwrap();
    assert_eq!((again, view.summary.status), (vec![("flight".to_owned(), 2)], RunStatus::Compensated));
}

#[test]
fn run_of_which_no_step_succeeded_has_failed_at_once() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    let failed = run.step_with_raw("flight", payload(), |_claim| Err(Failure::terminal("none left"))).unwrap();
    assert!(matches!(failed, Outcome::FailedTerminal(_)));
    let view = run.compensate(|_| panic!("there is nothing to undo")).unwrap();
    assert_eq!(view.summary.status, RunStatus::Failed);
    assert!(view.summary.status.is_final() && view.summary.settled_at.is_some());
    drop(run);
    world.throughout(store, |store| assert_eq!(run_status(store), RunStatus::Failed));
}

#[test]
fn run_that_turned_back_takes_no_step_and_cannot_end_well() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    run.compensate(|_| Err(Failure::unknown("timeout"))).unwrap();
    for refused in [
        run.step("car", payload()).map(drop),
        run.step("boat", payload()).map(drop),
        run.finish_raw("done").map(drop),
        run.fail("why").map(drop),
    ] {
        // What is settled is replayed; everything else is refused.
        assert!(refused.as_ref().map_err(|error| error.kind() == ErrorKind::Refused) != Err(false), "{refused:?}");
    }
    assert_eq!(run.step("boat", payload()).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(run_status(&store), RunStatus::CompensationUnknown);
}

#[test]
fn step_is_not_compensated_while_its_run_goes_forward_nor_if_it_did_not_succeed() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    let refusal = |step: &str| store.begin(&run.compensation(step, payload()).unwrap()).unwrap_err().kind();
    assert_eq!(refusal("hotel"), ErrorKind::Refused);
    run.compensate(|_| Err(Failure::retryable("busy", Retry::now()))).unwrap();
    assert_eq!(refusal("car"), ErrorKind::Refused);
    assert_eq!(refusal("boat"), ErrorKind::NotFound);
    let by_hand = execute(&store, &run.compensation("hotel", payload()).unwrap());
    by_hand.succeed_raw("cancelled").unwrap();
}

#[test]
fn panic_while_compensating_leaves_that_one_unknown_and_the_others_to_be_done() {
    let world = World::new();
    let store = world.open();
    let run = failed_run(&store);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = run.compensate(|_| panic!("a defect"));
    }));
    assert!(caught.is_err());
    after_drops(&store);
    let view = run.compensate(|_| cancelled()).unwrap();
    assert_eq!(view.summary.status, RunStatus::CompensationUnknown);
    let (ok, unknown) = (Some(Status::Succeeded), Some(Status::Unknown));
    assert_eq!(compensations(&view), [("flight", ok), ("hotel", unknown), ("car", None)]);
}

// Of an operation that belongs to no run.

#[test]
fn operation_is_compensated_once_and_shown_with_it() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ch_1").unwrap();
    claimed(store.compensate(&key("a"), payload()).unwrap()).succeed_raw("refund").unwrap();
    world.throughout(store, |store| {
        assert_eq!(replayed(store.compensate(&key("a"), payload()).unwrap()).value().unwrap(), b"refund");
        // The operation still happened: a repeat is told so.
        assert_eq!(replay(store, &operation("a")).value().unwrap(), b"ch_1");
        let shown = get(store, "a").compensation.expect("it is shown");
        assert_eq!((shown.status, shown.identity.kind()), (Status::Succeeded, Kind::Compensation));
        let listed = store.list(&dupeproof::Filter::new(), &dupeproof::Page::first(10)).unwrap().operations;
        let shown: Vec<_> = listed.iter().filter(|it| it.key == key("a")).map(|it| it.compensation.is_some()).collect();
        assert_eq!(shown, [true]);
    });
}

#[test]
fn compensation_of_another_payload_is_a_conflict() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ch_1").unwrap();
    claimed(store.compensate(&key("a"), payload()).unwrap()).succeed_raw("refund").unwrap();
    let more = dupeproof::Fingerprint::of_bytes(b"more money back");
    assert!(matches!(store.compensate(&key("a"), more).unwrap(), Begin::Conflict(_)));
}

#[test]
fn only_what_succeeded_is_compensated() {
    let world = World::new();
    let store = world.open();
    assert_eq!(store.compensate(&key("absent"), payload()).unwrap_err().kind(), ErrorKind::NotFound);
    let held = execute(&store, &operation("executing"));
    execute(&store, &operation("unknown")).give_up("lost").unwrap();
    execute(&store, &operation("failed")).fail_terminal("declined").unwrap();
    execute(&store, &operation("retryable")).fail_retryable("busy", Retry::now()).unwrap();
    for name in ["executing", "unknown", "failed", "retryable"] {
        assert_eq!(store.compensate(&key(name), payload()).unwrap_err().kind(), ErrorKind::Refused, "{name}");
    }
    held.succeed_raw("ch_1").unwrap();
    claimed(store.compensate(&key("executing"), payload()).unwrap()).release().unwrap();
}

#[test]
fn unknown_compensation_is_resolved_like_any_operation() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ch_1").unwrap();
    claimed(store.compensate(&key("a"), payload()).unwrap()).give_up("lost").unwrap();
    let refund = dupeproof::Identity::from(key("a")).compensation().unwrap();
    let store = world.throughout(store, |store| {
        assert!(matches!(store.compensate(&key("a"), payload()).unwrap(), Begin::Unknown(_)));
        assert_eq!(store.get(&refund).unwrap().unwrap().status, Status::Unknown);
    });
    store.resolve(&refund, Verdict::DidNotHappen, &decision()).unwrap();
    assert_eq!(claimed(store.compensate(&key("a"), payload()).unwrap()).attempt(), 2);
}

#[test]
fn compensation_is_remembered_after_the_response_of_the_operation_is_gone() {
    let world = World::new();
    let store = world.open();
    let kept = operation("a").with_retention(dupeproof::Retention::default().with_tombstone_forever());
    execute(&store, &kept).succeed_raw("ch_1").unwrap();
    claimed(store.compensate(&key("a"), payload()).unwrap()).succeed_raw("refund").unwrap();
    world.clock.advance(3000 * DAY);
    while store.sweep(10).unwrap().more {}
    let store = world.reopen(store);
    assert!(matches!(store.compensate(&key("a"), payload()).unwrap(), Begin::Expired(_)), "it never runs twice");
}

/// The key was forgotten and used again: what is compensated then is another charge.
#[test]
fn compensation_of_an_earlier_life_of_the_key_is_not_taken_for_that_of_the_present_one() {
    let world = World::new();
    let store = world.open();
    for life in 1..=3 {
        execute(&store, &operation("a")).succeed_raw(format!("charge {life}")).unwrap();
        assert!(get(&store, "a").compensation.is_none(), "life {life}");
        let refund = claimed(store.compensate(&key("a"), payload()).unwrap());
        refund.succeed_raw(format!("refund {life}")).unwrap();
        let again = replayed(store.compensate(&key("a"), payload()).unwrap());
        assert_eq!(again.value().unwrap(), format!("refund {life}").as_bytes());
        world.clock.advance(3000 * DAY);
        if life == 2 {
            while store.sweep(10).unwrap().more {}
        }
    }
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn operation_of_a_compensation_takes_terms_like_any_other() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ch_1").unwrap();
    let refund = Operation::compensation(&key("a"), payload()).with_attempts(1);
    execute(&store, &refund).fail_retryable("busy", Retry::now()).unwrap();
    assert!(replay(&store, &refund).attempts_exhausted());
    assert_eq!(get(&store, "a").compensation.unwrap().status, Status::FailedTerminal);
}
