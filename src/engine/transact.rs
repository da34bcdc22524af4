//! Transactions of the application: on the caller's thread, in the place of the writer, which waits meanwhile.

use std::panic::resume_unwind;

use super::command::{Driven, rejected};
use super::{Engine, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::batch::{Batch, DriveError, Moment, Step};
use crate::storage::file::{Abort, WriteError};
use crate::storage::guard;

/// Nothing that is granted here outlives the commit, so it is granted to no incarnation.
const NOBODY: u64 = 0;

impl Engine {
    /// Runs `work` in one durable commit. `work` hands the batch back when it is done.
    pub(crate) fn transact<T, E: From<Error>>(
        &self,
        work: impl FnOnce(Batch<'_>) -> Result<(T, Batch<'_>), E>,
    ) -> Result<T, E> {
        let shared = &*self.shared;
        shared.health.check()?;
        shared.check_outside()?;
        let mut freed = Vec::new();
        let written = shared.file.write_own(|batch| -> Result<_, E> {
            let known = shared.sound(|| shared.time.observe(&batch, shared.file.sharing()))?;
            let (value, mut batch) = work(batch)?;
            // Also what the transaction met itself: it must not be committed, whoever swallowed the error.
            shared.health.check()?;
            shared.sound(|| shared.time.note(&mut batch, known))?;
            freed = batch.take_freed();
            Ok((value, batch.is_dirty()))
        });
        match written {
            Ok(value) => {
                shared.waiters.wake(&freed);
                Ok(value)
            }
            Err(WriteError::Aborted(Abort::Theirs(error))) => Err(error),
            Err(WriteError::Aborted(Abort::Panicked(panic))) => resume_unwind(panic),
            Err(WriteError::Aborted(Abort::Ours(error))) => {
                if !matches!(error.kind(), ErrorKind::Closed | ErrorKind::Busy | ErrorKind::Refused) {
                    shared.stop(&error);
                }
                Err(error.into())
            }
            Err(WriteError::Indeterminate(error)) => {
                shared.stop(&error);
                Err(error.into())
            }
        }
    }

    /// Decides and writes in a transaction that is open on this thread.
    pub(crate) fn within<T>(&self, decide: impl FnOnce(Moment, u64) -> Result<T, DriveError>) -> Result<(T, Moment)> {
        let moment = self.moment();
        match guard(|| Ok(decide(moment, NOBODY))) {
            Ok(Ok(decided)) => Ok((decided, moment)),
            Ok(Err(DriveError::Rejected(rejection))) => Err(rejected(rejection)),
            Ok(Err(DriveError::Unreadable(error))) => Err(error),
            Ok(Err(DriveError::Transaction(error))) | Err(error) => {
                self.shared.stop(&error);
                Err(error)
            }
        }
    }

    /// Drives one command in a transaction that is open on this thread.
    pub(crate) fn drive_within(&self, batch: &mut Batch<'_>, steps: Vec<Step>) -> Result<Driven> {
        let (answers, moment) = self.within(|moment, nobody| batch.drive(steps, moment, nobody))?;
        Ok(Driven { answers, moment })
    }

    /// Whether this thread is inside a transaction on this store: it must not wait for anybody.
    pub(crate) fn is_inside(&self) -> bool {
        self.shared.file.is_inside()
    }
}

impl Shared {
    /// Refuses what would wait for the place of the writer on the thread that holds it.
    pub(super) fn check_outside(&self) -> Result<()> {
        if self.file.is_inside() {
            return Err(Error::new(
                ErrorKind::Refused,
                "a transaction on this store is open on this thread: end it first, or use its own methods",
            ));
        }
        Ok(())
    }

    /// Work of ours on the file: if it fails, the store stops.
    fn sound<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        guard(work).inspect_err(|error| self.stop(error))
    }

    fn stop(&self, error: &Error) {
        self.health.stop(error);
        self.waiters.wake_all();
    }
}
