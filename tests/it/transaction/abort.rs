//! A transaction that does not come about leaves nothing behind, and the claims as they were.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dupeproof::redb::{MultimapTableDefinition, TableDefinition};
use dupeproof::{ErrorKind, Settlement, Status, Store, UnknownCause};

use super::{Boxed, PAID, count, once, paid};
use crate::support::*;

/// Counts, settles, and thinks better of it.
fn aborted(store: &Store, claim: &dupeproof::Claim) {
    let error = store
        .transaction(|tx| -> Result<(), Boxed> {
            count(tx, "a")?;
            tx.settle(claim, Settlement::Succeeded("receipt".into()))?;
            Err("no".into())
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "no");
}

#[test]
fn error_leaves_nothing_behind_and_the_claim_can_still_be_settled() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    aborted(&store, &claim);
    assert!(claim.is_current());
    assert_eq!((status(&store, "a"), paid(&store)), (Status::Executing, once([])));
    // The effect has happened, whatever became of the transaction.
    claim.succeed_raw("receipt").unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!((status(store, "a"), paid(store)), (Status::Succeeded, once([])));
    });
}

#[test]
fn transaction_can_be_tried_again_with_the_same_claim() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    aborted(&store, &claim);
    store
        .transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            Ok(tx.settle(&claim, Settlement::Succeeded("receipt".into()))?)
        })
        .unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!((status(store, "a"), paid(store)), (Status::Succeeded, once(["a"])));
    });
}

#[test]
fn panic_aborts_and_goes_on_with_its_own_payload() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.transaction(|tx| -> Result<(), Boxed> {
            count(tx, "a")?;
            tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
            std::panic::panic_any(42_u8)
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&42_u8));
    assert!(claim.is_current());
    assert_eq!((status(&store, "a"), paid(&store)), (Status::Executing, once([])));
    claim.succeed_raw("receipt").unwrap();
    store.transaction(|tx| count(tx, "b")).unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!((status(store, "a"), paid(store)), (Status::Succeeded, once(["b"])));
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn claim_dropped_after_an_abort_is_of_unknown_outcome() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    aborted(&store, &claim);
    drop(claim);
    after_drops(&store);
    world.now_and_reopened(store, |store| {
        assert_eq!(unknown(store, &operation("a")).cause(), UnknownCause::ClaimDropped);
    });
}

/// The drop is queued behind the transaction, and finds what became of it.
#[test]
fn claim_dropped_inside_is_what_the_transaction_made_of_it() {
    for (comes_about, expected) in [(true, Status::Succeeded), (false, Status::Unknown)] {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        let done = store.transaction(|tx| -> Result<(), Boxed> {
            tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
            drop(claim);
            if comes_about { Ok(()) } else { Err("no".into()) }
        });
        assert_eq!(done.is_ok(), comes_about);
        after_drops(&store);
        world.now_and_reopened(store, |store| assert_eq!(status(store, "a"), expected));
    }
}

#[test]
fn transaction_that_wrote_nothing_leaves_the_file_as_it_was() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.succeed_raw("receipt").unwrap();
    let before = world.bytes();
    store.transaction(|_| Ok::<_, dupeproof::Error>(())).unwrap();
    // Said before: nothing to write.
    store.transaction(|tx| tx.settle(&claim, Settlement::Succeeded("receipt".into()))).unwrap();
    assert!(world.bytes() == before, "the file has changed");
    aborted(&store, &execute(&store, &operation("b")));
    assert_eq!(paid(&store), once([]));
}

#[test]
fn names_of_the_store_s_own_tables_are_refused_before_anything_is_written() {
    const OURS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("dupeproof/records");
    const NEW: TableDefinition<'_, &str, u64> = TableDefinition::new("dupeproof/mine");
    const MANY: MultimapTableDefinition<'_, &str, u64> = MultimapTableDefinition::new("dupeproof/many");
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    let before = world.bytes();
    store
        .transaction(|tx| {
            let errors = [
                tx.open_table(OURS).map(drop).unwrap_err(),
                tx.open_table(NEW).map(drop).unwrap_err(),
                tx.open_multimap_table(MANY).map(drop).unwrap_err(),
                tx.delete_table(OURS).map(drop).unwrap_err(),
                tx.delete_multimap_table(MANY).map(drop).unwrap_err(),
            ];
            assert!(errors.iter().all(|error| error.kind() == ErrorKind::InvalidInput), "{errors:?}");
            Ok::<_, dupeproof::Error>(())
        })
        .unwrap();
    store
        .read(|tables| {
            assert_eq!(tables.open_table(OURS).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(tables.open_multimap_table(MANY).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
            Ok::<_, dupeproof::Error>(())
        })
        .unwrap();
    assert!(world.bytes() == before, "the file has changed");
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn table_of_other_types_or_open_already_is_a_misuse_and_not_a_damage() {
    const NUMBERS: TableDefinition<'_, u64, u64> = TableDefinition::new("paid");
    let world = World::new();
    let store = world.open();
    store
        .transaction(|tx| -> Result<_, Boxed> {
            let open = tx.open_table(PAID)?;
            assert_eq!(tx.open_table(PAID).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
            drop(open);
            assert_eq!(tx.open_table(NUMBERS).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
            count(tx, "a")
        })
        .unwrap();
    assert_eq!(paid(&store), once(["a"]));
}

/// A panic inside the storage engine's own call leaves it half-done.
#[test]
fn transaction_with_a_swallowed_panic_in_a_storage_call_is_not_committed_and_stops_nothing() {
    let world = World::new();
    let store = world.open();
    store.transaction(|tx| count(tx, "a")).unwrap();
    let error = store
        .transaction(|tx| -> Result<(), Boxed> {
            count(tx, "b")?;
            let mut table = tx.open_table(PAID)?;
            let _ = catch_unwind(AssertUnwindSafe(|| table.retain(|_, _| panic!("of the application"))));
            Ok(())
        })
        .unwrap_err();
    let error = error.downcast_ref::<dupeproof::Error>().expect("an error of the store");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(paid(&store), once(["a"]));
    store.transaction(|tx| count(tx, "c")).unwrap();
    world.now_and_reopened(store, |store| assert_eq!(paid(store), once(["a", "c"])));
}
