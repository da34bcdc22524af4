//! The first commit of a new store. The file's own making is tested where it is made.

use super::backend::LabBackend;
use super::images;
use super::script::{operation, options};
use super::{Dice, StoreFile, clock_at, rows, seeds};
use crate::options::Recovery;
use crate::storage::schema;
use crate::{Begin, Store};

#[test]
fn crash_at_any_operation_of_the_first_open_and_commit_leaves_a_store_that_opens() {
    let start = schema::image().expect("an image");
    for recovery in [Recovery::Scan, Recovery::Quick] {
        let options = options(&clock_at(0), recovery);
        let backend = LabBackend::of(start.clone());
        let file = StoreFile::on(backend.clone(), None, &options).expect("opens");
        let store = Store::on(file, &options).expect("starts");
        let begun = store.begin(&operation("a")).expect("a good disk");
        assert!(matches!(begun, Begin::Execute(_)));
        let granted_at = backend.changes();
        store.close().expect("a good disk");
        let mut images = 0;
        for seed in seeds(1) {
            images::each(&start, &backend.trace(), &mut Dice::new(seed), 40, |image| {
                images += 1;
                let here = format!("seed {seed}, {recovery:?}, {} after {}", image.what, image.issued);
                let file = StoreFile::on(LabBackend::of(image.bytes), None, &options)
                    .unwrap_or_else(|error| panic!("{here}: {error}"));
                let found = rows(&file).expect("reads").records.len();
                assert!(found == 1 || (found == 0 && image.issued < granted_at), "{here}: {found} rows");
                let store = Store::on(file, &options).unwrap_or_else(|error| panic!("{here}: {error}"));
                let again = store.begin(&operation("a")).unwrap_or_else(|error| panic!("{here}: {error}"));
                match again {
                    Begin::Execute(_) => assert_eq!(found, 0, "{here}: it ran before"),
                    Begin::Unknown(_) => assert_eq!(found, 1, "{here}"),
                    other => panic!("{here}: {other:?}"),
                }
            });
        }
        println!("first open and commit, {recovery:?}: {images} images");
    }
}

#[test]
fn image_of_a_new_store_is_the_same_every_time() {
    assert_eq!(schema::image().expect("an image"), schema::image().expect("an image"));
}
