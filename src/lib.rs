//! An embedded, file-backed idempotency store: it makes side effects safe to retry on one machine, without a server.
//!
//! A worker can perform an action and die before it records success; the client times out and retries; the broker
//! redelivers. dupeproof keeps one durable record per business operation in one file and answers every repeat.
//!
//! # The whole of it
//!
//! ```
//! use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("effects.redb");
//!
//! let store = Store::open(&path)?;
//! let body = b"12.00 EUR to Jane";
//! let operation = Operation::new(OperationKey::new("acme", "pay", "invoice-981")?, Fingerprint::of_bytes(body));
//!
//! for _ in 0..3 {
//!     match store.begin(&operation)? {
//!         // The first time: it is ours. Pay, then say how it ended.
//!         Begin::Execute(claim) => {
//!             claim.succeed_raw("receipt 17")?;
//!         }
//!         // Every other time: the stored result.
//!         Begin::Replay(replay) => assert_eq!(replay.value()?, b"receipt 17"),
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # Ok::<(), dupeproof::Error>(())
//! ```
//!
//! # Choose the key well
//!
//! The key means what the *user* calls one operation: `invoice_id`, `campaign_id/recipient_id`, `document_id@version`.
//! A fresh random key for each retry protects nothing. See [`OperationKey`].
//!
//! # What is promised
//!
//! An effect is started at most once per granted attempt, a new attempt is granted only when the earlier one is known
//! not to have happened, and a settled outcome is replayed to every repeat.
//!
//! # What cannot be promised
//!
//! Exactly once, without a cooperating remote side. If the process dies between the effect and its record, the outcome
//! is [`Unknown`](Begin::Unknown), and stays so until the owner speaks late, a [probe](Store::reconciler) finds it out at the
//! provider, or a person [resolves](Store::resolve) it, or, if the remote side is declared to [dedupe](Remote::DedupesOnKey), it is sent again
//! under the same [downstream key](Claim::downstream_key) in time. It is no job queue, no distributed lock and no
//! response cache. It does not work on network file systems, and on platforms without file locks nothing keeps a second
//! process out.
//!
//! # Where to start
//!
//! - [`Store::begin`] and [`Claim`], or [`Store::run_raw`] (with the feature `json`: `Store::run`) for both in one closure.
//! - [`Operation`] for leases, retention, attempts and waiting; [`Options`] for the file.
//! - [`Store::workflow`] for jobs of several steps, each with a key of its own; [`Store::compensate`] and
//!   [`Run::compensate`] to undo what was done.
//! - [`Store::inbox`] for messages that come in, [`Store::transaction`] for your own tables in the same commit.
//! - [`Store::outbox`] for what other systems are to hear of.
//! - [`ErrorKind`] for what to do when a call fails; [`Store::reconciler`] and [`Store::resolve`] for unknown
//!   outcomes.
//! - [`ManualClock`] and [`Store::in_memory`] for your own tests.
//!
//! # Features
//!
//! None is on by default, and features only add. `json`: typed responses (`succeed`, `response`, `run`), RFC 8785
//! fingerprints of JSON, and the store as lines of JSON (`export`, `import`). `cli`: the program `dupeproof`; a user of the library never compiles it.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod artifact;
mod clock;
mod compensation;
mod engine;
mod error;
mod inbox;
mod inspect;
mod machine;
mod maintenance;
mod operation;
mod options;
mod outbox;
#[cfg(feature = "json")]
mod portable;
mod progress;
mod reconcile;
mod storage;
mod store;
mod transaction;
mod workflow;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use inbox::{Inbox, Processed};
pub use inspect::{Filter, Listing, Page, Stats};
pub use machine::fingerprint::{Fingerprint, FingerprintAlgorithm};
pub use machine::key::{Identity, Kind, OperationKey, RunKey, StepKey};
pub use machine::message::content::Message;
pub use machine::message::stored::{DeadCause, MessageStatus};
pub use machine::policy::{Backoff, Remote, Retention, Retry};
pub use machine::record::{Ruling, Status, TerminalCause, UnknownCause, Witness};
pub use machine::response::{Artifact, FailureReport, Response, ResponsePolicy};
pub use machine::time::Timestamp;
pub use machine::workflow::RunStatus;
pub use maintenance::SweepReport;
pub use operation::{
    AfterFailure, Begin, Claim, Conflict, DecisionView, Expired, Failure, FencingToken, InProgress, Nonce, Operation,
    OperationView, Outcome, Replay, Reservation, Reserve, RetryLater, Settlement, UnknownOutcome,
};
pub use options::{Options, Recovery, Sharing};
pub use outbox::{
    Delivery, DeliveryError, MessageFilter, MessageListing, MessagePage, MessageView, Outbox, Relay, RelayHandle,
    RelayReport, Sending, Sent,
};
pub use progress::{Progress, Work};
pub use reconcile::{
    Decision, Finding, Inquiry, Reconcile, ReconcileReport, Reconciled, Reconciler, ReconcilerHandle, Subject, Verdict,
};
pub use storage::audit::{Problem, VerifyReport};
pub use storage::outbox::look::OutboxStats;
pub use store::Store;
pub use transaction::{Tables, Transaction};
pub use workflow::{
    ChangedRun, Run, RunEntry, RunFilter, RunListing, RunPage, RunSummary, RunView, StepView, Undo, Workflow,
};

/// The storage engine, for the tables that an application keeps in the same file: see [`Store::transaction`].
pub use redb;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
