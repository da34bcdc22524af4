//! The last word: which of two counts, and which still counts when it comes late.

use dupeproof::{Claim, ErrorKind, FailureReport, Result, Retry, Settlement, Status, UnknownCause, Verdict};

use crate::support::*;

/// Every way to settle a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    Succeed,
    FailTerminal,
    FailRetryable,
    GiveUp,
    Release,
}

use Settle::{FailRetryable, FailTerminal, GiveUp, Release, Succeed};

pub const ALL: [Settle; 5] = [Succeed, FailTerminal, FailRetryable, GiveUp, Release];

impl Settle {
    pub fn by(self, claim: &Claim) -> Result<()> {
        match self {
            Succeed => claim.succeed_raw("receipt").map(drop),
            FailTerminal => claim.fail_terminal("declined").map(drop),
            FailRetryable => claim.fail_retryable("busy", Retry::after(HOUR)).map(drop),
            GiveUp => claim.give_up("lost").map(drop),
            Release => claim.release(),
        }
    }

    /// The same with `next` begun in one commit.
    pub fn with_next(self, claim: &Claim) -> Result<()> {
        let settlement = match self {
            Succeed => Settlement::Succeeded("receipt".into()),
            FailTerminal => Settlement::FailedTerminal(FailureReport::new("declined")),
            FailRetryable => Settlement::FailedRetryable(FailureReport::new("busy"), Retry::after(HOUR)),
            GiveUp => Settlement::GaveUp(FailureReport::new("lost")),
            Release => Settlement::Released,
        };
        claim.settle_and_begin(settlement, &operation("next")).map(drop)
    }

    fn leaves(self) -> Status {
        match self {
            Succeed => Status::Succeeded,
            FailTerminal => Status::FailedTerminal,
            FailRetryable | Release => Status::FailedRetryable,
            GiveUp => Status::Unknown,
        }
    }
}

#[test]
fn second_word_counts_only_if_it_is_the_first_or_the_first_was_that_nobody_knows() {
    for first in ALL {
        for second in ALL {
            let world = World::new();
            let store = world.open();
            let claim = execute(&store, &operation("a"));
            first.by(&claim).unwrap();
            assert_eq!(status(&store, "a"), first.leaves());
            let (before, view) = (world.bytes(), get(&store, "a"));

            // A released attempt did not happen, which is what a retryable failure says too.
            let says_the_same = first == second || (first, second) == (Release, FailRetryable);
            let told = second.by(&claim).map_err(|error| error.kind());
            if first == GiveUp {
                assert_eq!(told, Ok(()), "{first:?}, then {second:?}");
                assert_eq!(status(&store, "a"), second.leaves());
            } else if says_the_same {
                assert_eq!(told, Ok(()), "{first:?}, then {second:?}");
                assert_eq!(get(&store, "a"), view);
                assert!(world.bytes() == before, "{first:?}, then {second:?}: written twice");
            } else {
                assert_eq!(told, Err(ErrorKind::AlreadySettled), "{first:?}, then {second:?}");
                assert_eq!(get(&store, "a"), view);
                assert!(world.bytes() == before, "{first:?}, then {second:?}: refused and written");
            }
        }
    }
}

#[test]
fn second_word_with_another_value_is_another_outcome() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a")).with_external_reference("ch_1");
    let first = claim.succeed_raw("receipt").unwrap();
    assert_eq!(claim.succeed_raw("receipt").unwrap(), first);
    for other in [claim.succeed_raw(""), claim.succeed_raw("receipt "), claim.fail_terminal("receipt")] {
        assert_eq!(other.unwrap_err().kind(), ErrorKind::AlreadySettled);
    }
    let claim = claim.with_external_reference("ch_2");
    assert_eq!(claim.succeed_raw("receipt").unwrap_err().kind(), ErrorKind::AlreadySettled);
    assert_eq!(replay(&store, &operation("a")), first);

    let claim = execute(&store, &operation("b"));
    claim.fail_terminal("declined").unwrap();
    assert_eq!(claim.fail_terminal("refused").unwrap_err().kind(), ErrorKind::AlreadySettled);
    let claim = execute(&store, &operation("c"));
    claim.fail_retryable("busy", Retry::after(HOUR)).unwrap();
    assert_eq!(claim.fail_retryable("no route", Retry::now()).unwrap_err().kind(), ErrorKind::AlreadySettled);
}

#[test]
fn second_word_may_come_after_the_retention_ended() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.succeed_raw("receipt").unwrap();
    world.clock.advance(8 * DAY);
    // It is known how it ended, no longer with what.
    assert_eq!(claim.fail_terminal("declined").unwrap_err().kind(), ErrorKind::AlreadySettled);
    assert_eq!(claim.succeed_raw("receipt").unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(status(&store, "a"), Status::Tombstone);
}

#[test]
fn late_word_of_the_same_attempt_on_an_unknown_outcome_is_accepted() {
    for settle in ALL {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        world.clock.advance(DAY);
        assert_eq!(unknown(&store, &operation("a")).cause(), UnknownCause::LeaseLapsed);
        settle.by(&claim).unwrap();
        world.now_and_reopened(store, |store| {
            assert_eq!(status(store, "a"), settle.leaves(), "{settle:?}");
            assert_eq!(get(store, "a").attempts, 1);
            assert!(store.verify().unwrap().is_clean());
        });
    }
}

#[test]
fn late_word_is_accepted_also_after_the_sweep_and_in_one_commit_with_the_next() {
    for settle in ALL {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        world.clock.advance(DAY);
        assert_eq!(store.sweep(10).unwrap().leases_ended, 1);
        settle.with_next(&claim).unwrap();
        assert_eq!(status(&store, "a"), settle.leaves(), "{settle:?}");
        assert!(store.get(key("next")).unwrap().is_some());
    }
}

#[test]
fn late_giving_up_keeps_since_when_and_why_it_is_unknown() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(DAY);
    let before = unknown(&store, &operation("a"));
    claim.with_external_reference("ch_1").give_up("the answer was lost").unwrap();
    let after = unknown(&store, &operation("a"));
    assert_eq!((after.since(), after.cause()), (before.since(), before.cause()));
    assert_eq!(after.failure().unwrap().message(), "the answer was lost");
    assert_eq!(after.external_reference(), Some("ch_1"));
}

#[test]
fn owner_of_an_unknown_outcome_may_speak_and_no_longer_work() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(DAY);
    let (before, view) = (world.bytes(), get(&store, "a"));
    for error in [claim.heartbeat(), claim.checkpoint(b"x"), claim.record_external_reference("ch_1")] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::LeaseLost);
    }
    assert!(!claim.is_current());
    assert_eq!(get(&store, "a"), view);
    assert!(world.bytes() == before);
}

#[test]
fn owner_who_did_it_is_believed_after_a_verdict_that_it_did_not_happen() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(DAY);
    store.resolve(key("a"), Verdict::DidNotHappen, &decision()).unwrap();
    // Nobody ran meanwhile: refusing the first-hand word would run the effect a second time.
    claim.succeed_raw("receipt").unwrap();
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &operation("a")).attempt(), 1));
}

#[test]
fn verdict_and_late_word_that_differ_leave_the_verdict() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    world.clock.advance(DAY);
    let verdict = Verdict::FailedForGood { failure: FailureReport::new("refused by the bank") };
    store.resolve(key("a"), verdict, &decision()).unwrap();
    assert_eq!(claim.succeed_raw("receipt").unwrap_err().kind(), ErrorKind::AlreadySettled);
    assert!(!replay(&store, &operation("a")).is_success());
}

#[test]
fn reattached_claim_settles_what_its_old_store_could_not() {
    for settle in ALL {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        let store = world.reopen(store);
        let claim = store.reattach(claim).unwrap();
        assert!(!claim.is_current(), "its lease is over");
        assert_eq!(claim.heartbeat().unwrap_err().kind(), ErrorKind::LeaseLost);
        settle.by(&claim).unwrap();
        drop(claim);
        after_drops(&store);
        world.now_and_reopened(store, |store| assert_eq!(status(store, "a"), settle.leaves(), "{settle:?}"));
    }
}

#[test]
fn settlement_that_was_committed_may_be_repeated_after_reattaching() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let first = claim.succeed_raw("receipt").unwrap();
    let store = world.reopen(store);
    let claim = store.reattach(claim).unwrap();
    assert_eq!(claim.succeed_raw("receipt").unwrap(), first);
    assert_eq!(claim.give_up("lost").unwrap_err().kind(), ErrorKind::AlreadySettled);
    assert_eq!(replay(&store, &operation("a")), first);
}

#[test]
fn reattaching_is_refused_once_another_attempt_was_granted() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    claim.fail_retryable("busy", Retry::now()).unwrap();
    let store = world.reopen(store);
    let second = execute(&store, &operation("a"));
    assert_eq!(store.reattach(claim).unwrap_err().kind(), ErrorKind::LeaseLost);
    second.succeed_raw("ok").unwrap();
    assert_eq!(replay(&store, &operation("a")).attempt(), 2);
}

#[test]
fn reattaching_to_another_store_is_refused() {
    let (world, elsewhere) = (World::new(), World::new());
    let (store, other) = (world.open(), elsewhere.open());
    let claim = execute(&store, &operation("a"));
    assert_eq!(other.reattach(claim).unwrap_err().kind(), ErrorKind::LeaseLost);
    let claim = execute(&store, &operation("b"));
    // The same number there, of another operation.
    let stranger = execute(&other, &operation("c"));
    assert_eq!(other.reattach(claim).unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(stranger.is_current());
    after_drops(&store);
    unknown(&store, &operation("b"));
}
