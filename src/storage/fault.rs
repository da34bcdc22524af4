//! Every error of the storage engine, named in our terms, and the border no panic crosses.
//!
//! Conversions are named functions: an `impl From<redb::…>` would put the engine's types into our public API.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{CommitError, CompactionError, DatabaseError, StorageError, TableError, TransactionError};

use super::codec::DecodeError;
use super::create::OpenError;
use super::place::CreateError;
use crate::error::{Error, ErrorKind, Result};

/// Runs `work` so that a panic of the storage engine (a damaged page can cause one) becomes an error.
///
/// A panic that unwinds through a write transaction aborts it.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        Err(Error::new(ErrorKind::Damaged, format!("the storage engine stopped on the file's content: {text}")))
    })
}

pub(super) fn storage(error: StorageError) -> Error {
    let kind = match &error {
        StorageError::Corrupted(_) => ErrorKind::Damaged,
        StorageError::Io(error) => io_kind(error),
        StorageError::ValueTooLarge(_) => ErrorKind::InvalidInput,
        StorageError::PreviousIo => ErrorKind::Stopped,
        StorageError::DatabaseClosed => ErrorKind::Closed,
        StorageError::LockPoisoned(_) => ErrorKind::Stopped,
        _ => ErrorKind::Io,
    };
    let advice = room_advice(as_io(&error));
    Error::new(kind, format!("the storage engine reports: {error}{advice}")).with_source(error)
}

fn as_io(error: &StorageError) -> Option<&io::Error> {
    match error {
        StorageError::Io(error) => Some(error),
        _ => None,
    }
}

/// What to do first where there is no room: a store that is reopened on a full disk stops again.
fn room_advice(error: Option<&io::Error>) -> &'static str {
    match error.map(io::Error::kind) {
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            " (the disk is full: make room before you reopen the store)"
        }
        Some(io::ErrorKind::FileTooLarge) => " (the file may not grow further: raise the limit, or compact the store)",
        _ => "",
    }
}

/// A read past the end is a file that was cut, not a disk that failed.
fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => ErrorKind::Damaged,
        _ => ErrorKind::Io,
    }
}

pub(super) fn io(error: io::Error) -> Error {
    storage(StorageError::Io(error))
}

pub(super) fn table(error: TableError) -> Error {
    match error {
        TableError::Storage(error) => storage(error),
        TableError::TableDoesNotExist(name) => Error::new(ErrorKind::Damaged, format!("table {name} is missing")),
        other => Error::new(ErrorKind::Damaged, format!("a table is not as it was made: {other}")).with_source(other),
    }
}

/// A table of the application's: what is wrong with it is the caller's to mend.
pub(crate) fn user_table(error: TableError) -> Error {
    match error {
        TableError::Storage(error) => storage(error),
        other => Error::new(ErrorKind::InvalidInput, format!("open a table: {other}")).with_source(other),
    }
}

pub(super) fn transaction(error: TransactionError) -> Error {
    match error {
        TransactionError::Storage(error) => storage(error),
        other => Error::new(ErrorKind::Busy, format!("begin a transaction: {other}")).with_source(other),
    }
}

/// A commit that reports an error may still be found after a restart, so its outcome is never "failed". One that the
/// engine did not try is the exception.
pub(super) fn commit(error: CommitError) -> Error {
    if matches!(error, CommitError::TransactionPoisoned) {
        let text = format!("the transaction was given up, and nothing was written: {error}");
        return Error::new(ErrorKind::Refused, text).with_source(error);
    }
    let advice = match &error {
        CommitError::Storage(error) => room_advice(as_io(error)),
        _ => "",
    };
    Error::new(
        ErrorKind::Indeterminate,
        format!("the commit failed, and may or may not be found after a restart: {error}{advice}"),
    )
    .with_source(error)
}

pub(super) fn database(error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen => {
            Error::new(ErrorKind::OpenElsewhere, "the store is open elsewhere in a way that excludes this one")
        }
        DatabaseError::LockProtocolMismatch => Error::new(
            ErrorKind::OpenElsewhere,
            "another process has the store open with a release that locks it differently",
        ),
        DatabaseError::UpgradeRequired(version) => {
            Error::new(ErrorKind::NotAStore, format!("the file has version {version} of the storage engine's format"))
        }
        DatabaseError::TransactionInProgress => Error::new(ErrorKind::Busy, "a transaction is in progress"),
        DatabaseError::Storage(error) => storage(error),
        other => Error::new(ErrorKind::Damaged, format!("open the file: {other}")).with_source(other),
    }
}

pub(super) fn compaction(error: CompactionError) -> Error {
    match error {
        CompactionError::Storage(error) => storage(error),
        CompactionError::TransactionInProgress => Error::new(
            ErrorKind::Busy,
            "compacting needs the file for itself, and a transaction is in progress (in this or another process)",
        ),
        other => Error::new(ErrorKind::Busy, format!("compact: {other}")).with_source(other),
    }
}

pub(super) fn create(error: CreateError) -> Error {
    let kind = match &error {
        CreateError::Missing { .. } => ErrorKind::NotFound,
        CreateError::DanglingLink { .. }
        | CreateError::NotAFile { .. }
        | CreateError::Empty { .. }
        | CreateError::Foreign { .. } => ErrorKind::NotAStore,
        CreateError::NoDirectory { .. } | CreateError::NoFileName { .. } | CreateError::Taken { .. } => {
            ErrorKind::InvalidInput
        }
        CreateError::Replaced { .. } => ErrorKind::Replaced,
        CreateError::Contended { .. } => ErrorKind::Busy,
        CreateError::NotWritable { .. } | CreateError::CannotPlace { .. } | CreateError::Io { .. } => ErrorKind::Io,
    };
    let advice = match &error {
        CreateError::Io { source, .. } => room_advice(Some(source)),
        _ => "",
    };
    Error::new(kind, format!("{error}{advice}")).with_source(error)
}

pub(super) fn open(error: OpenError<Error>) -> Error {
    match error {
        OpenError::File(error) => create(error),
        OpenError::Image(error) => error,
    }
}

pub(super) fn row(what: impl std::fmt::Display, error: DecodeError) -> Error {
    let kind = match error {
        DecodeError::Damaged(_) => ErrorKind::Damaged,
        DecodeError::NewerRow { .. } | DecodeError::UnknownCodec { .. } | DecodeError::UnknownAlgorithm { .. } => {
            ErrorKind::NewerFormat
        }
    };
    Error::new(kind, format!("{what}: {error}")).with_source(error)
}
