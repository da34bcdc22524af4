//! A worker killed at each boundary of each step: one effect each, and the run goes on where it was.

use std::collections::BTreeMap;

use dupeproof::{Begin, Claim, Failure, Response, RunEntry, RunStatus, Verdict};

use super::*;
use crate::support::child::{Child, Task, park};
use crate::support::ledger::Ledger;
use crate::support::*;

const STEPS: [&str; 5] = ["decide", "reserve", "charge", "publish", "mail"];

/// The worker, who is killed where it parks: before, at or behind the effect of a step, or behind its record.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [what, step, place] = task.words();
    let store = task.world.open();
    let at = |here: &str, now: &str| {
        if here == step && now == place {
            park("there");
        }
    };
    let ledger = task.world.ledger();
    match what {
        "forward" => work(&store, &ledger, &at),
        "together" => work_together(&store, &ledger, &at),
        "batch" => drop(batch(&store, &ledger, &at)),
        _ => {
            let run = failed_saga(&store, &ledger);
            run.compensate(|undo| undo_step(&ledger, undo, &at)).unwrap();
        }
    }
}

fn effect(ledger: &Ledger, claim: &Claim) -> String {
    let step = claim.identity().step_key().unwrap().name().to_owned();
    ledger.perform_as(&step, claim);
    format!("done: {step}")
}

fn work(store: &Store, ledger: &Ledger, at: &dyn Fn(&str, &str)) {
    let run = match trip(store).run("t-1", payload()).unwrap() {
        RunEntry::Run(run) => run,
        RunEntry::Replay(_) => return,
        other => panic!("{other:?}"),
    };
    for step in STEPS {
        match run.step(step, payload()).unwrap() {
            Begin::Execute(claim) => {
                at(step, "begun");
                let done = effect(ledger, &claim);
                at(step, "performed");
                claim.succeed_raw(done).unwrap();
                at(step, "recorded");
            }
            Begin::Replay(replay) => assert_eq!(replay.value().unwrap(), format!("done: {step}").as_bytes()),
            other => panic!("{step}: {other:?}"),
        }
    }
    run.finish_raw("done").unwrap();
    at("mail", "finished");
}

/// Settling each step with the begin of the next.
fn work_together(store: &Store, ledger: &Ledger, at: &dyn Fn(&str, &str)) {
    let run = entered(&trip(store), "t-1");
    let mut claim = claimed(run.step(STEPS[0], payload()).unwrap());
    for (step, next) in STEPS.iter().zip(&STEPS[1..]) {
        at(step, "begun");
        let done = effect(ledger, &claim);
        at(step, "performed");
        let settlement = dupeproof::Settlement::Succeeded(done.into());
        claim = claimed(run.settle_and_step(&claim, settlement, *next, payload()).unwrap());
        at(step, "recorded");
    }
}

/// A probe at the provider, who knows.
fn find_out(store: &Store, ledger: &Ledger) {
    while let Some((identity, _)) = trip(store).find("t-1").unwrap().and_then(|view| view.summary.blocked_by) {
        let step = identity.step_key().unwrap().name();
        let (name, done) = match identity.kind() {
            dupeproof::Kind::Step => (step.to_owned(), format!("done: {step}")),
            _ => (format!("undo {step}"), "undone".to_owned()),
        };
        let verdict = match ledger.effect(&name) {
            Some(_) => Verdict::Happened { response: done.into(), external_reference: None },
            None => Verdict::DidNotHappen,
        };
        store.resolve(&identity, verdict, &decision()).unwrap();
    }
}

fn killed(what: &str, step: &str, place: &str) -> World {
    let world = World::new();
    let mut worker = Child::start(module_path!(), &world, format!("{what} {step} {place}"));
    worker.expect("there");
    worker.kill();
    world
}

fn one_each(ledger: &Ledger, names: &[&str]) {
    let effects: BTreeMap<String, usize> =
        ledger.effects().into_iter().map(|(name, attempts)| (name, attempts.len())).collect();
    assert_eq!(effects, names.iter().map(|name| ((*name).to_owned(), 1)).collect());
}

#[test]
fn worker_killed_at_any_boundary_of_any_step_leaves_one_effect_each() {
    for place in ["begun", "performed", "recorded"] {
        for step in STEPS {
            let world = killed("forward", step, place);
            let store = world.open();
            let status = run_status(&store);
            assert_eq!(status == RunStatus::BlockedUnknown, place != "recorded", "{step} {place}: {status}");
            find_out(&store, &world.ledger());
            work(&store, &world.ledger(), &|_, _| ());
            let store = world.reopen(store);
            work(&store, &world.ledger(), &|_, _| ());
            one_each(&world.ledger(), &STEPS);
            assert_eq!(run_status(&store), RunStatus::Succeeded, "{step} {place}");
            assert!(store.verify().unwrap().is_clean());
        }
    }
}

#[test]
fn worker_killed_behind_a_step_resumes_with_the_next_one_and_asks_for_no_decision_again() {
    for (at, step) in STEPS.iter().enumerate() {
        let world = killed("forward", step, "recorded");
        let store = world.open();
        assert_eq!(world.ledger().effects().len(), at + 1);
        let run = run(&store);
        for done in &STEPS[..=at] {
            replayed(run.step(*done, payload()).unwrap());
        }
        if let Some(next) = STEPS.get(at + 1) {
            assert_eq!(claimed(run.step(*next, payload()).unwrap()).attempt(), 1);
        }
        assert_eq!(world.ledger().effect("decide"), Some(1));
    }
}

#[test]
fn worker_killed_behind_the_end_is_replayed() {
    let world = killed("forward", "mail", "finished");
    let store = world.open();
    assert!(matches!(trip(&store).run("t-1", payload()).unwrap(), RunEntry::Replay(_)));
    one_each(&world.ledger(), &STEPS);
}

#[test]
fn worker_that_settles_with_the_next_begin_and_is_killed_leaves_one_effect_each() {
    for place in ["begun", "performed", "recorded"] {
        for step in &STEPS[..4] {
            let world = killed("together", step, place);
            let store = world.open();
            // In one commit: there is no moment between the record of a step and the start of the next.
            assert_eq!(run_status(&store), RunStatus::BlockedUnknown, "{step} {place}");
            find_out(&store, &world.ledger());
            work(&store, &world.ledger(), &|_, _| ());
            one_each(&world.ledger(), &STEPS);
        }
    }
}

/// Three effects, one after the other.
fn batch(store: &Store, ledger: &Ledger, at: &dyn Fn(&str, &str)) -> Vec<&'static str> {
    let run = run(store);
    let mut told = Vec::new();
    for turn in 0..3 {
        match run.step(("mail", turn), payload()).unwrap() {
            Begin::Execute(claim) => {
                ledger.perform_as(&format!("mail {turn}"), &claim);
                claim.succeed_raw("sent").unwrap();
                told.push("ran");
            }
            Begin::Replay(_) => told.push("replayed"),
            other => panic!("{other:?}"),
        }
        at(&turn.to_string(), "recorded");
    }
    told
}

#[test]
fn batch_of_three_killed_behind_the_second_replays_two_and_runs_the_third() {
    let world = killed("batch", "1", "recorded");
    let store = world.open();
    assert_eq!(batch(&store, &world.ledger(), &|_, _| ()), ["replayed", "replayed", "ran"]);
    assert_eq!(batch(&store, &world.ledger(), &|_, _| ()), ["replayed"; 3]);
    one_each(&world.ledger(), &["mail 0", "mail 1", "mail 2"]);
}

/// Two steps done, the third failed for good.
fn failed_saga(store: &Store, ledger: &Ledger) -> Run {
    let run = run(store);
    for step in ["flight", "hotel"] {
        let _ = run.step_with_raw(step, payload(), |claim| Ok(effect(ledger, claim).into())).unwrap();
    }
    let _ = run.step_with_raw("car", payload(), |_| Err(Failure::terminal("none left"))).unwrap();
    run
}

fn undo_step(
    ledger: &Ledger,
    undo: &dupeproof::Undo<'_>,
    at: &dyn Fn(&str, &str),
) -> std::result::Result<Response, Failure> {
    let step = undo.step().name();
    at(step, "begun");
    ledger.perform_as(&format!("undo {step}"), undo.claim());
    at(step, "performed");
    Ok("undone".into())
}

#[test]
fn worker_killed_while_it_compensates_undoes_each_step_once() {
    for place in ["begun", "performed"] {
        for step in ["hotel", "flight"] {
            let world = killed("back", step, place);
            let store = world.open();
            assert_eq!(run_status(&store), RunStatus::CompensationUnknown, "{step} {place}");
            find_out(&store, &world.ledger());
            assert_eq!(run_status(&store), RunStatus::Compensating);
            let RunEntry::Compensating(run) = trip(&store).run("t-1", payload()).unwrap() else { panic!("not back") };
            let view = run.compensate(|undo| undo_step(&world.ledger(), undo, &|_, _| ())).unwrap();
            assert_eq!(view.summary.status, RunStatus::Compensated, "{step} {place}");
            one_each(&world.ledger(), &["flight", "hotel", "undo flight", "undo hotel"]);
            drop(run);
            world.throughout(store, |store| assert_eq!(run_status(store), RunStatus::Compensated));
        }
    }
}
