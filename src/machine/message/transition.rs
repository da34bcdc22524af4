//! The whole state machine of a message: every state × every event, in one exhaustive match.

use super::content::Message;
use super::event::{Again, Answer, Change, Context, Event, Failure, Grant, Rejection, Transition};
use super::index::Position;
use super::stored::{
    Aged, Dead, DeadCause, Due, Head, LaneWhenDead, Lease, Sequence, State, StoredMessage, Terms, dead, silent,
};
use crate::machine::time::Span;

/// Decides what an event does to a message and what the one who asked is told.
///
/// `stored` is the row as it is on disk, or nothing. It is first aged to `context.now`: a lease that lapsed counts from
/// its instant, whether or not anybody has come by.
pub(crate) fn transition(
    stored: Option<StoredMessage>,
    event: Event,
    context: &Context,
) -> Result<Transition, Rejection> {
    use Event as E;
    use State as S;

    let (stored, aged) = match stored.map(|stored| stored.at(context.now)) {
        Some(Aged::Same(stored)) => (stored, false),
        Some(Aged::Moved(stored)) => (stored, true),
        Some(Aged::Gone) => return absent(event, context, Change::Remove),
        None => return absent(event, context, Change::Keep),
    };
    if event.ticket().is_some_and(|ticket| ticket != stored.ticket()) {
        return Err(Rejection::Late);
    }

    let StoredMessage { head, state } = stored;
    let status = state.status();
    match (state, event) {
        // The id is taken, whatever became of the message.
        (
            S::Due(_) | S::InFlight(_) | S::Scheduled { .. } | S::Delivered { .. } | S::Dead(_) | S::Discarded { .. },
            E::Send(message),
        ) => {
            if message.fingerprint() == head.fingerprint {
                keep(Answer::Duplicate)
            } else {
                Err(Rejection::Conflict)
            }
        }

        (S::Due(_), E::Take(_, Position::Behind)) => Err(Rejection::Behind),
        (S::Due(_), E::Take(grant, Position::Head)) => taken(head, grant, context),
        (
            S::InFlight(_) | S::Scheduled { .. } | S::Delivered { .. } | S::Dead(_) | S::Discarded { .. },
            E::Take(..),
        ) => Err(Rejection::NotDue(status)),

        // The word of the one who has it. One who was too slow for its lease is still heard while nobody took it since:
        // that saves a second delivery.
        (S::InFlight(_), E::Delivered(_)) => accept(delivered(head, context)),
        (S::InFlight(lease), E::Failed(_, failure)) => accept(failed(head, lease.terms, failure, context)),
        (S::Due(Due { is_suspect: true, .. }), E::Delivered(_)) => accept(delivered(head, context)),
        (S::Dead(Dead { cause: DeadCause::NeverAnswered, .. }), E::Delivered(_)) => accept(delivered(head, context)),
        (S::Due(due @ Due { is_suspect: true, .. }), E::Failed(_, failure)) => {
            accept(Head { last_error: Some(failure.error), ..head }.with(S::Due(due)))
        }
        (S::Dead(dead @ Dead { cause: DeadCause::NeverAnswered, .. }), E::Failed(_, failure)) => {
            accept(Head { last_error: Some(failure.error), ..head }.with(S::Dead(dead)))
        }
        (
            S::Due(_) | S::Scheduled { .. } | S::Delivered { .. } | S::Dead(_) | S::Discarded { .. },
            E::Delivered(_) | E::Failed(..),
        ) => Err(Rejection::Late),

        // It was not tried, so the attempt does not count.
        (S::InFlight(_), E::GaveBack(_)) => {
            let attempts = head.attempts.saturating_sub(1);
            accept(Head { attempts, ..head }.with(S::Due(Due { since: context.now, is_suspect: false })))
        }
        (S::InFlight(lease), E::Heartbeat(_, span)) => {
            let until = context.now.plus(span).max(lease.until);
            accept(head.with(S::InFlight(Lease { until, ..lease })))
        }
        (
            S::Due(_) | S::Scheduled { .. } | S::Delivered { .. } | S::Dead(_) | S::Discarded { .. },
            E::GaveBack(_) | E::Heartbeat(..),
        ) => Err(Rejection::Late),

        (S::InFlight(lease), E::OwnerGone) => accept(silent(head, lease, context.now)),
        (
            state @ (S::Due(_) | S::Scheduled { .. } | S::Delivered { .. } | S::Dead(_) | S::Discarded { .. }),
            E::OwnerGone | E::Tick,
        )
        | (state @ S::InFlight(_), E::Tick) => {
            let stored = head.with(state);
            if aged { accept(stored) } else { keep(Answer::Nothing) }
        }

        // What a person decides.
        (S::Dead(dead), E::Redrive) => accept(redriven(head, dead, context)),
        (S::Due(_) | S::InFlight(_) | S::Scheduled { .. } | S::Delivered { .. } | S::Discarded { .. }, E::Redrive) => {
            Err(Rejection::NotDead(status))
        }
        (S::Due(_) | S::Scheduled { .. } | S::Dead(_), E::Discard { by, reason }) => {
            let (at, purge_at) = (context.now, context.now.plus(context.retention));
            accept(head.emptied().with(S::Discarded { at, by, reason, purge_at }))
        }
        (S::InFlight(_) | S::Delivered { .. } | S::Discarded { .. }, E::Discard { .. }) => {
            Err(Rejection::NotDiscardable(status))
        }
    }
}

fn keep(answer: Answer) -> Result<Transition, Rejection> {
    Ok(Transition { change: Change::Keep, answer })
}

fn accept(stored: StoredMessage) -> Result<Transition, Rejection> {
    Ok(Transition { change: Change::Put(stored.into()), answer: Answer::Accepted })
}

/// No message, or one that is forgotten by now; `leftover` says what becomes of such a row.
fn absent(event: Event, context: &Context, leftover: Change) -> Result<Transition, Rejection> {
    match event {
        Event::Send(message) => {
            let change = Change::Put(enqueued(*message, context).into());
            Ok(Transition { change, answer: Answer::Enqueued })
        }
        Event::Tick => Ok(Transition { change: leftover, answer: Answer::Nothing }),
        Event::OwnerGone => keep(Answer::Nothing),
        Event::Take(..) | Event::Redrive | Event::Discard { .. } => Err(Rejection::Absent),
        Event::Delivered(_) | Event::Failed(..) | Event::GaveBack(_) | Event::Heartbeat(..) => Err(Rejection::Late),
    }
}

fn enqueued(message: Message, context: &Context) -> StoredMessage {
    let state = if message.delay == Span::ZERO {
        State::Due(Due { since: context.now, is_suspect: false })
    } else {
        State::Scheduled { at: context.now.plus(message.delay) }
    };
    let head = Head {
        sequence: context.fresh,
        fingerprint: message.fingerprint(),
        message: Message { delay: Span::ZERO, ..message },
        sent_at: context.now,
        attempts: 0,
        takes: 0,
        redrives: 0,
        last_error: None,
    };
    head.with(state)
}

/// Grants an attempt, unless all of them are used up by what this relay permits.
fn taken(head: Head, grant: Grant, context: &Context) -> Result<Transition, Rejection> {
    if head.attempts >= grant.terms.attempts_max {
        return accept(dead(head, grant.terms, DeadCause::AttemptsExhausted, context.now));
    }
    let (attempts, takes) = (head.attempts.saturating_add(1), head.takes.saturating_add(1));
    let until = context.now.plus(grant.lease);
    let lease = Lease { incarnation: context.incarnation, until, terms: grant.terms };
    let stored = Head { attempts, takes, ..head }.with(State::InFlight(lease));
    Ok(Transition { change: Change::Put(stored.into()), answer: Answer::Taken })
}

fn delivered(head: Head, context: &Context) -> StoredMessage {
    let (at, purge_at) = (context.now, context.now.plus(context.retention));
    head.emptied().with(State::Delivered { at, purge_at })
}

fn failed(head: Head, terms: Terms, failure: Failure, context: &Context) -> StoredMessage {
    let head = Head { last_error: Some(failure.error), ..head };
    let delay = match failure.again {
        Again::Never => return dead(head, terms, DeadCause::Refused, context.now),
        _ if head.attempts >= terms.attempts_max => {
            return dead(head, terms, DeadCause::AttemptsExhausted, context.now);
        }
        Again::After(delay) => delay,
        Again::Backoff(backoff) => backoff.delay(head.attempts, head.sequence.0),
    };
    head.with(State::Scheduled { at: context.now.plus(delay) })
}

/// It is sent again under the same id. Its lane went on without it, so it goes to the end; a lane that was held goes on
/// with it.
fn redriven(head: Head, dead: Dead, context: &Context) -> StoredMessage {
    let sequence: Sequence = match (&head.message.lane, dead.lane) {
        (Some(_), LaneWhenDead::GoesOn) => context.fresh,
        (Some(_), LaneWhenDead::IsHeld) | (None, _) => head.sequence,
    };
    let redrives = head.redrives.saturating_add(1);
    let due = Due { since: context.now, is_suspect: dead.cause == DeadCause::NeverAnswered };
    Head { sequence, redrives, attempts: 0, ..head }.with(State::Due(due))
}
