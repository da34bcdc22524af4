//! A relay that is killed where it stands. The receiver is another process, and dedupes on the id.

use std::collections::BTreeMap;

use dupeproof::{DeadCause, Options, Sharing};

use super::*;
use crate::support::child::{Child, Task, hear, park, say};
use crate::support::*;

fn shared(world: &World) -> Options {
    world.options().with_sharing(Sharing::Shared)
}

/// The sender and relay, which is killed where it parks.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [role, sharing] = task.words();
    let options = if sharing == "shared" { shared(&task.world) } else { task.world.options() };
    let store = options.open(task.world.path()).unwrap();
    let relay = relay(&store).with_attempts(3);
    match role {
        "send" => {
            send(&store, &["a"]);
            park("sent");
        }
        // Asks the receiver, and notes what became of it.
        "deliver" => loop {
            let report = relay
                .run_once(|message| {
                    say(message.id());
                    match hear().as_str() {
                        "received" => Ok(()),
                        "refused" => Err(DeliveryError::new(format!("refused {}", message.attempt()))),
                        other => panic!("{other}"),
                    }
                })
                .unwrap();
            if !report.more {
                park("nothing left");
            }
        },
        other => panic!("no such role: {other}"),
    }
}

/// The receiver.
#[derive(Default)]
struct Receiver {
    arrivals: BTreeMap<String, usize>,
    effects: BTreeMap<String, usize>,
}

impl Receiver {
    fn receive(&mut self, id: &str) {
        let arrivals = self.arrivals.entry(id.to_owned()).or_default();
        *arrivals += 1;
        if *arrivals == 1 {
            *self.effects.entry(id.to_owned()).or_default() += 1;
        }
    }

    /// Receives what a store delivers.
    fn receive_all(&mut self, store: &Store) {
        deliver(store).iter().for_each(|id| self.receive(id));
    }
}

#[test]
fn message_is_delivered_though_its_sender_was_killed_after_it_was_sent() {
    for sharing in ["exclusive", "shared"] {
        let world = World::new();
        let mut sender = Child::start(module_path!(), &world, format!("send {sharing}"));
        sender.expect("sent");
        sender.kill();
        let store = if sharing == "shared" { shared(&world).open(world.path()).unwrap() } else { world.open() };
        let mut receiver = Receiver::default();
        receiver.receive_all(&store);
        receiver.receive_all(&store);
        assert_eq!(receiver.arrivals, BTreeMap::from([("a".to_owned(), 1)]));
        verify(&store);
    }
}

#[test]
fn message_comes_again_under_the_same_id_if_the_relay_is_killed_before_it_noted_the_delivery() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b"]);
    store.close().unwrap();
    let mut receiver = Receiver::default();
    let mut relay = Child::start(module_path!(), &world, "deliver exclusive");
    let id = relay.hear().unwrap();
    receiver.receive(&id);
    relay.kill();

    let store = world.open();
    let view = view(&store, "a");
    assert_eq!((view.status, view.attempts), (MessageStatus::Due, 1), "nobody waits for the lease of a dead process");
    receiver.receive_all(&store);
    assert_eq!(receiver.arrivals, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
    assert_eq!(receiver.effects, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]));
    verify(&store);
}

#[test]
fn message_of_a_killed_process_comes_again_after_its_lease_in_shared_mode() {
    let world = World::new();
    let store = shared(&world).open(world.path()).unwrap();
    send(&store, &["a"]);
    let mut receiver = Receiver::default();
    let mut relay = Child::start(module_path!(), &world, "deliver shared");
    receiver.receive(&relay.hear().unwrap());
    relay.kill();

    assert_eq!(status_of(&store, "a"), MessageStatus::InFlight);
    receiver.receive_all(&store);
    assert_eq!(receiver.arrivals["a"], 1, "the process may still live, for all this one knows");
    world.clock.advance(LEASE);
    receiver.receive_all(&store);
    assert_eq!((receiver.arrivals["a"], receiver.effects["a"]), (2, 1));
    verify(&store);
}

#[test]
fn message_that_always_fails_is_dead_at_the_limit_also_if_the_relay_is_killed_with_the_last_failure_in_hand() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    store.close().unwrap();
    let mut relay = Child::start(module_path!(), &world, "deliver exclusive");
    for _ in 0..2 {
        relay.expect("a");
        relay.tell("refused");
    }
    // The third is refused, too, but the relay does not live to note it.
    relay.expect("a");
    relay.kill();
    let is_buried = |store: &Store| {
        let view = view(store, "a");
        assert_eq!((view.status, view.attempts), (MessageStatus::Dead, 3));
        assert_eq!(view.dead.map(|(_, cause)| cause), Some(DeadCause::NeverAnswered));
        assert_eq!(view.last_error.as_deref(), Some("refused 2"), "the last error that anybody noted");
        assert_eq!(deliver(store), [""; 0]);
        verify(store);
    };
    let store = world.throughout(world.open(), is_buried);
    store.outbox().redrive("a").unwrap();
    assert_eq!(deliver(&store), ["a"]);
}

/// Messages that were taken with one that kills the process lost their attempts together with it.
#[test]
fn message_that_kills_its_relay_each_time_is_dead_at_the_limit_and_the_others_are_delivered() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "killer", "b", "c"]);
    send_in_lane(&store, "x", &["x1", "x2"]);
    store.close().unwrap();
    let mut receiver = Receiver::default();
    let mut kills = 0;
    loop {
        let mut relay = Child::start(module_path!(), &world, "deliver exclusive");
        let killed = loop {
            match relay.hear().unwrap().as_str() {
                "nothing left" => break false,
                "killer" => {
                    relay.kill();
                    break true;
                }
                id => {
                    receiver.receive(id);
                    relay.tell("received");
                }
            }
        };
        kills += usize::from(killed);
        if !killed {
            break;
        }
    }
    assert_eq!(kills, 3, "as often as it was permitted");
    let store = world.open();
    assert_eq!(status_of(&store, "killer"), MessageStatus::Dead);
    assert!(receiver.effects.values().all(|effects| *effects == 1));
    assert_eq!(receiver.effects.keys().collect::<Vec<_>>(), ["a", "b", "c", "x1", "x2"]);
    let delivered = ["a", "b", "c", "x1", "x2"].map(|id| status_of(&store, id));
    assert_eq!(delivered, [MessageStatus::Delivered; 5]);
    verify(&store);
}

#[test]
fn order_within_a_lane_holds_over_kills_at_every_delivery() {
    let world = World::new();
    let store = world.open();
    send_in_lane(&store, "x", &["x1", "x2", "x3"]);
    send_in_lane(&store, "y", &["y1", "y2", "y3"]);
    store.close().unwrap();
    let mut seen: Vec<String> = Vec::new();
    for deliveries in 0.. {
        // One more delivery is noted each time before the relay is killed.
        let mut relay = Child::start(module_path!(), &world, "deliver exclusive");
        let mut ended = false;
        for at in 0..=deliveries.min(2) {
            let id = relay.hear().unwrap();
            if id == "nothing left" {
                ended = true;
                break;
            }
            if !seen.contains(&id) {
                seen.push(id);
            }
            if at < deliveries.min(2) {
                relay.tell("received");
            }
        }
        if ended {
            break;
        }
        relay.kill();
        verify(&world.open());
    }
    for lane in ["x", "y"] {
        let of_lane: Vec<_> = seen.iter().filter(|id| id.starts_with(lane)).cloned().collect();
        assert_eq!(of_lane, [1, 2, 3].map(|at| format!("{lane}{at}")));
    }
    let store = world.open();
    assert!(all(&store).iter().all(|view| view.status == MessageStatus::Delivered));
}
