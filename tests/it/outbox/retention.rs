//! What is forgotten, and what never is.

use std::sync::mpsc::sync_channel;

use dupeproof::{ErrorKind, Sent};

use super::*;
use crate::support::*;

#[test]
fn delivered_and_discarded_messages_are_forgotten_after_their_time_and_nothing_else() {
    let world = World::new();
    let store = world.options().with_outbox_retention(DAY).open(world.path()).unwrap();
    send(&store, &["due", "scheduled", "delivered", "dead", "discarded"]);
    store.outbox().discard("discarded", &decision()).unwrap();
    relay(&store)
        .run_once(|message| match message.id() {
            "scheduled" => Err(DeliveryError::new("no route").after(366 * DAY)),
            "dead" => Err(DeliveryError::permanent("no such mailbox")),
            "due" => Err(DeliveryError::new("no route")),
            _ => Ok(()),
        })
        .unwrap();
    send_in_lane(&store, "x", &["in flight", "behind"]);
    let look = || {
        let purged = |expected: u64| assert_eq!(store.sweep(1000).unwrap().messages_purged, expected);
        world.clock.advance(DAY - std::time::Duration::from_millis(1));
        purged(0);
        assert_eq!(status_of(&store, "delivered"), MessageStatus::Delivered);
        world.clock.advance(std::time::Duration::from_millis(1));
        assert!(store.outbox().get("delivered").unwrap().is_none(), "before the sweep comes by, too");
        purged(2);
        purged(0);
        verify(&store);
        let left: Vec<_> = all(&store).into_iter().map(|view| (view.id, view.status)).collect();
        let expected = [
            ("due", MessageStatus::Due),
            ("scheduled", MessageStatus::Scheduled),
            ("dead", MessageStatus::Dead),
            ("in flight", MessageStatus::InFlight),
            ("behind", MessageStatus::Due),
        ];
        assert_eq!(left, expected.map(|(id, status)| (id.to_owned(), status)));
    };
    let mut looked = false;
    relay(&store)
        .with_lease(7 * DAY)
        .run_once(|message| {
            if message.id() == "in flight" && !looked {
                looked = true;
                look();
            }
            Err(DeliveryError::new("no route"))
        })
        .unwrap();
    assert!(looked);
}

#[test]
fn sweep_never_removes_what_was_not_delivered_or_discarded() {
    let world = World::new();
    let store = world.open();
    send(&store, &["scheduled", "delivered", "dead", "discarded"]);
    store.outbox().discard("discarded", &decision()).unwrap();
    relay(&store)
        .run_once(|message| match message.id() {
            "scheduled" => Err(DeliveryError::new("no route").after(366 * DAY)),
            "dead" => Err(DeliveryError::permanent("no such mailbox")),
            _ => Ok(()),
        })
        .unwrap();
    send_in_lane(&store, "x", &["due", "behind"]);
    for _ in 0..5 {
        world.clock.advance(2000 * DAY);
        store.sweep(1000).unwrap();
    }
    let left: Vec<_> = all(&store).into_iter().map(|view| view.id).collect();
    assert_eq!(left, ["scheduled", "dead", "due", "behind"]);
    store.outbox().redrive("dead").unwrap();
    assert_eq!(deliver(&store), ["due", "scheduled", "dead", "behind"]);
    verify(&store);
}

#[test]
fn id_of_a_forgotten_message_is_new_again_also_before_the_sweep() {
    for swept in [false, true] {
        let world = World::new();
        let store = world.options().with_outbox_retention(DAY).open(world.path()).unwrap();
        send(&store, &["a"]);
        deliver(&store);
        assert_eq!(store.outbox().send(&message("a")).unwrap(), Sent::Duplicate);
        world.clock.advance(DAY);
        if swept {
            assert_eq!(store.sweep(100).unwrap().messages_purged, 1);
        }
        let other = Message::new("a", "mail", "another content");
        assert_eq!(store.outbox().send(&other).unwrap(), Sent::Enqueued);
        verify(&store);
        assert_eq!(deliver(&store), ["a"]);
        assert_eq!(all(&store).len(), 1);
        verify(&store);
    }
}

/// The number of a message is half of its ticket: used twice, a relay that is years late would speak for a message that
/// it never saw.
#[test]
fn word_of_a_relay_that_slept_says_nothing_about_a_later_message() {
    let world = World::new();
    let store = world.options().with_outbox_retention(DAY).open(world.path()).unwrap();
    let store = &store;
    send(store, &["a"]);
    let (go, wait) = sync_channel::<()>(0);
    let (taken, is_taken) = sync_channel(0);
    std::thread::scope(|scope| {
        // Ours, so that it is gone and nobody waits for it if this fails.
        let go = go;
        let mut other = Some((taken, wait));
        let sleeper = relay(store).run_once(|_| {
            world.clock.advance(DAY);
            assert_eq!(deliver(store), ["a"]);
            world.clock.advance(DAY);
            assert_eq!(store.sweep(100).unwrap().messages_purged, 1);
            send(store, &["b"]);
            // Taken for the first time, as "a" was.
            let (taken, wait) = other.take().unwrap();
            scope.spawn(move || {
                relay(store).run_once(|_| {
                    taken.send(()).unwrap();
                    Ok(wait.recv()?)
                })
            });
            Ok(is_taken.recv()?)
        });
        let sleeper = sleeper.unwrap();
        assert_eq!((sleeper.late, sleeper.delivered), (1, 0));
        assert_eq!(status_of(store, "b"), MessageStatus::InFlight);
        go.send(()).unwrap();
    });
    assert_eq!(status_of(store, "b"), MessageStatus::Delivered);
    verify(store);
}

#[test]
fn sweep_is_bounded_and_says_that_there_is_more() {
    let world = World::new();
    let store = world.options().with_outbox_retention(DAY).open(world.path()).unwrap();
    let ids: Vec<_> = (0..10).map(|id| id.to_string()).collect();
    send(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    deliver(&store);
    world.clock.advance(DAY);
    let sweeps = [4, 4, 4].map(|limit| store.sweep(limit).unwrap()).map(|swept| (swept.messages_purged, swept.more));
    assert_eq!(sweeps, [(4, true), (4, true), (2, false)]);
}

#[test]
fn retention_out_of_bounds_is_refused() {
    let options = dupeproof::Options::new();
    let error = options.with_outbox_retention(40_000 * DAY).in_memory().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
