//! Fixtures of the format as it was released: they stay for ever, and every later release reads them.
//!
//! `DUPEPROOF_WRITE_GOLDEN=1` writes those that are missing; none is ever written over.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::backend::LabBackend;
use super::letters::{Letter, Says};
use super::messages;
use super::records::samples;
use super::script::{Act, Player, operation, options};
use super::{StoreFile, clock_at};
use crate::options::Recovery;
use crate::storage::codec::{decode, encode};
use crate::storage::{outbox, schema};
use crate::{Filter, MessageFilter, MessagePage, MessageView, OperationView, Page, Store};

/// When the golden store was closed.
const CLOSED_AT: u64 = 11;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

/// The fixture of this name; written first, from `make`, if it is missing and that was asked for.
fn golden(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = fixture(name);
    if !path.exists() && std::env::var_os("DUPEPROOF_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
        fs::write(&path, make()).expect("written");
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        line.iter().for_each(|byte| write!(text, "{byte:02x}").expect("into memory"));
        text.push('\n');
    }
    text
}

fn bytes(hex: &[u8]) -> Vec<u8> {
    let digits: Vec<u8> = hex.iter().copied().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
}

#[test]
fn row_of_every_kind_decodes_to_its_record_and_is_written_again_byte_for_byte() {
    for (name, record) in samples() {
        let fixture = golden(&format!("rows/{name}.hex"), || hex(&encode(&record)).into_bytes());
        let row = bytes(&fixture);
        assert_eq!(decode(record.head.id, &row), Ok(record.clone()), "{name}");
        assert_eq!(hex(&encode(&record)), hex(&row), "{name}");
    }
}

#[test]
fn row_of_every_kind_of_message_decodes_and_is_written_again_byte_for_byte() {
    for (name, stored) in messages::samples() {
        let fixture = golden(&format!("rows/{name}.hex"), || hex(&outbox::codec::encode(&stored)).into_bytes());
        let row = bytes(&fixture);
        assert_eq!(outbox::codec::decode(stored.head.sequence, &row), Ok(stored.clone()), "{name}");
        assert_eq!(hex(&outbox::codec::encode(&stored)), hex(&row), "{name}");
    }
}

/// One operation a line, with all a caller can see of it.
fn described(operations: &[OperationView]) -> String {
    let mut text = String::new();
    for view in operations {
        let millis = |at: Option<crate::Timestamp>| at.map(crate::Timestamp::as_unix_millis);
        let response = view.response.as_ref().and_then(|response| response.bytes()).map(hex);
        writeln!(
            text,
            "{} {} attempts={} key={} reference={:?} created={} settled={:?} expires={:?} retry={:?} unknown={:?} \
             ended={:?} failure={:?} checkpoint={:?} decisions={} response={:?}",
            view.key.key(),
            view.status,
            view.attempts,
            view.downstream_key,
            view.external_reference,
            view.created_at.as_unix_millis(),
            millis(view.settled_at),
            millis(view.expires_at),
            millis(view.retry_at),
            view.unknown.map(|(since, cause)| (since.as_unix_millis(), cause)),
            view.ended,
            view.failure,
            view.checkpoint,
            view.decisions.len(),
            response,
        )
        .expect("into memory");
    }
    text
}

/// A small store with a record in every state that outlives a close.
fn make_store() -> Vec<u8> {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let mut player = Player::open(&backend, Recovery::Scan).expect("a good disk");
    for act in [
        Act::Begin("a"),
        Act::Refer("a"),
        Act::Succeed("a", 40),
        Act::Begin("b"),
        Act::FailTerminal("b"),
        Act::Sweep(CLOSED_AT),
        Act::Begin("c"),
        Act::Checkpoint("c"),
        Act::FailRetryable("c"),
        Act::Begin("c"),
        Act::GiveUp("c"),
        Act::Begin("d"),
        Act::GiveUp("d"),
        Act::Happened("d"),
        Act::Begin("e"),
        Act::GiveUp("e"),
        Act::DidNotHappen("e"),
        Act::Begin("f"),
        Act::Succeed("f", 300),
        Act::Begin("g1"),
        Act::FailTerminal("g1"),
        Act::Outbox(Letter::Send(&["m1", "m2", "m3", "m4", "m5", "m6"])),
        Act::Outbox(Letter::Take(&["m1", "m3", "m5", "m6"])),
        Act::Outbox(Letter::Tell(&[("m3", Says::Delivered), ("m5", Says::Failed), ("m6", Says::Failed)])),
        Act::Outbox(Letter::Discard("m4")),
        Act::Outbox(Letter::Take(&["m5", "m6"])),
        Act::Outbox(Letter::Tell(&[("m5", Says::GaveBack), ("m6", Says::Failed)])),
        Act::Reserve("h"),
        Act::Begin("i"),
        Act::Close,
    ] {
        player.perform(act).unwrap_or_else(|error| panic!("{act:?}: {error}"));
    }
    backend.cache()
}

/// One message a line.
fn described_messages(messages: &[MessageView]) -> String {
    let mut text = String::new();
    for view in messages {
        let millis = |at: Option<crate::Timestamp>| at.map(crate::Timestamp::as_unix_millis);
        writeln!(
            text,
            "{} {} topic={} lane={:?} attempts={} takes={} redrives={} sent={} due={:?} dead={:?} finished={:?} purge={:?} \
             error={:?} discarded={:?} headers={:?} payload={:?}",
            view.id,
            view.status,
            view.topic,
            view.lane,
            view.attempts,
            view.total_attempts,
            view.redrives,
            view.sent_at.as_unix_millis(),
            millis(view.due_at),
            view.dead.map(|(since, cause)| (since.as_unix_millis(), cause)),
            millis(view.finished_at),
            millis(view.purge_at),
            view.last_error,
            view.discarded,
            view.headers,
            view.payload.as_deref().map(hex),
        )
        .expect("into memory");
    }
    text
}

fn open(image: Vec<u8>) -> Store {
    let options = options(&clock_at(CLOSED_AT), Recovery::Scan).with_verify_on_open();
    let file = StoreFile::on(LabBackend::of(image), None, &options).expect("a golden store opens");
    Store::on(file, &options).expect("starts")
}

fn list(store: &Store) -> String {
    let messages = store.outbox().list(&MessageFilter::new(), &MessagePage::first(100)).expect("lists").messages;
    described(&store.list(&Filter::new(), &Page::first(100)).expect("lists").operations)
        + &described_messages(&messages)
}

#[test]
fn store_file_of_this_format_opens_clean_answers_as_ever_and_goes_on() {
    let image = golden("store.bin", make_store);
    let store = open(image.clone());
    let listed = golden("store.txt", || list(&open(image)).into_bytes());
    assert_eq!(list(&store), String::from_utf8(listed).expect("text"));
    let report = store.verify().expect("reads");
    assert!(report.is_clean() && report.records == 9, "{report:?}");
    // And it is written to as ever.
    let mut counts = [0; 4];
    for key in ["a", "b", "c", "d", "e", "f", "g1", "h", "i"] {
        counts[match store.begin(&operation(key)).expect("answers") {
            crate::Begin::Expired(_) => 0,
            crate::Begin::Unknown(_) => 1,
            crate::Begin::Replay(_) => 2,
            crate::Begin::Execute(_) => 3,
            other => panic!("{key}: {other:?}"),
        }] += 1;
    }
    assert_eq!(counts, [2, 2, 3, 2], "expired, unknown, replayed, granted");
    let relayed = store.outbox().relay().run_once(|_| Ok(())).expect("relays");
    assert_eq!((relayed.delivered, report.messages), (1, 6), "the one that was in flight goes alone");
    assert!(store.verify().expect("reads").is_clean());
    store.close().expect("closes");
}

/// The lines of an export are a format of their own.
#[cfg(feature = "json")]
#[test]
fn export_of_this_format_is_read_and_written_as_ever() {
    let export = |store: &Store| {
        let mut lines = Vec::new();
        store.export(&mut lines).expect("into memory");
        lines
    };
    let store = open(golden("store.bin", make_store));
    let lines = golden("export.jsonl", || export(&store));
    assert_eq!(String::from_utf8_lossy(&export(&store)), String::from_utf8_lossy(&lines));
    let copy = options(&clock_at(CLOSED_AT), Recovery::Scan).in_memory().expect("starts");
    let (first, last) = (1, 1);
    let rows = lines.iter().filter(|byte| **byte == b'\n').count() - first - last;
    assert_eq!(copy.import(lines.as_slice()).expect("a good export"), rows as u64);
    assert_eq!(export(&copy), lines);
}
