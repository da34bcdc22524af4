//! Each rule's details: what exactly is written where the table only names a status.

use super::*;
use crate::machine::event::{About, Answer, Change, Grant, Rejection, Verdict};
use crate::machine::policy::Retention;
use crate::machine::record::{Ruling, Status};
use crate::machine::response::ExternalReference;
use crate::machine::transition::transition;

fn at(millis: u64) -> Context {
    let now = Timestamp::from_unix_millis(millis);
    Context { now, wall: now, ..context() }
}

#[track_caller]
fn after_at(record: &Record, event: Event, context: &Context) -> Record {
    let transition = transition(Some(record.clone()), event, context).expect("accepted");
    match transition.change {
        Change::Put(record) => *record,
        other => panic!("expected a write, found {other:?}"),
    }
}

#[track_caller]
fn after(record: &Record, event: Event) -> Record {
    after_at(record, event, &context())
}

fn answer_at(record: &Record, intent: Intent, context: &Context) -> Answer {
    transition(Some(record.clone()), Event::Begin(intent), context).expect("begin is never refused").answer
}

fn asks_deduping() -> Intent {
    Intent { policy: deduping(), ..intent() }
}

fn reference(name: &str) -> ExternalReference {
    ExternalReference::new(name).expect("valid")
}

#[track_caller]
fn lease_of(record: &Record) -> Lease {
    match &record.state {
        State::Reserved(held) | State::Executing(held) => held.lease,
        other => panic!("expected a lease, found {other:?}"),
    }
}

#[test]
fn first_attempt_is_counted_when_granted_and_leased_from_then() {
    let record = transition(None, Event::Begin(intent()), &context()).expect("granted").change;
    let Change::Put(record) = record else { panic!("expected a write, found {record:?}") };
    assert_eq!(record.head.attempt, 1);
    let lease = lease_of(&record);
    assert_eq!((lease.granted_at, lease.until), (NOW, NOW.plus(policy().lease)));
    assert_eq!(lease.ends_by, NOW.plus(policy().max_execution));
    assert_eq!(lease.holder, Holder { incarnation: 5, grant: 50 });
}

#[test]
fn lease_is_renewed_from_now_but_never_beyond_the_execution_it_may_take() {
    let renewed = after_at(&executing(FUTURE), Event::Heartbeat(token()), &at(1_000_001));
    assert_eq!(lease_of(&renewed).until, FUTURE, "ends_by is FUTURE");
    let mut long = executing(FUTURE);
    if let State::Executing(held) = &mut long.state {
        held.lease.ends_by = Timestamp::FOREVER;
    }
    let renewed = after(&long, Event::Heartbeat(token()));
    assert_eq!(lease_of(&renewed).until, FUTURE.max(NOW.plus(policy().lease)), "and never shortened");
}

#[test]
fn lease_that_ends_now_has_ended() {
    let ends_now = executing(NOW);
    assert!(matches!(answer_at(&ends_now, intent(), &at(999_999)), Answer::InProgress(_)));
    assert!(matches!(answer_at(&ends_now, intent(), &at(1_000_000)), Answer::Unknown(_)));
}

#[test]
fn unknown_outcome_counts_from_the_end_of_the_lease_not_from_who_looks() {
    let State::Unknown(unresolved) = after(&executing(PAST), Event::Tick).state else { panic!("expected unknown") };
    assert_eq!((unresolved.since, unresolved.cause), (PAST, UnknownCause::LeaseLapsed));
}

#[test]
fn retention_counts_from_settlement_and_tombstone_after_response() {
    let State::Succeeded { terms, .. } = after(&executing(FUTURE), settle(success())).state else { panic!("settled") };
    assert_eq!(terms.settled_at, NOW);
    assert_eq!(terms.expires_at, NOW.plus(Span::from_days(7)));
    assert_eq!(terms.purge_at, NOW.plus(Span::from_days(97)));
}

#[test]
fn what_is_kept_for_ever_never_expires() {
    let policy = Policy { retention: Retention::forever(), ..policy() };
    let record = record(State::Executing(held(Work { policy, ..work() }, FUTURE)));
    let settled = after(&record, settle(success()));
    let late = Context { now: Timestamp::from_unix_millis(u64::MAX - 1), ..context() };
    assert!(matches!(answer_at(&settled, intent(), &late), Answer::Replay(_)));
}

#[test]
fn response_expires_at_its_instant_and_its_tombstone_at_its_own() {
    let settled = succeeded(terms(NOW, FUTURE));
    assert!(matches!(answer_at(&settled, intent(), &at(999_999)), Answer::Replay(_)));
    assert!(matches!(answer_at(&settled, intent(), &at(1_000_000)), Answer::Expired(_)));
    assert!(matches!(answer_at(&settled, intent(), &at(1_099_999)), Answer::Expired(_)));
    assert!(matches!(answer_at(&settled, intent(), &at(1_100_000)), Answer::Granted(_, Grant::Fresh)));
}

#[test]
fn key_that_is_new_again_gets_a_new_id_so_that_no_old_claim_fits() {
    let over = tombstone(Ended::Succeeded, PAST);
    let again = after(&over, Event::Begin(intent()));
    assert_eq!((again.head.id, again.head.attempt), (context().fresh_id, 1));
}

#[test]
fn nothing_unsettled_ever_ages_away() {
    for record in [
        retryable(RetryCause::Verdict, PAST),
        retryable(RetryCause::Reported(failure()), FUTURE),
        unknown(work()),
        after(&reserved(PAST), Event::Tick),
        after(&executing(PAST), Event::Tick),
    ] {
        let late = Context { now: Timestamp::from_unix_millis(u64::MAX - 1), ..context() };
        let ticked = transition(Some(record.clone()), Event::Tick, &late).expect("a tick is never refused");
        assert_eq!(ticked.change, Change::Keep, "{record:?}");
    }
}

#[test]
fn retry_waits_from_the_failure_and_may_run_at_its_instant() {
    let failed = after(&executing(FUTURE), settle(Settlement::FailedRetryable { failure: failure(), retry: retry() }));
    assert!(matches!(answer_at(&failed, intent(), &at(1_004_999)), Answer::RetryLater(_)));
    assert!(matches!(answer_at(&failed, intent(), &at(1_005_000)), Answer::Granted(_, Grant::Fresh)));
}

#[test]
fn last_permitted_attempt_that_fails_makes_the_failure_final() {
    let last = Policy { attempts_max: ATTEMPT, ..policy() };
    let fails = || settle(Settlement::FailedRetryable { failure: failure(), retry: retry() });
    let record = record(State::Executing(held(Work { policy: last, ..work() }, FUTURE)));
    let exhausted = after(&record, fails());
    assert!(matches!(exhausted.state, State::FailedTerminal { cause: TerminalCause::AttemptsExhausted, .. }));

    let lapsed = super::record(State::Reserved(held(Work { policy: last, first_start: None, ..work() }, PAST)));
    let exhausted = after(&lapsed, Event::Tick);
    assert!(matches!(exhausted.state, State::FailedTerminal { cause: TerminalCause::AttemptsExhausted, .. }));

    let handed_back = after(&record, settle(Settlement::Released));
    assert_eq!(handed_back.status(), Status::FailedRetryable, "handing back is no failure");
}

#[test]
fn verdict_that_it_did_not_happen_grants_one_more_attempt_beyond_the_limit() {
    let last = Policy { attempts_max: ATTEMPT, ..policy() };
    let lost = unknown(Work { policy: last, ..work() });
    let found = after(&lost, Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    let asked = Intent { policy: last, ..intent() };
    let granted = after(&found, Event::Begin(asked));
    assert_eq!(granted.head.attempt, ATTEMPT + 1);
    let failed = after(
        &granted,
        Event::Settle(granted.token(), Settlement::FailedRetryable { failure: failure(), retry: retry() }),
    );
    assert_eq!(failed.status(), Status::FailedTerminal);
}

#[test]
fn decision_is_kept_with_its_instant_and_what_it_said() {
    let resolved = after(&unknown(work()), Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    let [kept] = &resolved.head.decisions[..] else { panic!("one decision") };
    assert_eq!((kept.at, kept.ruling), (NOW, Ruling::DidNotHappen));
    assert_eq!((&*kept.by, &*kept.reason), ("jane", "asked them"));
}

#[test]
fn owner_who_did_it_is_believed_after_a_verdict_that_it_did_not_happen_while_nobody_else_ran() {
    let found = after(&unknown(work()), Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    assert_eq!(after(&found, settle(success())).status(), Status::Succeeded);
    let granted = after(&found, Event::Begin(intent()));
    assert_eq!(transition(Some(granted), settle(success()), &context()), Err(Rejection::LeaseLost));
}

#[test]
fn external_reference_stays_until_a_fresh_attempt() {
    let referred = after(&executing(FUTURE), Event::Refer(token(), reference("ch_1")));
    let lost = after(&referred, Event::OwnerGone);
    assert_eq!(lost.head.reference, Some(reference("ch_1")));
    let happened = Verdict::Happened { response: Response::Absent, reference: None };
    let settled = after(&lost, Event::Resolve(happened, decision(), About::Whatever));
    assert_eq!(settled.head.reference, Some(reference("ch_1")));
    let tombstone = after_at(&settled, Event::Tick, &at(1_000_000 + 8 * 86_400_000));
    assert_eq!((tombstone.status(), tombstone.head.reference), (Status::Tombstone, Some(reference("ch_1"))));
    let found = after(&lost, Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    assert_eq!(after(&found, Event::Begin(intent())).head.reference, None, "a probe must not follow the old one");
}

#[test]
fn checkpoint_reaches_the_next_attempt() {
    let noted = after(&executing(FUTURE), Event::Checkpoint(token(), b"page 3".to_vec()));
    let found =
        after(&after(&noted, Event::OwnerGone), Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    let State::Executing(next) = after(&found, Event::Begin(intent())).state else { panic!("executing") };
    assert_eq!(next.work.checkpoint.as_deref(), Some(&b"page 3"[..]));
}

#[test]
fn fresh_downstream_key_is_the_next_generation_and_starts_a_fresh_window() {
    let retry = retry().with_fresh_downstream_key();
    let failed = after(&executing(FUTURE), settle(Settlement::FailedRetryable { failure: failure(), retry }));
    assert_eq!(failed.head.generation, 1);
    let granted = after_at(&failed, Event::Begin(intent()), &at(2_000_000));
    let State::Executing(held) = granted.state else { panic!("executing") };
    assert_eq!(held.work.first_start.map(|first| first.store), Some(Timestamp::from_unix_millis(2_000_000)));
}

#[test]
fn every_other_way_back_keeps_the_downstream_key() {
    let plain = after(&executing(FUTURE), settle(Settlement::FailedRetryable { failure: failure(), retry: retry() }));
    let verdict = after(&unknown(work()), Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    let released = after(&executing(FUTURE), settle(Settlement::Released));
    for record in [plain, verdict, released] {
        assert_eq!(record.head.generation, 0);
    }
}

#[test]
fn resend_is_a_new_attempt_and_ends_with_the_window() {
    // Started at 900 s; the window is an hour.
    let lost = unknown(Work { policy: deduping(), ..work() });
    let last_moment = 900_000 + 3_599_999;
    let Answer::Granted(record, Grant::Resend) = answer_at(&lost, asks_deduping(), &at(last_moment)) else {
        panic!("expected a re-send")
    };
    assert_eq!((record.head.attempt, record.head.generation), (ATTEMPT + 1, 0));
    let lease = lease_of(&record);
    assert_eq!(lease.ends_by, Timestamp::from_unix_millis(last_moment + 1), "no renewal reaches beyond the window");
    assert!(lease.until <= lease.ends_by);
    assert!(matches!(answer_at(&lost, asks_deduping(), &at(last_moment + 1)), Answer::Unknown(_)));
}

#[test]
fn either_clock_ends_the_window_and_so_does_a_wall_clock_that_went_back() {
    let lost = unknown(Work { policy: deduping(), ..work() });
    let wall = |millis| Context { wall: Timestamp::from_unix_millis(millis), ..context() };
    assert!(matches!(answer_at(&lost, asks_deduping(), &wall(900_000)), Answer::Granted(_, Grant::Resend)));
    assert!(matches!(answer_at(&lost, asks_deduping(), &wall(899_999)), Answer::Unknown(_)));
    assert!(matches!(answer_at(&lost, asks_deduping(), &wall(900_000 + 3_600_000)), Answer::Unknown(_)));
    let store_only = Context { wall: NOW, ..at(900_000 + 3_600_000) };
    assert!(matches!(answer_at(&lost, asks_deduping(), &store_only), Answer::Unknown(_)));
}

#[test]
fn resend_needs_the_declaration_of_both_attempts_and_one_left() {
    let declared = unknown(Work { policy: deduping(), ..work() });
    assert!(matches!(answer_at(&declared, intent(), &context()), Answer::Unknown(_)));
    assert!(matches!(answer_at(&unknown(work()), asks_deduping(), &context()), Answer::Unknown(_)));
    let last = Intent { policy: Policy { attempts_max: ATTEMPT, ..deduping() }, ..intent() };
    assert!(matches!(answer_at(&declared, last, &context()), Answer::Unknown(_)));
    let never_started = unknown(Work { policy: deduping(), first_start: None, ..work() });
    assert!(matches!(answer_at(&never_started, asks_deduping(), &context()), Answer::Unknown(_)));
}

/// The re-sending attempt did not happen; the one before it may have. Calling the operation failed would run it anew,
/// outside the provider's window or under another key: a second charge.
#[test]
fn failed_resend_leaves_the_outcome_unknown_under_the_same_downstream_key() {
    let retry = retry().with_fresh_downstream_key();
    let again = after(&resent(), settle(Settlement::FailedRetryable { failure: failure(), retry }));
    let State::Unknown(unresolved) = &again.state else { panic!("expected unknown, found {again:?}") };
    assert_eq!((unresolved.cause, unresolved.since), (UnknownCause::OwnerGone, LONG_PAST), "as it was before");
    assert_eq!(again.head.generation, 0);
    // It may be sent again, when the retry says and within the window.
    assert!(matches!(answer_at(&again, asks_deduping(), &at(1_004_999)), Answer::Unknown(_)));
    assert!(matches!(answer_at(&again, asks_deduping(), &at(1_005_000)), Answer::Granted(_, Grant::Resend)));
    assert!(matches!(answer_at(&again, asks_deduping(), &at(900_000 + 3_600_000)), Answer::Unknown(_)));

    let handed_back = after(&resent(), settle(Settlement::Released));
    assert_eq!(handed_back.status(), Status::Unknown);
    let late = after(&after(&resent(), Event::OwnerGone), settle(Settlement::Released));
    assert_eq!(late.status(), Status::Unknown);
}

#[test]
fn last_permitted_resend_that_fails_does_not_make_the_failure_final() {
    let mut last = resent();
    if let State::Executing(held) = &mut last.state {
        held.work.policy.attempts_max = ATTEMPT;
    }
    let failed = after(&last, settle(Settlement::FailedRetryable { failure: failure(), retry: retry() }));
    assert_eq!(failed.status(), Status::Unknown);
}

#[test]
fn doubt_ends_with_a_verdict_that_it_did_not_happen() {
    let lost = after(&resent(), Event::OwnerGone);
    let found = after(&lost, Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever));
    let granted = after(&found, Event::Begin(intent()));
    let failed = after(&granted, Event::Settle(granted.token(), Settlement::Released));
    assert_eq!(failed.status(), Status::FailedRetryable);
}

/// Nobody heard of the re-send's grant, so it was not sent; whether the first attempt happened is as open as before.
#[test]
fn unheard_resend_is_no_fresh_attempt() {
    let unheard = Intent { unheard: vec![OURS], ..asks_deduping() };
    assert!(matches!(answer_at(&resent(), unheard.clone(), &context()), Answer::InProgress(_)));
    let lost = after(&resent(), Event::OwnerGone);
    assert!(matches!(answer_at(&lost, unheard.clone(), &context()), Answer::Granted(_, Grant::Resend)));
    assert!(matches!(answer_at(&lost, unheard, &at(900_000 + 3_600_000)), Answer::Unknown(_)));
}

#[test]
fn claim_that_was_given_up_is_not_given_to_a_nonce() {
    let given_up = after(&executing(FUTURE), settle(Settlement::GaveUp { failure: failure(), reference: None }));
    let unheard = Intent { unheard: vec![OURS], ..intent() };
    assert!(matches!(answer_at(&given_up, unheard, &context()), Answer::Unknown(_)));
}

#[test]
fn what_is_given_up_shows_why_and_what_is_known() {
    let reference = Some(reference("ch_1"));
    let given_up =
        after(&executing(FUTURE), settle(Settlement::GaveUp { failure: failure(), reference: reference.clone() }));
    let State::Unknown(unresolved) = given_up.state else { panic!("expected unknown") };
    assert_eq!((unresolved.cause, unresolved.since), (UnknownCause::GaveUp, NOW));
    assert_eq!((unresolved.failure, given_up.head.reference), (Some(failure()), reference));
}

/// Somebody else decided in the meantime, and a newer attempt was lost as well: the old look says nothing about it.
#[test]
fn verdict_about_an_earlier_attempt_is_refused() {
    let verdict = |attempt| Event::Resolve(Verdict::DidNotHappen, decision(), About::Attempt(attempt));
    let lost = unknown(work());
    assert_eq!(transition(Some(lost.clone()), verdict(ATTEMPT - 1), &context()), Err(Rejection::OtherAttempt(ATTEMPT)));
    assert_eq!(after(&lost, verdict(ATTEMPT)).status(), Status::FailedRetryable);
}
