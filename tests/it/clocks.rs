//! Wrong clocks: they may keep a record longer or leave an outcome unknown. They never let an effect run again.

use std::time::Duration;

use dupeproof::{
    Begin, ErrorKind, ManualClock, Operation, Remote, Retention, Sharing, Status, Store, Timestamp, UnknownCause,
};

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const IN_1970: Duration = Duration::ZERO;
const IN_2099: Duration = Duration::from_secs(4_070_908_800);

/// An operation whose claim nobody renews.
fn brief(name: &str) -> Operation {
    operation(name).with_lease(MINUTE).with_max_execution(MINUTE)
}

fn now(store: &Store) -> Timestamp {
    store.stats().unwrap().now
}

/// Opens the store after the machine was off and came up with this wall clock: the monotonic one begins anew.
fn boot(world: &mut World, wall: Duration) -> Store {
    world.clock = ManualClock::at(wall);
    world.open()
}

#[test]
fn stepping_the_wall_clock_while_the_store_is_open_moves_nothing() {
    for step in [IN_1970, START - DAY, START + DAY, IN_2099, Duration::MAX] {
        let world = World::new();
        let store = world.open();
        execute(&store, &operation("settled")).succeed_raw("receipt").unwrap();
        execute(&store, &operation("later")).fail_retryable("busy", dupeproof::Retry::after(HOUR)).unwrap();
        let claim = execute(&store, &brief("running"));
        let reservation = reserve(&store, &brief("reserved"));
        let before = (now(&store), get(&store, "settled"), get(&store, "later"));
        world.clock.step_wall(step);

        assert_eq!((now(&store), get(&store, "settled"), get(&store, "later")), before);
        assert_eq!(in_progress(&store, &brief("running")).lease_left(), MINUTE);
        assert_eq!(in_progress(&store, &brief("reserved")).lease_left(), MINUTE);
        assert_eq!(retry_later(&store, &operation("later")).wait(), HOUR);
        assert!(claim.is_current() && reservation.is_current());
        assert_eq!(store.sweep(100).unwrap(), dupeproof::SweepReport::default());
        claim.succeed_raw("ok").unwrap();
        assert_eq!(get(&store, "running").settled_at, Some(before.0));
        // What is begun now has a lease like any other.
        let next = execute(&store, &brief("next"));
        world.clock.advance(MINUTE - MILLI);
        assert!(next.is_current());
        world.clock.advance(MILLI);
        assert!(!next.is_current());
        unknown(&store, &brief("next"));
        drop(reservation);
    }
}

#[test]
fn store_time_moves_with_the_monotonic_clock() {
    let world = World::new();
    let store = world.open();
    let start = now(&store);
    assert_eq!(start, Timestamp::from_unix_millis(START.as_millis() as u64), "a new file starts at the wall clock");
    world.clock.step_wall(IN_1970);
    world.clock.advance(HOUR);
    assert_eq!(now(&store).since(start), HOUR);
}

#[test]
fn lease_that_the_machine_slept_through_has_lapsed() {
    let world = World::new();
    let store = world.open();
    let (claim, reservation) = (execute(&store, &operation("a")), reserve(&store, &operation("b")));
    // The monotonic clock counts suspended time.
    world.clock.advance(2 * HOUR);
    assert!(!claim.is_current() && !reservation.is_current());
    assert_eq!(unknown(&store, &operation("a")).cause(), UnknownCause::LeaseLapsed);
    assert_eq!(claim.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(execute(&store, &operation("b")).attempt(), 2);
    assert_eq!(reservation.start().unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[test]
fn time_that_passed_while_the_store_was_closed_counts() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    store.close().unwrap();
    world.clock.advance(7 * DAY);
    expired(&world.open(), &operation("a"));
}

/// What was in the world before its clock went wrong.
fn eventful(world: &World) -> Store {
    let store = world.open();
    execute(&store, &operation("succeeded")).succeed_raw("receipt").unwrap();
    execute(&store, &operation("failed")).fail_terminal("declined").unwrap();
    execute(&store, &operation("given up")).give_up("lost").unwrap();
    drop(execute(&store, &operation("dropped")));
    after_drops(&store);
    std::mem::forget(execute(&store, &operation("dead owner")));
    store
}

/// Begins everything that must never run again.
#[track_caller]
fn runs_nothing(store: &Store) {
    for name in ["succeeded", "failed"] {
        match store.begin(&operation(name)).unwrap() {
            Begin::Replay(_) | Begin::Expired(_) => {}
            other => panic!("{name} ended, and a repeat was told {other:?}"),
        }
        conflict(store, &altered(name));
    }
    for name in ["given up", "dropped", "dead owner"] {
        unknown(store, &operation(name));
    }
}

#[test]
fn no_wall_clock_at_open_lets_an_effect_run_again() {
    let walls = [START - DAY, START + DAY, IN_1970, START, IN_2099, START + DAY, IN_1970, IN_2099, START];
    let mut world = World::new();
    let mut store = eventful(&world);
    let mut latest = now(&store);
    for wall in walls {
        store.close().unwrap();
        store = boot(&mut world, wall);
        assert!(now(&store) >= latest, "store time went back at {wall:?}");
        runs_nothing(&store);
        store.sweep(1000).unwrap();
        runs_nothing(&store);
        assert!(store.verify().unwrap().is_clean());
        world.clock.advance(2 * SECOND);
        // A write, for store time is remembered in commits that write anyway.
        execute(&store, &operation(&format!("{wall:?}"))).release().unwrap();
        latest = now(&store);
    }
}

#[test]
fn store_time_never_goes_back_over_a_reopening() {
    for wall in [IN_1970, START - DAY, START, START + MILLI, START + DAY, IN_2099] {
        let mut world = World::new();
        let store = world.open();
        for _ in 0..5 {
            world.clock.advance(HOUR + 7 * MILLI);
            execute(&store, &operation("a")).release().unwrap();
        }
        let written_at = now(&store);
        store.close().unwrap();
        let store = boot(&mut world, wall);
        assert!(now(&store) >= written_at, "at {wall:?}: {:?} after {written_at:?}", now(&store));
        // And its first write goes on from there.
        assert!(get(&store, "a").retry_at.unwrap() <= now(&store));
        execute(&store, &operation("a")).release().unwrap();
    }
}

#[test]
fn wall_clock_that_went_back_keeps_everything_longer() {
    let mut world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let store = boot(&mut world, IN_1970);
    // Store time stands where it was, and seven days from there are seven days.
    world.clock.advance(7 * DAY - MILLI);
    replay(&store, &operation("a"));
    world.clock.advance(MILLI);
    expired(&store, &operation("a"));
}

#[test]
fn wall_clock_far_ahead_moves_store_time_by_thirty_days() {
    for (ahead, moves) in [(29 * DAY, 29 * DAY), (30 * DAY, 30 * DAY), (31 * DAY, 30 * DAY), (IN_2099, 30 * DAY)] {
        let mut world = World::new();
        let store = world.open();
        let keeping = Retention::default().with_response(30 * DAY + SECOND);
        execute(&store, &operation("a").with_retention(keeping)).succeed_raw("receipt").unwrap();
        execute(&store, &operation("b")).succeed_raw("receipt").unwrap();
        let before = now(&store);
        store.close().unwrap();
        let store = boot(&mut world, START + ahead);
        assert_eq!(now(&store).since(before), moves);
        // What was to be kept for longer than that is not lost early.
        replay(&store, &operation("a"));
        expired(&store, &operation("b"));
    }
}

#[test]
fn board_that_boots_in_1970_remembers_what_it_did_when_it_learns_the_date() {
    let mut world = World::new();
    let store = boot(&mut world, IN_1970);
    execute(&store, &operation("succeeded")).succeed_raw("receipt").unwrap();
    let claim = execute(&store, &brief("running"));
    // The time is synchronised while the effect runs.
    world.clock.step_wall(START);
    assert!(claim.is_current());
    replay(&store, &operation("succeeded"));
    claim.succeed_raw("ok").unwrap();
    std::mem::forget(execute(&store, &operation("dead owner")));
    store.close().unwrap();

    let store = boot(&mut world, START + HOUR);
    for name in ["succeeded", "running"] {
        assert!(replay(&store, &operation(name)).is_success());
    }
    unknown(&store, &operation("dead owner"));
}

/// Each open under a clock far ahead added thirty days: after four of them the tombstone was over, and its key ran.
#[test]
fn no_number_of_opens_under_wrong_clocks_lets_an_effect_run_again() {
    let far_ahead = |_| IN_2099;
    let learns_the_date = |turn: u32| START + turn * HOUR;
    let to_and_fro = |turn: u32| [IN_1970, START + turn * HOUR, IN_2099 + turn * HOUR][turn as usize % 3];
    type Walls = fn(u32) -> Duration;
    let scenes: [(Duration, Walls); 5] = [
        (START, far_ahead),
        (IN_1970, learns_the_date),
        (IN_1970, far_ahead),
        (START, to_and_fro),
        (IN_1970, to_and_fro),
    ];
    for (at, (created, wall)) in scenes.into_iter().enumerate() {
        let mut world = World::new();
        let store = boot(&mut world, created);
        execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
        store.close().unwrap();
        for turn in 0..60 {
            let store = boot(&mut world, wall(turn));
            // Something is written in every open, and moves the mark.
            execute(&store, &operation(&format!("other {turn}"))).succeed_raw("ok").unwrap();
            let answer = store.begin(&operation("a")).unwrap();
            assert!(matches!(answer, Begin::Replay(_) | Begin::Expired(_)), "scene {at}, open {turn}: {answer:?}");
            store.close().unwrap();
        }
    }
}

/// In shared mode only time ends the lease of a dead process, also after a clock far ahead was set right, and also if
/// everybody who comes is only turned away.
#[test]
fn lease_of_a_dead_process_ends_though_its_clock_was_far_ahead() {
    let mut world = World::new();
    let shared = |world: &World| world.options().with_sharing(Sharing::Shared).open(world.path()).unwrap();
    shared(&world).close().unwrap();
    world.clock = ManualClock::at(IN_2099);
    let dead = shared(&world);
    std::mem::forget(execute(&dead, &brief("a")));
    std::mem::forget(dead);
    for (seconds, ends) in [(0, false), (30, false), (90, true)] {
        world.clock = ManualClock::at(START + seconds * SECOND);
        let store = shared(&world);
        if ends {
            unknown(&store, &brief("a"));
        } else {
            in_progress(&store, &brief("a"));
        }
        store.close().unwrap();
    }
}

#[test]
fn lease_granted_under_a_clock_far_ahead_ends_like_any_other() {
    for wall in [IN_1970, IN_2099] {
        let mut world = World::new();
        world.open().close().unwrap();
        let store = boot(&mut world, wall);
        let reservation = reserve(&store, &brief("a"));
        world.clock.step_wall(START);
        assert_eq!(in_progress(&store, &brief("a")).lease_left(), MINUTE);
        world.clock.advance(MINUTE);
        assert!(!reservation.is_current());
        let claim = execute(&store, &brief("a"));
        // And the next open ends what is left, whatever its clock says.
        store.close().unwrap();
        let store = boot(&mut world, START);
        unknown(&store, &brief("a"));
        drop(claim);
    }
}

#[test]
fn retention_settled_under_a_clock_far_ahead_ends_after_its_days() {
    let mut world = World::new();
    world.open().close().unwrap();
    let store = boot(&mut world, IN_2099);
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let store = boot(&mut world, START);
    world.clock.advance(7 * DAY - MILLI);
    replay(&store, &operation("a"));
    world.clock.advance(MILLI);
    expired(&store, &operation("a"));
}

#[test]
fn re_send_window_is_closed_by_any_doubt_about_how_long_the_machine_was_off() {
    let deduping = |name: &str| operation(name).with_remote(Remote::DedupesOnKey { window: HOUR });
    for (wall, is_within) in [
        (START + MINUTE, true),
        (START + HOUR - MILLI, true),
        (START + HOUR, false),
        (IN_2099, false),
        (START - MILLI, false),
        (IN_1970, false),
    ] {
        let mut world = World::new();
        let store = world.open();
        std::mem::forget(execute(&store, &deduping("a")));
        store.close().unwrap();
        let store = boot(&mut world, wall);
        match (store.begin(&deduping("a")).unwrap(), is_within) {
            (Begin::Execute(claim), true) => assert!(claim.is_resend()),
            (Begin::Unknown(_), false) => {}
            (told, _) => panic!("at {wall:?}: {told:?}"),
        }
    }
}

#[test]
fn clock_at_either_end_of_time_breaks_nothing() {
    for wall in [Duration::ZERO, Duration::MAX] {
        let mut world = World::new();
        let store = boot(&mut world, wall);
        execute(&store, &operation("a").with_retention(Retention::forever())).succeed_raw("receipt").unwrap();
        let claim = execute(&store, &operation("b"));
        world.clock.advance(Duration::MAX);
        store.sweep(100).unwrap();
        replay(&store, &operation("a"));
        assert!(!claim.is_current());
        store.close().unwrap();
        let store = boot(&mut world, wall);
        replay(&store, &operation("a"));
        assert_eq!(status(&store, "b"), Status::Unknown);
        assert!(store.verify().unwrap().is_clean());
    }
}
