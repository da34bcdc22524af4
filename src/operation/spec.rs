//! What a caller wants to run, and on which terms.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::machine::event::{Event, Intent, Phase};
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, OperationKey};
use crate::machine::limits::DELAY_MAX;
use crate::machine::policy::{Backoff, Policy, Remote, Retention};
use crate::machine::record::Holder;
use crate::machine::response::ResponsePolicy;
use crate::machine::time::Span;
use crate::storage::batch::{Step, Target};

/// Grants a nonce remembers: each costs a failed commit and a reopened store, so more means something else is wrong.
const UNHEARD_MAX: usize = 8;

/// One operation as a caller means it: key, fingerprint of the payload, and how it wants to be treated.
///
/// Build it with the same terms on every retry. Values out of bounds are refused when it is begun, before anything is
/// written.
///
/// # Example
/// ```
/// use dupeproof::{Fingerprint, Operation, OperationKey};
/// use std::time::Duration;
/// let body = br#"{"amount":1200}"#;
/// let operation = Operation::new(OperationKey::new("acme", "charge", "invoice-981")?, Fingerprint::of_bytes(body))
///     .with_lease(Duration::from_secs(30))
///     .with_attempts(5);
/// # let _ = operation;
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Operation {
    pub(super) identity: Identity,
    fingerprint: Fingerprint,
    policy: Policy,
    pub(super) wait: Option<Duration>,
    pub(super) nonce: Option<Nonce>,
    /// What has to hold for it to begin, checked in the commit that begins it.
    pub(super) conditions: Vec<Step>,
}

impl Operation {
    /// An operation with the default terms: a lease of a minute that is renewed for up to an hour, responses replayed
    /// for 7 days and tombstones for 90 more, 100 attempts, an opaque remote side.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body));
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new(key: OperationKey, fingerprint: Fingerprint) -> Self {
        Self::of(Identity::operation(key), fingerprint)
    }

    /// One of any kind.
    pub(crate) fn of(identity: Identity, fingerprint: Fingerprint) -> Self {
        Self { identity, fingerprint, policy: Policy::default(), wait: None, nonce: None, conditions: Vec::new() }
    }

    /// Begins only if the events are accepted, in the same commit. The last is for what the operation belongs to.
    pub(crate) fn on_condition(mut self, conditions: impl IntoIterator<Item = (Identity, Event)>) -> Self {
        let step = |(identity, event)| Step { target: Target::Key(identity), event };
        self.conditions = conditions.into_iter().map(step).collect();
        self
    }

    /// What it belongs to.
    pub(super) fn parent(&self) -> Option<&Identity> {
        match self.conditions.last()?.target {
            Target::Key(ref identity) => Some(identity),
            Target::Id(_) => None,
        }
    }

    /// How long a claim is good without a renewal: 50 ms to 7 days. Too short, and a slow disk turns live executions
    /// into unknown outcomes; too long, and a dead owner blocks its key in shared mode.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// use std::time::Duration;
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_lease(Duration::from_secs(30));
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.policy.lease = Span::from_duration(lease);
        self
    }

    /// How long the lease is renewed while the claim is held: one lease to 30 days. After it, a hung effect becomes an
    /// unknown outcome.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// use std::time::Duration;
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_max_execution(Duration::from_secs(7200));
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_max_execution(mut self, max_execution: Duration) -> Self {
        self.policy.max_execution = Span::from_duration(max_execution);
        self
    }

    /// How long the result answers repeats.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Retention, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_retention(Retention::forever());
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.policy.retention = retention;
        self
    }

    /// How many attempts may be granted before a retryable failure becomes final: at least 1.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_attempts(5);
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_attempts(mut self, attempts_max: u32) -> Self {
        self.policy.attempts_max = attempts_max;
        self
    }

    /// The delays of [`Retry::backoff`](crate::Retry::backoff).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Backoff, Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_backoff(Backoff::none());
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Whether the response is stored.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Response, ResponsePolicy, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// # let store = Store::in_memory()?;
    /// // The response is a secret: repeats learn that there was one, not what it was.
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_response_policy(ResponsePolicy::ReferenceOnly);
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let replay = claim.with_external_reference("tok_1").succeed_raw("secret")?;
    /// assert_eq!((replay.raw(), replay.external_reference()), (&Response::Withheld, Some("tok_1")));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_response_policy(mut self, policy: ResponsePolicy) -> Self {
        self.policy.response = policy;
        self
    }

    /// What the remote side offers when an outcome is unknown.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Remote, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// use std::time::Duration;
    /// // The provider promises 24 hours.
    /// let remote = Remote::DedupesOnKey { window: Duration::from_secs(23 * 3600) };
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_remote(remote);
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_remote(mut self, remote: Remote) -> Self {
        self.policy.resend_window = match remote {
            Remote::Opaque | Remote::Queryable => Span::ZERO,
            Remote::DedupesOnKey { window } => Span::from_duration(window),
        };
        self
    }

    /// Waits up to `timeout` (at most 366 days) for somebody else's execution, and then gets its replay, instead of
    /// being told at once that it is in progress.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// use std::time::Duration;
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_wait(Duration::from_secs(10));
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_wait(mut self, timeout: Duration) -> Self {
        self.wait = Some(timeout);
        self
    }

    /// Lets a begin whose commit was [`Indeterminate`](crate::ErrorKind::Indeterminate) find its own claim after the
    /// store was reopened, instead of seeing itself as a rival.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// use dupeproof::Nonce;
    /// let nonce = Nonce::new();
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_nonce(&nonce);
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_nonce(mut self, nonce: &Nonce) -> Self {
        self.nonce = Some(nonce.clone());
        self
    }

    /// The key.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// let operation = Operation::new(key.clone(), Fingerprint::of_bytes(body));
    /// assert_eq!(operation.key(), &key);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn key(&self) -> &OperationKey {
        &self.identity.key
    }

    /// Whether the terms are in bounds. Begin asks the same; this is for telling a user before a store is opened.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), which names the term and its bounds.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey};
    /// use std::time::Duration;
    /// let operation = Operation::new(OperationKey::new("t", "o", "k")?, Fingerprint::unchecked());
    /// assert!(operation.check().is_ok());
    /// assert!(operation.with_lease(Duration::ZERO).check().is_err());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn check(&self) -> Result<()> {
        if self.wait.is_some_and(|wait| wait > DELAY_MAX.as_duration()) {
            let (found, most) = (self.wait.unwrap_or_default(), DELAY_MAX.as_duration());
            return Err(Error::invalid_input(format!("wait is {found:?}: at most {most:?} expected")));
        }
        self.policy.check()
    }

    /// The full name: also of a step or a compensation.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Kind, Operation, OperationKey};
    /// let charge = OperationKey::new("acme", "charge", "i-1")?;
    /// let refund = Operation::compensation(&charge, Fingerprint::unchecked());
    /// assert_eq!(refund.identity().kind(), Kind::Compensation);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its begin within a commit that settles it as well, so that no claim of it is ever held.
    pub(crate) fn begin_within(&self) -> Event {
        Event::Begin(self.intent(Phase::Start, 0, Vec::new()))
    }

    pub(super) fn intent(&self, phase: Phase, grant: u64, unheard: Vec<Holder>) -> Intent {
        Intent {
            identity: self.identity.clone(),
            fingerprint: self.fingerprint.clone(),
            policy: self.policy,
            phase,
            grant,
            unheard,
        }
    }
}

/// Remembers, in memory only, begins whose commit was indeterminate.
///
/// Such a caller never received a claim, so its effect was never started, and if its claim is found after all, it may
/// have it. A nonce cannot be stored or rebuilt, and it forgets a claim once it was received: a process that got one
/// and died can never pass for one that did not.
///
/// # Example
/// ```
/// # use dupeproof::{Fingerprint, Nonce, Operation, OperationKey};
/// let nonce = Nonce::new();
/// let operation = Operation::new(OperationKey::new("t", "o", "k")?, Fingerprint::unchecked()).with_nonce(&nonce);
/// # let _ = operation;
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Nonce(Arc<Mutex<Vec<Holder>>>);

impl Nonce {
    /// A nonce for one business operation, kept over the retries of its begin.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Store};
    /// # let key = OperationKey::new("acme", "charge", "i-1")?;
    /// # let body = b"12.00";
    /// let nonce = dupeproof::Nonce::new();
    /// // On every retry of this begin.
    /// let operation = Operation::new(key, Fingerprint::of_bytes(body)).with_nonce(&nonce);
    /// assert!(operation.check().is_ok());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the memory out, so that of two begins with one nonce only one can find the claim.
    pub(super) fn take(&self) -> Vec<Holder> {
        std::mem::take(&mut *self.0.lock())
    }

    pub(super) fn remember(&self, holders: impl IntoIterator<Item = Holder>) {
        let mut unheard = self.0.lock();
        unheard.extend(holders);
        let surplus = unheard.len().saturating_sub(UNHEARD_MAX);
        unheard.drain(..surplus);
    }
}
