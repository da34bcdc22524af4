//! Relays in threads of the store: they wake, they stop, and nothing hangs when the store closes.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use dupeproof::{Delivery, ErrorKind, Sharing};

use super::*;
use crate::support::*;

/// A handler that says which message it has, and waits until it may go on.
#[expect(clippy::type_complexity, reason = "a handler and its two ends")]
fn held() -> (
    impl FnMut(&Delivery) -> Result<(), DeliveryError> + Send + 'static,
    Receiver<String>,
    SyncSender<Result<(), &'static str>>,
) {
    let (said, heard) = sync_channel(0);
    let (go, told) = sync_channel::<Result<(), &'static str>>(0);
    let handler = move |message: &Delivery| {
        said.send(message.id().to_owned())?;
        told.recv()?.map_err(DeliveryError::new)
    };
    (handler, heard, go)
}

/// What comes next. Fails only if nothing ever does.
#[track_caller]
fn next<T>(heard: &Receiver<T>) -> T {
    heard.recv_timeout(MINUTE).expect("it never came")
}

fn collecting() -> (impl FnMut(&Delivery) -> Result<(), DeliveryError> + Send + 'static, Receiver<String>) {
    let (said, heard) = sync_channel(1000);
    (move |message: &Delivery| Ok(said.send(message.id().to_owned())?), heard)
}

#[test]
fn relay_in_a_thread_delivers_what_was_there_and_what_is_sent_later() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let world = World::new();
        let store = world.options().with_sharing(sharing).open(world.path()).unwrap();
        send(&store, &["a"]);
        let (handler, heard) = collecting();
        let running = relay(&store).spawn(handler).unwrap();
        assert_eq!(next(&heard), "a");
        for id in 0..20 {
            send(&store, &[&id.to_string()]);
            assert_eq!(next(&heard), id.to_string());
        }
        send_in_lane(&store, "x", &["x1", "x2", "x3"]);
        assert_eq!([(); 3].map(|()| next(&heard)), ["x1", "x2", "x3"]);
        running.stop().unwrap();
        assert_eq!(store.stats().unwrap().outbox.delivered, 24);
        verify(&store);
    }
}

#[test]
fn relay_in_a_thread_finds_what_another_handle_sent_and_what_time_made_due() {
    let world = World::new();
    let options = world.options().with_sharing(Sharing::Shared);
    let (store, other) = (options.open(world.path()).unwrap(), options.open(world.path()).unwrap());
    let (handler, heard) = collecting();
    let running = relay(&store).spawn(handler).unwrap();
    send(&other, &["a"]);
    assert_eq!(next(&heard), "a");
    other.outbox().send(&message("b").with_delay(HOUR)).unwrap();
    world.clock.advance(HOUR);
    assert_eq!(next(&heard), "b");
    running.stop().unwrap();
}

#[test]
fn failed_delivery_in_a_thread_is_tried_again() {
    let world = World::new();
    let store = world.open();
    let mut attempts = 0;
    let (said, heard) = sync_channel(10);
    let running = relay(&store)
        .spawn(move |message| {
            attempts += 1;
            said.send((message.id().to_owned(), message.attempt()))?;
            if attempts < 3 { panic!("lost my head") } else { Ok(()) }
        })
        .unwrap();
    send(&store, &["a"]);
    assert_eq!([(); 3].map(|()| next(&heard).1), [1, 2, 3]);
    running.stop().unwrap();
    assert_eq!(status_of(&store, "a"), MessageStatus::Delivered);
}

#[test]
fn stopped_relay_finishes_what_it_handles_and_gives_back_the_rest() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b", "c"]);
    let (handler, heard, go) = held();
    let running = relay(&store).spawn(handler).unwrap();
    assert_eq!(next(&heard), "a");
    std::thread::scope(|scope| {
        // Ours, so that it is gone and nobody waits for it if this fails.
        let go = go;
        let stopping = scope.spawn(|| running.stop());
        // It cannot stop before the handler has returned.
        assert_eq!(status_of(&store, "c"), MessageStatus::InFlight);
        go.send(Ok(())).unwrap();
        // Unless it was told to stop before, it goes on to the next.
        while heard.recv().is_ok() {
            go.send(Ok(())).unwrap();
        }
        stopping.join().unwrap().unwrap();
    });
    assert_eq!(status_of(&store, "a"), MessageStatus::Delivered);
    for id in ["b", "c"] {
        let view = view(&store, id);
        let is_done = view.status == MessageStatus::Delivered;
        assert!(is_done || (view.status, view.attempts) == (MessageStatus::Due, 0), "{view:?}");
    }
    verify(&store);
    deliver(&store);
    assert_eq!(store.stats().unwrap().outbox.delivered, 3);
}

#[test]
fn store_that_closes_waits_for_the_delivery_in_hand_and_gives_back_the_rest() {
    let world = World::new();
    let store = world.open();
    let ids: Vec<_> = (0..40).map(|id| format!("{id:02}")).collect();
    send(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut relays, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (handler, heard, go) = held();
        relays.push(relay(&store).with_batch(10).spawn(handler).unwrap());
        let in_hand = next(&heard);
        ends.push((heard, go, in_hand));
    }
    assert_eq!(store.stats().unwrap().outbox.in_flight, 40);
    let handled = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| store.close());
        for (heard, go, mut in_hand) in ends {
            let handled = &handled;
            scope.spawn(move || {
                loop {
                    go.send(Ok(())).unwrap();
                    handled.lock().unwrap().push(in_hand);
                    match heard.recv() {
                        Ok(next) => in_hand = next,
                        Err(_) => return,
                    }
                }
            });
        }
        closing.join().unwrap().unwrap();
    });
    assert!(relays.iter().all(|relay| !relay.is_running()));
    for relay in relays {
        relay.stop().unwrap();
    }
    let handled = handled.into_inner().unwrap();
    let store = world.open();
    verify(&store);
    assert_eq!(store.stats().unwrap().outbox.in_flight, 0);
    for id in ids {
        let view = view(&store, &id);
        if handled.contains(&id) {
            assert_eq!(view.status, MessageStatus::Delivered, "{id}: what was handled is noted");
        } else {
            assert_eq!((view.status, view.attempts), (MessageStatus::Due, 0), "{id}: what was not is given back");
        }
    }
}

#[test]
fn store_closed_by_a_handler_closes() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b"]);
    let (said, heard) = sync_channel(10);
    let closer = store.clone();
    let running = relay(&store)
        .spawn(move |message| {
            said.send((message.id().to_owned(), closer.close()))?;
            Ok(())
        })
        .unwrap();
    let (id, closed) = next(&heard);
    assert!(id == "a" && closed.is_ok());
    assert!(heard.recv().is_err(), "it is told of no other message");
    // It could not note that it delivered the first, since the store was closed by then.
    let _ = running.stop();
    let store = world.open();
    assert_eq!(deliver(&store), ["a", "b"]);
}

#[test]
fn last_handle_of_a_store_may_be_dropped_by_its_relay() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    let (said, heard) = sync_channel(10);
    let mut kept = Some(store.clone());
    let running = relay(&store)
        .spawn(move |message| {
            said.send(message.id().to_owned())?;
            drop(kept.take());
            Ok(())
        })
        .unwrap();
    drop(store);
    assert_eq!(next(&heard), "a");
    // The sender goes with the handler, at the end of the thread.
    assert!(heard.recv().is_err());
    let _ = running.stop();
    let store = world.options().with_open_wait(MINUTE).open(world.path()).unwrap();
    verify(&store);
}

#[test]
fn relay_does_not_keep_the_store_open() {
    let world = World::new();
    let store = world.open();
    let (handler, heard) = collecting();
    let running = relay(&store).spawn(handler).unwrap();
    send(&store, &["a"]);
    assert_eq!(next(&heard), "a");
    drop(store);
    assert!(!running.is_running());
    assert_eq!(deliver(&world.open()), [""; 0]);
}

#[test]
fn calls_on_the_outbox_of_a_closed_store_do_nothing_and_say_so() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    store.close().unwrap();
    let before = world.bytes();
    let outbox = store.outbox();
    let told = [
        outbox.send(&message("b")).unwrap_err(),
        outbox.get("a").unwrap_err(),
        outbox.dead(&MessagePage::first(1)).unwrap_err(),
        outbox.redrive("a").unwrap_err(),
        outbox.discard("a", &decision()).unwrap_err(),
        relay(&store).run_once(|_| Ok(())).unwrap_err(),
        relay(&store).spawn(|_| Ok(())).unwrap_err(),
    ];
    assert_eq!(told.map(|error| error.kind()), [ErrorKind::Closed; 7]);
    assert!(world.bytes() == before);
}

#[test]
fn run_that_the_close_overtakes_delivers_again() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b"]);
    let error = relay(&store).run_once(|_| Ok(store.close().unwrap())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let store = world.open();
    assert_eq!(deliver(&store), ["a", "b"], "nobody heard that they were delivered");
}

#[test]
fn run_in_another_thread_gives_back_what_it_did_not_come_to_when_the_store_closes() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b", "c"]);
    let (handler, heard, go) = held();
    // It keeps the close waiting, so that the run has the time to give back.
    let _running = relay(&store).with_batch(1).spawn(handler).unwrap();
    assert_eq!(next(&heard), "a");
    std::thread::scope(|scope| {
        let go = go;
        let mut arrived = Vec::new();
        let report = relay(&store).run_once(|message| {
            arrived.push(message.id().to_owned());
            scope.spawn(|| store.close().unwrap());
            // The close has begun once it refuses new relays.
            eventually(|| relay(&store).spawn(|_| Ok(())).is_err());
            Ok(())
        });
        assert_eq!((report.unwrap().delivered, arrived), (1, vec!["b".to_owned()]));
        go.send(Ok(())).unwrap();
    });
    let store = world.open();
    let found = ["a", "b", "c"].map(|id| (view(&store, id).status, view(&store, id).attempts));
    assert_eq!(found, [(MessageStatus::Delivered, 1), (MessageStatus::Delivered, 1), (MessageStatus::Due, 0)]);
}
