//! Export and import: everything comes over, or nothing does.

use std::io::{self, Write};

use dupeproof::{ErrorKind, FailureReport, Filter, Page, Response, Sharing, Status, Store};

use crate::support::child::{Child, Task, park};
use crate::support::dice::Dice;
use crate::support::*;

fn exported(store: &Store) -> Vec<u8> {
    let mut lines = Vec::new();
    store.export(&mut lines).unwrap();
    lines
}

/// A store with a record in every status, every kind of response, and a history. What it returns holds the claims.
fn of_every_kind(world: &World) -> (Store, Vec<Box<dyn Send>>) {
    let store = world.options().with_response_limit(1000).open(world.path()).unwrap();
    // The tombstone first: eight days pass for it.
    let held = [Status::Tombstone].into_iter().chain(STATUSES.into_iter().filter(|it| *it != Status::Tombstone));
    let held = held.filter_map(|status| bring_to(world, &store, status.as_str(), status)).collect();
    for (name, response) in [
        ("empty", Response::from("")),
        ("absent", Response::Absent),
        ("no text", Response::from(&[0, 0xff, 0x80, b'\n'][..])),
        ("text", Response::from("{\"Zoë\": \u{202e}\u{0}\r\n}")),
        ("too large", Response::from(vec![7; 1001])),
    ] {
        execute(&store, &operation(name)).succeed_raw(response).unwrap();
    }
    let failure = FailureReport::new("declined").with_response("why");
    execute(&store, &operation("failed")).fail_terminal_with(failure).unwrap();
    execute(&store, &operation("decided")).give_up("lost").unwrap();
    store.resolve(key("decided"), dupeproof::Verdict::DidNotHappen, &decision()).unwrap();
    let claim = execute(&store, &operation("noted"));
    claim.checkpoint(&[0, 1, 2, 255]).unwrap();
    claim.record_external_reference("ch_7").unwrap();
    claim.give_up("lost").unwrap();
    (store, held)
}

#[test]
fn import_takes_over_every_status_and_answers_as_the_original_does() {
    let (world, copy) = (World::new(), World::new());
    let (store, held) = of_every_kind(&world);
    let lines = exported(&store);
    copy.clock.step_wall(START + 8 * DAY);
    // Shared, because an exclusive open would end the claims of others.
    let imported = copy.options().with_sharing(Sharing::Shared).open(copy.path()).unwrap();
    let records = store.stats().unwrap();
    assert_eq!(imported.import(lines.as_slice()).unwrap(), lines.split(|byte| *byte == b'\n').count() as u64 - 3);
    assert_eq!(exported(&imported), lines, "not a byte is lost");
    assert!(imported.verify().unwrap().is_clean());
    let all = |store: &Store| store.list(&Filter::new(), &Page::first(1000)).unwrap().operations;
    assert_eq!(format!("{:?}", all(&imported)), format!("{:?}", all(&store)));
    assert_eq!(imported.stats().unwrap().unknown, records.unknown);
    for operation in all(&store) {
        let asked = self::operation(operation.key.key());
        let [told, of_the_copy] = [&store, &imported].map(|store| format!("{:?}", store.begin(&asked).unwrap()));
        if !told.starts_with("Execute") {
            assert_eq!(of_the_copy, told);
        }
        conflict(&imported, &altered(operation.key.key()));
    }
    drop(held);
}

#[test]
fn numbers_opens_and_time_go_on_from_the_original() {
    let (world, copy) = (World::new(), World::new());
    let store = world.open();
    let last = execute(&store, &operation("a"));
    let (token, now) = (last.fencing_token(), store.stats().unwrap().now);
    let lines = exported(&store);
    // The copy's machine has a clock that is behind.
    copy.clock.step_wall(START - DAY);
    let imported = copy.open();
    imported.import(lines.as_slice()).unwrap();
    assert!(imported.stats().unwrap().now >= now);
    let imported = copy.reopen(imported);
    assert!(imported.stats().unwrap().now >= now);
    // No open of the copy's takes a number that an open of the original's had: nobody is at work on the claim here.
    assert_eq!(status(&imported, "a"), Status::Unknown);
    assert!(execute(&imported, &operation("b")).fencing_token() > token);
}

#[test]
fn import_needs_an_empty_store_and_leaves_another_as_it_was() {
    let (world, other) = (World::new(), World::new());
    let (store, _held) = of_every_kind(&world);
    let lines = exported(&store);
    let full = other.open();
    execute(&full, &operation("a")).succeed_raw("receipt").unwrap();
    let before = exported(&full);
    assert_eq!(full.import(lines.as_slice()).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(exported(&full), before);
    assert!(replay(&full, &operation("a")).is_success(), "it goes on");
}

/// Every cut at a line, and at random places within; every line left out, doubled, or exchanged with the next.
#[test]
fn export_that_was_cut_or_changed_is_refused_as_a_whole() {
    let world = World::new();
    let (store, _held) = of_every_kind(&world);
    let whole = exported(&store);
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let copy = World::new();
    let empty = copy.open();
    let refused = |changed: &[u8], what: &str| {
        let kind = empty.import(changed).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::InvalidInput), "{what}: {}", String::from_utf8_lossy(changed));
    };
    for at in 0..lines.len() {
        refused(&lines[..at].concat(), "cut");
        refused(&[&lines[..at], &lines[at + 1..]].concat().concat(), "left out");
        refused(&[&lines[..=at], &lines[at..]].concat().concat(), "doubled");
        if at + 1 < lines.len() {
            let mut exchanged = lines.clone();
            exchanged.swap(at, at + 1);
            refused(&exchanged.concat(), "exchanged");
        }
    }
    let mut dice = Dice::fresh();
    for _ in 0..2000 {
        let mut changed = whole.clone();
        let at = dice.below(changed.len());
        if dice.below(4) == 0 {
            // The line break at the very end is all that may be missing.
            changed.truncate(at.min(whole.len() - 2));
        } else {
            changed[at] ^= 1 << dice.below(8);
        }
        let kind = empty.import(changed.as_slice()).map_err(|error| error.kind());
        // The format's number is the one thing that can be changed into something that has a meaning.
        assert!(
            matches!(kind, Err(ErrorKind::InvalidInput | ErrorKind::NewerFormat)),
            "{kind:?}: {}",
            String::from_utf8_lossy(&changed)
        );
    }
    assert_eq!(empty.stats().unwrap().succeeded, 0);
    assert_eq!(empty.import(whole.as_slice()).unwrap() as usize, lines.len() - 2, "and then takes the good one");
}

/// Lines with a right sum of their own: whoever wrote them, nothing out of bounds gets in.
#[test]
fn import_takes_nothing_that_is_out_of_bounds() {
    let world = World::new();
    let store = world.open();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    execute(&store, &operation("b")).give_up("lost").unwrap();
    let whole = String::from_utf8(exported(&store)).unwrap();
    for (good, bad) in [
        ("\"status\":\"unknown\"", "\"status\":\"succeeded\""),
        (
            "\"attempt\":1,\"generation\":0,\"reference\":null,\"decisions\":[],\"state\":{\"Un",
            "\"attempt\":0,\"generation\":0,\"reference\":null,\"decisions\":[],\"state\":{\"Un",
        ),
        ("\"records\":2,\"mess", "\"records\":3,\"mess"),
        ("\"key\":\"b\"", "\"key\":\"\""),
        ("\"key\":\"b\"", "\"key\":\"a\""),
        ("\"key\":\"b\"", "\"key\":\"b\\u0007\""),
        ("\"id\":2", "\"id\":1"),
        ("\"id\":1", "\"id\":0"),
        ("\"kind\":1", "\"kind\":77"),
        ("\"algorithm\":1", "\"algorithm\":99"),
        ("\"digest\":\"", "\"digest\":\"00"),
        ("{\"text\":\"receipt\"}", "{\"base64\":\"?\"}"),
        ("\"payload_len\":7", "\"payload_len\":-1"),
        ("\"response\":\"Bytes\"", "\"response\":\"Absent\""),
        ("\"settled_at\":", "\"settled_at\":9"),
    ] {
        assert!(whole.contains(good), "{good} in {whole}");
        let body = whole.replacen(good, bad, 1);
        let (body, _) = body.rsplit_once("{\"end\"").unwrap();
        let sum = xxhash_rust::xxh3::xxh3_128(body.as_bytes());
        let forged = format!("{body}{{\"end\":{{\"records\":2,\"messages\":0,\"xxh3_128\":\"{sum:032x}\"}}}}\n");
        let empty = Store::in_memory().unwrap();
        let error = empty.import(forged.as_bytes()).expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}: {error}");
        assert!(error.to_string().contains("line "), "{error}");
        assert_eq!(empty.import(whole.as_bytes()).unwrap(), 2);
    }
}

#[test]
fn what_is_no_export_is_refused_whatever_its_size() {
    let store = Store::in_memory().unwrap();
    let long_line = io::Read::take(io::repeat(b'x'), 1 << 30);
    for (name, input) in [
        ("nothing", Box::new(io::empty()) as Box<dyn io::BufRead>),
        ("an empty line", Box::new(&b"\n"[..])),
        ("a gigabyte without an end", Box::new(io::BufReader::new(long_line))),
        ("another file", Box::new(&include_bytes!("../golden/v1/store.txt")[..])),
        ("deep JSON", Box::new(io::Cursor::new("[".repeat(100_000)))),
        (
            "another format",
            Box::new(
                &br#"{"export":{"format":2,"records":0,"messages":0,"incarnation":0,"sequence":0,"clocks":null}}"#[..],
            ),
        ),
    ] {
        let error = store.import(input).expect_err(name);
        assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NewerFormat), "{name}: {error}");
        assert!(error.to_string().len() < 1000);
    }
}

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn export_that_cannot_be_written_is_an_error_and_the_store_goes_on() {
    use std::error::Error as _;

    let world = World::new();
    let (store, _held) = of_every_kind(&world);
    let error = store.export(Full).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>()).unwrap();
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert!(replay(&store, &operation("empty")).is_success());
}

/// SIGKILL at random instants of an import: the store is empty then, and takes the export, or has it whole.
#[test]
fn kill_during_an_import_leaves_all_or_nothing() {
    let original = World::new();
    let store = original.open();
    let operations: Vec<_> = (0..1000).map(|number| operation(&number.to_string())).collect();
    drop(store.begin_many(&operations).unwrap());
    store.close().unwrap();
    let store = original.open();
    let lines = exported(&store);
    let mut dice = Dice::fresh();
    for _ in 0..20 {
        let world = World::new();
        std::fs::write(world.folder().join("lines"), &lines).unwrap();
        world.open().close().unwrap();
        let mut child = Child::start(module_path!(), &world, "");
        child.expect("importing");
        std::thread::park_timeout(std::time::Duration::from_micros(dice.throw() % 40_000));
        child.kill();
        let store = world.open();
        assert!(store.verify().unwrap().is_clean());
        match store.stats().unwrap().unknown {
            0 => assert_eq!(store.import(lines.as_slice()).unwrap(), 1000),
            all => assert_eq!(all, 1000),
        }
    }
}

#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let lines = std::fs::read(task.world.folder().join("lines")).unwrap();
    let store = task.world.open();
    crate::support::child::say("importing");
    store.import(lines.as_slice()).unwrap();
    park("imported");
}
