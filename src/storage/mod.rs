//! Rows on disk: the only place that knows the storage engine.

mod attached;
pub(crate) mod audit;
mod backup;
pub(crate) mod batch;
mod codec;
mod create;
mod fault;
pub(crate) mod file;
mod inside;
#[cfg(test)]
mod lab;
mod memory;
mod own_tables;
mod place;
mod probation;
mod schema;
pub(crate) mod snapshot;
pub(crate) mod sweep;
mod tables;

pub(crate) use fault::guard;
