//! Artifacts that lie in files: found missing where they are asked for, and never made again behind anybody's back.

use dupeproof::{Artifact, ErrorKind, Outcome, RunStatus};

use super::*;
use crate::support::*;

fn rendered(world: &World, store: &Store) -> std::path::PathBuf {
    let path = world.folder().join("report.pdf");
    std::fs::write(&path, "a report").unwrap();
    let outcome = run(store).step_with_raw("render", payload(), |_| Ok(Artifact::of_file(&path)?.into())).unwrap();
    assert!(matches!(outcome, Outcome::SucceededWithoutValue(_)));
    path
}

#[test]
fn artifact_by_reference_is_replayed_and_read() {
    let world = World::new();
    let store = world.open();
    let path = rendered(&world, &store);
    world.throughout(store, |store| {
        let replay = replayed(run(store).step("render", payload()).unwrap());
        let artifact = replay.artifact().expect("it lies in a file");
        assert_eq!((artifact.path(), artifact.byte_len()), (path.as_path(), 8));
        assert_eq!(artifact.read().unwrap(), b"a report");
        assert_eq!(replay.value().unwrap_err().kind(), ErrorKind::Response);
        assert_eq!(view(store).steps[0].artifact_trouble, None);
    });
}

#[test]
fn missing_artifact_is_reported_and_its_step_neither_skipped_nor_repeated() {
    let world = World::new();
    let store = world.open();
    let path = rendered(&world, &store);
    std::fs::remove_file(&path).unwrap();
    let store = world.throughout(store, |store| {
        let run = run(store);
        assert_eq!(run.step("render", payload()).unwrap_err().kind(), ErrorKind::ArtifactMissing);
        let told = run.step_with_raw("render", payload(), |_| panic!("it must not run")).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::ArtifactMissing);
        let step = view(store).steps.remove(0);
        assert!(step.artifact_trouble.unwrap().contains("report.pdf"));
        assert_eq!((step.operation.attempts, run_status(store)), (1, RunStatus::Running));
    });
    std::fs::write(&path, "a report").unwrap();
    replayed(run(&store).step("render", payload()).unwrap());
}

#[test]
fn changed_artifact_is_not_taken_for_the_recorded_one() {
    let world = World::new();
    let store = world.open();
    let path = rendered(&world, &store);
    std::fs::write(&path, "longer than it was").unwrap();
    assert_eq!(run(&store).step("render", payload()).unwrap_err().kind(), ErrorKind::ArtifactMissing);
    // Of the same length, it shows when it is read.
    std::fs::write(&path, "a rep0rt").unwrap();
    let replay = replayed(run(&store).step("render", payload()).unwrap());
    assert_eq!(replay.artifact().unwrap().read().unwrap_err().kind(), ErrorKind::ArtifactMissing);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(run(&store).step("render", payload()).unwrap_err().kind(), ErrorKind::ArtifactMissing);
}

#[test]
fn reference_to_what_is_no_file_is_refused() {
    let world = World::new();
    assert_eq!(Artifact::of_file(world.folder()).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Artifact::of_file(world.folder().join("absent")).unwrap_err().kind(), ErrorKind::Io);
    let relative = Artifact::of_file("Cargo.toml").expect("tests run in the crate's folder");
    assert!(relative.path().is_absolute());
}
