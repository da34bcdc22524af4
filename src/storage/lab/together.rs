//! Transactions of an application's and messages that came in, on a disk that loses power or fails: never one half.

use redb::{ReadableTable, TableDefinition};

use super::backend::{Class, EIO, Fault, LabBackend, Left, Op};
use super::images::{self, Image};
use super::script::{operation, options};
use super::{Dice, StoreFile, clock_at, seeds};
use crate::machine::record::Status;
use crate::options::Recovery;
use crate::storage::schema;
use crate::{Begin, Error, Fingerprint, Processed, Response, Settlement, Store};

type Fallible<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The business: a row for each order that was paid and for each message that was booked.
const BUSINESS: TableDefinition<'_, &str, u64> = TableDefinition::new("business");
const ROUNDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g1", "g2"];

/// How many of each were answered, and how many operations the disk had seen by then.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    issued: usize,
    paid: usize,
    booked: usize,
}

fn open(backend: &LabBackend, recovery: Recovery) -> Result<Store, Error> {
    let options = options(&clock_at(0), recovery);
    Store::on(StoreFile::on(backend.clone(), None, &options)?, &options)
}

fn add(tx: &mut crate::Transaction<'_, '_>, name: &str) -> Fallible<()> {
    let mut rows = tx.open_table(BUSINESS)?;
    let times = rows.get(name)?.map_or(0, |times| times.value());
    rows.insert(name, times + 1)?;
    Ok(())
}

fn pay(store: &Store, key: &str) -> Fallible<()> {
    let Begin::Execute(claim) = store.begin(&operation(key))? else { return Err("not granted".into()) };
    store.transaction(|tx| {
        add(tx, key)?;
        Ok(tx.settle(&claim, Settlement::Succeeded(Response::from(key)))?)
    })
}

fn book(store: &Store, id: &str) -> Fallible<Processed> {
    store.inbox("lab", "messages")?.process_raw(id, Fingerprint::unchecked(), |tx| {
        add(tx, &format!("message {id}"))?;
        Ok(Response::from(id))
    })
}

/// Plays all rounds, or as many as the disk lets through.
fn play(backend: &LabBackend, store: &Store) -> (Vec<Done>, Fallible<()>) {
    let mut history = vec![Done::default()];
    for key in ROUNDS {
        let mut done = *history.last().expect("never empty");
        if let Err(error) = pay(store, key) {
            return (history, Err(error));
        }
        done = Done { issued: backend.changes(), paid: done.paid + 1, ..done };
        history.push(done);
        if let Err(error) = book(store, key) {
            return (history, Err(error));
        }
        history.push(Done { issued: backend.changes(), booked: done.booked + 1, ..done });
    }
    (history, Ok(()))
}

/// Each order has its settlement and each message its mark, nothing is there twice, and what was answered is there.
/// Then all is delivered once more.
fn check(backend: &LabBackend, at_least: Done, recovery: Recovery) -> Fallible<()> {
    let store = open(backend, recovery)?;
    for redelivered in [false, true] {
        let rows: std::collections::BTreeMap<String, u64> = store.transaction(|tx| {
            let rows = tx.open_table(BUSINESS)?;
            let rows = rows.iter()?.map(|row| row.map(|(name, times)| (name.value().to_owned(), times.value())));
            Fallible::Ok(rows.collect::<std::result::Result<_, _>>()?)
        })?;
        let (mut paid, mut booked) = (0, 0);
        for key in ROUNDS {
            let settled = store.get(operation(key).key())?.is_some_and(|found| found.status == Status::Succeeded);
            let marked = store.inbox("lab", "messages")?.get(key)?.is_some();
            let message = format!("message {key}");
            if rows.get(key) != settled.then_some(&1) || rows.get(&message) != marked.then_some(&1) {
                return Err(format!("{key}: settled {settled}, marked {marked}, but {rows:?}").into());
            }
            paid += usize::from(settled);
            booked += usize::from(marked);
        }
        if paid < at_least.paid || booked < at_least.booked || redelivered && booked < ROUNDS.len() {
            return Err(format!("{paid} paid, {booked} booked, after {at_least:?}").into());
        }
        for key in ROUNDS {
            let told = book(&store, key)?;
            if !told.may_acknowledge() {
                return Err(format!("{key}: {told:?}").into());
            }
        }
        let report = store.verify()?;
        if !report.is_clean() {
            return Err(format!("{:?}", report.problems).into());
        }
    }
    Ok(())
}

fn answered(history: &[Done], issued: usize) -> Done {
    *history.iter().rfind(|done| done.issued <= issued).expect("the first is at 0")
}

#[test]
fn power_cut_parts_no_order_from_its_settlement_and_no_message_from_its_mark() {
    for recovery in [Recovery::Scan, Recovery::Quick] {
        let start = schema::image().expect("an image");
        let backend = LabBackend::of(start.clone());
        let store = open(&backend, recovery).expect("a good disk");
        let (history, played) = play(&backend, &store);
        played.expect("a good disk");
        let (mut images, trace) = (0, backend.trace());
        for seed in seeds(1) {
            images::each(&start, &trace, &mut Dice::new(seed), 4, |Image { issued, what, bytes }| {
                images += 1;
                let checked = check(&LabBackend::of(bytes), answered(&history, issued), recovery);
                checked.unwrap_or_else(|error| panic!("seed {seed}, {what} after {issued} operations: {error}"));
            });
        }
        println!("transactions and messages, {recovery:?}: {images} images");
    }
}

/// Whichever write or sync fails: who is told an error may find it done, but never half.
#[test]
fn failing_disk_parts_no_order_from_its_settlement_and_no_message_from_its_mark() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let (_, played) = play(&backend, &open(&backend, Recovery::Scan).expect("a good disk"));
    played.expect("a good disk");
    let (operations, mut failures) = (backend.changes(), 0);
    for at in 0..operations {
        let backend = LabBackend::of(schema::image().expect("an image"));
        let store = open(&backend, Recovery::Scan).expect("a good disk");
        backend.arm(Fault { class: Class::Change, after: at, errno: EIO, sticky: true, left: Left::Nothing });
        let (history, played) = play(&backend, &store);
        failures += usize::from(played.is_err());
        drop(store);
        backend.mend();
        let done = *history.last().expect("never empty");
        check(&LabBackend::of(backend.cache()), done, Recovery::Scan)
            .unwrap_or_else(|error| panic!("failure at {at}: {error}"));
    }
    println!("transactions and messages: {failures} failures of {operations} operations");
    assert!(failures > operations / 2);
}

/// Two syncs a commit, and one more where the file grows.
#[test]
fn hundred_claims_of_a_batch_cost_one_commit_and_their_repeats_none() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let store = open(&backend, Recovery::Scan).expect("a good disk");
    let inbox = store.inbox("lab", "messages").expect("a good name");
    let ids: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let polled: Vec<_> = ids.iter().map(|id| (id.as_str(), Fingerprint::unchecked())).collect();
    let syncs = || backend.trace().iter().filter(|op| matches!(op, Op::Sync)).count();
    // The open's number is a commit of its own.
    drop(inbox.claim("first", Fingerprint::unchecked()).expect("a good disk"));
    let before = syncs();
    let claims = inbox.claim_many(&polled).expect("a good disk");
    assert!((2..=5).contains(&(syncs() - before)), "{} syncs", syncs() - before);
    for claim in &claims {
        let Begin::Execute(claim) = claim else { panic!("{claim:?}") };
        let _ = claim.succeed_raw("done").expect("a good disk");
    }
    let before = syncs();
    let repeats = inbox.claim_many(&polled).expect("a good disk");
    assert!(repeats.iter().all(|told| matches!(told, Begin::Replay(_))));
    let _ = inbox.process_raw::<Error>("7", Fingerprint::unchecked(), |_| panic!("it ran")).expect("told");
    assert_eq!(syncs(), before);
}
