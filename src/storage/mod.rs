//! Rows on disk: the only place that knows the storage engine.

mod attached;
pub(crate) mod audit;
mod backup;
pub(crate) mod batch;
mod codec;
mod create;
pub(crate) mod fault;
pub(crate) mod file;
#[cfg(test)]
mod lab;
mod members;
mod memory;
pub(crate) mod outbox;
mod own_tables;
mod place;
#[cfg(feature = "json")]
mod portable;
mod probation;
mod schema;
pub(crate) mod snapshot;
pub(crate) mod sweep;
mod tables;
