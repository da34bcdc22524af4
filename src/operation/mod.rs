//! One operation, once: the door to the state machine.

mod answer;
mod begin;
mod claim;
mod run;
mod spec;
mod view;

pub(crate) use begin::turned_away;
#[cfg(feature = "json")]
pub(crate) use claim::to_json;
pub(crate) use claim::{odd_answer, replay_of};

pub use answer::{Begin, Conflict, Expired, InProgress, Replay, Reserve, RetryLater, UnknownOutcome};
pub use claim::{AfterFailure, Claim, FencingToken, Reservation, Settlement};
pub use run::{Failure, Outcome};
pub use spec::{Nonce, Operation};
pub use view::{DecisionView, OperationView};
pub(crate) use view::{as_of, view, view_with_compensation};
