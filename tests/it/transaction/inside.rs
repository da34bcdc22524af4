//! What may be called inside a transaction: reads. Whatever would wait for the writer's place is refused, because this
//! very thread holds it.

use std::sync::Barrier;
use std::time::Duration;

use dupeproof::{Begin, Error, ErrorKind, Page, Settlement, Status, Verdict};

use super::{Boxed, count, once, paid};
use crate::support::*;

#[test]
fn calls_that_write_are_refused_inside_and_do_not_hang() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("held"));
    let reservation = reserve(&store, &operation("reserved"));
    bring_to(&world, &store, "unknown", Status::Unknown);
    let copy = world.folder().join("copy.redb");

    let errors = store
        .transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            let same = store.clone();
            let errors: Vec<(&str, Error)> = vec![
                ("begin", store.begin(&operation("new")).unwrap_err()),
                ("begin of a clone", same.begin(&operation("new")).unwrap_err()),
                ("begin_many", store.begin_many(&[operation("new")]).unwrap_err()),
                ("reserve", store.reserve(&operation("new")).unwrap_err()),
                ("run", store.run_raw(&operation("new"), |_| panic!("it ran")).unwrap_err()),
                ("heartbeat", claim.heartbeat().unwrap_err()),
                ("checkpoint", claim.checkpoint(b"half-way").unwrap_err()),
                ("refer", claim.record_external_reference("ch_1").unwrap_err()),
                ("succeed", claim.succeed_raw("receipt").unwrap_err()),
                ("release", claim.release().unwrap_err()),
                ("settle_and_begin", claim.settle_and_begin(Settlement::Released, &operation("new")).unwrap_err()),
                ("start", reservation.start().unwrap_err()),
                ("resolve", store.resolve(key("unknown"), Verdict::DidNotHappen, &decision()).unwrap_err()),
                ("sweep", store.sweep(1).unwrap_err()),
                ("compact", store.compact().unwrap_err()),
                ("transaction", store.transaction(|_| Ok::<_, Error>(())).unwrap_err()),
                ("close", store.close().unwrap_err()),
            ];
            // Reads see the state before.
            assert_eq!(paid(&store), once([]));
            assert_eq!(status(&store, "held"), Status::Executing);
            assert_eq!(store.list(&dupeproof::Filter::new(), &Page::first(10))?.operations.len(), 3);
            assert_eq!(store.stats()?.unknown, 1);
            assert!(store.verify()?.is_clean());
            assert_eq!(store.backup(&copy)?, 3);
            Ok(errors)
        })
        .unwrap();
    for (what, error) in errors {
        assert_eq!(error.kind(), ErrorKind::Refused, "{what}: {error}");
    }
    after_drops(&store);
    assert_eq!(paid(&store), once(["a"]));
    assert_eq!((status(&store, "held"), get(&store, "held").attempts), (Status::Executing, 1));
    // The refused start dropped its reservation.
    assert_eq!(status(&store, "reserved"), Status::FailedRetryable);
    assert_eq!((store.get(key("new")).unwrap(), status(&store, "unknown")), (None, Status::Unknown));
    claim.succeed_raw("receipt").unwrap();
}

#[test]
fn answers_that_need_no_write_are_given_inside() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("done")).succeed_raw("receipt").unwrap();
    let held = execute(&store, &operation("held"));
    store
        .transaction(|tx| -> Result<_, Boxed> {
            tx.settle(&held, Settlement::Succeeded("receipt".into()))?;
            assert!(matches!(store.begin(&operation("done"))?, Begin::Replay(_)));
            assert!(matches!(store.begin(&altered("held"))?, Begin::Conflict(_)));
            // Nobody could end the wait: the settlement above is not committed yet.
            assert!(matches!(store.begin(&operation("held").with_wait(DAY))?, Begin::InProgress(_)));
            Ok(())
        })
        .unwrap();
    assert_eq!(status(&store, "held"), Status::Succeeded);
}

#[test]
fn another_store_may_be_written_to_inside_and_the_first_one_not_even_from_in_there() {
    let (one, other) = (World::new(), World::new());
    let (one, other) = (one.open(), other.open());
    one.transaction(|_| {
        execute(&other, &operation("a")).succeed_raw("receipt")?;
        other.transaction(|_| {
            for store in [&one, &other] {
                assert_eq!(store.begin(&operation("b")).unwrap_err().kind(), ErrorKind::Refused);
            }
            Ok::<_, Error>(())
        })?;
        // The inner one has ended, the outer one has not.
        execute(&other, &operation("c")).succeed_raw("receipt")?;
        assert_eq!(one.begin(&operation("b")).unwrap_err().kind(), ErrorKind::Refused);
        Ok::<_, Error>(())
    })
    .unwrap();
    execute(&one, &operation("b")).succeed_raw("receipt").unwrap();
    assert_eq!((status(&other, "a"), status(&other, "c")), (Status::Succeeded, Status::Succeeded));
}

#[test]
fn thread_is_outside_again_after_an_error_and_after_a_panic() {
    let world = World::new();
    let store = world.open();
    assert!(store.transaction(|_| Err::<(), Boxed>("no".into())).is_err());
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.transaction(|_| -> Result<(), Boxed> { panic!("of the application") })
    }));
    assert!(panicked.is_err());
    execute(&store, &operation("b")).succeed_raw("receipt").unwrap();
}

/// Whoever wants the file for itself waits for the transaction, and new readers wait behind it; the transaction's own
/// reads must not.
#[test]
fn store_that_closes_waits_for_the_transaction_which_may_read_meanwhile() {
    for has_claims in [false, true] {
        let world = World::new();
        let store = world.open();
        if has_claims {
            drop(execute(&store, &operation("a")).succeed_raw("receipt").unwrap());
        }
        let entered = Barrier::new(2);
        let (closed, done) = std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                entered.wait();
                store.close()
            });
            let done = store.transaction(|tx| -> Result<_, Boxed> {
                count(tx, "a")?;
                entered.wait();
                // Long enough for the closer to stand at the gate, most times.
                std::thread::park_timeout(Duration::from_millis(50));
                assert_eq!(store.get(key("a"))?.is_some(), has_claims);
                assert_eq!(paid(&store), once([]));
                Ok(())
            });
            (closer.join().unwrap(), done)
        });
        closed.unwrap();
        assert_eq!(store.transaction(|_| Ok::<_, Error>(())).unwrap_err().kind(), ErrorKind::Closed);
        let expected = match done {
            Ok(()) => once(["a"]),
            Err(error) => {
                assert_eq!(error.downcast_ref::<Error>().map(Error::kind), Some(ErrorKind::Closed), "{error}");
                once([])
            }
        };
        assert_eq!(paid(&world.open()), expected);
    }
}

#[test]
fn store_that_is_compacted_waits_for_the_transaction_which_may_read_meanwhile() {
    let world = World::new();
    let store = world.open();
    let entered = Barrier::new(2);
    std::thread::scope(|scope| {
        let compactor = scope.spawn(|| {
            entered.wait();
            store.compact()
        });
        let done = store.transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            entered.wait();
            std::thread::park_timeout(Duration::from_millis(50));
            assert_eq!(paid(&store), once([]));
            Ok(())
        });
        done.unwrap();
        compactor.join().unwrap().unwrap();
    });
    assert_eq!(paid(&store), once(["a"]));
}

/// Reading holds nothing that anybody waits for.
#[test]
fn reads_of_own_tables_hold_up_neither_writes_nor_the_close() {
    let world = World::new();
    let store = world.open();
    store.transaction(|tx| count(tx, "a")).unwrap();
    store
        .read(|_| {
            execute(&store, &operation("a")).succeed_raw("receipt")?;
            store.transaction(|tx| count(tx, "b")).unwrap();
            assert_eq!(store.compact().unwrap_err().kind(), ErrorKind::Busy);
            store.close()
        })
        .unwrap();
    assert_eq!(paid(&world.open()), once(["a", "b"]));
}
