//! The relay: what it hands over, and what it makes of what the handler says.

use std::cell::RefCell;
use std::time::Duration;

use dupeproof::{Backoff, DeadCause, ErrorKind};

use super::*;
use crate::support::*;

#[test]
fn handler_gets_what_was_sent_and_which_attempt_it_is() {
    let world = World::new();
    let store = world.open();
    store.outbox().send(&message("a").with_lane("lane").with_header("trace", "4bf9")).unwrap();
    for attempt in 1..=3 {
        let report = relay(&store)
            .run_once(|message| {
                assert_eq!((message.id(), message.topic(), message.lane()), ("a", "mail", Some("lane")));
                assert_eq!((message.payload(), message.header("trace")), (b"payload of a".as_slice(), Some("4bf9")));
                assert_eq!(message.headers().count(), 1);
                assert_eq!((message.attempt(), message.total_attempts()), (attempt, attempt));
                if attempt < 3 { Err(DeliveryError::new("no route")) } else { Ok(()) }
            })
            .unwrap();
        assert_eq!((report.failed, report.delivered), (u64::from(attempt < 3), u64::from(attempt == 3)));
    }
    assert_eq!(status_of(&store, "a"), MessageStatus::Delivered);
}

#[test]
fn delivered_message_keeps_its_id_and_forgets_its_content() {
    let world = World::new();
    let store = world.open();
    store.outbox().send(&Message::new("a", "mail", "secret-content").with_header("trace", "secret-header")).unwrap();
    deliver(&store);
    let store = world.now_and_reopened(store, |store| {
        let view = view(store, "a");
        assert_eq!((view.status, view.payload, view.headers.len()), (MessageStatus::Delivered, None, 0));
        assert!(view.finished_at.is_some() && view.purge_at > view.finished_at);
    });
    verify(&store);
}

#[test]
fn batch_is_bounded_and_the_report_says_whether_there_is_more() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b", "c", "d", "e"]);
    let run = || relay(&store).with_batch(2).run_once(|_| Ok(())).unwrap();
    let reports = [run(), run(), run(), run()].map(|report| (report.delivered, report.more));
    assert_eq!(reports, [(2, true), (2, true), (1, false), (0, false)]);
}

#[test]
fn longest_waiting_message_goes_first() {
    let world = World::new();
    let store = world.open();
    for id in ["c", "a", "b"] {
        send(&store, &[id]);
        world.clock.advance(Duration::from_secs(1));
    }
    let other = Message::new("d", "a topic before the others", "");
    store.outbox().send(&other).unwrap();
    assert_eq!(deliver(&store), ["c", "a", "b", "d"]);
}

#[test]
fn relay_of_some_topics_leaves_the_others_alone() {
    let world = World::new();
    let store = world.open();
    for (id, topic) in [("1", "mail"), ("2", "sms"), ("3", "push"), ("4", "sms")] {
        store.outbox().send(&Message::new(id, topic, "")).unwrap();
    }
    let of = |topics: &[&str]| {
        let mut ids = Vec::new();
        let relay = store.outbox().relay().with_topics(topics);
        let report = relay.run_once(|message| Ok(ids.push(message.id().to_owned()))).unwrap();
        assert!(!report.more);
        ids
    };
    assert_eq!(of(&["nothing"]), [""; 0]);
    assert_eq!(of(&["sms", "nothing"]), ["2", "4"]);
    assert_eq!(of(&["mail", "sms", "mail"]), ["1"]);
    assert_eq!(deliver(&store), ["3"]);
}

#[test]
fn failed_message_waits_longer_each_time_and_as_long_as_the_handler_says() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    let relay = store.outbox().relay().with_backoff(Backoff::exponential(Duration::from_secs(8), HOUR));
    let mut wait = Duration::ZERO;
    for attempt in 1..=4_u32 {
        assert_eq!(relay.run_once(|_| Err(DeliveryError::new("no route"))).unwrap().failed, 1);
        let full = Duration::from_secs(8) * 2_u32.pow(attempt - 1);
        let due = view(&store, "a").due_at.unwrap().since(store.stats().unwrap().now);
        assert!(full / 2 <= due && due <= full && due >= wait, "attempt {attempt}: {due:?}");
        world.clock.advance(due - Duration::from_millis(1));
        assert_eq!(relay.run_once(|_| unreachable!("it is not due")).unwrap(), Default::default());
        world.clock.advance(Duration::from_millis(1));
        wait = due;
    }
    relay.run_once(|_| Err(DeliveryError::new("busy").after(DAY))).unwrap();
    assert_eq!(view(&store, "a").due_at.unwrap().since(store.stats().unwrap().now), DAY);
}

#[test]
fn error_of_another_library_is_a_failed_delivery_with_its_text() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    relay(&store).run_once(|_| Ok(assert_eq!("x".parse::<u32>()?, 7))).unwrap();
    assert_eq!(view(&store, "a").last_error.as_deref(), Some("invalid digit found in string"));
}

#[test]
fn panic_of_the_handler_is_a_failed_delivery_and_the_relay_goes_on() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b", "c"]);
    let report = relay(&store)
        .run_once(|message| match message.id() {
            "a" => panic!("lost my head"),
            "b" => std::panic::panic_any(7),
            _ => Ok(()),
        })
        .unwrap();
    assert_eq!((report.failed, report.delivered), (2, 1));
    assert_eq!(view(&store, "a").last_error.as_deref(), Some("the handler panicked: lost my head"));
    assert_eq!(view(&store, "b").last_error.as_deref(), Some("the handler panicked: no message"));
    assert_eq!(deliver(&store), ["a", "b"]);
}

#[test]
fn poison_message_does_not_stop_the_others_of_its_batch() {
    let world = World::new();
    let store = world.open();
    send(&store, &["poison", "a", "b"]);
    let mut arrived = Vec::new();
    for _ in 0..3 {
        relay(&store)
            .with_attempts(3)
            .run_once(|message| match message.id() {
                "poison" => Err(DeliveryError::new("cannot be parsed")),
                id => Ok(arrived.push(id.to_owned())),
            })
            .unwrap();
    }
    assert_eq!(arrived, ["a", "b"]);
    assert_eq!(status_of(&store, "poison"), MessageStatus::Dead);
}

#[test]
fn lapsed_lease_makes_the_message_due_again_under_the_same_id() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    let arrived = RefCell::new(Vec::new());
    let slow = relay(&store)
        .run_once(|message| {
            arrived.borrow_mut().push((message.id().to_owned(), message.attempt()));
            world.clock.advance(LEASE);
            assert_eq!(status_of(&store, "a"), MessageStatus::Due);
            // Another relay takes it and delivers it.
            let other = relay(&store)
                .run_once(|message| Ok(arrived.borrow_mut().push((message.id().to_owned(), message.attempt()))));
            assert_eq!(other.unwrap().delivered, 1);
            Err(DeliveryError::new("too slow"))
        })
        .unwrap();
    assert_eq!(*arrived.borrow(), [("a".to_owned(), 1), ("a".to_owned(), 2)]);
    assert_eq!((slow.late, slow.failed), (1, 0));
    let view = view(&store, "a");
    assert_eq!((view.status, view.last_error), (MessageStatus::Delivered, None), "the late word changed nothing");
    verify(&store);
}

#[test]
fn late_word_counts_while_nobody_took_the_message_since() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b"]);
    let report = relay(&store)
        .with_batch(1)
        .run_once(|_| {
            world.clock.advance(LEASE);
            store.sweep(100).unwrap();
            Ok(())
        })
        .unwrap();
    assert_eq!((report.delivered, report.late), (1, 0));
    assert_eq!(deliver(&store), ["b"]);
}

#[test]
fn batch_that_outlives_its_lease_is_renewed_between_the_deliveries() {
    let world = World::new();
    let store = world.open();
    let ids: Vec<_> = (0..10).map(|id| id.to_string()).collect();
    send(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    let mut arrived = Vec::new();
    let report = relay(&store)
        .run_once(|message| {
            // Nobody else gets hold of what waits in this batch.
            assert_eq!(
                relay(&store).run_once(|other| panic!("{} is in flight", other.id())).unwrap(),
                Default::default()
            );
            world.clock.advance(LEASE * 2 / 3);
            Ok(arrived.push(message.id().to_owned()))
        })
        .unwrap();
    assert_eq!((report.delivered, report.late), (10, 0));
    assert_eq!(arrived, ids);
}

#[test]
fn rest_of_a_batch_whose_lease_was_lost_is_not_delivered_by_the_one_who_lost_it() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b", "c"]);
    let arrived = RefCell::new(Vec::new());
    let report = relay(&store)
        .run_once(|message| {
            arrived.borrow_mut().push(message.id().to_owned());
            world.clock.advance(LEASE);
            // All of them are due again, and others take them, one by one.
            for _ in 0..3 {
                relay(&store).run_once(|message| Ok(arrived.borrow_mut().push(message.id().to_owned()))).unwrap();
            }
            Ok(())
        })
        .unwrap();
    assert_eq!((report.delivered, report.late), (0, 1), "what it did not come to was not delivered twice");
    assert_eq!(*arrived.borrow(), ["a", "a", "b", "c"]);
    verify(&store);
}

#[test]
fn message_whose_last_take_ended_without_a_word_is_taken_alone() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b", "c"]);
    let _ = relay(&store).run_once(|_| Ok(store.close().unwrap()));
    let store = world.open();
    assert_eq!(view(&store, "c").attempts, 1);
    send(&store, &["d"]);
    let batches: Vec<Vec<String>> = (0..4)
        .map(|_| {
            let mut batch = Vec::new();
            relay(&store).run_once(|message| Ok(batch.push(message.id().to_owned()))).unwrap();
            batch
        })
        .collect();
    assert_eq!(batches, [["a"], ["b"], ["c"], ["d"]]);
}

#[test]
fn setting_out_of_bounds_is_refused() {
    let store = World::new().options().in_memory().unwrap();
    let relay = || store.outbox().relay();
    let long = "x".repeat(129);
    for bad in [
        relay().with_lease(Duration::from_millis(49)),
        relay().with_lease(8 * DAY),
        relay().with_batch(0),
        relay().with_batch(1001),
        relay().with_attempts(0),
        relay().with_backoff(Backoff::exponential(HOUR, MINUTE)),
        relay().with_topics([""; 0]),
        relay().with_topics([""]),
        relay().with_topics([&long]),
        relay().with_topics((0..101).map(|topic| topic.to_string())),
    ] {
        assert_eq!(bad.run_once(|_| Ok(())).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(bad.spawn(|_| Ok(())).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
    assert!(relay().with_attempts(1).with_batch(1000).run_once(|_| Ok(())).is_ok());
}

#[test]
fn relay_with_a_lower_limit_buries_what_another_tried_too_often() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    fail(&store, "first");
    fail(&store, "second");
    let report = relay(&store).with_attempts(2).run_once(|_| unreachable!("it is beyond the limit")).unwrap();
    assert_eq!((report.dead, report.delivered), (1, 0));
    let view = view(&store, "a");
    assert_eq!(view.dead.map(|(_, cause)| cause), Some(DeadCause::AttemptsExhausted));
    assert_eq!((view.attempts, view.last_error.as_deref()), (2, Some("second")));
}
