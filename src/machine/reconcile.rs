//! The way out of an unknown outcome: who may ask the provider, and what a word on it does.

use super::event::{About, Answer, Change, ProbeTerms, Rejection, Settlement, Transition, Verdict};
use super::record::{
    Decision, Head, Inquiry, RetryCause, Retryable, Ruling, State, TerminalCause, Unresolved, Witness, Work,
};
use super::retention::terms;
use super::time::Timestamp;
use super::transition::{accept, referred, unchanged};

/// What stands in the record for the owner, which has no other name than its attempt.
const OWNER: &str = "owner";

/// Lets one reconciler ask at a time. A probe is counted when it is let through, so that reconcilers that crash while
/// they ask come to an end too.
pub(super) fn ask(
    head: Head,
    unresolved: Unresolved,
    asked: ProbeTerms,
    now: Timestamp,
) -> Result<Transition, Rejection> {
    match unresolved.inquiry {
        Inquiry::ForPerson => return Err(Rejection::ForPerson),
        Inquiry::Asking { until } if until > now => return Err(Rejection::AskedElsewhere),
        Inquiry::Open { at } if at > now && !asked.early => return Err(Rejection::NotDue),
        Inquiry::Open { .. } | Inquiry::Asking { .. } => {}
    }
    if unresolved.probes >= asked.probes_max {
        return accept(head.with(State::Unknown(Unresolved { inquiry: Inquiry::ForPerson, ..unresolved })));
    }
    let probes = unresolved.probes.saturating_add(1);
    let inquiry = Inquiry::Asking { until: now.plus(asked.lease) };
    let record = head.with(State::Unknown(Unresolved { probes, inquiry, ..unresolved }));
    Ok(Transition { change: Change::Put(record.clone().into()), answer: Answer::Probing(record.into()) })
}

/// What a word on an unknown outcome makes of it.
pub(super) fn resolve(
    head: Head,
    unresolved: Unresolved,
    verdict: Verdict,
    decision: Decision,
    about: About,
    now: Timestamp,
) -> Result<Transition, Rejection> {
    if about.attempt().is_some_and(|attempt| attempt != head.attempt) {
        return Err(Rejection::OtherAttempt(head.attempt));
    }
    let inquiry = match (&verdict, about) {
        // A probe that was overtaken and knows nothing has nothing to say.
        (Verdict::StillUnknown { .. }, About::Probe { number, .. }) if !is_asking(&unresolved, number) => {
            return unchanged(head.with(State::Unknown(unresolved)));
        }
        (Verdict::StillUnknown { .. }, About::Probe { terms, .. }) if unresolved.probes >= terms.probes_max => {
            Inquiry::ForPerson
        }
        (Verdict::StillUnknown { next }, About::Probe { terms, .. }) => {
            let backoff = terms.backoff.delay(unresolved.probes, head.id.0);
            Inquiry::Open { at: now.plus(backoff.max(*next)) }
        }
        (Verdict::StillUnknown { next }, About::Whatever | About::Attempt(_)) => Inquiry::Open { at: now.plus(*next) },
        (Verdict::Happened { .. } | Verdict::FailedForGood { .. } | Verdict::DidNotHappen, _) => unresolved.inquiry,
    };
    let attempt = head.attempt;
    let head = head.decided(Decision { at: now, ruling: verdict.ruling(), attempt, ..decision });
    accept(match verdict {
        Verdict::Happened { response, reference } => {
            let terms = terms(&unresolved.work.policy, now);
            referred(head, reference).with(State::Succeeded { response, terms })
        }
        Verdict::FailedForGood { failure } => {
            let terms = terms(&unresolved.work.policy, now);
            head.with(State::FailedTerminal { failure, cause: TerminalCause::Reported, terms })
        }
        // Exactly one more attempt may run, also beyond the attempt limit: a decision outranks a default.
        Verdict::DidNotHappen => head.with(State::FailedRetryable(Retryable {
            work: Work { doubt: None, ..unresolved.work },
            cause: RetryCause::Verdict,
            retry_at: now,
        })),
        Verdict::StillUnknown { .. } => {
            // A person who wants another look wants as many as it takes.
            let probes = if matches!(about, About::Probe { .. }) { unresolved.probes } else { 0 };
            head.with(State::Unknown(Unresolved { probes, inquiry, ..unresolved }))
        }
    })
}

fn is_asking(unresolved: &Unresolved, number: u32) -> bool {
    matches!(unresolved.inquiry, Inquiry::Asking { .. }) && unresolved.probes == number
}

/// Notes that the owner said how it ended when nobody expected it any more.
pub(super) fn heard_late(head: Head, settlement: &Settlement, now: Timestamp) -> Head {
    let (ruling, reason) = match settlement {
        Settlement::Succeeded { .. } => (Ruling::Happened, "said late that it succeeded"),
        Settlement::FailedTerminal { failure, .. } => (Ruling::FailedForGood, failure.message()),
        Settlement::FailedRetryable { failure, .. } => (Ruling::DidNotHappen, failure.message()),
        Settlement::Released => (Ruling::DidNotHappen, "handed the claim back late"),
        Settlement::GaveUp { failure, .. } => (Ruling::StillUnknown, failure.message()),
    };
    let attempt = head.attempt;
    let (by, reason) = (OWNER.into(), reason.into());
    head.decided(Decision { at: now, witness: Witness::Owner, by, reason, ruling, attempt })
}
