//! The whole state machine: every state × every event, in one exhaustive match.
//!
//! The order of checks is the same on every path: identity (the caller found the row), then fingerprint, then state.
//! What is refused, and every answer but a grant, leaves the stored row byte for byte as it was.

use super::event::{Answer, Change, Context, Event, Grant, Intent, Phase, Rejection, Settlement, Transition};
use super::fingerprint::Comparison;
use super::lease::{exhausted, lost, released, resend_window_left};
use super::policy::{DownstreamKey, RetryDelay};
use super::reconcile::{ask, heard_late, resolve};
use super::record::{Doubt, FirstStart, Head, Held, Lease, Record, RetryCause, Retryable, State, TerminalCause};
use super::record::{Ended, Holder, Inquiry, Status, UnknownCause, Unresolved, Work};
use super::response::{ExternalReference, FailureReport};
use super::retention::{Aged, terms};
use super::time::{Span, Timestamp};
use super::workflow::{act, compensable};

/// Decides what an event does to a record and what the one who asked is told.
///
/// `stored` is the row as it is on disk, or nothing. The machine first ages it to `context.now`: a lease that lapsed or
/// a retention that ended counts from its instant, whether or not the sweep has come by.
pub(crate) fn transition(stored: Option<Record>, event: Event, context: &Context) -> Result<Transition, Rejection> {
    use Event as E;
    use State as S;

    let (record, aged) = match stored.map(|record| record.at(context.now)) {
        Some(Aged::Same(record)) => (record, false),
        Some(Aged::Moved(record)) => (record, true),
        Some(Aged::Gone) => return absent(event, context, Change::Remove),
        None => return absent(event, context, Change::Keep),
    };
    if matches!(event, E::Begin(_)) && context.parent.is_some_and(|parent| record.is_of_earlier_life(parent)) {
        return absent(event, context, Change::Keep);
    }
    if let E::Begin(intent) = &event
        && intent.fingerprint.compare(&record.head.fingerprint) == Comparison::Differs
    {
        return keep(Answer::Conflict(record.into()));
    }
    if event.token().is_some_and(|token| token != record.token()) {
        return Err(Rejection::LeaseLost);
    }

    let Record { head, state } = record;
    let status = state.status();
    match (state, event) {
        // Begin: run it, or say why not.
        (S::Reserved(held), E::Begin(intent)) if is_unheard(&held, &intent) => {
            granted_again(head, held.work, intent, context)
        }
        (S::Executing(held), E::Begin(intent)) if is_unheard(&held, &intent) => {
            granted_again(head, held.work, intent, context)
        }
        (state @ (S::Reserved(_) | S::Executing(_)), E::Begin(_)) => keep(Answer::InProgress(head.with(state).into())),
        (S::FailedRetryable(retryable), E::Begin(intent)) if retryable.retry_at <= context.now => {
            granted_anew(head, retryable.work, intent, context)
        }
        (state @ S::FailedRetryable(_), E::Begin(_)) => keep(Answer::RetryLater(head.with(state).into())),
        (S::Unknown(unresolved), E::Begin(intent)) => begin_unknown(head, unresolved, intent, context),
        (state @ (S::Succeeded { .. } | S::FailedTerminal { .. }), E::Begin(_)) => {
            keep(Answer::Replay(head.with(state).into()))
        }
        (state @ S::Tombstone { .. }, E::Begin(_)) => keep(Answer::Expired(head.with(state).into())),

        // Start: the effect may happen from now on.
        (S::Reserved(held), E::Start(_)) => {
            let work = started(held.work, context);
            accept(head.with(S::Executing(Held { work, lease: held.lease })))
        }
        (state @ S::Executing(_), E::Start(_)) => unchanged(head.with(state)),

        // What a holder may do while it holds.
        (S::Reserved(held), E::Heartbeat(_)) => accept(head.with(S::Reserved(renewed(held, context)))),
        (S::Executing(held), E::Heartbeat(_)) => accept(head.with(S::Executing(renewed(held, context)))),
        (S::Reserved(held), E::Checkpoint(_, bytes)) => accept(head.with(S::Reserved(noted(held, bytes)))),
        (S::Executing(held), E::Checkpoint(_, bytes)) => accept(head.with(S::Executing(noted(held, bytes)))),
        (state @ (S::Reserved(_) | S::Executing(_)), E::Refer(_, reference)) => {
            accept(referred(head, Some(reference)).with(state))
        }
        (
            S::FailedRetryable(_)
            | S::Unknown(_)
            | S::Succeeded { .. }
            | S::FailedTerminal { .. }
            | S::Tombstone { .. },
            E::Start(_) | E::Heartbeat(_) | E::Checkpoint(..) | E::Refer(..),
        ) => Err(Rejection::LeaseLost),

        // Settle: the holder's word. While nobody else was granted an attempt, it is first-hand evidence even late.
        (S::Reserved(held), E::Settle(_, Settlement::Released)) => {
            accept(released(head, held, RetryCause::Released, context.now))
        }
        (S::Reserved(held), E::Settle(_, settlement @ Settlement::FailedRetryable { .. })) => {
            accept(settled(head, held.work, None, settlement, context))
        }
        (S::Reserved(_), E::Settle(..)) => Err(Rejection::NotStarted),
        (S::Executing(held), E::Settle(_, settlement)) => {
            let holder = held.lease.holder;
            accept(settled(head, held.work, Some(holder), settlement, context))
        }
        (S::Unknown(unresolved), E::Settle(_, settlement)) => {
            accept(settled_late(head, unresolved, settlement, context))
        }
        (S::FailedRetryable(retryable), E::Settle(_, settlement)) => {
            settle_retryable(head, retryable, settlement, context)
        }
        (state @ (S::Succeeded { .. } | S::FailedTerminal { .. } | S::Tombstone { .. }), E::Settle(_, settlement)) => {
            if says_the_same(&head, &state, &settlement) {
                unchanged(head.with(state))
            } else {
                Err(Rejection::AlreadySettled(status))
            }
        }

        // The holder is gone.
        (S::Reserved(held), E::Abandon(_)) => accept(released(head, held, RetryCause::Released, context.now)),
        (S::Reserved(held), E::OwnerGone) => accept(released(head, held, RetryCause::OwnerGone, context.now)),
        (S::Executing(held), E::Abandon(_)) => accept(lost(head, held, UnknownCause::ClaimDropped, context.now)),
        (S::Executing(held), E::OwnerGone) => accept(lost(head, held, UnknownCause::OwnerGone, context.now)),
        (
            state @ (S::FailedRetryable(_)
            | S::Unknown(_)
            | S::Succeeded { .. }
            | S::FailedTerminal { .. }
            | S::Tombstone { .. }),
            E::Abandon(_) | E::OwnerGone | E::Tick,
        )
        | (state @ (S::Reserved(_) | S::Executing(_)), E::Tick) => {
            let record = head.with(state);
            if aged { accept(record) } else { unchanged(record) }
        }

        // Evidence about an unknown outcome.
        (S::Unknown(unresolved), E::Probe(terms)) => ask(head, unresolved, terms, context.now),
        (S::Unknown(unresolved), E::Resolve(verdict, decision, about)) => {
            resolve(head, unresolved, verdict, decision, about, context.now)
        }
        (
            S::Reserved(_)
            | S::Executing(_)
            | S::FailedRetryable(_)
            | S::Succeeded { .. }
            | S::FailedTerminal { .. }
            | S::Tombstone { .. },
            E::Probe(_) | E::Resolve(..),
        ) => Err(Rejection::NotUnknown(status)),

        // Runs, and what is undone.
        (state, E::Run(intent, wanted)) => act(Some(head.with(state)), intent, wanted, context),
        (state, E::Compensate) => compensable(head, state),
        (state @ S::Open(_), E::Abandon(_) | E::OwnerGone | E::Tick) => unchanged(head.with(state)),
        (
            S::Open(_),
            E::Begin(_)
            | E::Start(_)
            | E::Heartbeat(_)
            | E::Checkpoint(..)
            | E::Refer(..)
            | E::Settle(..)
            | E::Probe(_)
            | E::Resolve(..),
        ) => Err(Rejection::IsRun),
    }
}

pub(super) fn keep(answer: Answer) -> Result<Transition, Rejection> {
    Ok(Transition { change: Change::Keep, answer })
}

pub(super) fn unchanged(record: Record) -> Result<Transition, Rejection> {
    keep(Answer::Accepted(record.into()))
}

pub(super) fn accept(record: Record) -> Result<Transition, Rejection> {
    Ok(Transition { change: Change::Put(record.clone().into()), answer: Answer::Accepted(record.into()) })
}

fn grant(record: Record, grant: Grant) -> Result<Transition, Rejection> {
    Ok(Transition { change: Change::Put(record.clone().into()), answer: Answer::Granted(record.into(), grant) })
}

/// No record, or one whose tombstone is over; `leftover` says what becomes of such a row.
fn absent(event: Event, context: &Context, leftover: Change) -> Result<Transition, Rejection> {
    match event {
        Event::Begin(intent) => {
            let head = Head {
                id: context.fresh_id,
                identity: intent.identity.clone(),
                fingerprint: intent.fingerprint.clone(),
                created_at: context.now,
                attempt: 0,
                generation: 0,
                reference: None,
                decisions: Vec::new(),
            };
            let work = Work { policy: intent.policy, first_start: None, checkpoint: None, doubt: None };
            granted_anew(head, work, intent, context)
        }
        Event::Tick => Ok(Transition { change: leftover, answer: Answer::Nothing }),
        Event::OwnerGone => keep(Answer::Nothing),
        Event::Run(intent, wanted) => act(None, intent, wanted, context),
        Event::Probe(_) | Event::Resolve(..) | Event::Compensate => Err(Rejection::Absent),
        Event::Start(_)
        | Event::Heartbeat(_)
        | Event::Checkpoint(..)
        | Event::Refer(..)
        | Event::Settle(..)
        | Event::Abandon(_) => Err(Rejection::LeaseLost),
    }
}

/// A new attempt, the earlier ones being known not to have happened. The old external reference goes: a probe that
/// followed it would find the wrong attempt.
fn granted_anew(mut head: Head, work: Work, intent: Intent, context: &Context) -> Result<Transition, Rejection> {
    head.attempt = head.attempt.saturating_add(1);
    head.reference = None;
    grant(held(head, work, intent, context), Grant::Fresh)
}

/// The attempt of a grant that its caller never heard of: it holds the same attempt, for its effect never started.
fn granted_again(head: Head, work: Work, intent: Intent, context: &Context) -> Result<Transition, Rejection> {
    grant(held(head, work, intent, context), Grant::Fresh)
}

/// A new attempt that sends again what an earlier one may have done.
fn resent(
    mut head: Head,
    unresolved: Unresolved,
    intent: Intent,
    left: Span,
    context: &Context,
) -> Result<Transition, Rejection> {
    head.attempt = head.attempt.saturating_add(1);
    let doubt = Doubt { cause: unresolved.cause, since: unresolved.since };
    let work = Work { doubt: unresolved.work.doubt.or(Some(doubt)), ..unresolved.work };
    let mut record = held(head, work, intent, context);
    if let State::Executing(held) = &mut record.state {
        held.lease = held.lease.within(left);
    }
    grant(record, Grant::Resend)
}

fn held(head: Head, work: Work, intent: Intent, context: &Context) -> Record {
    let holder = Holder { incarnation: context.incarnation, grant: intent.grant };
    let lease = Lease::granted(&intent.policy, holder, context.now);
    let work = Work { policy: intent.policy.kept_for(&head.identity), ..work };
    match intent.phase {
        Phase::Reserve => head.with(State::Reserved(Held { work, lease })),
        Phase::Start => head.with(State::Executing(Held { work: started(work, context), lease })),
    }
}

fn started(work: Work, context: &Context) -> Work {
    let first = FirstStart { store: context.now, wall: context.wall };
    Work { first_start: Some(work.first_start.unwrap_or(first)), ..work }
}

fn renewed(held: Held, context: &Context) -> Held {
    let lease = held.lease.renewed(&held.work.policy, context.now);
    Held { lease, ..held }
}

fn noted(held: Held, bytes: Vec<u8>) -> Held {
    Held { work: Work { checkpoint: Some(bytes), ..held.work }, ..held }
}

pub(super) fn referred(mut head: Head, reference: Option<ExternalReference>) -> Head {
    head.reference = reference.or(head.reference);
    head
}

/// A re-sending attempt that nobody heard of leaves the doubt about the earlier one.
fn is_unheard(held: &Held, intent: &Intent) -> bool {
    intent.unheard.contains(&held.lease.holder) && held.work.doubt.is_none()
}

fn begin_unknown(
    head: Head,
    unresolved: Unresolved,
    intent: Intent,
    context: &Context,
) -> Result<Transition, Rejection> {
    let nobody_heard = intent.unheard.contains(&unresolved.holder)
        && unresolved.work.doubt.is_none()
        && matches!(unresolved.cause, UnknownCause::LeaseLapsed | UnknownCause::OwnerGone);
    if nobody_heard {
        return granted_again(head, unresolved.work, intent, context);
    }
    // A reservation is not a re-send: by the time it starts, the window may be over.
    let may_resend = intent.phase == Phase::Start
        && head.attempt < intent.policy.attempts_max
        && unresolved.inquiry.due() <= context.now;
    if may_resend && let Some(left) = resend_window_left(&unresolved.work, &intent.policy, context.now, context.wall) {
        return resent(head, unresolved, intent, left, context);
    }
    keep(Answer::Unknown(head.with(State::Unknown(unresolved)).into()))
}

/// The holder's word on an attempt. `holder` is there if the effect may have started.
fn settled(head: Head, work: Work, holder: Option<Holder>, settlement: Settlement, context: &Context) -> Record {
    let now = context.now;
    match settlement {
        Settlement::Succeeded { response, reference } => {
            let terms = terms(&work.policy, now);
            referred(head, reference).with(State::Succeeded { response, terms })
        }
        Settlement::FailedTerminal { failure, reference } => {
            let terms = terms(&work.policy, now);
            referred(head, reference).with(State::FailedTerminal { failure, cause: TerminalCause::Reported, terms })
        }
        Settlement::FailedRetryable { failure, retry } => {
            let delay = match retry.delay {
                RetryDelay::Exactly(delay) => delay,
                RetryDelay::Backoff => work.policy.backoff.delay(head.attempt, head.id.0),
            };
            if let (Some(doubt), Some(holder)) = (work.doubt, holder) {
                return still_in_doubt(head, work, doubt, holder, Some(failure), now.plus(delay));
            }
            if head.attempt >= work.policy.attempts_max {
                return exhausted(head, &work, failure, now);
            }
            let (head, work) = match retry.downstream {
                DownstreamKey::Keep => (head, work),
                DownstreamKey::NextGeneration => next_generation(head, work),
            };
            let cause = RetryCause::Reported(failure);
            head.with(State::FailedRetryable(Retryable { work, cause, retry_at: now.plus(delay) }))
        }
        Settlement::Released => {
            if let (Some(doubt), Some(holder)) = (work.doubt, holder) {
                return still_in_doubt(head, work, doubt, holder, None, now);
            }
            head.with(State::FailedRetryable(Retryable { work, cause: RetryCause::Released, retry_at: now }))
        }
        Settlement::GaveUp { failure, reference } => {
            let Some(holder) = holder else {
                // Nothing was started, so nothing is unknown.
                return head.with(State::FailedRetryable(Retryable {
                    work,
                    cause: RetryCause::Released,
                    retry_at: now,
                }));
            };
            referred(head, reference).with(State::Unknown(Unresolved {
                work,
                cause: UnknownCause::GaveUp,
                since: now,
                failure: Some(failure),
                holder,
                probes: 0,
                inquiry: Inquiry::Open { at: now },
            }))
        }
    }
}

/// A re-sending attempt did not happen, which says nothing about the one before it. The downstream key must stay.
fn still_in_doubt(
    head: Head,
    work: Work,
    doubt: Doubt,
    holder: Holder,
    failure: Option<FailureReport>,
    again_at: Timestamp,
) -> Record {
    let Doubt { cause, since } = doubt;
    let inquiry = Inquiry::Open { at: again_at };
    head.with(State::Unknown(Unresolved { work, cause, since, failure, holder, probes: 0, inquiry }))
}

/// A fresh downstream key starts a fresh window at the provider.
fn next_generation(mut head: Head, work: Work) -> (Head, Work) {
    head.generation = head.generation.saturating_add(1);
    (head, Work { first_start: None, ..work })
}

/// The owner's late word on an unknown outcome. Giving up late adds what it knows and changes nothing else.
fn settled_late(head: Head, unresolved: Unresolved, settlement: Settlement, context: &Context) -> Record {
    match settlement {
        Settlement::GaveUp { failure, reference } => {
            referred(head, reference).with(State::Unknown(Unresolved { failure: Some(failure), ..unresolved }))
        }
        settlement => {
            let head = heard_late(head, &settlement, context.now);
            settled(head, unresolved.work, Some(unresolved.holder), settlement, context)
        }
    }
}

/// The holder speaks again after the attempt was found not to have happened.
fn settle_retryable(
    head: Head,
    retryable: Retryable,
    settlement: Settlement,
    context: &Context,
) -> Result<Transition, Rejection> {
    match (&retryable.cause, settlement) {
        // A verdict said it did not happen; the one who did it says it did. No newer attempt was granted, so the
        // first-hand word wins: refusing it would run the effect a second time.
        (RetryCause::Verdict, settlement @ (Settlement::Succeeded { .. } | Settlement::FailedTerminal { .. })) => {
            let head = heard_late(head, &settlement, context.now);
            accept(settled(head, retryable.work, None, settlement, context))
        }
        (RetryCause::Reported(said), Settlement::FailedRetryable { failure, .. }) if *said == failure => {
            unchanged(head.with(State::FailedRetryable(retryable)))
        }
        (
            RetryCause::Released | RetryCause::Lapsed | RetryCause::OwnerGone | RetryCause::Verdict,
            Settlement::Released | Settlement::FailedRetryable { .. },
        ) => unchanged(head.with(State::FailedRetryable(retryable))),
        // Its lease ended before the start, and a holder may not settle what it never started.
        (RetryCause::Lapsed | RetryCause::OwnerGone, _) => Err(Rejection::LeaseLost),
        (RetryCause::Reported(_) | RetryCause::Released | RetryCause::Verdict, _) => {
            Err(Rejection::AlreadySettled(Status::FailedRetryable))
        }
    }
}

/// Whether a second settlement repeats the first (rule 3). A tombstone kept only how it ended.
fn says_the_same(head: &Head, state: &State, settlement: &Settlement) -> bool {
    let refers_alike = |reference: &Option<ExternalReference>| reference.is_none() || *reference == head.reference;
    match (state, settlement) {
        (State::Succeeded { response: first, .. }, Settlement::Succeeded { response, reference }) => {
            first == response && refers_alike(reference)
        }
        (
            State::FailedTerminal { failure: first, cause: TerminalCause::Reported, .. },
            Settlement::FailedTerminal { failure, reference },
        ) => first == failure && refers_alike(reference),
        (
            State::FailedTerminal { failure: first, cause: TerminalCause::AttemptsExhausted, .. },
            Settlement::FailedRetryable { failure, .. },
        ) => first == failure,
        (State::Tombstone { ended: Ended::Succeeded, .. }, Settlement::Succeeded { reference, .. })
        | (State::Tombstone { ended: Ended::FailedTerminal, .. }, Settlement::FailedTerminal { reference, .. }) => {
            refers_alike(reference)
        }
        _ => false,
    }
}
