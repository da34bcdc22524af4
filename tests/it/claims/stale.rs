//! Claims that were taken over: whatever they write is refused and changes nothing.

use dupeproof::{Claim, ErrorKind, Remote, Reservation, Result, Retention, Retry, Status, Store, Verdict};

use super::settle;
use crate::support::*;

pub type Write = Box<dyn Fn(&Claim) -> Result<()>>;

/// Every write of a claim.
pub fn writes() -> Vec<(String, Write)> {
    let mut writes: Vec<(String, Write)> = vec![
        ("heartbeat".into(), Box::new(Claim::heartbeat)),
        ("checkpoint".into(), Box::new(|claim| claim.checkpoint(b"x"))),
        ("reference".into(), Box::new(|claim| claim.record_external_reference("ch_stale"))),
    ];
    for settle in settle::ALL {
        writes.push((format!("{settle:?}"), Box::new(move |claim| settle.by(claim))));
        writes.push((format!("{settle:?} and begin"), Box::new(move |claim| settle.with_next(claim))));
    }
    writes
}

/// Every way to lose an attempt to another one. Each leaves the stale claim and the one that took over.
type Takeover = fn(&World, &Store) -> (Claim, Claim);

const TAKEOVERS: [(&str, Takeover); 5] = [
    ("failed and tried again", |_, store| {
        let stale = execute(store, &operation("a"));
        stale.fail_retryable("busy", Retry::now()).unwrap();
        (stale, execute(store, &operation("a")))
    }),
    ("released and begun again", |_, store| {
        let stale = execute(store, &operation("a"));
        stale.release().unwrap();
        (stale, execute(store, &operation("a")))
    }),
    ("lapsed, found not to have happened, and begun again", |world, store| {
        let stale = execute(store, &operation("a"));
        world.clock.advance(DAY);
        store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
        (stale, execute(store, &operation("a")))
    }),
    ("lapsed and re-sent", |world, store| {
        let deduping = operation("a").with_remote(Remote::DedupesOnKey { window: 2 * DAY });
        let stale = execute(store, &deduping);
        world.clock.advance(DAY);
        (stale, execute(store, &deduping))
    }),
    ("settled, forgotten and begun anew", |world, store| {
        let short = Retention::default().with_response(MINUTE).with_tombstone(MINUTE);
        let stale = execute(store, &operation("a").with_retention(short));
        stale.succeed_raw("receipt").unwrap();
        world.clock.advance(HOUR);
        (stale, execute(store, &operation("a")))
    }),
];

#[test]
fn every_write_of_a_claim_that_was_taken_over_is_refused_and_changes_nothing() {
    for (how, take_over) in TAKEOVERS {
        let world = World::new();
        let store = world.open();
        let (stale, current) = take_over(&world, &store);
        current.record_external_reference("ch_current").unwrap();
        current.checkpoint(b"current").unwrap();
        let (before, view) = (world.bytes(), get(&store, "a"));
        assert!(stale.fencing_token() < current.fencing_token(), "{how}");
        assert!(!stale.is_current(), "{how}: two claims say that they are current");

        for (name, write) in writes() {
            let error = write(&stale).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LeaseLost, "{how}: {name}");
            assert!(world.bytes() == before, "{how}: {name} wrote to the file");
        }
        drop(stale);
        after_drops(&store);
        assert_eq!(get(&store, "a"), view, "{how}");
        assert!(store.get(key("next")).unwrap().is_none(), "{how}: the next operation was begun");

        assert!(current.is_current(), "{how}");
        current.succeed_raw("of the current one").unwrap();
        world.now_and_reopened(store, |store| {
            let told = replay(store, &operation("a"));
            assert_eq!(told.value().unwrap(), b"of the current one");
            assert_eq!(told.external_reference(), Some("ch_current"));
        });
    }
}

#[test]
fn every_write_of_a_reservation_that_was_taken_over_is_refused_and_changes_nothing() {
    type End = fn(Reservation) -> Result<()>;
    let writes: [(&str, End); 4] = [
        ("heartbeat", |reservation| reservation.heartbeat()),
        ("start", |reservation| reservation.start().map(drop)),
        ("release", Reservation::release),
        ("drop", |reservation| {
            drop(reservation);
            Ok(())
        }),
    ];
    for (name, write) in writes {
        let world = World::new();
        let store = world.open();
        let stale = reserve(&store, &operation("a"));
        world.clock.advance(DAY);
        let current = execute(&store, &operation("a"));
        let (before, view) = (world.bytes(), get(&store, "a"));
        assert!(!stale.is_current());
        let told = write(stale).map_err(|error| error.kind());
        assert_eq!(told, if name == "drop" { Ok(()) } else { Err(ErrorKind::LeaseLost) }, "{name}");
        after_drops(&store);
        assert_eq!(get(&store, "a"), view, "{name}");
        assert!(world.bytes() == before, "{name} wrote to the file");
        current.succeed_raw("ok").unwrap();
    }
}

#[test]
fn reservation_that_lapsed_and_that_nobody_took_is_over_all_the_same() {
    let world = World::new();
    let store = world.open();
    let reservation = reserve(&store, &operation("a"));
    world.clock.advance(DAY);
    assert_eq!(reservation.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(reservation.start().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(status(&store, "a"), Status::FailedRetryable);
}

#[test]
fn claim_of_a_forgotten_operation_is_of_nothing() {
    let world = World::new();
    let store = world.open();
    let short = Retention::default().with_response(MINUTE).with_tombstone(MINUTE);
    let stale = execute(&store, &operation("a").with_retention(short));
    stale.succeed_raw("receipt").unwrap();
    execute(&store, &operation("later")).succeed_raw("ok").unwrap();
    world.clock.advance(HOUR);
    assert_eq!(store.sweep(10).unwrap().purged, 1);
    for (name, write) in writes() {
        assert_eq!(write(&stale).unwrap_err().kind(), ErrorKind::LeaseLost, "{name}");
    }
    assert!(store.get(key("a")).unwrap().is_none());
}
