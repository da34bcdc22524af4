//! The relay: takes messages that are due, hands them to a handler, and notes what became of them.
//!
//! It never holds a transaction while the handler runs. A relay that dies in between leaves a lease, after which the
//! message is due again.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::delivery::{Delivery, DeliveryError};
use crate::engine::{Post, Running, text_of_panic};
use crate::error::{Error, Result};
use crate::machine::key::part;
use crate::machine::limits;
use crate::machine::message::event::{Event, Grant};
use crate::machine::message::stored::{LaneWhenDead, MessageStatus, StoredMessage, Terms};
use crate::machine::policy::{Backoff, Policy};
use crate::machine::time::Span;
use crate::storage::outbox::work::{Round, Rounded, Take, Told};
use crate::store::Store;

/// Messages in one take unless the relay says otherwise.
const BATCH_DEFAULT: usize = 100;
/// Leases are renewed, and outcomes noted, this often within one lease while a batch is worked through.
const RENEWALS_PER_LEASE: u32 = 3;
/// Shortest pause before a relay looks for what other processes sent; doubled while there is nothing.
const POLL_MIN: Duration = Duration::from_millis(10);
/// Longest pause before a relay looks by itself.
const POLL_MAX: Duration = Duration::from_secs(1);

/// Hands messages to a handler: see [`Outbox::relay`](crate::Outbox::relay).
///
/// # Example
/// ```
/// # let store = dupeproof::Store::in_memory()?;
/// use dupeproof::Backoff;
/// use std::time::Duration;
/// let relay = store
///     .outbox()
///     .relay()
///     .with_topics(["mail"])
///     .with_lease(Duration::from_secs(120))
///     .with_attempts(10)
///     .with_backoff(Backoff::exponential(Duration::from_secs(2), Duration::from_secs(600)));
/// # let _ = relay;
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Relay {
    store: Store,
    plan: Plan,
}

/// How a relay works.
#[derive(Debug, Clone)]
struct Plan {
    topics: Option<Vec<Box<str>>>,
    lease: Span,
    messages_max: usize,
    attempts_max: u32,
    backoff: Backoff,
    lane_when_dead: LaneWhenDead,
}

/// What one run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RelayReport {
    /// Messages the handler took.
    pub delivered: u64,
    /// Deliveries that failed; they will be tried again.
    pub failed: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Outcomes that came after the lease was over and somebody else had the message: it was delivered twice.
    pub late: u64,
    /// Rows that could not be read and were left alone. Run `verify`.
    pub unreadable: u64,
    /// Whether there is more to do at once.
    pub more: bool,
}

impl Relay {
    pub(super) fn new(store: Store) -> Self {
        let plan = Plan {
            topics: None,
            lease: limits::LEASE_DEFAULT,
            messages_max: BATCH_DEFAULT,
            attempts_max: limits::DELIVERY_ATTEMPTS_DEFAULT,
            backoff: Backoff::default(),
            lane_when_dead: LaneWhenDead::GoesOn,
        };
        Self { store, plan }
    }

    /// Only messages of these topics (1 to 100 of them). Default: all.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_topics(["mail", "sms"]);
    /// # let _ = relay;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_topics<T: AsRef<str>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        let mut topics: Vec<Box<str>> = topics.into_iter().map(|topic| topic.as_ref().into()).collect();
        topics.sort_unstable();
        topics.dedup();
        self.plan.topics = Some(topics);
        self
    }

    /// How long a message stays with this relay: 50 ms to 7 days, a minute by default. It must be longer than the slowest
    /// delivery, or somebody else delivers the message meanwhile. Too long, and nobody delivers for as long what a killed
    /// process had in hand. Between the deliveries of a batch it is renewed.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_lease(std::time::Duration::from_secs(300));
    /// # let _ = relay;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.plan.lease = Span::from_duration(lease);
        self
    }

    /// Messages taken in one commit: 1 to 1,000, 100 by default. Few, and each costs a commit; many, and more are
    /// delivered again after a crash.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_batch(1);
    /// # let _ = relay;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_batch(mut self, messages_max: usize) -> Self {
        self.plan.messages_max = messages_max;
        self
    }

    /// Attempts after which a message is a dead letter: at least 1, 16 by default.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_attempts(5);
    /// # let _ = relay;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_attempts(mut self, attempts_max: u32) -> Self {
        self.plan.attempts_max = attempts_max;
        self
    }

    /// How long a failed message waits for its next attempt, unless the handler says so itself.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_backoff(dupeproof::Backoff::none());
    /// # let _ = relay;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.plan.backoff = backoff;
        self
    }

    /// Lets a dead letter go on holding up its lane until it is redriven or discarded, where a gap is worse than a halt.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_lanes_held_by_the_dead();
    /// # let _ = relay;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_lanes_held_by_the_dead(mut self) -> Self {
        self.plan.lane_when_dead = LaneWhenDead::IsHeld;
        self
    }

    /// Takes one batch, hands each message to `handler`, and notes what became of them: a commit before and one after.
    /// If the process dies in between, the messages come again when the lease is over, or at once when the store is
    /// opened for exclusive use. A panic of the handler is a failed delivery.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting out of bounds; those of the commits. A failed commit
    /// means that messages come again.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", ""))?;
    /// let report = store.outbox().relay().run_once(|message| {
    ///     println!("{}: {} bytes", message.id(), message.payload().len());
    ///     Ok(())
    /// })?;
    /// assert_eq!((report.delivered, report.more), (1, false));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn run_once(&self, handler: impl FnMut(&Delivery) -> Result<(), DeliveryError>) -> Result<RelayReport> {
        self.plan.check()?;
        let post = self.store.engine().post();
        let never = AtomicBool::new(false);
        let mut run = Run { post: &post, plan: &self.plan, handler, stopped: &never, report: RelayReport::default() };
        if !post.outlook(self.plan.topics.as_deref())?.is_due {
            return Ok(run.report);
        }
        let taken_at = post.monotonic();
        let rounded = run.say(Vec::new(), true)?;
        let did = !rounded.taken.is_empty() || rounded.dead > 0;
        let words = run.deliver(rounded.taken, taken_at)?;
        let is_due = if words.is_empty() { rounded.outlook.is_due } else { run.say(words, false)?.outlook.is_due };
        // A row that nobody can read is due for ever.
        Ok(RelayReport { more: is_due && did, ..run.report })
    }

    /// Does the same in a thread of the store, until it is [stopped](RelayHandle::stop) or the store is closed. It wakes
    /// at once when this process sends something, and looks every second at the latest for what others sent.
    ///
    /// Closing the store waits for the delivery that is being handled, and gives back what was not. A handler that holds
    /// a [`Store`] keeps it open until the relay is stopped.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting out of bounds, or if 256 relays and reconcilers run already;
    /// [`Closed`](crate::ErrorKind::Closed); [`Io`](crate::ErrorKind::Io) if the thread cannot be started.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let (said, heard) = std::sync::mpsc::sync_channel(1);
    /// let relay = store.outbox().relay().spawn(move |message| Ok(said.send(message.id().to_owned())?))?;
    /// store.outbox().send(&dupeproof::Message::new("invoice-981/receipt", "mail", "…"))?;
    /// assert_eq!(heard.recv().as_deref(), Ok("invoice-981/receipt"));
    /// relay.stop()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn spawn(
        &self,
        handler: impl FnMut(&Delivery) -> Result<(), DeliveryError> + Send + 'static,
    ) -> Result<RelayHandle> {
        self.plan.check()?;
        let (post, plan) = (self.store.engine().post(), self.plan.clone());
        let running = self.store.engine().spawn_helper("relay", move |stopped| {
            Run { post: &post, plan: &plan, handler, stopped, report: RelayReport::default() }.until_stopped()
        })?;
        Ok(RelayHandle(running))
    }
}

/// A relay that runs in a thread of the store. Dropping it lets the relay go on until the store is closed.
#[derive(Debug)]
pub struct RelayHandle(Running);

impl RelayHandle {
    /// Stops the relay: the delivery that is being handled is finished, the rest of its batch given back. Waits for the
    /// end of the thread; do not call it from the handler.
    ///
    /// # Errors
    /// Why the relay had ended before, if it had: the store stopped.
    ///
    /// # Example
    /// See [`Relay::spawn`].
    pub fn stop(self) -> Result<()> {
        self.0.stop()
    }

    /// Whether it runs: until it is stopped, or the store is closed or stops.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().spawn(|_| Ok(()))?;
    /// assert!(relay.is_running());
    /// store.close()?;
    /// assert!(!relay.is_running());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_running(&self) -> bool {
        !self.0.has_ended()
    }
}

impl Plan {
    fn check(&self) -> Result<()> {
        let (lease, attempts_max, backoff) = (self.lease, self.attempts_max, self.backoff);
        let max_execution = limits::MAX_EXECUTION_MAX;
        Policy { lease, max_execution, attempts_max, backoff, ..Policy::default() }.check()?;
        let (found, most) = (self.messages_max, limits::TAKE_MESSAGES_MAX);
        if !(1..=most).contains(&found) {
            return Err(Error::invalid_input(format!("batch is {found}: 1 to {most} expected")));
        }
        let Some(topics) = &self.topics else { return Ok(()) };
        let (found, most) = (topics.len(), limits::RELAY_TOPICS_MAX);
        if !(1..=most).contains(&found) {
            return Err(Error::invalid_input(format!("relay has {found} topics: 1 to {most} expected")));
        }
        topics.iter().try_for_each(|topic| part("topic", topic, limits::NAME_BYTES_MAX).map(drop))
    }

    fn take(&self) -> Take {
        let terms = Terms { attempts_max: self.attempts_max, lane_when_dead: self.lane_when_dead };
        Take { grant: Grant { lease: self.lease, terms }, messages_max: self.messages_max }
    }
}

/// A relay at work.
struct Run<'a, H> {
    post: &'a Post,
    plan: &'a Plan,
    handler: H,
    stopped: &'a AtomicBool,
    report: RelayReport,
}

impl<H: FnMut(&Delivery) -> Result<(), DeliveryError>> Run<'_, H> {
    fn until_stopped(mut self) -> Result<()> {
        let mut words = Vec::new();
        let mut poll = POLL_MIN;
        loop {
            let rings = self.post.rings();
            match self.once(&mut words) {
                Ok(true) => {
                    poll = POLL_MIN;
                    continue;
                }
                Ok(false) => {}
                // A store that stopped, or another process that was in the way.
                Err(error) => {
                    self.post.check_health().map_err(|_| error)?;
                    words.clear();
                }
            }
            if self.is_stopped() {
                return Ok(());
            }
            self.post.wait(rings, self.nap(poll));
            poll = (poll * 2).min(POLL_MAX);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.post.is_closing()
    }

    /// Says what is to be said, and delivers what there is, in one commit a batch. Whether there was anything.
    fn once(&mut self, words: &mut Vec<Event>) -> Result<bool> {
        let is_due = !self.is_stopped() && self.post.outlook(self.plan.topics.as_deref())?.is_due;
        if words.is_empty() && !is_due {
            return Ok(false);
        }
        let taken_at = self.post.monotonic();
        let rounded = self.say(std::mem::take(words), is_due)?;
        let did = !rounded.taken.is_empty();
        *words = self.deliver(rounded.taken, taken_at)?;
        Ok(did)
    }

    /// How long to sleep: until something is due, and not longer than until the next look.
    fn nap(&self, poll: Duration) -> Duration {
        let look = if self.post.is_shared() { poll } else { POLL_MAX };
        let outlook = self.post.outlook(self.plan.topics.as_deref()).unwrap_or_default();
        let now = self.post.moment().now;
        outlook.next_at.map_or(look, |at| at.since(now).min(look)).max(Duration::from_millis(1))
    }

    /// One commit: words, and perhaps a take.
    fn say(&mut self, words: Vec<Event>, takes: bool) -> Result<Rounded> {
        let take = takes.then(|| self.plan.take());
        // What a message is now says too little of what was said of it.
        let said: Vec<_> = words.iter().map(Word::of).collect();
        let rounded = self.post.round(Round { words, take, topics: self.plan.topics.clone() })?;
        for (told, said) in rounded.told.iter().zip(said) {
            match (told, said) {
                (Told::Unreadable, _) => self.report.unreadable += 1,
                (_, Word::NotTried) => {}
                (Told::Late, Word::Delivered | Word::Failed) => self.report.late += 1,
                (Told::Now(_), Word::Delivered) => self.report.delivered += 1,
                (Told::Now(MessageStatus::Dead), Word::Failed) => self.report.dead += 1,
                (Told::Now(_), Word::Failed) => self.report.failed += 1,
            }
        }
        self.report.dead += rounded.dead;
        self.report.unreadable += rounded.unreadable;
        Ok(rounded)
    }

    /// Hands over what was taken, in order. Returns the words that are still to be said.
    fn deliver(&mut self, taken: Vec<StoredMessage>, taken_at: Duration) -> Result<Vec<Event>> {
        let renew_after = self.plan.lease.as_duration() / RENEWALS_PER_LEASE;
        let mut words = Vec::with_capacity(taken.len());
        let mut left = VecDeque::from(taken);
        let mut renewed_at = taken_at;
        while let Some(stored) = left.pop_front() {
            if self.is_stopped() {
                words.push(Event::GaveBack(stored.ticket()));
                continue;
            }
            let now = self.post.monotonic();
            if now.saturating_sub(renewed_at) >= renew_after {
                renewed_at = now;
                left.push_front(stored);
                self.renew(&mut left, std::mem::take(&mut words))?;
                continue;
            }
            words.push(self.hand_over(stored));
        }
        Ok(words)
    }

    /// Renews the leases of what is left and says what is to be said. What is not ours any more is dropped.
    fn renew(&mut self, left: &mut VecDeque<StoredMessage>, mut words: Vec<Event>) -> Result<()> {
        let said = words.len();
        words.extend(left.iter().map(|stored| Event::Heartbeat(stored.ticket(), self.plan.lease)));
        let rounded = self.say(words, false)?;
        let mut renewed = rounded.told.into_iter().skip(said);
        left.retain(|_| matches!(renewed.next(), Some(Told::Now(MessageStatus::InFlight))));
        Ok(())
    }

    fn hand_over(&mut self, stored: StoredMessage) -> Event {
        let ticket = stored.ticket();
        let delivery = Delivery(stored);
        let error = match catch_unwind(AssertUnwindSafe(|| (self.handler)(&delivery))) {
            Ok(Ok(())) => return Event::Delivered(ticket),
            Ok(Err(error)) => error,
            Err(panic) => DeliveryError::new(format_args!("the handler panicked: {}", text_of_panic(&*panic))),
        };
        Event::Failed(ticket, error.into_failure(self.plan.backoff))
    }
}

/// What a relay says of a message.
#[derive(Debug, Clone, Copy)]
enum Word {
    Delivered,
    Failed,
    NotTried,
}

impl Word {
    fn of(event: &Event) -> Self {
        match event {
            Event::Delivered(_) => Self::Delivered,
            Event::Failed(..) => Self::Failed,
            _ => Self::NotTried,
        }
    }
}
