//! Any history of one run, on the store and on a plain list of steps: after each command, both say the same.
//!
//! `PROPTEST_CASES` raises the number of histories.

use std::collections::BTreeSet;

use dupeproof::{Failure, FailureReport, Retention, Retry, Settlement, Status, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::support::*;

const STEPS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Command {
    /// With the usual payload, or another one.
    Begin(usize, bool),
    Settle(usize, End),
    /// Settles the first with the begin of the second.
    SettleAndBegin(usize, End, usize),
    /// Whether it happened.
    Resolve(usize, bool),
    ResolveUndo(usize, bool),
    Finish,
    Fail,
    /// How the compensation of each step ends, if it is tried.
    Compensate([End; 3]),
    /// The claims die with the store.
    Reopen,
    /// Responses expire meanwhile; the claims are dropped before.
    EightDays,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Done,
    Refused,
    Later,
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Absent,
    Forward,
    Backward,
    Succeeded,
    Failed,
    Expired,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    status: Status,
    undo: Option<Status>,
}

impl End {
    fn status(self) -> Status {
        match self {
            Self::Done => Status::Succeeded,
            Self::Refused => Status::FailedTerminal,
            Self::Later => Status::FailedRetryable,
            Self::Lost => Status::Unknown,
        }
    }

    fn settlement(self) -> Settlement {
        match self {
            Self::Done => Settlement::Succeeded("done".into()),
            Self::Refused => Settlement::FailedTerminal(FailureReport::new("refused")),
            Self::Later => Settlement::FailedRetryable(FailureReport::new("later"), Retry::now()),
            Self::Lost => Settlement::GaveUp(FailureReport::new("lost")),
        }
    }

    fn result(self) -> std::result::Result<Response, Failure> {
        match self {
            Self::Done => Ok("undone".into()),
            Self::Refused => Err(Failure::terminal("refused")),
            Self::Later => Err(Failure::retryable("later", Retry::now())),
            Self::Lost => Err(Failure::unknown("lost")),
        }
    }
}

/// What a run is, in the plainest words.
struct Model {
    way: Way,
    steps: [Option<Step>; 3],
    /// Steps in the order of their begins, and of their successes.
    begun: Vec<usize>,
    done: Vec<usize>,
}

impl Model {
    fn is(&self, at: usize, status: Status) -> bool {
        self.steps[at].is_some_and(|step| step.status == status)
    }

    fn any(&self, status: Status) -> bool {
        (0..3).any(|at| self.is(at, status))
    }

    fn undone(&self, status: Status) -> bool {
        self.steps.iter().flatten().any(|step| step.undo == Some(status))
    }

    fn may_begin(&self, at: usize, is_usual: bool) -> bool {
        let is_fresh = self.steps[at].is_none_or(|step| step.status == Status::FailedRetryable && is_usual);
        is_fresh && matches!(self.way, Way::Absent | Way::Forward) && !self.any(Status::Unknown)
    }

    fn begin(&mut self, at: usize) {
        self.way = Way::Forward;
        if self.steps[at].is_none() {
            self.begun.push(at);
        }
        self.set(at, Status::Executing);
    }

    fn set(&mut self, at: usize, status: Status) {
        if status == Status::Succeeded {
            self.done.push(at);
        }
        self.steps[at] = Some(Step { status, undo: None });
    }

    /// Whether the run could be ended or turned back: nothing is in doubt or may yet come to be.
    fn is_known(&self) -> bool {
        !self.any(Status::Unknown) && !self.any(Status::Executing)
    }

    fn end(&mut self, way: Way) -> bool {
        let may = match self.way {
            Way::Absent => true,
            Way::Forward => self.is_known(),
            found => found == way,
        };
        if may {
            self.way = way;
        }
        may
    }

    /// Turns back and compensates; says which steps were tried, in their order, or that it may not.
    fn compensate(&mut self, ends: [End; 3]) -> Option<Vec<usize>> {
        match self.way {
            Way::Forward if !self.is_known() => return None,
            Way::Absent | Way::Forward if self.done.is_empty() => self.way = Way::Failed,
            Way::Forward => self.way = Way::Backward,
            Way::Succeeded => return None,
            Way::Failed => return Some(Vec::new()),
            _ => {}
        }
        let mut tried = Vec::new();
        for &at in self.done.iter().rev() {
            let step = self.steps[at].as_mut().expect("it was done");
            if matches!(step.undo, None | Some(Status::FailedRetryable)) {
                step.undo = Some(ends[at].status());
                tried.push(at);
            }
        }
        if !self.undone(Status::Unknown) && !self.undone(Status::FailedRetryable) {
            self.way = Way::Failed;
        }
        Some(tried)
    }

    fn status(&self) -> Option<RunStatus> {
        let undos = || self.done.iter().map(|at| self.steps[*at].and_then(|step| step.undo));
        Some(match self.way {
            Way::Absent => return None,
            Way::Forward if self.any(Status::Unknown) => RunStatus::BlockedUnknown,
            Way::Forward => RunStatus::Running,
            Way::Backward if self.undone(Status::Unknown) => RunStatus::CompensationUnknown,
            Way::Backward => RunStatus::Compensating,
            Way::Succeeded => RunStatus::Succeeded,
            Way::Failed if undos().all(|undo| undo.is_none()) => RunStatus::Failed,
            Way::Failed if undos().all(|undo| undo == Some(Status::Succeeded)) => RunStatus::Compensated,
            Way::Failed => RunStatus::PartiallyCompensated,
            Way::Expired => RunStatus::Expired,
        })
    }
}

struct Subject {
    world: World,
    store: Option<Store>,
    claims: [Option<Claim>; 3],
    model: Model,
}

impl Subject {
    fn new() -> Self {
        let world = World::new();
        let store = Some(world.open());
        let model = Model { way: Way::Absent, steps: [None; 3], begun: Vec::new(), done: Vec::new() };
        Self { world, store, claims: [const { None }; 3], model }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn workflow(&self) -> Workflow {
        trip(self.store()).with_retention(Retention::default().with_tombstone_forever())
    }

    fn run(&self) -> Run {
        self.workflow().enter("t-1", payload()).unwrap()
    }

    fn obey(&mut self, command: Command) {
        self.world.clock.advance(std::time::Duration::from_secs(1));
        match command {
            Command::Begin(at, is_usual) => {
                // The first payload is the usual one.
                if self.model.steps[at].is_none() && !is_usual {
                    return;
                }
                let fingerprint = if is_usual { payload() } else { Fingerprint::of_bytes(b"another") };
                let answer = self.run().step(STEPS[at], fingerprint);
                self.begun(at, is_usual, answer);
            }
            Command::Settle(at, end) => {
                let Some(claim) = self.claims[at].take() else { return };
                settle(&claim, end);
                self.model.set(at, end.status());
            }
            Command::SettleAndBegin(at, end, next) => {
                if at == next {
                    return;
                }
                let Some(claim) = self.claims[at].take() else { return };
                let answer = self.run().settle_and_step(&claim, end.settlement(), STEPS[next], payload());
                self.model.set(at, end.status());
                self.begun(next, true, answer);
            }
            Command::Resolve(at, happened) => {
                let is_unknown = self.model.is(at, Status::Unknown);
                let resolved = self.resolve(step_of(at), happened);
                assert_eq!(resolved, is_unknown);
                if is_unknown {
                    self.model.set(at, if happened { Status::Succeeded } else { Status::FailedRetryable });
                }
            }
            Command::ResolveUndo(at, happened) => {
                let is_unknown = self.model.steps[at].is_some_and(|step| step.undo == Some(Status::Unknown));
                let resolved = self.resolve(step_of(at).compensation().unwrap(), happened);
                assert_eq!(resolved, is_unknown);
                if let Some(step) = self.model.steps[at].as_mut().filter(|_| is_unknown) {
                    step.undo = Some(if happened { Status::Succeeded } else { Status::FailedRetryable });
                }
            }
            Command::Finish | Command::Fail if self.model.way == Way::Expired => {}
            Command::Finish => {
                let ended = self.run().finish_raw("done").is_ok();
                assert_eq!(ended, self.model.end(Way::Succeeded));
            }
            // Whether it is a repeat depends on why the run failed before.
            Command::Fail if self.model.way == Way::Failed => drop(self.run().fail("given up")),
            Command::Fail => {
                let ended = self.run().fail("given up").is_ok();
                assert_eq!(ended, self.model.end(Way::Failed));
            }
            Command::Compensate(_) if self.model.way == Way::Expired => {}
            Command::Compensate(ends) => {
                let mut tried = Vec::new();
                let view = self.run().compensate(|undo| {
                    let at = STEPS.iter().position(|step| *step == undo.step().name()).unwrap();
                    tried.push(at);
                    ends[at].result()
                });
                assert_eq!(view.is_ok().then_some(tried), self.model.compensate(ends));
            }
            Command::Reopen => {
                self.forget_claims();
                self.store = self.store.take().map(|store| self.world.reopen(store));
            }
            Command::EightDays => {
                self.forget_claims();
                after_drops(self.store());
                self.world.clock.advance(8 * DAY);
                if matches!(self.model.way, Way::Succeeded | Way::Failed) {
                    (self.model.way, self.model.steps) = (Way::Expired, [None; 3]);
                    self.model.begun.clear();
                    self.model.done.clear();
                }
                while self.store().sweep(2).unwrap().more {}
            }
        }
    }

    fn begun(&mut self, at: usize, is_usual: bool, answer: dupeproof::Result<Begin>) {
        let may_begin = self.model.may_begin(at, is_usual);
        let before = self.model.steps[at].map(|step| step.status);
        match answer {
            Ok(Begin::Execute(claim)) => {
                assert!(may_begin, "{} was {before:?} in a run {:?}", STEPS[at], self.model.way);
                self.model.begin(at);
                self.claims[at] = Some(claim);
                return;
            }
            Ok(Begin::Conflict(_)) => assert!(before.is_some() && !is_usual),
            Ok(Begin::Replay(_)) => assert!(matches!(before, Some(Status::Succeeded | Status::FailedTerminal))),
            Ok(Begin::InProgress(_)) => assert_eq!(before, Some(Status::Executing)),
            Ok(Begin::Unknown(_)) => assert!(self.model.any(Status::Unknown)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert_eq!(error.kind(), dupeproof::ErrorKind::Refused),
        }
        assert!(!may_begin, "{} was {before:?} in a run {:?}", STEPS[at], self.model.way);
    }

    fn resolve(&self, identity: dupeproof::Identity, happened: bool) -> bool {
        let verdict = match happened {
            true => Verdict::Happened { response: "seen".into(), external_reference: None },
            false => Verdict::DidNotHappen,
        };
        self.store().resolve(identity, verdict, &decision()).is_ok()
    }

    /// An owner who is gone leaves its outcome unknown.
    fn forget_claims(&mut self) {
        for at in 0..3 {
            if self.claims[at].take().is_some() {
                self.model.set(at, Status::Unknown);
            }
        }
    }

    fn agrees(&self) {
        let model = &self.model;
        let found = self.workflow().find("t-1").unwrap();
        assert_eq!(found.as_ref().map(|view| view.summary.status), model.status());
        let shown: Vec<_> = found.iter().flat_map(|view| &view.steps).map(shown).collect();
        let step = |at: &usize| model.steps[*at].map(|step| (STEPS[*at].to_owned(), step.status, step.undo)).unwrap();
        assert_eq!(shown, model.begun.iter().map(step).collect::<Vec<_>>());
        let entry = self.workflow().run("t-1", payload()).unwrap();
        let way = match entry {
            RunEntry::Run(_) => Way::Forward,
            RunEntry::Compensating(_) => Way::Backward,
            RunEntry::Replay(replay) if replay.is_success() => Way::Succeeded,
            RunEntry::Replay(_) => Way::Failed,
            RunEntry::Expired(_) => Way::Expired,
            other => panic!("{other:?}"),
        };
        assert_eq!(way, if model.way == Way::Absent { Way::Forward } else { model.way });
        let other = self.workflow().run("t-1", Fingerprint::of_bytes(b"another run")).unwrap();
        assert_eq!(matches!(other, RunEntry::Conflict(_)), model.way != Way::Absent, "{other:?}");
    }
}

fn step_of(at: usize) -> dupeproof::Identity {
    let key = dupeproof::RunKey::new("acme", "trip", "t-1").unwrap();
    dupeproof::Identity::step(&key, STEPS[at].try_into().unwrap())
}

fn shown(step: &dupeproof::StepView) -> (String, Status, Option<Status>) {
    let undo = step.operation.compensation.as_ref().map(|undo| undo.status);
    (step.step.name().to_owned(), step.operation.status, undo)
}

fn settle(claim: &Claim, end: End) {
    match end {
        End::Done => drop(claim.succeed_raw("done").unwrap()),
        End::Refused => drop(claim.fail_terminal("refused").unwrap()),
        End::Later => drop(claim.fail_retryable("later", Retry::now()).unwrap()),
        End::Lost => drop(claim.give_up("lost").unwrap()),
    }
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![3 => Just(End::Done), 1 => Just(End::Refused), 1 => Just(End::Later), 1 => Just(End::Lost)]
}

fn command() -> impl Strategy<Value = Command> {
    let step = || 0..3_usize;
    prop_oneof![
        12 => (step(), prop::bool::weighted(0.9)).prop_map(|(at, is_usual)| Command::Begin(at, is_usual)),
        8 => (step(), end()).prop_map(|(at, end)| Command::Settle(at, end)),
        4 => (step(), end(), step()).prop_map(|(at, end, next)| Command::SettleAndBegin(at, end, next)),
        4 => (step(), any::<bool>()).prop_map(|(at, happened)| Command::Resolve(at, happened)),
        3 => (step(), any::<bool>()).prop_map(|(at, happened)| Command::ResolveUndo(at, happened)),
        1 => Just(Command::Finish),
        1 => Just(Command::Fail),
        3 => [end(), end(), end()].prop_map(Command::Compensate),
        1 => Just(Command::Reopen),
        1 => Just(Command::EightDays),
    ]
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    // What it finds becomes a test with a name, not a file of seeds.
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn run_and_list_of_steps_say_the_same_after_any_history(history in vec(command(), 1..60)) {
        let mut subject = Subject::new();
        for command in history {
            subject.obey(command);
            subject.agrees();
        }
        assert!(subject.store().verify().unwrap().is_clean());
    }
}

/// The histories above must be worth something: they reach every status that a run can have.
#[test]
fn histories_reach_every_status_of_a_run() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let history = vec(command(), 60..61).new_tree(&mut runner).unwrap().current();
        let mut subject = Subject::new();
        for command in history {
            subject.obey(command);
            seen.extend(subject.model.status());
        }
    }
    assert_eq!(seen, RunStatus::ALL.into_iter().collect());
}
