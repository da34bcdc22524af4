//! Lanes: in order within one, and none holds up another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::support::*;

#[test]
fn messages_of_a_lane_arrive_in_the_order_they_were_sent_in_also_over_reopens() {
    let world = World::new();
    let mut store = world.open();
    send_in_lane(&store, "x", &["x1", "x2", "x3"]);
    send_in_lane(&store, "y", &["y1", "y2"]);
    send(&store, &["free"]);
    let mut arrived = Vec::new();
    for _ in 0..4 {
        relay(&store).run_once(|message| Ok(arrived.push(message.id().to_owned()))).unwrap();
        store = world.reopen(store);
        verify(&store);
    }
    assert_eq!(arrived, ["x1", "y1", "free", "x2", "y2", "x3"]);
}

#[test]
fn only_the_head_of_a_lane_is_in_flight() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2"]);
    relay(&store)
        .run_once(|message| {
            assert_eq!(message.id(), "x1");
            assert_eq!(
                (status_of(&store, "x1"), status_of(&store, "x2")),
                (MessageStatus::InFlight, MessageStatus::Due)
            );
            assert_eq!(relay(&store).run_once(|_| unreachable!("x1 is before it")).unwrap(), Default::default());
            verify(&store);
            Ok(())
        })
        .unwrap();
    assert_eq!(deliver(&store), ["x2"]);
}

#[test]
fn failed_head_holds_up_its_own_lane_only() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2"]);
    send_in_lane(&store, "y", &["y1", "y2"]);
    let mut arrived = Vec::new();
    let relay = store.outbox().relay();
    for _ in 0..3 {
        relay
            .run_once(|message| match message.lane() {
                Some("x") => Err(DeliveryError::new("no route").after(HOUR)),
                _ => Ok(arrived.push(message.id().to_owned())),
            })
            .unwrap();
    }
    assert_eq!(arrived, ["y1", "y2"]);
    assert_eq!((view(&store, "x1").attempts, view(&store, "x2").attempts), (1, 0));
    world.clock.advance(HOUR);
    assert_eq!(deliver(&store), ["x1", "x2"]);
}

#[test]
fn dead_head_holds_up_nobody() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2", "x3"]);
    relay(&store).run_once(|_| Err(DeliveryError::permanent("cannot be parsed"))).unwrap();
    verify(&store);
    assert_eq!(deliver(&store), ["x2", "x3"]);
    assert_eq!(status_of(&store, "x1"), MessageStatus::Dead);
}

#[test]
fn redriven_letter_goes_to_the_end_of_a_lane_that_went_on_without_it() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2", "x3"]);
    relay(&store).run_once(|_| Err(DeliveryError::permanent("cannot be parsed"))).unwrap();
    store.outbox().redrive("x1").unwrap();
    verify(&store);
    let store = world.reopen(store);
    assert_eq!(deliver(&store), ["x2", "x3", "x1"]);
    verify(&store);
}

#[test]
fn redriven_letter_does_not_overtake_the_one_in_flight() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2"]);
    relay(&store).run_once(|_| Err(DeliveryError::permanent("cannot be parsed"))).unwrap();
    relay(&store)
        .run_once(|message| {
            assert_eq!(message.id(), "x2");
            store.outbox().redrive("x1").unwrap();
            assert_eq!(relay(&store).run_once(|_| unreachable!("x2 is before it")).unwrap(), Default::default());
            verify(&store);
            Ok(())
        })
        .unwrap();
    assert_eq!(deliver(&store), ["x1"]);
}

#[test]
fn dead_head_holds_its_lane_where_a_gap_is_worse_than_a_halt() {
    let world = World::new();
    let store = world.open();
    let strict = |store: &Store| relay(store).with_lanes_held_by_the_dead();
    let refuse = |store: &Store| {
        let report = strict(store).run_once(|_| Err(DeliveryError::permanent("cannot be parsed"))).unwrap();
        assert_eq!(report.dead, 1);
        verify(store);
    };
    send_in_lane(&store, "x", &["x1", "x2", "x3"]);
    refuse(&store);
    let store = world.reopen(store);
    assert_eq!(deliver(&store), [""; 0]);
    // It goes on in its place, or without it.
    store.outbox().redrive("x1").unwrap();
    verify(&store);
    let mut first = None;
    strict(&store).run_once(|message| Ok(first = Some(message.id().to_owned()))).unwrap();
    assert_eq!(first.as_deref(), Some("x1"));
    refuse(&store);
    store.outbox().discard("x2", &decision()).unwrap();
    verify(&store);
    assert_eq!(deliver(&store), ["x3"]);
}

#[test]
fn discarded_message_leaves_its_lane_wherever_it_stands() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2", "x3", "x4"]);
    for id in ["x3", "x1"] {
        store.outbox().discard(id, &decision()).unwrap();
        verify(&store);
    }
    assert_eq!(deliver(&store), ["x2", "x4"]);
}

#[test]
fn delayed_head_holds_up_its_lane_and_a_delay_behind_it_counts_from_the_sending() {
    let world = World::new();
    let store = world.open();
    let outbox = store.outbox();
    outbox.send(&message("x1").with_lane("x").with_delay(HOUR)).unwrap();
    outbox.send(&message("x2").with_lane("x")).unwrap();
    outbox.send(&message("x3").with_lane("x").with_delay(2 * HOUR)).unwrap();
    verify(&store);
    assert_eq!(deliver(&store), [""; 0]);
    world.clock.advance(HOUR);
    assert_eq!(deliver(&store), ["x1", "x2"]);
    world.clock.advance(HOUR);
    assert_eq!(deliver(&store), ["x3"]);
}

#[test]
fn lane_holds_over_topics() {
    let world = World::new();
    let store = world.open();
    store.outbox().send(&Message::new("1", "mail", "").with_lane("x")).unwrap();
    store.outbox().send(&Message::new("2", "sms", "").with_lane("x")).unwrap();
    let arrived = RefCell::new(Vec::new());
    let run = |topic| {
        let relay = store.outbox().relay().with_topics([topic]);
        relay.run_once(|message| Ok(arrived.borrow_mut().push(message.id().to_owned()))).unwrap();
    };
    run("sms");
    assert!(arrived.borrow().is_empty());
    run("mail");
    run("sms");
    assert_eq!(*arrived.borrow(), ["1", "2"]);
}

#[test]
fn lane_that_was_emptied_starts_anew() {
    let world = World::new();
    let store = world.open();
    for round in 0..3 {
        let ids = [format!("{round}a"), format!("{round}b")];
        send_in_lane(&store, "x", &[&ids[0], &ids[1]]);
        assert_eq!(deliver(&store), ids);
    }
    verify(&store);
}

/// The places of the messages of each lane in the order of their arrival.
#[track_caller]
fn in_order(arrived: &[String], lanes: usize, each: usize) {
    let mut by_lane = BTreeMap::<&str, Vec<usize>>::new();
    for id in arrived {
        let (lane, at) = id.split_once('/').unwrap();
        by_lane.entry(lane).or_default().push(at.parse().unwrap());
    }
    assert_eq!(by_lane.len(), lanes);
    for (lane, places) in by_lane {
        assert_eq!(places, (0..each).collect::<Vec<_>>(), "lane {lane}");
    }
}

#[test]
fn order_within_a_lane_holds_with_four_relays_in_threads() {
    const LANES: usize = 5;
    const EACH: usize = 30;
    let world = World::new();
    let store = world.open();
    for at in 0..EACH {
        let messages: Vec<_> =
            (0..LANES).map(|lane| message(&format!("{lane}/{at}")).with_lane(lane.to_string())).collect();
        store.outbox().send_many(&messages).unwrap();
    }
    let arrived = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for relay_at in 0..4 {
            let (store, arrived) = (&store, &arrived);
            scope.spawn(move || {
                let relay = relay(store).with_batch(relay_at + 1);
                eventually(|| {
                    let mut failed = relay_at == 0;
                    relay
                        .run_once(|message| {
                            // Some deliveries fail, and hold up their lane.
                            if std::mem::take(&mut failed) && message.attempt() == 1 {
                                return Err(DeliveryError::new("no route"));
                            }
                            Ok(arrived.lock().unwrap().push(message.id().to_owned()))
                        })
                        .unwrap();
                    store.stats().unwrap().outbox.delivered == (LANES * EACH) as u64
                });
            });
        }
    });
    in_order(&arrived.into_inner().unwrap(), LANES, EACH);
    verify(&store);
}
