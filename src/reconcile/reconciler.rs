//! The service: finds what is unknown and due, asks its probe under a lease, and records what it said.
//!
//! No transaction is open while a probe runs. A reconciler that dies meanwhile leaves a lease, after which the next one
//! asks; its probe was counted when it was let through.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::probe::{Finding, Inquiry, Reconcile, Subject};
use super::verdict::Verdict;
use crate::engine::{Post, Running, text_of_panic};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{Answer, Event, ProbeTerms};
use crate::machine::key::{Identity, part};
use crate::machine::limits::{
    DECIDER_BYTES_MAX, MAX_EXECUTION_MAX, NAME_BYTES_MAX, PROBE_LEASE_DEFAULT, PROBES_DEFAULT, REASON_BYTES_MAX,
};
use crate::machine::policy::{Backoff, Policy};
use crate::machine::record::{Decision, Record, RecordId, Ruling, State, Status, Witness};
use crate::machine::response::{Response, bounded_text};
use crate::machine::time::{Span, Timestamp};
use crate::operation::{Claim, Failure, Outcome, as_of};
use crate::storage::batch::{Step, Target};
use crate::storage::snapshot::Visit;
use crate::store::Store;

/// Unsettled rows looked at in one read transaction: one that lives on makes the file grow.
const SCAN_ROWS_MAX: usize = 10_000;
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
struct Plan {
    probes: Vec<(Subject, Arc<dyn Reconcile>)>,
    observer: Option<Arc<dyn Fn(&Reconciled) + Send + Sync>>,
    tenant: Option<String>,
    name: String,
    interval: Duration,
    terms: ProbeTerms,
    response_bytes_max: usize,
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
        let (post, never) = (self.engine().post(), AtomicBool::new(false));
        let plan = self.reconciler().plan;
        let probe = &mut Hand(probe);
        Round { post: &post, plan: &plan, asks: probe, stopped: &never, report: ReconcileReport::default() }.run(limit)
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
        operation: &crate::operation::Operation,
        effect: impl FnOnce(&Claim) -> std::result::Result<Response, Failure>,
        probe: impl FnMut(&Inquiry) -> F,
    ) -> Result<Outcome<Vec<u8>>> {
        operation.check()?;
        self.reconciler().about(operation.key(), probe)?;
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
    /// longer wait with [`Verdict::StillUnknown`] gets it.
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
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a setting out of bounds; those of the commits: what was found out
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
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a setting out of bounds, or if 256 relays and reconcilers run
    /// already; [`Closed`](ErrorKind::Closed); [`Io`](ErrorKind::Io) if the thread cannot be started.
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

    /// Asks about one operation, if its outcome is unknown, whether or not it is due.
    fn about<F: Into<Finding>>(self, key: impl Into<Identity>, probe: impl FnMut(&Inquiry) -> F) -> Result<()> {
        let identity = key.into();
        let (post, plan, never) = (self.store.engine().post(), self.early().plan, AtomicBool::new(false));
        let now = post.moment().now;
        let found = post.read(|snapshot| snapshot.find(&identity))?.and_then(|record| as_of(record, now));
        let Some(record) = found.filter(|record| record.status() == Status::Unknown) else { return Ok(()) };
        let probe = &mut Hand(probe);
        let mut round =
            Round { post: &post, plan: &plan, asks: probe, stopped: &never, report: ReconcileReport::default() };
        round.ask(&record)
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
        let asks = &mut Registered(&self.probes);
        Round { post, plan: self, asks, stopped, report: ReconcileReport::default() }.run(limit)
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

/// Who is asked about what.
trait Asks {
    fn admits(&self, identity: &Identity) -> bool;
    fn ask(&mut self, inquiry: &Inquiry) -> Option<Finding>;
}

/// One closure about everything.
struct Hand<P>(P);

impl<F: Into<Finding>, P: FnMut(&Inquiry) -> F> Asks for Hand<P> {
    fn admits(&self, _: &Identity) -> bool {
        true
    }

    fn ask(&mut self, inquiry: &Inquiry) -> Option<Finding> {
        Some((self.0)(inquiry).into())
    }
}

struct Registered<'a>(&'a [(Subject, Arc<dyn Reconcile>)]);

impl Registered<'_> {
    fn of(&self, identity: &Identity) -> Option<&Arc<dyn Reconcile>> {
        self.0.iter().find(|(subject, _)| subject.admits(identity)).map(|(_, probe)| probe)
    }
}

impl Asks for Registered<'_> {
    fn admits(&self, identity: &Identity) -> bool {
        self.of(identity).is_some()
    }

    fn ask(&mut self, inquiry: &Inquiry) -> Option<Finding> {
        let looked_up = self.of(inquiry.identity())?.look_up(inquiry);
        Some(looked_up.unwrap_or_else(|error| Finding::still_unknown().because(format!("the probe failed: {error}"))))
    }
}

/// One round at work.
struct Round<'a, A> {
    post: &'a Post,
    plan: &'a Plan,
    asks: &'a mut A,
    stopped: &'a AtomicBool,
    report: ReconcileReport,
}

impl<A: Asks> Round<'_, A> {
    /// All that is due is found before the first is asked: what is asked again in this round was due twice in it.
    fn run(mut self, limit: usize) -> Result<ReconcileReport> {
        let due = self.due(limit)?;
        for id in due {
            if self.stopped.load(Ordering::Acquire) || self.post.is_closing() {
                self.report.more = true;
                break;
            }
            let now = self.post.moment().now;
            let record = self.post.read(|snapshot| snapshot.read(id))?.and_then(|record| as_of(record, now));
            if let Some(record) = record {
                self.ask(&record)?;
            }
        }
        Ok(self.report)
    }

    fn due(&mut self, limit: usize) -> Result<Vec<RecordId>> {
        let mut due = Vec::new();
        let mut after = None;
        loop {
            let from = after.take();
            let (now, mut looked_at) = (self.post.moment().now, 0);
            self.post.read(|snapshot| {
                snapshot.scan_unsettled(from, |id, row| {
                    looked_at += 1;
                    let may_be_due = match row.status {
                        Status::Unknown => row.due <= now || self.plan.terms.early && row.due != Timestamp::FOREVER,
                        Status::Executing => row.due <= now,
                        _ => false,
                    };
                    if may_be_due {
                        match snapshot.read(id) {
                            Ok(record) => {
                                due.extend(record.filter(|record| self.concerns(record.clone(), now)).map(|_| id));
                            }
                            // One row that nobody can read must not keep the others from being asked about.
                            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NewerFormat) => {
                                self.report.unreadable += 1;
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    if due.len() > limit {
                        return Ok(Visit::Stop);
                    }
                    if looked_at == SCAN_ROWS_MAX {
                        after = Some(id);
                        return Ok(Visit::Stop);
                    }
                    Ok(Visit::Next)
                })
            })?;
            if after.is_none() {
                self.report.more = due.len() > limit;
                due.truncate(limit);
                return Ok(due);
            }
        }
    }

    fn concerns(&self, record: Record, now: Timestamp) -> bool {
        let is_theirs = |identity: &Identity| {
            self.plan.tenant.as_deref().is_none_or(|tenant| tenant == identity.tenant()) && self.asks.admits(identity)
        };
        as_of(record, now).is_some_and(|record| match &record.state {
            State::Unknown(unresolved) => {
                let is_due = unresolved.inquiry.due() <= now || self.plan.terms.early;
                is_due && !record.waits_for_person() && is_theirs(&record.head.identity)
            }
            _ => false,
        })
    }

    fn ask(&mut self, record: &Record) -> Result<()> {
        let identity = &record.head.identity;
        let probe = Event::Probe(self.plan.terms);
        let record = match self.tell(record.head.id, probe)? {
            Some(Answer::Probing(record)) => *record,
            Some(Answer::Accepted(_)) => {
                self.report.for_person += 1;
                self.became(identity, record.head.attempt, None, true);
                return Ok(());
            }
            None | Some(_) => return self.was_overtaken(identity, record.head.attempt),
        };
        let Some(inquiry) = Inquiry::of(record) else {
            return Err(Error::new(ErrorKind::Damaged, "a probe was let through to what is not unknown"));
        };
        self.report.asked += 1;
        let finding = catch_unwind(AssertUnwindSafe(|| self.asks.ask(&inquiry))).unwrap_or_else(|panic| {
            Some(Finding::still_unknown().because(format!("the probe panicked: {}", text_of_panic(&*panic))))
        });
        let Finding { verdict, reason } = finding.unwrap_or_else(Finding::still_unknown);
        self.record(&inquiry, verdict, reason)
    }

    /// Records what a probe found.
    fn record(&mut self, inquiry: &Inquiry, verdict: Verdict, reason: Option<String>) -> Result<()> {
        let bytes_max = self.plan.response_bytes_max;
        // What cannot be recorded must not be lost: the outcome stays unknown, and the history says why.
        let (verdict, reason) = match verdict.admitted(bytes_max) {
            Ok(verdict) => (verdict, reason),
            Err(error) => {
                let unknown = Verdict::StillUnknown { next: Duration::ZERO }.admitted(bytes_max)?;
                (unknown, Some(format!("the probe's finding cannot be recorded: {error}")))
            }
        };
        let ruling = verdict.ruling();
        let decision = Decision {
            at: Timestamp::from_unix_millis(0),
            witness: Witness::Probe,
            by: self.plan.name.as_str().into(),
            reason: reason_of(reason.as_deref()).into(),
            ruling,
            attempt: 0,
        };
        let resolve = Event::Resolve(verdict, decision, inquiry.about(self.plan.terms));
        let (identity, attempt) = (inquiry.identity(), inquiry.unknown().attempt());
        let Some(Answer::Accepted(now)) = self.resolve(identity, resolve)? else {
            return self.was_overtaken(identity, attempt);
        };
        match ruling {
            Ruling::Happened => self.report.happened += 1,
            Ruling::FailedForGood => self.report.failed_for_good += 1,
            Ruling::DidNotHappen => self.report.did_not_happen += 1,
            Ruling::StillUnknown => self.report.still_unknown += 1,
        }
        let waits_for_person = now.waits_for_person();
        self.report.for_person += u64::from(waits_for_person);
        self.became(identity, attempt, Some(ruling), waits_for_person);
        Ok(())
    }

    fn tell(&self, id: RecordId, event: Event) -> Result<Option<Answer>> {
        self.told(Step { target: Target::Id(id), event })
    }

    fn resolve(&self, identity: &Identity, event: Event) -> Result<Option<Answer>> {
        self.told(Step { target: Target::Key(identity.clone()), event })
    }

    /// Nothing if the machine refused, because somebody else was quicker.
    fn told(&self, step: Step) -> Result<Option<Answer>> {
        match self.post.drive(vec![step]) {
            Ok(driven) => Ok(Some(driven.only())),
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn was_overtaken(&mut self, identity: &Identity, attempt: u32) -> Result<()> {
        self.report.overtaken += 1;
        self.became(identity, attempt, None, false);
        Ok(())
    }

    fn became(&self, identity: &Identity, attempt: u32, ruling: Option<Ruling>, waits_for_person: bool) {
        if let Some(observer) = &self.plan.observer {
            observer(&Reconciled { identity: identity.clone(), attempt, ruling, waits_for_person });
        }
    }
}

/// A reason as it may be stored: never empty, and cut where it is too long.
fn reason_of(said: Option<&str>) -> &str {
    let said = said.map(str::trim).filter(|said| !said.is_empty()).unwrap_or("asked the provider");
    said.get(..said.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or(said)
}
