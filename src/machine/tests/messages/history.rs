//! What no history of one message may do, as the business sees it: lose it, or deliver it for ever.
//!
//! Relays take it, deliver it, tell the truth or die; a receiver counts. Whatever happens in whatever order: what counts
//! as delivered was received, nothing is given up before its attempts are used up, and in the end it is one or the other.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::machine::message::event::{Answer, Change, Event};
use crate::machine::message::index::Position;
use crate::machine::message::stored::{Aged, MessageStatus};
use crate::machine::message::transition::transition;

const LIMIT: u32 = 3;
const LEASE: u64 = 60_000;

#[derive(Debug, Clone)]
enum Act {
    Send,
    SendAltered,
    Take,
    /// A relay hands it to the receiver.
    Receive(usize),
    /// It says what became of it, early or late or twice.
    Tell(usize),
    GiveBack(usize),
    Heartbeat(usize),
    AllDie,
    Tick,
    Redrive,
    Pass(u64),
}

#[derive(Debug, Clone, Copy)]
struct Relay {
    ticket: Ticket,
    received: bool,
    done: bool,
}

#[derive(Default)]
struct World {
    now: u64,
    stored: Option<StoredMessage>,
    last: u64,
    relays: Vec<Relay>,
    receptions: u32,
    /// Takes of this life of the message, since it was sent or redriven, that were not given back.
    tried: u32,
}

impl World {
    fn event(&mut self, event: Event) -> Option<Answer> {
        let now = Timestamp::from_unix_millis(self.now);
        let retention = Span::FOREVER;
        let context = Context { now, incarnation: 1, fresh: Sequence(self.last + 1), retention };
        let transition = transition(self.stored.clone(), event, &context).ok()?;
        match transition.change {
            Change::Keep => {}
            Change::Put(stored) => {
                assert_eq!(stored.check(), Ok(()));
                self.last = self.last.max(stored.head.sequence.0);
                self.stored = Some(*stored);
            }
            Change::Remove => panic!("what is kept for ever was removed"),
        }
        Some(transition.answer)
    }

    fn aged(&self) -> Option<StoredMessage> {
        match self.stored.clone()?.at(Timestamp::from_unix_millis(self.now)) {
            Aged::Same(stored) | Aged::Moved(stored) => Some(stored),
            Aged::Gone => panic!("what is kept for ever is gone"),
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Send => drop(self.event(Event::Send(message().into()))),
            Act::SendAltered => {
                let known = self.stored.is_some();
                let altered = Message::new("invoice-981/receipt", "mail", "dear joe").with_lane("jane");
                if known {
                    assert_eq!(self.event(Event::Send(altered.into())), None, "another content is a conflict, always");
                }
            }
            Act::Take => self.take(),
            Act::Receive(at) => {
                if let Some(relay) = self.relays.get_mut(at).filter(|relay| !relay.done && !relay.received) {
                    relay.received = true;
                    self.receptions += 1;
                }
            }
            Act::Tell(at) => self.tell(at),
            Act::GiveBack(at) => {
                if let Some(relay) = self.relays.get_mut(at).filter(|relay| !relay.done && !relay.received) {
                    relay.done = true;
                    let ticket = relay.ticket;
                    if self.event(Event::GaveBack(ticket)) == Some(Answer::Accepted) {
                        self.tried -= 1;
                    }
                }
            }
            Act::Heartbeat(at) => {
                if let Some(relay) = self.relays.get(at).filter(|relay| !relay.done) {
                    let beat = Event::Heartbeat(relay.ticket, Span::from_millis(LEASE));
                    self.event(beat);
                }
            }
            Act::AllDie => {
                self.relays.iter_mut().for_each(|relay| relay.done = true);
                self.event(Event::OwnerGone);
            }
            Act::Tick => drop(self.event(Event::Tick)),
            Act::Redrive => {
                if self.event(Event::Redrive).is_some() {
                    self.tried = 0;
                }
            }
            Act::Pass(millis) => self.now += millis,
        }
    }

    fn take(&mut self) {
        let grant = Grant { lease: Span::from_millis(LEASE), terms: terms(LIMIT) };
        let was_in_flight = self.aged().is_some_and(|stored| stored.status() == MessageStatus::InFlight);
        if self.event(Event::Take(grant, Position::Head)) == Some(Answer::Taken) {
            assert!(!was_in_flight, "two relays have it");
            self.tried += 1;
            let ticket = self.stored.as_ref().expect("it was taken").ticket();
            assert!(self.relays.iter().all(|relay| relay.ticket != ticket), "a ticket is given out once");
            self.relays.push(Relay { ticket, received: false, done: false });
        }
    }

    fn tell(&mut self, at: usize) {
        let Some(relay) = self.relays.get(at).copied().filter(|relay| !relay.done) else { return };
        let word = if relay.received {
            Event::Delivered(relay.ticket)
        } else {
            Event::Failed(relay.ticket, failure(Again::After(Span::from_millis(1000))))
        };
        let is_last = self.relays.iter().all(|other| other.ticket.take <= relay.ticket.take);
        let answer = self.event(word);
        assert!(answer.is_none() || is_last, "an old ticket changed something");
    }

    /// What must be so after each act.
    fn check(&self) {
        let Some(stored) = self.aged() else { return };
        assert_eq!(stored.head.takes as usize, self.relays.len(), "every take counts");
        match stored.state {
            State::Delivered { .. } => assert!(self.receptions > 0, "delivered, and nobody received it"),
            State::Dead(_) => assert!(self.tried >= LIMIT, "given up after {} of {LIMIT}", self.tried),
            State::Due(_) | State::InFlight(_) | State::Scheduled { .. } => assert!(self.tried <= LIMIT),
            State::Discarded { .. } => panic!("nobody discarded it"),
        }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Send),
        1 => Just(Act::SendAltered),
        4 => Just(Act::Take),
        4 => (0..8_usize).prop_map(Act::Receive),
        4 => (0..8_usize).prop_map(Act::Tell),
        1 => (0..8_usize).prop_map(Act::GiveBack),
        1 => (0..8_usize).prop_map(Act::Heartbeat),
        1 => Just(Act::AllDie),
        1 => Just(Act::Tick),
        1 => Just(Act::Redrive),
        3 => prop_oneof![Just(1), Just(1000), Just(LEASE), 0..LEASE * 2].prop_map(Act::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_history_loses_a_message_or_delivers_it_for_ever(acts in vec(act(), 0..60), receives in any::<bool>()) {
        let mut world = World { now: 1_000_000, ..World::default() };
        world.act(Act::Send);
        for act in acts {
            world.act(act);
            world.check();
        }
        // From now on nobody speaks late, and one relay does what it can.
        world.act(Act::AllDie);
        for _ in 0..=LIMIT {
            world.act(Act::Pass(LEASE));
            let known = world.relays.len();
            world.act(Act::Take);
            if world.relays.len() > known {
                if receives {
                    world.act(Act::Receive(known));
                }
                world.act(Act::Tell(known));
            }
            world.check();
        }
        let status = world.aged().expect("it was sent").status();
        prop_assert!(
            status == MessageStatus::Delivered || status == MessageStatus::Dead,
            "in the end it is {status}"
        );
    }
}
