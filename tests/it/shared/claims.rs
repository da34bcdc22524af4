//! Claims of several processes on one store, step by step.

use std::time::Duration;

use dupeproof::{Begin, Claim, Operation, Options, Reservation, Sharing, Status, Store, UnknownCause, Verdict};

use super::{open, shared};
use crate::claims::stale::writes;
use crate::support::child::{Child, Task, die_of_any_panic, hear, say};
use crate::support::ledger::{check_receipt, receipt, reference};
use crate::support::*;

/// A lease in real time, long enough for a machine under load to renew it in time.
const LEASE: Duration = Duration::from_secs(2);

/// The other process: does what it is told, and says how it went.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    die_of_any_panic();
    let [clock] = task.words();
    let options = if clock == "real" { Options::new().with_sharing(Sharing::Shared) } else { shared(&task.world) };
    let store = options.open(task.world.path()).unwrap();
    let mut claims: Vec<Claim> = Vec::new();
    let mut reservations: Vec<Reservation> = Vec::new();
    say("open");
    loop {
        match hear().as_str() {
            "begin" => match store.begin(&brief("a")).unwrap() {
                Begin::Execute(claim) => {
                    say(format!("attempt {}", claim.attempt()));
                    claims.push(claim);
                }
                Begin::Replay(replay) => {
                    check_receipt(&replay, "a");
                    say("replay");
                }
                other => panic!("{other:?}"),
            },
            "reserve" => {
                reservations.push(reserve(&store, &brief("b")));
                say("reserved");
            }
            "refer" => {
                claims[0].record_external_reference(&reference("a")).unwrap();
                claims[0].checkpoint(b"half-way").unwrap();
                say("referred");
            }
            "settle" => {
                claims[0].succeed_raw(receipt("a")).unwrap();
                say("settled");
            }
            "write all" => {
                for (name, write) in writes() {
                    let told = write(&claims[0]).map_err(|error| error.kind());
                    say(format!("{name}: {told:?}, {}", claims[0].is_current()));
                }
                drop(claims.remove(0));
                after_drops(&store);
                say("dropped");
            }
            "use the reservation" => {
                let stale = reservations.remove(0);
                say(format!("{:?}", stale.heartbeat().map_err(|error| error.kind())));
                say(format!("{:?}", stale.start().map_err(|error| error.kind())));
                after_drops(&store);
                say("dropped");
            }
            _ => return,
        }
    }
}

fn brief(name: &str) -> Operation {
    operation(name).with_lease(LEASE)
}

fn other_process(world: &World, clock: &str) -> Child {
    let mut other = Child::start(module_path!(), world, clock);
    other.expect("open");
    other
}

impl Child {
    #[track_caller]
    fn told(&mut self, order: &str, answer: &str) {
        self.tell(order);
        self.expect(answer);
    }
}

fn seen_executing(store: &Store) {
    assert_eq!(in_progress(store, &operation("a")).attempt(), 1);
    assert_eq!(conflict(store, &altered("a")).status(), Status::Executing);
}

#[test]
fn what_another_process_did_is_seen_without_reopening() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    assert!(store.get(key("a")).unwrap().is_none());

    other.told("begin", "attempt 1");
    seen_executing(&store);
    other.told("refer", "referred");
    let view = get(&store, "a");
    assert_eq!(view.external_reference, Some(reference("a")));
    assert_eq!(view.checkpoint.unwrap(), b"half-way");

    other.told("settle", "settled");
    check_receipt(&replay(&store, &operation("a")), "a");
    conflict(&store, &altered("a"));

    // And the other way round.
    let here = execute(&store, &operation("mine"));
    here.succeed_raw("receipt").unwrap();
    assert!(other.finish().success());
    check_receipt(&replay(&store, &operation("a")), "a");
}

#[test]
fn repeat_that_waits_for_another_process_gets_its_result() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    other.told("begin", "attempt 1");
    other.told("refer", "referred");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| replay(&store, &operation("a").with_wait(HOUR)));
        other.told("settle", "settled");
        check_receipt(&waiting.join().unwrap(), "a");
    });
}

#[test]
fn claim_of_another_process_that_was_taken_over_writes_nothing() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    other.told("begin", "attempt 1");
    world.clock.advance(MINUTE);
    assert_eq!(unknown(&store, &operation("a")).cause(), UnknownCause::LeaseLapsed);
    store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
    let current = execute(&store, &operation("a"));
    assert_eq!(current.attempt(), 2);
    current.checkpoint(b"current").unwrap();
    let before = get(&store, "a");

    other.tell("write all");
    for (name, _) in writes() {
        other.expect(&format!("{name}: Err(LeaseLost), false"));
    }
    other.expect("dropped");
    assert_eq!(get(&store, "a"), before);
    assert!(store.get(key("next")).unwrap().is_none(), "the next operation was begun");

    current.with_external_reference(&reference("a")).succeed_raw(receipt("a")).unwrap();
    other.told("begin", "replay");
}

#[test]
fn reservation_of_another_process_that_was_taken_over_starts_nothing() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    other.told("reserve", "reserved");
    assert_eq!(in_progress(&store, &operation("b")).attempt(), 1);
    world.clock.advance(MINUTE);
    let current = execute(&store, &operation("b"));
    let before = get(&store, "b");
    other.told("use the reservation", "Err(LeaseLost)");
    other.expect("Err(LeaseLost)");
    other.expect("dropped");
    assert_eq!(get(&store, "b"), before);
    current.succeed_raw("receipt").unwrap();
}

#[test]
fn late_word_of_another_process_is_accepted_while_nobody_took_over() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    other.told("begin", "attempt 1");
    other.told("refer", "referred");
    world.clock.advance(MINUTE);
    unknown(&store, &operation("a"));
    assert_eq!(store.sweep(10).unwrap().leases_ended, 1);
    other.told("settle", "settled");
    check_receipt(&replay(&store, &operation("a")), "a");
}

#[test]
fn claims_of_a_killed_process_last_as_long_as_their_leases_while_the_store_is_shared() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    other.told("begin", "attempt 1");
    other.told("reserve", "reserved");
    other.kill();
    for store in [store, open(&world)] {
        seen_executing(&store);
        assert_eq!(in_progress(&store, &operation("b")).attempt(), 1);
    }
    world.clock.advance(LEASE);
    let store = open(&world);
    assert_eq!(unknown(&store, &operation("a")).cause(), UnknownCause::LeaseLapsed);
    assert_eq!(execute(&store, &operation("b")).attempt(), 2);
}

#[test]
fn claims_of_a_killed_process_are_over_at_once_for_whoever_has_the_store_alone() {
    let world = World::new();
    let mut other = other_process(&world, "manual");
    other.told("begin", "attempt 1");
    other.told("reserve", "reserved");
    other.kill();
    let store = world.open();
    assert_eq!(unknown(&store, &operation("a")).cause(), UnknownCause::OwnerGone);
    assert_eq!(execute(&store, &operation("b")).attempt(), 2);
}

#[test]
fn lease_granted_by_a_process_whose_clock_lags_is_as_long_as_any_for_the_others() {
    let world = World::new();
    let store = open(&world);
    let mut other = other_process(&world, "manual");
    world.clock.advance(HOUR);
    execute(&store, &operation("ahead")).succeed_raw("receipt").unwrap();
    other.told("begin", "attempt 1");
    assert_eq!(in_progress(&store, &operation("a")).lease_left(), LEASE);
    other.told("settle", "settled");
    assert!(get(&store, "a").settled_at >= get(&store, "ahead").settled_at);
}

#[test]
fn lease_of_a_living_process_is_renewed_and_that_of_a_killed_one_runs_out() {
    let world = World::new();
    let store = Options::new().with_sharing(Sharing::Shared).open(world.path()).unwrap();
    let mut other = other_process(&world, "real");
    other.told("begin", "attempt 1");
    other.told("reserve", "reserved");
    let lease_until = |name| get(&store, name).lease_until.expect("it is held");
    let first = ["a", "b"].map(lease_until);
    eventually(|| ["a", "b"].map(lease_until).iter().zip(first).all(|(now, first)| now.since(first) > LEASE));

    other.kill();
    let last = lease_until("a");
    eventually(|| status(&store, "a") == Status::Unknown);
    assert_eq!(get(&store, "a").unknown, Some((last, UnknownCause::LeaseLapsed)));
    eventually(|| status(&store, "b") == Status::FailedRetryable);
    unknown(&store, &operation("a"));
    assert_eq!(execute(&store, &operation("b")).attempt(), 2);
}
