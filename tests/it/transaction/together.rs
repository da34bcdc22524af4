//! What is done in one transaction appears together.

use std::sync::atomic::{AtomicUsize, Ordering};

use dupeproof::redb::{MultimapTableDefinition, ReadableMultimapTable, ReadableTable, TableDefinition};
use dupeproof::{Begin, ErrorKind, Replay, Retry, Settlement, Status};

use super::{Boxed, count, once, paid};
use crate::support::*;

#[test]
fn business_row_and_settlement_appear_together_and_survive_a_kill() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let value = store.transaction(|tx| -> Result<_, Boxed> {
        count(tx, "a")?;
        tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
        Ok(17)
    });
    assert_eq!(value.unwrap(), 17);
    assert!(!claim.is_current());
    drop(claim);
    after_drops(&store);
    world.throughout(store, |store| {
        assert_eq!(paid(store), once(["a"]));
        assert_eq!(replay(store, &operation("a")).value().unwrap(), b"receipt");
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn repeats_of_an_operation_settled_in_a_transaction_do_not_run_it_again() {
    let world = World::new();
    let store = world.open();
    let runs = AtomicUsize::new(0);
    let pay = |store: &dupeproof::Store| -> Result<Replay, Boxed> {
        match store.begin(&operation("a"))? {
            Begin::Execute(claim) => store.transaction(|tx| -> Result<(), Boxed> {
                runs.fetch_add(1, Ordering::Relaxed);
                count(tx, "a")?;
                Ok(tx.settle(&claim, Settlement::Succeeded("receipt".into()))?)
            })?,
            Begin::Replay(replay) => return Ok(replay),
            other => panic!("{other:?}"),
        }
        Ok(replay(store, &operation("a")))
    };
    let first = pay(&store).unwrap();
    let store = world.now_and_reopened(store, |store| {
        for _ in 0..50 {
            assert_eq!(pay(store).unwrap(), first);
        }
    });
    assert_eq!((runs.into_inner(), paid(&store)), (1, once(["a"])));
}

#[test]
fn every_way_to_settle_is_open_to_a_transaction() {
    let world = World::new();
    let store = world.open();
    let ways = [
        (Settlement::Succeeded("receipt".into()), Status::Succeeded),
        (Settlement::FailedTerminal(dupeproof::FailureReport::new("declined")), Status::FailedTerminal),
        (
            Settlement::FailedRetryable(dupeproof::FailureReport::new("busy"), Retry::after(HOUR)),
            Status::FailedRetryable,
        ),
        (Settlement::GaveUp(dupeproof::FailureReport::new("timed out")), Status::Unknown),
        (Settlement::Released, Status::FailedRetryable),
    ];
    let claims: Vec<_> = (0..ways.len()).map(|at| execute(&store, &operation(&at.to_string()))).collect();
    store
        .transaction(|tx| {
            ways.iter().zip(&claims).try_for_each(|((settlement, _), claim)| tx.settle(claim, settlement.clone()))
        })
        .unwrap();
    drop(claims);
    after_drops(&store);
    world.now_and_reopened(store, |store| {
        for (at, (_, expected)) in ways.iter().enumerate() {
            assert_eq!(status(store, &at.to_string()), *expected);
        }
    });
}

#[test]
fn refused_settlement_leaves_the_rest_of_the_transaction_alone() {
    let world = World::new();
    let store = world.open();
    let late = execute(&store, &operation("late"));
    late.fail_terminal("declined").unwrap();
    let good = execute(&store, &operation("good"));
    store
        .transaction(|tx| -> Result<_, Boxed> {
            let refused = tx.settle(&late, Settlement::Succeeded("receipt".into())).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadySettled);
            count(tx, "good")?;
            Ok(tx.settle(&good, Settlement::Succeeded("receipt".into()))?)
        })
        .unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!((status(store, "late"), status(store, "good")), (Status::FailedTerminal, Status::Succeeded));
        assert_eq!(paid(store), once(["good"]));
    });
}

#[test]
fn claim_of_another_store_is_refused() {
    let (world, other) = (World::new(), World::new());
    let (store, others) = (world.open(), other.open());
    // The same row in both.
    let claims = [execute(&store, &operation("a")), execute(&others, &operation("a"))];
    let error = store.transaction(|tx| tx.settle(&claims[1], Settlement::Succeeded("receipt".into()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!((status(&store, "a"), status(&others, "a")), (Status::Executing, Status::Executing));
}

#[test]
fn waiter_is_woken_by_a_settlement_in_a_transaction() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.begin(&operation("a").with_wait(DAY)).unwrap());
        store.transaction(|tx| tx.settle(&claim, Settlement::Succeeded("receipt".into()))).unwrap();
        assert!(matches!(waiter.join().unwrap(), Begin::Replay(_)));
    });
}

#[test]
fn money_is_neither_made_nor_lost_by_64_threads_that_move_it() {
    const ACCOUNTS: TableDefinition<'_, u64, i64> = TableDefinition::new("accounts");
    const THREADS: u64 = 64;
    let world = World::new();
    let store = world.open();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let claim = execute(store, &operation(&thread.to_string()));
                let moved = store.transaction(|tx| -> Result<_, Boxed> {
                    let mut accounts = tx.open_table(ACCOUNTS)?;
                    for (account, change) in [(thread % 7, -1), ((thread + 1) % 7, 1)] {
                        let before = accounts.get(account)?.map_or(0, |balance| balance.value());
                        accounts.insert(account, before + change)?;
                    }
                    tx.settle(&claim, Settlement::Succeeded("moved".into()))?;
                    // Every ninth thinks better of it.
                    if thread % 9 == 0 { Err("no".into()) } else { Ok(()) }
                });
                assert_eq!(moved.is_err(), thread % 9 == 0);
            });
        }
    });
    after_drops(&store);
    world.throughout(store, |store| {
        let mut expected = [0_i64; 7];
        for thread in (0..THREADS).filter(|thread| thread % 9 != 0) {
            expected[usize::try_from(thread % 7).unwrap()] -= 1;
            expected[usize::try_from((thread + 1) % 7).unwrap()] += 1;
        }
        let found = store.read(|tables| -> Result<Vec<i64>, Boxed> {
            let table = tables.open_table(ACCOUNTS)?.expect("it is there");
            Ok(table.iter()?.map(|row| row.map(|(_, balance)| balance.value())).collect::<Result<_, _>>()?)
        });
        assert_eq!(found.unwrap(), expected);
        let settled = (0..THREADS).filter(|thread| status(store, &thread.to_string()) == Status::Succeeded).count();
        assert_eq!(settled, 64 - 8);
    });
}

#[test]
fn multimap_tables_and_deleted_tables_are_part_of_the_commit() {
    const TAGS: MultimapTableDefinition<'_, &str, &str> = MultimapTableDefinition::new("tags");
    let world = World::new();
    let store = world.open();
    let put = |store: &dupeproof::Store| {
        store.transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            tx.open_multimap_table(TAGS)?.insert("a", "red")?;
            Ok(())
        })
    };
    let tags = |store: &dupeproof::Store| {
        store.read(|tables| -> Result<_, Boxed> {
            Ok(tables.open_multimap_table(TAGS)?.map(|table| table.get("a").map(|tags| tags.len())).transpose()?)
        })
    };
    put(&store).unwrap();
    let store = world.now_and_reopened(store, |store| {
        assert_eq!((paid(store), tags(store).unwrap()), (once(["a"]), Some(1)));
    });
    let deleted = store
        .transaction(|tx| Ok::<_, dupeproof::Error>((tx.delete_table(super::PAID)?, tx.delete_multimap_table(TAGS)?)));
    assert_eq!(deleted.unwrap(), (true, true));
    world.now_and_reopened(store, |store| {
        assert_eq!((paid(store), tags(store).unwrap()), (once([]), None));
    });
}

/// The copy is a store; the application's tables are the application's to copy.
#[test]
fn verify_and_backup_are_about_the_tables_of_the_store_only() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    store
        .transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            Ok(tx.settle(&claim, Settlement::Succeeded("receipt".into()))?)
        })
        .unwrap();
    let report = store.verify().unwrap();
    assert!(report.is_clean() && report.records == 1, "{report:?}");
    let copy = world.folder().join("copy.redb");
    assert_eq!(store.backup(&copy).unwrap(), 1);
    let copy = world.options().open(copy).unwrap();
    assert_eq!((status(&copy, "a"), paid(&copy)), (Status::Succeeded, once([])));
}
