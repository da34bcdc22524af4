//! The rules of the outbox, tested: every cell of the table, where each state is found, and what no history may do.

mod history;
mod places;
mod table;

use super::{FUTURE, LONG_PAST, NOW, PAST};
use crate::machine::message::content::Message;
use crate::machine::message::event::{Again, Context, Failure, Grant};
use crate::machine::message::stored::{
    Dead, DeadCause, Due, Head, LaneWhenDead, Lease, Sequence, State, StoredMessage, Terms, Ticket,
};
use crate::machine::time::{Span, Timestamp};

const TAKE: u32 = 2;

fn context() -> Context {
    Context { now: NOW, incarnation: 5, fresh: Sequence(77), retention: Span::from_secs(60) }
}

fn message() -> Message {
    Message::new("invoice-981/receipt", "mail", "dear jane").with_lane("jane")
}

fn terms(attempts_max: u32) -> Terms {
    Terms { attempts_max, lane_when_dead: LaneWhenDead::GoesOn }
}

fn grant() -> Grant {
    Grant { lease: Span::from_secs(60), terms: terms(3) }
}

fn ticket() -> Ticket {
    Ticket { sequence: Sequence(7), take: TAKE }
}

fn failure(again: Again) -> Failure {
    Failure { error: "no route".into(), again }
}

fn stored(state: State) -> StoredMessage {
    let mut message = message();
    let fingerprint = message.fingerprint();
    if matches!(state, State::Delivered { .. } | State::Discarded { .. }) {
        message.payload = Vec::new();
    }
    let head = Head {
        sequence: Sequence(7),
        message,
        fingerprint,
        sent_at: LONG_PAST,
        attempts: TAKE,
        takes: TAKE,
        redrives: 0,
        last_error: Some("the one before".into()),
    };
    head.with(state)
}

fn due(is_suspect: bool) -> StoredMessage {
    stored(State::Due(Due { since: PAST, is_suspect }))
}

fn in_flight(until: Timestamp, attempts_max: u32) -> StoredMessage {
    stored(State::InFlight(Lease { incarnation: 4, until, terms: terms(attempts_max) }))
}

fn dead(cause: DeadCause, lane: LaneWhenDead) -> StoredMessage {
    stored(State::Dead(Dead { since: PAST, cause, lane }))
}

/// One of every kind, by name.
fn states() -> Vec<(&'static str, Option<StoredMessage>)> {
    let discarded = |purge_at| State::Discarded { at: PAST, by: "jane".into(), reason: "wrong".into(), purge_at };
    let unlaned = |mut stored: StoredMessage| {
        stored.head.message.lane = None;
        stored
    };
    vec![
        ("absent", None),
        ("over", Some(stored(State::Delivered { at: LONG_PAST, purge_at: NOW }))),
        ("due", Some(due(false))),
        ("suspect", Some(due(true))),
        ("in_flight", Some(in_flight(FUTURE, 3))),
        ("last_flight", Some(in_flight(FUTURE, 2))),
        ("lapsed", Some(in_flight(NOW, 3))),
        ("last_lapsed", Some(in_flight(NOW, 2))),
        ("waiting", Some(stored(State::Scheduled { at: FUTURE }))),
        ("waited", Some(stored(State::Scheduled { at: NOW }))),
        ("delivered", Some(stored(State::Delivered { at: PAST, purge_at: FUTURE }))),
        ("exhausted", Some(dead(DeadCause::AttemptsExhausted, LaneWhenDead::GoesOn))),
        ("exhausted_holding", Some(dead(DeadCause::AttemptsExhausted, LaneWhenDead::IsHeld))),
        ("exhausted_unlaned", Some(unlaned(dead(DeadCause::Refused, LaneWhenDead::GoesOn)))),
        ("silent", Some(dead(DeadCause::NeverAnswered, LaneWhenDead::GoesOn))),
        ("discarded", Some(stored(discarded(FUTURE)))),
        ("discarded_over", Some(stored(discarded(NOW)))),
    ]
}
