//! Around a transaction: what must not hang, break off, or be taken for something else.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dupeproof::redb::{Database, ReadableTable, TableDefinition};
use dupeproof::{Begin, ErrorKind, Settlement, Status, Store};

use crate::support::child::{Child, Task, say};
use crate::support::*;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ORDERS: TableDefinition<'_, &str, u64> = TableDefinition::new("orders");

fn order(store: &Store, name: &str) -> Option<u64> {
    store.transaction(|tx| Fallible::Ok(tx.open_table(ORDERS)?.get(name)?.map(|cents| cents.value()))).unwrap()
}

/// Whoever holds the operation cannot settle it before the transaction ends, so that a wait in there would hold up the
/// whole store for as long as it may take.
#[test]
fn nobody_waits_within_a_transaction_for_somebody_else_s_execution() {
    let world = World::new();
    let store = world.open();
    let held = execute(&store, &operation("a"));
    let waiting = operation("a").with_wait(DAY);
    store
        .transaction(|tx| {
            assert!(matches!(store.begin(&waiting)?, Begin::InProgress(_)));
            assert!(matches!(store.reserve(&waiting)?, dupeproof::Reserve::InProgress(_)));
            Fallible::Ok(tx.settle(&held, Settlement::Succeeded("receipt".into()))?)
        })
        .unwrap();
    assert!(replay(&store, &waiting).is_success());
}

/// The engine below gives such a transaction up before it writes a byte.
#[test]
fn swallowed_panic_in_a_call_of_the_engine_gives_the_transaction_up_and_stops_nothing() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let given_up = store.transaction(|tx| {
        tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
        let mut orders = tx.open_table(ORDERS)?;
        orders.insert("a", 1)?;
        let _ = catch_unwind(AssertUnwindSafe(|| orders.retain(|_, _| panic!("of the application"))));
        Fallible::Ok(())
    });
    let error = given_up.unwrap_err();
    let error = error.downcast_ref::<dupeproof::Error>().expect("an error of the store");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(claim.is_current());
    assert_eq!((order(&store, "a"), status(&store, "a")), (None, Status::Executing));
    claim.succeed_raw("receipt").unwrap();
}

/// The one who would have to end the transaction is the one who would wait for it.
#[test]
fn attach_does_not_wait_for_a_write_transaction_that_may_be_its_caller_s() {
    let world = World::new();
    let database = Arc::new(Database::create(world.path()).unwrap());
    let open = database.begin_write().unwrap();
    let error = world.options().attach(database.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(open);
    assert!(world.options().attach(database).unwrap().is_new());
}

/// Its records would answer again, under numbers of opens that were given before.
#[test]
fn database_with_a_part_of_a_store_is_damaged_and_no_place_for_a_new_one() {
    let world = World::new();
    let database = Arc::new(Database::create(world.path()).unwrap());
    let store = world.options().attach(database.clone()).unwrap();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let txn = database.begin_write().unwrap();
    txn.delete_table(TableDefinition::<&str, &[u8]>::new("dupeproof/meta")).unwrap();
    txn.commit().unwrap();
    assert_eq!(world.options().attach(database).unwrap_err().kind(), ErrorKind::Damaged);
}

/// A check that nobody makes must not be asked for in vain.
#[test]
fn check_at_open_is_refused_for_a_database_that_is_open() {
    let world = World::new();
    let database = Arc::new(Database::create(world.path()).unwrap());
    assert_eq!(world.options().with_verify_on_open().attach(database).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// What a thread has of its own ends in no order that we know of.
#[test]
fn store_that_a_thread_keeps_for_itself_ends_with_the_thread() {
    let world = World::new();
    let mut child = Child::start(module_path!(), &world, "");
    child.expect("the thread has ended");
    assert!(child.finish().success());
    assert_eq!(unknown(&world.open(), &operation("a")).attempt(), 1);
}

#[test]
fn child() {
    thread_local! {
        static KEPT: RefCell<Option<(dupeproof::Claim, Store)>> = const { RefCell::new(None) };
    }
    let Some(task) = Task::given() else { return };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            KEPT.with_borrow_mut(|kept| {
                let store = task.world.open();
                *kept = Some((execute(&store, &operation("a")), store));
            });
        });
        // Unlike the scope, this waits for what the thread drops last.
        thread.join().unwrap();
    });
    say("the thread has ended");
}
