//! Who may open a store that is open: shared with shared, and nobody else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dupeproof::{ErrorKind, Options, Sharing};

use crate::support::child::{Child, Task, park};
use crate::support::*;

const PAIRS_THAT_EXCLUDE: [(Sharing, Sharing); 3] = [
    (Sharing::Exclusive, Sharing::Exclusive),
    (Sharing::Exclusive, Sharing::Shared),
    (Sharing::Shared, Sharing::Exclusive),
];

/// A process that has the store open until it is told to close it.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [sharing] = task.words();
    let sharing = if sharing == "Shared" { Sharing::Shared } else { Sharing::Exclusive };
    match options(&task.world, sharing).open(task.world.path()) {
        Ok(store) => {
            let begun = store.begin(&operation("a")).unwrap();
            park("open");
            drop(begun);
            store.close().unwrap();
        }
        Err(error) => park(format!("{:?}", error.kind())),
    }
}

fn options(world: &World, sharing: Sharing) -> Options {
    world.options().with_sharing(sharing)
}

/// Another process that opens the store, or is told so.
fn other_process(world: &World, sharing: Sharing, told: &str) -> Child {
    let mut child = Child::start(module_path!(), world, format!("{sharing:?}"));
    child.expect(told);
    child
}

#[track_caller]
fn is_refused(world: &World, options: &Options) {
    let error = options.open(world.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OpenElsewhere);
    assert!(error.kind().may_retry());
}

#[test]
fn store_open_in_another_process_is_open_elsewhere_until_that_is_killed_or_closes_it() {
    for (theirs, ours) in PAIRS_THAT_EXCLUDE {
        for is_killed in [true, false] {
            let world = World::new();
            let mut child = other_process(&world, theirs, "open");
            is_refused(&world, &options(&world, ours));
            is_refused(&world, &options(&world, ours).with_open_wait(Duration::from_millis(20)));
            if is_killed {
                child.kill();
            } else {
                assert!(child.finish().success());
            }
            options(&world, ours).open(world.path()).unwrap();
        }
    }
}

#[test]
fn store_open_in_this_process_is_open_elsewhere_until_it_is_closed() {
    for (first, second) in PAIRS_THAT_EXCLUDE {
        let world = World::new();
        let store = options(&world, first).open(world.path()).unwrap();
        let claim = execute(&store, &operation("a"));
        is_refused(&world, &options(&world, second));
        // The attempt has not loosened the lock for another process either.
        other_process(&world, second, "OpenElsewhere");
        claim.succeed_raw("receipt").unwrap();
        store.close().unwrap();
        let store = options(&world, second).open(world.path()).unwrap();
        assert!(replay(&store, &operation("a")).is_success());
    }
}

#[test]
fn shared_store_is_open_to_any_number_in_this_process_and_in_others() {
    let world = World::new();
    let children: Vec<_> = (0..3).map(|_| other_process(&world, Sharing::Shared, "open")).collect();
    let here = options(&world, Sharing::Shared);
    let stores = [here.open(world.path()).unwrap(), here.open(world.path()).unwrap()];
    for store in &stores {
        assert_eq!(in_progress(store, &operation("a")).attempt(), 1);
    }
    drop(children);
    for store in &stores {
        execute(store, &operation("b")).release().unwrap();
    }
}

#[test]
fn open_that_waits_gets_the_store_as_soon_as_the_other_process_is_gone() {
    for (theirs, ours) in PAIRS_THAT_EXCLUDE {
        let world = World::new();
        let mut child = other_process(&world, theirs, "open");
        let is_gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let store = options(&world, ours).with_open_wait(MINUTE).open(world.path()).unwrap();
                assert!(is_gone.load(Ordering::SeqCst), "two have it open");
                store
            });
            is_gone.store(true, Ordering::SeqCst);
            child.kill();
            waiting.join().unwrap();
        });
    }
}
