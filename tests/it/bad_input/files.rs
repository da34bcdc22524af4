//! Paths and files that hold no store: refused and left as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dupeproof::ErrorKind;

use super::kind;
use crate::support::*;

/// Everything below a folder, with its content.
fn listing(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.clone(), fs::read(&path).ok())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn options_out_of_bounds_are_refused_before_a_file_is_made() {
    let world = World::new();
    for options in [
        world.options().with_cache_bytes(0),
        world.options().with_cache_bytes(1024 * 1024 - 1),
        world.options().with_response_limit(16 * 1024 * 1024 + 1),
        world.options().with_response_limit(usize::MAX),
        world.options().with_open_wait(Duration::MAX),
        world.options().with_sweep_every(Duration::ZERO),
        world.options().with_sweep_every(Duration::from_millis(9)),
    ] {
        assert_eq!(kind(options.open(world.path())), ErrorKind::InvalidInput, "{options:?}");
        assert_eq!(kind(options.in_memory()), ErrorKind::InvalidInput);
    }
    assert!(listing(world.folder()).is_empty());
    let extreme = world.options().with_cache_bytes(1024 * 1024).with_open_wait(HOUR);
    extreme.with_sweep_every(Duration::MAX).open(world.path()).unwrap().close().unwrap();
}

/// Opens `path` in every way, expects to be refused, and that nothing in the folder changed.
#[track_caller]
fn refused(world: &World, path: &Path) -> ErrorKind {
    let before = listing(world.folder());
    let told = kind(world.options().open(path));
    assert_eq!(kind(world.options().with_verify_on_open().open(path)), told);
    let existing = kind(world.options().must_exist().open(path));
    assert!(existing == told || existing == ErrorKind::NotFound, "{existing:?}");
    assert!(listing(world.folder()) == before, "a refused open left something behind");
    told
}

#[test]
fn paths_that_name_no_file_are_refused() {
    let world = World::new();
    fs::create_dir(world.folder().join("folder")).unwrap();
    assert_eq!(refused(&world, world.folder()), ErrorKind::NotAStore);
    assert_eq!(refused(&world, &world.folder().join("folder")), ErrorKind::NotAStore);
    assert_eq!(refused(&world, &world.folder().join("store.redb/")), ErrorKind::InvalidInput);
    assert_eq!(refused(&world, &world.folder().join("missing/store.redb")), ErrorKind::InvalidInput);
    assert_eq!(refused(&world, Path::new("")), ErrorKind::InvalidInput);
    assert_eq!(refused(&world, &world.folder().join("x".repeat(300))), ErrorKind::Io);
}

#[test]
fn file_used_as_a_folder_is_refused() {
    let world = World::new();
    world.open().close().unwrap();
    for below in ["store.redb/", "store.redb/store.redb"] {
        let path = world.folder().join(below);
        assert!(matches!(refused(&world, &path), ErrorKind::InvalidInput | ErrorKind::Io), "{below}");
    }
}

#[test]
fn missing_store_that_must_exist_is_not_made() {
    let world = World::new();
    assert_eq!(kind(world.options().must_exist().open(world.path())), ErrorKind::NotFound);
    assert!(listing(world.folder()).is_empty());
}

#[cfg(unix)]
#[test]
fn link_to_nothing_is_refused_and_its_target_not_made() {
    let world = World::new();
    let link = world.folder().join("link");
    std::os::unix::fs::symlink(world.folder().join("not-mounted/store.redb"), &link).unwrap();
    assert_eq!(refused(&world, &link), ErrorKind::NotAStore);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(world.path(), &link).unwrap();
    assert_eq!(refused(&world, &link), ErrorKind::NotAStore);
    // A link to itself never ends.
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&link, &link).unwrap();
    assert_eq!(refused(&world, &link), ErrorKind::Io);
    assert!(!world.path().exists());
}

#[cfg(unix)]
#[test]
fn link_to_a_store_is_the_store() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("ok").unwrap();
    let link = world.folder().join("link");
    std::os::unix::fs::symlink(world.path(), &link).unwrap();
    assert_eq!(kind(world.options().open(&link)), ErrorKind::OpenElsewhere);
    store.close().unwrap();
    replay(&world.options().open(&link).unwrap(), &operation("a"));
}

#[test]
fn files_of_other_programs_are_refused_and_not_touched() {
    let world = World::new();
    for content in [&b""[..], b"r", b"redb", b"SQLite format 3\0", b"{}\n", &[0; 4096], &[0xff; 100_000]] {
        fs::write(world.path(), content).unwrap();
        assert_eq!(refused(&world, &world.path()), ErrorKind::NotAStore, "{} bytes", content.len());
    }
}

/// Another program's database in the same engine, and a store of ours under the other's name.
#[test]
fn database_of_another_program_is_refused_and_not_touched() {
    const THEIRS: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("theirs");
    let world = World::new();
    for tables in 0..2 {
        let path = world.folder().join(format!("theirs-{tables}.redb"));
        let database = redb::Database::create(&path).unwrap();
        let txn = database.begin_write().unwrap();
        if tables > 0 {
            txn.open_table(THEIRS).unwrap().insert("answer", 42).unwrap();
        }
        txn.commit().unwrap();
        drop(database);
        assert_eq!(refused(&world, &path), ErrorKind::NotAStore);
    }
}

#[test]
fn store_that_was_cut_is_damaged_and_not_touched() {
    let world = World::new();
    let store = world.open();
    for at in 0..50 {
        execute(&store, &operation(&at.to_string())).succeed_raw(vec![7; 2000]).unwrap();
    }
    store.close().unwrap();
    let whole = world.bytes();
    for left in [9, 10, 64, 100, 320, 4095, 4096, 8192, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        fs::write(world.path(), &whole[..left]).unwrap();
        let told = refused(&world, &world.path());
        assert!(told.is_damage() || told == ErrorKind::NotAStore, "{left} of {} bytes: {told:?}", whole.len());
    }
    fs::write(world.path(), &whole).unwrap();
    assert!(replay(&world.open(), &operation("7")).is_success());
}

#[cfg(unix)]
mod permissions {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Nothing is forbidden to the superuser: then these tests have nothing to see.
    fn binds_us(path: &Path) -> bool {
        let bound = fs::OpenOptions::new().write(true).open(path).is_err();
        if !bound {
            eprintln!("skipped: permissions do not bind this user");
        }
        bound
    }

    #[test]
    fn file_that_may_not_be_written_is_refused() {
        let world = World::new();
        let store = world.open();
        execute(&store, &operation("a")).succeed_raw("ok").unwrap();
        store.close().unwrap();
        set(&world.path(), 0o400);
        if binds_us(&world.path()) {
            assert_eq!(refused(&world, &world.path()), ErrorKind::Io);
        }
        set(&world.path(), 0o600);
        replay(&world.open(), &operation("a"));
    }

    #[test]
    fn folder_that_may_not_be_written_takes_no_new_store() {
        let world = World::new();
        let probe = world.folder().join("probe");
        fs::write(&probe, "").unwrap();
        set(&probe, 0o400);
        set(world.folder(), 0o500);
        if binds_us(&probe) {
            assert_eq!(refused(&world, &world.path()), ErrorKind::Io);
        }
        set(world.folder(), 0o700);
    }
}
