//! Claims: the right to perform one attempt's effect, and the duty to say how it ended.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::answer::{Begin, Replay, RetryLater, UnknownOutcome};
use super::spec::Operation;
use crate::engine::{Driven, Ended, Hold};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{Answer, Event, Grant, Settlement as Settle};
use crate::machine::key::{Identity, OperationKey};
use crate::machine::limits::{CHECKPOINT_BYTES_MAX, REFERENCE_BYTES_MAX};
use crate::machine::policy::{Policy, Retry};
use crate::machine::record::{Record, State, Token};
use crate::machine::response::{ExternalReference, FailureReport, Response};
use crate::storage::batch::{Step, Target};
use crate::store::Store;

/// What both kinds of claim are made of.
struct Core {
    store: Store,
    hold: Arc<Hold>,
    identity: Identity,
    policy: Policy,
    generation: u32,
    grant: Grant,
    checkpoint: Option<Vec<u8>>,
    reference: Mutex<Option<ExternalReference>>,
    /// Nothing is left to do for the drop.
    is_over: Arc<AtomicBool>,
}

impl Core {
    fn new(store: &Store, record: &Record, grant: Grant, sent_at: Duration) -> Result<Self> {
        let (State::Reserved(held) | State::Executing(held)) = &record.state else {
            return Err(odd_answer("a grant without a lease"));
        };
        let policy = held.work.policy;
        let (lease, most) = (policy.lease.as_duration(), held.lease.ends_by.since(held.lease.granted_at));
        let hold = Arc::new(Hold::new(record.token(), lease, most, sent_at));
        store.engine().keep(hold.clone());
        Ok(Self {
            store: store.clone(),
            hold,
            identity: record.head.identity.clone(),
            policy,
            generation: record.head.generation,
            grant,
            checkpoint: held.work.checkpoint.clone(),
            reference: Mutex::new(None),
            is_over: Arc::default(),
        })
    }

    fn token(&self) -> Token {
        self.hold.token()
    }

    fn step(&self, event: Event) -> Step {
        Step { target: Target::Id(self.token().id), event }
    }

    fn write(&self, event: Event) -> Result<Driven> {
        self.heard(self.store.engine().drive(vec![self.step(event)]))
    }

    fn heartbeat(&self) -> Result<()> {
        let engine = self.store.engine();
        let sent_at = engine.monotonic();
        self.heard(engine.renew(self.step(Event::Heartbeat(self.token()))))?;
        self.hold.renewed(sent_at);
        Ok(())
    }

    fn heard<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if error.kind() == ErrorKind::LeaseLost {
                self.hold.lose();
            }
        })
    }

    /// Settled or handed on: it is current no longer, whatever is left of its lease.
    fn over(&self) {
        Ended { hold: self.hold.clone(), is_over: self.is_over.clone() }.tell(self.store.engine());
    }

    fn is_current(&self) -> bool {
        let engine = self.store.engine();
        engine.check_health().is_ok() && self.hold.is_current(engine.monotonic())
    }

    fn checkpoint(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > CHECKPOINT_BYTES_MAX {
            let found = bytes.len();
            return Err(Error::invalid_input(format!(
                "checkpoint has {found} bytes: at most {CHECKPOINT_BYTES_MAX} expected"
            )));
        }
        self.write(Event::Checkpoint(self.token(), bytes.to_vec())).map(drop)
    }
}

impl Drop for Core {
    /// Says only that the claim is gone, and never waits: a reservation is released, an execution becomes unknown.
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Acquire) {
            let engine = self.store.engine();
            engine.release(&self.hold);
            engine.drive_unheard(self.token().id, Event::Abandon(self.token()));
        }
    }
}

/// The right to perform the effect of one attempt.
///
/// While it is held its lease is renewed, up to the operation's `max_execution`. Settle it: with
/// [`succeed`](Claim::succeed_raw), [`fail_terminal`](Claim::fail_terminal), [`fail_retryable`](Claim::fail_retryable)
/// or [`give_up`](Claim::give_up). Dropped without that (a panic, an early return, a `?`), the outcome is unknown.
///
/// Every write is durable when it returns. With [`LeaseLost`](ErrorKind::LeaseLost) it changed nothing: another attempt
/// was granted, or the lease ended. Settling is allowed late, as long as the outcome is still unknown and nobody else
/// was granted an attempt. Settling twice alike is fine; otherwise the second gets
/// [`AlreadySettled`](ErrorKind::AlreadySettled).
///
/// # Example: the four ways to settle
/// ```
/// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
/// # use std::time::Duration;
/// # enum Charge { Accepted(String), Declined, NotSent, Lost }
/// # fn charge(_key: &str) -> Charge { Charge::Accepted("ch_1".into()) }
/// # let store = Store::in_memory()?;
/// # let operation = Operation::new(OperationKey::new("t", "charge", "k")?, Fingerprint::unchecked());
/// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
/// match charge(&claim.downstream_key()) {
///     Charge::Accepted(id) => { claim.with_external_reference(&id).succeed_raw("paid")?; }
///     Charge::Declined => { claim.fail_terminal("declined")?; }
///     Charge::NotSent => { claim.fail_retryable("no route", Retry::after(Duration::from_secs(5)))?; }
///     Charge::Lost => { claim.give_up("the answer was lost")?; }
/// }
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[must_use = "a dropped claim makes the outcome unknown"]
pub struct Claim {
    core: Core,
}

/// The right to start one attempt: like a [`Claim`], but its effect must not start before
/// [`start`](Reservation::start).
///
/// If its owner dies, nothing has happened, and the next caller may run at once.
#[must_use = "a dropped reservation is released"]
pub struct Reservation {
    core: Core,
}

/// How an attempt ended, for [`settle_and_begin`](Claim::settle_and_begin).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The effect happened.
    Succeeded(Response),
    /// The effect did not happen and will not be tried again.
    FailedTerminal(FailureReport),
    /// The effect is known not to have happened.
    FailedRetryable(FailureReport, Retry),
    /// Nobody knows.
    GaveUp(FailureReport),
    /// The effect was not started.
    Released,
}

/// What became of an operation whose attempt failed without the effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterFailure {
    /// A new attempt may start after a while.
    RetryLater(RetryLater),
    /// That was the last permitted attempt: the failure is final.
    Exhausted(Replay),
    /// This attempt [re-sent](Claim::is_resend) an earlier one, and whether that one happened is still not known.
    StillUnknown(UnknownOutcome),
}

/// Grows with every attempt at an operation, also after its record was purged. Hand it to a resource that can refuse
/// smaller ones: then a stale owner cannot write there either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    record: u64,
    attempt: u32,
}

impl FencingToken {
    /// As one number that keeps the order.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let first = claim.fencing_token();
    /// claim.release()?;
    /// let Begin::Execute(next) = store.begin(&operation)? else { unreachable!() };
    /// assert!(next.fencing_token().as_u128() > first.as_u128());
    /// # next.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn as_u128(self) -> u128 {
        u128::from(self.record) << 32 | u128::from(self.attempt)
    }
}

/// Digits of fixed width, so that it sorts as text.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}-{:010}", self.record, self.attempt)
    }
}

impl Reservation {
    pub(super) fn new(store: &Store, record: &Record, grant: Grant, sent_at: Duration) -> Result<Self> {
        Core::new(store, record, grant, sent_at).map(|core| Self { core })
    }

    /// Marks the effect as about to start. Durable on return: from now on, a crash makes the outcome unknown.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost) if the reservation ended. Whatever the error, the effect must not start.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Reserve, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("t", "o", "k")?, Fingerprint::unchecked());
    /// if let Reserve::Reserved(reservation) = store.reserve(&operation)? {
    ///     // Slow preparation goes here: dying now costs nothing.
    ///     let claim = reservation.start()?;
    ///     claim.succeed_raw("done")?;
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn start(self) -> Result<Claim> {
        self.core.write(Event::Start(self.core.token()))?;
        Ok(Claim { core: self.core })
    }

    /// Hands the reservation back: the next caller may run at once, also at the attempt limit. The attempt stays
    /// counted.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost) if another attempt was granted since. After a lapse alone there is nothing left
    /// to hand back, and that is no error.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Reserve, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Reserve::Reserved(reservation) = store.reserve(&operation)? else { unreachable!() };
    /// reservation.release()?;
    /// assert!(matches!(store.reserve(&operation)?, Reserve::Reserved(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn release(self) -> Result<()> {
        self.core.write(Event::Settle(self.core.token(), Settle::Released))?;
        self.core.over();
        Ok(())
    }

    /// Renews the lease by hand.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost) if it ended.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Reserve, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Reserve::Reserved(reservation) = store.reserve(&operation)? else { unreachable!() };
    /// reservation.heartbeat()?;
    /// # reservation.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn heartbeat(&self) -> Result<()> {
        self.core.heartbeat()
    }

    /// Whether the reservation is certainly still good. No I/O.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Reserve, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Reserve::Reserved(reservation) = store.reserve(&operation)? else { unreachable!() };
    /// assert!(reservation.is_current());
    /// # reservation.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_current(&self) -> bool {
        self.core.is_current()
    }

    /// The number of this attempt, from 1.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Reserve, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Reserve::Reserved(reservation) = store.reserve(&operation)? else { unreachable!() };
    /// assert_eq!(reservation.attempt(), 1);
    /// # reservation.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempt(&self) -> u32 {
        self.core.token().attempt
    }
}

impl Claim {
    pub(super) fn new(store: &Store, record: &Record, grant: Grant, sent_at: Duration) -> Result<Self> {
        Core::new(store, record, grant, sent_at).map(|core| Self { core })
    }

    /// The full name of what is claimed: for a step, the run and the step.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Kind, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(claim.identity().kind(), Kind::Operation);
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn identity(&self) -> &Identity {
        &self.core.identity
    }

    /// The operation's key.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(claim.key().key(), "i-1");
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn key(&self) -> &OperationKey {
        &self.core.identity.key
    }

    /// The number of this attempt, from 1.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(claim.attempt(), 1);
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn attempt(&self) -> u32 {
        self.core.token().attempt
    }

    /// Grows with every attempt, for resources that can refuse a stale owner.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// println!("write with token {}", claim.fencing_token());
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
        let Token { id, attempt } = self.core.token();
        FencingToken { record: id.0, attempt }
    }

    /// The key to send to the provider, so that it can dedupe too: a UUID version 8 (RFC 9562) derived from the
    /// operation key, the same over every ambiguous retry.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("t", "o", "k")?, Fingerprint::unchecked());
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(claim.downstream_key().len(), 36);
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn downstream_key(&self) -> String {
        self.core.identity.downstream_key(self.core.generation)
    }

    /// Whether an earlier attempt may have happened and this one re-sends it under the same downstream key. Granted
    /// only to operations whose remote side is declared to dedupe.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Remote, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.release()?;
    /// use std::time::Duration;
    /// let operation = operation.with_remote(Remote::DedupesOnKey { window: Duration::from_secs(3600) });
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.give_up("connection lost")?;
    /// let Begin::Execute(again) = store.begin(&operation)? else { unreachable!() };
    /// assert!(again.is_resend() && again.downstream_key() == claim.downstream_key());
    /// # again.succeed_raw("paid")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_resend(&self) -> bool {
        self.core.grant == Grant::Resend
    }

    /// The last checkpoint of an earlier attempt.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.checkpoint(b"page 3")?;
    /// claim.fail_retryable("rate limited", Retry::now())?;
    /// let Begin::Execute(next) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(next.last_checkpoint(), Some(b"page 3".as_slice()));
    /// # next.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn last_checkpoint(&self) -> Option<&[u8]> {
        self.core.checkpoint.as_deref()
    }

    /// Whether the claim is certainly still the current one. No I/O: counted from before the write that last renewed
    /// it. Ask before each irreversible part of a long effect.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// assert!(claim.is_current());
    /// claim.succeed_raw("paid")?;
    /// assert!(!claim.is_current());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_current(&self) -> bool {
        self.core.is_current()
    }

    /// Renews the lease by hand, within `max_execution`. Not needed while the claim is held: the engine does it.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost) if it ended.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.heartbeat()?;
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn heartbeat(&self) -> Result<()> {
        self.core.heartbeat()
    }

    /// Keeps up to 64 KiB for the next attempt: how far this one came. Durable on return; replaces the last one.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is too large; [`LeaseLost`](ErrorKind::LeaseLost).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.checkpoint(b"page 3")?;
    /// let view = store.get(operation.key())?;
    /// assert_eq!(view.and_then(|view| view.checkpoint), Some(b"page 3".to_vec()));
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn checkpoint(&self, bytes: &[u8]) -> Result<()> {
        self.core.checkpoint(bytes)
    }

    /// Records the provider's own name for the effect, durable on return, so that a probe can use it if we die next.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is empty, over 1,024 bytes or has control characters;
    /// [`LeaseLost`](ErrorKind::LeaseLost).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.record_external_reference("ch_1")?;
    /// // If we die now, whoever asks the provider knows what to ask for.
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn record_external_reference(&self, reference: &str) -> Result<()> {
        let reference = ExternalReference::new(reference)?;
        self.core.write(Event::Refer(self.core.token(), reference)).map(drop)
    }

    /// Settles with the provider's own name for the effect; written together with the settlement.
    ///
    /// A name over 1,024 bytes is cut and control characters are replaced: a success must not get lost because of its
    /// label.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let replay = claim.with_external_reference("ch_1").succeed_raw("paid")?;
    /// assert_eq!(replay.external_reference(), Some("ch_1"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn with_external_reference(self, reference: &str) -> Self {
        let mut bytes = 0;
        let label: String = reference
            .chars()
            .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
            .take_while(|c| {
                bytes += c.len_utf8();
                bytes <= REFERENCE_BYTES_MAX
            })
            .collect();
        *self.core.reference.lock() = ExternalReference::new(&label).ok();
        self
    }

    /// The effect happened, with this response, encoded as JSON. What is returned is what every repeat will get.
    ///
    /// # Errors
    /// [`Response`](ErrorKind::Response) if it cannot be encoded: nothing was written, settle it otherwise.
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.succeed(&("ch_1", 1200))?;
    /// let Begin::Replay(replay) = store.begin(&operation)? else { unreachable!() };
    /// assert_eq!(replay.response::<(String, u32)>()?, ("ch_1".to_owned(), 1200));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn succeed<T: serde::Serialize + ?Sized>(&self, response: &T) -> Result<Replay> {
        self.succeed_raw(to_json(response)?)
    }

    /// The effect happened, with this response. What is returned is what every repeat will get: a response over the
    /// limit is recorded by its length and hash.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let replay = claim.succeed_raw("paid")?;
    /// assert_eq!(replay.value()?, b"paid");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn succeed_raw(&self, response: impl Into<Response>) -> Result<Replay> {
        self.settle_for_good(Settlement::Succeeded(response.into()))
    }

    /// The effect did not happen and will not be tried again. Every repeat gets the failure.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let replay = claim.fail_terminal("card declined")?;
    /// assert!(!replay.is_success());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn fail_terminal(&self, failure: impl fmt::Display) -> Result<Replay> {
        self.fail_terminal_with(FailureReport::new(failure))
    }

    /// [`fail_terminal`](Self::fail_terminal) with a report that can carry a body.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, FailureReport, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let report = FailureReport::new("card declined").with_response(r#"{"code":51}"#);
    /// let replay = claim.fail_terminal_with(report)?;
    /// assert_eq!(replay.raw().bytes(), Some(br#"{"code":51}"#.as_slice()));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn fail_terminal_with(&self, failure: FailureReport) -> Result<Replay> {
        self.settle_for_good(Settlement::FailedTerminal(failure))
    }

    /// The effect is *known* not to have happened; a new attempt may start when `retry` says. If that is not certain,
    /// [`give_up`](Self::give_up).
    ///
    /// Of an attempt that [re-sends](Self::is_resend) an earlier one this says nothing about the earlier one: the
    /// outcome stays unknown, under the same downstream key, and may be re-sent again when `retry` says.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// use std::time::Duration;
    /// claim.fail_retryable("connection refused", Retry::after(Duration::from_secs(5)))?;
    /// assert!(matches!(store.begin(&operation)?, Begin::RetryLater(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn fail_retryable(&self, failure: impl fmt::Display, retry: Retry) -> Result<AfterFailure> {
        let settlement = Settlement::FailedRetryable(FailureReport::new(failure), retry);
        let driven = self.settle(settlement)?;
        let now = driven.moment.now;
        let record = accepted(driven.only())?;
        if let Some(unknown) = UnknownOutcome::of(&record) {
            return Ok(AfterFailure::StillUnknown(unknown));
        }
        match RetryLater::of(&record, now) {
            Some(later) => Ok(AfterFailure::RetryLater(later)),
            None => replay_of(*record).map(AfterFailure::Exhausted),
        }
    }

    /// Nobody can tell whether the effect happened: a timeout, a lost connection. It does not run again until somebody
    /// found out.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.give_up("no answer in 30 s")?;
    /// assert!(matches!(store.begin(&operation)?, Begin::Unknown(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn give_up(&self, failure: impl fmt::Display) -> Result<UnknownOutcome> {
        let driven = self.settle(Settlement::GaveUp(FailureReport::new(failure)))?;
        let record = accepted(driven.only())?;
        UnknownOutcome::of(&record).ok_or_else(|| odd_answer("an outcome that is known after giving up"))
    }

    /// The effect was not started after all: the next caller may run at once, also at the attempt limit. The attempt
    /// stays counted. Where this attempt re-sends an earlier one, that one's outcome is as unknown as before.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.release()?;
    /// assert!(matches!(store.begin(&operation)?, Begin::Execute(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn release(&self) -> Result<()> {
        self.settle(Settlement::Released).map(drop)
    }

    /// Settles this claim and begins another operation in one commit: half the commits of a queue loop.
    ///
    /// If the settlement is refused, nothing is begun. The next operation's `wait` and nonce are not used.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost), [`AlreadySettled`](ErrorKind::AlreadySettled),
    /// [`InvalidInput`](ErrorKind::InvalidInput).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Settlement, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = |key| OperationKey::new("t", "o", key).map(|key| Operation::new(key, Fingerprint::unchecked()));
    /// let Begin::Execute(first) = store.begin(&operation("1")?)? else { unreachable!() };
    /// let next = first.settle_and_begin(Settlement::Succeeded("done".into()), &operation("2")?)?;
    /// let Begin::Execute(second) = next else { unreachable!() };
    /// second.succeed_raw("done")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn settle_and_begin(&self, settlement: Settlement, next: &Operation) -> Result<Begin> {
        let step = self.core.step(Event::Settle(self.core.token(), self.admitted(settlement)));
        let begin = self.core.store.drive_begin(vec![step], next);
        let begin = self.core.heard(begin)?;
        self.core.over();
        Ok(begin)
    }

    fn settle_for_good(&self, settlement: Settlement) -> Result<Replay> {
        let record = accepted(self.settle(settlement)?.only())?;
        replay_of(*record)
    }

    fn settle(&self, settlement: Settlement) -> Result<Driven> {
        let driven = self.core.write(Event::Settle(self.core.token(), self.admitted(settlement)))?;
        self.core.over();
        Ok(driven)
    }

    /// A settlement as it may be stored.
    fn admitted(&self, settlement: Settlement) -> Settle {
        let policy = self.core.policy.response;
        let bytes_max = self.core.store.response_bytes_max();
        let reference = self.core.reference.lock().clone();
        match settlement {
            Settlement::Succeeded(response) => {
                Settle::Succeeded { response: response.admitted(policy, bytes_max), reference }
            }
            Settlement::FailedTerminal(failure) => {
                Settle::FailedTerminal { failure: failure.admitted(policy, bytes_max), reference }
            }
            Settlement::FailedRetryable(failure, retry) => {
                Settle::FailedRetryable { failure: failure.admitted(policy, bytes_max), retry }
            }
            Settlement::GaveUp(failure) => Settle::GaveUp { failure: failure.admitted(policy, bytes_max), reference },
            Settlement::Released => Settle::Released,
        }
    }

    /// The same claim on another open of the same store.
    pub(super) fn moved_to(self, store: &Store, record: &Record) -> Result<Self> {
        if record.token() != self.core.token() || record.head.identity != self.core.identity {
            return Err(Error::new(ErrorKind::LeaseLost, "another attempt was granted since"));
        }
        // The old store is of no more use to it, so its drop must not give anything up there.
        self.core.over();
        let core = Core {
            store: store.clone(),
            hold: self.core.hold.clone(),
            identity: self.core.identity.clone(),
            policy: self.core.policy,
            generation: self.core.generation,
            grant: self.core.grant,
            checkpoint: self.core.checkpoint.clone(),
            reference: Mutex::new(self.core.reference.lock().clone()),
            is_over: Arc::default(),
        };
        Ok(Self { core })
    }

    /// The step that settles it as part of a greater commit, and what has to be told once that is through.
    pub(crate) fn settled_by(&self, store: &Store, settlement: Settlement) -> Result<(Step, Ended)> {
        if !store.is(&self.core.store) {
            return Err(Error::invalid_input("the claim is of another store"));
        }
        let step = self.core.step(Event::Settle(self.core.token(), self.admitted(settlement)));
        Ok((step, Ended { hold: self.core.hold.clone(), is_over: self.core.is_over.clone() }))
    }
}

#[cfg(feature = "json")]
pub(crate) fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| {
        Error::new(ErrorKind::Response, format!("the response cannot be written as JSON: {error}")).with_source(error)
    })
}

fn accepted(answer: Answer) -> Result<Box<Record>> {
    match answer {
        Answer::Accepted(record) => Ok(record),
        _ => Err(odd_answer("a settlement that was neither accepted nor refused")),
    }
}

pub(crate) fn replay_of(record: Record) -> Result<Replay> {
    Replay::of(record).ok_or_else(|| Error::new(ErrorKind::Refused, "the response's retention has ended already"))
}

/// Only a defect of this crate can cause it; callers get an error all the same.
pub(crate) fn odd_answer(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("the machine gave {what}: please report this as a defect"))
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("key", self.key()).field("attempt", &self.attempt()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("key", &self.core.identity.key).finish_non_exhaustive()
    }
}
