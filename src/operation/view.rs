//! A record as people and programs see it.

use crate::error::Result;
use crate::machine::key::{Identity, OperationKey};
use crate::machine::record::{
    Decision, Ended, Inquiry, Record, RetryCause, Ruling, State, Status, UnknownCause, Witness,
};
use crate::machine::response::{ExternalReference, FailureReport, Response};
use crate::machine::retention::Aged;
use crate::machine::time::Timestamp;
use crate::storage::snapshot::Snapshot;
use crate::store::Store;

/// A record as it is now, for people and programs that look.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationView {
    /// The key; of a step, its run.
    pub key: OperationKey,
    /// The full name: also of a step, a compensation or a message.
    pub identity: Identity,
    /// Where it stands, ended leases and retentions counted in, whether or not the sweep has come by.
    pub status: Status,
    /// Attempts granted so far.
    pub attempts: u32,
    /// The key the provider sees.
    pub downstream_key: String,
    /// The provider's own name for the effect.
    pub external_reference: Option<String>,
    /// When the key was first used.
    pub created_at: Timestamp,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
    /// Until when its response is replayed, or its tombstone kept.
    pub expires_at: Option<Timestamp>,
    /// Until when the present lease runs.
    pub lease_until: Option<Timestamp>,
    /// From when on a new attempt may start.
    pub retry_at: Option<Timestamp>,
    /// Since when, and why, its outcome is unknown.
    pub unknown: Option<(Timestamp, UnknownCause)>,
    /// How often the provider was asked about the unknown outcome.
    pub probes: u32,
    /// When the provider is asked about it next; nothing while a person is waited for.
    pub next_probe_at: Option<Timestamp>,
    /// Whether the provider was asked as often as it may be, so that only a person can end it.
    pub waits_for_person: bool,
    /// How a tombstone's operation ended.
    pub ended: Option<Status>,
    /// The stored response, of a success or with a failure.
    pub response: Option<Response>,
    /// Why it failed, or why its holder gave up.
    pub failure: Option<String>,
    /// The last checkpoint of an unsettled operation.
    pub checkpoint: Option<Vec<u8>>,
    /// What was said about unknown outcomes by whom, oldest first: late owners, probes and people.
    pub decisions: Vec<DecisionView>,
    /// What became of its compensation, if one was begun.
    pub compensation: Option<Box<OperationView>>,
}

/// A recorded decision.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecisionView {
    /// When, in store time.
    pub at: Timestamp,
    /// How the one who said it came to know.
    pub witness: Witness,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// What.
    pub ruling: Ruling,
    /// The attempt it was said about.
    pub attempt: u32,
}

/// The view of a record that was aged to the present before.
pub(crate) fn view(record: Record) -> OperationView {
    let status = record.status();
    let Record { head, state } = record;
    let mut view = OperationView {
        downstream_key: head.identity.downstream_key(head.generation),
        key: head.identity.key.clone(),
        identity: head.identity,
        status,
        attempts: head.attempt,
        external_reference: head.reference.as_ref().map(ExternalReference::as_str).map(str::to_owned),
        created_at: head.created_at,
        settled_at: None,
        expires_at: None,
        lease_until: None,
        retry_at: None,
        unknown: None,
        probes: 0,
        next_probe_at: None,
        waits_for_person: false,
        ended: None,
        response: None,
        failure: None,
        checkpoint: None,
        decisions: head.decisions.into_iter().map(DecisionView::of).collect(),
        compensation: None,
    };
    let words = |failure: &FailureReport| Some(failure.message().to_owned());
    match state {
        State::Reserved(held) | State::Executing(held) => {
            view.lease_until = Some(held.lease.until);
            view.checkpoint = held.work.checkpoint;
        }
        State::FailedRetryable(retryable) => {
            view.retry_at = Some(retryable.retry_at);
            view.checkpoint = retryable.work.checkpoint;
            if let RetryCause::Reported(failure) = &retryable.cause {
                view.failure = words(failure);
                view.response = Some(failure.response().clone());
            }
        }
        State::Unknown(unresolved) => {
            view.unknown = Some((unresolved.since, unresolved.cause));
            view.probes = unresolved.probes;
            view.waits_for_person = unresolved.inquiry == Inquiry::ForPerson;
            view.next_probe_at = (!view.waits_for_person).then(|| unresolved.inquiry.due());
            view.failure = unresolved.failure.as_ref().and_then(words);
            view.response = unresolved.failure.map(|failure| failure.response().clone());
            view.checkpoint = unresolved.work.checkpoint;
        }
        State::Succeeded { response, terms } => {
            view.response = Some(response);
            view.settled_at = Some(terms.settled_at);
            view.expires_at = Some(terms.expires_at);
        }
        State::FailedTerminal { failure, terms, .. } => {
            view.failure = words(&failure);
            view.response = Some(failure.response().clone());
            view.settled_at = Some(terms.settled_at);
            view.expires_at = Some(terms.expires_at);
        }
        State::Tombstone { ended, terms } => {
            view.ended = Some(match ended {
                Ended::Succeeded => Status::Succeeded,
                Ended::FailedTerminal => Status::FailedTerminal,
            });
            view.settled_at = Some(terms.settled_at);
            view.expires_at = Some(terms.purge_at);
        }
        // A run is shown with its steps.
        State::Open(_) => {}
    }
    view
}

impl Store {
    /// What is recorded, as of now.
    pub(crate) fn view_of(&self, identity: &Identity) -> Result<Option<OperationView>> {
        let now = self.engine().moment().now;
        self.engine().read(|snapshot| {
            let record = snapshot.find(identity)?.and_then(|record| as_of(record, now));
            record.map(|record| view_with_compensation(snapshot, record, now)).transpose()
        })
    }
}

/// The view of a record with that of its compensation, of the same moment.
pub(crate) fn view_with_compensation(snapshot: &Snapshot, record: Record, now: Timestamp) -> Result<OperationView> {
    let id = record.head.id;
    let mut shown = view(record);
    if let Ok(compensation) = shown.identity.compensation() {
        let found = snapshot.find(&compensation)?.filter(|found| !found.is_of_earlier_life(id));
        shown.compensation = found.and_then(|found| as_of(found, now)).map(view).map(Box::new);
    }
    Ok(shown)
}

/// A record as time has made it; nothing once it is forgotten.
pub(crate) fn as_of(record: Record, now: Timestamp) -> Option<Record> {
    match record.at(now) {
        Aged::Same(record) | Aged::Moved(record) => Some(record),
        Aged::Gone => None,
    }
}

impl DecisionView {
    fn of(decision: Decision) -> Self {
        let Decision { at, witness, by, reason, ruling, attempt } = decision;
        Self { at, witness, by: by.into(), reason: reason.into(), ruling, attempt }
    }
}
