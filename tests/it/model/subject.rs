//! The store and the map side by side: each command is given to both, and both must answer alike.

use std::collections::HashMap;
use std::time::Duration;

use dupeproof::{Begin, Claim, Decision, ErrorKind, FailureReport, Operation, Reservation, Retention, Status, Store};

use super::KEYS;
use super::rules::{ATTEMPTS, LEASE, Model, Payload, Phase, RESPONSE, State, TOMBSTONE, Token, Verdict, Word};
use super::words::{Seen, kind, millis, settle, settlement, told, told_reserving};
use crate::support::*;

/// Claims kept at most; older ones are dropped.
const HANDLES_MAX: usize = 8;

enum Handle {
    Reservation(Reservation),
    Claim(Claim),
}

pub struct Subject {
    world: World,
    store: Store,
    model: Model,
    handles: Vec<(Token, Handle)>,
    /// The provider's books: of each started attempt, whether its effect may have happened.
    may_have_happened: HashMap<Token, bool>,
    /// When the store last remembered its time for certain.
    written_at: Option<u64>,
}

fn name(key: usize) -> String {
    format!("key {key}")
}

fn asked(key: usize, payload: Payload) -> Operation {
    let asked = match payload {
        Payload::Usual => operation(&name(key)),
        Payload::Altered => altered(&name(key)),
    };
    let millis = Duration::from_millis;
    // A lease that no renewal can lengthen, so that time alone decides.
    asked
        .with_lease(millis(LEASE))
        .with_max_execution(millis(LEASE))
        .with_attempts(ATTEMPTS)
        .with_retention(Retention::default().with_response(millis(RESPONSE)).with_tombstone(millis(TOMBSTONE)))
}

impl Subject {
    pub fn new() -> Self {
        let world = World::new();
        let store = world.open();
        let model = Model::at(START.as_millis() as u64);
        Self { world, store, written_at: None, model, handles: Vec::new(), may_have_happened: HashMap::new() }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn status(&self, key: usize) -> Option<Status> {
        self.model.record(key).map(|record| record.state.status())
    }

    pub fn begin(&mut self, key: usize, payload: Payload) {
        let answer = self.store.begin(&asked(key, payload)).unwrap();
        self.begun(key, payload, answer);
    }

    pub fn begin_many(&mut self, keys: &[usize]) {
        let batch: Vec<Operation> = keys.iter().map(|key| asked(*key, Payload::Usual)).collect();
        let answers = self.store.begin_many(&batch).unwrap();
        for (key, answer) in keys.iter().zip(answers) {
            self.begun(*key, Payload::Usual, answer);
        }
    }

    fn begun(&mut self, key: usize, payload: Payload, answer: Begin) {
        let (expected, token) = self.model.begin(key, payload, Phase::Start);
        assert_eq!(told(&answer), expected);
        if let (Begin::Execute(claim), Some(token)) = (answer, token) {
            self.started(token);
            self.hold(token, Handle::Claim(claim));
        }
    }

    pub fn reserve(&mut self, key: usize, payload: Payload) {
        let (told, reservation) = told_reserving(self.store.reserve(&asked(key, payload)).unwrap());
        let (expected, token) = self.model.begin(key, payload, Phase::Reserve);
        assert_eq!(told, expected);
        if let (Some(reservation), Some(token)) = (reservation, token) {
            self.granted(token);
            self.hold(token, Handle::Reservation(reservation));
        }
    }

    /// The one promise: a new attempt only when every former one is known not to have happened.
    fn granted(&mut self, token: Token) {
        for (earlier, may_have_happened) in &self.may_have_happened {
            if (earlier.key, earlier.record) == (token.key, token.record) && earlier.attempt < token.attempt {
                assert!(!may_have_happened, "{token:?} was granted, and {earlier:?} may have happened");
            }
        }
        self.written_at = Some(self.model.now);
    }

    fn started(&mut self, token: Token) {
        self.granted(token);
        self.may_have_happened.insert(token, true);
    }

    fn hold(&mut self, token: Token, handle: Handle) {
        if self.handles.len() == HANDLES_MAX {
            self.drop_handle(0);
        }
        self.handles.push((token, handle));
    }

    fn pick(&self, which: usize) -> Option<usize> {
        (!self.handles.is_empty()).then(|| which % self.handles.len())
    }

    fn claim(&self, which: usize) -> Option<(Token, &Claim)> {
        match &self.handles[self.pick(which)?] {
            (token, Handle::Claim(claim)) => Some((*token, claim)),
            (_, Handle::Reservation(_)) => None,
        }
    }

    pub fn start(&mut self, which: usize) {
        let Some(at) = self.pick(which) else { return };
        let (token, handle) = self.handles.remove(at);
        match handle {
            Handle::Claim(_) => self.handles.insert(at, (token, handle)),
            Handle::Reservation(reservation) => {
                let started = reservation.start();
                assert_eq!(started.as_ref().map(drop).map_err(|error| error.kind()), self.model.start(token));
                match started {
                    Ok(claim) => {
                        self.started(token);
                        self.hold(token, Handle::Claim(claim));
                    }
                    Err(_) => self.dropped(token),
                }
            }
        }
    }

    pub fn heartbeat(&self, which: usize) {
        let Some(at) = self.pick(which) else { return };
        let (token, handle) = &self.handles[at];
        let beaten = match handle {
            Handle::Claim(claim) => claim.heartbeat(),
            Handle::Reservation(reservation) => reservation.heartbeat(),
        };
        assert_eq!(kind(beaten), self.model.heartbeat(*token));
    }

    pub fn checkpoint(&mut self, which: usize, bytes: &[u8]) {
        let Some((token, claim)) = self.claim(which) else { return };
        let noted = kind(claim.checkpoint(bytes));
        assert_eq!(noted, self.model.checkpoint(token, bytes));
    }

    pub fn refer(&mut self, which: usize, reference: &str) {
        let Some((token, claim)) = self.claim(which) else { return };
        let noted = kind(claim.record_external_reference(reference));
        assert_eq!(noted, self.model.refer(token, reference));
    }

    pub fn settle(&mut self, which: usize, word: &Word) {
        let Some(at) = self.pick(which) else { return };
        if let (token, Handle::Claim(claim)) = &self.handles[at] {
            let token = *token;
            let told = settle(claim, word);
            let expected = self.model.settle(token, word);
            let is_forgotten =
                self.model.record(token.key).is_some_and(|record| matches!(record.state, State::Tombstone { .. }));
            // It is accepted, but there is no response left to show.
            assert_eq!(told, if expected.is_ok() && is_forgotten { Err(ErrorKind::Refused) } else { expected });
            self.said(token, word, expected.is_ok());
        } else if *word == Word::Released {
            let (token, handle) = self.handles.remove(at);
            let Handle::Reservation(reservation) = handle else { unreachable!() };
            assert_eq!(kind(reservation.release()), self.model.settle(token, word));
            self.dropped(token);
        }
    }

    pub fn settle_and_begin(&mut self, which: usize, word: &Word, key: usize) {
        let Some((token, claim)) = self.claim(which) else { return };
        let answer = claim.settle_and_begin(settlement(word), &asked(key, Payload::Usual));
        let settled = self.model.settle(token, word);
        match answer {
            Ok(answer) => {
                assert_eq!(settled, Ok(()));
                self.said(token, word, true);
                self.begun(key, Payload::Usual, answer);
            }
            Err(error) => assert_eq!(Err(error.kind()), settled),
        }
    }

    /// The provider hears what its client learned.
    fn said(&mut self, token: Token, word: &Word, is_accepted: bool) {
        if is_accepted && self.may_have_happened.contains_key(&token) {
            let may_have = !matches!(word, Word::Released | Word::FailedRetryable(..));
            self.may_have_happened.insert(token, may_have);
        }
    }

    pub fn drop_handle(&mut self, which: usize) {
        let Some(at) = self.pick(which) else { return };
        let (token, handle) = self.handles.remove(at);
        drop(handle);
        self.dropped(token);
    }

    fn dropped(&mut self, token: Token) {
        after_drops(&self.store);
        self.model.drop_claim(token);
    }

    pub fn resolve(&mut self, key: usize, verdict: &Verdict) {
        let given = match verdict.clone() {
            Verdict::Happened(response) => {
                dupeproof::Verdict::Happened { response: response.into(), external_reference: None }
            }
            Verdict::FailedForGood(words) => dupeproof::Verdict::FailedForGood { failure: FailureReport::new(words) },
            Verdict::DidNotHappen => dupeproof::Verdict::DidNotHappen,
            Verdict::StillUnknown => dupeproof::Verdict::StillUnknown { next: Duration::ZERO },
        };
        let told = self.store.resolve(self::key(&name(key)), given, &Decision::new("jane", "looked"));
        let expected = self.model.resolve(key, verdict);
        assert_eq!(kind(told), expected);
        if expected.is_ok() && *verdict == Verdict::DidNotHappen {
            let record = self.model.record(key).expect("it was resolved");
            self.may_have_happened.insert(Token { key, record: record.id, attempt: record.attempts }, false);
        }
    }

    pub fn pass(&mut self, secs: u64) {
        self.world.clock.advance(Duration::from_secs(secs));
        self.model.now += secs * 1000;
    }

    /// Counted from the day before.
    pub fn step_wall(&self, secs: u64) {
        self.world.clock.step_wall(START - DAY + Duration::from_secs(secs));
    }

    pub fn reopen(&mut self, reattach: bool) {
        self.store.close().unwrap();
        self.model.owners_gone();
        self.store = self.world.open();

        // How far store time moves while it is closed is the clock's rule, not the map's: within its bounds, take over.
        let now = millis(self.store.stats().unwrap().now);
        let wall = dupeproof::Clock::wall(&self.world.clock).as_millis() as u64;
        let latest = self.model.now + 30 * DAY.as_millis() as u64;
        match self.written_at {
            Some(written_at) => assert!(written_at <= now && now <= latest, "{now} is not {written_at} to {latest}"),
            // A store in which nothing was ever written knows no time yet.
            None => assert_eq!(now, wall),
        }
        self.model.now = now;
        // A forgotten record is not written by the close; a clock that went back finds it again, and its owner gone.
        self.model.owners_gone();

        for (token, handle) in std::mem::take(&mut self.handles) {
            let Handle::Claim(claim) = handle else { continue };
            if !reattach {
                assert_eq!(kind(claim.heartbeat()), Err(ErrorKind::Closed));
                continue;
            }
            let reattached = self.store.reattach(claim);
            // A forgotten record may still lie there unswept.
            if self.model.record(token.key).is_some() {
                assert_eq!(reattached.is_ok(), self.model.is_last(token), "{token:?}");
            }
            if let Ok(claim) = reattached {
                self.handles.push((token, Handle::Claim(claim)));
            }
        }
    }

    /// The store shows what the map holds.
    pub fn agrees(&self) {
        assert_eq!(millis(self.store.stats().unwrap().now), self.model.now);
        for key in 0..KEYS {
            let view = self.store.get(self::key(&name(key))).unwrap();
            assert_eq!(view.as_ref().map(Seen::of), self.model.record(key).as_ref().map(Seen::expected), "key {key}");
        }
        for (token, handle) in &self.handles {
            let is_current = match handle {
                Handle::Claim(claim) => claim.is_current(),
                Handle::Reservation(reservation) => reservation.is_current(),
            };
            assert_eq!(is_current, self.model.is_held(*token), "{token:?}");
        }
    }

    /// Nothing is left over, on the disk or in the counts.
    pub fn is_tidy(&mut self) {
        // The row with the highest number stays; let it be one that is not forgotten.
        execute(&self.store, &operation("last")).succeed_raw("ok").unwrap();
        self.written_at = Some(self.model.now);
        while self.store.sweep(3).unwrap().more {}
        let report = self.store.verify().unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        let stats = self.store.stats().unwrap();
        let counted = [
            stats.reserved,
            stats.executing,
            stats.failed_retryable,
            stats.unknown,
            stats.succeeded,
            stats.failed_terminal,
            stats.tombstones,
            stats.runs_open,
        ];
        let mut expected = Status::ALL.map(|status| self.model.count(status));
        expected[4] += 1;
        assert_eq!(counted, expected);
        assert_eq!(report.records, expected.iter().sum::<u64>());
        self.agrees();
        self.reopen(false);
        self.agrees();
    }
}
