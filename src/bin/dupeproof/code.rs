//! Every exit code that is ours, in one place. They are part of the interface and do not change.

/// Done.
pub(crate) const DONE: u8 = 0;
/// It failed: the message says why, and what to do.
pub(crate) const FAILED: u8 = 1;
/// The arguments are wrong. Nothing was done.
pub(crate) const WRONG_USAGE: u8 = 2;
/// There is no such store, record or command.
pub(crate) const NOT_FOUND: u8 = 3;
/// The record's state does not allow it; of `reconcile`: some outcomes are still unknown.
pub(crate) const REFUSED: u8 = 4;

/// `run`: somebody else is running it.
pub(crate) const RUN_IN_PROGRESS: u8 = 120;
/// `run`: the key was used for another command, file or input.
pub(crate) const RUN_CONFLICT: u8 = 121;
/// `run`: nobody knows whether it happened.
pub(crate) const RUN_UNKNOWN: u8 = 122;
/// `run`: it ran so long ago that its output is gone.
pub(crate) const RUN_EXPIRED: u8 = 123;
/// `run`: it failed without having happened, and may be tried again later.
pub(crate) const RUN_RETRY_LATER: u8 = 124;
/// `run`: dupeproof itself failed, wrong usage included, because 2 could be the command's.
pub(crate) const RUN_FAILED: u8 = 125;
/// `run`: the command cannot be executed, as shells have it.
pub(crate) const RUN_NOT_EXECUTABLE: u8 = 126;
/// `run`: the command cannot be found, as shells have it.
pub(crate) const RUN_NOT_FOUND: u8 = 127;
