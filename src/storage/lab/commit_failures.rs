//! An error of the disk at any point: nobody is told a thing that is not so, and the store goes on after a reopen.

use super::backend::{Class, EIO, ENOSPC, Fault, LabBackend, Left};
use super::power_cuts::{allowed, check};
use super::script::{Act, Answered, Player, SCRIPT, operation, options, play, value};
use super::{StoreFile, clock_at, rows, seeds};
use crate::error::{Error, ErrorKind};
use crate::options::{Options, Recovery};
use crate::storage::schema;
use crate::{Begin, Nonce, Store};

/// How far a player came, and what stopped it.
struct Run {
    answered: usize,
    error: Option<Error>,
    /// The store did not even open.
    opened: bool,
    /// What a kill at that moment leaves to the next process.
    killed: Vec<u8>,
}

/// Plays until something fails. Later calls are checked to be refused.
fn run(backend: &LabBackend, options: &Options) -> Run {
    let clock = clock_at(0);
    let options = options.clone().with_clock(clock.clone());
    let mut run = Run { answered: 0, error: None, opened: false, killed: Vec::new() };
    let mut player = match Player::open_with(backend, &options, clock) {
        Ok(player) => player,
        Err(error) => return Run { error: Some(error), killed: backend.cache(), ..run },
    };
    run.opened = true;
    for act in SCRIPT {
        if let Err(error) = player.perform(*act) {
            run.error = Some(error);
            break;
        }
        run.answered += 1;
    }
    run.killed = backend.cache();
    if run.error.is_some() {
        let refused = player.store.begin(&operation("z")).expect_err("a store that failed is stopped");
        assert!(
            matches!(refused.kind(), ErrorKind::Stopped | ErrorKind::Closed | ErrorKind::Io),
            "a later call: {refused:?}"
        );
        assert!(refused.kind().outcome_is_known(), "a later call did nothing: {refused:?}");
        let _ = player.store.close();
    }
    run
}

/// The states that a failed run may have left.
fn possible<'a>(history: &'a [Answered], run: &Run, error: &Error) -> &'a [Answered] {
    let durable = history[..=run.answered].iter().rposition(|state| state.durable).expect("the first is");
    // Nobody answers a drop, and a close commits before it closes.
    let act = SCRIPT.get(run.answered);
    let is_open = !error.kind().outcome_is_known() || matches!(act, Some(Act::Drop(_) | Act::Close));
    &history[durable..(run.answered + 1 + usize::from(is_open)).min(history.len())]
}

#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    indeterminate: usize,
    present: usize,
}

fn fail_everywhere(class: Class, options: &Options, kinds: &[(i32, bool)]) -> Tally {
    let recovery = options.recovery;
    let start = schema::image().expect("an image");
    let history = play(&LabBackend::of(start.clone()), recovery);
    let mut tally = Tally::default();
    // There are thousands of reads, and most of those of one act fail alike.
    let stride = if class == Class::Read && seeds(1).end == 1 { 3 } else { 1 };
    for (errno, sticky) in kinds {
        for after in (0..).step_by(stride) {
            let backend = LabBackend::of(start.clone());
            let left = if after % 2 == 0 { Left::Nothing } else { Left::Half };
            backend.arm(Fault { class, after, errno: *errno, sticky: *sticky, left });
            let run = run(&backend, options);
            if backend.mend() == 0 {
                assert!(run.error.is_none(), "an error without a cause: {:?}", run.error);
                break;
            }
            tally.runs += 1;
            // The engine may get by without an operation that failed, such as giving space back.
            let Some(error) = &run.error else { continue };
            let here = format!("{class:?} {after}, errno {errno}, sticky {sticky}, act {:?}", SCRIPT.get(run.answered));
            if run.opened && class == Class::Change && run.answered + 1 < SCRIPT.len() {
                let is_unheard = matches!(SCRIPT[run.answered], Act::Drop(_));
                // A file that cannot grow fails before the commit: then nothing was written, and the caller is told so.
                let is_told = matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Io);
                assert!(is_unheard || is_told, "{here}: {error:?}");
            }
            tally.indeterminate += usize::from(error.kind() == ErrorKind::Indeterminate);
            let possible = possible(&history, &run, error);
            let mut images = vec![
                ("killed", run.killed.clone()),
                ("next process", backend.cache()),
                ("power cut, nothing unsynced", backend.disk()),
                ("power cut, some unsynced", backend.disk_after_power_cut(after as u64)),
            ];
            images.dedup_by(|image, before| image.1 == before.1);
            for (what, image) in images {
                check(image, possible, recovery).unwrap_or_else(|error| panic!("{here}, {what}: {error}"));
            }
            if let [.., last] = possible
                && last.rows == found(&backend, recovery)
            {
                tally.present += usize::from(error.kind() == ErrorKind::Indeterminate);
            }
        }
    }
    tally
}

fn found(backend: &LabBackend, recovery: Recovery) -> super::Rows {
    let copy = LabBackend::of(backend.cache());
    rows(&StoreFile::on(copy, None, &options(&clock_at(0), recovery)).expect("opens")).expect("reads")
}

const BOTH: [(i32, bool); 4] = [(EIO, false), (EIO, true), (ENOSPC, false), (ENOSPC, true)];

#[test]
fn failed_write_or_sync_is_indeterminate_stops_the_store_and_loses_no_answer() {
    let tally = fail_everywhere(Class::Change, &options(&clock_at(0), Recovery::Scan), &BOTH);
    println!("write and sync errors: {tally:?}");
    assert!(tally.present > 0 && tally.present < tally.indeterminate, "both kinds of outcome are met: {tally:?}");
}

#[test]
fn failed_write_or_sync_with_quick_recovery_loses_no_answer() {
    let tally = fail_everywhere(Class::Change, &options(&clock_at(0), Recovery::Quick), &BOTH[..2]);
    println!("write and sync errors, quick recovery: {tally:?}");
}

#[test]
fn failed_read_or_look_at_the_length_loses_no_answer() {
    let mut options = options(&clock_at(0), Recovery::Scan);
    // Without a cache, so that the disk is read all the time.
    options.cache_bytes = 0;
    for class in [Class::Read, Class::Len] {
        let tally = fail_everywhere(class, &options, &BOTH[..1]);
        println!("{class:?} errors: {tally:?}");
        assert!(tally.runs > 0);
    }
}

/// Fails the group commit of three callers at the operation of this number. Nothing once the number is too high.
fn fail_group_at(after: usize) -> Option<()> {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let options = options(&clock_at(0), Recovery::Scan);
    let store = Store::on(StoreFile::on(backend.clone(), None, &options).expect("opens"), &options).expect("starts");
    // The incarnation is taken by then.
    let warm = store.begin(&operation("z")).expect("a good disk");
    let keys = ["a", "b", "c"];
    let nonces = keys.map(|_| Nonce::new());
    // The second sync is the last thing the first caller's commit does.
    let held = backend.hold_sync(1);
    let results = std::thread::scope(|scope| {
        let first = scope.spawn(|| store.begin(&operation("k")));
        held.wait();
        let group: Vec<_> = keys
            .iter()
            .zip(&nonces)
            .map(|(key, nonce)| scope.spawn(|| store.begin(&operation(key).with_nonce(nonce))))
            .collect();
        while store.engine().queued() < keys.len() {
            std::thread::yield_now();
        }
        let fault = Fault { class: Class::Change, after: after + 1, errno: EIO, sticky: true, left: Left::Nothing };
        backend.arm(fault);
        held.let_go();
        let first = first.join().expect("no panic");
        assert!(matches!(first, Ok(Begin::Execute(_))), "the commit before was good: {first:?}");
        group.into_iter().map(|waiter| waiter.join().expect("no panic")).collect::<Vec<_>>()
    });
    if backend.mend() == 0 {
        assert!(results.iter().all(|result| matches!(result, Ok(Begin::Execute(_)))), "{results:?}");
        return None;
    }
    for result in &results {
        let error = result.as_ref().expect_err("the commit of the group failed");
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    }
    let late = store.begin(&operation("d")).expect_err("the store stopped");
    assert_eq!(late.kind(), ErrorKind::Stopped);
    assert!(store.close().is_err());
    drop((warm, results));
    let again = Store::on(StoreFile::on(backend, None, &options).expect("opens"), &options).expect("starts");
    let there = keys.map(|key| again.get(operation(key).key()).expect("a good disk").is_some());
    assert!(there == [true; 3] || there == [false; 3], "one commit: {there:?}");
    for (key, nonce) in keys.iter().zip(&nonces) {
        if there[0] {
            let stranger = again.begin(&operation(key)).expect("a good disk");
            assert!(matches!(stranger, Begin::Unknown(_)), "{stranger:?}");
        }
        let own = again.begin(&operation(key).with_nonce(nonce)).expect("a good disk");
        assert!(matches!(&own, Begin::Execute(claim) if claim.attempt() == 1), "{key}: {own:?}");
        let twice = again.begin(&operation(key).with_nonce(nonce)).expect("a good disk");
        assert!(matches!(twice, Begin::InProgress(_)), "{key}: {twice:?}");
        let Begin::Execute(claim) = own else { unreachable!() };
        claim.succeed_raw(value(key, 3)).expect("the claim is good");
    }
    assert!(again.verify().expect("a good disk").is_clean());
    Some(())
}

#[test]
fn commit_failure_tells_every_waiter_of_the_group_and_each_finds_its_claim_again() {
    let failed = (0..).take_while(|after| fail_group_at(*after).is_some()).count();
    println!("group commit failed at each of {failed} operations");
    assert!(failed > 5);
}

#[test]
fn command_queued_behind_a_failing_commit_hears_that_it_did_nothing() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let options = options(&clock_at(0), Recovery::Scan);
    let store = Store::on(StoreFile::on(backend.clone(), None, &options).expect("opens"), &options).expect("starts");
    let warm = store.begin(&operation("z")).expect("a good disk");
    let held = backend.hold_sync(0);
    let (first, late) = std::thread::scope(|scope| {
        let first = scope.spawn(|| store.begin(&operation("a")));
        held.wait();
        let late: Vec<_> = ["b", "c"].iter().map(|key| scope.spawn(|| store.begin(&operation(key)))).collect();
        while store.engine().queued() < late.len() {
            std::thread::yield_now();
        }
        backend.arm(Fault { class: Class::Sync, after: 0, errno: EIO, sticky: true, left: Left::Nothing });
        held.let_go();
        let late: Vec<_> = late.into_iter().map(|waiter| waiter.join().expect("no panic")).collect();
        (first.join().expect("no panic"), late)
    });
    assert_eq!(first.expect_err("its sync failed").kind(), ErrorKind::Indeterminate);
    for result in late {
        assert_eq!(result.expect_err("the store stopped").kind(), ErrorKind::Stopped);
    }
    drop((warm, store));
    backend.mend();
    let again = Store::on(StoreFile::on(backend, None, &options).expect("opens"), &options).expect("starts");
    for key in ["b", "c"] {
        assert_eq!(again.get(operation(key).key()).expect("a good disk"), None);
    }
}

#[test]
fn caller_waiting_for_the_claim_of_another_hears_that_the_store_stopped() {
    let backend = LabBackend::of(schema::image().expect("an image"));
    let options = options(&clock_at(0), Recovery::Scan);
    let store = Store::on(StoreFile::on(backend.clone(), None, &options).expect("opens"), &options).expect("starts");
    let theirs = store.begin(&operation("a")).expect("a good disk");
    let hour = std::time::Duration::from_secs(3600);
    let waited = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.begin(&operation("a").with_wait(hour)));
        backend.arm(Fault { class: Class::Change, after: 0, errno: EIO, sticky: true, left: Left::Nothing });
        assert!(store.begin(&operation("b")).is_err());
        waiter.join().expect("no panic")
    });
    assert_eq!(waited.expect_err("nobody is left to end the wait").kind(), ErrorKind::Stopped);
    drop(theirs);
}

#[test]
fn allowed_states_of_a_prefix_end_with_the_act_that_was_on_its_way() {
    let history = play(&LabBackend::of(schema::image().expect("an image")), Recovery::Scan);
    let begun = allowed(&history, history[1].issued);
    assert_eq!(begun.len(), 2);
    assert_eq!(begun[0].rows, history[1].rows);
}
