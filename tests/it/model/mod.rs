//! Any history of commands, on the store and on a plain map: after each of them, both say the same.
//!
//! `PROPTEST_CASES` raises the number of histories.

mod rules;
mod subject;
mod words;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::STATUSES;
use rules::{Payload, Phase, Verdict, Word};
use subject::Subject;

/// Few keys, so that histories meet.
const KEYS: usize = 4;

/// One thing that happens. `which` picks one of the claims somebody still has, stale ones included.
#[derive(Debug, Clone)]
enum Command {
    Begin(usize, Payload, Phase),
    BeginMany(Vec<usize>),
    Start(usize),
    Heartbeat(usize),
    Checkpoint(usize, u8),
    Refer(usize, u8),
    Settle(usize, Word),
    SettleAndBegin(usize, Word, usize),
    Drop(usize),
    Resolve(usize, Verdict),
    Pass(u64),
    StepWall(u64),
    Sweep(usize),
    Compact,
    Reopen,
    /// With the claims of the last open taken over.
    ReopenAndReattach,
}

fn word() -> impl Strategy<Value = Word> {
    let text = || prop_oneof!["a", "b"].prop_map(|text: String| text);
    prop_oneof![
        3 => text().prop_map(Word::Succeeded),
        2 => text().prop_map(Word::FailedTerminal),
        4 => (text(), prop_oneof![Just(0), Just(30_000)])
            .prop_map(|(text, delay)| Word::FailedRetryable(text, delay)),
        2 => text().prop_map(Word::GaveUp),
        2 => Just(Word::Released),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Happened("found".into())),
        Just(Verdict::FailedForGood("refused".into())),
        Just(Verdict::DidNotHappen),
        Just(Verdict::DidNotHappen),
        Just(Verdict::StillUnknown),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let which = || 0..8_usize;
    let payload = prop_oneof![6 => Just(Payload::Usual), 1 => Just(Payload::Altered)];
    let phase = prop_oneof![3 => Just(Phase::Start), 1 => Just(Phase::Reserve)];
    // Around the ends of leases, responses and tombstones.
    let pass =
        prop_oneof![Just(1), Just(30), Just(59), Just(60), Just(240), Just(300), Just(600), Just(900), 0..1000_u64];
    let day = 86_400;
    let step = prop_oneof![Just(0), Just(day), Just(day + 1000), day - 2000..day + 5000, Just(41 * day)];
    prop_oneof![
        20 => (0..KEYS, payload, phase).prop_map(|(key, payload, phase)| Command::Begin(key, payload, phase)),
        2 => vec(0..KEYS, 0..6).prop_map(Command::BeginMany),
        5 => which().prop_map(Command::Start),
        2 => which().prop_map(Command::Heartbeat),
        2 => (which(), any::<u8>()).prop_map(|(which, byte)| Command::Checkpoint(which, byte)),
        2 => (which(), any::<u8>()).prop_map(|(which, byte)| Command::Refer(which, byte)),
        14 => (which(), word()).prop_map(|(which, word)| Command::Settle(which, word)),
        3 => (which(), word(), 0..KEYS).prop_map(|(which, word, key)| Command::SettleAndBegin(which, word, key)),
        3 => which().prop_map(Command::Drop),
        5 => (0..KEYS, verdict()).prop_map(|(key, verdict)| Command::Resolve(key, verdict)),
        10 => pass.prop_map(Command::Pass),
        2 => step.prop_map(Command::StepWall),
        3 => (1..5_usize).prop_map(Command::Sweep),
        1 => Just(Command::Compact),
        2 => Just(Command::Reopen),
        2 => Just(Command::ReopenAndReattach),
    ]
}

impl Subject {
    fn obey(&mut self, command: Command) {
        match command {
            Command::Begin(key, payload, Phase::Start) => self.begin(key, payload),
            Command::Begin(key, payload, Phase::Reserve) => self.reserve(key, payload),
            Command::BeginMany(keys) => self.begin_many(&keys),
            Command::Start(which) => self.start(which),
            Command::Heartbeat(which) => self.heartbeat(which),
            Command::Checkpoint(which, byte) => self.checkpoint(which, &[byte; 3]),
            Command::Refer(which, byte) => self.refer(which, &format!("ch_{byte}")),
            Command::Settle(which, word) => self.settle(which, &word),
            Command::SettleAndBegin(which, word, key) => self.settle_and_begin(which, &word, key),
            Command::Drop(which) => self.drop_handle(which),
            Command::Resolve(key, verdict) => self.resolve(key, &verdict),
            Command::Pass(secs) => self.pass(secs),
            Command::StepWall(secs) => self.step_wall(secs),
            Command::Sweep(limit) => drop(self.store().sweep(limit).unwrap()),
            Command::Compact => drop(self.store().compact().unwrap()),
            Command::Reopen => self.reopen(false),
            Command::ReopenAndReattach => self.reopen(true),
        }
    }
}

fn live(history: Vec<Command>) {
    let mut subject = Subject::new();
    for command in history {
        subject.obey(command);
        subject.agrees();
    }
    subject.is_tidy();
}

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    // What it finds becomes a test with a name, not a file of seeds.
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_and_map_say_the_same_after_any_history(history in vec(command(), 1..80)) {
        live(history);
    }
}

/// The histories above must be worth something: they reach every status and every answer.
#[test]
fn histories_reach_every_status() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let history = vec(command(), 80..81).new_tree(&mut runner).unwrap().current();
        let mut subject = Subject::new();
        for command in history {
            subject.obey(command);
            seen.extend((0..KEYS).filter_map(|key| subject.status(key)));
        }
    }
    assert_eq!(seen, STATUSES.into_iter().collect());
}
