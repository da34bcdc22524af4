//! Looking at the outbox: lists, counts, copies.

use dupeproof::{MessageListing, OutboxStats};

use super::*;
use crate::support::*;

fn ids(listing: &MessageListing) -> Vec<&str> {
    listing.messages.iter().map(|message| message.id.as_str()).collect()
}

/// Seven messages, in all statuses but in flight.
fn mixed(store: &Store) {
    send(store, &["delivered", "dead", "discarded"]);
    store.outbox().discard("discarded", &decision()).unwrap();
    relay(store)
        .run_once(|message| match message.id() {
            "dead" => Err(DeliveryError::permanent("no such mailbox")),
            _ => Ok(()),
        })
        .unwrap();
    send_in_lane(store, "x", &["x1", "x2"]);
    store.outbox().send(&message("later").with_delay(HOUR)).unwrap();
    store.outbox().send(&Message::new("sms", "sms", "")).unwrap();
}

#[test]
fn list_finds_messages_by_status_topic_and_lane_in_the_order_of_sending() {
    let world = World::new();
    let store = world.open();
    mixed(&store);
    let list = |filter: MessageFilter| {
        let listing = store.outbox().list(&filter, &MessagePage::first(100)).unwrap();
        assert!(listing.next.is_none());
        ids(&listing).join(" ")
    };
    let new = MessageFilter::new;
    assert_eq!(list(new()), "delivered dead discarded x1 x2 later sms");
    let by_status = MessageStatus::ALL.map(|status| list(new().with_status(status)));
    assert_eq!(by_status, ["x1 x2 sms", "", "later", "delivered", "dead", "discarded"]);
    assert_eq!(list(new().with_topic("sms")), "sms");
    assert_eq!(list(new().with_lane("x")), "x1 x2");
    assert_eq!(list(new().with_lane("x").with_topic("sms")), "");
}

#[test]
fn pages_show_every_message_once() {
    let world = World::new();
    let store = world.open();
    send(&store, &["1", "2", "3", "4", "5"]);
    relay(&store).run_once(|_| Err(DeliveryError::permanent("no such mailbox"))).unwrap();
    let paged = |list: &dyn Fn(&MessagePage) -> MessageListing| {
        let (mut pages, mut next) = (Vec::new(), Some(MessagePage::first(2)));
        while let Some(page) = next {
            let listing = list(&page);
            pages.push(ids(&listing).join(" "));
            next = listing.next;
        }
        pages
    };
    assert_eq!(paged(&|page| store.outbox().list(&MessageFilter::new(), page).unwrap()), ["1 2", "3 4", "5"]);
    assert_eq!(paged(&|page| store.outbox().dead(page).unwrap()), ["1 2", "3 4", "5"]);
}

#[test]
fn counts_are_those_of_the_list() {
    let world = World::new();
    let store = world.open();
    let empty = store.stats().unwrap();
    assert_eq!(empty.outbox, OutboxStats::default());
    mixed(&store);
    world.clock.advance(MINUTE);
    let stats = store.stats().unwrap();
    let counts = |stats: OutboxStats| (stats.pending, stats.in_flight, stats.delivered, stats.dead, stats.discarded);
    assert_eq!(counts(stats.outbox), (4, 0, 1, 1, 1));
    assert_eq!(stats.outbox.oldest_due.map(|at| stats.now.since(at)), Some(MINUTE));
    relay(&store).run_once(|_| Ok(assert_eq!(counts(store.stats().unwrap().outbox), (2, 2, 1, 1, 1)))).unwrap();
    assert_eq!(counts(store.stats().unwrap().outbox), (2, 0, 3, 1, 1));
}

#[test]
fn copy_holds_the_outbox_as_it_is() {
    let world = World::new();
    let store = world.open();
    mixed(&store);
    let copy = world.folder().join("copy.redb");
    relay(&store).with_batch(1).run_once(|_| Ok(assert_eq!(store.backup(&copy).unwrap(), 0))).unwrap();
    let before = all(&store);
    let restored = world.options().open(&copy).unwrap();
    verify(&restored);
    let (mut found, mut expected) = (all(&restored), before);
    // What was in flight when the copy was made is due again in the copy.
    assert_eq!(found[3].id, "x1");
    assert_eq!((found[3].status, found[3].attempts), (MessageStatus::Due, 1));
    found.remove(3);
    expected.remove(3);
    assert_eq!(found, expected);
    assert_eq!(deliver(&restored), ["x1", "x2", "sms"]);
}

#[test]
fn id_that_no_message_can_have_is_not_there() {
    let store = World::new().options().in_memory().unwrap();
    for id in ["", "a\nb", &"x".repeat(100_000)] {
        assert!(store.outbox().get(id).unwrap().is_none());
    }
}
