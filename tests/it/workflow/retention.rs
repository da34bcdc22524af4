//! A run is kept while it is worked on, and its steps as long as the run: none of them is forgotten before.

use dupeproof::{Begin, Failure, Retention, RunEntry, RunStatus, Status};

use super::*;
use crate::support::*;

fn sweep(store: &Store) -> u64 {
    let mut purged = 0;
    loop {
        let report = store.sweep(3).unwrap();
        purged += report.purged;
        if !report.more {
            return purged;
        }
    }
}

#[test]
fn open_run_and_its_steps_are_kept_for_ever() {
    let world = World::new();
    let store = world.open();
    let first = run(&store);
    // Whatever retention a step asks for.
    let short = Retention::default().with_response(MINUTE).with_tombstone(MINUTE);
    execute(&store, &first.operation("a", payload()).unwrap().with_retention(short)).succeed_raw("a").unwrap();
    succeed(&first, "b");
    drop(first);
    world.clock.advance(10_000 * DAY);
    sweep(&store);
    world.throughout(store, |store| {
        let run = run(store);
        assert_eq!(replayed(run.step("a", payload()).unwrap()).value().unwrap(), b"a");
        assert_eq!(replayed(run.step("b", payload()).unwrap()).value().unwrap(), b"b");
    });
}

#[test]
fn run_that_is_over_goes_with_its_steps_and_a_tombstone_answers_for_all() {
    let world = World::new();
    let store = world.open();
    let mut over = run(&store);
    for turn in 0..20 {
        let _ = over.step_with_raw(("mail", turn), payload(), |_| Ok("sent".into())).unwrap();
    }
    let _ = over.step_with_raw("later", payload(), |_| Err(Failure::not_started())).unwrap();
    over.finish_raw("done").unwrap();
    // Somebody else's row has the highest number.
    execute(&store, &operation("other").with_retention(Retention::forever())).succeed_raw("x").unwrap();
    assert_eq!(store.stats().unwrap().steps_settled, 20);
    world.clock.advance(8 * DAY);
    let store = world.throughout(store, |store| {
        assert!(matches!(trip(store).run("t-1", payload()).unwrap(), RunEntry::Expired(_)), "before any sweep");
        assert_eq!(run_status(store), RunStatus::Expired);
    });
    assert_eq!(sweep(&store), 21);
    let stats = store.stats().unwrap();
    assert_eq!((stats.steps_settled, stats.runs_over, stats.failed_retryable), (0, 1, 0));
    assert!(store.verify().unwrap().is_clean());
    assert!(matches!(trip(&store).run("t-1", payload()).unwrap(), RunEntry::Expired(_)));
    world.clock.advance(91 * DAY);
    sweep(&store);
    assert_eq!(store.stats().unwrap().runs_over, 0);
    over = run(&store);
    assert_eq!(claimed(over.step(("mail", 0), payload()).unwrap()).attempt(), 1);
}

#[test]
fn run_of_a_forgotten_key_finds_no_step_of_its_earlier_life() {
    for swept in [false, true] {
        let world = World::new();
        let store = world.open();
        let first = run(&store);
        for step in ["a", "b"] {
            succeed(&first, step);
        }
        let _ = first.step_with_raw("c", payload(), |_| Err(Failure::terminal("no"))).unwrap();
        first.compensate(|_| Ok("undone".into())).unwrap();
        drop(first);
        world.clock.advance(200 * DAY);
        // Not swept, the first commit after the time finds the old run on the disk.
        let store = if swept {
            sweep(&store);
            world.reopen(store)
        } else {
            store
        };
        let second = run(&store);
        for step in ["c", "b", "a"] {
            let claim = claimed(second.step(step, payload()).unwrap());
            assert_eq!(claim.attempt(), 1);
            claim.succeed_raw("second life").unwrap();
        }
        let view = view(&store);
        assert_eq!((view.summary.status, view.steps.len()), (RunStatus::Running, 3));
        assert!(view.steps.iter().all(|step| step.operation.compensation.is_none()));
        let _ = second.step_with_raw("d", payload(), |_| Err(Failure::terminal("no"))).unwrap();
        let mut undone = Vec::new();
        let view = second
            .compensate(|undo| {
                undone.push(undo.step().name().to_owned());
                Ok("undone again".into())
            })
            .unwrap();
        assert_eq!((undone.len(), view.summary.status), (3, RunStatus::Compensated), "swept: {swept}");
        assert!(store.verify().unwrap().is_clean());
    }
}

#[test]
fn step_with_the_highest_number_of_all_keeps_its_run_and_nobody_finds_it_afterwards() {
    let world = World::new();
    let store = world.open();
    let first = run(&store);
    succeed(&first, "a");
    first.finish_raw("done").unwrap();
    world.clock.advance(200 * DAY);
    sweep(&store);
    assert!(store.verify().unwrap().is_clean());
    let store = world.reopen(store);
    // The step's row stays as the counter, and with it the run's; the key is new all the same.
    assert!(matches!(run(&store).step("a", payload()).unwrap(), Begin::Execute(_)));
    assert!(store.verify().unwrap().is_clean());
    after_drops(&store);
    sweep(&store);
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn sweep_in_small_steps_never_leaves_a_step_without_its_run() {
    let world = World::new();
    let store = world.open();
    for key in ["t-1", "t-2", "t-3"] {
        let run = entered(&trip(&store), key);
        for turn in 0..5 {
            let _ = run.step_with_raw(("a", turn), payload(), |_| Ok("x".into())).unwrap();
        }
        run.finish_raw("done").unwrap();
    }
    execute(&store, &operation("other").with_retention(Retention::forever())).succeed_raw("x").unwrap();
    world.clock.advance(200 * DAY);
    let mut steps = 0;
    while store.sweep(1).unwrap().more {
        assert!(store.verify().unwrap().is_clean());
        steps += 1;
    }
    assert!(steps >= 15, "{steps}");
    assert_eq!(store.stats().unwrap().steps_settled, 0);
    assert_eq!(status(&store, "other"), Status::Succeeded);
}
