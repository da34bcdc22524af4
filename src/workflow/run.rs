//! One run: its steps, and its end.

use std::fmt;

use super::view::RunView;
use crate::error::{Error, Result};
use crate::machine::event::{Answer, Event};
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, RunKey, StepKey};
use crate::machine::record::Record;
use crate::machine::response::{FailureReport, Response};
use crate::machine::workflow::{Finish, RunAct, RunIntent};
use crate::operation::{Begin, Claim, Failure, Operation, Outcome, Replay, Settlement, odd_answer, replay_of};
use crate::storage::batch::{Step, Target};
use crate::store::Store;

/// A run that is being worked on. Got from [`Workflow::run`](crate::Workflow::run); several handles, in several
/// processes too, may work on one run: every step is claimed by one of them.
pub struct Run {
    store: Store,
    key: RunKey,
    intent: RunIntent,
}

impl Run {
    pub(super) fn new(store: &Store, key: RunKey, intent: RunIntent) -> Self {
        Self { store: store.clone(), key, intent }
    }

    pub(super) fn adopting(mut self) -> Self {
        self.intent.adopts = true;
        self
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The key.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// assert_eq!(run.key().run(), "post-17");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn key(&self) -> &RunKey {
        &self.key
    }

    /// Begins a step, or says why it does not run: what [`Store::begin`] does, under the key of the step within the run.
    ///
    /// A step is named by a string, or in a loop by a string and an index: `("mail", 3)`. The name must mean the same on
    /// every resumption. A step that is done is replayed; with another fingerprint it is a conflict. While the outcome
    /// of another step of the run is unknown, no step begins: the answer is [`Begin::Unknown`] about *that* step, until
    /// a probe or a person has settled it.
    ///
    /// # Errors
    /// Those of [`begin`](Store::begin); [`Refused`](crate::ErrorKind::Refused) if the run is over, has turned back, has 10,000
    /// steps or was begun with another payload or definition in the meantime;
    /// [`ArtifactMissing`](crate::ErrorKind::ArtifactMissing) if the step is done and the file it left is gone.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Begin, Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let digest = store.workflow("acme", "digest")?;
    /// let RunEntry::Run(run) = digest.run("2026-12-01", Fingerprint::unchecked())? else { unreachable!() };
    /// for (index, to) in (0..).zip(["jane", "joe"]) {
    ///     let Begin::Execute(claim) = run.step(("mail", index), Fingerprint::of_bytes(to.as_bytes()))? else { break };
    ///     claim.succeed_raw(to)?;
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn step<K: TryInto<StepKey>>(&self, step: K, fingerprint: Fingerprint) -> Result<Begin>
    where
        Error: From<K::Error>,
    {
        whole(self.store.begin(&self.operation(step, fingerprint)?)?)
    }

    /// The operation behind a step, for terms other than the default ones: give it to [`Store::begin`] and its kin. A
    /// step's retention is always that of its run.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name out of bounds.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use dupeproof::{Begin, Fingerprint, Remote, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// # let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// let day = Duration::from_secs(24 * 3600);
    /// let charge = run.operation("charge", Fingerprint::of_bytes(b"12.00"))?.with_remote(Remote::DedupesOnKey { window: day });
    /// let Begin::Execute(claim) = store.begin(&charge)? else { unreachable!() };
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn operation<K: TryInto<StepKey>>(&self, step: K, fingerprint: Fingerprint) -> Result<Operation>
    where
        Error: From<K::Error>,
    {
        let step = step.try_into()?;
        let enter = (self.intent.identity.clone(), self.event(RunAct::Enter(step.clone())));
        Ok(Operation::of(Identity::step(&self.key, step), fingerprint).on_condition([enter]))
    }

    /// Says how a step ended and begins the next one, in one commit: of a long run this halves the commits. If the
    /// process dies now, the next step counts as started, and its outcome is unknown.
    ///
    /// If the next step may not begin, the ended one is settled all the same.
    ///
    /// # Errors
    /// Those of settling the claim and of [`step`](Self::step).
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Begin, Fingerprint, RunEntry, Settlement};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// # let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// let text = || Fingerprint::of_bytes(b"text");
    /// let Begin::Execute(upload) = run.step("upload", text())? else { unreachable!() };
    /// let page = Settlement::Succeeded("page 4".into());
    /// let Begin::Execute(announce) = run.settle_and_step(&upload, page, "announce", text())? else { unreachable!() };
    /// run.settle_and_finish(&announce, Settlement::Succeeded("sent".into()), "published")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn settle_and_step<K: TryInto<StepKey>>(
        &self,
        claim: &Claim,
        settlement: Settlement,
        next: K,
        fingerprint: Fingerprint,
    ) -> Result<Begin>
    where
        Error: From<K::Error>,
    {
        whole(claim.settle_and_begin(settlement, &self.operation(next, fingerprint)?)?)
    }

    /// A step in one closure, as [`Store::run_raw`] does an operation.
    ///
    /// # Errors
    /// Those of [`step`](Self::step) and of settling.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Fingerprint, Outcome, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// # let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// for _ in 0..2 {
    ///     let outcome = run.step_with_raw("upload", Fingerprint::of_bytes(b"text"), |_claim| Ok("page 4".into()))?;
    ///     assert!(matches!(outcome, Outcome::Succeeded(page) if page == b"page 4"));
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn step_with_raw<K: TryInto<StepKey>>(
        &self,
        step: K,
        fingerprint: Fingerprint,
        effect: impl FnOnce(&Claim) -> std::result::Result<Response, Failure>,
    ) -> Result<Outcome<Vec<u8>>>
    where
        Error: From<K::Error>,
    {
        whole_outcome(self.store.run_raw(&self.operation(step, fingerprint)?, effect)?)
    }

    /// A step in one closure, with an artifact that is stored as JSON, as [`Store::run`] does an operation.
    ///
    /// # Errors
    /// Those of [`step_with_raw`](Self::step_with_raw); [`Response`](crate::ErrorKind::Response) if the artifact cannot be
    /// written as JSON or read back.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Fingerprint, Outcome, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// # let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// let decision = run.step_with("decide", Fingerprint::of_bytes(b"prompt"), |_claim| Ok(vec!["charge", "mail"]
    ///     .into_iter().map(String::from).collect::<Vec<_>>()))?;
    /// assert!(matches!(decision, Outcome::Succeeded(plan) if plan.len() == 2));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn step_with<K: TryInto<StepKey>, T: serde::Serialize + serde::de::DeserializeOwned>(
        &self,
        step: K,
        fingerprint: Fingerprint,
        effect: impl FnOnce(&Claim) -> std::result::Result<T, Failure>,
    ) -> Result<Outcome<T>>
    where
        Error: From<K::Error>,
    {
        whole_outcome(self.store.run(&self.operation(step, fingerprint)?, effect)?)
    }

    /// Ends the run well. Every repeat of it is answered with the result from then on, until its retention ends.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) while a step is being executed or its outcome is unknown, and if the run has
    /// turned back; [`AlreadySettled`](crate::ErrorKind::AlreadySettled) or `Refused` if it ended otherwise; those of a
    /// commit. Repeating it with the same result is no error.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// run.finish_raw("published")?;
    /// assert!(matches!(publish.run("post-17", Fingerprint::unchecked())?, RunEntry::Replay(_)));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn finish_raw(&self, response: impl Into<Response>) -> Result<Replay> {
        self.end(Finish::Succeeded(self.admitted(response.into())))
    }

    /// Ends the run well, with a result that is stored as JSON.
    ///
    /// # Errors
    /// Those of [`finish_raw`](Self::finish_raw); [`Response`](crate::ErrorKind::Response) if the result cannot be written as
    /// JSON.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// assert_eq!(run.finish(&17)?.response::<u32>()?, 17);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn finish<T: serde::Serialize + ?Sized>(&self, response: &T) -> Result<Replay> {
        self.finish_raw(crate::operation::to_json(response)?)
    }

    /// Says how the last step ended and ends the run well, in one commit.
    ///
    /// # Errors
    /// Those of settling the claim and of [`finish_raw`](Self::finish_raw). Neither happened then.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, RunEntry, Settlement};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// # let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// let Begin::Execute(claim) = run.step("upload", Fingerprint::unchecked())? else { unreachable!() };
    /// run.settle_and_finish(&claim, Settlement::Succeeded("page 4".into()), "published")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn settle_and_finish(
        &self,
        claim: &Claim,
        settlement: Settlement,
        response: impl Into<Response>,
    ) -> Result<Replay> {
        let (settle, ended) = claim.settled_by(&self.store, settlement)?;
        let finish = self.wanted(RunAct::Finish(Finish::Succeeded(self.admitted(response.into()))));
        let driven = self.store.engine().drive(vec![settle, finish])?;
        ended.tell(self.store.engine());
        replay_of(accepted(driven.only())?)
    }

    /// Gives the run up. What its steps did stands as it is; to undo it, [`compensate`](Self::compensate) instead.
    ///
    /// # Errors
    /// As for [`finish_raw`](Self::finish_raw).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// run.fail("the author took it back")?;
    /// let RunEntry::Replay(replay) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// assert!(!replay.is_success());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn fail(&self, why: impl fmt::Display) -> Result<Replay> {
        self.end(Finish::Failed(FailureReport::new(why)))
    }

    /// The run with all its steps, as they really are; nothing if no step of it was ever taken.
    ///
    /// # Errors
    /// Those of [`Store::get_run`].
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, RunEntry, RunStatus};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let publish = store.workflow("acme", "publish")?;
    /// # let RunEntry::Run(run) = publish.run("post-17", Fingerprint::unchecked())? else { unreachable!() };
    /// let Begin::Execute(claim) = run.step("upload", Fingerprint::unchecked())? else { unreachable!() };
    /// claim.give_up("the line went dead")?;
    /// let view = run.view()?.expect("a step was taken");
    /// assert_eq!(view.summary.status, RunStatus::BlockedUnknown);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn view(&self) -> Result<Option<RunView>> {
        self.store.get_run(&self.key)
    }

    fn end(&self, finish: Finish) -> Result<Replay> {
        replay_of(self.act(RunAct::Finish(finish))?)
    }

    /// Does what is wanted of the run itself, and says what it is by then. Durable on return.
    pub(super) fn act(&self, act: RunAct) -> Result<Record> {
        let driven = self.store.engine().drive(vec![self.wanted(act)])?;
        accepted(driven.only())
    }

    pub(super) fn event(&self, act: RunAct) -> Event {
        Event::Run(self.intent.clone(), act)
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.intent.identity
    }

    fn wanted(&self, act: RunAct) -> Step {
        Step { target: Target::Key(self.intent.identity.clone()), event: self.event(act) }
    }

    fn admitted(&self, response: Response) -> Response {
        response.admitted(self.intent.policy.response, self.store.response_bytes_max())
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("key", &self.key).finish_non_exhaustive()
    }
}

fn accepted(answer: Answer) -> Result<Record> {
    match answer {
        Answer::Accepted(record) => Ok(*record),
        _ => Err(odd_answer("an answer about a run that neither accepts nor refuses")),
    }
}

/// Work that goes on from a file that is not there would go wrong somewhere else.
fn whole(begin: Begin) -> Result<Begin> {
    if let Begin::Replay(replay) = &begin {
        look(replay)?;
    }
    Ok(begin)
}

fn whole_outcome<T>(outcome: Outcome<T>) -> Result<Outcome<T>> {
    if let Outcome::SucceededWithoutValue(replay) = &outcome {
        look(replay)?;
    }
    Ok(outcome)
}

fn look(replay: &Replay) -> Result<()> {
    replay.artifact().map_or(Ok(()), crate::machine::response::Artifact::look)
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
