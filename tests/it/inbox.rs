//! Messages that come in: each acts once, however often and wherever it is delivered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dupeproof::redb::{ReadableTable, ReadableTableMetadata, TableDefinition};
use dupeproof::{
    Begin, Error, ErrorKind, Filter, Fingerprint, Inbox, Page, Processed, Response, Retention, Sharing, Status, Store,
    Verdict,
};

use crate::support::child::{Child, Task, park, say};
use crate::support::dice::Dice;
use crate::support::*;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// The business: one row for each message that acted, and how often it did.
const BOOKED: TableDefinition<'_, &str, u64> = TableDefinition::new("booked");

fn payload() -> Fingerprint {
    Fingerprint::of_bytes(b"payload")
}

fn orders(store: &Store) -> Inbox {
    store.inbox("acme", "orders").unwrap()
}

/// Books the message, and answers with how many were booked by then.
fn deliver(inbox: &Inbox, id: &str) -> Fallible<Processed> {
    inbox.process_raw(id, payload(), |tx| {
        let mut booked = tx.open_table(BOOKED)?;
        let before = booked.get(id)?.map_or(0, |times| times.value());
        booked.insert(id, before + 1)?;
        Ok(Response::from(format!("booked as number {}", booked.len()?)))
    })
}

fn booked(store: &Store) -> Vec<(String, u64)> {
    store
        .transaction(|tx| {
            let booked = tx.open_table(BOOKED)?;
            let rows = booked.iter()?.map(|row| row.map(|(id, times)| (id.value().to_owned(), times.value())));
            Fallible::Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })
        .unwrap()
}

fn once(ids: &[&str]) -> Vec<(String, u64)> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}

#[test]
fn message_acts_once_and_every_duplicate_gets_its_response() {
    let world = World::new();
    let store = world.open();
    let first = deliver(&orders(&store), "m-1").unwrap();
    let Processed::Done(first) = &first else { panic!("{first:?}") };
    assert_eq!(first.value().unwrap(), b"booked as number 1");
    let _ = deliver(&orders(&store), "m-2").unwrap();
    world.throughout(store, |store| {
        let repeat = deliver(&orders(store), "m-1").unwrap();
        assert!(repeat.may_acknowledge());
        let Processed::Duplicate(repeat) = repeat else { panic!("{repeat:?}") };
        assert_eq!(repeat.value().unwrap(), b"booked as number 1");
        assert_eq!(booked(store), once(&["m-1", "m-2"]));
        assert_eq!(store.stats().unwrap().inbox_marks, 2);
        assert!(store.verify().unwrap().is_clean());
    });
}

/// No mark and no change, so the next delivery handles it.
#[test]
fn handler_that_fails_or_panics_leaves_no_mark() {
    let world = World::new();
    let store = world.open();
    let inbox = orders(&store);
    let failed = inbox.process_raw("m-1", payload(), |tx| {
        tx.open_table(BOOKED)?.insert("m-1", 1)?;
        Fallible::Err("out of stock".into())
    });
    assert_eq!(failed.unwrap_err().to_string(), "out of stock");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        inbox.process_raw::<Error>("m-1", payload(), |tx| {
            tx.open_table(BOOKED)?.insert("m-1", 1).unwrap();
            panic!("a defect")
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"a defect"));
    assert_eq!(inbox.get("m-1").unwrap(), None);
    world.now_and_reopened(store, |store| {
        assert_eq!(booked(store), []);
        assert_eq!(store.stats().unwrap().inbox_marks, 0);
    });
    let store = world.open();
    assert!(matches!(deliver(&orders(&store), "m-1").unwrap(), Processed::Done(_)));
    assert_eq!(booked(&store), once(&["m-1"]));
}

#[test]
fn parallel_deliveries_of_one_message_act_once() {
    let world = World::new();
    let store = world.open();
    let (done, duplicates) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                for id in ["m-1", "m-2", "m-3"] {
                    match deliver(&orders(&store), id).unwrap() {
                        Processed::Done(_) => done.fetch_add(1, Ordering::Relaxed),
                        Processed::Duplicate(_) => duplicates.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other:?}"),
                    };
                }
            });
        }
    });
    assert_eq!((done.into_inner(), duplicates.into_inner()), (3, 189));
    assert_eq!(booked(&store), once(&["m-1", "m-2", "m-3"]));
}

#[test]
fn changed_message_under_the_same_id_is_a_conflict_whatever_became_of_the_first() {
    let world = World::new();
    let store = world.open();
    let inbox = orders(&store).with_retention(Retention::default().with_response(HOUR).with_tombstone(DAY));
    let _ = deliver(&inbox, "done").unwrap();
    let Begin::Execute(claim) = inbox.claim("unknown", payload()).unwrap() else { panic!("a new message") };
    claim.give_up("lost").unwrap();
    let Begin::Execute(_held) = inbox.claim("held", payload()).unwrap() else { panic!("a new message") };
    let conflicts = |store: &Store| {
        for id in ["done", "unknown", "held"] {
            let told = orders(store).process_raw::<Error>(id, Fingerprint::of_bytes(b"another"), |_| panic!("{id}"));
            let told = told.unwrap();
            assert!(matches!(told, Processed::Conflict(_)), "{id}: {told:?}");
            assert!(!told.may_acknowledge());
        }
    };
    conflicts(&store);
    world.clock.advance(HOUR);
    conflicts(&store);
    assert_eq!(booked(&store), once(&["done"]));
}

#[test]
fn message_that_was_claimed_is_not_processed_beside_it() {
    let world = World::new();
    let store = world.open();
    let inbox = orders(&store);
    let Begin::Execute(claim) = inbox.claim("m-1", payload()).unwrap() else { panic!("a new message") };
    let told = deliver(&inbox, "m-1").unwrap();
    assert!(matches!(told, Processed::InProgress(_)) && !told.may_acknowledge(), "{told:?}");
    claim.give_up("lost").unwrap();
    let told = deliver(&inbox, "m-1").unwrap();
    assert!(matches!(told, Processed::Unknown(_)) && !told.may_acknowledge(), "{told:?}");
    let unknown = store.list(&Filter::inbox().with_status(Status::Unknown), &Page::first(10)).unwrap().operations;
    assert_eq!((unknown.len(), unknown[0].key.operation(), unknown[0].key.key()), (1, "orders", "m-1"));
    inbox.resolve("m-1", Verdict::DidNotHappen, &decision()).unwrap();
    assert!(matches!(deliver(&inbox, "m-1").unwrap(), Processed::Done(_)));
    assert_eq!(booked(&store), once(&["m-1"]));
}

#[test]
fn sources_tenants_and_operations_do_not_meet() {
    let world = World::new();
    let store = world.open();
    for (tenant, source) in [("acme", "orders"), ("acme", "returns"), ("other", "orders")] {
        let told = deliver(&store.inbox(tenant, source).unwrap(), "m-1").unwrap();
        assert!(matches!(told, Processed::Done(_)), "{tenant} {source}");
    }
    let alike = dupeproof::Operation::new(dupeproof::OperationKey::new("acme", "orders", "m-1").unwrap(), payload());
    let claim = execute(&store, &alike);
    let Begin::Execute(message) = orders(&store).claim("m-2", payload()).unwrap() else { panic!("a new message") };
    assert_ne!(claim.downstream_key(), message.downstream_key());
    assert_eq!(store.list(&Filter::new(), &Page::first(10)).unwrap().operations.len(), 1);
    assert_eq!(store.list(&Filter::inbox(), &Page::first(10)).unwrap().operations.len(), 4);
}

/// The window in which a duplicate is recognised is the response's time and the bare mark's.
#[test]
fn duplicate_is_recognised_within_its_window_and_acts_again_beyond_it() {
    let world = World::new();
    let store = world.open();
    let inbox =
        |store: &Store| orders(store).with_retention(Retention::default().with_response(HOUR).with_tombstone(DAY));
    let _ = deliver(&inbox(&store), "m-1").unwrap();
    let _ = deliver(&inbox(&store), "last").unwrap();
    // Operations keep their own terms.
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    world.clock.advance(HOUR);
    let store = world.now_and_reopened(store, |store| {
        for _ in 0..2 {
            let told = deliver(&inbox(store), "m-1").unwrap();
            assert!(matches!(told, Processed::Expired(_)) && told.may_acknowledge(), "{told:?}");
            store.sweep(100).unwrap();
            assert_eq!(store.stats().unwrap().inbox_marks, 2);
        }
    });
    world.clock.advance(DAY - Duration::from_millis(1));
    assert!(matches!(deliver(&inbox(&store), "m-1").unwrap(), Processed::Expired(_)));
    world.clock.advance(Duration::from_millis(1));
    store.sweep(100).unwrap();
    assert!(matches!(deliver(&inbox(&store), "m-1").unwrap(), Processed::Done(_)));
    assert_eq!(booked(&store), [("last".to_owned(), 1), ("m-1".to_owned(), 2)]);
    assert!(replay(&store, &operation("a")).is_success());
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn ids_and_names_out_of_bounds_are_refused_before_the_handler_runs() {
    let store = Store::in_memory().unwrap();
    for (tenant, source) in [("", "orders"), ("acme", ""), ("acme", "a\nb")] {
        assert_eq!(store.inbox(tenant, source).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    for id in ["", "a\u{7}", &"x".repeat(513)] {
        let told = orders(&store).process_raw::<Error>(id, payload(), |_| panic!("it ran"));
        assert_eq!(told.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(orders(&store).get(id).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[cfg(feature = "json")]
#[test]
fn typed_response_is_what_is_replayed() {
    let world = World::new();
    let store = world.open();
    let process = |store: &Store| orders(store).process("m-1", payload(), |_| Ok::<_, Error>(vec![1_u8, 2])).unwrap();
    for turn in 0..2 {
        let (Processed::Done(told) | Processed::Duplicate(told)) = process(&store) else { panic!("turn {turn}") };
        assert_eq!(told.response::<Vec<u8>>().unwrap(), [1, 2]);
    }
}

/// SIGKILL at random instants, redelivered until all are acknowledged: each message acted once.
#[test]
fn kill_before_the_commit_leaves_the_message_to_the_next_delivery_and_after_it_to_nobody() {
    let mut dice = Dice::fresh();
    for sharing in ["Exclusive", "Shared"] {
        let world = World::new();
        world.open().close().unwrap();
        for kills in 0.. {
            let mut child = Child::start(module_path!(), &world, sharing);
            child.expect("consuming");
            if kills == 15 {
                child.expect("all acknowledged");
                child.finish();
                break;
            }
            std::thread::park_timeout(Duration::from_micros(dice.throw() % 20_000));
            child.kill();
        }
        let store = world.open();
        let booked = booked(&store);
        assert_eq!(booked.len(), MESSAGES);
        assert!(booked.iter().all(|(_, times)| *times == 1), "{booked:?}");
        assert!(store.verify().unwrap().is_clean());
    }
}

#[test]
fn two_processes_that_get_the_same_messages_act_once_on_each() {
    let world = World::new();
    world.open().close().unwrap();
    let consumers: Vec<_> = (0..2).map(|_| Child::start(module_path!(), &world, "Shared")).collect();
    for mut consumer in consumers {
        consumer.expect("consuming");
        consumer.expect("all acknowledged");
        assert!(consumer.finish().success());
    }
    let booked = booked(&world.open());
    assert_eq!(booked.len(), MESSAGES);
    assert!(booked.iter().all(|(_, times)| *times == 1), "{booked:?}");
}

const MESSAGES: usize = 500;

#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [sharing] = task.words();
    let sharing = if sharing == "Shared" { Sharing::Shared } else { Sharing::Exclusive };
    let store = task.world.options().with_sharing(sharing).open(task.world.path()).unwrap();
    let inbox = orders(&store);
    say("consuming");
    for number in 0..MESSAGES {
        assert!(deliver(&inbox, &format!("m-{number}")).unwrap().may_acknowledge());
    }
    park("all acknowledged");
}
