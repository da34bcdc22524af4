//! The closure way: what each ending of the effect becomes, and that the effect runs as often as it may.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "json")]
use dupeproof::Status;
use dupeproof::{Failure, FailureReport, Outcome, Response, ResponsePolicy, Retry, Store, UnknownCause};

use crate::support::*;

/// The provider: counts what it was asked to do.
#[derive(Default)]
struct Effects(AtomicU32);

impl Effects {
    fn happen(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs the effect "a", which ends as `ending` says, many times and over a reopening. Returns how often it happened and
/// what the last repeat was told.
fn run(ending: impl Fn() -> Result<Response, Failure>) -> (u32, Outcome<Vec<u8>>) {
    let world = World::new();
    let mut store = world.open();
    let effects = Effects::default();
    let attempt = |store: &Store| {
        store
            .run_raw(&operation("a"), |_claim| {
                effects.happen();
                ending()
            })
            .unwrap()
    };
    for _ in 0..5 {
        let _ = attempt(&store);
        let _ = attempt(&store);
        store = world.reopen(store);
    }
    let last = attempt(&store);
    assert!(store.verify().unwrap().is_clean());
    (effects.count(), last)
}

#[test]
fn effect_that_succeeds_happens_once() {
    let (effects, told) = run(|| Ok("receipt".into()));
    assert_eq!(effects, 1);
    assert!(matches!(told, Outcome::Succeeded(bytes) if bytes == b"receipt"));
}

#[test]
fn effect_that_fails_for_good_is_tried_once() {
    let (effects, told) = run(|| Err(Failure::terminal("declined")));
    assert_eq!(effects, 1);
    assert!(matches!(told, Outcome::FailedTerminal(replay) if replay.failure().unwrap().message() == "declined"));
    let (effects, told) = run(|| Err(Failure::terminal_with(FailureReport::new("declined").with_response("51"))));
    assert_eq!(effects, 1);
    assert!(matches!(told, Outcome::FailedTerminal(replay) if replay.raw() == &Response::from("51")));
}

#[test]
fn effect_whose_outcome_is_unknown_is_tried_once() {
    let (effects, told) = run(|| Err(Failure::unknown("lost")));
    assert_eq!(effects, 1);
    assert!(matches!(told, Outcome::Unknown(unknown) if unknown.cause() == UnknownCause::GaveUp));
}

#[test]
fn error_that_nobody_classified_makes_the_outcome_unknown() {
    let (effects, told) = run(|| {
        let amount: u32 = "a lot".parse()?;
        Ok(amount.to_string().into())
    });
    assert_eq!(effects, 1);
    let Outcome::Unknown(unknown) = told else { panic!("{told:?}") };
    assert_eq!(unknown.failure().unwrap().message(), "invalid digit found in string");
}

#[test]
fn effect_that_did_not_happen_is_tried_again_when_its_time_has_come() {
    let (effects, told) = run(|| Err(Failure::retryable("no route", Retry::after(HOUR))));
    assert_eq!(effects, 1);
    assert!(matches!(told, Outcome::RetryLater(later) if later.wait() == HOUR));
    let (effects, _) = run(|| Err(Failure::retryable("no route", Retry::now())));
    assert_eq!(effects, 11);
}

#[test]
fn effect_that_was_not_started_is_tried_again_at_once() {
    let (effects, told) = run(|| Err(Failure::not_started()));
    assert_eq!(effects, 11);
    assert!(matches!(told, Outcome::NotStarted));
}

#[test]
fn last_permitted_attempt_is_told_as_a_final_failure() {
    let store = Store::in_memory().unwrap();
    let once = operation("a").with_attempts(1);
    let busy = |_: &dupeproof::Claim| Err(Failure::retryable("busy", Retry::now()));
    for _ in 0..3 {
        let told = store.run_raw(&once, busy).unwrap();
        assert!(matches!(told, Outcome::FailedTerminal(replay) if replay.attempts_exhausted()));
    }
}

#[test]
fn panic_goes_on_and_leaves_the_outcome_unknown() {
    let world = World::new();
    let store = world.open();
    let effects = Effects::default();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.run_raw(&operation("a"), |_| {
            effects.happen();
            std::panic::resume_unwind(Box::new("after the charge"));
        })
    }));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "after the charge");
    after_drops(&store);
    world.now_and_reopened(store, |store| {
        let told = store.run_raw(&operation("a"), |_| {
            effects.happen();
            Ok(Response::Absent)
        });
        assert!(matches!(told.unwrap(), Outcome::Unknown(unknown) if unknown.cause() == UnknownCause::ClaimDropped));
    });
    assert_eq!(effects.count(), 1);
}

#[test]
fn panic_of_one_effect_leaves_the_others_alone() {
    let store = Store::in_memory().unwrap();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        store.run_raw(&operation("a"), |_| std::panic::resume_unwind(Box::new("boom")))
    }));
    let told = store.run_raw(&operation("b"), |_| Ok("fine".into())).unwrap();
    assert!(matches!(told, Outcome::Succeeded(bytes) if bytes == b"fine"));
}

#[test]
fn success_without_a_value_is_told_as_one() {
    for (response, policy) in
        [(Response::Absent, ResponsePolicy::Store), (Response::from("secret"), ResponsePolicy::ReferenceOnly)]
    {
        let store = Store::in_memory().unwrap();
        let policed = operation("a").with_response_policy(policy);
        for _ in 0..2 {
            let told = store.run_raw(&policed, |_| Ok(response.clone())).unwrap();
            assert!(matches!(told, Outcome::SucceededWithoutValue(replay) if replay.is_success()));
        }
    }
}

#[test]
fn those_who_may_not_run_are_told_why_and_their_effect_does_not_start() {
    let world = World::new();
    let store = world.open();
    let forbidden = |name: &str| {
        let asked = if name == "altered" { altered("done") } else { operation(name) };
        store.run_raw(&asked, |_| panic!("{name} ran")).unwrap()
    };
    execute(&store, &operation("expired")).succeed_raw("ok").unwrap();
    world.clock.advance(8 * DAY);
    let claim = execute(&store, &operation("running"));
    execute(&store, &operation("done")).succeed_raw("ok").unwrap();
    assert!(matches!(forbidden("running"), Outcome::InProgress(_)));
    assert!(matches!(forbidden("altered"), Outcome::Conflict(_)));
    assert!(matches!(forbidden("expired"), Outcome::Expired(_)));
    drop(claim);
}

#[test]
fn reference_recorded_by_the_effect_survives_its_failure() {
    let store = Store::in_memory().unwrap();
    let told = store.run_raw(&operation("a"), |claim| {
        claim.record_external_reference("ch_1")?;
        Err(Failure::unknown("lost"))
    });
    assert!(matches!(told.unwrap(), Outcome::Unknown(unknown) if unknown.external_reference() == Some("ch_1")));
}

#[cfg(feature = "json")]
mod typed {
    use serde::{Deserialize, Serialize};

    use super::*;

    /// A value that is not the same after a trip through JSON.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Receipt {
        id: u32,
        #[serde(skip)]
        connection: Option<u32>,
    }

    #[test]
    fn first_caller_gets_the_value_as_it_will_be_replayed() {
        let world = World::new();
        let store = world.open();
        let ask = |store: &Store| match store.run(&operation("a"), |_| Ok(Receipt { id: 7, connection: Some(3) })) {
            Ok(Outcome::Succeeded(receipt)) => receipt,
            other => panic!("{other:?}"),
        };
        world.now_and_reopened(store, |store| assert_eq!(ask(store), Receipt { id: 7, connection: None }));
    }

    #[test]
    fn typed_nothings_replay_as_their_own() {
        let store = Store::in_memory().unwrap();
        for _ in 0..2 {
            assert!(matches!(store.run(&operation("unit"), |_| Ok(())).unwrap(), Outcome::Succeeded(())));
            assert!(matches!(store.run(&operation("none"), |_| Ok(None::<u32>)).unwrap(), Outcome::Succeeded(None)));
            assert!(matches!(store.run(&operation("false"), |_| Ok(false)).unwrap(), Outcome::Succeeded(false)));
            assert!(matches!(store.run(&operation("zero"), |_| Ok(0_u8)).unwrap(), Outcome::Succeeded(0)));
        }
    }

    #[test]
    fn typed_response_over_the_limit_is_a_success_without_a_value() {
        let store = dupeproof::Options::new().with_response_limit(5).in_memory().unwrap();
        let effects = Effects::default();
        for _ in 0..2 {
            let told = store.run(&operation("a"), |_| {
                effects.happen();
                Ok("sixteen letters!".to_owned())
            });
            assert!(matches!(told.unwrap(), Outcome::SucceededWithoutValue(replay)
                if matches!(replay.raw(), Response::TooLarge { len: 18, .. })));
        }
        assert_eq!(effects.count(), 1);
    }

    #[test]
    fn value_that_does_not_come_back_is_an_error_and_the_operation_is_settled() {
        /// Written as a number, read as a text.
        #[derive(Debug, Deserialize)]
        struct OneWay(#[expect(dead_code, reason = "never read")] String);
        impl Serialize for OneWay {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u8(1)
            }
        }
        let store = Store::in_memory().unwrap();
        let error = store.run(&operation("a"), |_| Ok(OneWay("x".into()))).unwrap_err();
        assert_eq!(error.kind(), dupeproof::ErrorKind::Response);
        assert_eq!(status(&store, "a"), Status::Succeeded);
        assert_eq!(replay(&store, &operation("a")).response::<u8>().unwrap(), 1);
    }

    #[test]
    fn value_that_cannot_be_written_leaves_the_outcome_unknown_for_it_did_happen() {
        let store = Store::in_memory().unwrap();
        let unwritable = || std::collections::BTreeMap::from([(vec![1], 2)]);
        let told = store.run(&operation("a"), |_| Ok(unwritable())).unwrap();
        assert!(matches!(told, Outcome::Unknown(_)), "{told:?}");
        assert!(matches!(store.run(&operation("a"), |_| Ok(unwritable())).unwrap(), Outcome::Unknown(_)));
    }
}
