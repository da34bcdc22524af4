//! How far a long piece of work has come.

use std::fmt;
use std::sync::Arc;

/// Rows between two reports: seldom enough to cost nothing, often enough for a bar that moves.
const ROWS_PER_REPORT: u64 = 1000;

/// What takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// The file was not closed cleanly, or is checked at open: its pages are walked.
    Repair,
    /// [`Store::verify`](crate::Store::verify).
    Verify,
    /// [`Store::compact`](crate::Store::compact).
    Compact,
    /// [`Store::backup`](crate::Store::backup).
    Backup,
    /// `Store::export`.
    Export,
    /// `Store::import`.
    Import,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Repair => "repair",
            Self::Verify => "verify",
            Self::Compact => "compact",
            Self::Backup => "backup",
            Self::Export => "export",
            Self::Import => "import",
        })
    }
}

/// How far it has come. The first report of a piece of work has `done` 0; if it succeeds, `done` is `total` in the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What is being done.
    pub work: Work,
    /// Rows done, or thousandths of a repair.
    pub done: u64,
    /// Out of how many; nothing where it cannot be told.
    pub total: Option<u64>,
}

/// Who is told, if anybody.
#[derive(Clone, Default)]
pub(crate) struct Reporter(Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl Reporter {
    pub(crate) fn to(listener: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    pub(crate) fn report(&self, work: Work, done: u64, total: Option<u64>) {
        if let Some(listener) = &self.0 {
            listener(Progress { work, done, total });
        }
    }

    /// Begins to count rows.
    pub(crate) fn count(&self, work: Work, total: Option<u64>) -> Counter<'_> {
        self.report(work, 0, total);
        Counter { reporter: self, work, done: 0, total }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reporter").field(&self.0.is_some()).finish()
    }
}

/// Rows done so far.
#[derive(Debug)]
pub(crate) struct Counter<'a> {
    reporter: &'a Reporter,
    work: Work,
    done: u64,
    total: Option<u64>,
}

impl Counter<'_> {
    pub(crate) fn row(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(ROWS_PER_REPORT) {
            self.reporter.report(self.work, self.done, self.total);
        }
    }

    /// The last report of work that succeeded.
    pub(crate) fn finish(self) {
        self.reporter.report(self.work, self.total.unwrap_or(self.done), self.total);
    }
}
