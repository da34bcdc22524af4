//! What should happen, in as few words as a test can afford: a plain map, whose records age with the time.
//!
//! Written from the rules, not from the code: instants are kept as they were set, and what time made of a record is
//! computed when somebody looks. So it has no sweep.

use std::collections::HashMap;

use dupeproof::{ErrorKind, Status, UnknownCause};

/// Every operation has these terms; milliseconds where it is a time.
pub const LEASE: u64 = 60_000;
pub const RESPONSE: u64 = 300_000;
pub const TOMBSTONE: u64 = 600_000;
pub const ATTEMPTS: u32 = 3;

/// The right to one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    pub key: usize,
    pub record: u64,
    pub attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    Usual,
    Altered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Reserve,
    Start,
}

/// A holder's last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Succeeded(String),
    FailedTerminal(String),
    FailedRetryable(String, u64),
    GaveUp(String),
    Released,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Happened(String),
    FailedForGood(String),
    DidNotHappen,
    StillUnknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub id: u64,
    pub payload: Payload,
    pub created_at: u64,
    pub attempts: u32,
    pub reference: Option<String>,
    pub checkpoint: Option<Vec<u8>>,
    pub decisions: usize,
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Reserved { until: u64 },
    Executing { until: u64 },
    Retryable { why: Why, retry_at: u64 },
    Unknown { since: u64, cause: UnknownCause, words: Option<String> },
    Succeeded { response: String, at: u64 },
    Failed { words: String, exhausted: bool, at: u64 },
    Tombstone { succeeded: bool, at: u64 },
}

/// How it became known that an attempt did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    Said(String),
    Released,
    NeverStarted,
    Verdict,
}

/// What somebody is told who begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Granted(u32),
    Replay { attempt: u32, settled_at: u64, ending: Result<String, (String, bool)> },
    InProgress { attempt: u32, lease_left: u64 },
    RetryLater { attempts: u32, wait: u64, words: Option<String> },
    Unknown { attempt: u32, since: u64, cause: UnknownCause },
    Conflict(Status),
    Expired { succeeded: bool, settled_at: u64 },
}

#[derive(Debug)]
pub struct Model {
    pub now: u64,
    records: HashMap<usize, Record>,
    last_id: u64,
}

impl State {
    pub fn status(&self) -> Status {
        match self {
            Self::Reserved { .. } => Status::Reserved,
            Self::Executing { .. } => Status::Executing,
            Self::Retryable { .. } => Status::FailedRetryable,
            Self::Unknown { .. } => Status::Unknown,
            Self::Succeeded { .. } => Status::Succeeded,
            Self::Failed { .. } => Status::FailedTerminal,
            Self::Tombstone { .. } => Status::Tombstone,
        }
    }
}

impl Record {
    /// The record as time has left it; nothing if it is forgotten.
    fn aged(mut self, now: u64) -> Option<Self> {
        if let State::Reserved { until } = self.state
            && until <= now
        {
            self.state = self.never_started(until);
        }
        if let State::Executing { until } = self.state
            && until <= now
        {
            self.state = State::Unknown { since: until, cause: UnknownCause::LeaseLapsed, words: None };
        }
        let settled = match &self.state {
            State::Succeeded { at, .. } => Some((true, *at)),
            State::Failed { at, .. } => Some((false, *at)),
            State::Tombstone { succeeded, at } => Some((*succeeded, *at)),
            _ => None,
        };
        if let Some((succeeded, at)) = settled
            && at + RESPONSE <= now
        {
            self.state = State::Tombstone { succeeded, at };
            return (now < at + RESPONSE + TOMBSTONE).then_some(self);
        }
        Some(self)
    }

    /// Its holder went without having started: a crash loop ends at the limit.
    fn never_started(&self, at: u64) -> State {
        if self.attempts < ATTEMPTS {
            return State::Retryable { why: Why::NeverStarted, retry_at: at };
        }
        let words = "every permitted attempt ended before its effect was started".to_owned();
        State::Failed { words, exhausted: true, at }
    }

    fn is_held(&self) -> bool {
        matches!(self.state, State::Reserved { .. } | State::Executing { .. })
    }

    fn answer(&self, now: u64) -> Told {
        match self.state.clone() {
            State::Reserved { until } | State::Executing { until } => {
                Told::InProgress { attempt: self.attempts, lease_left: until - now }
            }
            State::Retryable { why, retry_at } => {
                let words = if let Why::Said(words) = why { Some(words) } else { None };
                Told::RetryLater { attempts: self.attempts, wait: retry_at - now, words }
            }
            State::Unknown { since, cause, .. } => Told::Unknown { attempt: self.attempts, since, cause },
            State::Succeeded { response, at } => {
                Told::Replay { attempt: self.attempts, settled_at: at, ending: Ok(response) }
            }
            State::Failed { words, exhausted, at } => {
                Told::Replay { attempt: self.attempts, settled_at: at, ending: Err((words, exhausted)) }
            }
            State::Tombstone { succeeded, at } => Told::Expired { succeeded, settled_at: at },
        }
    }
}

impl Model {
    pub fn at(now: u64) -> Self {
        Self { now, records: HashMap::new(), last_id: 0 }
    }

    pub fn record(&self, key: usize) -> Option<Record> {
        self.records.get(&key).cloned().and_then(|record| record.aged(self.now))
    }

    pub fn count(&self, status: Status) -> u64 {
        let records = self.records.keys().filter_map(|key| self.record(*key));
        records.filter(|record| record.state.status() == status).count() as u64
    }

    pub fn begin(&mut self, key: usize, payload: Payload, phase: Phase) -> (Told, Option<Token>) {
        let now = self.now;
        let mut record = match self.record(key) {
            Some(record) => record,
            None => {
                self.last_id += 1;
                Record {
                    id: self.last_id,
                    payload,
                    created_at: now,
                    attempts: 0,
                    reference: None,
                    checkpoint: None,
                    decisions: 0,
                    state: State::Retryable { why: Why::NeverStarted, retry_at: now },
                }
            }
        };
        if record.payload != payload {
            return (Told::Conflict(record.state.status()), None);
        }
        match record.state {
            State::Retryable { retry_at, .. } if retry_at <= now => {}
            _ => return (record.answer(now), None),
        }
        record.attempts += 1;
        record.reference = None;
        let until = now + LEASE;
        record.state = match phase {
            Phase::Reserve => State::Reserved { until },
            Phase::Start => State::Executing { until },
        };
        let token = Token { key, record: record.id, attempt: record.attempts };
        self.records.insert(key, record);
        (Told::Granted(token.attempt), Some(token))
    }

    /// The record of a token that is the current one.
    fn current(&self, token: Token) -> Result<Record, ErrorKind> {
        self.record(token.key)
            .filter(|record| (record.id, record.attempts) == (token.record, token.attempt))
            .ok_or(ErrorKind::LeaseLost)
    }

    pub fn is_held(&self, token: Token) -> bool {
        self.current(token).is_ok_and(|record| record.is_held())
    }

    /// Whether this attempt is still the last one granted, whatever became of it.
    pub fn is_last(&self, token: Token) -> bool {
        self.current(token).is_ok()
    }

    fn held(&self, token: Token) -> Result<Record, ErrorKind> {
        self.current(token)?.is_held().then(|| self.current(token)).ok_or(ErrorKind::LeaseLost)?
    }

    fn put(&mut self, token: Token, record: Record) {
        self.records.insert(token.key, record);
    }

    pub fn start(&mut self, token: Token) -> Result<(), ErrorKind> {
        let mut record = self.held(token)?;
        if let State::Reserved { until } = record.state {
            record.state = State::Executing { until };
        }
        self.put(token, record);
        Ok(())
    }

    /// A lease as long as the execution may be is not renewed.
    pub fn heartbeat(&self, token: Token) -> Result<(), ErrorKind> {
        self.held(token).map(drop)
    }

    pub fn checkpoint(&mut self, token: Token, bytes: &[u8]) -> Result<(), ErrorKind> {
        let record = Record { checkpoint: Some(bytes.to_vec()), ..self.held(token)? };
        self.put(token, record);
        Ok(())
    }

    pub fn refer(&mut self, token: Token, reference: &str) -> Result<(), ErrorKind> {
        let record = Record { reference: Some(reference.to_owned()), ..self.held(token)? };
        self.put(token, record);
        Ok(())
    }

    pub fn settle(&mut self, token: Token, word: &Word) -> Result<(), ErrorKind> {
        let now = self.now;
        let mut record = self.current(token)?;
        match &record.state {
            State::Reserved { .. } if *word == Word::Released => {}
            State::Reserved { .. } => return Err(ErrorKind::Refused),
            State::Executing { .. } => {}
            // Nobody else was granted an attempt: the owner's word counts late.
            State::Unknown { .. } => {
                if let (State::Unknown { words, .. }, Word::GaveUp(said)) = (&mut record.state, word) {
                    *words = Some(said.clone());
                    self.put(token, record);
                    return Ok(());
                }
                record.decisions += 1;
            }
            State::Retryable { why: Why::Verdict, .. }
                if matches!(word, Word::Succeeded(_) | Word::FailedTerminal(_)) =>
            {
                record.decisions += 1;
            }
            settled => return if says_the_same(settled, word) { Ok(()) } else { Err(contradiction(settled)) },
        }
        record.state = match word.clone() {
            Word::Succeeded(response) => State::Succeeded { response, at: now },
            Word::FailedTerminal(words) => State::Failed { words, exhausted: false, at: now },
            Word::FailedRetryable(words, _) if record.attempts >= ATTEMPTS => {
                State::Failed { words, exhausted: true, at: now }
            }
            Word::FailedRetryable(words, delay) => State::Retryable { why: Why::Said(words), retry_at: now + delay },
            Word::GaveUp(words) => State::Unknown { since: now, cause: UnknownCause::GaveUp, words: Some(words) },
            Word::Released => State::Retryable { why: Why::Released, retry_at: now },
        };
        self.put(token, record);
        Ok(())
    }

    /// The holder is gone without a word.
    pub fn drop_claim(&mut self, token: Token) {
        let Ok(mut record) = self.held(token) else { return };
        record.state = match record.state {
            State::Reserved { .. } => State::Retryable { why: Why::Released, retry_at: self.now },
            _ => State::Unknown { since: self.now, cause: UnknownCause::ClaimDropped, words: None },
        };
        self.put(token, record);
    }

    /// The store is closed, or opened: all holders are gone.
    pub fn owners_gone(&mut self) {
        for key in self.records.keys().copied().collect::<Vec<_>>() {
            let Some(mut record) = self.record(key).filter(Record::is_held) else { continue };
            record.state = match record.state {
                State::Reserved { .. } => record.never_started(self.now),
                _ => State::Unknown { since: self.now, cause: UnknownCause::OwnerGone, words: None },
            };
            self.records.insert(key, record);
        }
    }

    pub fn resolve(&mut self, key: usize, verdict: &Verdict) -> Result<(), ErrorKind> {
        let mut record = self.record(key).ok_or(ErrorKind::NotFound)?;
        if record.state.status() != Status::Unknown {
            return Err(ErrorKind::Refused);
        }
        let at = self.now;
        record.decisions += 1;
        match verdict.clone() {
            Verdict::Happened(response) => record.state = State::Succeeded { response, at },
            Verdict::FailedForGood(words) => record.state = State::Failed { words, exhausted: false, at },
            Verdict::DidNotHappen => record.state = State::Retryable { why: Why::Verdict, retry_at: at },
            Verdict::StillUnknown => {}
        }
        self.records.insert(key, record);
        Ok(())
    }
}

fn says_the_same(state: &State, word: &Word) -> bool {
    match (state, word) {
        (State::Retryable { why: Why::Said(first), .. }, Word::FailedRetryable(second, _)) => first == second,
        (State::Retryable { why: Why::Said(_), .. }, _) => false,
        (State::Retryable { .. }, Word::FailedRetryable(..) | Word::Released) => true,
        (State::Succeeded { response, .. }, Word::Succeeded(second)) => response == second,
        (State::Failed { words, exhausted: false, .. }, Word::FailedTerminal(second)) => words == second,
        (State::Failed { words, exhausted: true, .. }, Word::FailedRetryable(second, _)) => words == second,
        // A tombstone knows how it ended, no longer with what.
        (State::Tombstone { succeeded: true, .. }, Word::Succeeded(_)) => true,
        (State::Tombstone { succeeded: false, .. }, Word::FailedTerminal(_)) => true,
        _ => false,
    }
}

/// What a holder is told who contradicts. One whose reservation ended has nothing to contradict.
fn contradiction(state: &State) -> ErrorKind {
    match state {
        State::Retryable { why: Why::NeverStarted, .. } => ErrorKind::LeaseLost,
        _ => ErrorKind::AlreadySettled,
    }
}
