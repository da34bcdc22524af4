//! What a repeat is told after the process that knew was killed: what it was told before.

use std::collections::BTreeMap;
use std::sync::Barrier;

use dupeproof::{Claim, FailureReport, Operation, Replay, Reserve, Response, ResponsePolicy, Retry, Status, Store};

use crate::support::child::{Child, Task, die_of_any_panic, park, say};
use crate::support::ledger::{Ledger, Told, deliver, resolve_by};
use crate::support::*;

/// Who receive one message at the same time.
const RECEIVERS: usize = 16;

/// Settles the key so.
type Ending = fn(&Store, &str) -> Replay;

/// Every way to settle for good.
const ENDINGS: [(&str, Ending); 7] = [
    ("a value", |store, name| referred(store, &operation(name)).succeed_raw("receipt").unwrap()),
    ("an empty value", |store, name| referred(store, &operation(name)).succeed_raw("").unwrap()),
    ("no value", |store, name| referred(store, &operation(name)).succeed_raw(Response::Absent).unwrap()),
    ("a large value", |store, name| referred(store, &operation(name)).succeed_raw(vec![7; 3_000_000]).unwrap()),
    ("a secret", |store, name| {
        let secret = operation(name).with_response_policy(ResponsePolicy::ReferenceOnly);
        referred(store, &secret).succeed_raw("secret").unwrap()
    }),
    ("a failure", |store, name| {
        let declined = FailureReport::new("declined").with_response("code 51");
        referred(store, &operation(name)).fail_terminal_with(declined).unwrap()
    }),
    ("the last attempt", |store, name| {
        let claim = referred(store, &operation(name).with_attempts(1));
        claim.record_external_reference("ch_1").unwrap();
        claim.fail_retryable("busy", Retry::now()).unwrap();
        replay(store, &operation(name))
    }),
];

fn referred(store: &Store, operation: &Operation) -> Claim {
    execute(store, operation).with_external_reference("ch_1")
}

/// The process that knows, and is killed where it parks.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    die_of_any_panic();
    let [what] = task.words();
    let (store, ledger) = (task.world.open(), task.world.ledger());
    match what {
        "receive" => park(format!("{} ran", receive_at_once(&store, &ledger)[&Told::Ran])),
        "start" | "perform" => {
            let claim = execute(&store, &operation("a"));
            if what == "perform" {
                ledger.perform(&claim);
            }
            park(format!("{:?}", receive_at_once(&store, &ledger)));
        }
        "bring" => {
            // The tombstone first: the others are not to grow that old.
            let statuses = STATUSES.into_iter().rev();
            let _held: Vec<_> = statuses.map(|at| bring_to(&task.world, &store, at.as_str(), at)).collect();
            park("brought");
        }
        _ => {
            ENDINGS.into_iter().for_each(|(name, end)| say(shown(&end(&store, name))));
            park("settled");
        }
    }
}

/// One message, delivered to many at the same time: how often each answer was given.
fn receive_at_once(store: &Store, ledger: &Ledger) -> BTreeMap<Told, usize> {
    let start = Barrier::new(RECEIVERS);
    let receive = || {
        start.wait();
        deliver(store, ledger, &operation("a"))
    };
    let mut told = BTreeMap::new();
    std::thread::scope(|scope| {
        let receivers: Vec<_> = (0..RECEIVERS).map(|_| scope.spawn(receive)).collect();
        for receiver in receivers {
            *told.entry(receiver.join().unwrap()).or_default() += 1;
        }
    });
    told
}

fn shown(replay: &Replay) -> String {
    format!("{replay:?} {:?}", replay.raw().bytes().map(|bytes| &bytes[..bytes.len().min(100)]))
}

fn killed(what: &str, last_line: &str) -> World {
    let world = World::new();
    let mut child = Child::start(module_path!(), &world, what);
    child.expect(last_line);
    child.kill();
    world
}

/// What the killed process was told of each ending.
fn settled() -> (World, [(&'static str, String); ENDINGS.len()]) {
    let world = World::new();
    let mut child = Child::start(module_path!(), &world, "settle");
    let said = ENDINGS.map(|(name, _)| (name, child.hear().unwrap()));
    child.expect("settled");
    child.kill();
    (world, said)
}

/// All who receive the message now, and after each reopening, are told the same, and it happened as often.
fn all_are_told(world: &World, store: Store, told: Told, effect: Option<u32>) -> Store {
    world.throughout(store, |store| {
        assert_eq!(receive_at_once(store, &world.ledger()), [(told, RECEIVERS)].into());
        assert_eq!(world.ledger().effect("a"), effect);
    })
}

#[test]
fn message_that_many_received_at_once_before_a_kill_is_replayed_to_many_after_it() {
    let world = killed("receive", "1 ran");
    all_are_told(&world, world.open(), Told::Replayed, Some(1));
}

#[test]
fn message_whose_effect_was_cut_off_is_unknown_to_many_at_once_until_the_provider_was_asked() {
    let world = killed("perform", "{InProgress: 16}");
    let store = all_are_told(&world, world.open(), Told::Unknown, Some(1));
    resolve_by(&world.ledger(), &store, "a");
    all_are_told(&world, store, Told::Replayed, Some(1));
}

#[test]
fn message_found_not_to_have_taken_effect_is_run_by_one_of_many_at_once() {
    let world = killed("start", "{InProgress: 16}");
    let store = all_are_told(&world, world.open(), Told::Unknown, None);
    resolve_by(&world.ledger(), &store, "a");
    let store = world.reopen(store);
    assert_eq!(receive_at_once(&store, &world.ledger())[&Told::Ran], 1);
    all_are_told(&world, store, Told::Replayed, Some(2));
}

#[test]
fn changed_payload_is_a_conflict_in_every_status_that_a_kill_leaves() {
    let world = killed("bring", "brought");
    world.clock.advance(8 * DAY);
    let left = |status| match status {
        Status::Reserved => Status::FailedRetryable,
        Status::Executing => Status::Unknown,
        other => other,
    };
    world.throughout(world.open(), |store| {
        for status in STATUSES {
            let name = status.as_str();
            let before = get(store, name);
            assert_eq!(before.status, left(status));
            for _ in 0..10 {
                assert_eq!(conflict(store, &altered(name)).status(), left(status));
                assert!(matches!(store.reserve(&altered(name)).unwrap(), Reserve::Conflict(_)));
            }
            assert_eq!(get(store, name), before);
        }
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn every_ending_is_told_after_a_kill_as_it_was_told_before() {
    let (world, said) = settled();
    world.throughout(world.open(), |store| {
        for (name, said) in &said {
            let told = replay(store, &operation(name));
            assert_eq!(shown(&told), *said, "{name}");
            assert_eq!(told.external_reference(), Some("ch_1"), "{name}");
            conflict(store, &altered(name));
        }
    });
}

#[test]
fn repeat_after_the_retention_is_told_the_reference_and_does_not_run() {
    let (world, _) = settled();
    world.clock.advance(8 * DAY);
    let check = |store: &Store| {
        for (name, _) in ENDINGS {
            for _ in 0..10 {
                let told = expired(store, &operation(name));
                assert_eq!(told.external_reference(), Some("ch_1"), "{name}");
                assert_eq!(told.was_success(), !["a failure", "the last attempt"].contains(&name), "{name}");
            }
            assert_eq!(conflict(store, &altered(name)).status(), Status::Tombstone);
        }
    };
    let store = world.throughout(world.open(), check);
    assert_eq!(store.sweep(100).unwrap().tombstoned, ENDINGS.len() as u64);
    world.throughout(store, check);
}
