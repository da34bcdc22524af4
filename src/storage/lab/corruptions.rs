//! Thousands of ways a small store file can be damaged while it is closed: an error may come of it, never a panic and
//! never a wrong answer.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::backend::LabBackend;
use super::script::{operation, value};
use super::{Dice, StoreFile, clock_at, quiet, rows_of, seeds};
use crate::clock::Clock;
use crate::error::{ErrorKind, Result};
use crate::machine::event::{Answer, Context, Event, Transition};
use crate::machine::record::RecordId;
use crate::machine::retention::Aged;
use crate::machine::transition::transition;
use crate::machine::workflow::Members;
use crate::operation::view;
use crate::options::{OpenCheck, Options};
use crate::storage::schema;
use crate::{Begin, Filter, OperationKey, OperationView, Page, Retry, Status, Store, Timestamp};

const PAGE: usize = 4096;
const KEYS: usize = 60;
const CORRUPTIONS: u64 = 5000;
/// Responses of the first keys are over by then, and their tombstones are not.
const SECOND: u64 = 11;

/// Panics of the storage engine that were caught on their way: expected here, and not worth a backtrace each.
static CAUGHT: AtomicUsize = AtomicUsize::new(0);

fn silence_the_engine() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.location().is_some_and(|location| location.file().contains("redb-")) {
                CAUGHT.fetch_add(1, Ordering::Relaxed);
            } else {
                before(panic);
            }
        }));
    });
}

/// Every version of every record that was ever written, as it looks now. The last is the current one.
///
/// A page that was replaced by an older one holds rows whose sums are right: without the check of the whole tree,
/// nothing tells that they are stale.
type Versions = BTreeMap<OperationKey, Vec<OperationView>>;

fn note_versions(store: &Store, versions: &mut Versions) -> Result<()> {
    let now = Timestamp::from_wall(clock_at(SECOND).wall());
    let (fresh_id, members) = (RecordId(0), Members::default());
    let context = Context { now, wall: now, incarnation: 0, fresh_id, parent: None, members };
    for record in store.engine().read(rows_of)?.records {
        let (Aged::Same(aged) | Aged::Moved(aged)) = record.clone().at(now) else { continue };
        let of_key = versions.entry(aged.head.identity.key.clone()).or_default();
        let current = view(aged);
        if of_key.last() != Some(&current) {
            // An open ends a claim, also one that ended long ago.
            if let Ok(Transition { answer: Answer::Accepted(ended), .. }) =
                transition(Some(record), Event::OwnerGone, &context)
            {
                of_key.push(view(*ended));
            }
            of_key.push(current);
        }
    }
    Ok(())
}

/// A closed store with an operation in every state that outlives a close.
fn store_file(versions: &mut Versions) -> Result<Vec<u8>> {
    let backend = LabBackend::of(schema::image()?);
    let clock = clock_at(0);
    let options = quiet(&clock);
    let store = Store::on(StoreFile::on(backend.clone(), None, &options)?, &options)?;
    for n in 0..KEYS {
        if n == KEYS / 5 {
            clock.advance(Duration::from_secs(SECOND));
            store.sweep(1000)?;
        }
        let key = format!("key {n}");
        let Begin::Execute(claim) = store.begin(&operation(&key))? else { panic!("{key} is new") };
        note_versions(&store, versions)?;
        match n % 6 {
            0 | 1 => drop(claim.succeed_raw(value(&key, 20 + n))?),
            2 => drop(claim.fail_terminal("declined")?),
            3 if n % 4 == 1 => drop(claim.succeed_raw(value(&key, 9000))?),
            3 => drop(claim.fail_retryable("busy", Retry::now())?),
            4 => drop(claim.give_up("timed out")?),
            _ => drop(claim),
        }
        note_versions(&store, versions)?;
    }
    store.close()?;
    Ok(backend.cache())
}

fn open(image: Vec<u8>, check: OpenCheck) -> Result<Store> {
    let options = Options { open_check: check, ..quiet(&clock_at(SECOND)) };
    Store::on(StoreFile::on(LabBackend::of(image), None, &options)?, &options)
}

/// One kind of damage, somewhere.
fn damage(image: &[u8], dice: &mut Dice) -> (String, Vec<u8>) {
    loop {
        let mut bytes = image.to_vec();
        let pages = bytes.len() / PAGE;
        let what = match dice.below(5) {
            // The header is a fraction of the file and matters most.
            0 => flip(&mut bytes, dice, PAGE),
            1 => flip(&mut bytes, dice, image.len()),
            2 => {
                let page = dice.below(pages);
                bytes[page * PAGE..(page + 1) * PAGE].fill(0);
                format!("page {page} zeroed")
            }
            3 => {
                let mut len = dice.below(bytes.len());
                if dice.coin() {
                    len -= len % PAGE;
                }
                bytes.truncate(len);
                format!("cut to {len}")
            }
            _ => {
                let (one, other) = (dice.below(pages), dice.below(pages));
                for at in 0..PAGE {
                    bytes.swap(one * PAGE + at, other * PAGE + at);
                }
                format!("pages {one} and {other} swapped")
            }
        };
        // What is zero already cannot be zeroed.
        if bytes != image {
            return (what, bytes);
        }
    }
}

fn flip(bytes: &mut [u8], dice: &mut Dice, within: usize) -> String {
    // Half of the file is free space, where a flip tells nothing.
    let at = loop {
        let at = dice.below(within);
        let page = at / PAGE * PAGE;
        if bytes[page..page + PAGE].iter().any(|byte| *byte != 0) {
            break at;
        }
    };
    let bit = dice.below(8);
    bytes[at] ^= 1 << bit;
    format!("bit {bit} of byte {at} flipped")
}

#[derive(Debug, Default)]
struct Tally {
    files: usize,
    refused_at_open: usize,
    errors: usize,
    /// Files in which a known key was reported absent.
    absent_files: usize,
    absent_keys: usize,
    /// Answers that were right once.
    stale: usize,
    /// Grants for keys that were settled or unknown.
    granted_again: usize,
    unclean: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn heard<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors += 1;
                let damage = [ErrorKind::Damaged, ErrorKind::NotAStore, ErrorKind::NewerFormat];
                let trouble = [ErrorKind::Io, ErrorKind::Stopped, ErrorKind::Indeterminate];
                let is_named = damage.contains(&error.kind()) || trouble.contains(&error.kind());
                if !is_named {
                    self.wrong.push(format!("an error of another kind: {error:?}"));
                }
                None
            }
        }
    }

    /// Asks for everything.
    fn question(&mut self, store: &Store, known: &Versions) {
        let mut absent = 0;
        for (key, expected) in known {
            match self.heard(store.get(key)) {
                Some(Some(view)) => self.check_view(&view, expected),
                Some(None) => absent += 1,
                None => {}
            }
        }
        self.absent_files += usize::from(absent > 0);
        self.absent_keys += absent;
        if let Some(listing) = self.heard(store.list(&Filter::new(), &Page::first(1000))) {
            self.check_listed(&listing.operations, known);
        }
        for status in Status::ALL {
            if let Some(listing) = self.heard(store.list(&Filter::new().with_status(status), &Page::first(1000))) {
                self.check_listed(&listing.operations, known);
            }
        }
        self.heard(store.stats());
        if let Some(report) = self.heard(store.verify()) {
            self.unclean += usize::from(!report.is_clean());
        }
        for (key, versions) in known {
            let expected = versions.last().expect("every key has a version");
            let may_run = expected.status == Status::FailedRetryable;
            match self.heard(store.begin(&operation(key.key()))) {
                Some(Begin::Execute(_)) if !may_run => self.granted_again += 1,
                Some(Begin::Replay(replay)) => {
                    let is_success = expected.status == Status::Succeeded;
                    let found = if replay.is_success() { replay.raw().bytes() } else { None };
                    let stored = expected.response.as_ref().filter(|_| is_success).and_then(|stored| stored.bytes());
                    if replay.is_success() != is_success || found != stored {
                        self.wrong.push(format!("{replay:?} for {expected:?}"));
                    }
                }
                _ => {}
            }
        }
        self.heard(store.sweep(1000));
        self.heard(store.close());
    }

    fn check_view(&mut self, view: &OperationView, versions: &[OperationView]) {
        match versions.iter().rposition(|version| version == view) {
            Some(at) if at + 1 == versions.len() => {}
            Some(_) => self.stale += 1,
            None => self.wrong.push(format!("{view:?} instead of {:?}", versions.last())),
        }
    }

    fn check_listed(&mut self, listed: &[OperationView], known: &Versions) {
        for view in listed {
            match known.get(&view.key) {
                Some(versions) => self.check_view(view, versions),
                None => self.wrong.push(format!("listed {view:?}")),
            }
        }
    }
}

fn corrupt_everywhere(check: OpenCheck) -> Tally {
    silence_the_engine();
    let mut known = Versions::new();
    let image = store_file(&mut known).expect("a good disk");
    let store = open(image.clone(), check).expect("a good disk");
    let listed = store.list(&Filter::new(), &Page::first(1000)).expect("a good disk").operations;
    assert_eq!(listed.len(), KEYS);
    note_versions(&store, &mut known).expect("a good disk");
    for view in &listed {
        assert_eq!(known[&view.key].last(), Some(view), "the last version is what the good file says");
    }
    drop(store);
    let mut tally = Tally::default();
    for seed in 0..CORRUPTIONS * seeds(1).end {
        let (what, bytes) = damage(&image, &mut Dice::new(seed));
        let wrong_before = tally.wrong.len();
        tally.files += 1;
        let survived = catch_unwind(AssertUnwindSafe(|| match open(bytes, check) {
            Ok(store) => tally.question(&store, &known),
            Err(error) => {
                tally.refused_at_open += 1;
                tally.heard::<()>(Err(error));
            }
        }));
        if survived.is_err() {
            tally.wrong.push("a panic reached the caller".to_owned());
        }
        for wrong in &mut tally.wrong[wrong_before..] {
            wrong.insert_str(0, &format!("seed {seed}, {what}: "));
        }
    }
    let wrong = std::mem::take(&mut tally.wrong);
    println!("{check:?}: {tally:?}, {} panics of the engine were caught", CAUGHT.load(Ordering::Relaxed));
    assert!(wrong.is_empty(), "{} wrong, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    tally
}

#[test]
fn damaged_file_gives_errors_and_never_a_panic_or_a_wrong_row() {
    let tally = corrupt_everywhere(OpenCheck::AfterCrash);
    assert!(tally.unclean > 0 && tally.errors > 0, "damage is met: {tally:?}");
}

#[test]
fn damaged_file_that_is_verified_on_open_never_forgets_a_key() {
    let tally = corrupt_everywhere(OpenCheck::Always);
    assert_eq!((tally.absent_keys, tally.stale, tally.granted_again), (0, 0, 0), "{tally:?}");
    assert!(tally.refused_at_open > 0);
}
