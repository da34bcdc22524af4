//! The file goes, or is another one: the store stops, and none is made anew that has forgotten what was done.

use std::time::Duration;

use dupeproof::{Claim, ErrorKind, Result, Sharing, Store, Verdict};
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::support::*;

/// Everything that could promise or record something.
fn calls(store: &Store, claim: &Claim) -> Vec<(&'static str, Result<()>)> {
    vec![
        ("sweep", store.sweep(1).map(drop)),
        ("begin of a new key", store.begin(&operation("new")).map(drop)),
        ("begin of a settled key", store.begin(&operation("settled")).map(drop)),
        ("reserve", store.reserve(&operation("new")).map(drop)),
        ("begin many", store.begin_many(&[operation("new")]).map(drop)),
        ("resolve", store.resolve(key("unknown"), Verdict::DidNotHappen, &decision()).map(drop)),
        ("heartbeat", claim.heartbeat()),
        ("checkpoint", claim.checkpoint(b"x")),
        ("settle", claim.succeed_raw("receipt").map(drop)),
        ("compact", store.compact().map(drop)),
    ]
}

/// A store in use, and a claim of it.
fn in_use(world: &World) -> (Store, Claim) {
    let store = world.open();
    execute(&store, &operation("settled")).succeed_raw("receipt").unwrap();
    execute(&store, &operation("unknown")).give_up("lost").unwrap();
    let claim = execute(&store, &operation("held"));
    (store, claim)
}

fn everything_is_refused(store: &Store, claim: &Claim) {
    for (call, answer) in calls(store, claim) {
        assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Replaced), "{call}");
    }
    assert!(!claim.is_current());
}

#[test]
fn store_whose_file_was_deleted_stops_and_makes_no_other() {
    let world = World::new();
    let (store, claim) = in_use(&world);
    std::fs::remove_file(world.path()).unwrap();
    everything_is_refused(&store, &claim);
    drop(claim);
    assert_eq!(store.close().unwrap_err().kind(), ErrorKind::Replaced);
    assert!(!world.path().exists());
    let error = world.options().must_exist().open(world.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn store_whose_file_was_replaced_stops_and_leaves_the_other_alone() {
    let (world, other) = (World::new(), World::new());
    let (store, claim) = in_use(&world);
    other.open().close().unwrap();
    std::fs::rename(other.path(), world.path()).unwrap();
    let before = world.bytes();
    everything_is_refused(&store, &claim);
    drop(claim);
    assert_eq!(store.close().unwrap_err().kind(), ErrorKind::Replaced);
    assert!(world.bytes() == before);
}

#[test]
fn store_whose_folder_was_moved_stops() {
    let world = World::new();
    let (store, claim) = in_use(&world);
    let elsewhere = World::new();
    std::fs::rename(world.folder(), elsewhere.folder().join("moved")).unwrap();
    everything_is_refused(&store, &claim);
}

#[test]
fn compactor_finds_by_itself_that_the_file_is_gone() {
    let world = World::new();
    let store = world.options().with_sweep_every(Duration::from_millis(10)).open(world.path()).unwrap();
    execute(&store, &operation("settled")).succeed_raw("receipt").unwrap();
    std::fs::remove_file(world.path()).unwrap();
    eventually(|| store.begin(&operation("settled")).is_err());
    assert_eq!(store.begin(&operation("new")).unwrap_err().kind(), ErrorKind::Replaced);
    assert!(!world.path().exists());
}

/// In this mode the storage engine takes note of who opens a file before anybody can look inside.
#[test]
fn files_of_other_programs_are_refused_in_shared_mode_and_keep_what_they_hold() {
    const INVOICES: TableDefinition<'_, u64, &str> = TableDefinition::new("invoices");
    let world = World::new();
    for content in [Vec::new(), b"invoices\n".repeat(1000), vec![0; 100_000]] {
        std::fs::write(world.path(), &content).unwrap();
        is_no_store(&world);
        assert!(world.bytes() == content);
    }
    std::fs::remove_file(world.path()).unwrap();

    let database = Database::create(world.path()).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(INVOICES).unwrap().insert(1, "paid").unwrap();
    write.commit().unwrap();
    drop(database);
    is_no_store(&world);
    let database = Database::open(world.path()).unwrap();
    let read = database.begin_read().unwrap();
    assert_eq!(read.open_table(INVOICES).unwrap().get(1).unwrap().unwrap().value(), "paid");
    assert_eq!(read.list_tables().unwrap().count(), 1);
}

fn is_no_store(world: &World) {
    let error = world.options().with_sharing(Sharing::Shared).open(world.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAStore);
}
