//! Steps of a run: replayed, resumed, refused.

use dupeproof::{
    Begin, ErrorKind, Failure, Fingerprint, Outcome, Response, RunEntry, RunStatus, Settlement, Status, Store,
};

use super::*;
use crate::support::*;

fn changed() -> Fingerprint {
    Fingerprint::of_bytes(b"another payload")
}

#[test]
fn finished_steps_are_replayed_and_the_first_unfinished_one_runs() {
    let world = World::new();
    let store = world.open();
    let first = run(&store);
    succeed(&first, "decide");
    succeed(&first, "reserve");
    drop(first);
    let store = world.throughout(store, |store| {
        let resumed = run(store);
        assert_eq!(replayed(resumed.step("decide", payload()).unwrap()).value().unwrap(), b"decide");
        assert_eq!(replayed(resumed.step("reserve", payload()).unwrap()).value().unwrap(), b"reserve");
        assert_eq!((run_status(store), view(store).steps.len()), (RunStatus::Running, 2));
    });
    assert_eq!(claimed(run(&store).step("charge", payload()).unwrap()).attempt(), 1);
}

#[test]
fn entering_a_run_writes_nothing() {
    let world = World::new();
    let store = world.open();
    succeed(&run(&store), "decide");
    let before = world.bytes();
    let entered = entered(&trip(&store), "another");
    assert_eq!(entered.key().run(), "another");
    drop(entered);
    assert!(trip(&store).find("another").unwrap().is_none());
    assert_eq!(world.bytes(), before);
}

#[test]
fn step_with_another_payload_is_a_conflict_and_does_not_run() {
    let world = World::new();
    let store = world.open();
    succeed(&run(&store), "charge");
    world.throughout(store, |store| {
        let again = run(store);
        assert!(matches!(again.step("charge", changed()).unwrap(), Begin::Conflict(_)));
        let outcome = again.step_with_raw("charge", changed(), |_claim| panic!("it must not run")).unwrap();
        assert!(matches!(outcome, Outcome::Conflict(_)));
    });
}

#[test]
fn turns_of_a_loop_do_not_meet_steps_of_similar_names() {
    let world = World::new();
    let store = world.open();
    let steps = |run: &dupeproof::Run| {
        [
            run.step("a", payload()),
            run.step("a:1", payload()),
            run.step("a[1]", payload()),
            run.step(("a", 0), payload()),
            run.step(("a", 1), payload()),
            run.step(("a", u32::MAX), payload()),
            run.step(("a:1", 1), payload()),
        ]
    };
    for (at, begin) in steps(&run(&store)).into_iter().enumerate() {
        claimed(begin.unwrap()).succeed_raw(at.to_string()).unwrap();
    }
    world.throughout(store, |store| {
        for (at, begin) in steps(&run(store)).into_iter().enumerate() {
            assert_eq!(replayed(begin.unwrap()).value().unwrap(), at.to_string().as_bytes());
        }
    });
}

#[test]
fn runs_and_operations_of_the_same_names_do_not_meet() {
    let world = World::new();
    let store = world.open();
    succeed(&run(&store), "charge");
    // A run whose key is the beginning of another's, another workflow's, another tenant's, and a plain operation.
    succeed(&entered(&trip(&store), "t-10"), "charge");
    succeed(&entered(&trip(&store), "t"), "charge");
    let elsewhere = [store.workflow("acme", "trips").unwrap(), store.workflow("acm", "trip").unwrap()];
    elsewhere.iter().for_each(|workflow| succeed(&entered(workflow, "t-1"), "charge"));
    let plain = dupeproof::Operation::new(dupeproof::OperationKey::new("acme", "trip", "t-1").unwrap(), payload());
    execute(&store, &plain).succeed_raw("plain").unwrap();
    assert_eq!(view(&store).steps.len(), 1);
    assert_eq!(store.stats().unwrap().runs_open, 5);
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn run_with_another_payload_is_a_conflict_before_and_after_its_end() {
    let world = World::new();
    let store = world.open();
    let first = run(&store);
    // Entered before anything was recorded: it finds out with its first step.
    let RunEntry::Run(late) = trip(&store).run("t-1", changed()).unwrap() else { panic!("nothing is recorded yet") };
    succeed(&first, "charge");
    assert_eq!(late.step("mail", payload()).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(late.finish_raw("x").unwrap_err().kind(), ErrorKind::Refused);
    let store = world.throughout(store, |store| {
        assert!(matches!(trip(store).run("t-1", changed()).unwrap(), RunEntry::Conflict(_)));
    });
    run(&store).finish_raw("done").unwrap();
    world.throughout(store, |store| {
        assert!(matches!(trip(store).run("t-1", changed()).unwrap(), RunEntry::Conflict(_)));
    });
}

#[test]
fn finished_run_is_replayed_to_every_repeat_and_takes_no_more_steps() {
    let world = World::new();
    let store = world.open();
    let first = run(&store);
    succeed(&first, "charge");
    first.finish_raw("booked").unwrap();
    first.finish_raw("booked").expect("saying it again is no error");
    assert_eq!(first.finish_raw("otherwise").unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(first.fail("no").unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(first.step("more", payload()).unwrap_err().kind(), ErrorKind::Refused);
    // What is done is done, and said so.
    assert_eq!(replayed(first.step("charge", payload()).unwrap()).value().unwrap(), b"charge");
    drop(first);
    world.throughout(store, |store| {
        for _ in 0..100 {
            let RunEntry::Replay(replay) = trip(store).run("t-1", payload()).unwrap() else { panic!("not replayed") };
            assert_eq!(replay.value().unwrap(), b"booked");
        }
        let view = view(store);
        assert_eq!((view.summary.status, view.summary.steps_succeeded), (RunStatus::Succeeded, 1));
        assert_eq!(view.response, Some(Response::from("booked")));
    });
}

#[test]
fn changed_definition_is_reported_until_it_is_accepted() {
    let world = World::new();
    let store = world.open();
    let version = |store: &Store, version: &str| {
        trip(store).with_definition_fingerprint(Fingerprint::of_bytes(version.as_bytes()))
    };
    let old = entered(&version(&store, "1"), "t-1");
    succeed(&old, "charge");
    let store = world.throughout(store, |store| {
        let changed = version(store, "2").run("t-1", payload()).unwrap();
        assert!(matches!(changed, RunEntry::DefinitionChanged(_)));
        // A workflow that says nothing of itself is another one, too.
        assert!(matches!(trip(store).run("t-1", payload()).unwrap(), RunEntry::DefinitionChanged(_)));
    });
    let RunEntry::DefinitionChanged(changed) = version(&store, "2").run("t-1", payload()).unwrap() else { panic!() };
    let accepted = changed.accept();
    assert_eq!(replayed(accepted.step("charge", payload()).unwrap()).value().unwrap(), b"charge");
    succeed(&accepted, "mail");
    world.throughout(store, |store| {
        let old = version(store, "1").run("t-1", payload()).unwrap();
        assert!(matches!(old, RunEntry::DefinitionChanged(_)), "the old release is told, too");
        assert_eq!(entered(&version(store, "2"), "t-1").view().unwrap().unwrap().steps.len(), 2);
    });
}

#[test]
fn step_that_is_held_is_in_progress_to_others_and_the_run_cannot_end() {
    let world = World::new();
    let store = world.open();
    let (one, other) = (run(&store), run(&store));
    let claim = claimed(one.step("charge", payload()).unwrap());
    assert!(matches!(other.step("charge", payload()).unwrap(), Begin::InProgress(_)));
    // Branches may be taken side by side.
    succeed(&other, "mail");
    assert_eq!(other.finish_raw("done").unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(other.fail("why").unwrap_err().kind(), ErrorKind::Refused);
    claim.succeed_raw("ch_1").unwrap();
    other.finish_raw("done").unwrap();
}

#[test]
fn settlement_and_the_next_step_are_one_and_what_cannot_begin_loses_no_settlement() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    let first = claimed(run.step("a", payload()).unwrap());
    let second = claimed(run.settle_and_step(&first, Settlement::Succeeded("1".into()), "b", payload()).unwrap());
    assert!(!first.is_current() && second.is_current());
    // A side branch is lost; what ends meanwhile is settled all the same.
    claimed(run.step("side", payload()).unwrap()).give_up("lost").unwrap();
    let told = run.settle_and_step(&second, Settlement::Succeeded("2".into()), "c", payload()).unwrap();
    let Begin::Unknown(unknown) = told else { panic!("{told:?}") };
    assert_eq!(unknown.identity().step_key().unwrap().name(), "side");
    drop((first, second, run));
    after_drops(&store);
    world.throughout(store, |store| {
        let steps = view(store).steps;
        let found: Vec<_> = steps.iter().map(|step| (step.step.name(), step.operation.status)).collect();
        assert_eq!(found, [("a", Status::Succeeded), ("b", Status::Succeeded), ("side", Status::Unknown)]);
    });
}

#[test]
fn last_settlement_and_the_end_of_the_run_are_one() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    let claim = claimed(run.step("a", payload()).unwrap());
    let stale = claimed(run.step("b", payload()).unwrap());
    // Neither happens while another step is held.
    let refused = run.settle_and_finish(&claim, Settlement::Succeeded("1".into()), "done").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(claim.is_current());
    stale.succeed_raw("2").unwrap();
    run.settle_and_finish(&claim, Settlement::Succeeded("1".into()), "done").unwrap();
    drop((claim, stale, run));
    world.throughout(store, |store| assert_eq!(run_status(store), RunStatus::Succeeded));
}

#[test]
fn failed_step_is_tried_again_when_it_may_and_replayed_when_it_may_not() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    let later = dupeproof::Retry::after(MINUTE);
    let outcome = run.step_with_raw("a", payload(), |_| Err(Failure::retryable("busy", later))).unwrap();
    assert!(matches!(outcome, Outcome::RetryLater(_)));
    assert!(matches!(run.step("a", payload()).unwrap(), Begin::RetryLater(_)));
    succeed(&run, "b");
    world.clock.advance(MINUTE);
    let outcome = run.step_with_raw("a", payload(), |_| Err(Failure::terminal("declined"))).unwrap();
    assert!(matches!(outcome, Outcome::FailedTerminal(_)));
    assert!(!replayed(run.step("a", payload()).unwrap()).is_success());
    assert_eq!(run_status(&store), RunStatus::Running);
}

#[test]
fn names_out_of_bounds_are_refused_before_anything_is_written() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    for name in ["", "a\nb", &"x".repeat(129)] {
        assert_eq!(run.step(name, payload()).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(store.workflow("acme", name).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(trip(&store).run("x".repeat(513), payload()).unwrap_err().kind(), ErrorKind::InvalidInput);
    let short = trip(&store).with_retention(dupeproof::Retention::default().with_response(std::time::Duration::ZERO));
    assert_eq!(short.run("t-1", payload()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(trip(&store).find("t-1").unwrap().is_none());
}

#[test]
fn workers_on_one_run_take_each_step_once() {
    let world = World::new();
    let store = world.open();
    let ledger = world.ledger();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let run = run(&store);
                for turn in 0..20 {
                    if let Begin::Execute(claim) = run.step(("mail", turn), payload()).unwrap() {
                        ledger.perform_as(&format!("mail {turn}"), &claim);
                        claim.succeed_raw("sent").unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(ledger.effects().len(), 20);
    (0..20).for_each(|turn| assert_eq!(ledger.effect(&format!("mail {turn}")), Some(1)));
    run(&store).finish_raw("done").unwrap();
    assert!(store.verify().unwrap().is_clean());
}
