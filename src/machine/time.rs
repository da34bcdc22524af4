//! Store time: instants and spans in milliseconds, and the rule by which store time moves.
//!
//! Store time is not the wall clock. When a store is opened it goes on by what the wall clock moved since the file last
//! saw it, within bounds; then it moves with the monotonic clock only, so that a stepping wall clock moves no lease and no
//! retention.

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

/// How far a wall clock ahead of all that the file has seen may move store time in one open: a battery-less board that
/// boots in 2099 must not expire everything at once.
const WALL_LEAD_MAX: Span = Span::from_days(30);
/// How far a wall clock that was further ahead before may move it: such a clock has been wrong. Longer than leases
/// usually are, so that they end; so short that it takes thousands of opens to end a retention.
const DOUBTFUL_LEAD_MAX: Span = Span::from_secs(60 * 60);
/// How far the clocks may move before it is worth a page to note it.
const ANCHOR_STEP: Span = Span::from_secs(1);

/// What the file remembers of the clocks, so that the next open can tell how much time has passed.
///
/// A wall clock may be wrong at any open, and wrong again at the next. So store time does not follow it but what it
/// moved by since it was last read, and being far ahead counts once: the next open measures from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// The store time that the file has seen: it never goes back.
    pub(crate) mark: Timestamp,
    /// The wall clock then.
    pub(crate) wall: Timestamp,
    /// The furthest wall clock ever seen, and the store time then.
    pub(crate) wall_max: Timestamp,
    pub(crate) mark_at_max: Timestamp,
}

impl Anchor {
    /// The clocks as they are now, noted after what is known.
    pub(crate) fn noted(known: Option<Self>, now: Timestamp, wall: Timestamp) -> Self {
        match known {
            Some(known) if wall < known.wall_max => Self { mark: known.mark.max(now), wall, ..known },
            known => {
                let mark = known.map_or(now, |known| known.mark.max(now));
                Self { mark, wall, wall_max: wall, mark_at_max: mark }
            }
        }
    }

    /// Whether the clocks have moved far enough to be noted with what is written anyway.
    pub(crate) fn is_behind(&self, now: Timestamp, wall: Timestamp) -> bool {
        now.minus(self.mark) >= ANCHOR_STEP || wall.minus(self.wall) >= ANCHOR_STEP || self.went_back(wall)
    }

    /// Whether the wall clock was set back. That must be noted at once, or nobody could measure from there.
    pub(crate) fn went_back(&self, wall: Timestamp) -> bool {
        self.wall.minus(wall) >= ANCHOR_STEP
    }

    fn store_time(&self, wall: Timestamp) -> Timestamp {
        if wall < self.wall_max {
            // Set back by little, it is soon past that again, and nothing is counted twice.
            let is_soon_past = self.wall_max.minus(wall) <= DOUBTFUL_LEAD_MAX;
            let moved = if is_soon_past { Span::ZERO } else { wall.minus(self.wall).min(DOUBTFUL_LEAD_MAX) };
            return self.mark.plus(moved);
        }
        self.mark.max(self.mark_at_max.plus(wall.minus(self.wall_max).min(WALL_LEAD_MAX)))
    }
}

/// Store time within one open of a store: a start and the monotonic reading it belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreTime {
    start: Timestamp,
    origin: Duration,
}

impl StoreTime {
    /// Starts store time: at the wall clock on a new file, else where the file's clocks and the wall clock say.
    pub(crate) fn start(anchor: Option<Anchor>, wall: Timestamp, monotonic: Duration) -> Self {
        let start = anchor.map_or(wall, |anchor| anchor.store_time(wall));
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

    /// The store as the next open finds it, after one that read the wall clock and wrote something.
    fn open(known: Option<Anchor>, wall: u64) -> Option<Anchor> {
        let now = StoreTime::start(known, Timestamp(wall), Duration::ZERO).at(Duration::ZERO);
        Some(Anchor::noted(known, now, Timestamp(wall)))
    }

    /// Days of store time after opens under these wall clocks, in days.
    fn days(walls: &[u64]) -> u64 {
        let anchor = walls.iter().fold(None, |known, wall| open(known, wall * DAY)).expect("opened");
        anchor.mark.0 / DAY
    }

    #[test]
    fn new_file_starts_at_the_wall_clock() {
        assert_eq!(days(&[77]), 77);
    }

    #[test]
    fn store_time_follows_a_wall_clock_that_goes_on() {
        assert_eq!(days(&[50, 51, 52, 80, 109]), 109);
    }

    #[test]
    fn wall_clock_behind_moves_nothing() {
        assert_eq!(days(&[50, 0]), 50);
        assert_eq!(days(&[50, 49]), 50);
        assert_eq!(days(&[50, 0, 0, 0, 50, 51]), 51, "and what is lost is made up once it is right again");
    }

    #[test]
    fn wall_clock_far_ahead_moves_store_time_by_thirty_days_at_most() {
        assert_eq!(days(&[50, 5_000]), 80);
    }

    /// Each open added thirty days: after four, a tombstone of a hundred days was over and its key ran again.
    #[test]
    fn wall_clock_that_stays_far_ahead_counts_once() {
        assert_eq!(days(&[50, 5_000, 5_000, 5_000, 5_001, 5_002]), 82);
        assert_eq!(days(&[0, 20_000, 20_000, 20_000, 20_001]), 31, "so does one that was behind and learns the date");
    }

    #[test]
    fn wall_clock_that_goes_to_and_fro_counts_once() {
        let mut walls = vec![20_000];
        (1..50).for_each(|turn| walls.extend([0, 20_000 + turn, 40_000 + turn, 10_000]));
        assert!(days(&walls) < 20_000 + 30 + 50 + 10, "{}", days(&walls));
    }

    /// A lease that was granted under a clock far ahead has to end after the clock was set right.
    #[test]
    fn wall_clock_that_was_set_back_moves_store_time_again_from_there() {
        let ahead = open(open(None, 50 * DAY), 5_000 * DAY);
        let set_back = open(ahead, 50 * DAY);
        assert_eq!(set_back.map(|anchor| anchor.mark), ahead.map(|anchor| anchor.mark));
        let minutes_later = open(set_back, 50 * DAY + 300_000);
        assert_eq!(minutes_later.map(|anchor| anchor.mark.0), ahead.map(|anchor| anchor.mark.0 + 300_000));
    }

    #[test]
    fn wall_clock_that_was_set_back_by_little_moves_nothing_until_it_is_past_that() {
        let noon = open(open(None, DAY), DAY + 3_600_000);
        let set_back = open(noon, DAY + 600_000);
        for (wall, mark) in [(DAY + 1_200_000, 3_600_000), (DAY + 3_600_000, 3_600_000), (DAY + 3_660_000, 3_660_000)] {
            assert_eq!(open(set_back, wall).map(|anchor| anchor.mark), Some(Timestamp(DAY + mark)));
        }
    }

    #[test]
    fn clock_that_was_set_right_within_an_open_is_measured_from_there() {
        let in_1970 = open(None, 0);
        let learned = Anchor::noted(in_1970, Timestamp(5_000), Timestamp(20_000 * DAY));
        let next = open(Some(learned), 20_000 * DAY + 7_000).expect("opened");
        assert_eq!(next.mark, Timestamp(12_000));
    }

    #[test]
    fn clocks_are_noted_when_they_moved() {
        let anchor = Anchor::noted(None, Timestamp(10_000), Timestamp(50_000));
        assert!(!anchor.is_behind(Timestamp(10_999), Timestamp(50_999)));
        assert!(anchor.is_behind(Timestamp(11_000), Timestamp(50_000)));
        assert!(anchor.is_behind(Timestamp(10_000), Timestamp(51_000)));
        assert!(anchor.is_behind(Timestamp(10_000), Timestamp(49_000)) && anchor.went_back(Timestamp(49_000)));
        assert!(!anchor.went_back(Timestamp(49_001)));
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
