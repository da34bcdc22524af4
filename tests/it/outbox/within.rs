//! Messages that are sent as part of a greater commit.

use std::sync::atomic::{AtomicUsize, Ordering};

use dupeproof::redb::TableDefinition;
use dupeproof::{ErrorKind, Fingerprint, Message, MessageFilter, MessagePage, Processed, Response, Sent, Settlement};
use dupeproof::{MessageStatus, Store};

use crate::support::child::{Child, Task, park, say};
use crate::support::*;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ORDERS: TableDefinition<'_, &str, u64> = TableDefinition::new("orders");

fn receipt(id: &str) -> Message {
    Message::new(id, "mail", "dear jane")
}

fn waiting(store: &Store) -> Vec<String> {
    let due = MessageFilter::new().with_status(MessageStatus::Due);
    let listed = store.outbox().list(&due, &MessagePage::first(1000)).unwrap();
    listed.messages.into_iter().map(|message| message.id).collect()
}

#[test]
fn message_goes_out_exactly_if_the_rest_is_committed() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let given_up = store.transaction(|tx| {
        tx.outbox().send(&receipt("never"))?;
        Fallible::<()>::Err("no".into())
    });
    given_up.unwrap_err();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.transaction::<(), dupeproof::Error>(|tx| {
            tx.outbox().send(&receipt("never"))?;
            panic!("a defect")
        })
    }));
    panicked.unwrap_err();
    assert!(waiting(&store).is_empty());
    store
        .transaction(|tx| {
            tx.open_table(ORDERS)?.insert("a", 1)?;
            tx.settle(&claim, Settlement::Succeeded("paid".into()))?;
            assert_eq!(tx.outbox().send(&receipt("a/receipt"))?, Sent::Enqueued);
            Fallible::Ok(())
        })
        .unwrap();
    drop(claim);
    world.throughout(store, |store| {
        assert_eq!(waiting(store), ["a/receipt"]);
        assert!(replay(store, &operation("a")).is_success());
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn message_that_is_refused_leaves_the_rest_of_the_transaction_as_it_is() {
    let world = World::new();
    let store = world.open();
    store.outbox().send(&receipt("1")).unwrap();
    store
        .transaction(|tx| {
            let mut outbox = tx.outbox();
            let other = Message::new("1", "mail", "dear joe");
            assert_eq!(outbox.send(&other).unwrap_err().kind(), ErrorKind::Refused);
            assert_eq!(outbox.send_many(&[receipt("2"), other]).unwrap_err().kind(), ErrorKind::Refused);
            assert_eq!(outbox.send(&Message::new("", "mail", "")).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(outbox.send(&receipt("1"))?, Sent::Duplicate);
            assert_eq!(outbox.send(&receipt("3"))?, Sent::Enqueued);
            assert_eq!(store.outbox().send(&receipt("4")).unwrap_err().kind(), ErrorKind::Refused, "it would wait");
            Fallible::Ok(())
        })
        .unwrap();
    assert_eq!(waiting(&store), ["1", "3"]);
    assert!(store.verify().unwrap().is_clean());
}

/// A duplicate whose first run enqueued three messages finds those three, not six; so does the replay of an operation.
#[test]
fn duplicates_and_replays_enqueue_nothing() {
    let world = World::new();
    let store = world.open();
    let three = |tx: &mut dupeproof::Transaction<'_, '_>| -> Fallible<Response> {
        tx.outbox().send_many(&["1", "2", "3"].map(receipt))?;
        Ok(Response::Absent)
    };
    let deliver = |store: &Store| {
        store.inbox("acme", "orders").unwrap().process_raw("m-1", Fingerprint::unchecked(), three).unwrap()
    };
    assert!(matches!(deliver(&store), Processed::Done(_)));
    let claim = execute(&store, &operation("a"));
    store
        .transaction(|tx| {
            tx.outbox().send(&receipt("4"))?;
            tx.settle(&claim, Settlement::Succeeded("paid".into()))
        })
        .unwrap();
    world.throughout(store, |store| {
        for _ in 0..3 {
            assert!(matches!(deliver(store), Processed::Duplicate(_)));
            replay(store, &operation("a"));
        }
        assert_eq!(waiting(store), ["1", "2", "3", "4"]);
    });
}

#[test]
fn relay_that_runs_hears_of_a_message_that_a_transaction_sent() {
    let world = World::new();
    let store = world.open();
    static DELIVERED: AtomicUsize = AtomicUsize::new(0);
    let relay = store.outbox().relay().spawn(|_| {
        DELIVERED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let relay = relay.unwrap();
    for number in 1..=5 {
        store.transaction(|tx| tx.outbox().send(&receipt(&number.to_string()))).unwrap();
        eventually(|| DELIVERED.load(Ordering::Relaxed) == number);
    }
    relay.stop().unwrap();
}

#[cfg(feature = "json")]
#[test]
fn export_takes_messages_along_in_every_state_and_in_their_lanes() {
    use dupeproof::{Decision, DeliveryError};

    let world = World::new();
    let store = world.open();
    let outbox = store.outbox();
    let laned = |id: &str| Message::new(id, "mail", [0, 0xff]).with_lane("jane").with_header("from", "acme");
    outbox.send_many(&[receipt("delivered"), receipt("dead"), receipt("discarded")]).unwrap();
    outbox
        .relay()
        .run_once(|message| match message.id() {
            "delivered" => Ok(()),
            _ => Err(DeliveryError::permanent("no such mailbox")),
        })
        .unwrap();
    outbox.discard("discarded", &Decision::new("jane", "by hand")).unwrap();
    outbox.send_many(&[laned("1"), laned("2"), laned("3"), receipt("later").with_delay(HOUR)]).unwrap();
    let mut lines = Vec::new();
    assert_eq!(store.export(&mut lines).unwrap(), 7);
    let copy = World::new();
    let imported = copy.open();
    assert_eq!(imported.import(lines.as_slice()).unwrap(), 7);
    let mut again = Vec::new();
    imported.export(&mut again).unwrap();
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(lines.clone()).unwrap());
    assert!(imported.verify().unwrap().is_clean());
    let all = |store: &Store| store.outbox().list(&MessageFilter::new(), &MessagePage::first(100)).unwrap().messages;
    assert_eq!(all(&imported), all(&store));
    assert_eq!(imported.import(lines.as_slice()).unwrap_err().kind(), ErrorKind::Refused, "it has messages by now");
    let mut order = Vec::new();
    while imported
        .outbox()
        .relay()
        .run_once(|message| {
            order.push(message.id().to_owned());
            Ok(())
        })
        .unwrap()
        .more
    {}
    assert_eq!(order, ["1", "2", "3"]);
}

/// SIGKILL at random instants of orders that send a message each: there is one exactly if there is the other.
#[test]
fn kill_parts_no_message_from_the_change_it_tells_of() {
    let mut dice = crate::support::dice::Dice::fresh();
    for _ in 0..10 {
        let world = World::new();
        world.open().close().unwrap();
        let mut child = Child::start(module_path!(), &world, "");
        child.expect("ordering");
        std::thread::park_timeout(std::time::Duration::from_micros(dice.throw() % 30_000));
        child.kill();
        let store = world.open();
        assert!(store.verify().unwrap().is_clean());
        let ordered = store
            .transaction(|tx| {
                let orders = tx.open_table(ORDERS)?;
                let names = dupeproof::redb::ReadableTable::iter(&orders)?;
                Fallible::Ok(
                    names.map(|row| row.map(|(name, _)| name.value().to_owned())).collect::<Result<Vec<_>, _>>()?,
                )
            })
            .unwrap();
        let mut sent = waiting(&store);
        sent.sort();
        assert_eq!(sent, ordered);
    }
}

#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let store = task.world.open();
    say("ordering");
    for number in 0..1000 {
        let name = format!("{number:04}");
        store
            .transaction(|tx| {
                tx.open_table(ORDERS)?.insert(&*name, number)?;
                tx.outbox().send(&receipt(&name))?;
                Fallible::Ok(())
            })
            .unwrap();
    }
    park("ordered");
}
