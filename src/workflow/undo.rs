//! Going back: every step that succeeded is compensated, the last one first. A compensation is an operation of its own,
//! which can fail or be unknown, and is shown as it is.

use std::fmt;

use super::run::Run;
use super::view::RunView;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::Event;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, StepKey};
use crate::machine::record::{RecordId, State, Status};
use crate::machine::response::{FailureReport, Response};
use crate::machine::time::Timestamp;
use crate::machine::workflow::{Finish, RunAct};
use crate::operation::{Claim, Failure, Operation, Replay, odd_answer, replay_of};
use crate::storage::snapshot::Visit;

/// A step that is being compensated.
pub struct Undo<'a> {
    step: &'a StepKey,
    done: &'a Replay,
    claim: &'a Claim,
}

impl Undo<'_> {
    /// Which step.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Response, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let RunEntry::Run(run) = store.workflow("a", "b")?.run("c", Fingerprint::unchecked())? else { unreachable!() };
    /// # run.step_with_raw("charge", Fingerprint::unchecked(), |_| Ok("ch_1".into()))?;
    /// run.compensate(|undo| match undo.step().name() {
    ///     "charge" => Ok(Response::from("refund 9")),
    ///     _ => Ok(Response::Absent), // Nothing to undo.
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn step(&self) -> &StepKey {
        self.step
    }

    /// What the step left: the id of the charge that is to be refunded.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Response, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let RunEntry::Run(run) = store.workflow("a", "b")?.run("c", Fingerprint::unchecked())? else { unreachable!() };
    /// # run.step_with_raw("charge", Fingerprint::unchecked(), |_| Ok("ch_1".into()))?;
    /// run.compensate(|undo| {
    ///     assert_eq!(undo.done().value()?, b"ch_1");
    ///     Ok(Response::Absent)
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn done(&self) -> &Replay {
        self.done
    }

    /// The claim on the compensation: its downstream key goes to the provider.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Response, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let RunEntry::Run(run) = store.workflow("a", "b")?.run("c", Fingerprint::unchecked())? else { unreachable!() };
    /// # run.step_with_raw("charge", Fingerprint::unchecked(), |_| Ok("ch_1".into()))?;
    /// run.compensate(|undo| {
    ///     println!("POST /refunds, Idempotency-Key: {}", undo.claim().downstream_key());
    ///     Ok(Response::Absent)
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn claim(&self) -> &Claim {
        self.claim
    }
}

impl fmt::Debug for Undo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undo").field("step", &self.step).finish_non_exhaustive()
    }
}

/// A step that has to be compensated.
struct Standing {
    at: (Timestamp, RecordId),
    step: StepKey,
    fingerprint: Fingerprint,
}

impl Run {
    /// Turns the run back, for good, and compensates every step that succeeded, the last one first. The closure does it:
    /// it is called once for each, under a key of its own, and says how that ended, as in [`Store::run_raw`](crate::Store::run_raw).
    ///
    /// A compensation that fails or whose outcome is unknown does not keep the others from being tried. What is done is
    /// not done again: call this again after a crash, after a retryable failure, or after an unknown outcome was found
    /// out. When every compensation is over, for better or worse, so is the run. The view says how it stands:
    /// [`Compensated`](crate::RunStatus::Compensated) only if all of them succeeded. A run of which no step had
    /// succeeded has nothing to compensate, and has [failed](crate::RunStatus::Failed) at once.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused), with nothing done, while a step is being executed or its outcome is unknown, and
    /// if the run ended well; those of a commit.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Failure, Fingerprint, Response, RunEntry, RunStatus};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let trip = store.workflow("acme", "trip")?;
    /// let RunEntry::Run(run) = trip.run("t-1", Fingerprint::unchecked())? else { unreachable!() };
    /// for step in ["flight", "hotel"] {
    ///     run.step_with_raw(step, Fingerprint::unchecked(), |_claim| Ok(Response::from("booked")))?;
    /// }
    /// run.step_with_raw("car", Fingerprint::unchecked(), |_claim| Err(Failure::terminal("none left")))?;
    /// let view = run.compensate(|undo| match undo.step().name() {
    ///     "hotel" => Err(Failure::terminal("not refundable")),
    ///     _ => Ok(Response::from("cancelled")),
    /// })?;
    /// assert_eq!(view.summary.status, RunStatus::PartiallyCompensated);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn compensate(
        &self,
        mut undo: impl FnMut(&Undo<'_>) -> std::result::Result<Response, Failure>,
    ) -> Result<RunView> {
        let why = self.why_back()?;
        match self.act(RunAct::TurnBack(why)) {
            Ok(record) if matches!(record.state, State::Open(_)) => {}
            Ok(_) => return self.shown(),
            // It ended so before: there is nothing left to do.
            Err(error) if error.kind() == ErrorKind::Refused => {
                let view = self.view()?;
                let is_back = |view: &RunView| view.summary.status.is_final() && view.response.is_none();
                return view.filter(is_back).ok_or(error);
            }
            Err(error) => return Err(error),
        }
        for Standing { step, fingerprint, .. } in self.standing()? {
            let done = self.done(&step)?;
            let operation = self.compensation(&step, fingerprint)?;
            // Whatever it says is on record by then, and shown below.
            let _ = self.store().run_raw(&operation, |claim| undo(&Undo { step: &step, done: &done, claim }))?;
        }
        match self.act(RunAct::Finish(Finish::Compensated)) {
            // Some are not over yet.
            Err(error) if error.kind() != ErrorKind::Refused => Err(error),
            _ => self.shown(),
        }
    }

    /// The operation that compensates a step of a run that has turned back, for those who do it one by one or on terms
    /// of their own. [`compensate`](Self::compensate) ends the run afterwards.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name out of bounds. Beginning it is
    /// [`Refused`](ErrorKind::Refused) while the run goes forward or unless the step succeeded, and
    /// [`NotFound`](ErrorKind::NotFound) if there is no such step.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Failure, Fingerprint, Response, RunEntry};
    /// # let store = dupeproof::Store::in_memory()?;
    /// # let RunEntry::Run(run) = store.workflow("a", "b")?.run("c", Fingerprint::unchecked())? else { unreachable!() };
    /// # run.step_with_raw("charge", Fingerprint::unchecked(), |_| Ok("ch_1".into()))?;
    /// run.compensate(|_undo| Err(Failure::retryable("closed at night", dupeproof::Retry::now())))?;
    /// let refund = run.compensation("charge", Fingerprint::unchecked())?.with_lease(std::time::Duration::from_secs(5));
    /// let Begin::Execute(claim) = store.begin(&refund)? else { unreachable!() };
    /// claim.succeed_raw("refund 9")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn compensation<K: TryInto<StepKey>>(&self, step: K, fingerprint: Fingerprint) -> Result<Operation>
    where
        Error: From<K::Error>,
    {
        let step = Identity::step(self.key(), step.try_into()?);
        let operation = Operation::of(step.compensation()?, fingerprint);
        let undo = (self.identity().clone(), self.event(RunAct::Undo));
        Ok(operation.on_condition([undo, (step, Event::Compensate)]))
    }

    fn shown(&self) -> Result<RunView> {
        self.view()?.ok_or_else(|| odd_answer("a run that turned back and is not there"))
    }

    /// What went wrong, in the words of the last step that failed.
    fn why_back(&self) -> Result<FailureReport> {
        let now = self.store().engine().moment().now;
        let mut last = None;
        self.store().engine().read(|snapshot| {
            let Some(run) = snapshot.find(self.identity())? else { return Ok(()) };
            snapshot.scan_members(&run, now, |record| {
                let id = record.head.id;
                if let (State::FailedTerminal { failure, .. }, Some(step)) =
                    (&record.state, record.head.identity.step_key())
                    && last.as_ref().is_none_or(|(before, _)| *before < id)
                {
                    last = Some((id, format!("step {step} failed: {}", failure.message())));
                }
                Ok(Visit::Next)
            })
        })?;
        Ok(FailureReport::new(last.map_or_else(|| "turned back".to_owned(), |(_, why)| why)))
    }

    /// The steps that succeeded, the last one first.
    fn standing(&self) -> Result<Vec<Standing>> {
        let now = self.store().engine().moment().now;
        let mut standing = Vec::new();
        self.store().engine().read(|snapshot| {
            let Some(run) = snapshot.find(self.identity())? else { return Ok(()) };
            snapshot.scan_members(&run, now, |record| {
                if record.head.identity.kind() != crate::machine::key::Kind::Step {
                    return Ok(Visit::Stop);
                }
                if let (State::Succeeded { terms, .. }, Some(step)) = (&record.state, record.head.identity.step_key()) {
                    standing.push(Standing {
                        at: (terms.settled_at, record.head.id),
                        step: step.clone(),
                        fingerprint: record.head.fingerprint.clone(),
                    });
                }
                Ok(Visit::Next)
            })
        })?;
        standing.sort_unstable_by_key(|standing| std::cmp::Reverse(standing.at));
        Ok(standing)
    }

    fn done(&self, step: &StepKey) -> Result<Replay> {
        let identity = Identity::step(self.key(), step.clone());
        match self.store().engine().read(|snapshot| snapshot.find(&identity))? {
            Some(record) if record.status() == Status::Succeeded => replay_of(record),
            _ => Err(Error::new(ErrorKind::Refused, "the run ended meanwhile")),
        }
    }
}
