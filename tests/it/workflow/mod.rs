//! Work in several steps: each happens once, whoever is killed where; and whoever looks sees what is true.

mod artifacts;
mod blocked;
mod compensation;
mod kill;
mod listing;
mod model;
mod retention;
mod steps;

use dupeproof::{
    Begin, Claim, Fingerprint, Outcome, Replay, Response, Run, RunEntry, RunStatus, RunView, Store, Workflow,
};

pub fn payload() -> Fingerprint {
    Fingerprint::of_bytes(b"payload")
}

pub fn trip(store: &Store) -> Workflow {
    store.workflow("acme", "trip").expect("valid names")
}

#[track_caller]
pub fn entered(workflow: &Workflow, key: &str) -> Run {
    match workflow.run(key, payload()).expect("the store answers") {
        RunEntry::Run(run) => run,
        other => panic!("expected a run, found {other:?}"),
    }
}

#[track_caller]
pub fn run(store: &Store) -> Run {
    entered(&trip(store), "t-1")
}

#[track_caller]
pub fn claimed(begin: Begin) -> Claim {
    match begin {
        Begin::Execute(claim) => claim,
        other => panic!("expected a claim, found {other:?}"),
    }
}

#[track_caller]
pub fn replayed(begin: Begin) -> Replay {
    match begin {
        Begin::Replay(replay) => replay,
        other => panic!("expected a replay, found {other:?}"),
    }
}

#[track_caller]
pub fn succeed(run: &Run, step: &str) {
    let outcome = run.step_with_raw(step, payload(), |_claim| Ok(Response::from(step))).expect("the store answers");
    assert!(matches!(&outcome, Outcome::Succeeded(value) if value == step.as_bytes()), "{outcome:?}");
}

#[track_caller]
pub fn view(store: &Store) -> RunView {
    trip(store).find("t-1").expect("the store looks").expect("the run is there")
}

#[track_caller]
pub fn run_status(store: &Store) -> RunStatus {
    view(store).summary.status
}
