//! The steps of a run and their compensations: found through the index, counted for the machine, and cleared away with
//! their run.

use std::ops::Range;

use redb::ReadableTable;

use super::batch::{Batch, Removed, Slot};
use super::fault;
use super::snapshot::{Snapshot, Visit};
use super::tables::{IndexKey, index_key, unsettled_row};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::event::Context;
use crate::machine::index::UnsettledRow;
use crate::machine::key::{Identity, Kind, RunKey, StepKey};
use crate::machine::record::{Record, RecordId, Status};
use crate::machine::retention::Aged;
use crate::machine::time::Timestamp;
use crate::machine::workflow::{Members, RunAct};

/// What belongs to a run: its steps, and their compensations.
const KINDS: [Kind; 2] = [Kind::Step, Kind::Compensation];

/// Where the index has those of one kind. The compensation of an operation of the same name has no step.
fn places<'a>(kind: Kind, run: &'a Identity, bounds: &'a mut String) -> Range<IndexKeyOf<'a>> {
    let key = &run.key;
    // The least name that a step can have, and beyond the last key of the run: keys hold no control characters.
    bounds.push_str(key.key());
    bounds.push('\u{0}');
    let first = (kind.code(), key.tenant(), key.operation(), key.key(), "\u{0}", 0);
    let beyond = (kind.code(), key.tenant(), key.operation(), bounds.as_str(), "", 0);
    first..beyond
}

/// What became of the members of a run that is over.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cleared {
    pub(super) gone: usize,
    pub(super) unreadable: usize,
    /// Whether the bound was reached.
    pub(super) more: bool,
    /// Whether one stays: the row with the highest number, or one that cannot be read.
    pub(super) kept: bool,
}

type IndexKeyOf<'a> = <IndexKey as redb::Value>::SelfType<'a>;

impl Batch<'_> {
    /// Counts what belongs to a run for what is wanted of it, as the command has made it so far.
    pub(super) fn members(&self, run: &Identity, act: &RunAct, slots: &[Slot], context: &Context) -> Result<Members> {
        let entered = match act {
            RunAct::Enter(step) => Some(index_key_of(run, step)),
            RunAct::Finish(_) | RunAct::TurnBack(_) | RunAct::Undo => None,
        };
        let mut members = Members::default();
        let since = slots.iter().find(|slot| slot.is_of(run)).and_then(|slot| slot.living(context.now));
        for kind in KINDS {
            let mut bounds = String::new();
            for entry in self.index.range(places(kind, run, &mut bounds)).map_err(fault::storage)? {
                let (key, id) = entry.map_err(fault::storage)?;
                let id = RecordId(id.value());
                // What is older than its run is of an earlier life of the key.
                if since.is_none_or(|since| id < since) {
                    continue;
                }
                let status = match slots.iter().find_map(|slot| slot.pending(id)) {
                    Some(record) => record.status(),
                    None => self.status_of(id, entered.is_some(), context.now)?,
                };
                let is_entered = kind == Kind::Step && entered.as_ref().is_some_and(|key_of| key_of.is(&key.value()));
                members.add(kind, status, is_entered);
            }
        }
        Ok(members)
    }

    /// How a member stands now. Who takes a step need not know how the settled ones ended.
    fn status_of(&self, id: RecordId, is_rough: bool, now: Timestamp) -> Result<Status> {
        let row = self.unsettled.get(id.0).map_err(fault::storage)?.and_then(|row| unsettled_row(row.value()));
        match row {
            Some(row) => Ok(status_at(&row, now)),
            None if is_rough => Ok(Status::Succeeded),
            None => {
                let record = self.read(id)?.ok_or_else(|| super::batch::missing_row(id))?;
                Ok(record.status())
            }
        }
    }

    /// Removes at most so many of what belongs to a run that is over.
    pub(super) fn clear_members(&mut self, run: &Identity, rows_max: usize) -> Result<Cleared> {
        let mut found = Vec::new();
        for kind in KINDS {
            let mut bounds = String::new();
            for entry in self.index.range(places(kind, run, &mut bounds)).map_err(fault::storage)? {
                if found.len() > rows_max {
                    break;
                }
                found.push(RecordId(entry.map_err(fault::storage)?.1.value()));
            }
        }
        let mut cleared = Cleared { more: found.len() > rows_max, ..Cleared::default() };
        for id in found.into_iter().take(rows_max) {
            match self.forget(id) {
                Ok(Removed::Gone) => cleared.gone += 1,
                Ok(Removed::Kept) => cleared.kept = true,
                // One row that nobody can read must not keep the others.
                Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NewerFormat) => {
                    cleared.unreadable += 1;
                    cleared.kept = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(cleared)
    }
}

/// The place of a step in the index.
struct PlaceOf(Identity);

fn index_key_of(run: &Identity, step: &StepKey) -> PlaceOf {
    PlaceOf(Identity { kind: Kind::Step, key: run.key.clone(), step: Some(step.clone()) })
}

impl PlaceOf {
    fn is(&self, key: &IndexKeyOf<'_>) -> bool {
        index_key(&self.0) == *key
    }
}

/// What time has made of an unsettled row: as the machine would make it of the record.
fn status_at(row: &UnsettledRow, now: Timestamp) -> Status {
    match row.status {
        Status::Executing if row.due <= now => Status::Unknown,
        Status::Reserved if row.due <= now => Status::FailedRetryable,
        status => status,
    }
}

impl Snapshot {
    /// Visits what belongs to a run, first the steps and then the compensations, each in the order of names, as it is
    /// now, until `visit` says stop.
    pub(crate) fn scan_members(
        &self,
        run: &Record,
        now: Timestamp,
        mut visit: impl FnMut(Record) -> Result<Visit>,
    ) -> Result<()> {
        for kind in KINDS {
            let mut bounds = String::new();
            let places = places(kind, &run.head.identity, &mut bounds);
            for entry in self.index().range(places).map_err(fault::storage)? {
                let id = RecordId(entry.map_err(fault::storage)?.1.value());
                if id < run.head.id {
                    continue;
                }
                let record = self.read(id)?.ok_or_else(|| super::batch::missing_row(id))?;
                if record.head.identity.run_of() != Some(RunKey::of(&run.head.identity)) {
                    return Err(Error::new(
                        ErrorKind::Damaged,
                        format!("the index leads to record {}, which is of another run", id.0),
                    ));
                }
                if let Aged::Same(record) | Aged::Moved(record) = record.at(now)
                    && visit(record)? == Visit::Stop
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
