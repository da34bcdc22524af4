//! Which files this thread has a transaction of the application open on.
//!
//! The engine below has one place for a writer. A thread that waits for it while it holds it would wait for ever, so
//! whoever is about to wait asks here first. Reads may go on: they find the database here, because the gate may be
//! kept for somebody who waits for this very thread.

use std::cell::RefCell;
use std::sync::Arc;

use redb::Database;

use super::file::StoreFile;

thread_local! {
    /// By address: a file stays where it is while a transaction on it is open.
    static OPEN: RefCell<Vec<(usize, Arc<Database>)>> = const { RefCell::new(Vec::new()) };
}

/// Until it is dropped, this thread is inside.
pub(super) struct Inside(usize);

impl Inside {
    pub(super) fn enter(file: &StoreFile, database: Arc<Database>) -> Self {
        let address = address(file);
        OPEN.with_borrow_mut(|open| open.push((address, database)));
        Self(address)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        OPEN.with_borrow_mut(|open| open.retain(|(file, _)| *file != self.0));
    }
}

/// The database under a file this thread is inside of.
pub(super) fn database_of(file: &StoreFile) -> Option<Arc<Database>> {
    let find = |open: &Vec<(usize, Arc<Database>)>| {
        let place = open.iter().find(|(address, _)| *address == self::address(file));
        place.map(|(_, database)| database.clone())
    };
    // A thread that ends is in no transaction any more.
    OPEN.try_with(|open| find(&open.borrow())).ok().flatten()
}

fn address(file: &StoreFile) -> usize {
    std::ptr::from_ref(file).addr()
}
