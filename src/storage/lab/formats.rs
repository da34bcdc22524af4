//! What a newer release wrote, and what another program wrote: refused, and left as it is.

use redb::{Builder, ReadableTable, TableDefinition};

use super::audits::{image_of, tampered};
use super::backend::LabBackend;
use super::codecs::sealed;
use super::records::samples;
use super::script::{operation, options};
use super::{StoreFile, clock_at};
use crate::error::ErrorKind;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::Identity;
use crate::machine::record::{Record, State};
use crate::options::{Options, Recovery};
use crate::storage::codec::encode;
use crate::storage::schema;
use crate::storage::tables::{META, RECORDS, meta};
use crate::{Filter, Page, Status, Store};

/// Opens the image, which must be refused, and says how. The file must not have been touched.
fn refused(image: Vec<u8>) -> ErrorKind {
    // Closed well, and left behind by a crash: the engine would mend that one as it opens it.
    for image in [image.clone(), left_open(image.clone())] {
        let backend = LabBackend::of(image.clone());
        let error = StoreFile::on(backend.clone(), None, &options(&clock_at(0), Recovery::Scan)).expect_err("refused");
        assert_eq!(backend.changes(), 0, "{error:?}: written to");
        assert!(backend.cache() == image, "{error:?}: changed");
    }
    let error = StoreFile::on(LabBackend::of(image), None, &options(&clock_at(0), Recovery::Scan));
    error.expect_err("refused").kind()
}

fn left_open(image: Vec<u8>) -> Vec<u8> {
    let backend = LabBackend::of(image);
    let database = Builder::new().create_with_backend(backend.clone()).expect("opens");
    let txn = database.begin_write().expect("begins");
    txn.commit().expect("commits");
    backend.cache()
}

#[test]
fn store_of_a_newer_format_is_refused_untouched() {
    for format in [2, 3, u64::MAX] {
        assert_eq!(refused(schema::image_of_format(format).expect("an image")), ErrorKind::NewerFormat);
    }
}

#[test]
fn store_of_a_format_that_never_was_is_damaged() {
    assert_eq!(refused(schema::image_of_format(0).expect("an image")), ErrorKind::Damaged);
}

#[test]
fn store_whose_format_row_is_missing_or_changed_is_damaged() {
    let image = schema::image().expect("an image");
    let missing = tampered(image.clone(), |txn| {
        txn.open_table(META).unwrap().remove(meta::FORMAT).unwrap().expect("was there");
    });
    assert_eq!(refused(missing), ErrorKind::Damaged);
    let changed = tampered(image, |txn| {
        let mut table = txn.open_table(META).unwrap();
        let mut row = table.get(meta::FORMAT).unwrap().expect("was there").value().to_vec();
        row[0] = 2;
        table.insert(meta::FORMAT, row.as_slice()).unwrap();
    });
    assert_eq!(refused(changed), ErrorKind::Damaged);
}

#[test]
fn database_of_another_program_is_not_a_store_and_is_left_untouched() {
    const THEIRS: TableDefinition<'_, u64, u64> = TableDefinition::new("theirs");
    for with_table in [false, true] {
        let backend = LabBackend::of(Vec::new());
        let database = Builder::new().create_with_backend(backend.clone()).expect("opens");
        if with_table {
            let txn = database.begin_write().expect("begins");
            txn.open_table(THEIRS).expect("opens").insert(1, 2).expect("inserts");
            txn.commit().expect("commits");
        }
        database.close().expect("closes");
        assert_eq!(refused(backend.cache()), ErrorKind::NotAStore);
    }
}

/// A record of the script's key "a", which any begin would replay.
fn settled() -> Record {
    let (_, mut record) = samples()
        .into_iter()
        .find(|(_, record)| matches!(record.state, State::Succeeded { .. }))
        .expect("there is one");
    record.head.identity = Identity::operation(operation("a").key().clone());
    record.head.fingerprint = Fingerprint::unchecked();
    record
}

/// A store with one record whose row was changed and sealed again.
fn store_with_row(change: impl FnOnce(&mut Vec<u8>)) -> (LabBackend, Vec<u8>, Store) {
    let record = settled();
    let mut row = encode(&record);
    change(&mut row);
    let row = sealed(record.head.id, row);
    let image = tampered(image_of(std::slice::from_ref(&record)), |txn| {
        txn.open_table(RECORDS).unwrap().insert(record.head.id.0, row.as_slice()).unwrap();
    });
    let backend = LabBackend::of(image);
    let options = options(&clock_at(10), Recovery::Scan);
    let file = StoreFile::on(backend.clone(), None, &options).expect("the store itself is of this format");
    (backend, row, Store::on(file, &options).expect("starts"))
}

#[test]
fn row_of_a_newer_format_codec_or_fingerprint_is_refused_and_left_as_it_is() {
    // The algorithm's number lies behind kind, tenant, operation, key, step and index in the body.
    let algorithm_at = 14 + 1 + (1 + "lab".len()) + (1 + "act".len()) + (1 + "a".len()) + 1 + 1;
    assert_eq!(encode(&settled())[algorithm_at], Fingerprint::unchecked().to_stored().0);
    for (at, value) in [(0, 2), (0, 255), (1, 2), (1, 255), (algorithm_at, 200)] {
        let (backend, row, store) = store_with_row(|row| row[at] = value);
        let refusals = [
            store.get(operation("a").key()).map(drop),
            store.begin(&operation("a")).map(drop),
            store.begin_many(&[operation("z"), operation("a")]).map(drop),
            store.list(&Filter::new(), &Page::first(10)).map(drop),
        ];
        for refusal in refusals {
            let error = refusal.expect_err("the row is newer");
            assert_eq!(error.kind(), ErrorKind::NewerFormat, "byte {at} is {value}: {error:?}");
        }
        assert_eq!(store.get(operation("z").key()).expect("not concerned"), None, "a batch is refused as a whole");
        // Neighbours go on.
        assert!(matches!(store.begin(&operation("b")), Ok(crate::Begin::Execute(_))));
        let report = store.verify().expect("reads");
        assert!(!report.is_clean());
        store.sweep(100).expect("goes on");
        store.close().expect("closes");
        let options = options(&clock_at(10), Recovery::Scan);
        let file = StoreFile::on(LabBackend::of(backend.cache()), None, &options).expect("opens");
        let kept = file.read(|snapshot| {
            let row = snapshot.records().get(settled().head.id.0).expect("reads").expect("is there");
            Ok(row.value().to_vec())
        });
        assert_eq!(kept.expect("reads"), row, "byte {at} is {value}");
    }
}

#[test]
fn row_of_this_format_is_not_newer() {
    let (_backend, _row, store) = store_with_row(|_| ());
    let view = store.get(operation("a").key()).expect("reads").expect("is there");
    assert_eq!(view.status, Status::Succeeded);
}

#[test]
fn file_that_is_refused_keeps_every_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store.redb");
    for (format, kind) in [(2, ErrorKind::NewerFormat), (0, ErrorKind::Damaged)] {
        let image = schema::image_of_format(format).expect("an image");
        std::fs::write(&path, &image).expect("written");
        // Not in shared mode, in which the engine keeps books of its own from the moment it opens a file.
        for options in [Options::new(), Options::new().with_verify_on_open()] {
            let error = options.open(&path).expect_err("refused");
            assert_eq!(error.kind(), kind, "{options:?}");
            assert!(std::fs::read(&path).expect("read") == image, "{options:?}: written to");
        }
    }
}
