//! Records: one of each kind by hand, and any at all.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, Kind};
use crate::machine::limits::DECISIONS_MAX;
use crate::machine::policy::{Backoff, Policy, Retention};
use crate::machine::record::{
    Decision, Doubt, Ended, FirstStart, Head, Held, Holder, Inquiry, Lease, Record, RecordId, RetryCause, Retryable,
    Ruling, State, TerminalCause, Terms, UnknownCause, Unresolved, Witness, Work,
};
use crate::machine::response::{Artifact, ExternalReference, FailureReport, Response, ResponsePolicy};
use crate::machine::time::{Span, Timestamp};
use crate::machine::workflow::{Course, OpenRun};

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + second * 1000)
}

/// One record a state, and one for each way a state can look: the fixtures of the row format are made of them, so they
/// never change.
pub(super) fn samples() -> Vec<(&'static str, Record)> {
    let policy = Policy::default();
    let plain = Work { policy, first_start: None, checkpoint: None, doubt: None };
    let started = Work {
        policy: Policy {
            lease: Span::from_secs(30),
            attempts_max: 3,
            resend_window: Span::from_secs(86_400),
            response: ResponsePolicy::ReferenceOnly,
            retention: Retention::forever(),
            backoff: Backoff::none(),
            ..Policy::default()
        },
        first_start: Some(FirstStart { store: at(1), wall: at(2) }),
        checkpoint: Some(b"half-way".to_vec()),
        doubt: None,
    };
    let resent = Work { doubt: Some(Doubt { cause: UnknownCause::OwnerGone, since: at(3) }), ..started.clone() };
    let holder = Holder { incarnation: 3, grant: 300 };
    let lease = Lease { holder, granted_at: at(1), until: at(31), ends_by: at(3600) };
    let terms = Terms { settled_at: at(9), expires_at: at(600), purge_at: Timestamp::FOREVER };
    let failure = FailureReport::new("card declined").with_response("{\"code\":51}");
    let unresolved = Unresolved {
        work: started.clone(),
        cause: UnknownCause::LeaseLapsed,
        since: at(31),
        failure: None,
        holder,
        probes: 2,
        inquiry: Inquiry::Open { at: at(90) },
    };
    let states = [
        ("reserved", State::Reserved(Held { work: plain.clone(), lease })),
        ("executing", State::Executing(Held { work: started.clone(), lease })),
        ("executing_resent", State::Executing(Held { work: resent, lease })),
        (
            "failed_retryable_reported",
            State::FailedRetryable(Retryable {
                work: started.clone(),
                cause: RetryCause::Reported(failure.clone()),
                retry_at: at(40),
            }),
        ),
        (
            "failed_retryable_by_verdict",
            State::FailedRetryable(Retryable { work: plain, cause: RetryCause::Verdict, retry_at: at(40) }),
        ),
        ("unknown", State::Unknown(unresolved.clone())),
        (
            "unknown_given_up",
            State::Unknown(Unresolved {
                cause: UnknownCause::GaveUp,
                failure: Some(failure.clone()),
                inquiry: Inquiry::Asking { until: at(120) },
                ..unresolved.clone()
            }),
        ),
        ("unknown_for_person", State::Unknown(Unresolved { inquiry: Inquiry::ForPerson, ..unresolved })),
        ("succeeded", State::Succeeded { response: Response::from("{\"receipt\":17}"), terms }),
        ("succeeded_empty", State::Succeeded { response: Response::from(""), terms }),
        ("succeeded_without_value", State::Succeeded { response: Response::Absent, terms }),
        (
            "succeeded_too_large",
            State::Succeeded { response: Response::TooLarge { len: 9, xxh3_128: u128::MAX }, terms },
        ),
        ("succeeded_withheld", State::Succeeded { response: Response::Withheld, terms }),
        ("failed_terminal", State::FailedTerminal { failure: failure.clone(), cause: TerminalCause::Reported, terms }),
        (
            "failed_terminal_exhausted",
            State::FailedTerminal { failure, cause: TerminalCause::AttemptsExhausted, terms },
        ),
        ("tombstone_succeeded", State::Tombstone { ended: Ended::Succeeded, terms }),
        ("tombstone_failed", State::Tombstone { ended: Ended::FailedTerminal, terms }),
        ("open", State::Open(OpenRun { policy, definition: None, course: Course::Forward })),
        (
            "open_backward",
            State::Open(OpenRun {
                policy,
                definition: Some(Fingerprint::of_bytes(b"v1")),
                course: Course::Backward { since: at(60), why: FailureReport::new("no seat left") },
            }),
        ),
        (
            "succeeded_by_artifact",
            State::Succeeded {
                response: Artifact { location: "/var/lib/report.pdf".into(), len: 9, sha256: [5; 32] }.into(),
                terms,
            },
        ),
    ];
    states.into_iter().zip(1..).map(|((name, state), id)| (name, fitting(head(id), state))).collect()
}

/// Only runs are open.
fn fitting(head: Head, state: State) -> Record {
    let identity = match state {
        State::Open(_) => Identity { kind: Kind::Run, step: None, ..head.identity.clone() },
        _ => head.identity.clone(),
    };
    Head { identity, ..head }.with(state)
}

/// Every second one has everything.
fn head(id: u64) -> Head {
    let full = id.is_multiple_of(2);
    let (kind, step, index) = match id % 4 {
        0 => (Kind::Step, "step 1", None),
        2 => (Kind::Step, "step 1", Some(7)),
        _ => (Kind::Operation, "", None),
    };
    let key = format!("invoice-{id}");
    let identity = Identity::from_parts(kind, ["acme", "charge", &key, step], index).expect("valid parts");
    let decision = Decision {
        at: at(50),
        witness: if id.is_multiple_of(4) { Witness::Person } else { Witness::Probe },
        by: "ops".into(),
        reason: "saw it at the provider".into(),
        ruling: Ruling::Happened,
        attempt: 1,
    };
    Head {
        id: RecordId(id),
        identity,
        fingerprint: match id % 4 {
            0 => Fingerprint::of_bytes(b"payload"),
            1 => Fingerprint::unchecked(),
            2 => Fingerprint::from_digest_128([7; 16]),
            _ => Fingerprint::from_digest_256([9; 32]),
        },
        created_at: at(0),
        attempt: u32::try_from(id).expect("small"),
        generation: u32::from(full),
        reference: full.then(|| ExternalReference::new("ext-1").expect("valid reference")),
        decisions: if full { vec![decision] } else { Vec::new() },
    }
}

fn instant() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_unix_millis)
}

fn span() -> impl Strategy<Value = Span> {
    any::<u64>().prop_map(Span::from_millis)
}

fn text(most: usize) -> impl Strategy<Value = String> {
    vec(proptest::char::any().prop_filter("no control characters", |c| !c.is_control()), 1..most)
        .prop_map(|chars| chars.into_iter().collect())
}

fn response() -> impl Strategy<Value = Response> {
    prop_oneof![
        Just(Response::Absent),
        Just(Response::Withheld),
        vec(any::<u8>(), 0..300).prop_map(Response::from),
        (any::<u64>(), any::<u128>()).prop_map(|(len, xxh3_128)| Response::TooLarge { len, xxh3_128 }),
        (text(300), any::<u64>(), any::<[u8; 32]>()).prop_map(|(location, len, sha256)| Artifact {
            location: location.into(),
            len,
            sha256
        }
        .into()),
    ]
}

fn failure() -> impl Strategy<Value = FailureReport> {
    (any::<String>(), response()).prop_map(|(message, response)| {
        let mut failure = FailureReport::new(message);
        *failure.response_mut() = response;
        failure
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let spans = (span(), span(), span());
    let durations = vec(any::<u32>().prop_map(|secs| std::time::Duration::from_secs(secs.into())), 4);
    (spans, durations, any::<u32>(), any::<bool>()).prop_map(|(spans, durations, attempts_max, stores)| Policy {
        lease: spans.0,
        max_execution: spans.1,
        retention: Retention::default().with_response(durations[0]).with_tombstone(durations[1]),
        attempts_max,
        backoff: Backoff::exponential(durations[2], durations[3]),
        resend_window: spans.2,
        response: if stores { ResponsePolicy::Store } else { ResponsePolicy::ReferenceOnly },
    })
}

fn work() -> impl Strategy<Value = Work> {
    let first = proptest::option::of((instant(), instant()).prop_map(|(store, wall)| FirstStart { store, wall }));
    let checkpoint = proptest::option::of(vec(any::<u8>(), 0..100));
    let doubt = proptest::option::of((unknown_cause(), instant()).prop_map(|(cause, since)| Doubt { cause, since }));
    (policy(), first, checkpoint, doubt).prop_map(|(policy, first_start, checkpoint, doubt)| Work {
        policy,
        first_start,
        checkpoint,
        doubt,
    })
}

fn holder() -> impl Strategy<Value = Holder> {
    (1_u64.., any::<u64>()).prop_map(|(incarnation, grant)| Holder { incarnation, grant })
}

fn held() -> impl Strategy<Value = Held> {
    (work(), holder(), instant(), instant(), instant()).prop_map(|(work, holder, granted_at, one, other)| Held {
        work,
        lease: Lease { holder, granted_at, until: one.min(other), ends_by: one.max(other) },
    })
}

fn terms() -> impl Strategy<Value = Terms> {
    vec(instant(), 3).prop_map(|mut at| {
        at.sort_unstable();
        Terms { settled_at: at[0], expires_at: at[1], purge_at: at[2] }
    })
}

fn retry_cause() -> impl Strategy<Value = RetryCause> {
    prop_oneof![
        failure().prop_map(RetryCause::Reported),
        Just(RetryCause::Released),
        Just(RetryCause::Lapsed),
        Just(RetryCause::OwnerGone),
        Just(RetryCause::Verdict),
    ]
}

fn unknown_cause() -> impl Strategy<Value = UnknownCause> {
    prop_oneof![
        Just(UnknownCause::GaveUp),
        Just(UnknownCause::LeaseLapsed),
        Just(UnknownCause::OwnerGone),
        Just(UnknownCause::ClaimDropped),
    ]
}

fn state() -> impl Strategy<Value = State> {
    let ended = prop_oneof![Just(Ended::Succeeded), Just(Ended::FailedTerminal)];
    let terminal = prop_oneof![Just(TerminalCause::Reported), Just(TerminalCause::AttemptsExhausted)];
    let unresolved =
        (work(), unknown_cause(), instant(), proptest::option::of(failure()), holder(), any::<u32>(), inquiry());
    prop_oneof![
        held().prop_map(State::Reserved),
        held().prop_map(State::Executing),
        (work(), retry_cause(), instant()).prop_map(|(work, cause, retry_at)| State::FailedRetryable(Retryable {
            work,
            cause,
            retry_at
        })),
        unresolved.prop_map(|(work, cause, since, failure, holder, probes, inquiry)| {
            State::Unknown(Unresolved { work, cause, since, failure, holder, probes, inquiry })
        }),
        (response(), terms()).prop_map(|(response, terms)| State::Succeeded { response, terms }),
        (failure(), terminal, terms()).prop_map(|(failure, cause, terms)| State::FailedTerminal {
            failure,
            cause,
            terms
        }),
        (ended, terms()).prop_map(|(ended, terms)| State::Tombstone { ended, terms }),
        (policy(), proptest::option::of(fingerprint()), course())
            .prop_map(|(policy, definition, course)| { State::Open(OpenRun { policy, definition, course }) }),
    ]
}

fn course() -> impl Strategy<Value = Course> {
    prop_oneof![
        Just(Course::Forward),
        (instant(), failure()).prop_map(|(since, why)| {
            // A reason has no value: nothing lies behind the body of a run's row.
            Course::Backward { since, why: FailureReport::new(why.message()) }
        }),
    ]
}

fn inquiry() -> impl Strategy<Value = Inquiry> {
    prop_oneof![
        instant().prop_map(|at| Inquiry::Open { at }),
        instant().prop_map(|until| Inquiry::Asking { until }),
        Just(Inquiry::ForPerson),
    ]
}

fn identity() -> impl Strategy<Value = Identity> {
    let kind = proptest::sample::select(Kind::ALL.to_vec());
    let step = (text(16), proptest::option::of(any::<u32>()));
    (kind, text(16), text(16), text(64), step, any::<bool>()).prop_map(
        |(kind, tenant, operation, key, (step, index), of_step)| {
            let has_step = kind == Kind::Step || kind == Kind::Compensation && of_step;
            let (step, index) = if has_step { (step.as_str(), index) } else { ("", None) };
            Identity::from_parts(kind, [&tenant, &operation, &key, step], index).expect("within the bounds")
        },
    )
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    prop_oneof![
        vec(any::<u8>(), 0..50).prop_map(|payload| Fingerprint::of_bytes(&payload)),
        any::<[u8; 16]>().prop_map(Fingerprint::from_digest_128),
        any::<[u8; 32]>().prop_map(Fingerprint::from_digest_256),
        Just(Fingerprint::unchecked()),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    let ruling = prop_oneof![
        Just(Ruling::Happened),
        Just(Ruling::FailedForGood),
        Just(Ruling::DidNotHappen),
        Just(Ruling::StillUnknown),
    ];
    let witness = prop_oneof![Just(Witness::Owner), Just(Witness::Probe), Just(Witness::Person)];
    (instant(), witness, text(20), text(60), ruling, any::<u32>()).prop_map(
        |(at, witness, by, reason, ruling, attempt)| {
            let (by, reason) = (by.into(), reason.into());
            Decision { at, witness, by, reason, ruling, attempt }
        },
    )
}

/// Any record that keeps its invariants.
pub(super) fn record() -> impl Strategy<Value = Record> {
    let reference = proptest::option::of(text(40).prop_map(|text| ExternalReference::new(&text).expect("in bounds")));
    let numbers = (any::<u64>(), 1_u32.., any::<u32>());
    let decisions = vec(decision(), 0..=DECISIONS_MAX);
    (numbers, identity(), fingerprint(), instant(), reference, decisions, state()).prop_map(
        |((id, attempt, generation), identity, fingerprint, created_at, reference, decisions, state)| {
            let id = RecordId(id);
            let head = Head { id, identity, fingerprint, created_at, attempt, generation, reference, decisions };
            fitting(head, state)
        },
    )
}
