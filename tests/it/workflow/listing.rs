//! Runs as lists show them.

use dupeproof::{Failure, RunFilter, RunPage};

use super::*;
use crate::support::*;

fn keys(store: &Store, filter: &RunFilter) -> Vec<String> {
    let mut keys = Vec::new();
    let mut page = RunPage::first(2);
    loop {
        let listing = store.list_runs(filter, &page).unwrap();
        assert!(listing.runs.len() <= 2);
        keys.extend(listing.runs.iter().map(|run| run.key.run().to_owned()));
        match listing.next {
            Some(next) => page = next,
            None => return keys,
        }
    }
}

#[test]
fn runs_are_listed_by_what_they_and_their_steps_have_come_to() {
    let world = World::new();
    let store = world.open();
    let failing = |run: &Run| {
        succeed(run, "a");
        let _ = run.step_with_raw("b", payload(), |_| Err(Failure::terminal("no"))).unwrap();
    };
    let at = |key: &str| entered(&trip(&store), key);
    succeed(&at("running"), "a");
    succeed(&at("succeeded"), "a");
    at("succeeded").finish_raw("done").unwrap();
    claimed(at("blocked").step("a", payload()).unwrap()).give_up("lost").unwrap();
    failing(&at("failed"));
    at("failed").fail("no").unwrap();
    failing(&at("compensated"));
    at("compensated").compensate(|_| Ok("undone".into())).unwrap();
    failing(&at("partially"));
    at("partially").compensate(|_| Err(Failure::terminal("no"))).unwrap();
    failing(&at("compensation unknown"));
    at("compensation unknown").compensate(|_| Err(Failure::unknown("lost"))).unwrap();
    failing(&at("compensating"));
    at("compensating").compensate(|_| Err(Failure::not_started())).unwrap();
    succeed(&entered(&store.workflow("acme", "other").unwrap(), "elsewhere"), "a");

    world.throughout(store, |store| {
        for (status, key) in [
            (RunStatus::Succeeded, "succeeded"),
            (RunStatus::BlockedUnknown, "blocked"),
            (RunStatus::Failed, "failed"),
            (RunStatus::Compensated, "compensated"),
            (RunStatus::PartiallyCompensated, "partially"),
            (RunStatus::CompensationUnknown, "compensation unknown"),
            (RunStatus::Compensating, "compensating"),
        ] {
            assert_eq!(keys(store, &RunFilter::new().with_status(status)), [key]);
        }
        let running = RunFilter::new().with_status(RunStatus::Running);
        assert_eq!(keys(store, &running), ["elsewhere", "running"]);
        assert_eq!(keys(store, &running.clone().with_workflow("trip")), ["running"]);
        assert!(keys(store, &running.with_tenant("nobody")).is_empty());
        assert_eq!(keys(store, &RunFilter::new()).len(), 9);
        let stats = store.stats().unwrap();
        assert_eq!((stats.runs_open, stats.runs_over), (5, 4));
    });
}

#[test]
fn view_shows_steps_in_the_order_of_their_begins_without_their_values() {
    let world = World::new();
    let store = world.open();
    let run = run(&store);
    for step in ["z", "a", "m"] {
        succeed(&run, step);
    }
    let view = view(&store);
    assert_eq!(view.steps.iter().map(|step| step.step.name()).collect::<Vec<_>>(), ["z", "a", "m"]);
    assert!(view.steps.iter().all(|step| step.operation.response.is_none()));
    let whole = store.get(&view.steps[0].operation.identity).unwrap().unwrap();
    assert_eq!(whole.response, Some(Response::from("z")));
}
