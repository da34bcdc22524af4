//! The one place that starts threads: named, joined, and a panic in one of them stops the store instead of leaving
//! callers waiting.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, current};

use super::Shared;
use crate::error::{Error, ErrorKind, Result};

pub(super) struct Worker {
    name: &'static str,
    thread: JoinHandle<()>,
    stop: Option<Box<dyn FnOnce() + Send>>,
}

impl Worker {
    /// Starts a thread. `at_end` is the last it does, also after a panic, when the store was stopped.
    #[expect(clippy::disallowed_methods, reason = "the one place that starts threads")]
    pub(super) fn spawn(
        name: &'static str,
        shared: &Arc<Shared>,
        work: impl FnOnce() + Send + 'static,
        at_end: fn(&Shared),
    ) -> Result<Self> {
        let shared = shared.clone();
        let thread = Builder::new()
            .name(format!("dupeproof-{name}"))
            .spawn(move || {
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    shared.health.stop(&Error::new(ErrorKind::Stopped, format!("the {name} thread panicked")));
                    shared.waiters.wake_all();
                }
                at_end(&shared);
            })
            .map_err(|error| {
                Error::new(ErrorKind::Io, format!("start the {name} thread: {error}")).with_source(error)
            })?;
        Ok(Self { name, thread, stop: None })
    }

    /// A helper: it is told to stop, and joined, before the writer.
    pub(super) fn stopped_by(mut self, stop: impl FnOnce() + Send + 'static) -> Self {
        self.stop = Some(Box::new(stop));
        self
    }

    pub(super) fn is_helper(&self) -> bool {
        self.stop.is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn join(self) {
        if let Some(stop) = self.stop {
            stop();
        }
        // A relay's handler may hold the last handle of the store, or close it. A thread cannot wait for its own end.
        if self.thread.thread().id() == current().id() {
            return;
        }
        // Its panic was caught and reported inside.
        let _ = self.thread.join();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}
