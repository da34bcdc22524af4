//! Panics that end the process, by unwinding or at once: what was started is unknown, what was reserved is free.

use dupeproof::{Status, Store, UnknownCause};

use crate::support::child::{Child, Task};
use crate::support::ledger::{Told, deliver_100, resolve_by};
use crate::support::*;

/// The process, which ends by itself.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [how, what] = task.words();
    // Without a word, for it is meant to be.
    if how == "abort" {
        std::panic::set_hook(Box::new(|_| std::process::abort()));
    } else {
        std::panic::set_hook(Box::new(|_| ()));
    }
    let store = task.world.open();
    if what == "reserved" {
        let _reservation = reserve(&store, &operation("a"));
        panic!("while it prepared");
    }
    let _ = store.run_raw(&operation("a"), |claim| {
        if what == "performed" {
            task.world.ledger().perform(claim);
        }
        panic!("while it performed")
    });
}

/// What is left of a process that panicked.
fn panicked(how: &str, what: &str) -> (World, Store) {
    let world = World::new();
    let status = Child::start(module_path!(), &world, format!("{how} {what}")).finish();
    assert!(!status.success(), "it did not panic");
    let store = world.open();
    (world, store)
}

#[test]
fn effect_whose_panic_ends_the_process_is_unknown_until_the_provider_was_asked() {
    for (how, cause) in [("unwind", UnknownCause::ClaimDropped), ("abort", UnknownCause::OwnerGone)] {
        for (what, after) in
            [("started", [(Told::Ran, 1), (Told::Replayed, 99)].as_slice()), ("performed", &[(Told::Replayed, 100)])]
        {
            let (world, store) = panicked(how, what);
            let store = world.throughout(store, |store| {
                assert_eq!(deliver_100(store, &world.ledger(), "a"), [(Told::Unknown, 100)]);
                assert_eq!(unknown(store, &operation("a")).cause(), cause);
            });
            resolve_by(&world.ledger(), &store, "a");
            assert_eq!(deliver_100(&store, &world.ledger(), "a"), after);
            assert!(world.ledger().effect("a").is_some());
        }
    }
}

#[test]
fn reservation_whose_panic_ends_the_process_is_free_for_the_next() {
    for how in ["unwind", "abort"] {
        let (world, store) = panicked(how, "reserved");
        let store = world.throughout(store, |store| assert_eq!(status(store, "a"), Status::FailedRetryable));
        assert_eq!(deliver_100(&store, &world.ledger(), "a"), [(Told::Ran, 1), (Told::Replayed, 99)]);
        assert_eq!(world.ledger().effect("a"), Some(2));
    }
}
