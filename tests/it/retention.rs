//! How long an outcome is remembered: counted from settlement, never extended, and gone only when it was settled.

use std::time::Duration;

use dupeproof::{Begin, Operation, Retention, Retry, Status, Store, SweepReport, Verdict};

use crate::support::*;

const MILLI: Duration = Duration::from_millis(1);

/// Replayed for an hour, remembered for a day more.
fn short(name: &str) -> Operation {
    operation(name).with_retention(Retention::default().with_response(HOUR).with_tombstone(DAY))
}

/// Settled at once under the short terms, and not the last of its store: the last row stays as its counter.
fn settled(world: &World) -> Store {
    let store = world.open();
    execute(&store, &short("a")).with_external_reference("ch_1").succeed_raw("receipt").unwrap();
    execute(&store, &operation("last")).succeed_raw("ok").unwrap();
    store
}

/// Sweeps until nothing is left to do, `limit` records at a time.
#[track_caller]
fn sweep(store: &Store, limit: usize) -> SweepReport {
    let mut total = SweepReport::default();
    for _ in 0..10_000 {
        let swept = store.sweep(limit).unwrap();
        let changed = swept.leases_ended + swept.tombstoned + swept.purged;
        assert!(changed <= limit as u64, "{swept:?} with a limit of {limit}");
        total.leases_ended += swept.leases_ended;
        total.tombstoned += swept.tombstoned;
        total.purged += swept.purged;
        if !swept.more {
            return total;
        }
    }
    panic!("the sweep comes to no end: {total:?}");
}

#[test]
fn response_is_replayed_until_its_instant_and_expired_from_then_on() {
    let world = World::new();
    let store = settled(&world);
    let settled_at = get(&store, "a").settled_at.unwrap();
    world.clock.advance(HOUR - MILLI);
    let store = world.now_and_reopened(store, |store| assert!(replay(store, &short("a")).is_success()));
    world.clock.advance(MILLI);
    let expired_is_told = |store: &Store| {
        let told = expired(store, &short("a"));
        assert!(told.was_success());
        assert_eq!(told.external_reference(), Some("ch_1"));
        assert_eq!(told.settled_at(), settled_at);
        assert_eq!(told.purge_at().since(settled_at), HOUR + DAY);
        conflict(store, &altered("a"));
    };
    // Before any sweep, after it, after a compaction and after reopening: nobody can tell the difference.
    let store = world.now_and_reopened(store, expired_is_told);
    assert_eq!(sweep(&store, 100).tombstoned, 1);
    let store = world.now_and_reopened(store, expired_is_told);
    store.compact().unwrap();
    let store = world.now_and_reopened(store, expired_is_told);
    world.clock.advance(DAY - MILLI);
    world.now_and_reopened(store, expired_is_told);
}

#[test]
fn expired_failure_is_told_as_one() {
    let world = World::new();
    let store = world.open();
    execute(&store, &short("a")).fail_terminal("declined").unwrap();
    world.clock.advance(HOUR);
    assert!(!expired(&store, &short("a")).was_success());
    sweep(&store, 10);
    world.now_and_reopened(store, |store| {
        assert!(!expired(store, &short("a")).was_success());
        assert_eq!(get(store, "a").ended, Some(Status::FailedTerminal));
        assert_eq!(get(store, "a").failure, None);
    });
}

#[test]
fn repeats_never_extend_the_retention() {
    let world = World::new();
    let mut store = settled(&world);
    for _ in 0..59 {
        world.clock.advance(MINUTE);
        // Not even those who ask for more.
        replay(&store, &operation("a").with_retention(Retention::forever()));
        store = world.reopen(store);
    }
    world.clock.advance(MINUTE);
    expired(&store, &operation("a").with_retention(Retention::forever()));
}

#[test]
fn retention_counts_from_settlement_not_from_the_first_use() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &short("a").with_lease(DAY).with_max_execution(DAY));
    world.clock.advance(DAY / 2);
    claim.succeed_raw("receipt").unwrap();
    world.clock.advance(HOUR - MILLI);
    replay(&store, &short("a"));
    world.clock.advance(MILLI);
    expired(&store, &short("a"));
}

#[test]
fn retention_of_a_verdict_and_of_a_late_word_counts_from_it() {
    let world = World::new();
    let store = world.open();
    execute(&store, &short("verdict")).give_up("lost").unwrap();
    let late = execute(&store, &short("late"));
    world.clock.advance(100 * DAY);
    let happened = Verdict::Happened { response: "receipt".into(), external_reference: None };
    store.resolve(key("verdict"), happened, &decision()).unwrap();
    late.succeed_raw("receipt").unwrap();
    world.clock.advance(HOUR - MILLI);
    let store = world.now_and_reopened(store, |store| {
        replay(store, &short("verdict"));
        replay(store, &short("late"));
    });
    world.clock.advance(MILLI);
    expired(&store, &short("verdict"));
    expired(&store, &short("late"));
}

#[test]
fn last_attempts_terms_are_those_that_count() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a").with_retention(Retention::forever())).release().unwrap();
    execute(&store, &short("a")).succeed_raw("receipt").unwrap();
    world.clock.advance(HOUR);
    expired(&store, &short("a"));
}

#[test]
fn forgotten_key_is_new_and_runs_as_a_first_attempt() {
    let world = World::new();
    let store = settled(&world);
    let before = execute(&store, &operation("token")).fencing_token();
    world.clock.advance(HOUR + DAY - MILLI);
    expired(&store, &short("a"));
    world.clock.advance(MILLI);
    assert!(store.get(key("a")).unwrap().is_none());
    // Also with another payload: nothing is left to compare it with.
    let claim = execute(&store, &altered("a"));
    assert_eq!(claim.attempt(), 1);
    assert!(claim.fencing_token() > before);
    claim.succeed_raw("anew").unwrap();
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &altered("a")).value().unwrap(), b"anew");
        conflict(store, &short("a"));
    });
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn sweep_makes_a_forgotten_key_absent_on_the_disk_too() {
    let world = World::new();
    let store = settled(&world);
    world.clock.advance(HOUR);
    assert_eq!(sweep(&store, 10).tombstoned, 1);
    world.clock.advance(DAY);
    assert_eq!(sweep(&store, 10).purged, 1);
    assert_eq!(store.verify().unwrap().records, 1);
    let store = world.reopen(store);
    assert!(store.get(key("a")).unwrap().is_none());
    assert_eq!(execute(&store, &short("a")).attempt(), 1);
}

#[test]
fn record_that_nobody_swept_while_it_was_a_tombstone_is_forgotten_at_once() {
    let world = World::new();
    let store = settled(&world);
    world.clock.advance(2 * DAY);
    let swept = sweep(&store, 10);
    assert_eq!((swept.tombstoned, swept.purged), (0, 1));
}

#[test]
fn no_tombstone_is_kept_if_none_is_wanted() {
    let world = World::new();
    let store = world.open();
    let none = operation("a").with_retention(Retention::default().with_response(HOUR).with_tombstone(Duration::ZERO));
    execute(&store, &none).succeed_raw("receipt").unwrap();
    world.clock.advance(HOUR - MILLI);
    replay(&store, &none);
    world.clock.advance(MILLI);
    assert_eq!(execute(&store, &none).attempt(), 1);
}

#[test]
fn what_is_kept_for_ever_is_there_after_a_thousand_years() {
    let world = World::new();
    let store = world.open();
    let forever = Retention::forever();
    execute(&store, &operation("all").with_retention(forever)).succeed_raw("receipt").unwrap();
    let tombstone = forever.with_response(HOUR);
    execute(&store, &operation("tombstone").with_retention(tombstone)).succeed_raw("receipt").unwrap();
    let response = Retention::default().with_response_forever();
    execute(&store, &operation("response").with_retention(response)).fail_terminal("declined").unwrap();
    world.clock.advance(365_000 * DAY);
    let kept = |store: &Store| {
        assert!(replay(store, &operation("all")).is_success());
        assert!(!replay(store, &operation("response")).is_success());
        expired(store, &operation("tombstone"));
    };
    let store = world.now_and_reopened(store, kept);
    sweep(&store, 10);
    store.compact().unwrap();
    world.now_and_reopened(store, kept);
}

#[test]
fn nothing_unsettled_is_ever_swept_away_however_old() {
    let world = World::new();
    let store = world.open();
    let reservation = reserve(&store, &short("reserved"));
    let claim = execute(&store, &short("executing"));
    execute(&store, &short("retryable")).fail_retryable("busy", Retry::now()).unwrap();
    execute(&store, &short("unknown")).give_up("lost").unwrap();
    execute(&store, &short("last")).succeed_raw("ok").unwrap();
    for _ in 0..100 {
        world.clock.advance(365 * DAY);
        sweep(&store, 3);
    }
    store.compact().unwrap();
    let store = world.now_and_reopened(store, |store| {
        assert_eq!(status(store, "reserved"), Status::FailedRetryable);
        assert_eq!(status(store, "retryable"), Status::FailedRetryable);
        unknown(store, &short("executing"));
        unknown(store, &short("unknown"));
        for name in ["reserved", "retryable", "executing", "unknown"] {
            assert_eq!(get(store, name).attempts, 1);
            conflict(store, &altered(name));
        }
    });
    assert_eq!(execute(&store, &short("reserved")).attempt(), 2);
    assert_eq!(execute(&store, &short("retryable")).attempt(), 2);
    drop((reservation, claim));
}

#[test]
fn tombstone_forgets_the_response_and_keeps_the_fact() {
    let world = World::new();
    let store = settled(&world);
    world.clock.advance(HOUR);
    let forgotten = |store: &Store| {
        let view = get(store, "a");
        assert_eq!((view.status, view.ended, view.response), (Status::Tombstone, Some(Status::Succeeded), None));
        assert_eq!(view.external_reference.as_deref(), Some("ch_1"));
    };
    let store = world.now_and_reopened(store, forgotten);
    sweep(&store, 10);
    world.now_and_reopened(store, forgotten);
}

#[test]
fn sweep_is_bounded_and_says_whether_there_is_more() {
    let world = World::new();
    let store = world.open();
    for at in 0..600 {
        execute(&store, &short(&at.to_string())).succeed_raw("ok").unwrap();
    }
    world.clock.advance(HOUR);
    let swept = store.sweep(10).unwrap();
    assert_eq!((swept.tombstoned, swept.purged, swept.more), (10, 0, true));
    assert_eq!(store.stats().unwrap().tombstones, 10);
    let swept = store.sweep(500).unwrap();
    assert_eq!((swept.tombstoned, swept.more), (500, true));
    let swept = store.sweep(500).unwrap();
    assert_eq!((swept.tombstoned, swept.more), (90, false));
    assert_eq!(store.sweep(500).unwrap(), SweepReport::default());
    world.clock.advance(DAY);
    // The last row is the counter of the store and stays.
    assert_eq!(sweep(&store, 1_000_000).purged, 599);
    assert!(store.verify().unwrap().is_clean());
}

/// The row with the highest number never goes. When it was the first that was due, it was looked at again and again,
/// and nothing behind it was ever swept.
#[test]
fn sweep_of_one_record_at_a_time_comes_to_an_end() {
    for tombstone in [Duration::ZERO, DAY] {
        let world = World::new();
        let store = world.open();
        for at in 0..5 {
            execute(&store, &short(&at.to_string())).succeed_raw("ok").unwrap();
        }
        let shortest = Retention::default().with_response(MINUTE).with_tombstone(tombstone);
        execute(&store, &operation("last").with_retention(shortest)).succeed_raw("ok").unwrap();
        world.clock.advance(HOUR);
        assert_eq!(sweep(&store, 1).tombstoned, if tombstone.is_zero() { 5 } else { 6 });
        world.clock.advance(2 * DAY);
        sweep(&store, 1);
        assert_eq!(store.verify().unwrap().records, 1);
        execute(&store, &operation("new")).succeed_raw("ok").unwrap();
        sweep(&store, 1);
        assert_eq!(store.verify().unwrap().records, 1);
        assert!(store.verify().unwrap().is_clean());
    }
}

#[test]
fn sweep_ends_leases_among_many_unknown_outcomes() {
    let world = World::new();
    let store = world.open();
    for at in 0..100 {
        execute(&store, &operation(&format!("unknown {at}"))).give_up("lost").unwrap();
    }
    let claims: Vec<_> = (0..10).map(|at| execute(&store, &operation(&at.to_string()))).collect();
    world.clock.advance(DAY);
    assert_eq!(sweep(&store, 3).leases_ended, 10);
    assert_eq!(store.stats().unwrap().unknown, 110);
    drop(claims);
}

#[test]
fn compactor_does_by_itself_what_a_sweep_does() {
    let world = World::new();
    let options = dupeproof::Options::new().with_clock(world.clock.clone()).with_sweep_every(10 * MILLI);
    let store = options.open(world.path()).unwrap();
    let claim = execute(&store, &operation("lapsed").with_lease(MINUTE).with_max_execution(MINUTE));
    execute(&store, &short("a")).succeed_raw("ok").unwrap();
    execute(&store, &operation("last")).succeed_raw("ok").unwrap();
    world.clock.advance(HOUR);
    eventually(|| store.stats().unwrap().tombstones == 1 && store.stats().unwrap().unknown == 1);
    world.clock.advance(DAY);
    eventually(|| store.verify().unwrap().records == 2);
    claim.succeed_raw("late, and true").unwrap();
}

#[test]
fn waiting_repeat_is_not_kept_waiting_by_an_expired_record() {
    let world = World::new();
    let store = settled(&world);
    world.clock.advance(HOUR);
    let told = store.begin(&short("a").with_wait(HOUR)).unwrap();
    assert!(matches!(told, Begin::Expired(_)));
}

/// A sweep went on where the last one had stopped, reached the end, and said that there was no more.
#[test]
fn sweep_that_says_there_is_no_more_left_nothing_behind_wherever_the_last_one_stopped() {
    let world = World::new();
    let store = world.open();
    let held = |name, lease| execute(&store, &operation(name).with_lease(lease).with_max_execution(lease));
    let claims = [held("a", HOUR), held("b", MINUTE), held("c", MINUTE)];
    world.clock.advance(2 * MINUTE);
    assert_eq!(store.sweep(1).unwrap().leases_ended, 1);
    world.clock.advance(HOUR);
    let swept = store.sweep(10).unwrap();
    assert_eq!((swept.leases_ended, swept.more), (2, false));
    assert_eq!(store.stats().unwrap().unknown, 3);
    drop(claims);
}

/// The row with the highest number is the counter and stays, but not what the record answered with.
#[test]
fn response_that_is_over_leaves_the_disk_also_from_the_row_that_stays() {
    let world = World::new();
    let store = world.open();
    let retention = Retention::default().with_response(DAY).with_tombstone(Duration::ZERO);
    execute(&store, &operation("a").with_retention(retention)).succeed_raw("a long forgotten secret").unwrap();
    world.clock.advance(DAY);
    while store.sweep(10).unwrap().more {}
    let stats = store.stats().unwrap();
    assert_eq!((stats.succeeded, stats.tombstones), (0, 1));
    assert!(store.verify().unwrap().is_clean());
    assert_eq!(store.sweep(10).unwrap(), SweepReport::default(), "and it is done with");
    let copy = world.folder().join("copy");
    store.backup(&copy).unwrap();
    assert!(!std::fs::read(copy).unwrap().windows(9).any(|window| window == b"forgotten"));
    assert!(matches!(store.begin(&operation("a")).unwrap(), Begin::Execute(_)), "and the key is new");
}
