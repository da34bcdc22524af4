//! `verify`: every row is read, and what is derived from it is computed again and compared.

use std::fmt;

use redb::ReadableTable;

use super::codec::decode;
use super::fault;
use super::snapshot::Snapshot;
use super::tables::{self, index_key, shelf, unsettled_row};
use crate::error::Result;
use crate::machine::index::{Shelf, SideRow};
use crate::machine::key::Identity;
use crate::machine::record::{Record, RecordId};
use crate::progress::{Counter, Reporter, Work};

/// Problems listed one by one; the rest is only counted.
const PROBLEMS_LISTED_MAX: usize = 100;

/// What `verify` found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Rows read.
    pub records: u64,
    /// Messages of the outbox read.
    pub messages: u64,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first hundred of them.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// assert!(store.verify()?.is_clean());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    pub(super) fn note(&mut self, problem: Problem) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_LISTED_MAX {
            self.problems.push(problem);
        }
    }
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A row cannot be read.
    Unreadable {
        /// Its number.
        record: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// No index row leads to a record, so a repeat would run.
    NotIndexed {
        /// Its number.
        record: u64,
    },
    /// An index row leads nowhere, or to another operation's record.
    StrayIndexRow {
        /// The number it names.
        record: u64,
    },
    /// The side row of a record is missing or wrong, so that the sweep would come too early, too late or never.
    SideRow {
        /// Its number.
        record: u64,
        /// What was expected.
        expected: String,
    },
    /// A side row belongs to no record, or to one that should not have it.
    StraySideRow {
        /// The number it names.
        record: u64,
    },
    /// A step of a run, or the compensation of one, whose run is not there: the next run of that key would find it done.
    StrayStep {
        /// Its number.
        record: u64,
    },
    /// The row of a message cannot be read.
    UnreadableMessage {
        /// Its number.
        message: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A side row of a message is missing or wrong, so that it would be delivered too early, too late or never.
    MessageSideRow {
        /// Its number.
        message: u64,
        /// What was expected.
        expected: String,
    },
    /// A side row belongs to no message, or to one that should not have it.
    StrayMessageSideRow {
        /// The number it names.
        message: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { record, reason } => write!(f, "record {record} cannot be read: {reason}"),
            Self::NotIndexed { record } => write!(f, "record {record} is not in the index"),
            Self::StrayIndexRow { record } => write!(f, "an index row leads to record {record}, which is not its own"),
            Self::SideRow { record, expected } => write!(f, "record {record} lacks its side row: {expected}"),
            Self::StraySideRow { record } => write!(f, "a side row of record {record} should not be there"),
            Self::StrayStep { record } => write!(f, "record {record} is a step of a run that is not there"),
            Self::UnreadableMessage { message, reason } => write!(f, "message {message} cannot be read: {reason}"),
            Self::MessageSideRow { message, expected } => write!(f, "message {message} lacks its side row: {expected}"),
            Self::StrayMessageSideRow { message } => write!(f, "a side row of message {message} should not be there"),
        }
    }
}

impl Snapshot {
    /// Reads everything once, in the order of the tables.
    pub(crate) fn audit(&self, reporter: &Reporter) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        // Every record has an index row and a side row, and all three are visited.
        let mut counter = reporter.count(Work::Verify, Some(self.count()?.saturating_mul(3)));
        let unsettled = self.txn.open_table(tables::UNSETTLED).map_err(fault::table)?;
        for entry in self.records().iter().map_err(fault::storage)? {
            let (id, row) = entry.map_err(fault::storage)?;
            let id = RecordId(id.value());
            report.records += 1;
            counter.row();
            match decode(id, row.value()) {
                Ok(record) => {
                    self.audit_index(&record, &mut report)?;
                    self.audit_run(&record, &mut report)?;
                    self.audit_side_row(&record, &unsettled, &mut report)?;
                }
                Err(error) => report.note(Problem::Unreadable { record: id.0, reason: error.to_string() }),
            }
        }
        self.audit_strays(&unsettled, &mut report, &mut counter)?;
        self.audit_outbox(&mut report)?;
        counter.finish();
        Ok(report)
    }

    fn audit_index(&self, record: &Record, report: &mut VerifyReport) -> Result<()> {
        let found = self.index().get(index_key(&record.head.identity)).map_err(fault::storage)?;
        if found.map(|id| id.value()) != Some(record.head.id.0) {
            report.note(Problem::NotIndexed { record: record.head.id.0 });
        }
        Ok(())
    }

    fn audit_run(&self, record: &Record, report: &mut VerifyReport) -> Result<()> {
        let Some(run) = record.head.identity.run_of() else { return Ok(()) };
        if self.index().get(index_key(&Identity::run(&run))).map_err(fault::storage)?.is_none() {
            report.note(Problem::StrayStep { record: record.head.id.0 });
        }
        Ok(())
    }

    fn audit_side_row(
        &self,
        record: &Record,
        unsettled: &impl ReadableTable<u64, tables::UnsettledValue>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let id = record.head.id.0;
        let expected = record.side_row();
        let is_there = match expected {
            SideRow::Unsettled(row) => {
                let found = unsettled.get(id).map_err(fault::storage)?;
                found.and_then(|found| unsettled_row(found.value())) == Some(row)
            }
            SideRow::Retention(which, due) => {
                let table = self.txn.open_table(shelf(which)).map_err(fault::table)?;
                table.get((due.as_unix_millis(), id)).map_err(fault::storage)?.is_some()
            }
        };
        if !is_there {
            report.note(Problem::SideRow { record: id, expected: format!("{expected:?}") });
        }
        Ok(())
    }

    /// Every row that is derived must come from a record that derives it.
    fn audit_strays(
        &self,
        unsettled: &impl ReadableTable<u64, tables::UnsettledValue>,
        report: &mut VerifyReport,
        counter: &mut Counter<'_>,
    ) -> Result<()> {
        for entry in self.index().iter().map_err(fault::storage)? {
            let (key, id) = entry.map_err(fault::storage)?;
            counter.row();
            let id = RecordId(id.value());
            let is_own =
                self.read(id).ok().flatten().is_some_and(|record| index_key(&record.head.identity) == key.value());
            if !is_own {
                report.note(Problem::StrayIndexRow { record: id.0 });
            }
        }
        for entry in unsettled.iter().map_err(fault::storage)? {
            let id = RecordId(entry.map_err(fault::storage)?.0.value());
            counter.row();
            let is_own = self.side_row_of(id).is_some_and(|side| matches!(side, SideRow::Unsettled(_)));
            if !is_own {
                report.note(Problem::StraySideRow { record: id.0 });
            }
        }
        for which in Shelf::ALL {
            let table = self.txn.open_table(shelf(which)).map_err(fault::table)?;
            for entry in table.iter().map_err(fault::storage)? {
                let (due, id) = entry.map_err(fault::storage)?.0.value();
                counter.row();
                let is_own = matches!(
                    self.side_row_of(RecordId(id)),
                    Some(SideRow::Retention(shelf, at)) if shelf == which && at.as_unix_millis() == due
                );
                if !is_own {
                    report.note(Problem::StraySideRow { record: id });
                }
            }
        }
        Ok(())
    }

    fn side_row_of(&self, id: RecordId) -> Option<SideRow> {
        // An unreadable row was reported where it lies.
        self.read(id).ok().flatten().map(|record| record.side_row())
    }
}
