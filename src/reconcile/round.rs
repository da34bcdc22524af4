//! One round: finds what is unknown and due, asks, and records what was said.
//!
//! No transaction is open while a probe runs. A reconciler that dies meanwhile leaves a lease, after which the next one
//! asks; its probe was counted when it was let through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::probe::{Finding, Inquiry, Reconcile, Subject};
use super::reconciler::{Plan, ReconcileReport, Reconciled};
use super::verdict::Verdict;
use crate::engine::{Post, text_of_panic};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{Answer, Event};
use crate::machine::key::Identity;
use crate::machine::limits::REASON_BYTES_MAX;
use crate::machine::record::{Decision, Record, RecordId, Ruling, State, Status, Witness};
use crate::machine::time::Timestamp;
use crate::operation::as_of;
use crate::storage::batch::{Step, Target};
use crate::storage::snapshot::Visit;

/// Unsettled rows looked at in one read transaction: one that lives on makes the file grow.
const SCAN_ROWS_MAX: usize = 10_000;
/// Who is asked about what.
pub(super) trait Asks {
    fn admits(&self, identity: &Identity) -> bool;
    fn ask(&mut self, inquiry: &Inquiry) -> Option<Finding>;
}

/// One closure about everything.
pub(super) struct Hand<P>(pub(super) P);

impl<F: Into<Finding>, P: FnMut(&Inquiry) -> F> Asks for Hand<P> {
    fn admits(&self, _: &Identity) -> bool {
        true
    }

    fn ask(&mut self, inquiry: &Inquiry) -> Option<Finding> {
        Some((self.0)(inquiry).into())
    }
}

pub(super) struct Registered<'a>(pub(super) &'a [(Subject, Arc<dyn Reconcile>)]);

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
pub(super) struct Round<'a, A> {
    post: &'a Post,
    plan: &'a Plan,
    asks: &'a mut A,
    stopped: &'a AtomicBool,
    report: ReconcileReport,
}

impl<'a, A: Asks> Round<'a, A> {
    pub(super) fn new(post: &'a Post, plan: &'a Plan, stopped: &'a AtomicBool, asks: &'a mut A) -> Self {
        Self { post, plan, asks, stopped, report: ReconcileReport::default() }
    }

    /// All that is due is found before the first is asked: what is asked again in this round was due twice in it.
    pub(super) fn run(mut self, limit: usize) -> Result<ReconcileReport> {
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

    /// Asks about one operation, if it is due.
    pub(super) fn run_for(mut self, identity: &Identity) -> Result<ReconcileReport> {
        let now = self.post.moment().now;
        if let Some(record) = self.post.read(|snapshot| snapshot.find(identity))?
            && self.concerns(record.clone(), now)
        {
            self.ask(&record)?;
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
