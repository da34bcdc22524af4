//! How one operation wants to be treated: lease, retention, attempts, backoff and what the remote side offers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::key::Identity;
use super::limits;
use super::response::ResponsePolicy;
use super::time::{Span, Timestamp};
use crate::error::{Error, Result};

/// What the remote side offers when an outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Remote {
    /// Nothing: an unknown outcome needs a person.
    #[default]
    Opaque,
    /// It can be asked: an unknown outcome needs a probe, or a person.
    Queryable,
    /// It drops a second request with the same downstream key for `window` after the first. Within that time of the
    /// first start, an unknown outcome may be *re-sent* under the same downstream key. State a window shorter than
    /// what the provider promises: the provider counts from its own clock. The lease of a re-send ends with the window;
    /// an effect sent after that ([`Claim::is_current`](crate::Claim::is_current)) is a second effect.
    DedupesOnKey {
        /// How long after the first start a re-send is safe.
        window: Duration,
    },
}

/// How long a settled record answers repeats, counted from its settlement; repeats never extend it.
///
/// # Example
/// ```
/// use dupeproof::Retention;
/// use std::time::Duration;
/// let day = Duration::from_secs(86_400);
/// let retention = Retention::default().with_response(30 * day).with_tombstone_forever();
/// # let _ = retention;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retention {
    response: Span,
    tombstone: Span,
}

impl Default for Retention {
    /// Responses for 7 days, then tombstones for 90.
    fn default() -> Self {
        Self { response: limits::RESPONSE_RETENTION_DEFAULT, tombstone: limits::TOMBSTONE_RETENTION_DEFAULT }
    }
}

impl Retention {
    /// Everything for ever.
    ///
    /// # Example
    /// ```
    /// # let key = dupeproof::OperationKey::new("t", "o", "k")?;
    /// use dupeproof::{Fingerprint, Operation, Retention};
    /// let operation = Operation::new(key, Fingerprint::unchecked()).with_retention(Retention::forever());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn forever() -> Self {
        Self { response: Span::FOREVER, tombstone: Span::FOREVER }
    }

    /// Replays the response for `duration` after settlement: 1 second to 100 years. Too short, and late retries get
    /// `Expired` instead of their answer; too long, and the file grows.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::Retention;
    /// use std::time::Duration;
    /// let day = Duration::from_secs(86_400);
    /// let retention = Retention::default().with_response(30 * day);
    /// # let _ = retention;
    /// ```
    #[must_use]
    pub fn with_response(mut self, duration: Duration) -> Self {
        self.response = Span::from_duration(duration);
        self
    }

    /// Keeps the tombstone for `duration` after the response: 0 to 100 years. When it is gone, the key is new again,
    /// and a repeat *runs*.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::Retention;
    /// use std::time::Duration;
    /// let day = Duration::from_secs(86_400);
    /// // Longer than the broker may redeliver.
    /// let retention = Retention::default().with_tombstone(365 * day);
    /// # let _ = retention;
    /// ```
    #[must_use]
    pub fn with_tombstone(mut self, duration: Duration) -> Self {
        self.tombstone = Span::from_duration(duration);
        self
    }

    /// Replays the response for ever.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::Retention;
    /// assert_ne!(Retention::default().with_response_forever(), Retention::default());
    /// ```
    #[must_use]
    pub fn with_response_forever(mut self) -> Self {
        self.response = Span::FOREVER;
        self
    }

    /// Keeps the tombstone for ever: the key is never new again.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::Retention;
    /// let forever = Retention::default().with_response_forever().with_tombstone_forever();
    /// assert_eq!(forever, Retention::forever());
    /// ```
    #[must_use]
    pub fn with_tombstone_forever(mut self) -> Self {
        self.tombstone = Span::FOREVER;
        self
    }

    pub(crate) fn expires_at(self, settled_at: Timestamp) -> Timestamp {
        settled_at.plus(self.response)
    }

    pub(crate) fn purge_at(self, settled_at: Timestamp) -> Timestamp {
        self.expires_at(settled_at).plus(self.tombstone)
    }
}

/// Delays between attempts of which the effect is known not to have happened: exponential with jitter.
///
/// # Example
/// ```
/// use dupeproof::Backoff;
/// use std::time::Duration;
/// let backoff = Backoff::exponential(Duration::from_secs(2), Duration::from_secs(600));
/// # let _ = backoff;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Backoff {
    base: Span,
    cap: Span,
}

impl Default for Backoff {
    /// From 1 second, doubling, to 15 minutes.
    fn default() -> Self {
        Self { base: limits::BACKOFF_BASE_DEFAULT, cap: limits::BACKOFF_CAP_DEFAULT }
    }
}

impl Backoff {
    /// Starts at `base` and doubles up to `cap`; each delay is cut at random by up to a half, so that callers that
    /// failed together do not come back together.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// use dupeproof::Backoff;
    /// use std::time::Duration;
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body))
    ///     .with_backoff(Backoff::exponential(Duration::from_secs(2), Duration::from_secs(600)));
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        Self { base: Span::from_duration(base), cap: Span::from_duration(cap) }
    }

    /// No delay at all.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Backoff;
    /// use std::time::Duration;
    /// assert_eq!(Backoff::none(), Backoff::exponential(Duration::ZERO, Duration::ZERO));
    /// ```
    pub fn none() -> Self {
        Self { base: Span::ZERO, cap: Span::ZERO }
    }

    /// The delay after the given attempt. The jitter comes from a hash of `seed` and the attempt, so that the machine
    /// stays without randomness and a replayed decision is the same decision.
    pub(crate) fn delay(self, attempt: u32, seed: u64) -> Span {
        let doublings = attempt.saturating_sub(1).min(63);
        let full = self.base.as_millis().saturating_mul(1 << doublings).min(self.cap.as_millis());
        let half = full / 2;
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..].copy_from_slice(&attempt.to_le_bytes());
        Span::from_millis(full - half + xxh3_64(&bytes) % (half + 1))
    }
}

/// When the next attempt may start, after a failure of which the effect is known not to have happened.
///
/// # Example
/// ```
/// use dupeproof::Retry;
/// use std::time::Duration;
/// let retry = Retry::after(Duration::from_secs(5)).with_fresh_downstream_key();
/// # let _ = retry;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retry {
    pub(crate) delay: RetryDelay,
    pub(crate) downstream: DownstreamKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RetryDelay {
    Exactly(Span),
    Backoff,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DownstreamKey {
    Keep,
    NextGeneration,
}

impl Retry {
    /// At once.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.fail_retryable("connection refused", Retry::now())?;
    /// assert!(matches!(store.begin(&operation)?, Begin::Execute(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn now() -> Self {
        Self::after(Duration::ZERO)
    }

    /// Once `delay` has passed (at most 366 days; longer ones count as that).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// use std::time::Duration;
    /// claim.fail_retryable("rate limited", Retry::after(Duration::from_secs(30)))?;
    /// assert!(matches!(store.begin(&operation)?, Begin::RetryLater(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn after(delay: Duration) -> Self {
        let delay = RetryDelay::Exactly(Span::from_duration(delay).min(limits::DELAY_MAX));
        Self { delay, downstream: DownstreamKey::Keep }
    }

    /// As the operation's [`Backoff`] says.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.fail_retryable("connection refused", Retry::backoff())?;
    /// let Begin::RetryLater(later) = store.begin(&operation)? else { unreachable!() };
    /// assert!(later.wait() <= std::time::Duration::from_secs(1));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn backoff() -> Self {
        Self { delay: RetryDelay::Backoff, downstream: DownstreamKey::Keep }
    }

    /// Gives the next attempt a new downstream key, for a provider that remembers *failures* under a key. Only sound
    /// because the effect is known not to have happened.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let cached = claim.downstream_key();
    /// claim.fail_retryable("the provider replays its own error", Retry::now().with_fresh_downstream_key())?;
    /// let Begin::Execute(next) = store.begin(&operation)? else { unreachable!() };
    /// assert_ne!(next.downstream_key(), cached);
    /// # next.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_fresh_downstream_key(mut self) -> Self {
        self.downstream = DownstreamKey::NextGeneration;
        self
    }
}

/// The validated policy of one attempt, kept with the record while it is unsettled: the sweep has no caller to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) lease: Span,
    pub(crate) max_execution: Span,
    pub(crate) retention: Retention,
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Backoff,
    /// How long after the first start a re-send is safe; zero where the remote side does not dedupe.
    pub(crate) resend_window: Span,
    pub(crate) response: ResponsePolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: limits::LEASE_DEFAULT,
            max_execution: limits::MAX_EXECUTION_DEFAULT,
            retention: Retention::default(),
            attempts_max: limits::ATTEMPTS_DEFAULT,
            backoff: Backoff::default(),
            resend_window: Span::ZERO,
            response: ResponsePolicy::Store,
        }
    }
}

impl Policy {
    /// What belongs to a run is kept as long as the run: it would be done again if it were forgotten before.
    pub(crate) fn kept_for(self, identity: &Identity) -> Self {
        match identity.step {
            Some(_) => Self { retention: Retention::forever(), ..self },
            None => self,
        }
    }

    /// Refuses durations and limits that cannot be meant, before anything is written.
    pub(crate) fn check(&self) -> Result<()> {
        within("lease", self.lease, limits::LEASE_MIN, limits::LEASE_MAX)?;
        within("max_execution", self.max_execution, self.lease, limits::MAX_EXECUTION_MAX)?;
        retained("response retention", self.retention.response, limits::RESPONSE_RETENTION_MIN)?;
        retained("tombstone retention", self.retention.tombstone, Span::ZERO)?;
        within("backoff base", self.backoff.base, Span::ZERO, limits::DELAY_MAX)?;
        within("backoff cap", self.backoff.cap, self.backoff.base, limits::DELAY_MAX)?;
        within("dedupe window of the remote side", self.resend_window, Span::ZERO, limits::DELAY_MAX)?;
        if self.attempts_max == 0 {
            return Err(Error::invalid_input("attempt limit is 0: at least 1 expected"));
        }
        Ok(())
    }
}

fn within(name: &str, found: Span, least: Span, most: Span) -> Result<()> {
    if found < least || found > most {
        let (found, least, most) = (found.as_duration(), least.as_duration(), most.as_duration());
        return Err(Error::invalid_input(format!("{name} is {found:?}: {least:?} to {most:?} expected")));
    }
    Ok(())
}

fn retained(name: &str, found: Span, least: Span) -> Result<()> {
    if found == Span::FOREVER { Ok(()) } else { within(name, found, least, limits::RETENTION_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_to_the_cap_and_never_exceeds_it() {
        let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60));
        for attempt in 1..200 {
            let full = 1000_u64.saturating_mul(1 << (attempt - 1).min(40)).min(60_000);
            let delay = backoff.delay(attempt, 9).as_millis();
            assert!(full / 2 <= delay && delay <= full, "attempt {attempt}: {delay}");
        }
        assert_eq!(Backoff::none().delay(7, 1), Span::ZERO);
    }

    #[test]
    fn backoff_of_different_records_differs() {
        let backoff = Backoff::exponential(Duration::from_secs(600), Duration::from_secs(600));
        assert_ne!(backoff.delay(1, 1), backoff.delay(1, 2));
    }

    #[test]
    fn default_policy_is_valid_and_absurd_ones_are_refused() {
        let good = Policy::default();
        assert!(good.check().is_ok());
        let day = Duration::from_secs(86_400);
        for bad in [
            Policy { lease: Span::ZERO, ..good },
            Policy { lease: Span::FOREVER, ..good },
            Policy { max_execution: Span::from_millis(60), ..good },
            Policy { max_execution: Span::FOREVER, ..good },
            Policy { retention: Retention::default().with_response(Duration::ZERO), ..good },
            Policy { retention: Retention::default().with_response(50_000 * day), ..good },
            Policy { retention: Retention::default().with_tombstone(50_000 * day), ..good },
            Policy { attempts_max: 0, ..good },
            Policy { backoff: Backoff::exponential(2 * day, day), ..good },
            Policy { resend_window: Span::FOREVER, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Policy { retention: Retention::forever(), ..good }.check().is_ok());
    }
}
