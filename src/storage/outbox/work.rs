//! What callers and relays ask of the outbox, each within the transaction of its commit.

use std::collections::{BinaryHeap, HashMap};

use redb::ReadableTable;

use super::look::{Outlook, outlook, topics_of};
use super::{OutboxError, OutboxTables, fault};
use crate::error::Result;
use crate::machine::limits::SEND_BYTES_MAX;
use crate::machine::message::content::Message;
use crate::machine::message::event::{Answer, Context, Event, Grant, Rejection};
use crate::machine::message::stored::{MessageStatus, Sequence, StoredMessage, Ticket};
use crate::machine::message::transition::transition;
use crate::machine::time::{Span, Timestamp};
use crate::storage::batch::{Batch, Moment};
use crate::storage::sweep::Owners;

/// Lapsed leases one take looks after. The sweep does the rest.
const LAPSED_PER_TAKE_MAX: usize = 1000;
/// Rows beyond those it wants that one take looks at: some may be unreadable, or must be taken alone.
const SPARE_ROWS: usize = 64;
/// Nobody's incarnation, for events that grant nothing.
const NOBODY: u64 = 0;

/// One command.
#[derive(Debug)]
pub(crate) enum Work {
    Send(Vec<Message>),
    Round(Round),
    /// A person's word on the message of this id.
    Decide(Box<str>, Event),
}

/// What a relay says and asks in one commit.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) words: Vec<Event>,
    pub(crate) take: Option<Take>,
    /// None means all of them.
    pub(crate) topics: Option<Vec<Box<str>>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    pub(crate) grant: Grant,
    pub(crate) messages_max: usize,
}

/// What became of a command.
#[derive(Debug)]
pub(crate) enum Done {
    Sent(Vec<Enqueued>),
    Round(Rounded),
    Decided(Box<StoredMessage>),
}

/// Whether a sent message is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enqueued {
    Now,
    Before,
}

/// What a relay hears.
#[derive(Debug)]
pub(crate) struct Rounded {
    /// What became of each word.
    pub(crate) told: Vec<Told>,
    pub(crate) taken: Vec<StoredMessage>,
    /// Messages of which all attempts were used up when they were to be taken.
    pub(crate) dead: u64,
    pub(crate) unreadable: u64,
    pub(crate) outlook: Outlook,
}

/// What a relay's word made of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Now(MessageStatus),
    Late,
    Unreadable,
}

impl Work {
    /// Whether it may grant a take, which needs an incarnation to grant it to.
    pub(crate) fn may_grant(&self) -> bool {
        matches!(self, Self::Round(Round { take: Some(_), .. }))
    }
}

impl Batch<'_> {
    /// Puts messages into the outbox, all of them or none. The answers are in their order.
    pub(crate) fn send(&mut self, messages: Vec<Message>, moment: Moment) -> Result<Vec<Enqueued>, OutboxError> {
        self.outbox()?.send(messages, moment.now)
    }

    /// Does one command.
    pub(crate) fn work(
        &mut self,
        work: Work,
        moment: Moment,
        incarnation: u64,
        retention: Span,
    ) -> Result<Done, OutboxError> {
        Ok(match work {
            Work::Send(messages) => Done::Sent(self.send(messages, moment)?),
            Work::Round(round) => Done::Round(self.outbox()?.round(round, moment.now, incarnation, retention)?),
            Work::Decide(id, event) => Done::Decided(self.outbox()?.decide(&id, event, moment.now, retention)?.into()),
        })
    }
}

impl OutboxTables<'_> {
    fn send(&mut self, messages: Vec<Message>, now: Timestamp) -> Result<Vec<Enqueued>, OutboxError> {
        // Everything is decided before the first is written, since what was written cannot be taken back.
        let next_before = self.next;
        let mut answers = Vec::with_capacity(messages.len());
        let mut contents = HashMap::new();
        let mut changes = Vec::new();
        for (at, message) in messages.into_iter().enumerate() {
            let fingerprint = message.fingerprint();
            if let Some(earlier) = contents.insert(message.id.clone(), fingerprint.clone()) {
                if earlier != fingerprint {
                    self.next = next_before;
                    return Err(OutboxError::Rejected(Rejection::Conflict, at));
                }
                answers.push(Enqueued::Before);
                continue;
            }
            let context = self.context(now, NOBODY, Span::ZERO)?;
            let stored = self.find(&message.id)?;
            let transition = match transition(stored.clone(), Event::Send(message.into()), &context) {
                Ok(transition) => transition,
                Err(rejection) => {
                    self.next = next_before;
                    return Err(OutboxError::Rejected(rejection, at));
                }
            };
            if transition.answer == Answer::Enqueued {
                self.next = Some(context.fresh.0.saturating_add(1));
                answers.push(Enqueued::Now);
            } else {
                answers.push(Enqueued::Before);
            }
            changes.push((stored, transition.change));
        }
        for (stored, change) in changes {
            self.apply(stored, change).map_err(OutboxError::Transaction)?;
        }
        Ok(answers)
    }

    fn decide(
        &mut self,
        id: &str,
        event: Event,
        now: Timestamp,
        retention: Span,
    ) -> Result<StoredMessage, OutboxError> {
        let context = self.context(now, NOBODY, retention)?;
        let stored = self.find(id)?;
        let driven = self.drive(stored, event, &context)?;
        driven.after.ok_or(OutboxError::Rejected(Rejection::Absent, 0))
    }

    fn round(
        &mut self,
        round: Round,
        now: Timestamp,
        incarnation: u64,
        retention: Span,
    ) -> Result<Rounded, OutboxError> {
        let mut told = Vec::with_capacity(round.words.len());
        for word in round.words {
            told.push(self.hear(word, now, retention)?);
        }
        let mut rounded = Rounded { told, taken: Vec::new(), dead: 0, unreadable: 0, outlook: Outlook::default() };
        if let Some(take) = round.take {
            let context = self.context(now, incarnation, retention)?;
            self.take(take, round.topics.as_deref(), &context, &mut rounded)?;
        }
        rounded.outlook = outlook(&self.due, &self.in_flight, round.topics.as_deref(), now)?;
        Ok(rounded)
    }

    /// One relay's word. One that comes too late, or for a row that cannot be read, must not silence the others.
    fn hear(&mut self, word: Event, now: Timestamp, retention: Span) -> Result<Told, OutboxError> {
        let context = self.context(now, NOBODY, retention)?;
        let Some(Ticket { sequence, .. }) = word.ticket() else { return Ok(Told::Late) };
        let driven =
            self.read(sequence).map_err(OutboxError::from).and_then(|stored| self.drive(stored, word, &context));
        match driven {
            Ok(driven) => Ok(driven.after.map_or(Told::Late, |after| Told::Now(after.status()))),
            Err(OutboxError::Rejected(..)) => Ok(Told::Late),
            Err(OutboxError::Unreadable(_)) => Ok(Told::Unreadable),
            Err(error) => Err(error),
        }
    }

    fn take(
        &mut self,
        take: Take,
        topics: Option<&[Box<str>]>,
        context: &Context,
        rounded: &mut Rounded,
    ) -> Result<(), OutboxError> {
        self.end_lapsed(LAPSED_PER_TAKE_MAX, context.now)?;
        let mut bytes = 0;
        for sequence in self.candidates(topics, context.now, take.messages_max.saturating_add(SPARE_ROWS))? {
            if rounded.taken.len() == take.messages_max || bytes > SEND_BYTES_MAX {
                break;
            }
            let stored = match self.read(sequence).map_err(OutboxError::from) {
                Err(OutboxError::Unreadable(_)) => {
                    rounded.unreadable += 1;
                    continue;
                }
                stored => stored?,
            };
            let Some(stored) = stored else { continue };
            let goes_alone = stored.goes_alone();
            if goes_alone && !rounded.taken.is_empty() {
                continue;
            }
            let position = self.position(&stored)?;
            match self.drive(Some(stored), Event::Take(take.grant, position), context) {
                Ok(driven) => match driven.after {
                    Some(taken) if driven.answer == Answer::Taken => {
                        bytes += taken.head.message.bytes();
                        rounded.taken.push(taken);
                    }
                    _ => {
                        rounded.dead += 1;
                        continue;
                    }
                },
                Err(OutboxError::Rejected(..)) => continue,
                Err(error) => return Err(error),
            }
            if goes_alone {
                break;
            }
        }
        Ok(())
    }

    /// Those that are due, the longest waiting first.
    fn candidates(&self, topics: Option<&[Box<str>]>, now: Timestamp, rows_max: usize) -> Result<Vec<Sequence>> {
        // The latest on top, which makes room for an earlier one.
        let mut found = BinaryHeap::new();
        for topic in topics_of(&self.due, topics)? {
            let until = (&*topic, now.as_unix_millis(), u64::MAX);
            for entry in self.due.range((&*topic, 0, 0)..=until).map_err(fault::storage)? {
                let (_, at, sequence) = entry.map_err(fault::storage)?.0.value();
                if found.len() == rows_max {
                    if found.peek().is_some_and(|latest| *latest <= (at, sequence)) {
                        break;
                    }
                    found.pop();
                }
                found.push((at, sequence));
            }
        }
        Ok(found.into_sorted_vec().into_iter().map(|(_, sequence)| Sequence(sequence)).collect())
    }

    /// Ends at most `rows_max` leases that have lapsed. Returns how many.
    pub(in crate::storage) fn end_lapsed(&mut self, rows_max: usize, now: Timestamp) -> Result<u64> {
        let end = (now.as_unix_millis(), u64::MAX);
        let lapsed: Vec<_> = self
            .in_flight
            .range(..=end)
            .map_err(fault::storage)?
            .take(rows_max)
            .map(|entry| entry.map(|(key, _)| Sequence(key.value().1)).map_err(fault::storage))
            .collect::<Result<_>>()?;
        self.touch_all(lapsed, || Event::Tick, now)
    }

    /// Forgets at most `rows_max` finished messages whose time is over. Returns how many.
    pub(in crate::storage) fn purge(&mut self, rows_max: usize, now: Timestamp) -> Result<u64> {
        let end = (now.as_unix_millis(), u64::MAX);
        let mut over = Vec::new();
        for table in [&self.delivered, &self.discarded] {
            for entry in table.range(..=end).map_err(fault::storage)?.take(rows_max - over.len()) {
                over.push(Sequence(entry.map_err(fault::storage)?.0.value().1));
            }
        }
        self.touch_all(over, || Event::Tick, now)
    }

    /// Ends at most `rows_max` leases of the given owners. Returns how many.
    pub(in crate::storage) fn end_leases(&mut self, owners: Owners, rows_max: usize, now: Timestamp) -> Result<u64> {
        let mut theirs = Vec::new();
        for entry in self.in_flight.iter().map_err(fault::storage)? {
            let (key, incarnation) = entry.map_err(fault::storage)?;
            if theirs.len() == rows_max {
                break;
            }
            if owners.include(incarnation.value()) {
                theirs.push(Sequence(key.value().1));
            }
        }
        self.touch_all(theirs, || Event::OwnerGone, now)
    }

    /// Drives one event for each. A row that cannot be read is left alone: it must not stop the others.
    fn touch_all(&mut self, sequences: Vec<Sequence>, event: impl Fn() -> Event, now: Timestamp) -> Result<u64> {
        let mut touched = 0;
        for sequence in sequences {
            let context = self.context(now, NOBODY, Span::ZERO)?;
            let before = self.changes;
            let driven = self.read(sequence).map_err(OutboxError::from);
            match driven.and_then(|stored| self.drive(stored, event(), &context)) {
                Ok(_) | Err(OutboxError::Rejected(..) | OutboxError::Unreadable(_)) => {}
                Err(OutboxError::Transaction(error)) => return Err(error),
            }
            touched += u64::from(self.changes != before);
        }
        Ok(touched)
    }
}
