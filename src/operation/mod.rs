//! One operation, once: the door to the state machine.

mod answer;
mod begin;
mod claim;
mod run;
mod spec;
mod view;

pub use answer::{Begin, Conflict, Expired, InProgress, Replay, Reserve, RetryLater, UnknownOutcome};
pub(crate) use claim::Settled;
pub use claim::{AfterFailure, Claim, FencingToken, Reservation, Settlement};
pub use run::{Failure, Outcome};
pub use spec::{Nonce, Operation};
pub(crate) use view::view;
pub use view::{DecisionView, OperationView};
