//! Runs on a disk that counts, tears and fails.

use super::backend::{LabBackend, Op};
use super::script::options;
use super::{StoreFile, clock_at, seeds};
use crate::machine::fingerprint::Fingerprint;
use crate::options::Recovery;
use crate::storage::schema;
use crate::workflow::{Run, RunEntry};
use crate::{Begin, Claim, RunStatus, Settlement, Store};

const STEPS: u32 = 10;

fn store_on(backend: &LabBackend) -> Store {
    let options = options(&clock_at(0), Recovery::Scan);
    let file = StoreFile::on(backend.clone(), None, &options).expect("opens");
    Store::on(file, &options).expect("opens")
}

fn run_of(store: &Store) -> Run {
    match store.workflow("acme", "trip").and_then(|trip| trip.run("t-1", Fingerprint::unchecked())).expect("answers") {
        RunEntry::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

fn claimed(begin: crate::Result<Begin>) -> Claim {
    match begin.expect("answers") {
        Begin::Execute(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// Ten steps, each settled with the begin of the next, the last with the end of the run.
fn work(store: &Store) {
    let run = run_of(store);
    let done = || Settlement::Succeeded("done".into());
    let mut claim = claimed(run.step(("a", 0), Fingerprint::unchecked()));
    for turn in 1..STEPS {
        claim = claimed(run.settle_and_step(&claim, done(), ("a", turn), Fingerprint::unchecked()));
    }
    run.settle_and_finish(&claim, done(), "finished").expect("settles");
}

/// Writes of the first page: every commit has the same number of them.
fn headers(backend: &LabBackend) -> usize {
    backend.trace().iter().filter(|op| matches!(op, Op::Write(0, _))).count()
}

#[test]
fn ten_steps_of_a_run_take_eleven_commits() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let store = store_on(&backend);
    // The first commit that grants takes the incarnation in a commit of its own.
    let plain = |name: &str| {
        let key = crate::OperationKey::new("acme", "charge", name).expect("valid");
        claimed(store.begin(&crate::Operation::new(key, Fingerprint::unchecked())))
    };
    let first = plain("first");
    let before = headers(&backend);
    let second = plain("second");
    let one_commit = headers(&backend) - before;
    let before = headers(&backend);
    work(&store);
    assert_eq!(headers(&backend) - before, 11 * one_commit);
    drop((first, second));
}

/// Wherever the power fails, a step that was reported is there, none is there without its run, and the next of a step
/// that is there has begun, or the run is over.
#[test]
fn power_cut_leaves_no_step_without_its_run_and_no_gap_between_two_steps() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let store = store_on(&backend);
    work(&store);
    let trace = backend.trace();
    let mut found = std::collections::BTreeSet::new();
    for cut in 0..trace.len() {
        for seed in seeds(2) {
            let image = image_after(&trace[..cut], seed);
            let store = store_on(&LabBackend::of(image));
            assert!(store.verify().expect("reads").is_clean(), "cut {cut}");
            let key = crate::RunKey::new("acme", "trip", "t-1").expect("valid");
            let Some(view) = store.get_run(&key).expect("reads") else {
                assert_eq!(store.stats().expect("reads").steps_settled, 0);
                found.insert(0);
                continue;
            };
            let (all, done) = (view.summary.steps, view.summary.steps_succeeded);
            match view.summary.status {
                RunStatus::Succeeded => assert_eq!((all, done), (10, 10), "cut {cut}"),
                RunStatus::BlockedUnknown => assert_eq!(all, done + 1, "cut {cut}"),
                other => panic!("cut {cut}: {other}"),
            }
            found.insert(all + done);
        }
    }
    assert_eq!(found.len(), 12, "every commit was seen: {found:?}");
}

/// What a power cut leaves of these operations, if the seed says which of the unsynced ones reached the disk.
fn image_after(trace: &[Op], seed: u64) -> Vec<u8> {
    let synced = trace.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
    let mut image = schema::image().expect("an image");
    let mut dice = super::Dice::new(seed);
    let (certain, pending) = trace.split_at(synced);
    certain.iter().for_each(|op| op.apply(&mut image));
    pending.iter().filter(|_| dice.coin()).for_each(|op| op.apply(&mut image));
    image
}
