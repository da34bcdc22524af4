//! Leases: how long a claim is good for, what a lapsed one means, and when an effect may be sent again.

use super::policy::Policy;
use super::record::{
    FirstStart, Head, Held, Holder, Inquiry, Lease, Record, RetryCause, Retryable, State, TerminalCause,
};
use super::record::{UnknownCause, Unresolved, Work};
use super::response::FailureReport;
use super::retention::terms;
use super::time::{Span, Timestamp};

impl Lease {
    pub(crate) fn granted(policy: &Policy, holder: Holder, now: Timestamp) -> Self {
        let ends_by = now.plus(policy.max_execution);
        Self { holder, granted_at: now, until: now.plus(policy.lease).min(ends_by), ends_by }
    }

    /// The lease of a re-send: it ends with the provider's window, beyond which the provider would act a second time.
    pub(crate) fn within(self, window_left: Span) -> Self {
        let ends_by = self.ends_by.min(self.granted_at.plus(window_left));
        Self { until: self.until.min(ends_by), ends_by, ..self }
    }

    /// The lease renewed at `now`. Never shorter than before, never beyond `max_execution`.
    pub(crate) fn renewed(self, policy: &Policy, now: Timestamp) -> Self {
        Self { until: now.plus(policy.lease).min(self.ends_by).max(self.until), ..self }
    }

    pub(crate) fn has_lapsed(&self, now: Timestamp) -> bool {
        self.until <= now
    }
}

/// A holder is gone before its effect was started: nothing happened, so the next caller may run at once. If that was
/// the last permitted attempt, the failure is final; else a crash loop would run for ever.
pub(crate) fn released(head: Head, held: Held, cause: RetryCause, at: Timestamp) -> Record {
    if head.attempt >= held.work.policy.attempts_max && cause != RetryCause::Released {
        let failure = FailureReport::new("every permitted attempt ended before its effect was started");
        return exhausted(head, &held.work, failure, at);
    }
    head.with(State::FailedRetryable(Retryable { work: held.work, cause, retry_at: at }))
}

/// A holder is gone after its effect may have started: nobody knows, and nobody repeats it.
pub(crate) fn lost(head: Head, held: Held, cause: UnknownCause, since: Timestamp) -> Record {
    head.with(State::Unknown(Unresolved {
        work: held.work,
        cause,
        since,
        failure: None,
        holder: held.lease.holder,
        probes: 0,
        inquiry: Inquiry::Open { at: since },
    }))
}

/// The last permitted attempt ended without the effect.
pub(crate) fn exhausted(head: Head, work: &Work, failure: FailureReport, at: Timestamp) -> Record {
    let terms = terms(&work.policy, at);
    head.with(State::FailedTerminal { failure, cause: TerminalCause::AttemptsExhausted, terms })
}

/// For how much longer an effect of unknown outcome may be sent again under the same downstream key (rule 11).
///
/// Either clock may end the window. A wall clock that went back proves nothing about how long the machine was off, so
/// it ends the window too: a clock error may never cause a second effect.
pub(crate) fn resend_window_left(work: &Work, asked: &Policy, now: Timestamp, wall: Timestamp) -> Option<Span> {
    // Both the attempt that may have happened and the caller must have declared it.
    let window = work.policy.resend_window.min(asked.resend_window);
    let FirstStart { store: started, wall: started_wall } = work.first_start?;
    if wall < started_wall {
        return None;
    }
    let passed = now.minus(started).max(wall.minus(started_wall));
    window.less(passed).filter(|left| *left > Span::ZERO)
}
