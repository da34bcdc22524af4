//! A database of the application that a store lives in: laid out once, held once.

use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, Durability, TableHandle, TransactionError};

use super::fault;
use super::schema;
use super::tables::{META, PREFIX};
use crate::error::{Error, ErrorKind, Result};
use crate::options::{Missing, Options, Recovery, Sharing};

/// The databases that stores of this process live in, by address: each is kept alive while it stands here. A second
/// store on one would end the claims of the first.
static TAKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The right to be the one store on a database in this process, given up when dropped.
#[derive(Debug)]
pub(super) struct Attachment(Arc<Database>);

impl Attachment {
    pub(super) fn take(database: &Arc<Database>) -> Result<Self> {
        let mut taken = TAKEN.lock();
        if taken.contains(&address(database)) {
            return Err(Error::new(ErrorKind::OpenElsewhere, "a store of this process is attached to the database"));
        }
        taken.push(address(database));
        Ok(Self(database.clone()))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let address = address(&self.0);
        TAKEN.lock().retain(|taken| *taken != address);
    }
}

fn address(database: &Arc<Database>) -> usize {
    Arc::as_ptr(database).addr()
}

/// Creates our tables if there are none, in one commit, or accepts those that are there. Says whether it created them.
///
/// Never waits for a write transaction: it may be open on this very thread.
pub(super) fn lay_out(database: &Database, options: &Options) -> Result<bool> {
    let mut txn = database.try_begin_write().map_err(|error| match error {
        TransactionError::WouldBlock => {
            Error::new(ErrorKind::Busy, "a write transaction is open on the database: end it first")
        }
        other => fault::transaction(other),
    })?;
    // The engine refuses volatile commits where other processes may write, which is the one thing that tells.
    let is_alone = txn.set_durability(Durability::None).is_ok();
    if options.sharing == Sharing::Exclusive && !is_alone {
        return Err(Error::invalid_input(
            "the database is open for several processes: attach with Sharing::Shared, or this store would end the \
             claims of the others",
        ));
    }
    let ours: Vec<String> = txn
        .list_tables()
        .map_err(fault::storage)?
        .map(|table| table.name().to_owned())
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    if ours.iter().any(|name| name == META.name()) {
        txn.abort().map_err(fault::storage)?;
        return schema::check_format(database).map(|()| false);
    }
    if let Some(name) = ours.first() {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!("the database has the table {name}, but no {}", META.name()),
        ));
    }
    if options.missing == Missing::Refuse {
        return Err(Error::new(ErrorKind::NotFound, "the database holds no store"));
    }
    txn.set_durability(Durability::Immediate)
        .map_err(|error| Error::new(ErrorKind::Io, format!("begin a durable commit: {error}")))?;
    match options.recovery {
        Recovery::Scan => txn.set_two_phase_commit(true),
        Recovery::Quick => txn.set_quick_repair(true),
    }
    schema::create_tables(&txn)?;
    txn.commit().map_err(fault::commit)?;
    Ok(true)
}
