//! Which stores' transactions this thread is in: a call of it that has to write would wait for its own end for ever.

use std::cell::RefCell;
use std::sync::Arc;

use super::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::snapshot::Snapshot;

thread_local! {
    /// Which store, and how it was before.
    static INSIDE: RefCell<Vec<(usize, Arc<Snapshot>)>> = const { RefCell::new(Vec::new()) };
}

/// This thread is inside, until it is dropped.
#[derive(Debug)]
pub(super) struct Inside;

impl Inside {
    pub(super) fn enter(shared: &Shared, before: Arc<Snapshot>) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push((address(shared), before)));
        Self
    }

    /// The store as it was before the transaction that this thread is in.
    pub(super) fn before(shared: &Shared) -> Option<Arc<Snapshot>> {
        let find = |inside: &RefCell<Vec<(usize, Arc<Snapshot>)>>| {
            inside.borrow().iter().find(|(store, _)| *store == address(shared)).map(|(_, before)| before.clone())
        };
        // A thread that ends is inside nothing; what it keeps for itself may be dropped after this.
        INSIDE.try_with(find).unwrap_or(None)
    }

    pub(super) fn is_within(shared: &Shared) -> bool {
        Self::before(shared).is_some()
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
