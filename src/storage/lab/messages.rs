//! Messages: what is written is read back, what was not is refused, and `verify` finds every damage planted below it.

use proptest::collection::vec;
use proptest::prelude::*;
use redb::{ReadableTable, WriteTransaction};

use super::audits::tampered;
use super::backend::LabBackend;
use super::records::samples as records;
use super::script::options;
use super::{StoreFile, clock_at};
use crate::machine::message::content::Message;
use crate::machine::message::index::{Position, Shelf};
use crate::machine::message::stored::{
    Dead, DeadCause, Due, Head, LaneWhenDead, Lease, Sequence, State, StoredMessage, Terms,
};
use crate::machine::time::Timestamp;
use crate::options::Recovery;
use crate::storage::audit::Problem;
use crate::storage::codec;
use crate::storage::outbox::codec::{decode, encode};
use crate::storage::schema;
use crate::storage::tables::{
    MESSAGE_IDS, MESSAGE_LANES, MESSAGES, MESSAGES_DEAD, MESSAGES_DELIVERED, MESSAGES_DISCARDED, MESSAGES_DUE,
    MESSAGES_IN_FLIGHT,
};

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + second * 1000)
}

/// One message a state, and one for each way it can look: the fixtures of the row format are made of them, so they never
/// change. They are the rows of one store, by ascending number; the first of each lane is its head.
pub(super) fn samples() -> Vec<(&'static str, StoredMessage)> {
    let terms = Terms { attempts_max: 16, lane_when_dead: LaneWhenDead::IsHeld };
    let lease = Lease { incarnation: 3, until: at(60), terms };
    let dead = |cause, lane| State::Dead(Dead { since: at(5), cause, lane });
    let states = [
        ("message_due", Some("a"), 0, State::Due(Due { since: at(0), is_suspect: false })),
        ("message_behind", Some("a"), 0, State::Due(Due { since: at(0), is_suspect: false })),
        ("message_behind_delayed", Some("a"), 0, State::Scheduled { at: at(90) }),
        ("message_suspect", None, 2, State::Due(Due { since: at(60), is_suspect: true })),
        ("message_in_flight", Some("b"), 1, State::InFlight(lease)),
        ("message_scheduled", Some("c"), 3, State::Scheduled { at: at(30) }),
        ("message_delivered", Some("b"), 1, State::Delivered { at: at(4), purge_at: at(604_804) }),
        ("message_dead", Some("d"), 16, dead(DeadCause::AttemptsExhausted, LaneWhenDead::GoesOn)),
        ("message_dead_silent", None, 16, dead(DeadCause::NeverAnswered, LaneWhenDead::GoesOn)),
        ("message_dead_holding", Some("e"), 1, dead(DeadCause::Refused, LaneWhenDead::IsHeld)),
        (
            "message_discarded",
            None,
            16,
            State::Discarded { at: at(6), by: "jane".into(), reason: "sent by hand".into(), purge_at: at(604_806) },
        ),
    ];
    let sample = |(number, (name, lane, attempts, state)): (u64, (&'static str, Option<&str>, u32, State))| {
        let mut message = Message::new(format!("id of {name}"), format!("topic {}", number % 3), name.as_bytes());
        message = lane.map_or(message.clone(), |lane| message.with_lane(lane));
        message = message.with_header("trace", "4bf9");
        let fingerprint = message.fingerprint();
        if matches!(state, State::Delivered { .. } | State::Discarded { .. }) {
            (message.payload, message.headers) = (Vec::new(), Vec::new());
        }
        let head = Head {
            sequence: Sequence(number),
            message,
            fingerprint,
            sent_at: at(0),
            attempts,
            takes: attempts + attempts / 2,
            redrives: attempts / 16,
            last_error: (attempts > 1).then(|| "no route".into()),
        };
        (name, head.with(state))
    };
    (1..).zip(states).map(sample).collect()
}

fn is_behind(name: &str) -> bool {
    name.starts_with("message_behind")
}

fn any_message() -> impl Strategy<Value = StoredMessage> {
    let parts = ("[a-z]{1,20}", "[a-z]{1,9}", proptest::option::of("[a-z]{1,9}"), vec(any::<u8>(), 0..50));
    (any::<proptest::sample::Index>(), parts, any::<u64>(), 0..9_u32).prop_map(|(which, parts, number, extra)| {
        let (_, mut stored) = which.get(&samples()).clone();
        let (id, topic, lane, payload) = parts;
        let head = &mut stored.head;
        (head.message.id, head.message.topic) = (id.into(), topic.into());
        head.message.lane = lane.map(Into::into);
        if !head.message.headers.is_empty() {
            head.message.payload = payload;
        }
        head.sequence = Sequence(number);
        head.takes += extra;
        stored
    })
}

proptest! {
    #[test]
    fn any_message_is_read_back_as_it_was_written(stored in any_message()) {
        prop_assert_eq!(decode(stored.head.sequence, &encode(&stored)), Ok(stored));
    }

    #[test]
    fn any_changed_byte_of_a_message_is_an_error(stored in any_message(), flip in 1_u8..) {
        let mut row = encode(&stored);
        for at in 0..row.len() {
            row[at] ^= flip;
            prop_assert!(decode(stored.head.sequence, &row).is_err(), "byte {at} changed by {flip:#x}");
            row[at] ^= flip;
        }
    }

    #[test]
    fn message_that_is_cut_or_longer_or_in_anothers_place_is_an_error(stored in any_message(), other in any::<u64>()) {
        let mut row = encode(&stored);
        for len in 0..row.len() {
            prop_assert!(decode(stored.head.sequence, &row[..len]).is_err(), "cut to {len} of {}", row.len());
        }
        prop_assume!(other != stored.head.sequence.0);
        prop_assert!(decode(Sequence(other), &row).is_err());
        row.push(0);
        prop_assert!(decode(stored.head.sequence, &row).is_err());
    }
}

#[test]
fn row_of_a_record_is_no_message_and_that_of_a_message_no_record() {
    let wrong_sum = codec::DecodeError::Damaged("the row's checksum does not match");
    for (_, record) in records() {
        assert_eq!(decode(Sequence(record.head.id.0), &codec::encode(&record)), Err(wrong_sum.clone()));
    }
    for (_, stored) in samples() {
        let id = crate::machine::record::RecordId(stored.head.sequence.0);
        assert_eq!(codec::decode(id, &encode(&stored)), Err(wrong_sum.clone()));
    }
}

#[test]
fn samples_break_no_rule() {
    for (name, stored) in samples() {
        assert_eq!(stored.check(), Ok(()), "{name}");
        assert!(!is_behind(name) || stored.may_be(Position::Behind), "{name}");
    }
}

fn insert(txn: &WriteTransaction, name: &str, stored: &StoredMessage) {
    let sequence = stored.head.sequence.0;
    txn.open_table(MESSAGES).unwrap().insert(sequence, encode(stored).as_slice()).unwrap();
    txn.open_table(MESSAGE_IDS).unwrap().insert(&*stored.head.message.id, sequence).unwrap();
    let position = if is_behind(name) { Position::Behind } else { Position::Head };
    let places = stored.places(position);
    if let Some(lane) = places.lane {
        txn.open_table(MESSAGE_LANES).unwrap().insert((lane, sequence), ()).unwrap();
    }
    let Some(shelf) = places.shelf else { return };
    match shelf {
        Shelf::Due { topic, at } => {
            txn.open_table(MESSAGES_DUE).unwrap().insert((topic, at.as_unix_millis(), sequence), ()).unwrap();
        }
        Shelf::InFlight { until, incarnation } => {
            let key = (until.as_unix_millis(), sequence);
            txn.open_table(MESSAGES_IN_FLIGHT).unwrap().insert(key, incarnation).unwrap();
        }
        Shelf::Dead { since } => {
            txn.open_table(MESSAGES_DEAD).unwrap().insert(sequence, since.as_unix_millis()).unwrap();
        }
        Shelf::Delivered { purge_at } => {
            txn.open_table(MESSAGES_DELIVERED).unwrap().insert((purge_at.as_unix_millis(), sequence), ()).unwrap();
        }
        Shelf::Discarded { purge_at } => {
            txn.open_table(MESSAGES_DISCARDED).unwrap().insert((purge_at.as_unix_millis(), sequence), ()).unwrap();
        }
    }
}

/// What `verify` says of a store of all samples that was changed below it.
fn problems(change: impl FnOnce(&WriteTransaction)) -> Vec<Problem> {
    let image = tampered(schema::image().expect("an image"), |txn| {
        samples().iter().for_each(|(name, stored)| insert(txn, name, stored));
        change(txn);
    });
    let file = StoreFile::on(LabBackend::of(image), None, &options(&clock_at(0), Recovery::Scan)).expect("opens");
    let report = file.read(|snapshot| snapshot.audit(&crate::progress::Reporter::default())).expect("reads");
    assert!(report.problems.iter().all(|problem| !problem.to_string().is_empty()));
    report.problems
}

fn number(name: &str) -> u64 {
    let (_, stored) = samples().into_iter().find(|(sample, _)| *sample == name).expect("there is one");
    stored.head.sequence.0
}

#[track_caller]
fn lacks(problems: &[Problem], number: u64) {
    let is_lacking =
        |problem: &Problem| matches!(problem, Problem::MessageSideRow { message, .. } if *message == number);
    assert!(problems.iter().any(is_lacking), "{number}: {problems:?}");
}

#[track_caller]
fn has_stray(problems: &[Problem], number: u64) {
    assert!(problems.contains(&Problem::StrayMessageSideRow { message: number }), "{number}: {problems:?}");
}

#[test]
fn outbox_of_every_kind_of_message_is_clean() {
    assert_eq!(problems(|_| ()), []);
}

#[test]
fn every_missing_side_row_of_a_message_is_found() {
    for (name, stored) in samples() {
        let sequence = stored.head.sequence.0;
        let id = stored.head.message.id.clone();
        lacks(&problems(|txn| drop(txn.open_table(MESSAGE_IDS).unwrap().remove(&*id).unwrap())), sequence);
        if let Some(lane) = stored.lane_kept() {
            let found = problems(|txn| {
                txn.open_table(MESSAGE_LANES).unwrap().remove((lane, sequence)).unwrap().expect("was there");
            });
            lacks(&found, sequence);
        }
        if is_behind(name) {
            continue;
        }
        let found = problems(|txn| {
            txn.open_table(MESSAGES_DUE).unwrap().retain(|(_, _, found), ()| found != sequence).unwrap();
            txn.open_table(MESSAGES_IN_FLIGHT).unwrap().retain(|(_, found), _| found != sequence).unwrap();
            txn.open_table(MESSAGES_DEAD).unwrap().retain(|found, _| found != sequence).unwrap();
            txn.open_table(MESSAGES_DELIVERED).unwrap().retain(|(_, found), ()| found != sequence).unwrap();
            txn.open_table(MESSAGES_DISCARDED).unwrap().retain(|(_, found), ()| found != sequence).unwrap();
        });
        lacks(&found, sequence);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
    }
}

#[test]
fn every_side_row_that_no_message_has_is_found() {
    // Of a message that is not there, and of those that are found elsewhere.
    for stray in std::iter::once(999).chain(samples().iter().map(|(_, stored)| stored.head.sequence.0)) {
        has_stray(&problems(|txn| drop(txn.open_table(MESSAGE_IDS).unwrap().insert("stray", stray).unwrap())), stray);
        let plant: [&dyn Fn(&WriteTransaction); 6] = [
            &|txn| drop(txn.open_table(MESSAGE_LANES).unwrap().insert(("stray", stray), ()).unwrap()),
            &|txn| drop(txn.open_table(MESSAGES_DUE).unwrap().insert(("stray", 7, stray), ()).unwrap()),
            &|txn| drop(txn.open_table(MESSAGES_IN_FLIGHT).unwrap().insert((7, stray), 3).unwrap()),
            &|txn| drop(txn.open_table(MESSAGES_DELIVERED).unwrap().insert((7, stray), ()).unwrap()),
            &|txn| drop(txn.open_table(MESSAGES_DISCARDED).unwrap().insert((7, stray), ()).unwrap()),
            &|txn| {
                let mut dead = txn.open_table(MESSAGES_DEAD).unwrap();
                if dead.get(stray).unwrap().is_none() {
                    dead.insert(stray, 7).unwrap();
                } else {
                    // That of a dead letter with a wrong time is found as the lack of the right one.
                    txn.open_table(MESSAGES_DUE).unwrap().insert(("stray", 7, stray), ()).unwrap();
                }
            },
        ];
        for plant in plant {
            has_stray(&problems(plant), stray);
        }
    }
}

#[test]
fn wrong_side_row_of_a_message_is_found() {
    let flying = number("message_in_flight");
    let found = problems(|txn| {
        let key = (at(60).as_unix_millis(), flying);
        txn.open_table(MESSAGES_IN_FLIGHT).unwrap().insert(key, 4).unwrap();
    });
    lacks(&found, flying);
    let dead = number("message_dead");
    lacks(&problems(|txn| drop(txn.open_table(MESSAGES_DEAD).unwrap().insert(dead, 7).unwrap())), dead);
    let (one, other) = (number("message_due"), number("message_suspect"));
    let found = problems(|txn| {
        txn.open_table(MESSAGE_IDS).unwrap().insert("id of message_due", other).unwrap();
    });
    lacks(&found, one);
    has_stray(&found, other);
}

#[test]
fn message_in_flight_behind_another_of_its_lane_is_found() {
    let flying = number("message_in_flight");
    let found = problems(|txn| {
        let (_, mut before) = samples().swap_remove(0);
        (before.head.message.id, before.head.message.lane) = ("before".into(), Some("b".into()));
        before.head.sequence = Sequence(0);
        insert(txn, "before", &before);
    });
    lacks(&found, flying);
}

#[test]
fn unreadable_message_is_found_and_what_leads_to_it_too() {
    for (name, stored) in samples() {
        let sequence = stored.head.sequence.0;
        let found = problems(|txn| {
            let mut table = txn.open_table(MESSAGES).unwrap();
            let mut row = table.get(sequence).unwrap().expect("was there").value().to_vec();
            let last = row.len() - 1;
            row[last] ^= 1;
            table.insert(sequence, row.as_slice()).unwrap();
        });
        assert!(
            matches!(&found[0], Problem::UnreadableMessage { message, .. } if *message == sequence),
            "{name}: {found:?}"
        );
        has_stray(&found, sequence);
    }
}

/// A relay that sleeps is woken by this, and by nothing else before its next look.
#[test]
fn bell_rings_for_what_became_due_and_for_nothing_else() {
    let options = options(&clock_at(0), Recovery::Scan);
    let store = crate::Store::on(StoreFile::in_memory(&options).expect("made"), &options).expect("starts");
    let (outbox, post) = (store.outbox(), store.engine().post());
    let relay = outbox.relay().with_backoff(crate::Backoff::none());
    let rings = |work: &dyn Fn()| {
        let before = post.rings();
        work();
        post.rings() - before
    };
    let message = |id: &str| Message::new(id, "lab", "").with_lane("a");
    assert_eq!(rings(&|| drop(outbox.send(&message("1")))), 1);
    assert_eq!(rings(&|| drop(outbox.send(&message("1")))), 0, "a duplicate");
    assert_eq!(rings(&|| drop(outbox.send(&message("2")))), 0, "it waits behind the first");
    assert_eq!(rings(&|| drop(relay.run_once(|_| Err("x".parse::<u8>().unwrap_err().into())))), 1, "it is due again");
    assert_eq!(rings(&|| drop(relay.run_once(|_| Ok(())))), 1, "the second came to the front");
    assert_eq!(rings(&|| drop(relay.run_once(|_| Ok(())))), 0);
}

/// A store of the samples, one of whose rows cannot be read.
fn store_without(damaged: u64) -> crate::Store {
    let image = tampered(schema::image().expect("an image"), |txn| {
        samples().iter().for_each(|(name, stored)| insert(txn, name, stored));
        txn.open_table(MESSAGES).unwrap().insert(damaged, b"not a row".as_slice()).unwrap();
    });
    let options = options(&clock_at(100), Recovery::Scan);
    let file = StoreFile::on(LabBackend::of(image), None, &options).expect("opens");
    crate::Store::on(file, &options).expect("starts")
}

/// Relays until there is no more. What arrived, and how many rows could not be read.
fn relay(store: &crate::Store) -> (Vec<String>, u64) {
    let (mut arrived, mut unreadable) = (Vec::new(), 0);
    for _ in 0..100 {
        let report = store.outbox().relay().run_once(|message| {
            arrived.push(message.id().trim_start_matches("id of message_").to_owned());
            Ok(())
        });
        let report = report.expect("the others are not concerned");
        unreadable = unreadable.max(report.unreadable);
        if !report.more {
            arrived.sort_unstable();
            return (arrived, unreadable);
        }
    }
    panic!("there was always more");
}

#[test]
fn unreadable_message_stops_its_own_lane_and_nobody_else() {
    let open = ["behind", "behind_delayed", "due", "in_flight", "scheduled", "suspect"];
    let without =
        |names: &[&str]| open.iter().filter(|name| !names.contains(name)).map(|name| name.to_string()).collect();
    for (damaged, missing, unreadable) in [
        ("message_due", &["due", "behind", "behind_delayed"][..], 1),
        // It is read when the one before it has gone, and the word of that one still counts.
        ("message_behind", &["behind", "behind_delayed"], 0),
        ("message_suspect", &["suspect"], 1),
        ("message_in_flight", &["in_flight"], 0),
        ("message_dead", &[], 0),
    ] {
        let store = store_without(number(damaged));
        let expected: Vec<String> = without(missing);
        assert_eq!(relay(&store), (expected, unreadable), "{damaged}");
        store.sweep(1000).expect("the others are swept");
        store.close().expect("closes");
    }
}
