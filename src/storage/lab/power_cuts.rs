//! A power cut at every point of a workload, and again during the recovery from it.

use super::backend::LabBackend;
use super::images::{self, Image};
use super::letters::{self, Letters};
use super::script::{Answered, KEYS, Promises, after_open, operation, options, play, promised_by};
use super::{Dice, StoreFile, clock_at, rows, rows_of, seeds};
use crate::error::Result;
use crate::machine::record::Status;
use crate::options::Recovery;
use crate::progress::Reporter;
use crate::storage::schema;
use crate::storage::snapshot::Snapshot;
use crate::{Begin, Store};

fn fault(what: &'static str) -> impl Fn(crate::Error) -> String {
    move |error| format!("{what}: {:?} {error}", error.kind())
}

/// States an image may show: from the last answer that had to survive, to the one that was on its way.
pub(super) fn allowed(history: &[Answered], issued: usize) -> &[Answered] {
    let answered = history.iter().rposition(|state| state.issued <= issued).expect("the first state is at 0");
    let durable = history[..=answered].iter().rposition(|state| state.durable).expect("the first state is durable");
    &history[durable..history.len().min(answered + 2)]
}

/// Checks an image the hard way: rows as they lie there, then everything a caller would do after a restart.
pub(super) fn check(bytes: Vec<u8>, allowed: &[Answered], recovery: Recovery) -> Result<(), String> {
    let backend = LabBackend::of(bytes);
    let file = StoreFile::on(backend, None, &options(&clock_at(0), recovery)).map_err(fault("open"))?;
    let found = rows(&file).map_err(fault("rows"))?;
    let Some(state) = allowed.iter().find(|state| state.rows == found) else {
        let expected: Vec<_> = allowed.iter().map(|state| (state.act, &state.promises)).collect();
        return Err(format!("found {:#?}, expected one of {expected:#?}", promised_by(&found.records)));
    };
    let report = file.read(|snapshot| snapshot.audit(&Reporter::default())).map_err(fault("audit"))?;
    if !report.is_clean() {
        return Err(format!("before recovery: {:?}", report.problems));
    }
    let store = Store::on(file, &options(&clock_at(state.second), recovery)).map_err(fault("start"))?;
    let letters = letters::after_open(&state.letters);
    check_as_caller(&store, &after_open(&state.promises), &letters).map_err(|error| format!("{:?}: {error}", state.act))
}

/// Everything promised is there, nothing is half-done, and no key runs that might have run.
pub(super) fn check_as_caller(store: &Store, promises: &Promises, letters: &Letters) -> Result<(), String> {
    let found = store.engine().read(rows_of).map_err(fault("rows"))?;
    if promised_by(&found.records) != *promises {
        return Err(format!("found {:#?}, expected {promises:#?}", promised_by(&found.records)));
    }
    if letters::promised_by(&found.messages) != *letters {
        return Err(format!("found {:#?}, expected {letters:#?}", letters::promised_by(&found.messages)));
    }
    let operations: Vec<_> = KEYS.iter().map(|key| operation(key)).collect();
    let answers = store.begin_many(&operations).map_err(fault("begin_many"))?;
    for (key, answer) in KEYS.iter().zip(&answers) {
        let promise = promises.get(key);
        let is_right = match (promise.map(|promise| promise.status), answer) {
            (None, Begin::Execute(claim)) => claim.attempt() == 1,
            (Some(Status::FailedRetryable), Begin::Execute(claim)) => {
                promise.is_some_and(|promise| claim.attempt() == promise.attempts + 1)
            }
            (Some(Status::Succeeded), Begin::Replay(replay)) => {
                replay.is_success()
                    && promise.is_some_and(|promise| replay.raw().bytes() == promise.response.as_deref())
            }
            (Some(Status::FailedTerminal), Begin::Replay(replay)) => !replay.is_success(),
            (Some(Status::Unknown), Begin::Unknown(_)) | (Some(Status::Tombstone), Begin::Expired(_)) => true,
            _ => false,
        };
        if !is_right {
            return Err(format!("{key} is {promise:?}, and begin says {answer:?}"));
        }
    }
    letters::check_as_caller(store, letters)?;
    let report = store.verify().map_err(fault("verify"))?;
    if !report.is_clean() {
        return Err(format!("after recovery: {:?}", report.problems));
    }
    drop(answers);
    store.close().map_err(fault("close"))
}

#[derive(Debug, Default)]
struct Tally {
    images: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn note(&mut self, seed: u64, image: &Image, result: Result<(), String>) {
        self.images += 1;
        if let Err(error) = result {
            self.wrong.push(format!("seed {seed}, {} after {} operations: {error}", image.what, image.issued));
        }
    }

    fn report(&self, what: &str) {
        println!("{what}: {} images, {} wrong", self.images, self.wrong.len());
        assert!(self.wrong.is_empty(), "{} of {} wrong; the first: {}", self.wrong.len(), self.images, self.wrong[0]);
    }
}

fn power_cut_anywhere(recovery: Recovery, seeds: std::ops::Range<u64>, samples: usize) {
    let mut tally = Tally::default();
    let start = schema::image().expect("an image");
    let backend = LabBackend::of(start.clone());
    let history = play(&backend, recovery);
    let trace = backend.trace();
    for seed in seeds {
        images::each(&start, &trace, &mut Dice::new(seed), samples, |image| {
            // Prefixes are the same for every seed.
            if seed > 0 && image.what != "part of the unsynced" {
                return;
            }
            let result = check(image.bytes.clone(), allowed(&history, image.issued), recovery);
            tally.note(seed, &image, result);
        });
    }
    tally.report(&format!("power cut, {recovery:?}, trace of {}", trace.len()));
}

#[test]
fn power_cut_at_any_point_keeps_every_answer_and_runs_nothing_twice() {
    power_cut_anywhere(Recovery::Scan, seeds(1), 12);
}

#[test]
fn power_cut_with_quick_recovery_keeps_every_answer_and_runs_nothing_twice() {
    power_cut_anywhere(Recovery::Quick, seeds(1), 8);
}

/// An open after a power cut writes as well, and may meet the next one.
fn second_power_cut(recovery: Recovery, seeds: std::ops::Range<u64>, first_cuts: usize) {
    let mut tally = Tally::default();
    let start = schema::image().expect("an image");
    let backend = LabBackend::of(start.clone());
    let history = play(&backend, recovery);
    let trace = backend.trace();
    for seed in seeds {
        let mut dice = Dice::new(seed);
        let mut firsts = Vec::new();
        images::each(&start, &trace, &mut dice.clone(), 1, |image| firsts.push(image));
        for _ in 0..first_cuts {
            let first = &firsts[dice.below(firsts.len())];
            let allowed = allowed(&history, first.issued);
            let after: Vec<_> = allowed
                .iter()
                .map(|state| (state.second, after_open(&state.promises), letters::after_open(&state.letters)))
                .collect();
            let second = allowed[0].second;
            let recovering = LabBackend::of(first.bytes.clone());
            let options = options(&clock_at(second), recovery);
            let opened = StoreFile::on(recovering.clone(), None, &options).and_then(|file| Store::on(file, &options));
            // The trace ends before the close, as a power cut would have it.
            let (opened, trace) = (opened, recovering.trace());
            tally.note(seed, first, opened.map(drop).map_err(|error| error.to_string()));
            images::each(&first.bytes, &trace, &mut dice.clone(), 2, |image| {
                let result = reopened(image.bytes.clone(), &after, recovery);
                tally.note(
                    seed,
                    &image,
                    result.map_err(|error| format!("during recovery from {}: {error}", first.issued)),
                );
            });
        }
    }
    tally.report(&format!("second power cut, {recovery:?}"));
}

fn reopened(bytes: Vec<u8>, allowed: &[(u64, Promises, Letters)], recovery: Recovery) -> Result<(), String> {
    let options = options(&clock_at(allowed[0].0), recovery);
    let opened = StoreFile::on(LabBackend::of(bytes), None, &options).and_then(|file| Store::on(file, &options));
    let store = opened.map_err(|error| format!("open: {:?} {error}", error.kind()))?;
    let rows = store.engine().read(rows_of).map_err(|error| error.to_string())?;
    let found = (promised_by(&rows.records), letters::promised_by(&rows.messages));
    let is_found = |promises: &Promises, letters: &Letters| *promises == found.0 && *letters == found.1;
    if !allowed.iter().any(|(_, promises, letters)| is_found(promises, letters)) {
        return Err(format!("found {found:#?}, expected one of {allowed:#?}"));
    }
    check_as_caller(&store, &found.0, &found.1)
}

#[test]
fn power_cut_during_recovery_from_a_power_cut_loses_nothing() {
    second_power_cut(Recovery::Scan, seeds(1), 80);
    second_power_cut(Recovery::Quick, seeds(1), 60);
}

#[test]
fn high_water_mark_never_goes_back_over_a_power_cut() {
    let start = schema::image().expect("an image");
    let backend = LabBackend::of(start.clone());
    let history = play(&backend, Recovery::Scan);
    images::each(&start, &backend.trace(), &mut Dice::new(0), 0, |image| {
        let options = options(&clock_at(0), Recovery::Scan);
        let file = StoreFile::on(LabBackend::of(image.bytes), None, &options).expect("opens");
        let mark = file.read(Snapshot::anchor).expect("reads").map_or(0, |anchor| anchor.mark.as_unix_millis() / 1000);
        let at_least = allowed(&history, image.issued)[0].second;
        assert!(at_least == 0 || mark >= 1_700_000_000 + at_least - 1, "after {} operations: {mark}", image.issued);
    });
}
