//! Looking: single records, lists, pages, counts. They show what counts now, and change nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use dupeproof::{Filter, Fingerprint, Operation, OperationKey, OperationView, Page, Status, Store};

use crate::support::*;

/// A store with a record of every status, and what holds two of them.
fn one_of_each(world: &World) -> (Store, Vec<Box<dyn Send>>) {
    let store = world.open();
    let mut held = Vec::new();
    // The tombstone first: eight days pass for it.
    for status in STATUSES.into_iter().rev() {
        held.extend(bring_to(world, &store, status.as_str(), status));
    }
    (store, held)
}

fn list(store: &Store, filter: &Filter, page: usize) -> Vec<OperationView> {
    let mut all = Vec::new();
    let mut next = Some(Page::first(page));
    while let Some(this) = next {
        let listing = store.list(filter, &this).unwrap();
        assert!(listing.operations.len() <= page);
        all.extend(listing.operations);
        next = listing.next;
    }
    all
}

fn names(operations: &[OperationView]) -> Vec<&str> {
    operations.iter().map(|operation| operation.key.key()).collect()
}

#[test]
fn list_by_status_finds_each_and_agrees_with_get() {
    let world = World::new();
    let (store, held) = one_of_each(&world);
    for status in STATUSES {
        let found = list(&store, &Filter::new().with_status(status), 10);
        assert_eq!(found, [get(&store, status.as_str())]);
        assert_eq!(found[0].status, status);
    }
    let all = list(&store, &Filter::new(), 10);
    assert_eq!(all.len(), 7);
    assert!(all.iter().all(|one| one.status.as_str() == one.key.key()));
    drop(held);
}

#[test]
fn list_shows_what_counts_now_before_any_sweep() {
    let world = World::new();
    let (store, held) = one_of_each(&world);
    world.clock.advance(8 * DAY);
    let found = |status| names(&list(&store, &Filter::new().with_status(status), 10)).join(" ");
    assert_eq!(found(Status::Reserved), "");
    assert_eq!(found(Status::Executing), "");
    assert_eq!(found(Status::Unknown), "unknown executing");
    assert_eq!(found(Status::FailedRetryable), "failed_retryable reserved");
    assert_eq!(found(Status::Tombstone), "failed_terminal succeeded tombstone");
    world.clock.advance(100 * DAY);
    assert_eq!(found(Status::Tombstone), "");
    assert!(store.get(key("succeeded")).unwrap().is_none());
    drop(held);
}

#[test]
fn pages_together_are_the_whole_whatever_their_size() {
    let world = World::new();
    let store = world.open();
    let keys: Vec<String> = (0..57).map(|at| format!("key-{at:03}")).collect();
    let batch: Vec<Operation> = keys.iter().rev().map(|key| operation(key)).collect();
    let claims = store.begin_many(&batch).unwrap();
    for page in [1, 2, 7, 56, 57, 58, 1000] {
        assert_eq!(names(&list(&store, &Filter::new(), page)), keys);
        // Unsettled ones alone come by age: the last key was begun first.
        let by_age: Vec<_> = keys.iter().rev().collect();
        assert_eq!(names(&list(&store, &Filter::new().with_status(Status::Executing), page)), by_age);
    }
    assert!(store.list(&Filter::new(), &Page::first(57)).unwrap().next.is_some_and(|next| {
        let last = store.list(&Filter::new(), &next).unwrap();
        last.operations.is_empty() && last.next.is_none()
    }));
    drop(claims);
}

#[test]
fn page_is_bounded_whatever_is_asked_for() {
    let world = World::new();
    let store = world.open();
    let batch: Vec<Operation> = (0..1001).map(|at| operation(&format!("{at:04}"))).collect();
    let claims = [store.begin_many(&batch[..1000]).unwrap(), store.begin_many(&batch[1000..]).unwrap()];
    assert_eq!(store.list(&Filter::new(), &Page::first(usize::MAX)).unwrap().operations.len(), 1000);
    assert_eq!(store.list(&Filter::new(), &Page::first(0)).unwrap().operations.len(), 1);
    assert_eq!(list(&store, &Filter::new(), 1000).len(), 1001);
    drop(claims);
}

#[test]
fn page_goes_on_where_it_was_although_records_come_and_go() {
    let world = World::new();
    let store = world.open();
    let claims: Vec<_> = ["b", "d", "f"].map(|name| execute(&store, &operation(name))).into();
    let executing = Filter::new().with_status(Status::Executing);
    for filter in [Filter::new(), executing] {
        let first = store.list(&filter, &Page::first(2)).unwrap();
        assert_eq!(names(&first.operations), ["b", "d"]);
        let newcomer = execute(&store, &operation("a"));
        let rest = store.list(&filter, &first.next.unwrap()).unwrap();
        assert_eq!(names(&rest.operations)[0], "f", "what was shown is not shown again, what was there is not missed");
        newcomer.release().unwrap();
    }
    drop(claims);
}

#[test]
fn filters_hold_each_and_together() {
    let world = World::new();
    let store = world.open();
    let begin = |tenant: &str, name: &str, key: &str| {
        let key = OperationKey::new(tenant, name, key).unwrap();
        execute(&store, &Operation::new(key, Fingerprint::unchecked()))
    };
    begin("acme", "charge", "1").succeed_raw("ok").unwrap();
    begin("acme", "mail", "2").give_up("lost").unwrap();
    world.clock.advance(HOUR);
    begin("acme", "charge", "3").give_up("lost").unwrap();
    begin("other", "charge", "4").give_up("lost").unwrap();
    let found = |filter: Filter| names(&list(&store, &filter, 1)).join("");
    assert_eq!(found(Filter::new()), "1324");
    assert_eq!(found(Filter::new().with_tenant("acme")), "132");
    assert_eq!(found(Filter::new().with_operation("charge")), "134");
    assert_eq!(found(Filter::new().with_status(Status::Unknown)), "234");
    assert_eq!(found(Filter::new().with_older_than(Duration::from_secs(1))), "12");
    assert_eq!(found(Filter::new().with_older_than(HOUR)), "", "older means longer ago than that");
    let both = Filter::new().with_tenant("acme").with_status(Status::Unknown);
    assert_eq!(found(both.clone().with_operation("charge")), "3");
    assert_eq!(found(both.with_older_than(HOUR / 2)), "2");
    assert_eq!(found(Filter::new().with_tenant("acm")), "", "no prefix, the name");
    assert_eq!(found(Filter::new().with_tenant("")), "");
}

#[test]
fn counts_are_of_each_status_as_of_the_last_sweep() {
    let world = World::new();
    let (store, held) = one_of_each(&world);
    // The succeeded one that became a tombstone eight days later is still on its shelf.
    assert_eq!(store.stats().unwrap().succeeded, 2);
    store.sweep(100).unwrap();
    let counts = |store: &Store| {
        let stats = store.stats().unwrap();
        BTreeMap::from([
            ("reserved", stats.reserved),
            ("executing", stats.executing),
            ("failed_retryable", stats.failed_retryable),
            ("unknown", stats.unknown),
            ("succeeded", stats.succeeded),
            ("failed_terminal", stats.failed_terminal),
            ("tombstone", stats.tombstones),
        ])
    };
    assert!(counts(&store).values().all(|count| *count == 1), "{:?}", counts(&store));
    let store = world.reopen(store);
    let after = counts(&store);
    assert_eq!((after["reserved"], after["failed_retryable"]), (0, 2));
    assert_eq!((after["executing"], after["unknown"]), (0, 2));
    assert_eq!(after.values().sum::<u64>(), 7);
    drop(held);
}

#[test]
fn oldest_unknown_outcome_is_told() {
    let world = World::new();
    let store = world.open();
    assert_eq!(store.stats().unwrap().oldest_unknown, None);
    execute(&store, &operation("a")).give_up("lost").unwrap();
    let oldest = unknown(&store, &operation("a")).since();
    world.clock.advance(HOUR);
    execute(&store, &operation("b")).give_up("lost").unwrap();
    let store = world.now_and_reopened(store, |store| assert_eq!(store.stats().unwrap().oldest_unknown, Some(oldest)));
    assert_eq!(store.stats().unwrap().now.since(oldest), HOUR);
    store.resolve(key("a"), dupeproof::Verdict::DidNotHappen, &decision()).unwrap();
    assert_eq!(store.stats().unwrap().oldest_unknown, Some(unknown(&store, &operation("b")).since()));
}

#[test]
fn file_length_is_that_of_the_file_and_none_in_memory() {
    let world = World::new();
    let store = world.open();
    assert_eq!(store.stats().unwrap().file_bytes, Some(world.bytes().len() as u64));
    assert_eq!(Store::in_memory().unwrap().stats().unwrap().file_bytes, None);
}

#[test]
fn looking_changes_nothing() {
    let world = World::new();
    let (store, held) = one_of_each(&world);
    world.clock.advance(8 * DAY);
    let before = world.bytes();
    for status in STATUSES {
        get(&store, status.as_str());
        list(&store, &Filter::new().with_status(status), 1);
    }
    list(&store, &Filter::new(), 1);
    store.stats().unwrap();
    assert!(store.verify().unwrap().is_clean());
    assert!(store.get(key("nobody")).unwrap().is_none());
    assert!(world.bytes() == before, "a look wrote to the file");
    drop(held);
}

#[test]
fn view_shows_what_its_status_has() {
    let world = World::new();
    let (store, held) = one_of_each(&world);
    for status in STATUSES {
        let view = get(&store, status.as_str());
        let is_held = matches!(status, Status::Reserved | Status::Executing);
        let is_settled = matches!(status, Status::Succeeded | Status::FailedTerminal | Status::Tombstone);
        assert_eq!(view.lease_until.is_some(), is_held, "{status}");
        assert_eq!(view.settled_at.is_some(), is_settled, "{status}");
        assert_eq!(view.expires_at.is_some(), is_settled, "{status}");
        assert_eq!(view.retry_at.is_some(), status == Status::FailedRetryable, "{status}");
        assert_eq!(view.unknown.is_some(), status == Status::Unknown, "{status}");
        assert_eq!(view.ended, (status == Status::Tombstone).then_some(Status::Succeeded), "{status}");
        assert_eq!((view.attempts, view.probes), (1, 0), "{status}");
        assert_eq!(view.key, key(status.as_str()));
    }
    let (succeeded, tombstone) = (get(&store, "succeeded"), get(&store, "tombstone"));
    assert_eq!(succeeded.expires_at.unwrap().since(succeeded.settled_at.unwrap()), 7 * DAY);
    assert_eq!(tombstone.expires_at.unwrap().since(tombstone.settled_at.unwrap()), 97 * DAY);
    assert_eq!(tombstone.response, None);
    assert_eq!(tombstone.external_reference.as_deref(), Some("ch_1"));
    drop(held);
}
