//! Runs as people and programs see them. What is shown is never better than what is true.

use std::collections::HashMap;

use crate::error::Result;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, Kind, RunKey, StepKey};
use crate::machine::record::{Ended, Record, RecordId, State, Status};
use crate::machine::response::Response;
use crate::machine::time::Timestamp;
use crate::machine::workflow::{Course, OpenRun, RunStatus};
use crate::operation::{OperationView, as_of, view};
use crate::storage::snapshot::{Snapshot, Visit};
use crate::store::Store;

/// Runs and steps one page of a list may look at, so that a filter that matches nothing cannot walk a whole store in one
/// call.
const SCAN_ROWS_MAX: usize = 20_000;
/// Runs in one page.
const PAGE_RUNS_MAX: usize = 1000;

/// Where a run stands, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSummary {
    /// The key.
    pub key: RunKey,
    /// What the run and its steps come to.
    pub status: RunStatus,
    /// When its first step was taken.
    pub created_at: Timestamp,
    /// When it was over.
    pub settled_at: Option<Timestamp>,
    /// Steps that were ever taken.
    pub steps: u64,
    /// Those of them that succeeded.
    pub steps_succeeded: u64,
    /// The step or compensation whose outcome is unknown, the one that has been for longest, and since when.
    pub blocked_by: Option<(Identity, Timestamp)>,
}

/// A run with its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunView {
    /// Where it stands.
    pub summary: RunSummary,
    /// Until when it answers repeats, if it is over.
    pub expires_at: Option<Timestamp>,
    /// By which definition it is worked on, while it is not over.
    pub definition: Option<Fingerprint>,
    /// Since when it is being compensated.
    pub turned_back_at: Option<Timestamp>,
    /// Its result, if it ended well.
    pub response: Option<Response>,
    /// Why it failed or turned back.
    pub failure: Option<String>,
    /// Every step, in the order in which they were first begun.
    pub steps: Vec<StepView>,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepView {
    /// Its name within the run.
    pub step: StepKey,
    /// Its record, with its compensation. Values are left out, for a run may have many: get them with
    /// [`Store::get`](crate::Store::get).
    pub operation: OperationView,
    /// What is wrong with the file that it left, if it left one: it is missing, or another.
    pub artifact_trouble: Option<String>,
}

/// Which runs to list.
///
/// # Example
/// ```
/// use dupeproof::{RunFilter, RunStatus};
/// let filter = RunFilter::new().with_status(RunStatus::BlockedUnknown).with_tenant("acme");
/// # let _ = filter;
/// ```
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    status: Option<RunStatus>,
    tenant: Option<String>,
    workflow: Option<String>,
}

impl RunFilter {
    /// All runs.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{RunFilter, RunPage};
    /// assert!(store.list_runs(&RunFilter::new(), &RunPage::first(100))?.runs.is_empty());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those of this status, as it is now.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{RunFilter, RunStatus};
    /// let filter = RunFilter::new().with_status(RunStatus::CompensationUnknown);
    /// # let _ = filter;
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: RunStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Only this tenant's.
    ///
    /// # Example
    /// ```
    /// let filter = dupeproof::RunFilter::new().with_tenant("acme");
    /// # let _ = filter;
    /// ```
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Only those of this workflow.
    ///
    /// # Example
    /// ```
    /// let filter = dupeproof::RunFilter::new().with_workflow("publish");
    /// # let _ = filter;
    /// ```
    #[must_use]
    pub fn with_workflow(mut self, workflow: impl Into<String>) -> Self {
        self.workflow = Some(workflow.into());
        self
    }

    fn admits_key(&self, key: &Identity) -> bool {
        self.tenant.as_deref().is_none_or(|tenant| key.tenant() == tenant)
            && self.workflow.as_deref().is_none_or(|workflow| key.name() == workflow)
    }
}

/// Where a list goes on.
///
/// # Example
/// ```
/// let page = dupeproof::RunPage::first(100);
/// # let _ = page;
/// ```
#[derive(Debug, Clone)]
pub struct RunPage {
    runs_max: usize,
    after: Option<Identity>,
}

impl RunPage {
    /// The first page, with so many runs at most: 1 to 1,000.
    ///
    /// # Example
    /// ```
    /// let page = dupeproof::RunPage::first(100);
    /// # let _ = page;
    /// ```
    pub fn first(runs_max: usize) -> Self {
        Self { runs_max: runs_max.clamp(1, PAGE_RUNS_MAX), after: None }
    }
}

/// A page of runs, in the order of tenant, workflow and key.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunListing {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// Where to go on. A page may be empty and have a next one: each looks at 20,000 runs and steps at most.
    pub next: Option<RunPage>,
}

impl Store {
    /// A run with every step, as of now; nothing if no step of it was ever taken, or it is forgotten.
    ///
    /// Files that steps refer to are looked for, not read.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed), [`Damaged`](crate::ErrorKind::Damaged).
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Fingerprint, RunEntry, RunKey, RunStatus};
    /// # let store = dupeproof::Store::in_memory()?;
    /// let RunEntry::Run(run) = store.workflow("acme", "publish")?.run("post-17", Fingerprint::unchecked())? else { panic!() };
    /// run.step_with_raw("upload", Fingerprint::unchecked(), |_claim| Ok("page 4".into()))?;
    /// let view = store.get_run(&RunKey::new("acme", "publish", "post-17")?)?.unwrap();
    /// assert_eq!((view.summary.status, view.steps.len()), (RunStatus::Running, 1));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn get_run(&self, key: &RunKey) -> Result<Option<RunView>> {
        let now = self.engine().moment().now;
        let view = self.engine().read(|snapshot| {
            let run = snapshot.find(&Identity::run(key))?.and_then(|record| as_of(record, now));
            run.map(|run| shown(snapshot, run, now)).transpose()
        })?;
        Ok(view.map(|mut view| {
            for step in &mut view.steps {
                if let Some(Response::Artifact(artifact)) = &step.operation.response {
                    step.artifact_trouble = artifact.look().err().map(|error| error.to_string());
                }
            }
            view
        }))
    }

    /// A page of runs.
    ///
    /// # Errors
    /// Those of [`get_run`](Self::get_run).
    ///
    /// # Example
    /// ```
    /// use dupeproof::{RunFilter, RunPage, RunStatus};
    /// # let store = dupeproof::Store::in_memory()?;
    /// let blocked = RunFilter::new().with_status(RunStatus::BlockedUnknown);
    /// for run in store.list_runs(&blocked, &RunPage::first(100))?.runs {
    ///     println!("{:?} waits for {:?}", run.key, run.blocked_by);
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn list_runs(&self, filter: &RunFilter, page: &RunPage) -> Result<RunListing> {
        let now = self.engine().moment().now;
        let mut listing = RunListing { runs: Vec::new(), next: None };
        let mut looked_at = 0_usize;
        self.engine().read(|snapshot| {
            snapshot.scan(Kind::Run, page.after.as_ref(), |record| {
                looked_at += 1;
                let after = record.head.identity.clone();
                if filter.admits_key(&after)
                    && let Some(run) = as_of(record, now)
                {
                    let summary = Counted::of(snapshot, &run, now, |_, _| ())?.summary(&run);
                    looked_at = looked_at.saturating_add(usize::try_from(summary.steps).unwrap_or(usize::MAX));
                    if filter.status.is_none_or(|status| status == summary.status) {
                        listing.runs.push(summary);
                    }
                }
                if listing.runs.len() == page.runs_max || looked_at >= SCAN_ROWS_MAX {
                    listing.next = Some(RunPage { runs_max: page.runs_max, after: Some(after) });
                    return Ok(Visit::Stop);
                }
                Ok(Visit::Next)
            })
        })?;
        Ok(listing)
    }
}

/// What the steps of a run come to.
#[derive(Default)]
struct Counted {
    /// The statuses of steps, and of their compensations.
    statuses: Vec<(Status, Option<Status>)>,
    blocked_by: Option<(Identity, Timestamp)>,
}

impl Counted {
    fn of(snapshot: &Snapshot, run: &Record, now: Timestamp, mut each: impl FnMut(usize, Record)) -> Result<Self> {
        let mut counted = Self::default();
        let mut places = HashMap::new();
        if matches!(run.state, State::Tombstone { .. }) {
            return Ok(counted);
        }
        snapshot.scan_members(run, now, |record| {
            let status = record.status();
            if let State::Unknown(unresolved) = &record.state
                && counted.blocked_by.as_ref().is_none_or(|(_, since)| unresolved.since < *since)
            {
                counted.blocked_by = Some((record.head.identity.clone(), unresolved.since));
            }
            let Some(step) = record.head.identity.step_key() else { return Ok(Visit::Next) };
            if record.head.identity.kind() == Kind::Step {
                places.insert(step.clone(), counted.statuses.len());
                counted.statuses.push((status, None));
                each(counted.statuses.len() - 1, record);
            } else if let Some(place) = places.get(step) {
                counted.statuses[*place].1 = Some(status);
                each(*place, record);
            }
            Ok(Visit::Next)
        })?;
        Ok(counted)
    }

    fn summary(self, run: &Record) -> RunSummary {
        let settled_at = match &run.state {
            State::Succeeded { terms, .. } | State::FailedTerminal { terms, .. } | State::Tombstone { terms, .. } => {
                Some(terms.settled_at)
            }
            _ => None,
        };
        let succeeded = self.statuses.iter().filter(|(status, _)| *status == Status::Succeeded).count();
        RunSummary {
            key: RunKey::of(&run.head.identity),
            status: RunStatus::of(&run.state, self.statuses.iter().copied()),
            created_at: run.head.created_at,
            settled_at,
            steps: self.statuses.len() as u64,
            steps_succeeded: succeeded as u64,
            blocked_by: self.blocked_by,
        }
    }
}

fn shown(snapshot: &Snapshot, run: Record, now: Timestamp) -> Result<RunView> {
    let mut steps: Vec<(RecordId, StepView)> = Vec::new();
    let counted = Counted::of(snapshot, &run, now, |place, record| {
        let id = record.head.id;
        let mut operation = view(record);
        operation.response = operation.response.filter(|response| response.bytes().is_none());
        match (steps.get_mut(place), operation.identity.step_key().cloned()) {
            (Some((_, step)), _) => step.operation.compensation = Some(operation.into()),
            (None, Some(step)) => steps.push((id, StepView { step, operation, artifact_trouble: None })),
            (None, None) => {}
        }
    })?;
    steps.sort_unstable_by_key(|(id, _)| *id);
    let mut view = RunView {
        summary: counted.summary(&run),
        expires_at: None,
        definition: None,
        turned_back_at: None,
        response: None,
        failure: None,
        steps: steps.into_iter().map(|(_, step)| step).collect(),
    };
    match run.state {
        State::Open(OpenRun { definition, course, .. }) => {
            view.definition = definition;
            if let Course::Backward { since, why } = course {
                view.turned_back_at = Some(since);
                view.failure = Some(why.message().to_owned());
            }
        }
        State::Succeeded { response, terms } => {
            view.response = Some(response);
            view.expires_at = Some(terms.expires_at);
        }
        State::FailedTerminal { failure, terms, .. } => {
            view.failure = Some(failure.message().to_owned());
            view.expires_at = Some(terms.expires_at);
        }
        State::Tombstone { ended, terms } => {
            view.failure = (ended == Ended::FailedTerminal).then(|| "it failed; the reason is forgotten".to_owned());
            view.expires_at = Some(terms.purge_at);
        }
        // A run is none of these.
        State::Reserved(_) | State::Executing(_) | State::FailedRetryable(_) | State::Unknown(_) => {}
    }
    Ok(view)
}
