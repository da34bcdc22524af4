//! A begin whose commit failed, and who gets its claim afterwards.

use super::backend::{Class, EIO, Fault, LabBackend, Left};
use super::script::{operation, options, value};
use super::{StoreFile, clock_at};
use crate::error::{ErrorKind, Result};
use crate::options::Recovery;
use crate::storage::schema;
use crate::{Begin, Claim, Nonce, Operation, Response, Settlement, Store};

fn open(backend: &LabBackend) -> Store {
    let options = options(&clock_at(0), Recovery::Scan);
    Store::on(StoreFile::on(backend.clone(), None, &options).expect("opens"), &options).expect("starts")
}

fn open_image(image: Vec<u8>) -> (LabBackend, Store) {
    let backend = LabBackend::of(image);
    let store = open(&backend);
    (backend, store)
}

fn fail_after(backend: &LabBackend, after: usize) {
    backend.arm(Fault { class: Class::Change, after, errno: EIO, sticky: true, left: Left::Nothing });
}

/// Which image the next process finds.
#[derive(Debug, Clone, Copy)]
enum Found {
    Cache,
    Disk,
    Some(u64),
}

impl Found {
    fn image(self, backend: &LabBackend) -> Vec<u8> {
        match self {
            Self::Cache => backend.cache(),
            Self::Disk => backend.disk(),
            Self::Some(seed) => backend.disk_after_power_cut(seed),
        }
    }
}

const EVERY_IMAGE: [Found; 4] = [Found::Cache, Found::Disk, Found::Some(1), Found::Some(2)];

/// Lets a begin fail at one operation of its commit. Nothing if the commit has fewer.
fn failed_begin(operation: &Operation, after: usize, warm: bool) -> Option<LabBackend> {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let store = open(&backend);
    if warm {
        let other = store.begin(&super::script::operation("z")).expect("a good disk");
        let Begin::Execute(claim) = other else { panic!("{other:?}") };
        claim.succeed_raw(value("z", 1)).expect("a good disk");
    }
    fail_after(&backend, after);
    let begun = store.begin(operation);
    if backend.mend() == 0 {
        assert!(matches!(begun, Ok(Begin::Execute(_))), "{begun:?}");
        return None;
    }
    assert_eq!(begun.expect_err("its commit failed").kind(), ErrorKind::Indeterminate);
    Some(backend)
}

/// Runs a scenario for every operation a begin's commit can fail at, and every image it can leave.
fn for_every_failure(scenario: impl Fn(&Operation, LabBackend, Store)) {
    let mut runs = 0;
    for warm in [false, true] {
        for found in EVERY_IMAGE {
            for after in 0.. {
                let operation = operation("a").with_nonce(&Nonce::new());
                let Some(backend) = failed_begin(&operation, after, warm) else { break };
                let (backend, store) = open_image(found.image(&backend));
                scenario(&operation, backend, store);
                runs += 1;
            }
        }
    }
    println!("{runs} failed begins");
    assert!(runs > 50);
}

#[test]
fn begin_repeated_with_its_nonce_gets_its_own_claim_once_whether_the_failed_commit_was_there_or_not() {
    let (there, lost) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    for_every_failure(|with_nonce, backend, store| {
        let is_there = store.get(with_nonce.key()).expect("a good disk").is_some();
        if is_there {
            there.set(there.get() + 1);
            let stranger = store.begin(&operation("a")).expect("a good disk");
            assert!(matches!(stranger, Begin::Unknown(_)), "a stranger never gets it: {stranger:?}");
        } else {
            lost.set(lost.get() + 1);
        }
        let own = store.begin(with_nonce).expect("a good disk");
        assert!(matches!(&own, Begin::Execute(claim) if claim.attempt() == 1), "{own:?}");
        let twice = store.begin(with_nonce).expect("a good disk");
        assert!(matches!(twice, Begin::InProgress(_)), "{twice:?}");
        // This process dies with the claim in hand: from here on the effect may have happened.
        let image = backend.cache();
        let (_backend, store) = open_image(image);
        let after = store.begin(with_nonce).expect("a good disk");
        assert!(matches!(after, Begin::Unknown(_)), "a nonce whose claim was received grants nothing: {after:?}");
        drop(own);
    });
    assert!(there.get() > 0 && lost.get() > 0, "both are met: {there:?} there, {lost:?} lost");
}

/// The number of an open that was never made durable used to be taken again by the next open, and with it the numbers
/// of its grants: the nonce of a begin that was lost then passed for the holder of a claim granted to somebody else.
#[test]
fn nonce_of_a_begin_that_was_lost_never_finds_the_claim_of_another_caller() {
    for_every_failure(|with_nonce, backend, store| {
        let other = store.begin(&operation("a")).expect("a good disk");
        let Begin::Execute(theirs) = other else { return };
        let mine = store.begin(with_nonce).expect("a good disk");
        assert!(matches!(mine, Begin::InProgress(_)), "the effect of another caller is running: {mine:?}");
        let image = backend.cache();
        let (_backend, store) = open_image(image);
        let mine = store.begin(with_nonce).expect("a good disk");
        assert!(matches!(mine, Begin::Unknown(_)), "the effect of another caller may have happened: {mine:?}");
        drop(theirs);
    });
}

#[test]
fn nonce_of_a_claim_that_was_received_grants_nothing_after_a_crash() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let store = open(&backend);
    let with_nonce = operation("a").with_nonce(&Nonce::new());
    let begun = store.begin(&with_nonce).expect("a good disk");
    assert!(matches!(begun, Begin::Execute(_)));
    let (_backend, again) = open_image(backend.cache());
    let repeated = again.begin(&with_nonce).expect("a good disk");
    assert!(matches!(repeated, Begin::Unknown(_)), "{repeated:?}");
}

#[test]
fn nonce_survives_a_second_failure_of_the_disk() {
    let with_nonce = operation("a").with_nonce(&Nonce::new());
    let first = failed_begin(&with_nonce, 7, true).expect("its commit has more operations");
    let (backend, store) = open_image(first.cache());
    fail_after(&backend, 0);
    let second = store.begin(&with_nonce).expect_err("the disk fails again");
    assert!(matches!(second.kind(), ErrorKind::Indeterminate | ErrorKind::Io), "{second:?}");
    backend.mend();
    let (_backend, store) = open_image(backend.cache());
    let own = store.begin(&with_nonce).expect("a good disk");
    assert!(matches!(&own, Begin::Execute(claim) if claim.attempt() == 1), "{own:?}");
}

/// Begins under a nonce each, in one call whose commit fails, and repeats them one by one on what it left.
fn failed_together(
    operations: &[Operation],
    after: usize,
    begin: impl FnOnce(&Store, Claim, &[Operation]) -> Result<()>,
) -> Option<()> {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let store = open(&backend);
    let Begin::Execute(claim) = store.begin(&operation("z")).expect("a good disk") else { panic!("not granted") };
    fail_after(&backend, after);
    let failed = begin(&store, claim, operations);
    if backend.mend() == 0 {
        assert!(failed.is_ok(), "{failed:?}");
        return None;
    }
    assert_eq!(failed.expect_err("its commit failed").kind(), ErrorKind::Indeterminate);
    let (_backend, store) = open_image(backend.cache());
    for operation in operations {
        let own = store.begin(operation).expect("a good disk");
        assert!(matches!(&own, Begin::Execute(claim) if claim.attempt() == 1), "after {after}: {own:?}");
        let twice = store.begin(operation).expect("a good disk");
        assert!(matches!(twice, Begin::InProgress(_)), "after {after}: {twice:?}");
    }
    Some(())
}

fn with_nonces(keys: &[&str]) -> Vec<Operation> {
    keys.iter().map(|key| operation(key).with_nonce(&Nonce::new())).collect()
}

#[test]
fn nonces_of_a_batch_whose_commit_failed_find_every_claim() {
    let batch = |store: &Store, _, operations: &[Operation]| store.begin_many(operations).map(drop);
    let failed = (0..).take_while(|after| failed_together(&with_nonces(&["a", "b"]), *after, batch).is_some()).count();
    assert!(failed > 5);
}

#[test]
fn nonce_of_a_begin_that_failed_together_with_a_settlement_finds_its_claim() {
    let settle = |_: &Store, claim: Claim, next: &[Operation]| {
        claim.settle_and_begin(Settlement::Succeeded(Response::Absent), &next[0]).map(drop)
    };
    let failed = (0..).take_while(|after| failed_together(&with_nonces(&["a"]), *after, settle).is_some()).count();
    assert!(failed > 5);
}
