//! The moving parts: one thread that writes, one that renews leases, one that cleans up. The only owner of threads.
//!
//! A caller hands a command to the queue and waits; nobody hears "done" before the commit returned. Nothing here
//! decides what happens to a record: that is the machine's.

mod command;
mod compactor;
mod health;
mod inside;
mod keeper;
mod post;
mod time;
mod waiters;
mod worker;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

pub(crate) use command::{Driven, Unheard, heard, heard_message};
pub(crate) use keeper::{Ended, Hold};
pub(crate) use post::{Post, Running, mixed_up, text_of_panic};
pub(crate) use waiters::Waiting;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::Event;
use crate::machine::key::Identity;
use crate::machine::record::{Holder, RecordId};
use crate::machine::time::Span;
#[cfg(feature = "json")]
use crate::machine::time::Timestamp;
use crate::options::{Options, Sharing};
use crate::storage::batch::{Batch, Moment, Step, Target};
use crate::storage::fault::guard;
use crate::storage::file::{Durable, StoreFile, WriteError};
use crate::storage::snapshot::Snapshot;
use crate::storage::sweep::{Owners, Swept};
use command::{Command, Message, Reply};
use compactor::Compactor;
use health::Health;
use inside::Inside;
use keeper::Keeper;
use post::Bell;
use time::Timekeeper;
use waiters::Waiters;
use worker::Worker;

/// Commands waiting for the writer. Beyond it, callers wait in `send`, which is the back-pressure they should feel.
const QUEUE_COMMANDS_MAX: usize = 1024;
/// Rows one sweep command may change, so that it never holds the file for long.
pub(crate) const SWEEP_ROWS_MAX: usize = 256;
/// How long a caller waits before it looks whether the writer still lives. A queue keeps what its reader left in it, so
/// a command that came a moment too late is neither answered nor dropped.
const ANSWER_SLICE: Duration = Duration::from_millis(100);
/// Claims ended in one commit at open and close.
const END_CLAIMS_ROWS_MAX: usize = 1024;

/// What the threads share.
#[derive(Debug)]
struct Shared {
    file: StoreFile,
    time: Timekeeper,
    health: Health,
    waiters: Waiters,
    bell: Bell,
    /// How long finished messages are remembered.
    outbox_retention: Span,
    /// This open's number in the life of the file; 0 until the first commit takes one.
    incarnation: AtomicU64,
    grants: AtomicU64,
}

/// A store's file with its threads.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    queue: Sender<Message>,
    keeper: Arc<Keeper>,
    /// Joined in this order: whoever submits commands first, the writer last.
    workers: Mutex<Vec<Worker>>,
}

impl Engine {
    pub(crate) fn start(file: StoreFile, options: &Options) -> Result<Self> {
        let anchor = file.read(Snapshot::anchor)?;
        let shared = Arc::new(Shared {
            time: Timekeeper::start(options.clock.clone(), anchor),
            file,
            health: Health::default(),
            waiters: Waiters::default(),
            bell: Bell::default(),
            outbox_retention: Span::from_duration(options.outbox_retention),
            incarnation: AtomicU64::new(0),
            grants: AtomicU64::new(0),
        });
        let (queue, commands) = bounded(QUEUE_COMMANDS_MAX);
        let keeper = Arc::new(Keeper::default());

        let writer = Worker::spawn(
            "writer",
            &shared,
            {
                let shared = shared.clone();
                move || writer::run(&shared, &commands)
            },
            |shared| shared.health.writer_ended(),
        )?;
        let engine = Self { shared, queue, keeper, workers: Mutex::new(vec![writer]) };
        // The lock of an exclusive store proves that earlier incarnations cannot write any more, so nobody has to wait
        // for their leases.
        if engine.shared.file.sharing() == Sharing::Exclusive {
            engine.end_claims(Owners::AllBut(0))?;
        } else if anchor.is_some_and(|anchor| anchor.went_back(engine.moment().wall)) {
            // A command without steps: the writer notes the clock, from which the next open measures. Who is only turned
            // away writes nothing, and would wait for the end of a lease for ever.
            engine.drive(Vec::new())?;
        }
        engine.spawn_helpers(options.sweep_every)?;
        Ok(engine)
    }

    fn spawn_helpers(&self, sweep_every: Option<Duration>) -> Result<()> {
        let keeper = Worker::spawn(
            "keeper",
            &self.shared,
            {
                let (keeper, shared, queue) = (self.keeper.clone(), self.shared.clone(), self.queue.clone());
                move || keeper.run(&shared, &queue)
            },
            |_| (),
        )?;
        let mut helpers = vec![keeper.stopped_by({
            let keeper = self.keeper.clone();
            move || keeper.stop()
        })];
        if let Some(interval) = sweep_every {
            let (compactor, stop) = Compactor::new(interval);
            let (shared, queue) = (self.shared.clone(), self.queue.clone());
            let worker = Worker::spawn("compactor", &self.shared, move || compactor.run(&shared, &queue), |_| ())?;
            helpers.push(worker.stopped_by(move || drop(stop)));
        }
        self.workers.lock().splice(0..0, helpers);
        Ok(())
    }

    /// Runs one command and waits for its commit. All steps stand or fall together.
    pub(crate) fn drive(&self, steps: Vec<Step>) -> Result<Driven> {
        self.drive_as(steps, Durable::Yes)
    }

    /// A renewal by hand: as cheap as the keeper's own.
    pub(crate) fn renew(&self, step: Step) -> Result<Driven> {
        self.drive_as(vec![step], Durable::No)
    }

    fn drive_as(&self, steps: Vec<Step>, durable: Durable) -> Result<Driven> {
        self.ask(|reply| Command::Drive { steps, durable, reply: Some(reply) })
    }

    /// Hands over a command without waiting for a place in the queue or for its commit. If there is no place, the end
    /// of the lease does the same later.
    pub(crate) fn drive_unheard(&self, id: RecordId, event: Event) {
        let steps = vec![Step { target: Target::Id(id), event }];
        let _ = self.queue.try_send(Message::Do(Command::Drive { steps, durable: Durable::Yes, reply: None }));
    }

    /// From the beginning to the end, or until so many rows were changed.
    pub(crate) fn sweep(&self, rows_max: usize) -> Result<Swept> {
        self.check_place()?;
        let mut total = Swept::default();
        let mut rows_left = rows_max;
        loop {
            let rows = rows_left.min(SWEEP_ROWS_MAX);
            let swept = self.ask(|reply| Command::Sweep { rows_max: rows, after: total.next, reply })?;
            rows_left -= swept.rows().min(rows_left);
            total.add(swept);
            if !total.more || rows_left == 0 {
                return Ok(total);
            }
        }
    }

    fn end_claims(&self, owners: Owners) -> Result<()> {
        let mut after = None;
        loop {
            let rows_max = END_CLAIMS_ROWS_MAX;
            let ended = self.ask(|reply| Command::EndClaims { owners, rows_max, after, reply })?;
            after = ended.next;
            if !ended.more {
                return Ok(());
            }
        }
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        self.shared.ask(&self.queue, command)
    }

    /// Commands that wait for the writer.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn check_health(&self) -> Result<()> {
        self.shared.health.check()
    }

    fn check_place(&self) -> Result<()> {
        self.shared.check_place()
    }

    pub(crate) fn read<T>(&self, work: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        self.shared.read(work)
    }

    /// The store as of the last commit, for code of an application.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        Inside::before(&self.shared).map_or_else(|| self.shared.file.snapshot(), Ok)
    }

    /// Whether this thread is inside a transaction of this store, where nothing that it waits for would come.
    pub(crate) fn is_inside(&self) -> bool {
        Inside::is_within(&self.shared)
    }

    pub(crate) fn file(&self) -> &StoreFile {
        &self.shared.file
    }

    pub(crate) fn moment(&self) -> Moment {
        self.shared.time.moment()
    }

    /// Reads the monotonic clock; deadlines that need no I/O are counted from it.
    pub(crate) fn monotonic(&self) -> Duration {
        self.shared.time.monotonic()
    }

    /// The next grant's place in the order of grants of this open: taken before the command is sent, so that the caller
    /// knows it whatever becomes of the commit.
    pub(crate) fn next_grant(&self) -> u64 {
        self.shared.grants.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Who holds what is granted to the given grant.
    pub(crate) fn holder(&self, grant: u64) -> Holder {
        Holder { incarnation: self.shared.incarnation.load(Ordering::Acquire), grant }
    }

    pub(crate) fn wait_for(&self, identity: &Identity) -> Waiting<'_> {
        self.shared.waiters.wait_for(identity)
    }

    /// Renews the claim until the hold is dropped, lost, or its execution has taken as long as it may.
    pub(crate) fn keep(&self, hold: Arc<Hold>) {
        self.keeper.keep(hold);
    }

    pub(crate) fn release(&self, hold: &Hold) {
        self.keeper.release(hold);
    }

    /// Runs `work` in a commit of its own on this thread, beside the writer. An error of `work` undoes all of it, and
    /// says nothing about the store.
    pub(crate) fn transact<T>(&self, work: impl FnOnce(&mut Batch<'_>, Moment) -> Result<T>) -> Result<T> {
        let shared = &*self.shared;
        shared.health.check()?;
        Inside::refuse(shared)?;
        shared.check_place()?;
        let mut is_at_work = false;
        let written = shared.file.write_beside(Durable::Yes, |batch, before| {
            let _inside = Inside::enter(shared, before()?);
            shared.time.noted(batch, shared.file.sharing(), |batch| {
                is_at_work = true;
                let value = work(batch, shared.time.moment())?;
                is_at_work = false;
                Ok((value, batch.take_freed(), batch.has_mail()))
            })
        });
        match written {
            Ok((value, freed, has_mail)) => {
                shared.waiters.wake(&freed);
                if has_mail {
                    shared.bell.ring();
                }
                Ok(value)
            }
            // Said by `work`, or of a commit that was not tried because of what `work` did.
            Err(WriteError::Aborted(error)) if is_at_work || error.kind() == ErrorKind::Refused => Err(error),
            Err(WriteError::Aborted(error)) => {
                if !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Busy | ErrorKind::Refused) {
                    shared.health.stop(&error);
                    shared.waiters.wake_all();
                }
                Err(error)
            }
            Err(WriteError::Indeterminate(error)) => {
                shared.health.stop(&error);
                shared.waiters.wake_all();
                Err(error)
            }
        }
    }

    /// Store time goes on from here, if it is not further already.
    #[cfg(feature = "json")]
    pub(crate) fn observe(&self, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.shared.time.observe(time);
        }
    }

    /// Compacts the file. Commits wait meanwhile.
    pub(crate) fn compact(&self) -> Result<bool> {
        self.shared.health.check()?;
        Inside::refuse(&self.shared)?;
        self.check_place()?;
        self.shared.file.compact().inspect_err(|error| {
            if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Refused) {
                self.shared.health.stop(error);
            }
        })
    }

    /// Ends this open's claims, stops the threads and closes the file. The first error is the one reported; later calls
    /// find the store closed.
    pub(crate) fn close(&self) -> Result<()> {
        Inside::refuse(&self.shared)?;
        self.shared.bell.close();
        let workers = std::mem::take(&mut *self.workers.lock());
        if workers.is_empty() {
            return Ok(());
        }
        let (helpers, writer): (Vec<_>, Vec<_>) = workers.into_iter().partition(Worker::is_helper);
        for helper in helpers {
            helper.join();
        }
        let mine = self.shared.incarnation.load(Ordering::Acquire);
        let ended = match self.shared.health.check() {
            Ok(()) if mine != 0 => self.end_claims(Owners::Only(mine)),
            stopped_or_unused => stopped_or_unused,
        };
        self.shared.health.close();
        let _ = self.queue.send(Message::Stop);
        for writer in writer {
            writer.join();
        }
        self.shared.waiters.wake_all();
        ended.and(self.shared.file.close())
    }
}

/// A command whose answer is still to come.
struct Pending<'a, T> {
    answer: Receiver<Result<T>>,
    health: &'a Health,
}

impl<T> Pending<'_, T> {
    fn wait(self) -> Result<T> {
        loop {
            // Read first: what the writer answered, it answered before it ended.
            let is_last_look = self.health.has_writer_ended();
            match self.answer.recv_timeout(ANSWER_SLICE) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if !is_last_look => {}
                // The writer broke off with the command in hand, or never took it.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(self.health.unanswered());
                }
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // `close` reports what is swallowed here.
        let _ = self.close();
    }
}

impl Shared {
    /// Queues a command and waits for its answer.
    fn ask<T>(&self, queue: &Sender<Message>, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        self.send(queue, command)?.wait()
    }

    /// Queues a command. Waits for a place in the queue, not for the answer.
    fn send<T>(&self, queue: &Sender<Message>, command: impl FnOnce(Reply<T>) -> Command) -> Result<Pending<'_, T>> {
        self.health.check()?;
        Inside::refuse(self)?;
        let (reply, answer) = bounded(1);
        queue.send(Message::Do(command(reply))).map_err(|_| self.health.error())?;
        Ok(Pending { answer, health: &self.health })
    }

    fn read<T>(&self, work: impl FnOnce(&Snapshot) -> Result<T>) -> Result<T> {
        match Inside::before(self) {
            // Passing the gate a second time, it could wait behind somebody who waits for it.
            Some(before) => guard(|| work(&before)),
            None => self.file.read(work),
        }
    }

    /// Stops the store if its path names another file by now.
    fn check_place(&self) -> Result<()> {
        self.file.check_place().inspect_err(|error| self.health.stop(error))
    }
}

/// Turns what a stopped store says into an error of the given kind without its source, which only the first gets.
fn repeat(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}
