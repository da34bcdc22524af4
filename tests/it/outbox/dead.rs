//! Dead letters: when a message becomes one, and what a person can do with it.

use dupeproof::{DeadCause, Decision, ErrorKind};

use super::*;
use crate::support::*;

#[track_caller]
fn is_dead(store: &Store, id: &str, cause: DeadCause, attempts: u32, error: Option<&str>) {
    let view = view(store, id);
    assert_eq!(view.dead.map(|(_, cause)| cause), Some(cause));
    assert_eq!((view.status, view.attempts, view.last_error.as_deref()), (MessageStatus::Dead, attempts, error));
    let dead = store.outbox().dead(&MessagePage::first(10)).unwrap().messages;
    assert!(dead.iter().any(|letter| letter.id == id), "it is among the dead letters");
    assert_eq!(store.stats().unwrap().outbox.dead, dead.len() as u64);
}

#[test]
fn message_that_always_fails_is_dead_at_the_limit_with_the_last_error() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    for attempt in 1..=5 {
        let report =
            relay(&store).with_attempts(5).run_once(|_| Err(DeliveryError::new(format!("error {attempt}")))).unwrap();
        assert_eq!((report.failed, report.dead), (u64::from(attempt < 5), u64::from(attempt == 5)));
    }
    assert_eq!(deliver(&store), [""; 0]);
    world.now_and_reopened(store, |store| {
        is_dead(store, "a", DeadCause::AttemptsExhausted, 5, Some("error 5"));
        assert!(view(store, "a").payload.is_some(), "its content is kept");
    });
}

#[test]
fn handler_that_says_never_buries_at_once() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    relay(&store).run_once(|_| Err(DeliveryError::permanent("no such mailbox"))).unwrap();
    is_dead(&store, "a", DeadCause::Refused, 1, Some("no such mailbox"));
}

#[test]
fn message_whose_takes_all_lapse_is_dead_and_not_taken_for_ever() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    fail(&store, "no route");
    for attempt in 2..=3 {
        relay(&store)
            .with_attempts(3)
            .run_once(|message| {
                assert_eq!(message.attempt(), attempt);
                world.clock.advance(LEASE);
                store.sweep(100).unwrap();
                if attempt < 3 {
                    assert_eq!(status_of(&store, "a"), MessageStatus::Due);
                } else {
                    is_dead(&store, "a", DeadCause::NeverAnswered, 3, Some("late 2"));
                }
                Err(DeliveryError::new(format!("late {attempt}")))
            })
            .unwrap();
    }
    assert_eq!(deliver(&store), [""; 0]);
    is_dead(&store, "a", DeadCause::NeverAnswered, 3, Some("late 3"));
    verify(&store);
}

#[test]
fn redriven_letter_is_sent_under_the_same_id_with_all_its_attempts_and_the_total_is_kept() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a"]);
    for life in 0..3 {
        for _ in 0..2 {
            let mut seen = None;
            relay(&store)
                .with_attempts(2)
                .run_once(|message| {
                    seen = Some((message.id().to_owned(), message.payload().to_vec()));
                    Err(DeliveryError::new("no route"))
                })
                .unwrap();
            assert_eq!(seen, Some(("a".to_owned(), b"payload of a".to_vec())));
        }
        is_dead(&store, "a", DeadCause::AttemptsExhausted, 2, Some("no route"));
        let view = store.outbox().redrive("a").unwrap();
        assert_eq!((view.attempts, view.total_attempts, view.redrives), (0, 2 * (life + 1), life + 1));
        assert_eq!(view.last_error.as_deref(), Some("no route"));
        verify(&store);
    }
    assert_eq!(deliver(&store), ["a"]);
}

#[test]
fn only_dead_letters_are_redriven() {
    let world = World::new();
    let store = world.open();
    let redrive = |id: &str| store.outbox().redrive(id).unwrap_err().kind();
    assert_eq!(redrive("nobody"), ErrorKind::NotFound);
    send(&store, &["a"]);
    assert_eq!(redrive("a"), ErrorKind::Refused);
    relay(&store).run_once(|_| Ok(assert_eq!(redrive("a"), ErrorKind::Refused))).unwrap();
    assert_eq!((status_of(&store, "a"), redrive("a")), (MessageStatus::Delivered, ErrorKind::Refused));
}

#[test]
fn discarded_letter_is_recorded_with_who_and_why_and_never_delivered() {
    let world = World::new();
    let store = world.open();
    send(&store, &["a", "b"]);
    relay(&store).run_once(|_| Err(DeliveryError::permanent("no such mailbox"))).unwrap();
    store.outbox().discard("a", &Decision::new("jane", "sent by hand")).unwrap();
    let store = world.now_and_reopened(store, |store| {
        let view = view(store, "a");
        assert_eq!(view.discarded, Some(("jane".to_owned(), "sent by hand".to_owned())));
        assert_eq!((view.status, view.payload), (MessageStatus::Discarded, None));
        assert_eq!(deliver(store), [""; 0]);
        verify(store);
    });
    assert_eq!(store.outbox().dead(&MessagePage::first(10)).unwrap().messages.len(), 1);
}

#[test]
fn message_in_hand_or_finished_cannot_be_discarded() {
    let world = World::new();
    let store = world.open();
    let discard = |id: &str| store.outbox().discard(id, &decision()).unwrap_err().kind();
    assert_eq!(discard("nobody"), ErrorKind::NotFound);
    send(&store, &["a", "b"]);
    store.outbox().discard("b", &decision()).unwrap();
    assert_eq!(discard("b"), ErrorKind::Refused);
    relay(&store).run_once(|_| Ok(assert_eq!(discard("a"), ErrorKind::Refused))).unwrap();
    assert_eq!(discard("a"), ErrorKind::Refused);
    let nobody = Decision::new("", "");
    assert_eq!(store.outbox().discard("b", &nobody).unwrap_err().kind(), ErrorKind::InvalidInput);
}
