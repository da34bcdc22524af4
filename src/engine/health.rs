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
        let broke_off = |cause: &str| {
            Error::new(
                ErrorKind::Indeterminate,
                format!("the writer ended before it answered, so this call may or may not have taken effect: {cause}"),
            )
        };
        match &*self.reason.lock() {
            Some(End::Closed) => Error::new(ErrorKind::Closed, "the store was closed before this call"),
            Some(End::Stopped { cause, .. }) => broke_off(cause),
            // It broke off with the command in hand, and its reason is on the way.
            None => broke_off("it broke off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged page made the storage engine panic with a command in hand; for a moment the caller was told that the
    /// store had been closed before the call.
    #[test]
    fn call_that_the_writer_broke_off_with_is_of_unknown_outcome_also_before_anybody_knows_why() {
        let health = Health::default();
        assert_eq!(health.unanswered().kind(), ErrorKind::Indeterminate);
        health.stop(&Error::new(ErrorKind::Damaged, "a page"));
        assert_eq!(health.unanswered().kind(), ErrorKind::Indeterminate);
    }

    #[test]
    fn call_that_came_after_the_close_did_nothing() {
        let health = Health::default();
        health.close();
        assert_eq!(health.unanswered().kind(), ErrorKind::Closed);
    }
}
