//! Store time: instants and spans in milliseconds, and the rule by which store time moves.
//!
//! Store time is not the wall clock. It starts from the wall clock when a store is opened, bounded by what the
//! file has seen before, and then moves with the monotonic clock only, so that a stepping wall clock moves no
//! lease and no retention.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant of store time, in milliseconds since the Unix epoch.
///
/// [`Timestamp::FOREVER`] stands for "never": a record kept for ever has it as its expiry.
///
/// # Example
/// ```
/// use dupeproof::Timestamp;
/// let at = Timestamp::from_unix_millis(1_700_000_000_000);
/// assert_eq!(at.as_unix_millis(), 1_700_000_000_000);
/// assert!(at < Timestamp::FOREVER);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant that never comes.
    pub const FOREVER: Self = Self(u64::MAX);

    /// The instant so many milliseconds after the Unix epoch.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Timestamp;
    /// assert!(Timestamp::from_unix_millis(1_700_000_000_000) < Timestamp::FOREVER);
    /// ```
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Timestamp;
    /// assert_eq!(Timestamp::from_unix_millis(17).as_unix_millis(), 17);
    /// ```
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Timestamp;
    /// let (a, b) = (Timestamp::from_unix_millis(5), Timestamp::from_unix_millis(1_005));
    /// assert_eq!(b.since(a).as_secs(), 1);
    /// assert!(a.since(b).is_zero());
    /// ```
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn from_wall(since_epoch: Duration) -> Self {
        Self(Span::from_duration(since_epoch).as_millis())
    }

    /// Saturates at [`FOREVER`](Self::FOREVER), which a span "for ever" always reaches.
    pub(crate) const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    pub(crate) const fn minus(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FOREVER => f.write_str("FOREVER"),
            Self(millis) => write!(f, "{millis}ms"),
        }
    }
}

/// A length of store time in milliseconds. [`Span::FOREVER`] stands for "for ever".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Span(u64);

impl Span {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const FOREVER: Self = Self(u64::MAX);

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub(crate) const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    pub(crate) const fn from_days(days: u64) -> Self {
        Self::from_secs(days * 24 * 60 * 60)
    }

    /// Rounds up to whole milliseconds, so that a bound given in microseconds never becomes zero.
    pub(crate) fn from_duration(duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// What is left of this span after another; nothing if the other is longer.
    pub(crate) fn less(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    pub(crate) const fn as_millis(self) -> u64 {
        self.0
    }

    pub(crate) const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// How far the wall clock may move store time past the high-water mark in one open. A battery-less board that boots
/// in 2099 must not expire everything at once.
const WALL_LEAD_MAX: Span = Span::from_days(30);

/// Store time within one open of a store: a start and the monotonic reading it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreTime {
    start: Timestamp,
    origin: Duration,
}

impl StoreTime {
    /// Starts store time: at the wall clock on a new file, else at
    /// `max(high-water mark, min(wall, high-water mark + 30 days))`.
    pub(crate) fn start(high_water: Option<Timestamp>, wall: Timestamp, monotonic: Duration) -> Self {
        let start = match high_water {
            None => wall,
            Some(mark) => mark.max(wall.min(mark.plus(WALL_LEAD_MAX))),
        };
        // FOREVER is no instant: a clock that claims it would expire what is kept for ever.
        Self { start: start.min(Timestamp(u64::MAX - 1)), origin: monotonic }
    }

    /// The store time that belongs to a monotonic reading. A reading before the origin counts as the origin.
    pub(crate) fn at(&self, monotonic: Duration) -> Timestamp {
        Timestamp(self.start.0.saturating_add(self.elapsed_ms(monotonic)).min(u64::MAX - 1))
    }

    /// The first monotonic reading with the same store time: a deadline counted from it is not later than the store's.
    pub(crate) fn floor(&self, monotonic: Duration) -> Duration {
        self.origin.saturating_add(Duration::from_millis(self.elapsed_ms(monotonic)))
    }

    fn elapsed_ms(&self, monotonic: Duration) -> u64 {
        u64::try_from(monotonic.saturating_sub(self.origin).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    fn start(mark: Option<u64>, wall: u64) -> u64 {
        StoreTime::start(mark.map(Timestamp), Timestamp(wall), Duration::ZERO).start.0
    }

    #[test]
    fn new_file_starts_at_the_wall_clock() {
        assert_eq!(start(None, 77), 77);
    }

    #[test]
    fn wall_clock_behind_the_mark_starts_at_the_mark() {
        assert_eq!(start(Some(50 * DAY), 0), 50 * DAY);
        assert_eq!(start(Some(50 * DAY), 49 * DAY), 50 * DAY);
    }

    #[test]
    fn wall_clock_far_ahead_moves_store_time_by_thirty_days_at_most() {
        assert_eq!(start(Some(50 * DAY), 51 * DAY), 51 * DAY);
        assert_eq!(start(Some(50 * DAY), 5_000 * DAY), 80 * DAY);
    }

    #[test]
    fn store_time_moves_with_the_monotonic_clock_and_never_back() {
        let time = StoreTime::start(None, Timestamp(1_000), Duration::from_secs(10));
        assert_eq!(time.at(Duration::from_secs(12)), Timestamp(3_000));
        assert_eq!(time.at(Duration::from_secs(3)), Timestamp(1_000));
        assert!(time.at(Duration::MAX) < Timestamp::FOREVER);
    }

    #[test]
    fn forever_is_never_reached_by_a_clock() {
        let time = StoreTime::start(None, Timestamp::FOREVER, Duration::ZERO);
        assert!(time.at(Duration::ZERO) < Timestamp::FOREVER);
        assert_eq!(Timestamp(5).plus(Span::FOREVER), Timestamp::FOREVER);
    }

    #[test]
    fn spans_round_up_and_saturate() {
        assert_eq!(Span::from_duration(Duration::from_micros(1)), Span(1));
        assert_eq!(Span::from_duration(Duration::MAX), Span::FOREVER);
    }
}
