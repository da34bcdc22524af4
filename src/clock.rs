//! The only reader of system time.
//!
//! Everything else in the crate takes `now` as an argument. This file must never decide what a time means: leases,
//! retention and store time are computed elsewhere from the two readings it gives.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Tells the time to a store, in two readings that fail in different ways.
///
/// The store moves with [`monotonic`](Clock::monotonic) while it is open, and looks at [`wall`](Clock::wall) only to
/// place itself when it is opened and to end a provider's dedupe window early. So a wall clock that steps (time
/// synchronisation after a boot in 1970, a user changing the date) moves no lease.
///
/// There is [`SystemClock`] for real use and [`ManualClock`] for tests. An implementation of your own has to keep the
/// two promises of [`monotonic`](Clock::monotonic): a clock that goes back, or that stands still while the machine is
/// suspended, makes leases last longer than they were granted for.
///
/// # Example: how long something took, whatever happened to the date meanwhile
///
/// ```
/// use std::time::Duration;
/// use dupeproof::{Clock, ManualClock};
///
/// fn stopwatch(clock: &dyn Clock, work: impl FnOnce()) -> Duration {
///     let started = clock.monotonic();
///     work();
///     clock.monotonic() - started
/// }
///
/// let clock = ManualClock::at(Duration::from_secs(1_700_000_000));
/// let took = stopwatch(&clock, || {
///     clock.advance(Duration::from_secs(3));
///     clock.step_wall(Duration::ZERO);
/// });
/// assert_eq!(took, Duration::from_secs(3));
/// ```
pub trait Clock: Send + Sync + Debug + 'static {
    /// Returns the time since the Unix epoch, as the machine believes it to be.
    ///
    /// It may be wrong and may step in either direction. A clock that stands before the epoch reads as zero.
    fn wall(&self) -> Duration;

    /// Returns the time since an arbitrary origin that stays fixed while the process lives.
    ///
    /// It never goes back, and it counts the time the machine was suspended: a laptop that slept through a lease
    /// has let it lapse.
    fn monotonic(&self) -> Duration;
}

/// Reads the clocks of the operating system.
///
/// The monotonic reading is `CLOCK_BOOTTIME` on Linux and Android and `CLOCK_MONOTONIC` on Apple systems, both of
/// which count suspended time. Elsewhere it is the standard library's [`Instant`]; whether that counts suspended time
/// is up to the platform (Windows: yes; the BSDs: mostly not), so give leases some slack there.
///
/// # Example: two readings never go back
///
/// ```
/// use dupeproof::{Clock, SystemClock};
///
/// let clock = SystemClock;
/// let earlier = clock.monotonic();
/// assert!(earlier <= clock.monotonic());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
    }

    fn monotonic(&self) -> Duration {
        monotonic_with_suspend()
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
#[expect(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
fn monotonic_with_suspend() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On Apple systems this one counts suspended time; CLOCK_UPTIME_RAW is the one that does not.
    #[cfg(target_vendor = "apple")]
    const CLOCK: ClockId = ClockId::Monotonic;

    // Counted from boot, so never negative; a kernel that says otherwise reads as zero rather than as centuries.
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or(Duration::ZERO)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
#[expect(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
fn monotonic_with_suspend() -> Duration {
    use std::sync::OnceLock;

    // One origin for the process: two clocks must agree, whichever was read first.
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed()
}

/// A clock that moves only when told to, for tests.
///
/// Clones share one time, so a test keeps one and gives the other to the store. Nothing has to sleep to see a lease
/// lapse or a retention end. A suspended machine is an [`advance`](ManualClock::advance); a corrected or mistaken date
/// is a [`step_wall`](ManualClock::step_wall).
///
/// # Example: a day passes at once
///
/// ```
/// use std::time::Duration;
/// use dupeproof::{Clock, ManualClock};
///
/// let clock = ManualClock::at(Duration::from_secs(1_700_000_000));
/// let the_stores = clock.clone();
/// clock.advance(Duration::from_secs(86_400));
/// assert_eq!(the_stores.wall(), Duration::from_secs(1_700_086_400));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    readings: Arc<Mutex<Readings>>,
}

#[derive(Debug)]
struct Readings {
    wall: Duration,
    monotonic: Duration,
}

impl ManualClock {
    /// Creates a clock whose wall reading is `wall` after the Unix epoch and whose monotonic reading is zero.
    ///
    /// # Example: a board without a battery boots in 1970
    ///
    /// ```
    /// use std::time::Duration;
    /// use dupeproof::{Clock, ManualClock};
    ///
    /// assert_eq!(ManualClock::at(Duration::ZERO).wall(), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn at(wall: Duration) -> Self {
        let readings = Readings { wall, monotonic: Duration::ZERO };
        Self { readings: Arc::new(Mutex::new(readings)) }
    }

    /// Lets `span` pass on both readings.
    ///
    /// # Example: a minute passes
    ///
    /// ```
    /// use std::time::Duration;
    /// use dupeproof::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::at(Duration::ZERO);
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(clock.monotonic(), Duration::from_secs(60));
    /// ```
    pub fn advance(&self, span: Duration) {
        let mut readings = self.readings.lock();
        readings.wall = readings.wall.saturating_add(span);
        readings.monotonic = readings.monotonic.saturating_add(span);
    }

    /// Sets the wall reading alone, forwards or backwards, as time synchronisation does.
    ///
    /// # Example: the date jumps back, time does not
    ///
    /// ```
    /// use std::time::Duration;
    /// use dupeproof::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::at(Duration::from_secs(1_700_000_000));
    /// clock.step_wall(Duration::from_secs(5));
    /// assert_eq!(clock.wall(), Duration::from_secs(5));
    /// assert_eq!(clock.monotonic(), Duration::ZERO);
    /// ```
    pub fn step_wall(&self, wall: Duration) {
        self.readings.lock().wall = wall;
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Duration {
        self.readings.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.readings.lock().monotonic
    }
}

/// Longer than any wait means, and short enough that adding it to an `Instant` overflows on no platform.
const WAIT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The instant at which a wait of at most `wait` on a channel or a condition ends.
///
/// It bounds how long a thread blocks and nothing else: no lease and no retention is ever computed from it.
#[expect(clippy::disallowed_methods, reason = "the one reader of time")]
pub(crate) fn deadline_in(wait: Duration) -> Instant {
    Instant::now() + wait.min(WAIT_MAX)
}

/// Whether a deadline of [`deadline_in`] is over.
#[expect(clippy::disallowed_methods, reason = "the one reader of time")]
pub(crate) fn has_passed(deadline: Instant) -> bool {
    deadline <= Instant::now()
}

/// Sleeps. Only for what no thread of ours can wake: another process that holds the file.
#[expect(clippy::disallowed_methods, reason = "nothing of ours can wake it")]
pub(crate) fn pause(wait: Duration) {
    std::thread::sleep(wait);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_reads_a_wall_time_after_this_was_written() {
        assert!(SystemClock.wall() > Duration::from_secs(1_700_000_000));
    }

    #[test]
    fn system_monotonic_reading_never_goes_back_across_threads() {
        let mut latest = SystemClock.monotonic();
        for _ in 0..200 {
            let reading = std::thread::scope(|scope| scope.spawn(|| SystemClock.monotonic()).join().unwrap());
            assert!(latest <= reading);
            latest = reading;
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn system_monotonic_reading_is_the_one_that_counts_suspended_time() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime_s: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let reading_s = SystemClock.monotonic().as_secs_f64();
        // Both are CLOCK_BOOTTIME; a machine that was ever suspended has a smaller CLOCK_MONOTONIC.
        assert!((reading_s - uptime_s).abs() < 5.0, "{reading_s} against {uptime_s}");
    }

    #[test]
    fn manual_clock_advances_both_readings_of_every_clone() {
        let clock = ManualClock::at(Duration::from_secs(100));
        let clone = clock.clone();
        clock.advance(Duration::from_secs(7));
        assert_eq!(clone.wall(), Duration::from_secs(107));
        assert_eq!(clone.monotonic(), Duration::from_secs(7));
    }

    #[test]
    fn stepping_the_wall_leaves_the_monotonic_reading_alone() {
        let clock = ManualClock::at(Duration::from_secs(100));
        clock.advance(Duration::from_secs(1));
        clock.step_wall(Duration::ZERO);
        assert_eq!(clock.wall(), Duration::ZERO);
        assert_eq!(clock.monotonic(), Duration::from_secs(1));
    }

    #[test]
    fn manual_clock_saturates_at_the_end_of_time() {
        let clock = ManualClock::at(Duration::MAX);
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(clock.wall(), Duration::MAX);
        assert_eq!(clock.monotonic(), Duration::MAX);
    }

    #[test]
    fn deadline_of_an_endless_wait_does_not_overflow() {
        assert!(deadline_in(Duration::MAX) > deadline_in(Duration::from_secs(1)));
    }
}
