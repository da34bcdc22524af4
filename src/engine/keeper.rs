//! The keeper: renews the leases of claims that are held, at a third of the lease, up to `max_execution`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};

use super::command::{Command, Driven, Message};
use super::{Engine, Pending, Shared};
use crate::error::Result;
use crate::machine::event::{Answer, Event};
use crate::machine::record::{State, Token};
use crate::storage::batch::{Step, Target};
use crate::storage::file::Durable;

/// Renewals happen this often within one lease, so that one slow commit does not lose it.
const RENEWALS_PER_LEASE: u32 = 3;
/// How long the keeper sleeps when it holds nothing. New holds wake it.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
/// Shortest sleep, so that a renewal that keeps failing cannot spin.
const WAIT_MIN: Duration = Duration::from_millis(5);

/// A claim that is held, seen from its holder and from the keeper.
#[derive(Debug)]
pub(crate) struct Hold {
    token: Token,
    lease: Duration,
    /// Monotonic milliseconds until which the lease is certainly good.
    good_until_ms: AtomicU64,
    /// Renewals do not reach beyond this monotonic instant.
    ends_by: Duration,
    lost: AtomicBool,
}

impl Hold {
    /// `sent_at` is a monotonic reading from before the write that granted the lease, so the deadline is never late.
    pub(crate) fn new(token: Token, lease: Duration, max_execution: Duration, sent_at: Duration) -> Self {
        let hold = Self {
            token,
            lease: lease.min(max_execution),
            good_until_ms: AtomicU64::new(0),
            ends_by: sent_at.saturating_add(max_execution),
            lost: AtomicBool::new(false),
        };
        hold.renewed(sent_at);
        hold
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// A renewal that was sent at this monotonic reading was accepted.
    pub(crate) fn renewed(&self, sent_at: Duration) {
        let until = sent_at.saturating_add(self.lease).min(self.ends_by);
        // Rounded down: a deadline may come early, never late.
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.good_until_ms.fetch_max(until_ms, Ordering::AcqRel);
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether the claim is certainly current at this monotonic reading.
    pub(crate) fn is_current(&self, monotonic: Duration) -> bool {
        !self.lost.load(Ordering::Acquire) && monotonic < self.good_until()
    }

    fn good_until(&self) -> Duration {
        Duration::from_millis(self.good_until_ms.load(Ordering::Acquire))
    }

    /// When the last renewal was sent, or the grant.
    fn sent_at(&self) -> Duration {
        self.good_until().saturating_sub(self.lease)
    }

    /// When the next renewal is due; nothing if none can reach further.
    fn renew_at(&self) -> Option<Duration> {
        let good_until = self.good_until();
        let rest = self.lease / RENEWALS_PER_LEASE * (RENEWALS_PER_LEASE - 1);
        // `ends_by` has a finer grain than the deadline.
        (good_until + Duration::from_millis(1) < self.ends_by).then(|| good_until.saturating_sub(rest))
    }
}

/// A claim that is over once a commit is through.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) hold: Arc<Hold>,
    pub(crate) is_over: Arc<AtomicBool>,
}

impl Ended {
    pub(crate) fn tell(&self, engine: &Engine) {
        self.is_over.store(true, Ordering::Release);
        self.hold.lose();
        engine.release(&self.hold);
    }
}

#[derive(Debug, Default)]
pub(super) struct Keeper {
    state: Mutex<Holds>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Holds {
    held: HashMap<Token, Arc<Hold>>,
    /// When the keeper looks again by itself.
    looks_at: Duration,
    stopped: bool,
}

impl Keeper {
    pub(super) fn keep(&self, hold: Arc<Hold>) {
        let mut state = self.state.lock();
        // Begins are many, and almost none of them is due before the keeper looks anyway. One that was sent after
        // that says that it has overslept, as it does when the machine was suspended.
        let wakes = hold.renew_at().is_some_and(|at| at < state.looks_at) || hold.sent_at() >= state.looks_at;
        state.held.insert(hold.token, hold);
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }

    pub(super) fn release(&self, hold: &Hold) {
        self.state.lock().held.remove(&hold.token);
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    pub(super) fn run(&self, shared: &Shared, queue: &Sender<Message>) {
        while let Some(due) = self.next_due(shared) {
            // All are sent before the first answer is awaited, so that they share a commit.
            let sent_at = shared.time.monotonic();
            let sent: Vec<_> = due.into_iter().map(|hold| (send(&hold, shared, queue), hold)).collect();
            for (answer, hold) in sent {
                if answer.and_then(Pending::wait).is_ok_and(|driven| is_held(&driven.only())) {
                    hold.renewed(sent_at);
                } else {
                    // The holder sees it at its next look, and its next write is refused.
                    hold.lose();
                    self.release(&hold);
                }
            }
        }
    }

    /// Waits for renewals that are due. Nothing once it is stopped.
    fn next_due(&self, shared: &Shared) -> Option<Vec<Arc<Hold>>> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = shared.time.monotonic();
            let mut due = Vec::new();
            let mut wait = IDLE_WAIT;
            for hold in state.held.values() {
                match hold.renew_at() {
                    Some(at) if at <= now => due.push(hold.clone()),
                    Some(at) => wait = wait.min(at - now),
                    None => {}
                }
            }
            if !due.is_empty() {
                return Some(due);
            }
            let wait = wait.max(WAIT_MIN);
            state.looks_at = now.saturating_add(wait);
            self.changed.wait_for(&mut state, wait);
        }
    }
}

fn send<'a>(hold: &Hold, shared: &'a Shared, queue: &Sender<Message>) -> Result<Pending<'a, Driven>> {
    let step = Step { target: Target::Id(hold.token.id), event: Event::Heartbeat(hold.token) };
    shared.send(queue, |reply| Command::Drive { steps: vec![step], durable: Durable::No, reply: Some(reply) })
}

fn is_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Accepted(record) if matches!(record.state, State::Reserved(_) | State::Executing(_)))
}
