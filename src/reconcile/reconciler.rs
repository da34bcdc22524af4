//! The service: who is asked about what, on which terms, by hand or in a thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::probe::{Finding, Inquiry, Reconcile, Subject};
use super::round::{Hand, Registered, Round};
use crate::engine::{Post, Running};
use crate::error::{Error, Result};
use crate::machine::event::ProbeTerms;
use crate::machine::key::{Identity, part};
use crate::machine::limits::{
    DECIDER_BYTES_MAX, MAX_EXECUTION_MAX, NAME_BYTES_MAX, PROBE_LEASE_DEFAULT, PROBES_DEFAULT,
};
use crate::machine::policy::{Backoff, Policy};
use crate::machine::record::Ruling;
use crate::machine::response::{Response, bounded_text};
use crate::machine::time::Span;
use crate::operation::{Claim, Failure, Operation, Outcome};
use crate::store::Store;

/// Outcomes a reconciler in a thread asks about before it looks for what is due again.
const ROUND_MAX: usize = 100;
/// Probes one reconciler knows: subjects are kinds of operations, not operations.
const SUBJECTS_MAX: usize = 1000;
/// How often a reconciler in a thread looks for what is due unless it is told otherwise. An unknown outcome has waited
/// for a lease to end before.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// Nobody's second probe about one outcome comes sooner, and a probe that goes on failing comes hourly.
const BACKOFF_BASE: Duration = Duration::from_secs(10);
const BACKOFF_CAP: Duration = Duration::from_secs(3600);
/// Who asked, in the record, unless the reconciler says otherwise.
const NAME_DEFAULT: &str = "reconciler";

/// Is told of every outcome that was asked about.
type Observer = Arc<dyn Fn(&Reconciled) + Send + Sync>;

/// Asks the providers about unknown outcomes: see [`Store::reconciler`].
///
/// # Example
/// ```
/// use dupeproof::{Begin, Finding, Fingerprint, Operation, OperationKey, Store};
/// let store = Store::in_memory()?;
/// let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
/// let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
/// claim.give_up("the connection was lost")?;
///
/// let reconciler = store.reconciler().with_probe("charge", |inquiry: &dupeproof::Inquiry| {
///     // GET https://api.example/charges?idempotency_key=…
///     Ok(Finding::happened("receipt 17").because(format!("{} is in the ledger", inquiry.downstream_key())))
/// });
/// let report = reconciler.run_once(100)?;
/// assert_eq!((report.asked, report.happened), (1, 1));
/// assert!(matches!(store.begin(&operation)?, Begin::Replay(_)));
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Reconciler {
    store: Store,
    plan: Plan,
}

#[derive(Clone)]
pub(super) struct Plan {
    probes: Vec<(Subject, Arc<dyn Reconcile>)>,
    pub(super) observer: Option<Observer>,
    pub(super) tenant: Option<String>,
    pub(super) name: String,
    interval: Duration,
    pub(super) terms: ProbeTerms,
    pub(super) response_bytes_max: usize,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subjects: Vec<_> = self.probes.iter().map(|(subject, _)| subject).collect();
        f.debug_struct("Plan").field("subjects", &subjects).field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// What one round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReconcileReport {
    /// Probes asked.
    pub asked: u64,
    /// Effects found to have happened.
    pub happened: u64,
    /// Effects found not to have happened, that will not be tried again.
    pub failed_for_good: u64,
    /// Effects found not to have happened: one more attempt may run.
    pub did_not_happen: u64,
    /// Probes that found nothing out.
    pub still_unknown: u64,
    /// Outcomes that wait for a person from now on.
    pub for_person: u64,
    /// Outcomes that somebody else asked about or decided at the same time, so that this probe was not asked, or its
    /// word not needed.
    pub overtaken: u64,
    /// Rows that could not be read and were left alone. Run `verify`.
    pub unreadable: u64,
    /// Whether more is due.
    pub more: bool,
}

/// What became of one unknown outcome in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconciled {
    /// Which operation it is.
    pub identity: Identity,
    /// The attempt whose outcome was unknown.
    pub attempt: u32,
    /// What was found out; nothing if somebody else was quicker, or nobody may ask any more.
    pub ruling: Option<Ruling>,
    /// Whether it waits for a person now.
    pub waits_for_person: bool,
}

impl Store {
    /// A reconciler without probes: give it one for each kind of operation with [`Reconciler::with_probe`].
    ///
    /// # Example
    /// See [`Reconciler`].
    pub fn reconciler(&self) -> Reconciler {
        let terms = ProbeTerms {
            lease: PROBE_LEASE_DEFAULT,
            probes_max: PROBES_DEFAULT,
            backoff: Backoff::exponential(BACKOFF_BASE, BACKOFF_CAP),
            early: false,
        };
        let plan = Plan {
            probes: Vec::new(),
            observer: None,
            tenant: None,
            name: NAME_DEFAULT.to_owned(),
            interval: INTERVAL_DEFAULT,
            terms,
            response_bytes_max: self.response_bytes_max(),
        };
        Reconciler { store: self.clone(), plan }
    }

    /// Asks one probe about every unknown outcome that is due, at most `limit`, whatever it is of. The terms are those of
    /// [`reconciler`](Self::reconciler).
    ///
    /// # Errors
    /// As for [`Reconciler::run_once`].
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store, Verdict};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.give_up("connection lost")?;
    /// let report = store.reconcile(100, |_inquiry| Verdict::DidNotHappen)?;
    /// assert_eq!(report.did_not_happen, 1);
    /// assert!(matches!(store.begin(&operation)?, Begin::Execute(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn reconcile<F: Into<Finding>>(
        &self,
        limit: usize,
        probe: impl FnMut(&Inquiry) -> F,
    ) -> Result<ReconcileReport> {
        let (post, plan) = (self.engine().post(), self.reconciler().plan);
        Round::new(&post, &plan, &AtomicBool::new(false), &mut Hand(probe)).run(limit)
    }

    /// Like [`run_raw`](Self::run_raw), but when the outcome of an earlier attempt is unknown, the probe is asked first,
    /// at once and under a lease. Only if it finds that the effect did not happen does the effect run.
    ///
    /// # Errors
    /// As for [`run_raw`](Self::run_raw).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Finding, Fingerprint, Operation, OperationKey, Outcome, Response, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// # claim.give_up("connection lost")?;
    /// let charge = |_claim: &dupeproof::Claim| Ok(Response::from("receipt 17"));
    /// let outcome = store.run_or_reconcile(&operation, charge, |_inquiry| Finding::happened("receipt 16"))?;
    /// assert!(matches!(outcome, Outcome::Succeeded(receipt) if receipt == b"receipt 16"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn run_or_reconcile<F: Into<Finding>>(
        &self,
        operation: &Operation,
        effect: impl FnOnce(&Claim) -> std::result::Result<Response, Failure>,
        probe: impl FnMut(&Inquiry) -> F,
    ) -> Result<Outcome<Vec<u8>>> {
        operation.check()?;
        let plan = self.reconciler().early().plan;
        Round::new(&self.engine().post(), &plan, &AtomicBool::new(false), &mut Hand(probe))
            .run_for(&operation.key().into())?;
        self.run_raw(operation, effect)
    }
}

impl Reconciler {
    /// Registers the probe for operations of a name, or for another [`Subject`]. What has no probe is not asked about.
    ///
    /// # Example
    /// See [`Reconciler`].
    #[must_use]
    pub fn with_probe(mut self, subject: impl Into<Subject>, probe: impl Reconcile + 'static) -> Self {
        let subject = subject.into();
        self.plan.probes.retain(|(known, _)| *known != subject);
        self.plan.probes.push((subject, Arc::new(probe)));
        self
    }

    /// Only operations of this tenant.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_tenant("acme");
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.plan.tenant = Some(tenant.into());
        self
    }

    /// Who asks, in the record's history; 1–256 bytes.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_name("till 3");
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.plan.name = name.into();
        self
    }

    /// For how long one probe keeps everybody else from asking about the same outcome: 60 seconds unless set. Longer than
    /// the longest probe; if the process dies meanwhile, the outcome waits for so long.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_lease(std::time::Duration::from_secs(300));
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.plan.terms.lease = Span::from_duration(lease);
        self
    }

    /// How many probes one attempt's unknown outcome is worth: 30 unless set. After the last one it waits for a person,
    /// and nobody asks any more.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_probes_max(5);
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_probes_max(mut self, probes: u32) -> Self {
        self.plan.terms.probes_max = probes;
        self
    }

    /// How long to wait after a probe that found nothing: from 10 seconds to an hour unless set. A probe that asks for a
    /// longer wait with [`Verdict::StillUnknown`](crate::Verdict::StillUnknown) gets it.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::Backoff;
    /// use std::time::Duration;
    /// let backoff = Backoff::exponential(Duration::from_secs(60), Duration::from_secs(86_400));
    /// let reconciler = store.reconciler().with_backoff(backoff);
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.plan.terms.backoff = backoff;
        self
    }

    /// Asks although the wait after the last probe is not over, as a person wants it who asks by hand.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let report = store.reconciler().early().run_once(100)?;
    /// # let _ = report;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn early(mut self) -> Self {
        self.plan.terms.early = true;
        self
    }

    /// How often [`spawn`](Self::spawn) looks for what is due: every 5 seconds unless set, at least every millisecond.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_interval(std::time::Duration::from_secs(60));
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.plan.interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Is told of every outcome as soon as something became of it: for logs and progress. It runs in the reconciler's
    /// thread, outside any transaction.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_observer(|one| {
    ///     if one.waits_for_person {
    ///         eprintln!("somebody must look at {}", one.identity.key());
    ///     }
    /// });
    /// # let _ = reconciler;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_observer(mut self, observer: impl Fn(&Reconciled) + Send + Sync + 'static) -> Self {
        self.plan.observer = Some(Arc::new(observer));
        self
    }

    /// Asks about what is due now, at most `limit` outcomes, one after the other. Each word is durable before the next
    /// probe is asked. A crash half-way leaves at most one outcome that nobody asks about until the probe's lease ends.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting out of bounds; those of the commits: what was found out
    /// last may not be recorded, and is asked again.
    ///
    /// # Example
    /// See [`Reconciler`].
    pub fn run_once(&self, limit: usize) -> Result<ReconcileReport> {
        self.plan.check()?;
        let (post, never) = (self.store.engine().post(), AtomicBool::new(false));
        self.plan.round(&post, &never, limit)
    }

    /// Does the same in a thread of the store, until it is [stopped](ReconcilerHandle::stop) or the store is closed.
    /// Closing waits for the probe that is being asked.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting out of bounds, or if 256 relays and reconcilers run
    /// already; [`Closed`](crate::ErrorKind::Closed); [`Io`](crate::ErrorKind::Io) if the thread cannot be started.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{Finding, Inquiry};
    /// let reconciler = store.reconciler().with_probe("charge", |_: &Inquiry| Ok(Finding::still_unknown())).spawn()?;
    /// assert!(reconciler.is_running());
    /// reconciler.stop()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn spawn(&self) -> Result<ReconcilerHandle> {
        self.plan.check()?;
        let (post, plan) = (self.store.engine().post(), self.plan.clone());
        let work = move |stopped: &AtomicBool| plan.until_stopped(&post, stopped);
        Ok(ReconcilerHandle(self.store.engine().spawn_helper("reconciler", work)?))
    }

    /// Asks about one operation only, if its outcome is unknown, it has a probe and it is due. Reports as
    /// [`run_once`](Self::run_once) does.
    ///
    /// # Errors
    /// As for [`run_once`](Self::run_once).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Finding, Inquiry, OperationKey};
    /// # let store = dupeproof::Store::in_memory()?;
    /// let reconciler = store.reconciler().with_probe("charge", |_: &Inquiry| Ok(Finding::did_not_happen()));
    /// let report = reconciler.early().run_for(&OperationKey::new("acme", "charge", "i-1")?)?;
    /// assert_eq!(report.asked, 0);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn run_for(&self, key: impl Into<Identity>) -> Result<ReconcileReport> {
        self.plan.check()?;
        let post = self.store.engine().post();
        let asks = &mut Registered(&self.plan.probes);
        Round::new(&post, &self.plan, &AtomicBool::new(false), asks).run_for(&key.into())
    }
}

/// A reconciler that runs in a thread of the store. Dropping it lets the reconciler go on until the store is closed.
#[derive(Debug)]
pub struct ReconcilerHandle(Running);

impl ReconcilerHandle {
    /// Stops the reconciler after the probe that is being asked. Waits for the end of the thread; do not call it from a
    /// probe.
    ///
    /// # Errors
    /// Why the reconciler had ended before, if it had: the store stopped.
    ///
    /// # Example
    /// See [`Reconciler::spawn`].
    pub fn stop(self) -> Result<()> {
        self.0.stop()
    }

    /// Whether it runs: until it is stopped, or the store is closed or stops.
    ///
    /// # Example
    /// See [`Reconciler::spawn`].
    pub fn is_running(&self) -> bool {
        !self.0.has_ended()
    }
}

impl Plan {
    fn check(&self) -> Result<()> {
        let ProbeTerms { lease, probes_max, backoff, .. } = self.terms;
        let max_execution = MAX_EXECUTION_MAX;
        Policy { lease, max_execution, attempts_max: probes_max, backoff, ..Policy::default() }.check()?;
        bounded_text("name", &self.name, DECIDER_BYTES_MAX)?;
        if self.probes.len() > SUBJECTS_MAX {
            let found = self.probes.len();
            return Err(Error::invalid_input(format!("reconciler has {found} probes: 0 to {SUBJECTS_MAX} expected")));
        }
        self.probes.iter().try_for_each(|(subject, _)| part("subject", subject.name(), NAME_BYTES_MAX).map(drop))
    }

    fn round(&self, post: &Post, stopped: &AtomicBool, limit: usize) -> Result<ReconcileReport> {
        Round::new(post, self, stopped, &mut Registered(&self.probes)).run(limit)
    }

    fn until_stopped(&self, post: &Post, stopped: &AtomicBool) -> Result<()> {
        loop {
            let rings = post.rings();
            let more = match self.round(post, stopped, ROUND_MAX) {
                // Who was overtaken by all the others lets them finish.
                Ok(report) => report.more && report.asked > 0,
                // A store that stopped, or another process that was in the way.
                Err(error) => {
                    post.check_health().map_err(|_| error)?;
                    false
                }
            };
            if stopped.load(Ordering::Acquire) || post.is_closing() {
                return Ok(());
            }
            if !more {
                post.wait(rings, self.interval);
            }
        }
    }
}
