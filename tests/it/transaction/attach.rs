//! A store in a database that the application has open.

use std::path::Path;
use std::sync::{Arc, Barrier};

use dupeproof::redb::{Builder, ConcurrencyMode, Database, ReadableDatabase, TableDefinition, TableHandle};
use dupeproof::{Error, ErrorKind, Options, Settlement, Sharing, Status, Store};

use super::{Boxed, PAID, count, once, paid};
use crate::support::*;

/// A table that the application had before.
const STOCK: TableDefinition<'_, &str, u64> = TableDefinition::new("stock");

fn database(path: &Path, mode: ConcurrencyMode) -> Arc<Database> {
    Arc::new(Builder::new().set_concurrency_mode(mode).create(path).expect("the database opens"))
}

fn alone(world: &World) -> Arc<Database> {
    database(&world.path(), ConcurrencyMode::ExclusiveWriter)
}

/// The application's own business, without us.
fn take_stock(database: &Database) -> Result<(), Boxed> {
    let txn = database.begin_write()?;
    txn.open_table(STOCK)?.insert("apples", 3)?;
    Ok(txn.commit()?)
}

fn apples(database: &Database) -> u64 {
    let table = database.begin_read().unwrap().open_table(STOCK).unwrap();
    table.get("apples").unwrap().expect("there are some").value()
}

fn table_names(database: &Database) -> Vec<String> {
    let txn = database.begin_read().unwrap();
    txn.list_tables().unwrap().map(|table| table.name().to_owned()).collect()
}

#[test]
fn store_lives_beside_the_tables_of_the_application_and_is_found_again() {
    let world = World::new();
    let database = alone(&world);
    take_stock(&database).unwrap();
    let store = world.options().attach(database.clone()).unwrap();
    assert!(store.is_new());
    let claim = execute(&store, &operation("a"));
    store
        .transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            Ok(tx.settle(&claim, Settlement::Succeeded("receipt".into()))?)
        })
        .unwrap();
    // Both write, each in its turn, and the application sees what it did through us.
    take_stock(&database).unwrap();
    let unheard = execute(&store, &operation("b"));
    let row = database.begin_read().unwrap().open_table(PAID).unwrap().get("a").unwrap().map(|count| count.value());
    assert_eq!(row, Some(1));
    store.close().unwrap();
    drop((unheard, store));

    assert_eq!(apples(&database), 3);
    take_stock(&database).unwrap();
    let check = |store: &Store| {
        assert!(!store.is_new());
        assert_eq!(replay(store, &operation("a")).value().unwrap(), b"receipt");
        assert_eq!((status(store, "b"), paid(store)), (Status::Unknown, once(["a"])));
        assert!(store.verify().unwrap().is_clean());
    };
    check(&world.options().must_exist().attach(database.clone()).unwrap());
    // The same, after the application has gone too. Its file is a store.
    drop(database);
    check(&world.options().attach(alone(&world)).unwrap());
    check(&world.open());
    assert_eq!(apples(&alone(&world)), 3);
}

#[test]
fn what_the_application_commits_by_itself_is_seen_at_once() {
    let world = World::new();
    let database = alone(&world);
    let store = world.options().attach(database.clone()).unwrap();
    for round in 1..4 {
        assert_eq!(paid(&store).get("a").copied(), (round > 1).then_some(round - 1));
        let txn = database.begin_write().unwrap();
        txn.open_table(PAID).unwrap().insert("a", round).unwrap();
        txn.commit().unwrap();
    }
}

#[test]
fn database_takes_one_store_at_a_time() {
    let world = World::new();
    let database = alone(&world);
    let store = world.options().attach(database.clone()).unwrap();
    let held = execute(&store, &operation("a"));
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let error = world.options().with_sharing(sharing).attach(database.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OpenElsewhere);
    }
    assert_eq!(world.options().open(world.path()).unwrap_err().kind(), ErrorKind::OpenElsewhere);
    assert_eq!(status(&store, "a"), Status::Executing);
    held.succeed_raw("receipt").unwrap();
    drop(held);
    // Given up by a close, and by the last drop.
    store.close().unwrap();
    let second = world.options().attach(database.clone()).unwrap();
    assert_eq!(world.options().attach(database.clone()).unwrap_err().kind(), ErrorKind::OpenElsewhere);
    drop(second);
    assert_eq!(status(&world.options().attach(database.clone()).unwrap(), "a"), Status::Succeeded);
    // Another database is another place.
    let other = World::new();
    let _one = world.options().attach(database).unwrap();
    assert!(other.options().attach(alone(&other)).unwrap().is_new());
}

#[test]
fn of_many_who_attach_at_once_one_does() {
    let world = World::new();
    let database = alone(&world);
    let start = Barrier::new(16);
    let told: Vec<Result<Store, Error>> = std::thread::scope(|scope| {
        let attach = || {
            start.wait();
            world.options().attach(database.clone())
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(attach)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 1);
    assert!(told.iter().filter_map(|told| told.as_ref().err()).all(|error| error.kind() == ErrorKind::OpenElsewhere));
}

/// An exclusive store ends the claims of everybody else when it opens.
#[test]
fn exclusive_store_in_a_database_for_several_processes_is_refused_and_ends_nobody_s_claim() {
    for mode in [ConcurrencyMode::SingleWriter, ConcurrencyMode::MultiWriter] {
        let world = World::new();
        let database = database(&world.path(), mode);
        let error = world.options().attach(database.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{mode:?}: {error}");
        assert!(table_names(&database).is_empty(), "{mode:?}");
        let store = world.options().with_sharing(Sharing::Shared).attach(database.clone()).unwrap();
        let claim = execute(&store, &operation("a"));
        if mode == ConcurrencyMode::MultiWriter {
            let elsewhere = self::database(&world.path(), mode);
            assert_eq!(world.options().attach(elsewhere.clone()).unwrap_err().kind(), ErrorKind::InvalidInput);
            let other = world.options().with_sharing(Sharing::Shared).attach(elsewhere).unwrap();
            assert!(!other.is_new());
            let _ = in_progress(&other, &operation("a"));
        }
        claim.heartbeat().unwrap();
        claim.succeed_raw("receipt").unwrap();
    }
}

#[test]
fn shared_store_in_a_database_of_one_process_is_harmless() {
    let world = World::new();
    let database = alone(&world);
    let store = world.options().with_sharing(Sharing::Shared).attach(database.clone()).unwrap();
    let claim = execute(&store, &operation("a"));
    claim.heartbeat().unwrap();
    claim.succeed_raw("receipt").unwrap();
    store.close().unwrap();
    assert_eq!(status(&world.options().attach(database).unwrap(), "a"), Status::Succeeded);
}

#[test]
fn open_write_transaction_is_not_waited_for_by_the_thread_that_may_hold_it() {
    let world = World::new();
    let database = alone(&world);
    let txn = database.begin_write().unwrap();
    let error = world.options().attach(database.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(txn);
    drop(world.options().attach(database.clone()).unwrap());
    // Somebody else's ends in time.
    let txn = database.begin_write().unwrap();
    let store = std::thread::scope(|scope| {
        let patient = scope.spawn(|| world.options().with_open_wait(MINUTE).attach(database.clone()));
        drop(txn);
        patient.join().unwrap()
    });
    assert!(!store.unwrap().is_new());
}

#[test]
fn what_cannot_be_had_is_refused_before_anything_is_written() {
    let world = World::new();
    let database = alone(&world);
    for (options, expected) in [
        (world.options().must_exist(), ErrorKind::NotFound),
        (world.options().with_verify_on_open(), ErrorKind::InvalidInput),
        (world.options().with_cache_bytes(1), ErrorKind::InvalidInput),
    ] {
        assert_eq!(options.attach(database.clone()).unwrap_err().kind(), expected);
        assert!(table_names(&database).is_empty());
    }
    // The refusals gave the place up.
    drop(Options::new().attach(database.clone()).unwrap());
}

#[test]
fn store_of_which_a_part_is_missing_is_damage_and_no_new_store() {
    for missing in ["dupeproof/meta", "the format row"] {
        let world = World::new();
        let database = alone(&world);
        let store = world.options().attach(database.clone()).unwrap();
        execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
        drop(store);
        let meta = TableDefinition::<&str, &[u8]>::new("dupeproof/meta");
        let txn = database.begin_write().unwrap();
        if missing == "dupeproof/meta" {
            txn.delete_table(meta).unwrap();
        } else {
            txn.open_table(meta).unwrap().remove("format").unwrap();
        }
        txn.commit().unwrap();
        assert_eq!(world.options().attach(database).unwrap_err().kind(), ErrorKind::Damaged, "{missing}");
    }
}

#[test]
fn compacting_is_the_application_s_and_asking_for_it_stops_nothing() {
    let world = World::new();
    let database = alone(&world);
    let store = world.options().attach(database.clone()).unwrap();
    let error = store.compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    assert_eq!(store.stats().unwrap().file_bytes, None);
    store.close().unwrap();
    drop(store);
    let mut database = Arc::into_inner(database).expect("the store has let go of it");
    database.compact().unwrap();
    assert_eq!(status(&world.options().attach(Arc::new(database)).unwrap(), "a"), Status::Succeeded);
}

#[test]
fn backup_of_an_attached_store_is_a_store_without_the_application_s_tables() {
    let world = World::new();
    let database = alone(&world);
    take_stock(&database).unwrap();
    let store = world.options().attach(database).unwrap();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    let copy = world.folder().join("copy.redb");
    assert_eq!(store.backup(&copy).unwrap(), 1);
    let names = table_names(&self::database(&copy, ConcurrencyMode::ExclusiveWriter));
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("dupeproof/")), "{names:?}");
    assert_eq!(status(&world.options().open(copy).unwrap(), "a"), Status::Succeeded);
}
