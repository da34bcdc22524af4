//! Which stores' transactions this thread is in: a call of it that has to write would wait for its own end for ever.

use std::cell::RefCell;

use super::Shared;
use crate::error::{Error, ErrorKind, Result};

thread_local! {
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread is inside, until it is dropped.
#[derive(Debug)]
pub(super) struct Inside;

impl Inside {
    pub(super) fn enter(shared: &Shared) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push(address(shared)));
        Self
    }

    pub(super) fn is_within(shared: &Shared) -> bool {
        // A thread that ends is inside nothing; what it keeps for itself may be dropped after this.
        INSIDE.try_with(|inside| inside.borrow().contains(&address(shared))).unwrap_or(false)
    }

    /// Refuses what cannot go on from inside.
    pub(super) fn refuse(shared: &Shared) -> Result<()> {
        if Self::is_within(shared) {
            return Err(Error::new(
                ErrorKind::Refused,
                "this thread is inside a transaction of the same store, and this call would wait for its end: make it \
                 before or after, or use what the transaction offers",
            ));
        }
        Ok(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // They end in the reverse order of their beginnings.
        INSIDE.with_borrow_mut(Vec::pop);
    }
}

fn address(shared: &Shared) -> usize {
    std::ptr::from_ref(shared).addr()
}
