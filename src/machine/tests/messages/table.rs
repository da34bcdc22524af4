//! The whole table: every state × every event, each cell written by hand and none missing.

use std::collections::BTreeMap;

use super::*;
use crate::machine::message::event::{Answer, Change, Event, Rejection, Transition};
use crate::machine::message::index::Position;
use crate::machine::message::stored::{Aged, MessageStatus};
use crate::machine::message::transition::transition;
use crate::machine::policy::Backoff;

/// `events: states -> what the one who asked is told, and the status that is written`. An answer without a status wrote
/// nothing. "+" means: the ticket of the last take; "-": another one.
const TABLE: &str = "
send: absent over discarded_over -> enqueued due
send: due suspect in_flight last_flight lapsed last_lapsed waiting waited -> duplicate
send: delivered exhausted exhausted_holding exhausted_unlaned silent discarded -> duplicate
send_delayed: absent over discarded_over -> enqueued scheduled
send_delayed: due suspect in_flight last_flight lapsed last_lapsed waiting waited -> duplicate
send_delayed: delivered exhausted exhausted_holding exhausted_unlaned silent discarded -> duplicate
send_altered: absent over discarded_over -> enqueued due
send_altered: due suspect in_flight last_flight lapsed last_lapsed waiting waited -> conflict
send_altered: delivered exhausted exhausted_holding exhausted_unlaned silent discarded -> conflict

take: due suspect lapsed waited -> taken in_flight
take: in_flight last_flight waiting delivered exhausted exhausted_holding exhausted_unlaned -> not due
take: last_lapsed silent discarded -> not due
take: absent over discarded_over -> absent
take_strict: due suspect lapsed waited -> accepted dead
take_strict: in_flight last_flight waiting delivered exhausted exhausted_holding exhausted_unlaned -> not due
take_strict: last_lapsed silent discarded -> not due
take_strict: absent over discarded_over -> absent
take_behind: due suspect lapsed waited -> behind
take_behind: in_flight last_flight waiting delivered exhausted exhausted_holding exhausted_unlaned -> not due
take_behind: last_lapsed silent discarded -> not due
take_behind: absent over discarded_over -> absent

+delivered: in_flight last_flight suspect lapsed last_lapsed silent -> accepted delivered
+delivered: due waiting waited delivered exhausted exhausted_holding exhausted_unlaned discarded -> late
+delivered: absent over discarded_over -> late
+failed: in_flight -> accepted scheduled
+failed: last_flight -> accepted dead
+failed: suspect lapsed -> accepted due
+failed: last_lapsed silent -> accepted dead
+failed: due waiting waited delivered exhausted exhausted_holding exhausted_unlaned discarded -> late
+failed: absent over discarded_over -> late
+refused: in_flight last_flight -> accepted dead
+refused: suspect lapsed -> accepted due
+refused: last_lapsed silent -> accepted dead
+refused: due waiting waited delivered exhausted exhausted_holding exhausted_unlaned discarded -> late
+refused: absent over discarded_over -> late
+gave_back: in_flight last_flight -> accepted due
+gave_back: absent over due suspect lapsed last_lapsed waiting waited delivered exhausted -> late
+gave_back: exhausted_holding exhausted_unlaned silent discarded discarded_over -> late
+heartbeat: in_flight last_flight -> accepted in_flight
+heartbeat: absent over due suspect lapsed last_lapsed waiting waited delivered exhausted -> late
+heartbeat: exhausted_holding exhausted_unlaned silent discarded discarded_over -> late

-delivered -failed -refused -gave_back -heartbeat: absent over due suspect in_flight last_flight lapsed -> late
-delivered -failed -refused -gave_back -heartbeat: last_lapsed waiting waited delivered exhausted -> late
-delivered -failed -refused -gave_back -heartbeat: exhausted_holding exhausted_unlaned silent discarded -> late
-delivered -failed -refused -gave_back -heartbeat: discarded_over -> late

owner_gone: in_flight lapsed -> accepted due
owner_gone: last_flight last_lapsed -> accepted dead
owner_gone: waited -> accepted due
owner_gone: absent over due suspect waiting delivered exhausted exhausted_holding exhausted_unlaned -> nothing
owner_gone: silent discarded discarded_over -> nothing
tick: lapsed waited -> accepted due
tick: last_lapsed -> accepted dead
tick: over discarded_over -> nothing removed
tick: absent due suspect in_flight last_flight waiting delivered exhausted exhausted_holding -> nothing
tick: exhausted_unlaned silent discarded -> nothing

redrive: exhausted exhausted_holding exhausted_unlaned silent last_lapsed -> accepted due
redrive: due suspect in_flight last_flight lapsed waiting waited delivered discarded -> not dead
redrive: absent over discarded_over -> absent
discard: due suspect lapsed waiting waited exhausted exhausted_holding -> accepted discarded
discard: exhausted_unlaned silent last_lapsed -> accepted discarded
discard: in_flight last_flight delivered discarded -> not discardable
discard: absent over discarded_over -> absent
";

fn events() -> Vec<(String, Event)> {
    let altered = Message::new("invoice-981/receipt", "mail", "dear joe").with_lane("jane");
    let strict = Grant { terms: terms(2), ..grant() };
    let plain = [
        ("send", Event::Send(message().into())),
        ("send_delayed", Event::Send(message().with_delay(std::time::Duration::from_secs(5)).into())),
        ("send_altered", Event::Send(altered.into())),
        ("take", Event::Take(grant(), Position::Head)),
        ("take_strict", Event::Take(strict, Position::Head)),
        ("take_behind", Event::Take(grant(), Position::Behind)),
        ("owner_gone", Event::OwnerGone),
        ("tick", Event::Tick),
        ("redrive", Event::Redrive),
        ("discard", Event::Discard { by: "jane".into(), reason: "wrong address".into() }),
    ];
    let with_ticket = |ticket: Ticket| {
        [
            ("delivered", Event::Delivered(ticket)),
            ("failed", Event::Failed(ticket, failure(Again::Backoff(Backoff::default())))),
            ("refused", Event::Failed(ticket, failure(Again::Never))),
            ("gave_back", Event::GaveBack(ticket)),
            ("heartbeat", Event::Heartbeat(ticket, Span::from_secs(60))),
        ]
    };
    // An earlier take, a later one that never was, and that of another message.
    let stale = [
        Ticket { take: TAKE - 1, ..ticket() },
        Ticket { take: TAKE + 1, ..ticket() },
        Ticket { sequence: Sequence(6), ..ticket() },
    ];
    let plain = plain.into_iter().map(|(name, event)| (name.to_owned(), event));
    let current = with_ticket(ticket()).into_iter().map(|(name, event)| (format!("+{name}"), event));
    let stale = stale.into_iter().flat_map(with_ticket).map(|(name, event)| (format!("-{name}"), event));
    plain.chain(current).chain(stale).collect()
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
        Err(Rejection::Conflict) => return "conflict".into(),
        Err(Rejection::Late) => return "late".into(),
        Err(Rejection::NotDue(_)) => return "not due".into(),
        Err(Rejection::Behind) => return "behind".into(),
        Err(Rejection::Absent) => return "absent".into(),
        Err(Rejection::NotDead(_)) => return "not dead".into(),
        Err(Rejection::NotDiscardable(_)) => return "not discardable".into(),
    };
    let answer = match answer {
        Answer::Enqueued => "enqueued",
        Answer::Duplicate => "duplicate",
        Answer::Taken => "taken",
        Answer::Accepted => "accepted",
        Answer::Nothing => "nothing",
    };
    match change {
        Change::Keep => answer.to_owned(),
        Change::Put(stored) => format!("{answer} {}", stored.status()),
        Change::Remove => format!("{answer} removed"),
    }
}

#[test]
fn every_state_of_a_message_meets_every_event_as_the_table_says() {
    let mut cells = expectations();
    let mut wrong = Vec::new();
    let mut met = Vec::new();
    let (events, states) = (events(), states());
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
fn no_event_changes_what_must_never_change_of_a_message() {
    for (event_name, event) in events() {
        for (state_name, state) in states() {
            let Ok(Transition { change: Change::Put(written), answer }) =
                transition(state.clone(), event.clone(), &context())
            else {
                continue;
            };
            let cell = format!("{event_name} × {state_name}");
            assert_eq!(written.check(), Ok(()), "{cell}");
            let aged = state.and_then(|stored| match stored.at(NOW) {
                Aged::Same(stored) | Aged::Moved(stored) => Some(stored),
                Aged::Gone => None,
            });
            let Some(before) = aged else {
                assert!(answer == Answer::Enqueued && written.head.sequence == context().fresh, "{cell}");
                assert_eq!((written.head.takes, written.head.attempts), (0, 0), "{cell}");
                continue;
            };
            let (old, new) = (&before.head, &written.head);
            assert_eq!((&old.message.id, &old.message.topic), (&new.message.id, &new.message.topic), "{cell}");
            assert_eq!(old.message.lane, new.message.lane, "{cell}");
            assert_eq!((&old.fingerprint, old.sent_at), (&new.fingerprint, new.sent_at), "{cell}");
            assert_eq!(new.takes - old.takes, u32::from(answer == Answer::Taken), "{cell}: every take counts");
            let is_finished = matches!(written.status(), MessageStatus::Delivered | MessageStatus::Discarded);
            assert_eq!(new.message.payload.is_empty(), is_finished, "{cell}: the content is kept until it is finished");
            if new.sequence != old.sequence {
                assert!(event_name == "redrive" && new.sequence == context().fresh, "{cell}");
            }
        }
    }
}

fn after(state: StoredMessage, event: Event) -> StoredMessage {
    match transition(Some(state), event, &context()) {
        Ok(Transition { change: Change::Put(stored), .. }) => *stored,
        other => panic!("{other:?}"),
    }
}

#[test]
fn failure_waits_as_long_as_the_handler_or_the_backoff_says() {
    let said = failure(Again::After(Span::from_secs(9)));
    let State::Scheduled { at } = after(in_flight(FUTURE, 3), Event::Failed(ticket(), said)).state else { panic!() };
    assert_eq!(at, NOW.plus(Span::from_secs(9)));
    let backoff = Backoff::exponential(std::time::Duration::from_secs(8), std::time::Duration::from_secs(600));
    let failed = after(in_flight(FUTURE, 3), Event::Failed(ticket(), failure(Again::Backoff(backoff))));
    let State::Scheduled { at } = failed.state else { panic!() };
    assert_eq!(at, NOW.plus(backoff.delay(TAKE, 7)));
    assert_eq!(failed.head.last_error.as_deref(), Some("no route"));
}

#[test]
fn dead_letter_keeps_the_last_error_also_if_the_last_attempt_said_nothing() {
    let exhausted = after(in_flight(FUTURE, 2), Event::Failed(ticket(), failure(Again::After(Span::ZERO))));
    assert_eq!(exhausted.head.last_error.as_deref(), Some("no route"));
    let silent = after(in_flight(FUTURE, 2), Event::OwnerGone);
    assert_eq!(silent.head.last_error.as_deref(), Some("the one before"));
    assert!(matches!(silent.state, State::Dead(Dead { cause: DeadCause::NeverAnswered, since: NOW, .. })));
}

#[test]
fn lapsed_lease_makes_the_message_due_since_the_lease_ended_and_suspect() {
    let lapsed = in_flight(PAST, 3).at(NOW);
    let Aged::Moved(StoredMessage { state: State::Due(due), .. }) = lapsed else { panic!("{lapsed:?}") };
    assert_eq!(due, Due { since: PAST, is_suspect: true });
}

#[test]
fn attempt_that_was_given_back_does_not_count_and_its_ticket_is_used_up() {
    let given_back = after(in_flight(FUTURE, 3), Event::GaveBack(ticket()));
    assert_eq!((given_back.head.attempts, given_back.head.takes), (TAKE - 1, TAKE));
    assert_eq!(given_back.state, State::Due(Due { since: NOW, is_suspect: false }));
    let again = after(given_back, Event::Take(grant(), Position::Head));
    assert_ne!(again.ticket(), ticket());
}

#[test]
fn redriven_letter_starts_over_and_keeps_what_was_counted() {
    let redriven = after(dead(DeadCause::AttemptsExhausted, LaneWhenDead::GoesOn), Event::Redrive);
    assert_eq!((redriven.head.attempts, redriven.head.takes, redriven.head.redrives), (0, TAKE, 1));
    assert_eq!(redriven.head.sequence, context().fresh, "its lane went on: it goes to the end");
    let holding = after(dead(DeadCause::AttemptsExhausted, LaneWhenDead::IsHeld), Event::Redrive);
    assert_eq!(holding.head.sequence, Sequence(7), "its lane was held: it keeps its place");
    let silent = after(dead(DeadCause::NeverAnswered, LaneWhenDead::GoesOn), Event::Redrive);
    assert!(matches!(silent.state, State::Due(Due { is_suspect: true, .. })), "it may have killed its relay");
}

#[test]
fn heartbeat_never_shortens_a_lease() {
    let beat = after(in_flight(FUTURE, 3), Event::Heartbeat(ticket(), Span::from_millis(1)));
    assert!(matches!(beat.state, State::InFlight(Lease { until: FUTURE, .. })));
    let beat = after(in_flight(FUTURE, 3), Event::Heartbeat(ticket(), Span::from_secs(3600)));
    let State::InFlight(lease) = beat.state else { panic!() };
    assert_eq!(lease.until, NOW.plus(Span::from_secs(3600)));
}

#[test]
fn take_is_leased_to_this_open_from_now_on() {
    let taken = after(due(false), Event::Take(grant(), Position::Head));
    let State::InFlight(lease) = taken.state else { panic!() };
    assert_eq!(lease, Lease { incarnation: 5, until: NOW.plus(Span::from_secs(60)), terms: terms(3) });
    assert_eq!((taken.head.attempts, taken.head.takes), (TAKE + 1, TAKE + 1));
}
