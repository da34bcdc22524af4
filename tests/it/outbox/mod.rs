//! The outbox: messages that are delivered at least once, in order within a lane, whatever happens to the relay.
#![allow(clippy::unit_arg, reason = "a handler of one line ends in Ok")]

mod closing;
mod dead;
mod kill;
mod lanes;
mod looking;
mod model;
mod relaying;
mod retention;
mod sending;
mod shared;
mod within;

use std::time::Duration;

use dupeproof::{
    Backoff, DeliveryError, Message, MessageFilter, MessagePage, MessageStatus, MessageView, Relay, Store,
};

/// The relay's lease unless a test says otherwise.
const LEASE: Duration = Duration::from_secs(60);

fn message(id: &str) -> Message {
    Message::new(id, "mail", format!("payload of {id}"))
}

fn send(store: &Store, ids: &[&str]) {
    let messages: Vec<_> = ids.iter().map(|id| message(id)).collect();
    store.outbox().send_many(&messages).expect("sent");
}

fn send_in_lane(store: &Store, lane: &str, ids: &[&str]) {
    let messages: Vec<_> = ids.iter().map(|id| message(id).with_lane(lane)).collect();
    store.outbox().send_many(&messages).expect("sent");
}

/// A relay that tries again at once.
fn relay(store: &Store) -> Relay {
    store.outbox().relay().with_backoff(Backoff::none())
}

/// Delivers what is due to a receiver who takes everything. The ids, in the order of their arrival.
fn deliver(store: &Store) -> Vec<String> {
    let mut arrived = Vec::new();
    while relay(store).run_once(|message| Ok(arrived.push(message.id().to_owned()))).expect("relayed").more {}
    arrived
}

/// Lets one delivery of what is due fail.
fn fail(store: &Store, why: &str) {
    relay(store).run_once(|_| Err(DeliveryError::new(why))).expect("relayed");
}

#[track_caller]
fn view(store: &Store, id: &str) -> MessageView {
    store.outbox().get(id).expect("looked").expect("it is there")
}

#[track_caller]
fn status_of(store: &Store, id: &str) -> MessageStatus {
    view(store, id).status
}

fn all(store: &Store) -> Vec<MessageView> {
    let mut messages = Vec::new();
    let mut next = Some(MessagePage::first(1000));
    while let Some(page) = next {
        let listing = store.outbox().list(&MessageFilter::new(), &page).expect("listed");
        messages.extend(listing.messages);
        next = listing.next;
    }
    messages
}

#[track_caller]
fn verify(store: &Store) {
    let report = store.verify().expect("verified");
    assert!(report.is_clean(), "{:?}", report.problems);
}
