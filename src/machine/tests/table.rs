//! The whole table: every state × every event, each cell written by hand and none missing.

use std::collections::BTreeMap;

use super::*;
use crate::machine::event::{About, Answer, Change, Grant, ProbeTerms, Rejection, Transition, Verdict};
use crate::machine::key::{Kind, StepKey};
use crate::machine::record::Inquiry;
use crate::machine::response::ExternalReference;
use crate::machine::retention::Aged;
use crate::machine::transition::transition;
use crate::machine::workflow::{Finish, RunAct};

/// `event: states -> what the one who asked is told, and the status that is written`. An answer without a status wrote
/// nothing. "+" means: the holder's token; "-": a token that is no longer current.
const TABLE: &str = "
begin: absent over reserved_lapsed retry_due retry_verdict -> granted executing
begin: reserved executing resent -> in progress
begin: executing_lapsed unknown resendable undue asked for_person -> unknown
begin: retry_waiting -> retry later
begin: succeeded failed exhausted -> replay
begin: succeeded_expired failed_expired tomb_succeeded tomb_failed -> expired

begin_deduping: absent over reserved_lapsed retry_due retry_verdict -> granted executing
begin_deduping: resendable -> resend executing
begin_deduping: reserved executing resent -> in progress
begin_deduping: executing_lapsed unknown undue asked for_person -> unknown
begin_deduping: retry_waiting -> retry later
begin_deduping: succeeded failed exhausted -> replay
begin_deduping: succeeded_expired failed_expired tomb_succeeded tomb_failed -> expired

begin_unheard: absent over reserved reserved_lapsed executing executing_lapsed retry_due retry_verdict -> granted executing
begin_unheard: unknown resendable undue asked for_person -> granted executing
begin_unheard: resent -> in progress
begin_unheard: retry_waiting -> retry later
begin_unheard: succeeded failed exhausted -> replay
begin_unheard: succeeded_expired failed_expired tomb_succeeded tomb_failed -> expired

begin_altered: absent over -> granted executing
begin_altered: reserved reserved_lapsed executing executing_lapsed resent -> conflict
begin_altered: retry_due retry_waiting retry_verdict unknown resendable undue asked for_person -> conflict
begin_altered: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> conflict

reserve: absent over reserved_lapsed retry_due retry_verdict -> granted reserved
reserve: reserved executing resent -> in progress
reserve: executing_lapsed unknown resendable undue asked for_person -> unknown
reserve: retry_waiting -> retry later
reserve: succeeded failed exhausted -> replay
reserve: succeeded_expired failed_expired tomb_succeeded tomb_failed -> expired

+start: reserved -> accepted executing
+start: executing resent -> accepted
+start: absent over reserved_lapsed executing_lapsed retry_due retry_waiting retry_verdict unknown resendable undue asked for_person -> lease lost
+start: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> lease lost

+heartbeat: reserved -> accepted reserved
+heartbeat: executing resent -> accepted executing
+heartbeat: absent over reserved_lapsed executing_lapsed retry_due retry_waiting retry_verdict -> lease lost
+heartbeat: unknown resendable undue asked for_person -> lease lost
+heartbeat: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> lease lost

+checkpoint: reserved -> accepted reserved
+checkpoint: executing resent -> accepted executing
+checkpoint: absent over reserved_lapsed executing_lapsed retry_due retry_waiting retry_verdict -> lease lost
+checkpoint: unknown resendable undue asked for_person -> lease lost
+checkpoint: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> lease lost

+refer: reserved -> accepted reserved
+refer: executing resent -> accepted executing
+refer: absent over reserved_lapsed executing_lapsed retry_due retry_waiting retry_verdict -> lease lost
+refer: unknown resendable undue asked for_person -> lease lost
+refer: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> lease lost

+succeed: executing executing_lapsed resent unknown resendable undue asked for_person retry_verdict -> accepted succeeded
+succeed: reserved -> not started
+succeed: absent over reserved_lapsed -> lease lost
+succeed: succeeded succeeded_expired tomb_succeeded -> accepted
+succeed: retry_due retry_waiting failed failed_expired exhausted tomb_failed -> already settled

+succeed_otherwise: executing executing_lapsed resent unknown resendable undue asked for_person retry_verdict -> accepted succeeded
+succeed_otherwise: reserved -> not started
+succeed_otherwise: absent over reserved_lapsed -> lease lost
+succeed_otherwise: succeeded_expired tomb_succeeded -> accepted
+succeed_otherwise: retry_due retry_waiting succeeded failed failed_expired exhausted tomb_failed -> already settled

+fail: executing executing_lapsed resent unknown resendable undue asked for_person retry_verdict -> accepted failed_terminal
+fail: reserved -> not started
+fail: absent over reserved_lapsed -> lease lost
+fail: failed failed_expired tomb_failed -> accepted
+fail: retry_due retry_waiting succeeded succeeded_expired exhausted tomb_succeeded -> already settled

+retry: reserved executing executing_lapsed unknown resendable undue asked for_person -> accepted failed_retryable
+retry: resent -> accepted unknown
+retry: reserved_lapsed retry_due retry_waiting retry_verdict exhausted -> accepted
+retry: absent over -> lease lost
+retry: succeeded succeeded_expired failed failed_expired tomb_succeeded tomb_failed -> already settled

+give_up: executing executing_lapsed resent unknown resendable undue asked for_person -> accepted unknown
+give_up: reserved -> not started
+give_up: absent over reserved_lapsed -> lease lost
+give_up: retry_due retry_waiting retry_verdict -> already settled
+give_up: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> already settled

+release: reserved executing executing_lapsed unknown resendable undue asked for_person -> accepted failed_retryable
+release: resent -> accepted unknown
+release: reserved_lapsed retry_verdict -> accepted
+release: absent over -> lease lost
+release: retry_due retry_waiting -> already settled
+release: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> already settled

+abandon: reserved -> accepted failed_retryable
+abandon: executing resent -> accepted unknown
+abandon: reserved_lapsed -> accepted failed_retryable
+abandon: executing_lapsed -> accepted unknown
+abandon: succeeded_expired failed_expired -> accepted tombstone
+abandon: retry_due retry_waiting retry_verdict unknown resendable undue asked for_person -> accepted
+abandon: succeeded failed exhausted tomb_succeeded tomb_failed -> accepted
+abandon: absent over -> lease lost

-start -heartbeat -checkpoint -refer: absent over reserved reserved_lapsed executing executing_lapsed resent -> lease lost
-start -heartbeat -checkpoint -refer: retry_due retry_waiting retry_verdict unknown resendable undue asked for_person -> lease lost
-start -heartbeat -checkpoint -refer: succeeded succeeded_expired failed failed_expired exhausted -> lease lost
-start -heartbeat -checkpoint -refer: tomb_succeeded tomb_failed -> lease lost
-succeed -fail -retry -give_up -release -abandon: absent over reserved reserved_lapsed executing -> lease lost
-succeed -fail -retry -give_up -release -abandon: executing_lapsed resent retry_due retry_waiting -> lease lost
-succeed -fail -retry -give_up -release -abandon: retry_verdict unknown resendable undue asked for_person succeeded failed -> lease lost
-succeed -fail -retry -give_up -release -abandon: succeeded_expired failed_expired exhausted -> lease lost
-succeed -fail -retry -give_up -release -abandon: tomb_succeeded tomb_failed -> lease lost

owner_gone: absent over -> nothing
owner_gone: reserved reserved_lapsed -> accepted failed_retryable
owner_gone: executing executing_lapsed resent -> accepted unknown
owner_gone: succeeded_expired failed_expired -> accepted tombstone
owner_gone: retry_due retry_waiting retry_verdict unknown resendable undue asked for_person -> accepted
owner_gone: succeeded failed exhausted tomb_succeeded tomb_failed -> accepted

tick: absent -> nothing
tick: over -> nothing removed
tick: reserved_lapsed -> accepted failed_retryable
tick: executing_lapsed -> accepted unknown
tick: succeeded_expired failed_expired -> accepted tombstone
tick: reserved executing resent retry_due retry_waiting retry_verdict unknown resendable undue asked for_person -> accepted
tick: succeeded failed exhausted tomb_succeeded tomb_failed -> accepted

happened: executing_lapsed unknown resendable undue asked for_person -> accepted succeeded
failed_for_good: executing_lapsed unknown resendable undue asked for_person -> accepted failed_terminal
did_not_happen: executing_lapsed unknown resendable undue asked for_person -> accepted failed_retryable
still_unknown: executing_lapsed unknown resendable undue asked for_person -> accepted unknown
happened failed_for_good did_not_happen still_unknown: absent over -> absent
happened failed_for_good did_not_happen still_unknown: reserved reserved_lapsed executing resent -> not unknown
happened failed_for_good did_not_happen still_unknown: retry_due retry_waiting retry_verdict -> not unknown
happened failed_for_good did_not_happen still_unknown: succeeded succeeded_expired failed failed_expired -> not unknown
happened failed_for_good did_not_happen still_unknown: exhausted tomb_succeeded tomb_failed -> not unknown

probe: executing_lapsed unknown resendable -> probing unknown
probe: undue -> not due
probe: asked -> asked elsewhere
probe: for_person -> for person
probe_early: executing_lapsed unknown resendable undue -> probing unknown
probe_early: asked -> asked elsewhere
probe_early: for_person -> for person
probe_spent: executing_lapsed unknown resendable -> accepted unknown
probe_spent: undue -> not due
probe_spent: asked -> asked elsewhere
probe_spent: for_person -> for person
probe probe_early probe_spent: absent over -> absent
probe probe_early probe_spent: reserved reserved_lapsed executing resent retry_due retry_waiting retry_verdict -> not unknown
probe probe_early probe_spent: succeeded succeeded_expired failed failed_expired exhausted -> not unknown
probe probe_early probe_spent: tomb_succeeded tomb_failed -> not unknown

begin begin_deduping begin_unheard reserve probe probe_early probe_spent: open turned_back -> is a run
begin_altered: open turned_back -> conflict
happened failed_for_good did_not_happen still_unknown: open turned_back -> is a run
+start +heartbeat +checkpoint +refer +succeed +succeed_otherwise +fail: open turned_back -> is a run
+retry +give_up +release: open turned_back -> is a run
+abandon: open turned_back -> accepted
-start -heartbeat -checkpoint -refer -succeed -fail -retry -give_up -release -abandon: open turned_back -> lease lost
owner_gone tick: open turned_back -> accepted

enter: absent over -> accepted open
enter: open -> accepted
enter: turned_back -> turned back
enter: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> run over
finish: absent over open -> accepted succeeded
finish: turned_back -> turned back
finish: succeeded tomb_succeeded succeeded_expired -> accepted
finish: failed failed_expired exhausted tomb_failed -> run over
give_up_run: absent over open -> accepted failed_terminal
give_up_run: turned_back -> turned back
give_up_run: failed failed_expired exhausted tomb_failed -> accepted
give_up_run: succeeded succeeded_expired tomb_succeeded -> run over
turn_back: absent over open -> accepted failed_terminal
turn_back: turned_back -> accepted
turn_back: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> run over
undo finish_back: absent over -> absent
undo finish_back: open -> not turned back
undo: turned_back -> accepted
undo: succeeded succeeded_expired failed failed_expired exhausted tomb_succeeded tomb_failed -> run over
finish_back: turned_back -> accepted failed_terminal
finish_back: failed failed_expired exhausted tomb_failed -> accepted
finish_back: succeeded succeeded_expired tomb_succeeded -> run over
enter finish give_up_run turn_back undo finish_back: reserved reserved_lapsed executing executing_lapsed -> no run
enter finish give_up_run turn_back undo finish_back: resent retry_due retry_waiting retry_verdict unknown -> no run
enter finish give_up_run turn_back undo finish_back: resendable undue asked for_person -> no run

compensate: absent over -> absent
compensate: succeeded succeeded_expired tomb_succeeded -> accepted
compensate: reserved reserved_lapsed executing executing_lapsed resent retry_due retry_waiting -> not compensable
compensate: retry_verdict unknown resendable undue asked for_person -> not compensable
compensate: failed failed_expired exhausted tomb_failed open turned_back -> not compensable
";

fn states() -> Vec<(&'static str, Option<Record>)> {
    let opaque = work();
    let failed_and_over =
        State::FailedTerminal { failure: failure(), cause: TerminalCause::Reported, terms: terms(PAST, FUTURE) };
    vec![
        ("absent", None),
        ("over", Some(tombstone(Ended::Succeeded, PAST))),
        ("reserved", Some(reserved(FUTURE))),
        ("reserved_lapsed", Some(reserved(NOW))),
        ("executing", Some(executing(FUTURE))),
        ("executing_lapsed", Some(executing(NOW))),
        ("resent", Some(resent())),
        ("retry_due", Some(retryable(RetryCause::Reported(failure()), NOW))),
        ("retry_waiting", Some(retryable(RetryCause::Reported(failure()), FUTURE))),
        ("retry_verdict", Some(retryable(RetryCause::Verdict, PAST))),
        ("unknown", Some(unknown(opaque.clone()))),
        ("resendable", Some(unknown(Work { policy: deduping(), ..opaque }))),
        ("undue", Some(asked(Inquiry::Open { at: FUTURE }))),
        ("asked", Some(asked(Inquiry::Asking { until: FUTURE }))),
        ("for_person", Some(asked(Inquiry::ForPerson))),
        ("succeeded", Some(succeeded(terms(FUTURE, FUTURE)))),
        ("succeeded_expired", Some(succeeded(terms(NOW, FUTURE)))),
        ("failed", Some(failed(TerminalCause::Reported))),
        ("failed_expired", Some(record(failed_and_over))),
        ("exhausted", Some(failed(TerminalCause::AttemptsExhausted))),
        ("tomb_succeeded", Some(tombstone(Ended::Succeeded, FUTURE))),
        ("tomb_failed", Some(tombstone(Ended::FailedTerminal, FUTURE))),
        ("open", Some(open(Course::Forward))),
        ("turned_back", Some(open(backward()))),
    ]
}

fn events() -> Vec<(String, Event)> {
    let altered = Intent { fingerprint: Fingerprint::of_bytes(b"another payload"), ..intent() };
    let unheard = Intent { unheard: vec![OURS], ..intent() };
    let plain = [
        ("begin", Event::Begin(intent())),
        ("begin_deduping", Event::Begin(Intent { policy: deduping(), ..intent() })),
        ("begin_unheard", Event::Begin(unheard)),
        ("begin_altered", Event::Begin(altered)),
        ("reserve", Event::Begin(Intent { phase: Phase::Reserve, ..intent() })),
        ("owner_gone", Event::OwnerGone),
        ("tick", Event::Tick),
        ("probe", Event::Probe(probing())),
        ("probe_early", Event::Probe(ProbeTerms { early: true, ..probing() })),
        ("probe_spent", Event::Probe(ProbeTerms { probes_max: 0, ..probing() })),
        (
            "happened",
            Event::Resolve(
                Verdict::Happened { response: Response::Absent, reference: None },
                decision(),
                About::Whatever,
            ),
        ),
        ("failed_for_good", Event::Resolve(Verdict::FailedForGood { failure: failure() }, decision(), About::Whatever)),
        ("did_not_happen", Event::Resolve(Verdict::DidNotHappen, decision(), About::Whatever)),
        (
            "still_unknown",
            Event::Resolve(Verdict::StillUnknown { next: Span::from_secs(1) }, decision(), About::Whatever),
        ),
    ];
    let wanted = |act| Event::Run(run_intent(), act);
    let done = Finish::Succeeded(Response::from("receipt"));
    let of_runs = [
        ("enter", wanted(RunAct::Enter(StepKey::new("charge").expect("valid")))),
        ("finish", wanted(RunAct::Finish(done))),
        ("give_up_run", wanted(RunAct::Finish(Finish::Failed(failure())))),
        ("turn_back", wanted(RunAct::TurnBack(failure()))),
        ("undo", wanted(RunAct::Undo)),
        ("finish_back", wanted(RunAct::Finish(Finish::Compensated))),
        ("compensate", Event::Compensate),
    ];
    let otherwise = Settlement::Succeeded { response: Response::Absent, reference: None };
    let with_token = |token: Token| {
        [
            ("start", Event::Start(token)),
            ("heartbeat", Event::Heartbeat(token)),
            ("checkpoint", Event::Checkpoint(token, b"half-way".to_vec())),
            ("refer", Event::Refer(token, ExternalReference::new("ch_1").expect("valid"))),
            ("succeed", Event::Settle(token, success())),
            ("succeed_otherwise", Event::Settle(token, otherwise.clone())),
            ("fail", Event::Settle(token, Settlement::FailedTerminal { failure: failure(), reference: None })),
            ("retry", Event::Settle(token, Settlement::FailedRetryable { failure: failure(), retry: retry() })),
            ("give_up", Event::Settle(token, Settlement::GaveUp { failure: failure(), reference: None })),
            ("release", Event::Settle(token, Settlement::Released)),
            ("abandon", Event::Abandon(token)),
        ]
    };
    let current = with_token(token()).map(|(name, event)| (format!("+{name}"), event));
    // An earlier attempt, a later one that never was, and another record's.
    let stale = [
        Token { attempt: ATTEMPT - 1, ..token() },
        Token { attempt: ATTEMPT + 1, ..token() },
        Token { id: RecordId(6), ..token() },
    ];
    let stale = stale.into_iter().flat_map(with_token).filter(|(name, _)| *name != "succeed_otherwise");
    let plain = plain.into_iter().chain(of_runs).map(|(name, event)| (name.to_owned(), event));
    plain.chain(current).chain(stale.map(|(name, event)| (format!("-{name}"), event))).collect()
}

fn expectations() -> BTreeMap<(&'static str, &'static str), &'static str> {
    let mut cells = BTreeMap::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let (events, rest) = line.split_once(": ").expect("event: states");
        let (states, outcome) = rest.split_once(" -> ").expect("states -> outcome");
        for event in events.split(' ') {
            for state in states.split(' ') {
                assert_eq!(cells.insert((event, state), outcome), None, "{event} × {state} is written twice");
            }
        }
    }
    cells
}

fn outcome(result: &Result<Transition, Rejection>) -> String {
    let Transition { change, answer } = match result {
        Ok(transition) => transition,
        Err(Rejection::LeaseLost) => return "lease lost".into(),
        Err(Rejection::AlreadySettled(_)) => return "already settled".into(),
        Err(Rejection::NotStarted) => return "not started".into(),
        Err(Rejection::Absent) => return "absent".into(),
        Err(Rejection::NotUnknown(_)) => return "not unknown".into(),
        Err(Rejection::OtherAttempt(_)) => return "other attempt".into(),
        Err(Rejection::AskedElsewhere) => return "asked elsewhere".into(),
        Err(Rejection::NotDue) => return "not due".into(),
        Err(Rejection::ForPerson) => return "for person".into(),
        Err(Rejection::RunOver(_)) => return "run over".into(),
        Err(Rejection::TurnedBack) => return "turned back".into(),
        Err(Rejection::NotTurnedBack) => return "not turned back".into(),
        Err(Rejection::NotRun) => return "no run".into(),
        Err(Rejection::IsRun) => return "is a run".into(),
        Err(Rejection::NotCompensable(_)) => return "not compensable".into(),
        Err(
            other @ (Rejection::OtherRun
            | Rejection::OtherDefinition
            | Rejection::Blocked
            | Rejection::StepsHeld
            | Rejection::NotCompensated
            | Rejection::RunFull),
        ) => return other.to_string(),
    };
    let answer = match answer {
        Answer::Granted(_, Grant::Fresh) => "granted",
        Answer::Granted(_, Grant::Resend) => "resend",
        Answer::Replay(_) => "replay",
        Answer::InProgress(_) => "in progress",
        Answer::RetryLater(_) => "retry later",
        Answer::Unknown(_) => "unknown",
        Answer::Conflict(_) => "conflict",
        Answer::Expired(_) => "expired",
        Answer::Accepted(_) => "accepted",
        Answer::Probing(_) => "probing",
        Answer::Nothing => "nothing",
    };
    match change {
        Change::Keep => answer.to_owned(),
        Change::Put(record) => format!("{answer} {}", record.status()),
        Change::Remove => format!("{answer} removed"),
    }
}

#[test]
fn every_state_meets_every_event_as_the_table_says() {
    let (states, events) = (states(), events());
    let mut cells = expectations();
    let mut wrong = Vec::new();
    let mut met = Vec::new();
    for (event_name, event) in &events {
        for (state_name, state) in &states {
            let found = outcome(&transition(state.clone(), event.clone(), &context()));
            let cell = (event_name.as_str(), *state_name);
            match cells.get(&cell) {
                Some(expected) if *expected == found => {}
                expected => wrong.push(format!("{event_name} × {state_name}: expected {expected:?}, found {found:?}")),
            }
            met.push(cell);
        }
    }
    assert!(wrong.is_empty(), "{} cells differ:\n{}", wrong.len(), wrong.join("\n"));
    cells.retain(|cell, _| !met.contains(cell));
    assert!(cells.is_empty(), "cells that are no pair of a state and an event: {cells:?}");
}

#[test]
fn no_cell_changes_what_must_never_change() {
    for (event_name, event) in events() {
        for (state_name, state) in states() {
            let Ok(Transition { change, answer }) = transition(state.clone(), event.clone(), &context()) else {
                continue;
            };
            let cell = format!("{event_name} × {state_name}");
            let aged = state.and_then(|record| match record.at(NOW) {
                Aged::Same(record) | Aged::Moved(record) => Some(record),
                Aged::Gone => None,
            });
            let told = match &answer {
                Answer::Granted(record, _)
                | Answer::Replay(record)
                | Answer::InProgress(record)
                | Answer::RetryLater(record)
                | Answer::Unknown(record)
                | Answer::Conflict(record)
                | Answer::Expired(record)
                | Answer::Accepted(record)
                | Answer::Probing(record) => Some(record.as_ref()),
                Answer::Nothing => None,
            };
            let Change::Put(written) = &change else {
                assert_eq!(told, aged.as_ref(), "{cell}: who changes nothing is told what is there");
                continue;
            };
            assert_eq!(told, Some(written.as_ref()), "{cell}: what is told is what is written");
            assert_eq!(written.check(), Ok(()), "{cell}");
            let granted = matches!(&answer, Answer::Granted(..));
            let Some(before) = aged else {
                let is_fresh = written.head.id == context().fresh_id && written.head.attempt == 1;
                assert!(is_fresh && (granted || written.head.identity.kind() == Kind::Run), "{cell}");
                continue;
            };
            assert_eq!(written.head.id, before.head.id, "{cell}");
            assert_eq!(written.head.identity, before.head.identity, "{cell}");
            assert_eq!(written.head.fingerprint, before.head.fingerprint, "{cell}");
            assert_eq!(written.head.created_at, before.head.created_at, "{cell}");
            let counted = written.head.attempt - before.head.attempt;
            let has_no_claim_to_find = event_name != "begin_unheard";
            assert!(
                counted == u32::from(granted) || !has_no_claim_to_find && counted == 0,
                "{cell}: counted {counted}"
            );
        }
    }
}
