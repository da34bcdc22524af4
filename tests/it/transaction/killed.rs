//! A process killed around its commit: all of the transaction is there, or nothing.

use dupeproof::{Settlement, UnknownCause};

use super::{Boxed, count, once, paid};
use crate::support::child::{Child, Task, park};
use crate::support::*;

/// The worker, who is killed where it parks.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [point] = task.words();
    let store = task.world.open();
    let claim = execute(&store, &operation("a"));
    task.world.ledger().perform(&claim);
    store
        .transaction(|tx| -> Result<_, Boxed> {
            count(tx, "a")?;
            tx.settle(&claim, Settlement::Succeeded("receipt".into()))?;
            if point == "inside" {
                park(point);
            }
            Ok(())
        })
        .unwrap();
    park("committed");
}

fn killed_at(point: &str) -> World {
    let world = World::new();
    let mut worker = Child::start(module_path!(), &world, point);
    worker.expect(point);
    worker.kill();
    world
}

#[test]
fn killed_before_the_commit_leaves_no_row_and_an_unknown_outcome() {
    let world = killed_at("inside");
    let store = world.open();
    world.throughout(store, |store| {
        assert_eq!(paid(store), once([]));
        assert_eq!(unknown(store, &operation("a")).cause(), UnknownCause::OwnerGone);
        assert_eq!(world.ledger().effect("a"), Some(1));
        assert!(store.verify().unwrap().is_clean());
    });
}

#[test]
fn killed_after_the_commit_leaves_both() {
    let world = killed_at("committed");
    let store = world.open();
    world.throughout(store, |store| {
        assert_eq!(paid(store), once(["a"]));
        assert_eq!(replay(store, &operation("a")).value().unwrap(), b"receipt");
        assert_eq!(world.ledger().effect("a"), Some(1));
        assert!(store.verify().unwrap().is_clean());
    });
}
