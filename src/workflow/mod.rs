//! Work in several steps: each an operation of its own, the run their common name.

mod run;
mod undo;
mod view;

use std::fmt;

use crate::error::Result;
use crate::machine::fingerprint::{Comparison, Fingerprint};
use crate::machine::key::{Identity, RunKey, part};
use crate::machine::limits::NAME_BYTES_MAX;
use crate::machine::policy::{Policy, Retention};
use crate::machine::record::State;
use crate::machine::workflow::{Course, RunIntent};
use crate::operation::{Conflict, Expired, Replay, as_of};
use crate::store::Store;

pub use run::Run;
pub use undo::Undo;
pub use view::{RunFilter, RunListing, RunPage, RunSummary, RunView, StepView};

/// A kind of work in several steps. Got from [`Store::workflow`].
///
/// # Example: a run that is cut off and resumed
/// ```
/// use dupeproof::{Begin, Fingerprint, RunEntry, Store};
/// let store = Store::in_memory()?;
/// let publish = store.workflow("acme", "publish")?;
/// let text = Fingerprint::of_bytes(b"the post");
///
/// # fn work(publish: &dupeproof::Workflow, text: &Fingerprint, dies_after: usize) -> dupeproof::Result<()> {
/// let RunEntry::Run(run) = publish.run("post-17@4", text.clone())? else { panic!("it is over") };
/// for (at, step) in ["review", "upload", "announce"].into_iter().enumerate() {
///     match run.step(step, text.clone())? {
///         Begin::Execute(claim) => { claim.succeed_raw(step)?; }      // Do it, then say so.
///         Begin::Replay(replay) => assert_eq!(replay.value()?, step.as_bytes()), // Done before.
///         other => panic!("{other:?}"),
///     }
/// #   if at == dies_after { return Ok(()) }
/// }
/// run.finish_raw("published")?;
/// # Ok(()) }
/// # work(&publish, &text, 1)?;
/// # work(&publish, &text, 3)?;
/// let RunEntry::Replay(replay) = publish.run("post-17@4", text)? else { panic!("it is not over") };
/// assert_eq!(replay.value()?, b"published");
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Workflow {
    store: Store,
    tenant: Box<str>,
    name: Box<str>,
    definition: Option<Fingerprint>,
    policy: Policy,
}

impl Store {
    /// Names a workflow: `tenant` and `name` take 1–128 bytes. Nothing is written.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a name is out of bounds.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// assert!(store.workflow("acme", "publish").is_ok());
    /// assert!(store.workflow("acme", "").is_err());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn workflow(&self, tenant: impl AsRef<str>, name: impl AsRef<str>) -> Result<Workflow> {
        let tenant = part("tenant", tenant.as_ref(), NAME_BYTES_MAX)?;
        let name = part("workflow", name.as_ref(), NAME_BYTES_MAX)?;
        Ok(Workflow { store: self.clone(), tenant, name, definition: None, policy: Policy::default() })
    }
}

impl Workflow {
    /// Says what the workflow is at present: a version, or a digest of its steps. A run that was begun by another
    /// definition is not resumed as if nothing had happened, but [reported](RunEntry::DefinitionChanged).
    ///
    /// # Example
    /// ```
    /// use dupeproof::Fingerprint;
    /// let store = dupeproof::Store::in_memory()?;
    /// let publish = store.workflow("acme", "publish")?.with_definition_fingerprint(Fingerprint::of_bytes(b"v2"));
    /// # let _ = publish;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_definition_fingerprint(mut self, definition: Fingerprint) -> Self {
        self.definition = Some(definition);
        self
    }

    /// How long a run that is over answers repeats, counted from its end. Its steps are kept as long as its response,
    /// and go with it. A run that is not over is kept for ever.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Retention;
    /// let store = dupeproof::Store::in_memory()?;
    /// let publish = store.workflow("acme", "publish")?.with_retention(Retention::forever());
    /// # let _ = publish;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.policy.retention = retention;
        self
    }

    /// Enters a run: a new one, or one that was cut off. Nothing is written before its first step; the run is recorded
    /// in the commit that begins that.
    ///
    /// The fingerprint is of what the run as a whole was asked to do; every step has one of its own.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a key or terms out of bounds; [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Begin, Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// let publish = store.workflow("acme", "publish")?;
    /// let RunEntry::Run(run) = publish.run("post-17", Fingerprint::of_bytes(b"text"))? else { unreachable!() };
    /// let Begin::Execute(claim) = run.step("upload", Fingerprint::of_bytes(b"text"))? else { unreachable!() };
    /// claim.succeed_raw("page 4")?;
    /// assert!(matches!(publish.run("post-17", Fingerprint::of_bytes(b"another text"))?, RunEntry::Conflict(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn run(&self, key: impl AsRef<str>, fingerprint: Fingerprint) -> Result<RunEntry> {
        let (key, intent) = self.wanted(key, fingerprint)?;
        let engine = self.store.engine();
        engine.check_health()?;
        let now = engine.moment().now;
        let found = engine.read(|snapshot| snapshot.find(&intent.identity))?.and_then(|record| as_of(record, now));
        let Some(record) = found else { return Ok(RunEntry::Run(Run::new(&self.store, key, intent))) };
        if intent.fingerprint.compare(&record.head.fingerprint) == Comparison::Differs {
            return Ok(RunEntry::Conflict(Conflict::of(&record)));
        }
        if let State::Open(open) = &record.state {
            let is_turned_back = matches!(open.course, Course::Backward { .. });
            let has_changed = open.definition != intent.definition;
            let run = Run::new(&self.store, key, intent);
            return Ok(match (has_changed, is_turned_back) {
                (true, _) => RunEntry::DefinitionChanged(ChangedRun { run, is_turned_back }),
                (false, true) => RunEntry::Compensating(run),
                (false, false) => RunEntry::Run(run),
            });
        }
        match Expired::of(&record) {
            Some(expired) => Ok(RunEntry::Expired(expired)),
            None => crate::operation::replay_of(record).map(RunEntry::Replay),
        }
    }

    /// The run, without looking what has become of it: for programs that take one step each and end. What
    /// [`run`](Self::run) would have told is then told by the step: one that is done is replayed, also of a run that is
    /// over; a new one is refused unless the run is there to be worked on.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a key or terms out of bounds.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Fingerprint, Outcome};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// let run = publish.enter("post-17", Fingerprint::unchecked())?;
    /// run.step_with_raw("upload", Fingerprint::unchecked(), |_claim| Ok("page 4".into()))?;
    /// run.finish_raw("published")?;
    /// let again = publish.enter("post-17", Fingerprint::unchecked())?;
    /// let outcome = again.step_with_raw("upload", Fingerprint::unchecked(), |_claim| unreachable!("it is done"))?;
    /// assert!(matches!(outcome, Outcome::Succeeded(page) if page == b"page 4"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn enter(&self, key: impl AsRef<str>, fingerprint: Fingerprint) -> Result<Run> {
        let (key, intent) = self.wanted(key, fingerprint)?;
        Ok(Run::new(&self.store, key, intent))
    }

    fn wanted(&self, key: impl AsRef<str>, fingerprint: Fingerprint) -> Result<(RunKey, RunIntent)> {
        let key = RunKey::new(&self.tenant, &self.name, key)?;
        self.policy.check()?;
        let (identity, definition) = (Identity::run(&key), self.definition.clone());
        Ok((key, RunIntent { identity, fingerprint, policy: self.policy, definition, adopts: false }))
    }

    /// What is recorded of a run, as of now; nothing if no step of it was ever taken. See [`Store::get_run`].
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a key out of bounds; [`Closed`](crate::ErrorKind::Closed),
    /// [`Damaged`](crate::ErrorKind::Damaged).
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// assert!(store.workflow("acme", "publish")?.find("post-17")?.is_none());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn find(&self, key: impl AsRef<str>) -> Result<Option<RunView>> {
        self.store.get_run(&RunKey::new(&self.tenant, &self.name, key)?)
    }
}

/// What comes of entering a run.
#[derive(Debug)]
#[must_use = "most of these mean that the run is not to be worked on"]
pub enum RunEntry {
    /// It is new, or was cut off: take its steps. Those that are done are replayed.
    Run(Run),
    /// It has turned back: go on [compensating](Run::compensate).
    Compensating(Run),
    /// It is over: its result, or why it failed.
    Replay(Replay),
    /// It was begun by another definition of the workflow, and is not over.
    DefinitionChanged(ChangedRun),
    /// The key was used with another payload.
    Conflict(Conflict),
    /// It was over so long ago that its result and its steps are gone.
    Expired(Expired),
}

/// A run that was begun by another definition of its workflow.
#[must_use = "accept the change, or leave the run to the release that began it"]
pub struct ChangedRun {
    run: Run,
    is_turned_back: bool,
}

impl ChangedRun {
    /// Goes on with the run by the present definition, which is recorded with its next step. Steps that have another
    /// name by now are new steps: what the old ones did is not undone by that.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Begin, Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// let version = |version: &str| {
    ///     let workflow = store.workflow("acme", "publish")?;
    ///     Ok::<_, dupeproof::Error>(workflow.with_definition_fingerprint(Fingerprint::of_bytes(version.as_bytes())))
    /// };
    /// let text = || Fingerprint::of_bytes(b"text");
    /// let RunEntry::Run(run) = version("1")?.run("post-17", text())? else { unreachable!() };
    /// let Begin::Execute(claim) = run.step("upload", text())? else { unreachable!() };
    /// claim.succeed_raw("page 4")?;
    ///
    /// let RunEntry::DefinitionChanged(changed) = version("2")?.run("post-17", text())? else { panic!() };
    /// let run = changed.accept();
    /// assert!(matches!(run.step("upload", text())?, Begin::Replay(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn accept(self) -> Run {
        self.run.adopting()
    }

    /// Whether it has turned back, so that nothing but its compensation is left to do.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// if let RunEntry::DefinitionChanged(changed) = store.workflow("a", "b")?.run("c", Fingerprint::unchecked())? {
    ///     println!("{}", changed.is_turned_back());
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_turned_back(&self) -> bool {
        self.is_turned_back
    }
}

impl fmt::Debug for ChangedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedRun").field("run", &self.run).field("is_turned_back", &self.is_turned_back).finish()
    }
}
