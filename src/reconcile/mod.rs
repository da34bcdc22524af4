//! The way out of an unknown outcome: ask the provider under a lease, or let a person decide.

mod probe;
mod reconciler;
mod round;
mod verdict;

pub use probe::{Finding, Inquiry, Reconcile, Subject};
pub use reconciler::{ReconcileReport, Reconciled, Reconciler, ReconcilerHandle};
pub use verdict::{Decision, Verdict};
