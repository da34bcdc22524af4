//! `verify` finds every kind of damage that can be planted below it.

use redb::{Builder, ReadableTable, WriteTransaction};

use super::backend::LabBackend;
use super::script::options;
use super::{StoreFile, clock_at};
use crate::machine::index::{Shelf, SideRow};
use crate::machine::key::Identity;
use crate::machine::record::{Head, Record, RecordId, State, Status};
use crate::options::Recovery;
use crate::progress::Reporter;
use crate::storage::audit::{Problem, VerifyReport};
use crate::storage::codec::encode;
use crate::storage::tables::{INDEX, RECORDS, UNSETTLED, index_key, shelf, unsettled_value};
use crate::storage::{fault, schema};

/// Changes an image below everything that keeps it consistent.
pub(super) fn tampered(image: Vec<u8>, change: impl FnOnce(&WriteTransaction)) -> Vec<u8> {
    let backend = LabBackend::of(image);
    let database = Builder::new().create_with_backend(backend.clone()).expect("opens");
    let txn = database.begin_write().expect("begins");
    change(&txn);
    txn.commit().expect("commits");
    database.close().expect("closes");
    backend.cache()
}

/// The image of a store that holds exactly these records.
pub(super) fn image_of(records: &[Record]) -> Vec<u8> {
    tampered(schema::image().expect("an image"), |txn| {
        for record in records {
            let id = record.head.id.0;
            txn.open_table(RECORDS).unwrap().insert(id, encode(record).as_slice()).unwrap();
            txn.open_table(INDEX).unwrap().insert(index_key(&record.head.identity), id).unwrap();
            match record.side_row() {
                SideRow::Unsettled(row) => {
                    txn.open_table(UNSETTLED).unwrap().insert(id, unsettled_value(&row)).unwrap();
                }
                SideRow::Retention(which, due) => {
                    txn.open_table(shelf(which)).unwrap().insert((due.as_unix_millis(), id), ()).unwrap();
                }
            }
        }
    })
}

/// The samples, and the runs of those that are steps.
fn records() -> Vec<Record> {
    let samples: Vec<Record> = super::records::samples().into_iter().map(|(_, record)| record).collect();
    let open = samples.iter().find(|record| record.status() == Status::Open).expect("there is one").clone();
    let ids = samples.len() as u64 + 1..;
    let runs = samples.iter().filter_map(|record| record.head.identity.run_of()).zip(ids).map(|(run, id)| Record {
        head: Head { id: RecordId(id), identity: Identity::run(&run), ..open.head.clone() },
        state: open.state.clone(),
    });
    samples.iter().cloned().chain(runs).collect()
}

fn audit(image: Vec<u8>) -> VerifyReport {
    let file = StoreFile::on(LabBackend::of(image), None, &options(&clock_at(0), Recovery::Scan)).expect("opens");
    file.read(|snapshot| snapshot.audit(&Reporter::default())).expect("reads")
}

fn audit_after(change: impl FnOnce(&WriteTransaction)) -> Vec<Problem> {
    let report = audit(tampered(image_of(&records()), change));
    assert_eq!(report.problem_count, report.problems.len() as u64);
    assert!(report.problems.iter().all(|problem| !problem.to_string().is_empty()));
    report.problems
}

/// The number of the first record in this state.
fn number(matches: impl Fn(&State) -> bool) -> u64 {
    records().iter().find(|record| matches(&record.state)).expect("there is one").head.id.0
}

fn of(id: u64) -> Record {
    records().into_iter().find(|record| record.head.id.0 == id).expect("there is one")
}

#[test]
fn store_of_every_kind_of_record_is_clean() {
    let report = audit(image_of(&records()));
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!(report.records, records().len() as u64);
}

#[test]
fn step_without_its_run_is_found() {
    let run = records().pop().expect("the last one is a run");
    let of_run = |record: &&Record| record.head.identity.run_of().map(|run| Identity::run(&run));
    let step = records().iter().find(|record| of_run(record).as_ref() == Some(&run.head.identity)).unwrap().head.id.0;
    let problems = audit_after(|txn| {
        txn.open_table(RECORDS).unwrap().remove(run.head.id.0).unwrap();
        txn.open_table(INDEX).unwrap().remove(index_key(&run.head.identity)).unwrap();
        txn.open_table(UNSETTLED).unwrap().remove(run.head.id.0).unwrap();
    });
    assert_eq!(problems, [Problem::StrayStep { record: step }]);
}

#[test]
fn missing_index_row_is_found() {
    let record = of(3);
    let found = audit_after(|txn| {
        txn.open_table(INDEX).unwrap().remove(index_key(&record.head.identity)).unwrap().expect("was there");
    });
    assert_eq!(found, [Problem::NotIndexed { record: 3 }]);
}

#[test]
fn index_row_to_the_record_of_another_is_found() {
    let record = of(3);
    let found = audit_after(|txn| {
        txn.open_table(INDEX).unwrap().insert(index_key(&record.head.identity), 4).unwrap();
    });
    assert_eq!(found, [Problem::NotIndexed { record: 3 }, Problem::StrayIndexRow { record: 4 }]);
}

#[test]
fn index_row_that_leads_nowhere_is_found() {
    let found = audit_after(|txn| {
        txn.open_table(INDEX).unwrap().insert((1, "t", "o", "nobody", "", 0), 999).unwrap();
    });
    assert_eq!(found, [Problem::StrayIndexRow { record: 999 }]);
}

#[test]
fn missing_side_row_is_found() {
    for id in 1..=records().len() as u64 {
        let side = of(id).side_row();
        let found = audit_after(|txn| match side {
            SideRow::Unsettled(_) => {
                txn.open_table(UNSETTLED).unwrap().remove(id).unwrap().expect("was there");
            }
            SideRow::Retention(which, due) => {
                txn.open_table(shelf(which)).unwrap().remove((due.as_unix_millis(), id)).unwrap().expect("was there");
            }
        });
        assert!(matches!(&found[..], [Problem::SideRow { record, .. }] if *record == id), "record {id}: {found:?}");
    }
}

#[test]
fn orphaned_side_rows_are_found() {
    let unsettled = number(|state| matches!(state, State::Executing(_)));
    let SideRow::Unsettled(row) = of(unsettled).side_row() else { panic!("an executing record is unsettled") };
    let found = audit_after(|txn| {
        txn.open_table(UNSETTLED).unwrap().insert(999, unsettled_value(&row)).unwrap();
    });
    assert_eq!(found, [Problem::StraySideRow { record: 999 }]);
    for which in Shelf::ALL {
        // Of a record that is not there, and of one that is not settled.
        for id in [999, unsettled] {
            let found = audit_after(|txn| {
                txn.open_table(shelf(which)).unwrap().insert((7, id), ()).unwrap();
            });
            assert_eq!(found, [Problem::StraySideRow { record: id }], "{which:?}");
        }
    }
}

#[test]
fn side_row_of_a_settled_record_among_the_unsettled_is_found() {
    let settled = number(|state| matches!(state, State::Succeeded { .. }));
    let found = audit_after(|txn| {
        txn.open_table(UNSETTLED).unwrap().insert(settled, (2, 7, 1, 7)).unwrap();
    });
    assert_eq!(found, [Problem::StraySideRow { record: settled }]);
}

#[test]
fn wrong_due_time_is_found() {
    let executing = number(|state| matches!(state, State::Executing(_)));
    let SideRow::Unsettled(row) = of(executing).side_row() else { panic!("an executing record is unsettled") };
    let (status, due, incarnation, since) = unsettled_value(&row);
    for wrong in [
        (status, due + 1, incarnation, since),
        (status + 1, due, incarnation, since),
        (99, due, incarnation, since),
        (status, due, incarnation + 1, since),
        (status, due, incarnation, since + 1),
    ] {
        let found = audit_after(|txn| {
            txn.open_table(UNSETTLED).unwrap().insert(executing, wrong).unwrap();
        });
        assert!(
            matches!(&found[..], [Problem::SideRow { record, .. }] if *record == executing),
            "{wrong:?}: {found:?}"
        );
    }
    let settled = number(|state| matches!(state, State::Succeeded { .. }));
    let SideRow::Retention(which, due) = of(settled).side_row() else { panic!("a settled record is retained") };
    let found = audit_after(|txn| {
        let mut table = txn.open_table(shelf(which)).unwrap();
        table.remove((due.as_unix_millis(), settled)).unwrap().expect("was there");
        table.insert((due.as_unix_millis() - 1, settled), ()).unwrap();
    });
    let is_found = matches!(
        &found[..],
        [Problem::SideRow { record, .. }, Problem::StraySideRow { record: stray }] if *record == settled && *stray == settled
    );
    assert!(is_found, "{found:?}");
}

#[test]
fn unreadable_row_is_found_and_what_leads_to_it_too() {
    for id in 1..=records().len() as u64 {
        let found = audit_after(|txn| {
            let mut table = txn.open_table(RECORDS).unwrap();
            let mut row = table.get(id).unwrap().expect("was there").value().to_vec();
            let last = row.len() - 1;
            row[last] ^= 1;
            table.insert(id, row.as_slice()).unwrap();
        });
        let mut names = found.iter().map(|problem| match problem {
            Problem::Unreadable { record, .. }
            | Problem::StrayIndexRow { record }
            | Problem::StraySideRow { record } => *record,
            other => panic!("record {id}: {other:?}"),
        });
        assert!(matches!(&found[0], Problem::Unreadable { record, .. } if *record == id), "{found:?}");
        assert!(names.all(|record| record == id), "{found:?}");
    }
}

#[test]
fn good_row_in_the_place_of_another_is_unreadable() {
    let found = audit_after(|txn| {
        txn.open_table(RECORDS).unwrap().insert(3, encode(&of(4)).as_slice()).unwrap();
    });
    assert!(matches!(found[0], Problem::Unreadable { record: 3, .. }), "{found:?}");
}

#[test]
fn more_problems_than_are_listed_are_counted() {
    let many: Vec<_> = (1..=150)
        .map(|id| {
            let mut record = of(1);
            record.head.id = RecordId(id);
            record.head.identity.key = crate::OperationKey::new("t", "o", id.to_string()).expect("valid key");
            record
        })
        .collect();
    let report = audit(tampered(image_of(&many), |txn| {
        txn.open_table(INDEX).unwrap().retain(|_, _| false).unwrap();
    }));
    assert_eq!((report.problem_count, report.problems.len()), (150, 100));
}

#[test]
fn audit_of_a_missing_table_is_an_error_that_names_damage() {
    let image = tampered(schema::image().expect("an image"), |txn| {
        txn.delete_table(RECORDS).map_err(fault::table).expect("was there");
    });
    let options = options(&clock_at(0), Recovery::Scan);
    let error = StoreFile::on(LabBackend::of(image), None, &options)
        .and_then(|file| file.read(|snapshot| snapshot.audit(&Reporter::default())))
        .expect_err("a table is missing");
    assert_eq!(error.kind(), crate::ErrorKind::Damaged);
}
