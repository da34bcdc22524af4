//! A disk that is full or may not be written to: a small file system in memory, mounted for the test. Where mounting is
//! not allowed, the tests say so and end.

use std::fs;
use std::path::Path;
use std::process::Command;

use dupeproof::{Begin, Error, ErrorKind, Options, Recovery, Sharing, Store};

use crate::support::child::{Child, Task, park};
use crate::support::*;

/// A file system of its own below the world's folder.
struct Disk(World);

impl Disk {
    fn of(bytes: &str) -> Option<Self> {
        let world = World::new();
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"], world.folder());
        if !mounted {
            println!("SKIPPED: no file system can be mounted here");
        }
        mounted.then_some(Self(world))
    }

    fn remount(&self, how: &str) {
        assert!(mount(&["-o", &format!("remount,{how}")], self.0.folder()));
    }

    /// Takes what room there is, but for so many bytes.
    fn fill(&self, but: usize) {
        let mut ballast = vec![0_u8; 1 << 16];
        let path = self.0.folder().join("ballast");
        fs::write(&path, &ballast[..but]).unwrap();
        let mut rest = fs::File::create(self.0.folder().join("rest")).unwrap();
        while !ballast.is_empty() {
            if std::io::Write::write_all(&mut rest, &ballast).is_err() {
                ballast.truncate(ballast.len() / 2);
            }
        }
        fs::remove_file(path).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.0.folder().join("rest")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a test that failed may still have files open.
        let _ = Command::new("umount").arg("-l").arg(self.0.folder()).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    Command::new("mount").args(arguments).arg(at).status().is_ok_and(|status| status.success())
}

#[track_caller]
fn says_that_the_disk_is_full(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Indeterminate), "{error}");
    assert!(error.to_string().contains("the disk is full: make room"), "{error}");
    assert!(error.kind().must_reopen(), "{error}");
    assert!(error.kind().advice().contains("reopen"), "{error}");
}

#[test]
fn store_is_not_made_on_a_full_disk_and_nothing_is_left_behind() {
    let Some(disk) = Disk::of("256k") else { return };
    disk.fill(0);
    let error = disk.0.options().open(disk.0.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("the disk is full: make room"), "{error}");
    assert_eq!(fs::read_dir(disk.0.folder()).unwrap().count(), 1, "the ballast alone");
    disk.make_room();
    assert!(disk.0.open().is_new());
}

/// With however much room is left: what was answered holds, and what got no answer was not permitted.
#[test]
fn full_disk_permits_no_effect_that_it_cannot_record_and_loses_no_answer() {
    for (recovery, sharing) in
        [(Recovery::Scan, Sharing::Exclusive), (Recovery::Quick, Sharing::Exclusive), (Recovery::Scan, Sharing::Shared)]
    {
        for but in [0, 8 * 1024, 40 * 1024] {
            let Some(disk) = Disk::of("2m") else { return };
            let world = &disk.0;
            let options = world.options().with_recovery(recovery).with_sharing(sharing);
            let store = options.open(world.path()).unwrap();
            let held = execute(&store, &operation("held before"));
            disk.fill(but);
            let (answered, error) = until_full(&store);
            says_that_the_disk_is_full(&error);
            // Every call on this handle is refused from now on; what was held is not settled.
            assert_eq!(store.begin(&operation("new")).unwrap_err().kind(), ErrorKind::Stopped);
            let unsettled = held.succeed_raw("receipt").unwrap_err();
            assert_eq!(unsettled.kind(), ErrorKind::Stopped);
            drop(held);
            drop(store);

            disk.make_room();
            let store = options.open(world.path()).unwrap();
            assert!(store.verify().unwrap().is_clean());
            for number in 0..answered {
                assert!(replay(&store, &operation(&number.to_string())).is_success(), "{number} of {answered}");
            }
            // The one whose begin or settle failed: not run, or started and unknown; never a success.
            let last = store.get(key(&answered.to_string())).unwrap();
            let may_have = error.kind() == ErrorKind::Indeterminate;
            assert!(may_have || last.is_none_or(|last| last.settled_at.is_none()), "an answer that nobody was given");
            match sharing {
                Sharing::Exclusive => drop(unknown(&store, &operation("held before"))),
                _ => drop(in_progress(&store, &operation("held before"))),
            }
            assert!(matches!(store.begin(&operation("new")).unwrap(), Begin::Execute(_)));
        }
    }
}

/// How many operations were settled before one could not be recorded, and what was said then.
fn until_full(store: &Store) -> (usize, Error) {
    for number in 0..100_000 {
        let settled = store.begin(&operation(&number.to_string())).and_then(|begun| match begun {
            // The effect would be here: only a claim permits it.
            Begin::Execute(claim) => claim.succeed_raw(vec![7; 1000]).map(drop),
            other => panic!("{other:?}"),
        });
        if let Err(error) = settled {
            return (number, error);
        }
    }
    panic!("the disk has no end");
}

#[test]
fn killed_store_on_a_full_disk_opens_or_says_that_there_is_no_room_and_then_opens_whole() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let Some(disk) = Disk::of("2m") else { return };
        let world = &disk.0;
        let mut child = Child::start(module_path!(), world, format!("{sharing:?}"));
        child.expect("committed");
        disk.fill(0);
        child.kill();
        let options = world.options().with_sharing(sharing);
        if let Err(error) = options.open(world.path()).and_then(|store| {
            assert!(replay(&store, &operation("a")).is_success(), "what is there can be told");
            store.close()
        }) {
            says_that_the_disk_is_full(&error);
        }
        disk.make_room();
        let store = options.open(world.path()).unwrap();
        assert!(replay(&store, &operation("a")).is_success());
        assert!(store.verify().unwrap().is_clean());
    }
}

#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [sharing] = task.words();
    let sharing = if sharing == "Shared" { Sharing::Shared } else { Sharing::Exclusive };
    let store = task.world.options().with_sharing(sharing).open(task.world.path()).unwrap();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    park("committed");
}

/// Closed cleanly or not: to open is to write, so the advice is the same, and a copy can be opened.
#[test]
fn store_on_a_read_only_disk_is_refused_with_the_way_to_look_at_it() {
    for is_clean in [true, false] {
        let Some(disk) = Disk::of("2m") else { return };
        let world = &disk.0;
        let mut child = Child::start(module_path!(), world, "Exclusive");
        child.expect("committed");
        child.kill();
        if is_clean {
            world.open().close().unwrap();
        }
        disk.remount("ro");
        for options in [world.options(), world.options().with_sharing(Sharing::Shared)] {
            let error = options.open(world.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("open a copy"), "{error}");
        }
        let elsewhere = World::new();
        fs::copy(world.path(), elsewhere.path()).unwrap();
        assert!(replay(&elsewhere.open(), &operation("a")).is_success());
        let missing = Options::new().open(world.folder().join("new.redb")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Io, "{missing}");
        disk.remount("rw");
        assert!(replay(&world.open(), &operation("a")).is_success());
    }
}

#[test]
fn backup_onto_a_full_disk_is_an_error_that_leaves_nothing_and_the_store_goes_on() {
    let Some(disk) = Disk::of("256k") else { return };
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw(vec![7; 500_000]).unwrap();
    let error = store.backup(disk.0.folder().join("copy")).unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(fs::read_dir(disk.0.folder()).unwrap().count(), 0);
    assert!(replay(&store, &operation("a")).is_success());
    execute(&store, &operation("b")).succeed_raw("receipt").unwrap();
}
