//! The rules of the outbox: what a message is, what can happen to it, and where it is found.

pub(crate) mod content;
pub(crate) mod event;
pub(crate) mod index;
pub(crate) mod stored;
pub(crate) mod transition;
