//! Two processes that relay from one store.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;

use dupeproof::Sharing;

use super::*;
use crate::support::child::{Child, Task, die_of_any_panic, park, say};
use crate::support::*;

const MESSAGES: usize = 500;
const LANES: usize = 20;

fn open(world: &World) -> Store {
    world.options().with_sharing(Sharing::Shared).open(world.path()).unwrap()
}

fn deliveries(world: &World) -> std::path::PathBuf {
    world.folder().join("deliveries")
}

/// The receiver's book: a line for each arrival, in the order of their arrival.
fn arrive(world: &World, id: &str) -> std::io::Result<()> {
    let mut book = OpenOptions::new().append(true).create(true).open(deliveries(world))?;
    // In one write, so that lines of several processes do not mix.
    book.write_all(format!("{id}\n").as_bytes())
}

fn arrived(world: &World) -> Vec<String> {
    let book = std::fs::read_to_string(deliveries(world)).unwrap();
    book.lines().map(str::to_owned).collect()
}

/// Relays until nothing is left. `each` is told of every run.
fn relay_all(world: &World, store: &Store, each: impl Fn()) {
    let relay = relay(store).with_batch(7);
    eventually(|| {
        relay.run_once(|message| Ok(arrive(world, message.id())?)).unwrap();
        each();
        let outbox = store.stats().unwrap().outbox;
        outbox.pending + outbox.in_flight == 0
    });
}

/// The other process.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    die_of_any_panic();
    let [role] = task.words();
    let store = open(&task.world);
    say("ready");
    match role {
        "relay" => relay_all(&task.world, &store, || ()),
        // Is killed with messages in hand, some of which have arrived.
        "die" => {
            let mut seen = 0;
            let _ = relay(&store).with_batch(7).run_once(|message| {
                arrive(&task.world, message.id())?;
                seen += 1;
                if seen == 4 {
                    park("half-way");
                }
                Ok(())
            });
        }
        other => panic!("no such role: {other}"),
    }
    park("done");
}

fn send_500(store: &Store) {
    for first in (0..MESSAGES).step_by(100) {
        let messages: Vec<_> = (first..first + 100)
            .map(|at| match at % 2 {
                0 => message(&format!("free/{at}")),
                _ => message(&format!("{}/{at}", at % LANES)).with_lane((at % LANES).to_string()),
            })
            .collect();
        store.outbox().send_many(&messages).unwrap();
    }
}

/// The first arrivals of each lane come in the order of sending; what a killed process had in hand may come again.
#[track_caller]
fn all_arrived_in_order(arrived: &[String]) {
    let mut seen = BTreeMap::<&str, usize>::new();
    let mut last = BTreeMap::<&str, usize>::new();
    for id in arrived {
        *seen.entry(id).or_default() += 1;
        let (lane, at) = id.split_once('/').unwrap();
        if lane != "free" && seen[id.as_str()] == 1 {
            let at: usize = at.parse().unwrap();
            let before = last.insert(lane, at);
            assert!(before.is_none_or(|before| before < at), "{id} came after {before:?}");
        }
    }
    assert_eq!(seen.len(), MESSAGES, "each arrived at least once");
}

#[test]
fn two_processes_deliver_500_messages_each_once_while_no_lease_ends() {
    let world = World::new();
    let store = open(&world);
    send_500(&store);
    let mut other = Child::start(module_path!(), &world, "relay");
    other.expect("ready");
    relay_all(&world, &store, || ());
    other.expect("done");
    let arrived = arrived(&world);
    assert_eq!(arrived.len(), MESSAGES);
    all_arrived_in_order(&arrived);
    verify(&store);
    assert_eq!(store.stats().unwrap().outbox.delivered, MESSAGES as u64);
    assert!(other.finish().success());
}

#[test]
fn two_processes_deliver_500_messages_at_least_once_though_one_is_killed_half_way() {
    let world = World::new();
    let store = open(&world);
    send_500(&store);
    let mut other = Child::start(module_path!(), &world, "die");
    other.expect("ready");
    other.expect("half-way");
    other.kill();
    assert_eq!(store.stats().unwrap().outbox.in_flight, 7);
    let before = arrived(&world);
    assert_eq!(before.len(), 4);
    let runs = Cell::new(0);
    relay_all(&world, &store, || {
        runs.set(runs.get() + 1);
        if runs.get() == 30 {
            // What the killed process had in hand is due again.
            world.clock.advance(LEASE);
        }
    });
    let arrived = arrived(&world);
    assert_eq!(arrived.len(), MESSAGES + before.len(), "what had arrived before the kill came again, and nothing else");
    all_arrived_in_order(&arrived);
    verify(&store);
}
