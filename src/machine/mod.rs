//! The pure core: what an operation is, what can happen to it, and what that does.
//!
//! No I/O, no clock, no threads, no randomness, no storage engine: `now` is an argument. If a rule is not in here, it
//! is in the wrong place.

#[cfg(feature = "json")]
mod canonical_json;
pub(crate) mod event;
pub(crate) mod fingerprint;
pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod policy;
pub(crate) mod reconcile;
pub(crate) mod record;
pub(crate) mod response;
pub(crate) mod retention;
pub(crate) mod time;
pub(crate) mod transition;
pub(crate) mod workflow;

#[cfg(test)]
mod tests;
