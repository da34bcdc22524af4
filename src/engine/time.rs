//! Store time as this process sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::Result;
use crate::machine::time::{Anchor, StoreTime, Timestamp};
use crate::options::Sharing;
use crate::storage::batch::{Batch, Moment};

/// Reads the clocks and turns them into store time, which never goes back.
#[derive(Debug)]
pub(super) struct Timekeeper {
    clock: Arc<dyn Clock>,
    time: StoreTime,
    /// The latest mark seen on disk: in shared mode another process may be ahead of us.
    floor: AtomicU64,
}

impl Timekeeper {
    pub(super) fn start(clock: Arc<dyn Clock>, anchor: Option<Anchor>) -> Self {
        let time = StoreTime::start(anchor, Timestamp::from_wall(clock.wall()), clock.monotonic());
        Self { clock, time, floor: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, mark: Timestamp) {
        self.floor.fetch_max(mark.as_unix_millis(), Ordering::AcqRel);
    }

    pub(super) fn moment(&self) -> Moment {
        let floor = Timestamp::from_unix_millis(self.floor.load(Ordering::Acquire));
        Moment { now: self.time.at(self.clock.monotonic()).max(floor), wall: Timestamp::from_wall(self.clock.wall()) }
    }

    /// Runs `work` between reading the clocks that the file has seen and noting ours, if that is due.
    pub(super) fn noted<T>(
        &self,
        batch: &mut Batch<'_>,
        sharing: Sharing,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T>,
    ) -> Result<T> {
        let known = batch.anchor()?;
        if let (Some(known), Sharing::Shared) = (known, sharing) {
            self.observe(known.mark);
        }
        let value = work(batch)?;
        let Moment { now, wall } = self.moment();
        let is_due = match known {
            Some(known) => known.went_back(wall) || batch.is_dirty() && known.is_behind(now, wall),
            None => batch.is_dirty(),
        };
        // An import has brought the clocks of its original along: time goes on from them.
        if is_due && batch.anchor()? == known {
            batch.set_anchor(Anchor::noted(known, now, wall))?;
        }
        Ok(value)
    }

    /// In the milliseconds of store time, so that deadlines of both kinds can be compared.
    pub(super) fn monotonic(&self) -> Duration {
        self.time.floor(self.clock.monotonic())
    }
}
