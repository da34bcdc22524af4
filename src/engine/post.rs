//! What the outbox needs of the engine: its commands, the bell that tells relays of something due, and their threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};

use super::command::{Command, Message};
use super::worker::Worker;
use super::{Engine, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Sharing;
use crate::storage::batch::Moment;
use crate::storage::outbox::look::Outlook;
use crate::storage::outbox::work::{Done, Round, Rounded, Work};

/// Relays that run in threads of the store, at most: each holds one.
const RELAYS_MAX: usize = 256;

/// Rings when a commit of this process made a message due, and when relays are to stop.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
    closing: AtomicBool,
}

impl Bell {
    pub(super) fn ring(&self) {
        *self.rung.lock() += 1;
        self.changed.notify_all();
    }

    /// Tells all relays at once to stop, so that none takes anything while others are waited for.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.ring();
    }

    fn count(&self) -> u64 {
        *self.rung.lock()
    }

    fn wait_beyond(&self, heard: u64, at_most: Duration) {
        let mut rung = self.rung.lock();
        if *rung == heard {
            self.changed.wait_for(&mut rung, at_most);
        }
    }
}

/// The engine as relays see it. It does not keep the store open: a relay that runs must not.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    shared: Arc<Shared>,
    queue: Sender<Message>,
}

impl Post {
    pub(crate) fn work(&self, work: Work) -> Result<Done> {
        self.shared.ask(&self.queue, |reply| Command::Outbox { work, reply })
    }

    pub(crate) fn round(&self, round: Round) -> Result<Rounded> {
        match self.work(Work::Round(round))? {
            Done::Round(rounded) => Ok(rounded),
            Done::Sent(_) | Done::Decided(_) => Err(mixed_up()),
        }
    }

    pub(crate) fn outlook(&self, topics: Option<&[Box<str>]>) -> Result<Outlook> {
        self.check_health()?;
        let now = self.moment().now;
        self.shared.read(|snapshot| snapshot.outlook(topics, now))
    }

    pub(crate) fn check_health(&self) -> Result<()> {
        self.shared.health.check()
    }

    pub(crate) fn moment(&self) -> Moment {
        self.shared.time.moment()
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.shared.time.monotonic()
    }

    /// Whether others may send into the file as well, of whom no bell tells.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.file.sharing() == Sharing::Shared
    }

    /// Whether the store closes, so that what is in hand is to be given back.
    pub(crate) fn is_closing(&self) -> bool {
        self.shared.bell.closing.load(Ordering::Acquire)
    }

    /// How often the bell has rung. Read it before looking, so that what is sent meanwhile is not missed.
    pub(crate) fn rings(&self) -> u64 {
        self.shared.bell.count()
    }

    /// Waits for the bell to ring once more than so often, at most so long.
    pub(crate) fn wait(&self, rings: u64, at_most: Duration) {
        self.shared.bell.wait_beyond(rings, at_most);
    }

    pub(crate) fn ring(&self) {
        self.shared.bell.ring();
    }
}

/// A relay's thread, seen from outside.
#[derive(Debug)]
pub(crate) struct Running {
    stopped: Arc<AtomicBool>,
    post: Post,
    /// Nothing is ever sent: it is disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Running {
    /// Tells the thread to stop, and waits until it has.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.post.ring();
        let _ = self.ended.recv();
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.ended.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected))
    }
}

impl Engine {
    pub(crate) fn post(&self) -> Post {
        Post { shared: self.shared.clone(), queue: self.queue.clone() }
    }

    /// Runs `work` in a thread of its own until it returns, which it should soon after the flag it is given was set.
    pub(crate) fn spawn_relay(&self, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<Running> {
        self.check_health()?;
        let mut workers = self.workers.lock();
        if workers.is_empty() {
            return Err(Error::new(ErrorKind::Closed, "the store is closed"));
        }
        workers.retain(|worker| !(worker.is_helper() && worker.has_ended()));
        if workers.len() >= RELAYS_MAX {
            return Err(Error::invalid_input(format!("{RELAYS_MAX} relays run already")));
        }
        let stopped = Arc::new(AtomicBool::new(false));
        let post = self.post();
        let (alive, ended) = bounded(0);
        let flag = stopped.clone();
        let run = move || {
            work(&flag);
            drop::<Sender<()>>(alive);
        };
        let worker = Worker::spawn("relay", &self.shared, run, |_| ())?.stopped_by({
            let (stopped, post) = (stopped.clone(), post.clone());
            move || {
                stopped.store(true, Ordering::Release);
                post.ring();
            }
        });
        workers.insert(0, worker);
        Ok(Running { stopped, post, ended })
    }
}

/// Only a defect of this crate can answer one command with the answer of another.
pub(crate) fn mixed_up() -> Error {
    Error::new(ErrorKind::Damaged, "the outbox answered another question than was asked")
}
