//! Identity: which calls mean the same operation, and what the provider sees of it.

use std::collections::BTreeSet;

use dupeproof::{Begin, Filter, Fingerprint, Operation, OperationKey, Page};

use crate::support::*;

fn of(tenant: &str, name: &str, key: &str) -> Operation {
    Operation::new(OperationKey::new(tenant, name, key).unwrap(), Fingerprint::of_bytes(b"payload"))
}

#[test]
fn keys_that_read_alike_when_joined_do_not_meet() {
    let world = World::new();
    let store = world.open();
    let parts = [
        ("a", "b/c", "d"),
        ("a/b", "c", "d"),
        ("a", "b", "c/d"),
        ("a", "b/c/d", "x"),
        ("a/b/c", "d", "x"),
        ("ab", "c", "d"),
        ("a", "bc", "d"),
        ("a", "b", "cd"),
        ("A", "b", "cd"),
        ("a", "b", "cd "),
        (" a", "b", "cd"),
        ("é", "b", "cd"),
        ("e\u{301}", "b", "cd"),
    ];
    for (tenant, name, key) in parts {
        execute(&store, &of(tenant, name, key)).succeed_raw(format!("{tenant}|{name}|{key}")).unwrap();
    }
    world.now_and_reopened(store, |store| {
        for (tenant, name, key) in parts {
            let told = replay(store, &of(tenant, name, key));
            assert_eq!(told.value().unwrap(), format!("{tenant}|{name}|{key}").as_bytes());
        }
        let listed = store.list(&Filter::new(), &Page::first(1000)).unwrap().operations;
        assert_eq!(listed.len(), parts.len());
        let downstream: BTreeSet<_> = listed.iter().map(|operation| &operation.downstream_key).collect();
        assert_eq!(downstream.len(), parts.len());
    });
}

#[test]
fn longest_parts_are_keys_like_others() {
    let world = World::new();
    let store = world.open();
    let longest = of(&"t".repeat(128), &"o".repeat(128), &"🔑".repeat(128));
    let neighbour = of(&"t".repeat(128), &"o".repeat(128), &format!("{}x", "🔑".repeat(127)));
    execute(&store, &longest).succeed_raw("longest").unwrap();
    world.now_and_reopened(store, |store| {
        assert_eq!(replay(store, &longest).value().unwrap(), b"longest");
        assert!(store.get(neighbour.key()).unwrap().is_none());
    });
}

#[test]
fn downstream_key_is_of_the_operation_alone() {
    let one = {
        let world = World::new();
        let store = world.open();
        let claim = execute(&store, &operation("a"));
        assert_eq!(get(&store, "a").downstream_key, claim.downstream_key());
        claim.downstream_key()
    };
    // Another store, another day, another payload.
    let world = World::new();
    world.clock.advance(1000 * DAY);
    let store = world.open();
    execute(&store, &operation("before")).release().unwrap();
    assert_eq!(execute(&store, &altered("a")).downstream_key(), one);
}

#[test]
fn key_is_shown_by_the_claim_and_hidden_in_debug() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("jane@example.org"));
    assert_eq!(claim.key(), &key("jane@example.org"));
    assert!(!format!("{claim:?}").contains("jane"));
    let Begin::InProgress(other) = store.begin(&operation("jane@example.org")).unwrap() else { unreachable!() };
    assert!(!format!("{other:?}").contains("jane"));
}
