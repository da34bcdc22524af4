//! The public API, as a user has it. One binary; one file a subject.
#![cfg(test)]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod bad_input;
mod claims;
#[cfg(feature = "cli")]
mod cli;
mod clocks;
mod concurrency;
mod examples;
mod inbox;
mod kill;
mod model;
mod operation;
mod outbox;
#[cfg(feature = "json")]
mod portable;
mod progress;
mod reconcile;
mod retention;
mod shared;
mod support;
mod tidy;
mod transaction;
mod within;
mod workflow;
