//! Beginning operations: the fast path that reads, and the slow one that writes. Both ask the same machine.

use std::time::Duration;

use super::answer::{Begin, Conflict, Expired, InProgress, Replay, Reserve, RetryLater, UnknownOutcome};
use super::claim::{Claim, Reservation, odd_answer};
use super::spec::{Nonce, Operation};
use crate::engine::Driven;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::{Answer, Change, Context, Event, Grant, Intent, Phase};
use crate::machine::key::Kind;
use crate::machine::record::{Holder, Record, RecordId, Status};
use crate::machine::transition::transition;
use crate::machine::workflow::Members;
use crate::options::Sharing;
use crate::storage::batch::{Moment, Step, Target};
use crate::storage::snapshot::{Snapshot, Visit};
use crate::store::Store;

/// Operations in one `begin_many`: a polled batch, not a table.
const OPERATIONS_MAX: usize = 1000;
/// How long a waiter sleeps at most between two looks. Its own process wakes it; this is for what it cannot hear: other
/// processes, leases that end.
const WAIT_SLICE: Duration = Duration::from_millis(100);
/// The first look of a waiter in shared mode; doubled up to the slice.
const WAIT_SLICE_SHARED_MIN: Duration = Duration::from_millis(2);

/// An answer with what is needed to hand it out.
struct Answered {
    answer: Answer,
    moment: Moment,
    /// A monotonic reading from before the write.
    sent_at: Duration,
}

impl Store {
    /// Reserves and starts an operation in one durable commit, or says why it does not run.
    ///
    /// With [`Begin::Execute`] the start is durable: if the process dies now, the outcome is unknown, and nobody
    /// repeats the effect. Every other answer changed nothing. A repeat of a settled operation is answered without a
    /// write.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for terms out of bounds, before anything is written.
    /// [`Indeterminate`](ErrorKind::Indeterminate) if the commit failed: reopen the store and begin again, with a
    /// [`Nonce`] to get one's own claim back. In no case was a claim handed out, so the effect must not run.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// let store = Store::in_memory()?;
    /// let body = b"one parcel to Jane";
    /// let operation = Operation::new(OperationKey::new("acme", "ship", "order-7")?, Fingerprint::of_bytes(body));
    /// match store.begin(&operation)? {
    ///     Begin::Execute(claim) => { claim.succeed_raw("shipped")?; }
    ///     other => panic!("first time: {other:?}"),
    /// }
    /// let Begin::Replay(replay) = store.begin(&operation)? else { panic!("second time") };
    /// assert_eq!(replay.value()?, b"shipped");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn begin(&self, operation: &Operation) -> Result<Begin> {
        let answered = self.ask(operation, Phase::Start)?;
        self.begun(answered)
    }

    /// Reserves an operation without starting it: two commits, but a crash before
    /// [`start`](Reservation::start) costs nothing, because the effect certainly did not happen.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Reserve, Store};
    /// # let store = Store::in_memory()?;
    /// let operation = Operation::new(OperationKey::new("acme", "print", "label-7")?, Fingerprint::unchecked());
    /// let Reserve::Reserved(reservation) = store.reserve(&operation)? else { unreachable!() };
    /// reservation.start()?.succeed_raw("printed")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn reserve(&self, operation: &Operation) -> Result<Reserve> {
        let Answered { answer, moment, sent_at } = self.ask(operation, Phase::Reserve)?;
        if let Answer::Granted(record, grant) = answer {
            return Reservation::new(self, &record, grant, sent_at).map(Reserve::Reserved);
        }
        Ok(match turned_away(answer, moment)? {
            Begin::Replay(replay) => Reserve::Replay(replay),
            Begin::InProgress(other) => Reserve::InProgress(other),
            Begin::RetryLater(later) => Reserve::RetryLater(later),
            Begin::Unknown(unknown) => Reserve::Unknown(unknown),
            Begin::Conflict(conflict) => Reserve::Conflict(conflict),
            Begin::Expired(expired) => Reserve::Expired(expired),
            Begin::Execute(_) => return Err(odd_answer("a grant to somebody who was turned away")),
        })
    }

    /// Begins a polled batch in one commit. The answers are in the order of the operations; a key that comes twice is
    /// in progress the second time. No operation waits.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin), for the batch as a whole; at most 1,000 operations.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// let batch = ["a", "b", "a"]
    ///     .map(|key| OperationKey::new("acme", "import", key).map(|key| Operation::new(key, Fingerprint::unchecked())))
    ///     .into_iter()
    ///     .collect::<Result<Vec<_>, _>>()?;
    /// let answers = store.begin_many(&batch)?;
    /// assert!(matches!(answers[..], [Begin::Execute(_), Begin::Execute(_), Begin::InProgress(_)]));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn begin_many(&self, operations: &[Operation]) -> Result<Vec<Begin>> {
        if operations.len() > OPERATIONS_MAX {
            let found = operations.len();
            return Err(Error::invalid_input(format!(
                "batch has {found} operations: at most {OPERATIONS_MAX} expected"
            )));
        }
        operations.iter().try_for_each(Operation::check)?;
        self.engine().check_health()?;
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let sent_at = self.engine().monotonic();
        let asked: Vec<Asked<'_>> = operations.iter().map(|operation| self.asked(operation)).collect();
        let begins = operations.iter().zip(&asked).map(|(operation, asked)| asked.steps(operation, Phase::Start));
        let steps: Vec<Step> = begins.flatten().collect();
        let is_begin: Vec<bool> = steps.iter().map(|step| matches!(step.event, Event::Begin(_))).collect();
        let driven = self.engine().drive(steps);
        asked.into_iter().for_each(|asked| asked.note(self, &driven));
        let Driven { answers, moment } = driven?;
        let answers = answers.into_iter().zip(is_begin).filter_map(|(answer, is_begin)| is_begin.then_some(answer));
        answers.map(|answer| self.begun(Answered { answer, moment, sent_at })).collect()
    }

    /// Takes over a claim from an earlier open of the same file, so that its holder can still say how its effect ended
    /// after the commit of a settlement failed. It can settle, as long as nobody else was granted an attempt; its lease
    /// is over.
    ///
    /// # Errors
    /// [`LeaseLost`](ErrorKind::LeaseLost) if another attempt was granted, or the record is gone.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("effects.redb");
    /// # let operation = Operation::new(OperationKey::new("t", "o", "k")?, Fingerprint::unchecked());
    /// let store = Store::open(&path)?;
    /// let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// store.close()?;
    ///
    /// let reopened = Store::open(&path)?;
    /// reopened.reattach(claim)?.succeed_raw("it did happen")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn reattach(&self, claim: Claim) -> Result<Claim> {
        self.engine().check_health()?;
        let found = self.engine().read(|snapshot| snapshot.find(claim.identity()))?;
        match found {
            Some(record) => claim.moved_to(self, &record),
            None => Err(Error::new(ErrorKind::LeaseLost, "this store has no such record")),
        }
    }

    /// Drives steps that end with the begin of `next`.
    pub(super) fn drive_begin(&self, mut steps: Vec<Step>, next: &Operation) -> Result<Begin> {
        next.check()?;
        let sent_at = self.engine().monotonic();
        let asked = self.asked(next);
        let alone = (!next.conditions.is_empty()).then(|| steps.clone());
        steps.extend(asked.steps(next, Phase::Start));
        let driven = self.engine().drive(steps);
        asked.note(self, &driven);
        let driven = match (driven, alone) {
            // What is not to be begun must not keep what has ended from being settled.
            (Err(error), Some(alone)) if error.kind() == ErrorKind::Refused => {
                self.engine().drive(alone)?;
                return self.begin(next);
            }
            (driven, _) => driven?,
        };
        let moment = driven.moment;
        self.begun(Answered { answer: driven.only(), moment, sent_at })
    }

    fn begun(&self, answered: Answered) -> Result<Begin> {
        let Answered { answer, moment, sent_at } = answered;
        match answer {
            Answer::Granted(record, grant) => Claim::new(self, &record, grant, sent_at).map(Begin::Execute),
            answer => turned_away(answer, moment),
        }
    }

    fn ask(&self, operation: &Operation, phase: Phase) -> Result<Answered> {
        operation.check()?;
        self.engine().check_health()?;
        let first = self.ask_once(operation, phase)?;
        match (&first.answer, operation.wait) {
            // Inside a transaction nobody waits: whoever is waited for could not settle before its end.
            (Answer::InProgress(_), Some(timeout)) if !self.engine().is_inside() => {
                self.ask_until(operation, phase, timeout, first)
            }
            _ => Ok(first),
        }
    }

    /// Waits for somebody else's execution. Each look is the ordinary one, so a lease that ended counts as it should.
    fn ask_until(&self, operation: &Operation, phase: Phase, timeout: Duration, first: Answered) -> Result<Answered> {
        let deadline = self.engine().monotonic().saturating_add(timeout);
        let is_shared = self.engine().file().sharing() == Sharing::Shared;
        let mut slice = if is_shared { WAIT_SLICE_SHARED_MIN } else { WAIT_SLICE };
        let waiting = self.engine().wait_for(&operation.identity);
        let mut answered = first;
        loop {
            // Once more after the place was taken: what ended before it rang no bell.
            if matches!(answered.answer, Answer::InProgress(_)) {
                answered = self.ask_once(operation, phase)?;
            }
            let left = deadline.saturating_sub(self.engine().monotonic());
            if !matches!(answered.answer, Answer::InProgress(_)) || left.is_zero() {
                return Ok(answered);
            }
            waiting.wait(left.min(slice));
            self.engine().check_health()?;
            slice = (slice * 2).min(WAIT_SLICE);
        }
    }

    fn ask_once(&self, operation: &Operation, phase: Phase) -> Result<Answered> {
        let asked = self.asked(operation);
        let sent_at = self.engine().monotonic();
        let moment = self.engine().moment();
        let found = match self.engine().read(|snapshot| found(snapshot, operation, moment)) {
            Ok(found) => found,
            Err(error) => {
                asked.keep();
                return Err(error);
            }
        };
        let answer = found.and_then(|found| answer_without_writing(found, asked.intent(operation, phase), moment));
        if let Some(answer) = answer {
            return Ok(Answered { answer, moment, sent_at });
        }
        let driven = self.engine().drive(asked.steps(operation, phase));
        asked.note(self, &driven);
        let driven = match driven {
            Err(error) if error.kind() == ErrorKind::Refused => match self.blocking(operation, moment)? {
                Some(answer) => return Ok(Answered { answer, moment, sent_at }),
                None => return Err(error),
            },
            driven => driven?,
        };
        let moment = driven.moment;
        Ok(Answered { answer: driven.only(), moment, sent_at })
    }

    /// What a begin would be told that changes nothing; nothing if it takes a write.
    pub(crate) fn told_without_writing(&self, operation: &Operation) -> Result<Option<Begin>> {
        self.engine().check_health()?;
        let moment = self.engine().moment();
        let found = self.engine().read(|snapshot| found(snapshot, operation, moment))?;
        let intent = operation.intent(Phase::Start, 0, Vec::new());
        let answer = found.and_then(|found| answer_without_writing(found, intent, moment));
        answer.map(|answer| turned_away(answer, moment)).transpose()
    }

    /// The step whose unknown outcome keeps this one, of the same run, from being begun.
    fn blocking(&self, operation: &Operation, moment: Moment) -> Result<Option<Answer>> {
        let Some(run) = operation.parent().filter(|parent| parent.kind() == Kind::Run) else { return Ok(None) };
        let mut blocking = None;
        self.engine().read(|snapshot| {
            let Some(run) = snapshot.find(run)?.filter(Record::goes_forward) else { return Ok(()) };
            snapshot.scan_members(&run, moment.now, |record| {
                if record.status() != Status::Unknown || record.head.identity == operation.identity {
                    return Ok(Visit::Next);
                }
                blocking = Some(Answer::Unknown(record.into()));
                Ok(Visit::Stop)
            })
        })?;
        Ok(blocking)
    }

    fn asked<'a>(&self, operation: &'a Operation) -> Asked<'a> {
        let unheard = operation.nonce.as_ref().map(Nonce::take).unwrap_or_default();
        Asked { grant: self.engine().next_grant(), nonce: operation.nonce.as_ref(), unheard }
    }
}

/// One asking: its grant's number, and what its nonce remembers of earlier ones.
struct Asked<'a> {
    grant: u64,
    nonce: Option<&'a Nonce>,
    unheard: Vec<Holder>,
}

impl Asked<'_> {
    fn intent(&self, operation: &Operation, phase: Phase) -> Intent {
        operation.intent(phase, self.grant, self.unheard.clone())
    }

    /// The begin, behind what has to hold for it.
    fn steps(&self, operation: &Operation, phase: Phase) -> Vec<Step> {
        let begin = Event::Begin(self.intent(operation, phase));
        let begin = Step { target: Target::Key(operation.identity.clone()), event: begin };
        operation.conditions.iter().cloned().chain([begin]).collect()
    }

    /// Keeps in mind what was not heard of; forgets it once an answer came.
    fn note(self, store: &Store, driven: &Result<Driven>) {
        match (self.nonce, driven) {
            (Some(nonce), Err(error)) => {
                let this = (!error.kind().outcome_is_known()).then(|| store.engine().holder(self.grant));
                nonce.remember(self.unheard.into_iter().chain(this));
            }
            (Some(_), Ok(_)) | (None, _) => {}
        }
    }

    /// The question was not even put.
    fn keep(self) {
        if let Some(nonce) = self.nonce {
            nonce.remember(self.unheard);
        }
    }
}

/// A row as it was last committed, with the number of what it belongs to.
struct Found {
    record: Record,
    parent: Option<RecordId>,
}

/// What is on record, if it can answer: what belongs to something that is not there, or to a run that has expired, answers
/// nothing.
fn found(snapshot: &Snapshot, operation: &Operation, moment: Moment) -> Result<Option<Found>> {
    let Some(record) = snapshot.find(&operation.identity)? else { return Ok(None) };
    let Some(parent) = operation.parent() else { return Ok(Some(Found { record, parent: None })) };
    let now = moment.now;
    let parent =
        snapshot.find(parent)?.filter(|parent| !parent.is_gone(now) && !parent.has_expired_with_its_steps(now));
    Ok(parent.map(|parent| Found { record, parent: Some(parent.head.id) }))
}

/// The fast path: the machine is asked about the row as it was last committed. Only an answer that would change nothing
/// is used, so a stale row can delay a grant and never give one.
fn answer_without_writing(found: Found, intent: Intent, moment: Moment) -> Option<Answer> {
    let Moment { now, wall } = moment;
    let fresh_id = RecordId(0);
    let Found { record, parent } = found;
    let context = Context { now, wall, incarnation: 0, fresh_id, parent, members: Members::default() };
    let transition = transition(Some(record), Event::Begin(intent), &context).ok()?;
    (transition.change == Change::Keep).then_some(transition.answer)
}

/// Every answer but a grant.
pub(crate) fn turned_away(answer: Answer, moment: Moment) -> Result<Begin> {
    let now = moment.now;
    match answer {
        Answer::Replay(record) => Replay::of(*record).map(Begin::Replay),
        Answer::InProgress(record) => InProgress::of(&record, now).map(Begin::InProgress),
        Answer::RetryLater(record) => RetryLater::of(&record, now).map(Begin::RetryLater),
        Answer::Unknown(record) => UnknownOutcome::of(&record).map(Begin::Unknown),
        Answer::Conflict(record) => Some(Begin::Conflict(Conflict::of(&record))),
        Answer::Expired(record) => Expired::of(&record).map(Begin::Expired),
        Answer::Granted(_, Grant::Fresh | Grant::Resend)
        | Answer::Accepted(_)
        | Answer::Probing(_)
        | Answer::Nothing => None,
    }
    .ok_or_else(|| odd_answer("an answer that does not fit its record"))
}
