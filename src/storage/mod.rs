//! Rows on disk: the only place that knows the storage engine.

pub(crate) mod audit;
mod backup;
pub(crate) mod batch;
mod codec;
mod create;
mod fault;
pub(crate) mod file;
#[cfg(test)]
mod lab;
mod memory;
pub(crate) mod outbox;
mod place;
mod probation;
mod schema;
pub(crate) mod snapshot;
pub(crate) mod sweep;
mod tables;
