//! A store that is laid out in a database of the application: after a power cut it is there as a whole, or not at all.

use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, TableDefinition, TableHandle};

use super::backend::{LabBackend, Op};
use super::script::{operation, options, value};
use super::{Dice, StoreFile, clock_at, images};
use crate::options::Recovery;
use crate::{Begin, Status, Store};

/// What the application had before, and must keep.
const STOCK: TableDefinition<'_, &str, u64> = TableDefinition::new("stock");

fn open(backend: &LabBackend) -> Arc<Database> {
    Arc::new(Builder::new().create_with_backend(backend.clone()).expect("the database opens"))
}

fn attach(database: &Arc<Database>, recovery: Recovery) -> crate::Result<Store> {
    let options = options(&clock_at(0), recovery);
    Store::on(StoreFile::attached(database.clone(), &options)?, &options)
}

/// The database of an application that never heard of us.
fn start() -> Vec<u8> {
    let backend = LabBackend::of(Vec::new());
    let database = open(&backend);
    let txn = database.begin_write().expect("nobody writes");
    txn.open_table(STOCK).expect("opens").insert("apples", 3).expect("fits");
    txn.commit().expect("a good disk");
    drop(database);
    backend.cache()
}

fn our_tables(database: &Database) -> usize {
    let txn = database.begin_read().expect("reads");
    txn.list_tables().expect("lists").filter(|table| table.name().starts_with("dupeproof/")).count()
}

#[test]
fn power_cut_while_a_store_is_laid_out_leaves_all_of_it_or_nothing_and_every_answer() {
    for recovery in [Recovery::Scan, Recovery::Quick] {
        let start = start();
        let backend = LabBackend::of(start.clone());
        let database = open(&backend);
        let before = backend.changes();
        let store = attach(&database, recovery).expect("a good disk");
        let attached = backend.changes();
        let Begin::Execute(claim) = store.begin(&operation("a")).expect("a good disk") else { panic!("a new key") };
        let begun = backend.changes();
        claim.succeed_raw(value("a", 9)).expect("a good disk");
        let settled = backend.changes();
        // Two phases: the second sync is for the flip that makes the commit count.
        let syncs = |from, to| backend.trace()[from..to].iter().filter(|op| matches!(op, Op::Sync)).count();
        for (from, to) in [(before, attached), (attached, begun), (begun, settled)] {
            assert!(syncs(from, to) >= 2, "{recovery:?}");
        }
        let mut images = 0;
        images::each(&start, &backend.trace()[..settled], &mut Dice::new(7), 6, |image| {
            images += 1;
            let here = format!("{recovery:?}, {} after {} operations", image.what, image.issued);
            let database = open(&LabBackend::of(image.bytes));
            let stock = database.begin_read().expect("reads").open_table(STOCK).expect("opens");
            let apples = redb::ReadableTable::get(&stock, "apples").expect("reads").map(|count| count.value());
            assert_eq!(apples, Some(3), "{here}");
            drop(stock);
            let found = our_tables(&database);
            assert!(found == 0 && image.issued < attached || found == 7, "{here}: {found} tables");
            let store = attach(&database, recovery).unwrap_or_else(|error| panic!("{here}: {error}"));
            assert_eq!(store.is_new(), found == 0, "{here}");
            let status = store.get(operation("a").key()).expect("reads").map(|view| view.status);
            let is_right = match status {
                None => image.issued < begun,
                Some(Status::Unknown) => image.issued < settled,
                Some(Status::Succeeded) => image.issued >= begun,
                Some(_) => false,
            };
            assert!(is_right, "{here}: {status:?}");
            assert!(store.verify().expect("reads").is_clean(), "{here}");
        });
        println!("{images} images, {recovery:?}");
    }
}
