//! Whether the store still works, and why not.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};

/// One flag that is read on every call, and the reason behind it.
#[derive(Debug, Default)]
pub(super) struct Health {
    ended: AtomicBool,
    writer_ended: AtomicBool,
    reason: Mutex<Option<End>>,
}

#[derive(Debug)]
enum End {
    Closed,
    Stopped { kind: ErrorKind, cause: String },
}

impl Health {
    /// Refuses work once the store stopped or closed.
    pub(super) fn check(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    /// Stops the store for good. The first reason is kept.
    pub(super) fn stop(&self, cause: &Error) {
        let kind = match cause.kind() {
            ErrorKind::Replaced => ErrorKind::Replaced,
            _ => ErrorKind::Stopped,
        };
        self.end(End::Stopped { kind, cause: cause.to_string() });
    }

    pub(super) fn close(&self) {
        self.end(End::Closed);
    }

    /// Nobody will answer any more.
    pub(super) fn writer_ended(&self) {
        self.writer_ended.store(true, Ordering::Release);
    }

    pub(super) fn has_writer_ended(&self) -> bool {
        self.writer_ended.load(Ordering::Acquire)
    }

    fn end(&self, end: End) {
        self.reason.lock().get_or_insert(end);
        self.ended.store(true, Ordering::Release);
    }

    /// What a call that came too late is told: it did nothing.
    pub(super) fn error(&self) -> Error {
        match &*self.reason.lock() {
            Some(End::Stopped { kind, cause }) => {
                Error::new(*kind, format!("the store stopped, and this call did nothing: {cause}"))
            }
            Some(End::Closed) | None => Error::new(ErrorKind::Closed, "the store is closed"),
        }
    }

    /// What a call is told whose command was taken and never answered.
    pub(super) fn unanswered(&self) -> Error {
        match &*self.reason.lock() {
            Some(End::Stopped { cause, .. }) => Error::new(
                ErrorKind::Indeterminate,
                format!("the writer ended before it answered, so this call may or may not have taken effect: {cause}"),
            ),
            Some(End::Closed) | None => Error::new(ErrorKind::Closed, "the store was closed before this call"),
        }
    }
}
