//! An embedded, file-backed idempotency store: it makes side effects safe to retry on one machine, without a server.
//!
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
mod engine;
mod error;
mod inspect;
mod machine;
mod maintenance;
mod operation;
mod options;
mod reconcile;
mod storage;
mod store;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use inspect::{Filter, Listing, Page, Stats};
pub use machine::fingerprint::{Fingerprint, FingerprintAlgorithm};
pub use machine::key::OperationKey;
pub use machine::policy::{Backoff, Remote, Retention, Retry};
pub use machine::record::{Ruling, Status, TerminalCause, UnknownCause};
pub use machine::response::{FailureReport, Response, ResponsePolicy};
pub use machine::time::Timestamp;
pub use maintenance::SweepReport;
pub use operation::{
    AfterFailure, Begin, Claim, Conflict, DecisionView, Expired, Failure, FencingToken, InProgress, Nonce, Operation,
    OperationView, Outcome, Replay, Reservation, Reserve, RetryLater, Settlement, UnknownOutcome,
};
pub use options::{Options, Recovery, Sharing};
pub use reconcile::{Decision, Verdict};
pub use storage::audit::{Problem, VerifyReport};
pub use store::Store;
