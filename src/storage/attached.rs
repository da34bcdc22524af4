//! The database behind a store: one of its own, or one that an application has open and lends.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use redb::Database;

use super::fault;
use crate::error::{Error, ErrorKind, Result};

/// Databases that a store of this process is attached to. A second store would take the claims of the first for those
/// of an earlier open, and end them.
static LENT: Mutex<Vec<Weak<Database>>> = Mutex::new(Vec::new());

/// Whose database it is.
pub(super) enum Owned {
    Ours(Database),
    Lent(Lent),
}

/// A database of an application's, until it is dropped.
pub(super) struct Lent(Arc<Database>);

impl Lent {
    pub(super) fn by(application: Arc<Database>) -> Result<Self> {
        let mut lent = LENT.lock();
        lent.retain(|other| other.strong_count() > 0);
        if lent.iter().any(|other| other.as_ptr() == Arc::as_ptr(&application)) {
            return Err(Error::new(
                ErrorKind::OpenElsewhere,
                "a store of this process is attached to this database already: clone that one",
            ));
        }
        lent.push(Arc::downgrade(&application));
        Ok(Self(application))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        LENT.lock().retain(|other| other.as_ptr() != Arc::as_ptr(&self.0));
    }
}

impl Owned {
    pub(super) fn compact(&mut self) -> Result<bool> {
        match self {
            Self::Ours(database) => database.compact().map_err(fault::compaction),
            Self::Lent(_) => Err(Error::new(
                ErrorKind::Refused,
                "the database is the application's: close the store, and let the application compact it",
            )),
        }
    }

    pub(super) fn close(self) -> Result<()> {
        match self {
            Self::Ours(database) => database.close().map_err(fault::database),
            Self::Lent(_) => Ok(()),
        }
    }
}

impl Deref for Owned {
    type Target = Database;

    fn deref(&self) -> &Database {
        match self {
            Self::Ours(database) => database,
            Self::Lent(Lent(database)) => database,
        }
    }
}
