//! The engine as threads of the store see it: commands, the bell that tells relays of something due, and the threads.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};

use super::command::{Command, Driven, Message};
use super::worker::Worker;
use super::{Engine, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Sharing;
use crate::storage::batch::{Moment, Step};
use crate::storage::file::Durable;
use crate::storage::outbox::look::Outlook;
use crate::storage::outbox::work::{Done, Round, Rounded, Work};
use crate::storage::snapshot::Snapshot;

/// Relays and reconcilers that run in threads of the store, at most: each holds one.
const HELPERS_MAX: usize = 256;

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

/// The engine as relays and reconcilers see it. It does not keep the store open: what runs in a thread of the store must
/// not.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    shared: Arc<Shared>,
    queue: Sender<Message>,
}

impl Post {
    /// Several events in one commit.
    pub(crate) fn drive(&self, steps: Vec<Step>) -> Result<Driven> {
        self.shared.ask(&self.queue, |reply| Command::Drive { steps, durable: Durable::Yes, reply: Some(reply) })
    }

    pub(crate) fn read<T>(&self, work: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        self.check_health()?;
        self.shared.read(work)
    }

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
        let now = self.moment().now;
        self.read(|snapshot| snapshot.outlook(topics, now))
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

/// A thread of the store, seen from outside.
#[derive(Debug)]
pub(crate) struct Running {
    stopped: Arc<AtomicBool>,
    post: Post,
    /// Why it ended before it was told to.
    trouble: Arc<Mutex<Option<Error>>>,
    /// Nothing is ever sent: it is disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl Running {
    /// Tells the thread to stop, waits until it has, and says why it had ended before, if it had.
    pub(crate) fn stop(&self) -> Result<()> {
        self.stopped.store(true, Ordering::Release);
        self.post.ring();
        let _ = self.ended.recv();
        self.trouble.lock().take().map_or(Ok(()), Err)
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
    pub(crate) fn spawn_helper(
        &self,
        name: &'static str,
        work: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
    ) -> Result<Running> {
        self.check_health()?;
        let mut workers = self.workers.lock();
        if workers.is_empty() {
            return Err(Error::new(ErrorKind::Closed, "the store is closed"));
        }
        workers.retain(|worker| !(worker.is_helper() && worker.has_ended()));
        if workers.len() >= HELPERS_MAX {
            return Err(Error::invalid_input(format!("{HELPERS_MAX} relays and reconcilers run already")));
        }
        let stopped = Arc::new(AtomicBool::new(false));
        let post = self.post();
        let (alive, ended) = bounded(0);
        let trouble = Arc::new(Mutex::new(None));
        let (flag, told) = (stopped.clone(), trouble.clone());
        let run = move || {
            *told.lock() = work(&flag).err();
            drop::<Sender<()>>(alive);
        };
        let worker = Worker::spawn(name, &self.shared, run, |_| ())?.stopped_by({
            let (stopped, post) = (stopped.clone(), post.clone());
            move || {
                stopped.store(true, Ordering::Release);
                post.ring();
            }
        });
        workers.insert(0, worker);
        Ok(Running { stopped, post, trouble, ended })
    }
}

/// Only a defect of this crate can answer one command with the answer of another.
pub(crate) fn mixed_up() -> Error {
    Error::new(ErrorKind::Damaged, "the outbox answered another question than was asked")
}

/// What somebody else's code said when it panicked in a thread of the store.
pub(crate) fn text_of_panic(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
