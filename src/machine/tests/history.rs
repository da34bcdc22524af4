//! What no history of events may ever do, as the business sees it: a second effect.
//!
//! A small world around one key: callers who begin, holders who tell the truth about themselves (or die), a person who
//! decides rightly, and a provider who counts. Whatever happens in whatever order, the provider counts one effect at
//! most; and what is settled as a success has one.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::machine::event::{About, Answer, Change, Grant, Verdict};
use crate::machine::record::Status;
use crate::machine::transition::transition;

const WINDOW: u64 = 3_600_000;

#[derive(Debug, Clone)]
enum Act {
    /// A caller comes; if it is granted something, the answer reaches it.
    Begin(Phase),
    /// A caller comes whose commit succeeds and whose answer is lost; it remembers its nonce.
    BeginUnheard,
    /// That caller comes back.
    BeginAgain,
    /// Somebody comes with another payload under the same key.
    BeginAltered,
    /// The holder does it.
    Start(usize),
    Perform(usize),
    /// The holder tells the truth.
    Tell(usize, Word),
    Heartbeat(usize),
    /// The holder drops its claim, or its process dies.
    Drop(usize),
    AllDie,
    /// A person looks at the provider's books and says what is true.
    Decide,
    Sweep,
    Pass(u64),
}

#[derive(Debug, Clone, Copy)]
enum Word {
    GiveUp,
    Release,
    Retry,
    RetryWithFreshKey,
    Outcome,
}

/// Somebody who was granted an attempt.
#[derive(Debug, Clone)]
struct Agent {
    token: Token,
    generation: u32,
    started: bool,
    performed: bool,
    /// It will do nothing more: it said so, it is dead, or somebody made sure.
    done: bool,
}

struct World {
    dedupes: bool,
    now: u64,
    record: Option<Record>,
    agents: Vec<Agent>,
    unheard: Vec<Holder>,
    grants: u64,
    ids: u64,
    /// What the provider saw: under which key, and when it did something.
    effects: Vec<(u32, u64)>,
}

impl World {
    fn new(dedupes: bool) -> Self {
        let (record, agents, unheard, effects) = Default::default();
        Self { dedupes, now: 1_000_000, record, agents, unheard, grants: 0, ids: 0, effects }
    }

    fn context(&self) -> Context {
        let now = Timestamp::from_unix_millis(self.now);
        Context { now, wall: now, incarnation: 1, fresh_id: RecordId(self.ids + 1), ..context() }
    }

    fn event(&mut self, event: Event) -> Option<Answer> {
        let transition = transition(self.record.clone(), event, &self.context()).ok()?;
        match transition.change {
            Change::Keep => {}
            Change::Put(record) => {
                self.ids = self.ids.max(record.head.id.0);
                self.record = Some(*record);
            }
            Change::Remove => self.record = None,
        }
        Some(transition.answer)
    }

    fn begin(&mut self, phase: Phase, unheard: Vec<Holder>, altered: bool) -> (Option<Answer>, Holder) {
        self.grants += 1;
        let policy =
            if self.dedupes { Policy { resend_window: Span::from_millis(WINDOW), ..policy() } } else { policy() };
        // What is settled stays known for the whole history: forgetting is another property.
        let policy = Policy { retention: crate::machine::policy::Retention::forever(), ..policy };
        let fingerprint = Fingerprint::of_bytes(if altered { b"another payload" } else { b"payload" });
        let intent = Intent { phase, policy, fingerprint, grant: self.grants, unheard, ..intent() };
        (self.event(Event::Begin(intent)), Holder { incarnation: 1, grant: self.grants })
    }

    fn hear(&mut self, answer: Option<Answer>, phase: Phase) {
        if let Some(Answer::Granted(record, grant)) = answer {
            assert!(self.dedupes || grant == Grant::Fresh);
            let started = phase == Phase::Start;
            let (token, generation) = (record.token(), record.head.generation);
            self.agents.push(Agent { token, generation, started, performed: false, done: false });
        }
    }

    fn is_current(&self, agent: &Agent) -> bool {
        self.record.as_ref().is_some_and(|record| match &record.state {
            State::Executing(held) => record.token() == agent.token && held.lease.until.as_unix_millis() > self.now,
            _ => false,
        })
    }

    fn perform(&mut self, which: usize) {
        let agent = self.agents[which].clone();
        if agent.done || agent.performed || !agent.started {
            return;
        }
        // Against an opaque provider even one that lost its lease while it slept goes on, until somebody makes sure.
        // A re-sending provider's client asks `is_current` first: the provider's window is no longer its own.
        if self.dedupes && !self.is_current(&agent) {
            return;
        }
        self.agents[which].performed = true;
        let key = agent.generation;
        let is_duplicate = self.dedupes && self.effects.iter().any(|(seen, at)| *seen == key && self.now - at < WINDOW);
        if !is_duplicate {
            self.effects.push((key, self.now));
        }
    }

    fn tell(&mut self, which: usize, word: Word) {
        let agent = self.agents[which].clone();
        if agent.done {
            return;
        }
        let success = Settlement::Succeeded { response: Response::Absent, reference: None };
        let settlement = match (word, agent.performed) {
            (Word::GiveUp, _) => Settlement::GaveUp { failure: failure(), reference: None },
            (_, true) => success,
            (Word::Release, false) => Settlement::Released,
            (Word::Retry, false) => Settlement::FailedRetryable { failure: failure(), retry: retry() },
            (Word::RetryWithFreshKey, false) => {
                Settlement::FailedRetryable { failure: failure(), retry: retry().with_fresh_downstream_key() }
            }
            // It was declined: nothing happened, and nothing will.
            (Word::Outcome, false) => Settlement::FailedTerminal { failure: failure(), reference: None },
        };
        if let (Settlement::FailedTerminal { .. }, false) = (&settlement, self.effects.is_empty()) {
            return;
        }
        self.agents[which].done = true;
        self.event(Event::Settle(agent.token, settlement));
    }

    fn decide(&mut self) {
        let verdict = if self.effects.is_empty() {
            Verdict::DidNotHappen
        } else {
            Verdict::Happened { response: Response::Absent, reference: None }
        };
        if self.event(Event::Resolve(verdict, decision(), About::Whatever)).is_some() {
            // "It did not happen" is only true of what cannot happen any more.
            self.agents.iter_mut().for_each(|agent| agent.done = true);
        }
    }

    fn act(&mut self, act: Act) {
        let agents = self.agents.len();
        let of = |which: usize| agents.checked_sub(1).map(|last| which.min(last));
        match act {
            Act::Begin(phase) => {
                let (answer, _) = self.begin(phase, Vec::new(), false);
                self.hear(answer, phase);
            }
            Act::BeginUnheard => {
                let (answer, holder) = self.begin(Phase::Start, Vec::new(), false);
                if matches!(answer, Some(Answer::Granted(..))) {
                    self.unheard.push(holder);
                }
            }
            Act::BeginAgain => {
                let unheard = std::mem::take(&mut self.unheard);
                let (answer, _) = self.begin(Phase::Start, unheard, false);
                self.hear(answer, Phase::Start);
            }
            Act::BeginAltered => {
                let had = self.record.clone();
                if had.is_some() {
                    let (answer, _) = self.begin(Phase::Start, Vec::new(), true);
                    assert!(matches!(answer, Some(Answer::Conflict(_))));
                    assert_eq!(self.record, had);
                }
            }
            Act::Start(which) => {
                if let Some(which) = of(which)
                    && !self.agents[which].done
                    && self.event(Event::Start(self.agents[which].token)).is_some()
                {
                    self.agents[which].started = true;
                }
            }
            Act::Perform(which) => of(which).into_iter().for_each(|which| self.perform(which)),
            Act::Tell(which, word) => of(which).into_iter().for_each(|which| self.tell(which, word)),
            Act::Heartbeat(which) => {
                if let Some(which) = of(which) {
                    self.event(Event::Heartbeat(self.agents[which].token));
                }
            }
            Act::Drop(which) => {
                if let Some(which) = of(which)
                    && !self.agents[which].done
                {
                    self.agents[which].done = true;
                    self.event(Event::Abandon(self.agents[which].token));
                }
            }
            Act::AllDie => {
                self.agents.iter_mut().for_each(|agent| agent.done = true);
                self.event(Event::OwnerGone);
            }
            Act::Decide => self.decide(),
            Act::Sweep => drop(self.event(Event::Tick)),
            Act::Pass(millis) => self.now += millis,
        }
        let status = self.record.as_ref().map(Record::status);
        assert!(self.effects.len() <= 1, "the provider did it {} times: {:?}", self.effects.len(), self.effects);
        assert!(status != Some(Status::Succeeded) || self.effects.len() == 1, "a success that never happened");
        assert!(
            status != Some(Status::FailedTerminal) || self.effects.is_empty(),
            "a failure for good of what happened"
        );
    }
}

fn act() -> impl Strategy<Value = Act> {
    let phase = prop_oneof![Just(Phase::Start), Just(Phase::Reserve)];
    let word = prop_oneof![
        Just(Word::GiveUp),
        Just(Word::Release),
        Just(Word::Retry),
        Just(Word::RetryWithFreshKey),
        Just(Word::Outcome),
        Just(Word::Outcome),
    ];
    // Mostly the last one who was granted something.
    let which = prop_oneof![1 => 0..8_usize, 3 => Just(usize::MAX)];
    let pass = prop_oneof![
        3 => 0..30_000_u64,
        2 => 30_000..200_000_u64,
        1 => Just(WINDOW / 2),
        1 => WINDOW - 100_000..WINDOW + 1000,
    ];
    prop_oneof![
        6 => phase.prop_map(Act::Begin),
        1 => Just(Act::BeginUnheard),
        2 => Just(Act::BeginAgain),
        1 => Just(Act::BeginAltered),
        2 => which.clone().prop_map(Act::Start),
        4 => which.clone().prop_map(Act::Perform),
        4 => (which.clone(), word).prop_map(|(which, word)| Act::Tell(which, word)),
        1 => which.clone().prop_map(Act::Heartbeat),
        2 => which.prop_map(Act::Drop),
        1 => Just(Act::AllDie),
        1 => Just(Act::Decide),
        1 => Just(Act::Sweep),
        3 => pass.prop_map(Act::Pass),
    ]
}

proptest! {
    // `PROPTEST_CASES` raises it.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4000), ..ProptestConfig::default() })]

    #[test]
    fn no_history_makes_an_opaque_provider_act_twice(acts in vec(act(), 1..60)) {
        let mut world = World::new(false);
        acts.into_iter().for_each(|act| world.act(act));
    }

    #[test]
    fn no_history_makes_a_deduping_provider_act_twice(acts in vec(act(), 1..60)) {
        let mut world = World::new(true);
        acts.into_iter().for_each(|act| world.act(act));
    }
}
