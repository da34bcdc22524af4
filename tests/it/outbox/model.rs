//! Random histories against a plain map, over reopens, lapsed leases and stores that close in the middle of a batch.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use dupeproof::{ErrorKind, Sent};

use super::*;
use crate::support::dice::Dice;
use crate::support::*;

const IDS: usize = 12;
const LIMIT: u32 = 3;
const RETENTION: Duration = Duration::from_secs(3600);
const STEPS: usize = 250;

/// What is known of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    status: MessageStatus,
    attempts: u32,
    redrives: u32,
    /// When it is due, or forgotten.
    at: Duration,
    /// Its place in the order of sending.
    place: usize,
}

/// The plain map, and the receiver.
#[derive(Default)]
struct Model {
    known: BTreeMap<usize, Known>,
    places: usize,
    arrivals: BTreeMap<usize, usize>,
}

fn lane_of(id: usize) -> Option<usize> {
    (!id.is_multiple_of(3)).then_some(id % 3)
}

fn content(id: usize) -> Message {
    let message = message(&id.to_string());
    match lane_of(id) {
        Some(lane) => message.with_lane(lane.to_string()),
        None => message,
    }
}

impl Model {
    /// What time alone does.
    fn pass(&mut self, now: Duration) {
        self.known.retain(|_, known| !(is_finished(known.status) && known.at <= now));
        for known in self.known.values_mut() {
            if known.status == MessageStatus::Scheduled && known.at <= now {
                known.status = MessageStatus::Due;
            }
        }
    }

    fn is_head(&self, id: usize) -> bool {
        let Some(lane) = lane_of(id) else { return true };
        let place = self.known[&id].place;
        let waits = |known: &Known| !is_finished(known.status) && known.status != MessageStatus::Dead;
        let before =
            |(other, known): (&usize, &Known)| lane_of(*other) == Some(lane) && waits(known) && known.place < place;
        !self.known.iter().any(before)
    }

    /// Those that a relay may take.
    fn takeable(&self) -> Vec<usize> {
        let due = self.known.iter().filter(|(_, known)| known.status == MessageStatus::Due);
        due.map(|(id, _)| *id).filter(|id| self.is_head(*id)).collect()
    }

    fn place(&mut self) -> usize {
        self.places += 1;
        self.places
    }
}

fn is_finished(status: MessageStatus) -> bool {
    matches!(status, MessageStatus::Delivered | MessageStatus::Discarded)
}

struct Game {
    world: World,
    store: Store,
    model: RefCell<Model>,
    now: Duration,
}

impl Game {
    fn new() -> Self {
        let world = World::new();
        let store = Self::open(&world);
        Self { world, store, model: RefCell::default(), now: Duration::ZERO }
    }

    fn open(world: &World) -> Store {
        world.options().with_outbox_retention(RETENTION).open(world.path()).unwrap()
    }

    fn send(&self, id: usize) {
        let mut model = self.model.borrow_mut();
        let sent = self.store.outbox().send(&content(id)).unwrap();
        assert_eq!(sent == Sent::Duplicate, model.known.contains_key(&id), "{id}");
        let place = model.place();
        let new = Known { status: MessageStatus::Due, attempts: 0, redrives: 0, at: self.now, place };
        model.known.entry(id).or_insert(new);
    }

    /// One run of a relay. The dice decide what the receiver says, and whether the store closes under the relay.
    fn run(&mut self, dice: &mut Dice) {
        let takeable = self.model.borrow().takeable();
        let closes_at = (dice.below(6) == 0).then(|| dice.below(3));
        let (batch, store, now, model) = (1 + dice.below(4), &self.store, self.now, &self.model);
        let mut seen = Vec::new();
        let result = relay(store).with_attempts(LIMIT).with_batch(batch).run_once(|message| {
            let id: usize = message.id().parse().unwrap();
            assert!(takeable.contains(&id), "{id} cannot be taken: {:?}", model.borrow().known);
            assert!(!seen.contains(&id), "{id} came twice in one batch");
            let mut model = model.borrow_mut();
            let known = model.known.get_mut(&id).unwrap();
            assert_eq!(message.attempt(), known.attempts + 1, "{id}");
            if closes_at == Some(seen.len()) {
                store.close().unwrap();
            }
            seen.push(id);
            *model.arrivals.entry(id).or_default() += 1;
            if closes_at.is_some_and(|at| seen.len() > at) {
                return Ok(());
            }
            let known = model.known.get_mut(&id).unwrap();
            known.attempts += 1;
            let is_last = known.attempts == LIMIT;
            match dice.below(6) {
                0 => {
                    known.status = MessageStatus::Dead;
                    Err(DeliveryError::permanent("never"))
                }
                1 => {
                    (known.status, known.at) = (MessageStatus::Scheduled, now + HOUR / 2);
                    if is_last {
                        known.status = MessageStatus::Dead;
                    }
                    Err(DeliveryError::new("later").after(HOUR / 2))
                }
                2 => {
                    known.status = if is_last { MessageStatus::Dead } else { MessageStatus::Due };
                    Err(DeliveryError::new("again"))
                }
                _ => {
                    (known.status, known.at) = (MessageStatus::Delivered, now + RETENTION);
                    Ok(())
                }
            }
        });
        match result {
            Ok(report) => {
                assert_eq!(report.more, !seen.is_empty() && !model.borrow().takeable().is_empty(), "{report:?}");
                assert_eq!(seen.is_empty(), takeable.is_empty());
                assert!(seen.len() <= batch);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed);
                self.reopened_after(&takeable, &seen);
            }
        }
    }

    /// Nothing of what the relay had to say was noted: what it took counts as an attempt, and is due again.
    fn reopened_after(&mut self, takeable: &[usize], seen: &[usize]) {
        self.store = Self::open(&self.world);
        let before = std::mem::take(&mut *self.model.borrow_mut());
        let mut model = Model { places: before.places, arrivals: before.arrivals, ..Model::default() };
        for (id, mut known) in before.known {
            let view = view(&self.store, &id.to_string());
            if takeable.contains(&id) {
                // What the handler had said before the close was not noted either. What it did not see was perhaps taken.
                let counted = view.attempts;
                let attempts = if seen.contains(&id) { counted } else { known.attempts.max(counted) };
                known.attempts = attempts;
                known.status = if attempts >= LIMIT { MessageStatus::Dead } else { MessageStatus::Due };
            }
            model.known.insert(id, known);
        }
        *self.model.borrow_mut() = model;
    }

    fn redrive(&self, id: usize) {
        let mut model = self.model.borrow_mut();
        let redriven = self.store.outbox().redrive(&id.to_string());
        let place = model.place();
        match model.known.get_mut(&id) {
            Some(known) if known.status == MessageStatus::Dead => {
                redriven.unwrap();
                let (redrives, at) = (known.redrives + 1, self.now);
                *known = Known { status: MessageStatus::Due, attempts: 0, redrives, at, place };
            }
            Some(_) => assert_eq!(redriven.unwrap_err().kind(), ErrorKind::Refused),
            None => assert_eq!(redriven.unwrap_err().kind(), ErrorKind::NotFound),
        }
    }

    fn discard(&self, id: usize) {
        let mut model = self.model.borrow_mut();
        let discarded = self.store.outbox().discard(&id.to_string(), &decision());
        match model.known.get_mut(&id) {
            Some(known) if !is_finished(known.status) => {
                discarded.unwrap();
                (known.status, known.at) = (MessageStatus::Discarded, self.now + RETENTION);
            }
            Some(_) => assert_eq!(discarded.unwrap_err().kind(), ErrorKind::Refused),
            None => assert_eq!(discarded.unwrap_err().kind(), ErrorKind::NotFound),
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let id = dice.below(IDS);
        match dice.below(20) {
            0..6 => self.send(id),
            6..14 => self.run(dice),
            14 => self.redrive(id),
            15 => self.discard(id),
            16 => {
                self.store = {
                    self.store.close().unwrap();
                    Self::open(&self.world)
                }
            }
            17 => drop(self.store.sweep(100).unwrap()),
            _ => {
                let passed = HOUR / 4 * u32::try_from(dice.below(6)).unwrap();
                self.world.clock.advance(passed);
                self.now += passed;
                self.model.borrow_mut().pass(self.now);
            }
        }
        self.check();
    }

    fn check(&self) {
        verify(&self.store);
        let mut found: Vec<_> = all(&self.store)
            .into_iter()
            .map(|view| (view.id.parse::<usize>().unwrap(), view.status, view.attempts, view.redrives))
            .collect();
        found.sort_unstable();
        let model = self.model.borrow();
        let expected = model.known.iter().map(|(id, known)| (*id, known.status, known.attempts, known.redrives));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

fn play(seed: u64) {
    let mut dice = Dice::of(seed);
    let mut game = Game::new();
    for _ in 0..STEPS {
        game.step(&mut dice);
    }
    // In the end everything that nobody gave up arrives.
    game.world.clock.advance(HOUR);
    game.now += HOUR;
    game.model.borrow_mut().pass(game.now);
    let expected: Vec<_> = {
        let model = game.model.borrow();
        let open = model.known.iter().filter(|(_, known)| known.status == MessageStatus::Due);
        open.map(|(id, _)| *id).collect()
    };
    let mut arrived: Vec<_> = deliver(&game.store).iter().map(|id| id.parse::<usize>().unwrap()).collect();
    arrived.sort_unstable();
    assert_eq!(arrived, expected);
    verify(&game.store);
}

#[test]
fn outbox_does_what_a_plain_map_says_it_does() {
    let mut dice = Dice::fresh();
    for _ in 0..12 {
        let seed = dice.throw();
        println!("game {seed}");
        play(seed);
    }
}
