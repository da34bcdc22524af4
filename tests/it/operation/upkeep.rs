//! Upkeep does not change what anybody is told: verify, compact, backup, and a store opened by another name.

use std::time::Duration;

use dupeproof::{Begin, ErrorKind, Operation, Status, Store};

use crate::support::*;

const OPERATIONS: usize = 200;

fn name(at: usize) -> String {
    format!("{at:04}")
}

/// Half succeeded, a tenth unknown, the others failed for good.
fn filled(store: &Store) {
    for at in 0..OPERATIONS {
        let claim = execute(store, &operation(&name(at)));
        match at % 10 {
            0 => drop(claim.give_up("lost").unwrap()),
            1..=5 => drop(claim.succeed_raw(name(at).repeat(50)).unwrap()),
            _ => drop(claim.fail_terminal(name(at)).unwrap()),
        }
    }
}

#[track_caller]
fn answers_as_filled(store: &Store) {
    for at in 0..OPERATIONS {
        let operation = operation(&name(at));
        match at % 10 {
            0 => drop(unknown(store, &operation)),
            1..=5 => assert_eq!(replay(store, &operation).value().unwrap(), name(at).repeat(50).as_bytes()),
            _ => assert_eq!(replay(store, &operation).failure().unwrap().message(), name(at)),
        }
        conflict(store, &altered(&name(at)));
    }
    assert!(store.verify().unwrap().is_clean());
}

#[test]
fn compacted_store_answers_alike_and_is_smaller() {
    let world = World::new();
    let store = world.open();
    filled(&store);
    let before = world.bytes().len();
    store.compact().unwrap();
    assert!(world.bytes().len() < before, "{before} bytes before");
    let store = world.now_and_reopened(store, answers_as_filled);
    store.compact().unwrap();
    assert!(!store.compact().unwrap(), "nothing is left to give back");
    world.now_and_reopened(store, answers_as_filled);
}

#[test]
fn claim_held_over_a_compaction_can_be_settled() {
    let world = World::new();
    let store = world.open();
    filled(&store);
    let claim = execute(&store, &operation("running"));
    store.compact().unwrap();
    in_progress(&store, &operation("running"));
    claim.succeed_raw("ok").unwrap();
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &operation("running")).value().unwrap(), b"ok"));
}

#[test]
fn backup_opens_as_a_store_that_answers_alike() {
    let world = World::new();
    let store = world.open();
    filled(&store);
    let reservation = reserve(&store, &operation("reserved"));
    let claim = execute(&store, &operation("running"));
    claim.record_external_reference("ch_9").unwrap();
    let copy = world.folder().join("copy.redb");
    assert_eq!(store.backup(&copy).unwrap(), OPERATIONS as u64 + 2);
    // The original goes on; the copy knows of that moment only.
    claim.succeed_raw("ok").unwrap();
    execute(&store, &operation("later")).succeed_raw("ok").unwrap();

    let copied = world.options().open(&copy).unwrap();
    assert!(!copied.is_new());
    answers_as_filled(&copied);
    // Those who held claims do not hold them there.
    assert_eq!(unknown(&copied, &operation("running")).external_reference(), Some("ch_9"));
    assert_eq!(status(&copied, "reserved"), Status::FailedRetryable);
    assert!(copied.get(key("later")).unwrap().is_none());
    answers_as_filled(&store);
    drop(reservation);
}

#[test]
fn backup_taken_while_others_write_is_of_one_moment() {
    let world = World::new();
    let store = world.open();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for at in 0..300 {
                execute(&store, &operation(&name(at))).succeed_raw(name(at)).unwrap();
            }
        });
        for round in 0.. {
            let path = world.folder().join(format!("copy-{round}.redb"));
            let copied = store.backup(&path).unwrap();
            let copy = world.options().open(&path).unwrap();
            assert!(copy.verify().unwrap().is_clean());
            // They were written one after another: a copy of one moment has all before the last one, settled.
            for at in 0..copied as usize {
                match copy.begin(&operation(&name(at))).unwrap() {
                    Begin::Replay(replay) => assert_eq!(replay.value().unwrap(), name(at).as_bytes()),
                    Begin::Unknown(_) if at + 1 == copied as usize => {}
                    other => panic!("{at} of {copied} in the copy: {other:?}"),
                }
            }
            if writer.is_finished() {
                break;
            }
        }
    });
}

#[test]
fn backup_replaces_nothing_and_leaves_nothing_when_refused() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ok").unwrap();
    let taken = world.folder().join("taken");
    std::fs::write(&taken, "a letter").unwrap();
    for path in [taken.clone(), world.path(), world.folder().join("missing/copy.redb"), world.folder().join("copy/")] {
        assert_eq!(store.backup(&path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
    }
    assert_eq!(std::fs::read(&taken).unwrap(), b"a letter");
    assert_eq!(std::fs::read_dir(world.folder()).unwrap().count(), 2);
    replay(&store, &operation("a"));
}

#[test]
fn backup_of_a_store_in_memory_can_be_opened() {
    let world = World::new();
    let store = world.options().in_memory().unwrap();
    filled(&store);
    let copy = world.path();
    store.backup(&copy).unwrap();
    answers_as_filled(&world.open());
}

#[test]
fn store_in_memory_answers_like_one_in_a_file() {
    let world = World::new();
    let store = world.options().in_memory().unwrap();
    assert!(store.is_new());
    filled(&store);
    answers_as_filled(&store);
    store.compact().unwrap();
    store.sweep(1000).unwrap();
    answers_as_filled(&store);
}

#[test]
fn store_is_new_once() {
    let world = World::new();
    let store = world.open();
    assert!(store.is_new());
    assert!(!world.reopen(store).is_new());
}

#[test]
fn open_store_is_open_elsewhere_for_the_next_and_free_once_closed() {
    let world = World::new();
    let store = world.open();
    let error = world.options().open(world.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OpenElsewhere);
    assert!(error.to_string().contains("store.redb"), "{error}");
    let clone = store.clone();
    drop(store);
    assert!(world.options().open(world.path()).is_err(), "a clone keeps it open");
    drop(clone);
    world.open();
}

#[test]
fn claim_keeps_the_store_open_until_it_is_settled() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    drop(store);
    assert_eq!(world.options().open(world.path()).unwrap_err().kind(), ErrorKind::OpenElsewhere);
    claim.succeed_raw("ok").unwrap();
    drop(claim);
    assert_eq!(replay(&world.open(), &operation("a")).value().unwrap(), b"ok");
}

#[test]
fn quick_recovery_and_checks_at_open_change_no_answer() {
    let world = World::new();
    let store = world.options().with_recovery(dupeproof::Recovery::Quick).open(world.path()).unwrap();
    filled(&store);
    store.close().unwrap();
    let store = world.options().with_verify_on_open().open(world.path()).unwrap();
    answers_as_filled(&store);
}

#[test]
fn store_that_was_used_for_everything_is_still_in_order() {
    let world = World::new();
    let mut store = world.open();
    let short = |name: &str| -> Operation {
        operation(name).with_retention(
            dupeproof::Retention::default().with_response(Duration::from_secs(1)).with_tombstone(Duration::ZERO),
        )
    };
    for round in 0..20 {
        for at in 0..20 {
            if let Begin::Execute(claim) = store.begin(&short(&name(at))).unwrap() {
                match (at + round) % 4 {
                    0 => drop(claim.succeed_raw("ok").unwrap()),
                    1 => claim.release().unwrap(),
                    2 => drop(claim.fail_terminal("declined").unwrap()),
                    _ => drop(claim),
                }
            }
        }
        world.clock.advance(Duration::from_secs(2));
        store.sweep(7).unwrap();
        if round % 5 == 0 {
            store.compact().unwrap();
            store = world.reopen(store);
        }
        assert!(store.verify().unwrap().is_clean());
    }
    // Dropped ones are unknown for ever; all others came and went.
    assert_eq!(store.stats().unwrap().unknown, 20);
}
