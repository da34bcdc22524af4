//! Runs, in detail: what may be begun, when one is over, what its status says.

use super::*;
use crate::machine::event::{Answer, Change, Event, Rejection, Transition};
use crate::machine::key::{Kind, StepKey};
use crate::machine::limits::RUN_STEPS_MAX;
use crate::machine::record::Status;
use crate::machine::transition::transition;
use crate::machine::workflow::{Finish, RunAct, RunStatus};

use Kind::{Compensation, Step};
use Status::{Executing, FailedRetryable, FailedTerminal, Reserved, Succeeded, Tombstone, Unknown};

fn with(members: &[(Kind, Status)]) -> Context {
    let mut counted = Members::default();
    members.iter().for_each(|(kind, status)| counted.add(*kind, *status, false));
    Context { members: counted, ..context() }
}

fn wanted(run: Record, act: RunAct, context: &Context) -> Result<Transition, Rejection> {
    transition(Some(run), Event::Run(run_intent(), act), context)
}

fn enter() -> RunAct {
    RunAct::Enter(StepKey::new("charge").expect("valid"))
}

fn succeed() -> RunAct {
    RunAct::Finish(Finish::Succeeded(Response::Absent))
}

fn status_of(result: Result<Transition, Rejection>) -> Result<Status, Rejection> {
    match result?.answer {
        Answer::Accepted(record) => Ok(record.status()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_step_keeps_every_other_one_from_being_taken_and_the_run_from_ending() {
    let blocked = with(&[(Step, Succeeded), (Step, Unknown)]);
    for act in [enter(), succeed(), RunAct::Finish(Finish::Failed(failure())), RunAct::TurnBack(failure())] {
        assert_eq!(wanted(open(Course::Forward), act, &blocked), Err(Rejection::Blocked));
    }
    let mut itself = Members::default();
    itself.add(Step, Unknown, true);
    let context = Context { members: itself, ..context() };
    assert_eq!(status_of(wanted(open(Course::Forward), enter(), &context)), Ok(Status::Open));
}

#[test]
fn step_that_is_being_executed_keeps_the_run_from_ending_and_no_other_from_being_taken() {
    for held in [Reserved, Executing] {
        let context = with(&[(Step, Succeeded), (Step, held)]);
        for act in [succeed(), RunAct::Finish(Finish::Failed(failure())), RunAct::TurnBack(failure())] {
            assert_eq!(wanted(open(Course::Forward), act, &context), Err(Rejection::StepsHeld));
        }
        assert_eq!(status_of(wanted(open(Course::Forward), enter(), &context)), Ok(Status::Open));
    }
}

#[test]
fn run_turns_back_only_if_there_is_something_to_compensate() {
    for nothing in [&[][..], &[(Step, FailedTerminal)], &[(Step, FailedRetryable)]] {
        let turned = wanted(open(Course::Forward), RunAct::TurnBack(failure()), &with(nothing));
        assert_eq!(status_of(turned), Ok(FailedTerminal));
    }
    let turned = wanted(open(Course::Forward), RunAct::TurnBack(failure()), &with(&[(Step, Succeeded)]));
    assert_eq!(status_of(turned), Ok(Status::Open));
}

#[test]
fn run_that_turned_back_is_over_when_every_compensation_is() {
    let back = |members: &[(Kind, Status)]| {
        status_of(wanted(open(backward()), RunAct::Finish(Finish::Compensated), &with(members)))
    };
    let steps = [(Step, Succeeded), (Step, Succeeded), (Step, FailedTerminal)];
    let and = |more: &[(Kind, Status)]| back(&[&steps[..], more].concat());
    assert_eq!(and(&[]), Err(Rejection::NotCompensated));
    assert_eq!(and(&[(Compensation, Succeeded)]), Err(Rejection::NotCompensated));
    assert_eq!(and(&[(Compensation, Succeeded), (Compensation, FailedRetryable)]), Err(Rejection::NotCompensated));
    assert_eq!(and(&[(Compensation, Succeeded), (Compensation, Unknown)]), Err(Rejection::Blocked));
    assert_eq!(and(&[(Compensation, Succeeded), (Compensation, Executing)]), Err(Rejection::StepsHeld));
    assert_eq!(and(&[(Compensation, Succeeded), (Compensation, FailedTerminal)]), Ok(FailedTerminal));
    assert_eq!(and(&[(Compensation, Succeeded), (Compensation, Tombstone)]), Ok(FailedTerminal));
}

#[test]
fn run_with_as_many_steps_as_it_may_have_takes_only_those_it_has() {
    let mut full = Members::default();
    (0..RUN_STEPS_MAX).for_each(|_| full.add(Step, Succeeded, false));
    let more = Context { members: full, ..context() };
    assert_eq!(wanted(open(Course::Forward), enter(), &more), Err(Rejection::RunFull));
    full.add(Step, FailedRetryable, true);
    let again = Context { members: full, ..context() };
    assert_eq!(status_of(wanted(open(Course::Forward), enter(), &again)), Ok(Status::Open));
}

#[test]
fn run_of_another_payload_or_definition_is_refused_and_unchanged() {
    let other = RunIntent { fingerprint: Fingerprint::of_bytes(b"another"), ..run_intent() };
    let changed = RunIntent { definition: Some(Fingerprint::of_bytes(b"v2")), ..run_intent() };
    let unsaid = RunIntent { definition: None, ..run_intent() };
    let acts = || [enter(), succeed(), RunAct::TurnBack(failure())];
    for act in acts() {
        let refused = |intent: &RunIntent| {
            transition(Some(open(Course::Forward)), Event::Run(intent.clone(), act.clone()), &context()).unwrap_err()
        };
        assert_eq!(refused(&other), Rejection::OtherRun);
        assert_eq!(refused(&changed), Rejection::OtherDefinition);
        assert_eq!(refused(&unsaid), Rejection::OtherDefinition);
    }
}

#[test]
fn adopted_definition_is_recorded_with_the_next_step() {
    let v2 = Some(Fingerprint::of_bytes(b"v2"));
    let adopting = RunIntent { definition: v2.clone(), adopts: true, ..run_intent() };
    let entered = transition(Some(open(Course::Forward)), Event::Run(adopting.clone(), enter()), &context());
    let Change::Put(run) = entered.expect("accepted").change else { panic!("nothing was written") };
    assert!(matches!(&run.state, State::Open(open) if open.definition == v2));
    let again = transition(Some(*run), Event::Run(adopting, enter()), &context()).expect("accepted");
    assert_eq!(again.change, Change::Keep);
}

#[test]
fn record_of_an_earlier_life_of_its_key_answers_nothing_unless_its_effect_may_yet_happen() {
    let newer = Context { parent: Some(RecordId(8)), ..context() };
    let same_life = Context { parent: Some(RecordId(6)), ..context() };
    let begin = |record: &Record, context: &Context| {
        transition(Some(record.clone()), Event::Begin(intent()), context).expect("an answer").answer
    };
    let over = [
        succeeded(terms(FUTURE, FUTURE)),
        failed(TerminalCause::Reported),
        tombstone(Ended::Succeeded, FUTURE),
        retryable(RetryCause::Released, FUTURE),
    ];
    for record in &over {
        let Answer::Granted(granted, _) = begin(record, &newer) else { panic!("{record:?}") };
        assert_eq!((granted.head.id, granted.head.attempt), (context().fresh_id, 1));
        assert!(!matches!(begin(record, &same_life), Answer::Granted(..)), "{record:?}");
    }
    for record in [reserved(FUTURE), executing(FUTURE), unknown(work())] {
        assert!(!matches!(begin(&record, &newer), Answer::Granted(..)), "{record:?}");
    }
}

#[test]
fn what_belongs_to_a_run_is_kept_for_ever_whatever_was_asked() {
    let step = Identity::step(&run_key(), StepKey::new("charge").expect("valid"));
    for identity in [step.clone(), step.compensation().expect("a step has one")] {
        let begun = transition(None, Event::Begin(Intent { identity, ..intent() }), &context()).expect("granted");
        let Answer::Granted(record, _) = begun.answer else { panic!("not granted") };
        let State::Executing(held) = &record.state else { panic!("not started") };
        assert_eq!(held.work.policy.retention, crate::machine::policy::Retention::forever());
    }
}

#[test]
fn status_of_a_run_is_never_better_than_its_worst_part() {
    let forward = open(Course::Forward).state;
    let back = open(backward()).state;
    let failed_run = failed(TerminalCause::Reported).state;
    let done = succeeded(terms(FUTURE, FUTURE)).state;
    let of = |run: &State, steps: &[(Status, Option<Status>)]| RunStatus::of(run, steps.iter().copied());
    let ok = (Succeeded, Some(Succeeded));

    assert_eq!(of(&forward, &[]), RunStatus::Running);
    assert_eq!(of(&forward, &[(Succeeded, None), (FailedTerminal, None)]), RunStatus::Running);
    assert_eq!(of(&forward, &[(Succeeded, None), (Unknown, None)]), RunStatus::BlockedUnknown);
    assert_eq!(of(&back, &[(Succeeded, None)]), RunStatus::Compensating);
    assert_eq!(of(&back, &[ok, (Succeeded, Some(FailedTerminal))]), RunStatus::Compensating);
    assert_eq!(of(&back, &[ok, (Succeeded, Some(Unknown))]), RunStatus::CompensationUnknown);
    assert_eq!(
        of(&back, &[(Succeeded, Some(FailedTerminal)), (Succeeded, Some(Unknown))]),
        RunStatus::CompensationUnknown
    );
    assert_eq!(of(&failed_run, &[(FailedTerminal, None)]), RunStatus::Failed);
    assert_eq!(of(&failed_run, &[(Succeeded, None)]), RunStatus::Failed);
    assert_eq!(of(&failed_run, &[ok, ok, (FailedTerminal, None)]), RunStatus::Compensated);
    for other in [None, Some(FailedTerminal), Some(FailedRetryable), Some(Executing), Some(Tombstone)] {
        assert_eq!(of(&failed_run, &[ok, (Succeeded, other)]), RunStatus::PartiallyCompensated, "{other:?}");
    }
    assert_eq!(of(&done, &[(Succeeded, None)]), RunStatus::Succeeded);
    assert_eq!(of(&tombstone(Ended::Succeeded, FUTURE).state, &[]), RunStatus::Expired);
}
