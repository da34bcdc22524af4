//! Sending: durable on return, all or none, and never twice under one id.

use dupeproof::{ErrorKind, Message, Sent};

use super::*;
use crate::support::*;

#[test]
fn sent_message_is_there_after_a_reopen_with_all_its_parts() {
    let world = World::new();
    let store = world.open();
    let sent = Message::new("7/paid", "orders", vec![0, 255]).with_lane("7").with_header("a", "1").with_header("b", "");
    store.outbox().send(&sent).unwrap();
    world.now_and_reopened(store, |store| {
        let view = view(store, "7/paid");
        assert_eq!((view.topic.as_str(), view.lane.as_deref()), ("orders", Some("7")));
        assert_eq!(view.payload.as_deref(), Some([0, 255].as_slice()));
        assert_eq!(view.headers, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        assert_eq!((view.status, view.attempts, view.total_attempts), (MessageStatus::Due, 0, 0));
        verify(store);
    });
}

#[test]
fn same_id_with_the_same_content_is_a_duplicate_in_every_status_and_is_delivered_once() {
    let world = World::new();
    let store = world.open();
    let outbox = store.outbox();
    assert_eq!(outbox.send(&message("a")).unwrap(), Sent::Enqueued);
    assert_eq!(outbox.send(&message("a")).unwrap(), Sent::Duplicate);
    relay(&store)
        .run_once(|_| {
            assert_eq!(status_of(&store, "a"), MessageStatus::InFlight);
            assert_eq!(outbox.send(&message("a")).unwrap(), Sent::Duplicate);
            Err(DeliveryError::new("no route").after(HOUR))
        })
        .unwrap();
    assert_eq!(
        (status_of(&store, "a"), outbox.send(&message("a")).unwrap()),
        (MessageStatus::Scheduled, Sent::Duplicate)
    );
    world.clock.advance(HOUR);
    assert_eq!(deliver(&store), ["a"]);
    assert_eq!(
        (status_of(&store, "a"), outbox.send(&message("a")).unwrap()),
        (MessageStatus::Delivered, Sent::Duplicate)
    );
    assert_eq!(deliver(&store), [""; 0]);

    outbox.send_many(&[message("dead"), message("gone")]).unwrap();
    outbox.discard("gone", &decision()).unwrap();
    relay(&store).run_once(|_| Err(DeliveryError::permanent("no such mailbox"))).unwrap();
    for (id, expected) in [("dead", MessageStatus::Dead), ("gone", MessageStatus::Discarded)] {
        assert_eq!((status_of(&store, id), outbox.send(&message(id)).unwrap()), (expected, Sent::Duplicate));
    }
    verify(&store);
}

#[test]
fn same_id_with_another_content_is_refused_in_every_status_and_changes_nothing() {
    let world = World::new();
    let store = world.open();
    let outbox = store.outbox();
    send(&store, &["due", "delivered", "dead", "gone"]);
    outbox.discard("gone", &decision()).unwrap();
    relay(&store)
        .run_once(|message| match message.id() {
            "dead" => Err(DeliveryError::permanent("no such mailbox")),
            "due" => Err(DeliveryError::new("no route")),
            _ => Ok(()),
        })
        .unwrap();
    let before = all(&store);
    for id in ["due", "delivered", "dead", "gone"] {
        let same = message(id);
        for other in [
            Message::new(id, "mail", "another payload"),
            Message::new(id, "sms", format!("payload of {id}")),
            same.clone().with_lane("lane"),
            same.with_header("trace", "1"),
        ] {
            assert_eq!(outbox.send(&other).unwrap_err().kind(), ErrorKind::Refused, "{id}");
        }
    }
    assert_eq!(all(&store), before);
}

#[test]
fn list_that_holds_one_conflict_enqueues_nothing() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    let error =
        store.outbox().send_many(&[message("b"), Message::new("a", "mail", "other"), message("c")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("message 1"), "{error}");
    let twice = [message("d"), Message::new("d", "mail", "other")];
    assert_eq!(store.outbox().send_many(&twice).unwrap_err().kind(), ErrorKind::Refused);
    world.now_and_reopened(store, |store| assert_eq!(all(store).len(), 1));
}

#[test]
fn list_that_says_the_same_twice_enqueues_it_once() {
    let store = World::new().options().in_memory().unwrap();
    let sent = store.outbox().send_many(&[message("a"), message("b"), message("a")]).unwrap();
    assert_eq!(sent, [Sent::Enqueued, Sent::Enqueued, Sent::Duplicate]);
    assert_eq!(deliver(&store), ["a", "b"]);
    assert_eq!(store.outbox().send_many(&[]).unwrap(), []);
}

#[test]
fn message_or_list_out_of_bounds_is_refused_before_anything_is_written() {
    let world = World::new();
    let store = world.open();
    let before = world.bytes();
    let many: Vec<_> = (0..1001).map(|at| message(&at.to_string())).collect();
    let large: Vec<_> = (0..17).map(|at| Message::new(format!("large {at}"), "mail", vec![0; 1024 * 1024])).collect();
    for bad in [&[message("")][..], &[message("a"), message("b").with_lane("")], &many, &large] {
        assert_eq!(store.outbox().send_many(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(world.bytes() == before);
    assert_eq!(store.outbox().send_many(&many[..1000]).unwrap().len(), 1000);
    assert_eq!(store.outbox().send_many(&large[..16]).unwrap().len(), 16);
}

#[test]
fn threads_that_send_the_same_ids_enqueue_each_once() {
    let world = World::new();
    let store = world.open();
    let enqueued = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let ids = (0..50).map(|id| id.to_string());
                    ids.filter(|id| store.outbox().send(&message(id)).unwrap() == Sent::Enqueued).count()
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum::<usize>()
    });
    assert_eq!(enqueued, 50);
    let mut arrived = deliver(&store);
    assert_eq!(arrived.len(), 50);
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), 50);
    verify(&store);
}

#[test]
fn delayed_message_waits_for_its_time() {
    let world = World::new();
    let store = world.open();
    store.outbox().send(&message("a").with_delay(HOUR)).unwrap();
    send(&store, &["b"]);
    assert_eq!((status_of(&store, "a"), deliver(&store)), (MessageStatus::Scheduled, vec!["b".to_owned()]));
    world.clock.advance(HOUR);
    assert_eq!((status_of(&store, "a"), deliver(&store)), (MessageStatus::Due, vec!["a".to_owned()]));
}
