//! Where each state is found: by exactly one query.

use super::*;
use crate::machine::message::index::{Position, Shelf};
use crate::machine::message::stored::MessageStatus;

fn untried(mut stored: StoredMessage) -> StoredMessage {
    stored.head.attempts = 0;
    stored
}

#[test]
fn every_state_is_found_by_exactly_one_query() {
    let never_tried =
        [("untried", Some(untried(due(false)))), ("delayed", Some(untried(stored(State::Scheduled { at: FUTURE }))))];
    let states = states().into_iter().chain(never_tried);
    let mut behind = 0;
    for (name, stored) in states.filter_map(|(name, stored)| Some((name, stored?))) {
        behind += usize::from(stored.may_be(Position::Behind));
        for position in [Position::Head, Position::Behind].into_iter().filter(|at| stored.may_be(*at)) {
            let places = stored.places(position);
            let queries = [
                ("due", matches!(places.shelf, Some(Shelf::Due { .. }))),
                ("in flight", matches!(places.shelf, Some(Shelf::InFlight { .. }))),
                ("dead", matches!(places.shelf, Some(Shelf::Dead { .. }))),
                ("delivered", matches!(places.shelf, Some(Shelf::Delivered { .. }))),
                ("discarded", matches!(places.shelf, Some(Shelf::Discarded { .. }))),
                // Behind the head of its lane.
                ("behind", position == Position::Behind && places.lane.is_some()),
            ];
            let found: Vec<_> = queries.iter().filter(|(_, is_found)| *is_found).map(|(query, _)| *query).collect();
            let expected = match stored.status() {
                MessageStatus::InFlight => "in flight",
                MessageStatus::Dead => "dead",
                MessageStatus::Delivered => "delivered",
                MessageStatus::Discarded => "discarded",
                MessageStatus::Due | MessageStatus::Scheduled if position == Position::Behind => "behind",
                MessageStatus::Due | MessageStatus::Scheduled => "due",
            };
            assert_eq!(found, [expected], "{name}, {position:?}");
        }
    }
    assert_eq!(behind, 2, "both of those that may stand behind others");
}

#[test]
fn lane_is_kept_until_the_message_is_finished_and_by_a_dead_letter_only_if_it_holds_it() {
    for (name, stored) in states().into_iter().filter_map(|(name, stored)| Some((name, stored?))) {
        let keeps = match name {
            "over" | "delivered" | "discarded" | "discarded_over" => false,
            "exhausted" | "silent" | "exhausted_unlaned" => false,
            "exhausted_holding" => true,
            _ => true,
        };
        assert_eq!(stored.lane_kept(), keeps.then_some("jane"), "{name}");
    }
}

#[test]
fn nobody_behind_in_a_lane_is_in_flight_or_was_tried() {
    assert!(untried(due(false)).may_be(Position::Behind));
    assert!(untried(stored(State::Scheduled { at: FUTURE })).may_be(Position::Behind), "a delay");
    for stored in [due(false), stored(State::Scheduled { at: FUTURE }), in_flight(FUTURE, 3)] {
        assert!(!stored.may_be(Position::Behind), "{stored:?}");
        assert!(stored.may_be(Position::Head));
    }
}
