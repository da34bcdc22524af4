//! The machine, tested: every cell of the table, each rule's details, and what no history of events may ever do.

mod history;
mod messages;
mod rules;
mod runs;
mod table;

use super::event::{Context, Event, Intent, Phase, ProbeTerms, Settlement};
use super::fingerprint::Fingerprint;
use super::key::{Identity, OperationKey, RunKey};
use super::policy::{Backoff, Policy, Retry};
use super::record::{
    Decision, Doubt, Ended, FirstStart, Head, Held, Holder, Inquiry, Lease, Record, RecordId, RetryCause, Retryable,
    Ruling, State, TerminalCause, Terms, Token, UnknownCause, Unresolved, Witness, Work,
};
use super::response::{FailureReport, Response};
use super::time::{Span, Timestamp};
use super::workflow::{Course, Members, OpenRun, RunIntent};

/// The present of every test that does not move it.
const NOW: Timestamp = Timestamp::from_unix_millis(1_000_000);
const PAST: Timestamp = Timestamp::from_unix_millis(900_000);
const FUTURE: Timestamp = Timestamp::from_unix_millis(1_100_000);
const LONG_PAST: Timestamp = Timestamp::from_unix_millis(100_000);
const ATTEMPT: u32 = 2;
const OURS: Holder = Holder { incarnation: 4, grant: 40 };

fn context() -> Context {
    let (fresh_id, members) = (RecordId(77), Members::default());
    Context { now: NOW, wall: NOW, incarnation: 5, fresh_id, parent: None, members }
}

fn identity() -> Identity {
    Identity::operation(OperationKey::new("acme", "charge", "invoice-981").expect("a valid key"))
}

fn policy() -> Policy {
    Policy { backoff: Backoff::none(), ..Policy::default() }
}

fn deduping() -> Policy {
    Policy { resend_window: Span::from_secs(3600), ..policy() }
}

fn intent() -> Intent {
    Intent {
        identity: identity(),
        fingerprint: Fingerprint::of_bytes(b"payload"),
        policy: policy(),
        phase: Phase::Start,
        grant: 50,
        unheard: Vec::new(),
    }
}

fn run_key() -> RunKey {
    RunKey::new("acme", "trip", "t-1").expect("a valid key")
}

fn run_intent() -> RunIntent {
    let definition = Some(Fingerprint::of_bytes(b"v1"));
    let fingerprint = Fingerprint::of_bytes(b"payload");
    RunIntent { identity: Identity::run(&run_key()), fingerprint, policy: policy(), definition, adopts: false }
}

fn run(state: State) -> Record {
    let Record { head, state } = record(state);
    Head { identity: Identity::run(&run_key()), ..head }.with(state)
}

fn open(course: Course) -> Record {
    run(State::Open(OpenRun { policy: policy(), definition: Some(Fingerprint::of_bytes(b"v1")), course }))
}

fn backward() -> Course {
    Course::Backward { since: PAST, why: failure() }
}

fn failure() -> FailureReport {
    FailureReport::new("no route")
}

fn retry() -> Retry {
    Retry::after(std::time::Duration::from_secs(5))
}

fn success() -> Settlement {
    Settlement::Succeeded { response: Response::from("receipt"), reference: None }
}

fn token() -> Token {
    Token { id: RecordId(7), attempt: ATTEMPT }
}

fn settle(settlement: Settlement) -> Event {
    Event::Settle(token(), settlement)
}

fn record(state: State) -> Record {
    let head = Head {
        id: RecordId(7),
        identity: identity(),
        fingerprint: Fingerprint::of_bytes(b"payload"),
        created_at: LONG_PAST,
        attempt: ATTEMPT,
        generation: 0,
        reference: None,
        decisions: Vec::new(),
    };
    head.with(state)
}

fn work() -> Work {
    let first_start = FirstStart { store: PAST, wall: PAST };
    Work { policy: policy(), first_start: Some(first_start), checkpoint: None, doubt: None }
}

fn held(work: Work, until: Timestamp) -> Held {
    Held { work, lease: Lease { holder: OURS, granted_at: PAST, until, ends_by: FUTURE } }
}

fn reserved(until: Timestamp) -> Record {
    record(State::Reserved(held(Work { first_start: None, ..work() }, until)))
}

fn executing(until: Timestamp) -> Record {
    record(State::Executing(held(work(), until)))
}

/// An attempt that re-sends what an earlier one may have done.
fn resent() -> Record {
    let doubt = Doubt { cause: UnknownCause::OwnerGone, since: LONG_PAST };
    record(State::Executing(held(Work { policy: deduping(), doubt: Some(doubt), ..work() }, FUTURE)))
}

fn retryable(cause: RetryCause, retry_at: Timestamp) -> Record {
    record(State::FailedRetryable(Retryable { work: work(), cause, retry_at }))
}

fn unknown(work: Work) -> Record {
    record(State::Unknown(Unresolved {
        work,
        cause: UnknownCause::LeaseLapsed,
        since: PAST,
        failure: None,
        holder: OURS,
        probes: 0,
        inquiry: Inquiry::Open { at: PAST },
    }))
}

/// An unknown outcome of which somebody asks, or asked, the provider; nothing but that keeps it from a re-send.
fn asked(inquiry: Inquiry) -> Record {
    let Record { head, state } = unknown(Work { policy: deduping(), ..work() });
    match state {
        State::Unknown(unresolved) => head.with(State::Unknown(Unresolved { inquiry, ..unresolved })),
        state => head.with(state),
    }
}

fn probing() -> ProbeTerms {
    ProbeTerms { lease: Span::from_secs(60), probes_max: 3, backoff: Backoff::none(), early: false }
}

fn decision() -> Decision {
    Decision {
        at: PAST,
        witness: Witness::Person,
        by: "jane".into(),
        reason: "asked them".into(),
        ruling: Ruling::StillUnknown,
        attempt: 0,
    }
}

fn terms(expires_at: Timestamp, purge_at: Timestamp) -> Terms {
    Terms { settled_at: LONG_PAST, expires_at, purge_at }
}

fn succeeded(terms: Terms) -> Record {
    record(State::Succeeded { response: Response::from("receipt"), terms })
}

fn failed(cause: TerminalCause) -> Record {
    record(State::FailedTerminal { failure: failure(), cause, terms: terms(FUTURE, FUTURE) })
}

fn tombstone(ended: Ended, purge_at: Timestamp) -> Record {
    record(State::Tombstone { ended, terms: terms(PAST, purge_at) })
}
