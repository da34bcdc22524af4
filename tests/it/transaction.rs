//! The application's changes and ours: together, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dupeproof::redb::{Database, MultimapTableDefinition, ReadableDatabase, ReadableTable, TableDefinition};
use dupeproof::{Begin, Claim, Error, ErrorKind, Recovery, Settlement, Sharing, Status, Store};

use crate::support::child::{Child, Task, park};
use crate::support::*;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ORDERS: TableDefinition<'_, &str, u64> = TableDefinition::new("orders");

fn order(store: &Store, name: &str) -> Option<u64> {
    store.transaction(|tx| Fallible::Ok(tx.open_table(ORDERS)?.get(name)?.map(|cents| cents.value()))).unwrap()
}

fn succeeded() -> Settlement {
    Settlement::Succeeded("receipt".into())
}

fn paid(store: &Store, claim: &Claim, name: &str) -> Fallible<()> {
    store.transaction(|tx| {
        tx.open_table(ORDERS)?.insert(name, 1200)?;
        Ok(tx.settle(claim, succeeded())?)
    })
}

#[test]
fn order_and_settlement_are_committed_together() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    paid(&store, &claim, "a").unwrap();
    assert!(!claim.is_current());
    drop(claim);
    world.throughout(store, |store| {
        assert_eq!(order(store, "a"), Some(1200));
        assert_eq!(replay(store, &operation("a")).value().unwrap(), b"receipt");
    });
}

/// An error, a panic, and a refused settlement that the closure takes for one: nothing of it is there.
#[test]
fn transaction_that_is_given_up_leaves_nothing_and_the_claim_can_be_settled_otherwise() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let before = world.bytes();
    let given_up = store.transaction(|tx| {
        tx.open_table(ORDERS)?.insert("a", 1200)?;
        tx.settle(&claim, succeeded())?;
        Fallible::<()>::Err("no such order".into())
    });
    assert_eq!(given_up.unwrap_err().to_string(), "no such order");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.transaction::<(), Error>(|tx| {
            tx.open_table(ORDERS)?.insert("a", 1200).unwrap();
            tx.settle(&claim, succeeded())?;
            std::panic::panic_any(17_u8)
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref::<u8>(), Some(&17), "the panic goes on as it was");
    assert_eq!(world.bytes(), before, "not a byte was written");
    assert!(claim.is_current());
    assert_eq!((status(&store, "a"), order(&store, "a")), (Status::Executing, None));
    claim.fail_terminal("declined").unwrap();
    world.throughout(store, |store| {
        assert_eq!((status(store, "a"), order(store, "a")), (Status::FailedTerminal, None));
    });
}

#[test]
fn claim_that_is_dropped_after_its_transaction_was_given_up_is_unknown() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let given_up = store.transaction(|tx| {
        tx.settle(&claim, succeeded())?;
        drop(claim);
        Fallible::<()>::Err("no".into())
    });
    given_up.unwrap_err();
    after_drops(&store);
    assert_eq!(status(&store, "a"), Status::Unknown);
}

#[test]
fn claim_that_is_dropped_within_the_transaction_that_settles_it_is_settled() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    store
        .transaction(|tx| {
            tx.settle(&claim, succeeded())?;
            drop(claim);
            Fallible::Ok(())
        })
        .unwrap();
    after_drops(&store);
    world.now_and_reopened(store, |store| assert!(replay(store, &operation("a")).is_success()));
}

#[test]
fn refused_settlement_leaves_the_rest_of_the_transaction_as_it_is() {
    let world = World::new();
    let store = world.open();
    let late = execute(&store, &operation("a"));
    late.give_up("lost").unwrap();
    store.resolve(&key("a"), dupeproof::Verdict::DidNotHappen, &decision()).unwrap();
    let newer = execute(&store, &operation("a"));
    store
        .transaction(|tx| {
            assert_eq!(tx.settle(&late, succeeded()).unwrap_err().kind(), ErrorKind::LeaseLost);
            tx.settle(&newer, succeeded())?;
            tx.settle(&newer, succeeded())?;
            let other = tx.settle(&newer, Settlement::GaveUp(dupeproof::FailureReport::new("no")));
            assert_eq!(other.unwrap_err().kind(), ErrorKind::AlreadySettled);
            tx.open_table(ORDERS)?.insert("a", 1)?;
            Fallible::Ok(())
        })
        .unwrap();
    assert!(store.verify().unwrap().is_clean());
    assert_eq!((status(&store, "a"), order(&store, "a")), (Status::Succeeded, Some(1)));
}

#[test]
fn claim_of_another_store_is_refused() {
    let (one, other) = (World::new(), World::new());
    let (one, other) = (one.open(), other.open());
    let claim = execute(&other, &operation("a"));
    let refused = one.transaction(|tx| tx.settle(&claim, succeeded())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(claim.is_current());
}

#[test]
fn tables_of_ours_are_out_of_reach_and_wrong_ones_are_named() {
    const TAGS: MultimapTableDefinition<'_, &str, &str> = MultimapTableDefinition::new("tags");
    let world = World::new();
    let store = world.open();
    let kinds = store.transaction(|tx| {
        let mut kinds = Vec::new();
        for name in ["dupeproof/records", "dupeproof/index", "dupeproof/", "dupeproof/mine"] {
            kinds.push(tx.open_table(TableDefinition::<u64, u64>::new(name)).map(drop).map_err(|error| error.kind()));
            let multimap = MultimapTableDefinition::<u64, u64>::new(name);
            kinds.push(tx.open_multimap_table(multimap).map(drop).map_err(|error| error.kind()));
        }
        let orders = tx.open_table(ORDERS)?;
        kinds.push(tx.open_table(ORDERS).map(drop).map_err(|error| error.kind()));
        drop(orders);
        kinds.push(tx.open_table(TableDefinition::<u64, u64>::new("orders")).map(drop).map_err(|error| error.kind()));
        tx.open_multimap_table(TAGS)?.insert("a", "urgent")?;
        Fallible::Ok(kinds)
    });
    assert!(kinds.unwrap().iter().all(|kind| *kind == Err(ErrorKind::InvalidInput)));
    // A name that only begins alike is the application's.
    let near = TableDefinition::<u64, u64>::new("dupeproof");
    store.transaction(|tx| Fallible::Ok(tx.open_table(near)?.insert(1, 1).map(drop)?)).unwrap();
}

/// Each would wait for the end of the transaction that it is part of.
#[test]
fn call_from_within_that_would_wait_for_itself_is_refused_and_looking_is_not() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("settled")).succeed_raw("receipt").unwrap();
    let claim = execute(&store, &operation("held"));
    let other = World::new();
    let other = other.open();
    store
        .transaction(|tx| {
            for (call, answer) in [
                ("begin", store.begin(&operation("new")).map(drop)),
                ("sweep", store.sweep(1).map(drop)),
                ("settle", claim.succeed_raw("receipt").map(drop)),
                ("heartbeat", claim.heartbeat()),
                ("resolve", store.resolve(&key("held"), dupeproof::Verdict::DidNotHappen, &decision()).map(drop)),
                ("compact", store.compact().map(drop)),
                ("close", store.close()),
                ("transaction", store.clone().transaction(|_| Ok(()))),
            ] {
                assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Refused), "{call}");
            }
            assert!(replay(&store, &operation("settled")).is_success());
            assert_eq!(status(&store, "held"), Status::Executing);
            // Another store is another matter, and so is this one once the inner transaction is over.
            other.transaction(|tx| Fallible::Ok(tx.open_table(ORDERS)?.insert("b", 2).map(drop)?))?;
            drop(execute(&other, &operation("a")));
            assert_eq!(store.begin(&operation("new")).unwrap_err().kind(), ErrorKind::Refused);
            tx.open_table(ORDERS)?.insert("a", 1)?;
            Fallible::Ok(())
        })
        .unwrap();
    assert_eq!(order(&store, "a"), Some(1));
    drop(execute(&store, &operation("new")));
}

#[test]
fn transactions_and_begins_of_many_threads_lose_nothing() {
    let world = World::new();
    let store = world.open();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                for number in 0..25 {
                    let name = format!("{thread}/{number}");
                    let claim = execute(store, &operation(&name));
                    paid(store, &claim, &name).unwrap();
                    store
                        .transaction(|tx| {
                            let mut orders = tx.open_table(ORDERS)?;
                            let total = orders.get("total")?.map_or(0, |total| total.value());
                            orders.insert("total", total + 1)?;
                            Fallible::Ok(())
                        })
                        .unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((done.into_inner(), order(&store, "total")), (200, Some(200)));
    assert_eq!(store.stats().unwrap().succeeded, 200);
}

#[test]
fn closed_store_begins_no_transaction_and_a_running_one_is_waited_for() {
    let world = World::new();
    let store = world.open();
    std::thread::scope(|scope| {
        let (inside, entered) = std::sync::mpsc::sync_channel(1);
        let running = scope.spawn({
            let store = store.clone();
            move || {
                store
                    .transaction(|tx| {
                        tx.open_table(ORDERS)?.insert("a", 1)?;
                        inside.send(()).unwrap();
                        std::thread::park_timeout(std::time::Duration::from_millis(50));
                        Fallible::Ok(())
                    })
                    .unwrap();
            }
        });
        entered.recv().unwrap();
        store.close().unwrap();
        running.join().unwrap();
    });
    let refused = store.transaction::<(), Error>(|_| panic!("it must not run")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    assert_eq!(order(&world.open(), "a"), Some(1));
}

// In a database of the application's.

fn application(world: &World) -> Arc<Database> {
    Arc::new(Database::create(world.path()).unwrap())
}

#[test]
fn store_in_the_application_s_database_lives_beside_its_tables() {
    let world = World::new();
    for round in 1..=3_u64 {
        let database = application(&world);
        let txn = database.begin_write().unwrap();
        txn.open_table(ORDERS).unwrap().insert("app", round).unwrap();
        txn.commit().unwrap();
        let store = world.options().attach(database.clone()).unwrap();
        assert_eq!(store.is_new(), round == 1);
        let operation = operation(&round.to_string());
        let claim = execute(&store, &operation);
        paid(&store, &claim, &round.to_string()).unwrap();
        assert!(replay(&store, &self::operation("1")).is_success());
        assert_eq!(store.compact().unwrap_err().kind(), ErrorKind::Refused);
        assert!(store.verify().unwrap().is_clean());
        store.backup(world.folder().join(format!("copy {round}"))).unwrap();
        store.close().unwrap();
        // The application goes on with its database.
        let txn = database.begin_read().unwrap();
        assert_eq!(txn.open_table(ORDERS).unwrap().get("app").unwrap().unwrap().value(), round);
    }
    let copy = world.options().open(world.folder().join("copy 3")).unwrap();
    assert!(replay(&copy, &operation("3")).is_success());
}

/// A second one would take the claims of the first for those of an earlier open, and end them.
#[test]
fn second_store_in_one_database_is_refused_until_the_first_is_closed() {
    let world = World::new();
    let database = application(&world);
    let store = world.options().attach(database.clone()).unwrap();
    let claim = execute(&store, &operation("a"));
    assert_eq!(world.options().attach(database.clone()).unwrap_err().kind(), ErrorKind::OpenElsewhere);
    claim.succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let store = world.options().attach(database.clone()).unwrap();
    assert!(replay(&store, &operation("a")).is_success());
    drop(store);
    world.options().attach(database).unwrap();
}

#[test]
fn database_that_others_write_to_is_no_place_for_an_exclusive_store() {
    let world = World::new();
    application(&world);
    let mode = dupeproof::redb::ConcurrencyMode::MultiWriter;
    let database = Arc::new(Database::builder().set_concurrency_mode(mode).open(world.path()).unwrap());
    let refused = world.options().attach(database.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let store = world.options().with_sharing(Sharing::Shared).attach(database).unwrap();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
}

#[test]
fn attach_makes_no_store_that_must_exist_and_takes_over_one_that_has_a_file() {
    let world = World::new();
    let database = application(&world);
    assert_eq!(world.options().must_exist().attach(database).unwrap_err().kind(), ErrorKind::NotFound);
    let filed = World::new();
    let store = filed.open();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let store = filed.options().must_exist().attach(Arc::new(Database::open(filed.path()).unwrap())).unwrap();
    assert!(replay(&store, &operation("a")).is_success());
}

/// SIGKILL at random instants of orders that are paid: each order has its settlement, and each settlement its order.
#[test]
fn kill_parts_no_order_from_its_settlement() {
    let mut dice = crate::support::dice::Dice::fresh();
    for round in 0..12 {
        let world = World::new();
        let how = if round % 2 == 0 { "filed" } else { "attached" };
        drop(application(&world));
        if round % 2 == 0 {
            std::fs::remove_file(world.path()).unwrap();
            world.open().close().unwrap();
        }
        let mut child = Child::start(module_path!(), &world, how);
        child.expect("paying");
        std::thread::park_timeout(std::time::Duration::from_micros(dice.throw() % 30_000));
        child.kill();
        let store = world.options().with_recovery(Recovery::Scan).open(world.path());
        let store = store.or_else(|_| world.options().attach(application(&world))).unwrap();
        assert!(store.verify().unwrap().is_clean());
        let mut settled = 0;
        for number in 0.. {
            let name = number.to_string();
            let Some(found) = store.get(&key(&name)).unwrap() else { break };
            let is_settled = found.status == Status::Succeeded;
            assert_eq!(order(&store, &name).is_some(), is_settled, "{name} of {how}: {found:?}");
            assert!(is_settled || found.status == Status::Unknown);
            settled += u64::from(is_settled);
        }
        println!("{settled} paid");
    }
}

#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [how] = task.words();
    let store = match how {
        "filed" => task.world.open(),
        _ => task.world.options().attach(application(&task.world)).unwrap(),
    };
    crate::support::child::say("paying");
    for number in 0..10_000 {
        let name = number.to_string();
        let Begin::Execute(claim) = store.begin(&operation(&name)).unwrap() else { panic!("a new key") };
        paid(&store, &claim, &name).unwrap();
    }
    park("paid");
}
