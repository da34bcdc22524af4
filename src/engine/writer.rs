//! The writer: takes what waits, decides it in one transaction, commits once, then answers everybody.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::command::{Command, Driven, Message, Outcome, rejected, rejected_message};
use super::{Shared, repeat};
use crate::clock::deadline_in;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::key::Identity;
use crate::storage::batch::{Batch, DriveError};
use crate::storage::file::{Durable, WriteError};
use crate::storage::outbox::OutboxError;

/// Commands in one commit: bounds what a failed commit leaves open, and how long the first of a group waits.
const GROUP_COMMANDS_MAX: usize = 256;
/// How long the writer waits for the callers it saw in its last two commits. A commit takes longer than this; a lone
/// caller never waits.
const COMPANY_WAIT: Duration = Duration::from_micros(300);

/// Works until it is told to stop or every sender is gone.
pub(super) fn run(shared: &Shared, messages: &Receiver<Message>) {
    let mut writer = Writer { shared, pace: Pace::default() };
    while let Ok(Message::Do(first)) = messages.recv() {
        let (group, stop) = writer.pace.gather(first, messages);
        writer.commit(group);
        if stop {
            return;
        }
    }
}

/// How many callers there were lately.
#[derive(Debug, Default)]
struct Pace {
    last: usize,
    before: usize,
}

impl Pace {
    /// The first command, what waits behind it, and who is likely to come at once. Says whether to stop after it.
    fn gather(&mut self, first: Command, messages: &Receiver<Message>) -> (Vec<Command>, bool) {
        let expected = self.last.max(self.before).min(GROUP_COMMANDS_MAX);
        let mut group = vec![first];
        let mut stop = false;
        let mut patience = None;
        while group.len() < GROUP_COMMANDS_MAX {
            let next = match messages.try_recv() {
                Ok(message) => message,
                // One caller alone has no company to wait for.
                Err(_) if expected > 1 && group.len() < expected => {
                    let deadline = *patience.get_or_insert_with(|| deadline_in(COMPANY_WAIT));
                    match messages.recv_deadline(deadline) {
                        Ok(message) => message,
                        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                    }
                }
                Err(_) => break,
            };
            match next {
                Message::Do(command) => group.push(command),
                Message::Stop => {
                    stop = true;
                    break;
                }
            }
        }
        self.before = self.last;
        self.last = group.len();
        (group, stop)
    }
}

struct Writer<'a> {
    shared: &'a Shared,
    pace: Pace,
}

/// What a transaction decided, to be told after its commit.
#[derive(Default)]
struct Decided {
    outcomes: Vec<Outcome>,
    freed: Vec<Identity>,
    has_mail: bool,
}

impl Writer<'_> {
    fn commit(&mut self, mut group: Vec<Command>) {
        if let Err(error) = self.shared.health.check() {
            return refuse_all(group, Vec::new(), &error);
        }
        let durable =
            if group.iter().all(|command| command.durable() == Durable::No) { Durable::No } else { Durable::Yes };
        let mut decided = Decided::default();
        // Taken out one by one: what is left when the transaction breaks off is refused like the rest.
        group.reverse();
        let written = self
            .take_incarnation(&group)
            .and_then(|()| self.shared.file.write(durable, |batch| self.decide(batch, &mut group, &mut decided)));
        match written {
            Ok(()) => {
                decided.outcomes.into_iter().for_each(Outcome::deliver);
                self.shared.waiters.wake(&decided.freed);
                if decided.has_mail {
                    self.shared.bell.ring();
                }
            }
            Err(WriteError::Aborted(error)) => {
                if !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Busy) {
                    self.shared.health.stop(&error);
                }
                refuse_all(group, decided.outcomes, &error);
                self.shared.waiters.wake_all();
            }
            Err(WriteError::Indeterminate(error)) => {
                self.shared.health.stop(&error);
                refuse_all(group, decided.outcomes, &error);
                self.shared.waiters.wake_all();
            }
        }
    }

    /// Takes this open's number before its first grant, in a commit of its own. Were it taken in the commit that
    /// grants, and that were lost, the next open would take the same number again, and grant the same grants: a nonce
    /// of the lost begin would pass for the holder of somebody else's claim.
    fn take_incarnation(&self, group: &[Command]) -> Result<(), WriteError> {
        let shared = self.shared;
        if shared.incarnation.load(Ordering::Acquire) == 0 && group.iter().any(Command::may_grant) {
            let taken = shared.file.write(Durable::Yes, |batch| batch.next_incarnation())?;
            shared.incarnation.store(taken, Ordering::Release);
        }
        Ok(())
    }

    fn decide(&mut self, batch: &mut Batch<'_>, group: &mut Vec<Command>, decided: &mut Decided) -> Result<()> {
        let shared = self.shared;
        let sharing = shared.file.sharing();
        shared.time.noted(batch, sharing, |batch| {
            while let Some(command) = group.pop() {
                let outcome = self.apply(batch, command)?;
                decided.outcomes.push(outcome);
            }
            Ok(())
        })?;
        decided.freed = batch.take_freed();
        decided.has_mail = batch.has_mail();
        Ok(())
    }

    fn apply(&mut self, batch: &mut Batch<'_>, command: Command) -> Result<Outcome> {
        // One reading per decision, inside the write transaction.
        let moment = self.shared.time.moment();
        let incarnation = self.shared.incarnation.load(Ordering::Acquire);
        Ok(match command {
            Command::Drive { steps, reply, .. } => {
                let result = match batch.drive(steps, moment, incarnation) {
                    Ok(answers) => Ok(Driven { answers, moment }),
                    Err(DriveError::Rejected(rejection)) => Err(rejected(rejection)),
                    Err(DriveError::Unreadable(error)) => Err(error),
                    Err(DriveError::Transaction(error)) => {
                        Outcome::Drive(Err(repeat(&error)), reply).deliver();
                        return Err(error);
                    }
                };
                Outcome::Drive(result, reply)
            }
            Command::Sweep { rows_max, after, reply } => {
                Outcome::Sweep(Ok(batch.sweep(rows_max, after, moment)?), reply)
            }
            Command::Outbox { work, reply } => {
                let result = match batch.work(work, moment, incarnation, self.shared.outbox_retention) {
                    Ok(done) => Ok(done),
                    Err(OutboxError::Rejected(rejection, at)) => Err(rejected_message(rejection, at)),
                    Err(OutboxError::Unreadable(error)) => Err(error),
                    Err(OutboxError::Transaction(error)) => {
                        Outcome::Outbox(Err(repeat(&error)), reply).deliver();
                        return Err(error);
                    }
                };
                Outcome::Outbox(result, reply)
            }
            Command::EndClaims { owners, rows_max, after, reply } => {
                Outcome::Sweep(Ok(batch.end_claims(owners, rows_max, after, moment)?), reply)
            }
        })
    }
}

/// Everybody is answered, also those whose command was decided: nobody was told before the commit.
fn refuse_all(group: Vec<Command>, outcomes: Vec<Outcome>, error: &Error) {
    for outcome in outcomes {
        match outcome {
            Outcome::Drive(_, reply) => Outcome::Drive(Err(repeat(error)), reply).deliver(),
            Outcome::Sweep(_, reply) => Outcome::Sweep(Err(repeat(error)), reply).deliver(),
            Outcome::Outbox(_, reply) => Outcome::Outbox(Err(repeat(error)), reply).deliver(),
        }
    }
    for command in group {
        command.refuse(repeat(error));
    }
}
