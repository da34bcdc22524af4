//! A sync that fails and forgets: the kernel marks the pages as written, goes on showing them, and loses them in the
//! next power cut.

use super::backend::{Class, EIO, Fault, LabBackend, Left};
use super::letters;
use super::power_cuts::{check, check_as_caller};
use super::script::{Act, Answered, Player, Promise, SCRIPT, after_open, options, play, promise, promised_by, value};
use super::{StoreFile, clock_at, rows_of, seeds};
use crate::machine::record::Status;
use crate::options::Recovery;
use crate::storage::schema;

fn run(start: &[u8], history: &[Answered], sync: usize, seed: u64, recovery: Recovery) -> Option<()> {
    let here = format!("sync {sync}, seed {seed}, {recovery:?}");
    let backend = LabBackend::of(start.to_vec());
    backend.arm(Fault { class: Class::Sync, after: sync, errno: EIO, sticky: false, left: Left::Some(seed) });
    let answered = match Player::open(&backend, recovery) {
        Ok(mut player) => SCRIPT.iter().take_while(|act| player.perform(**act).is_ok()).count(),
        Err(_) => 0,
    };
    if backend.mend() == 0 {
        return None;
    }
    let first = history[..=answered].iter().rposition(|state| state.durable).expect("the first is");
    let possible = &history[first..history.len().min(answered + 2)];

    // The power fails before anybody opens the store again.
    check(backend.disk(), possible, recovery).unwrap_or_else(|error| panic!("{here}, power cut: {error}"));

    // Somebody opens the store again in the same boot, works, and then the power fails.
    let mut player = Player::open(&backend, recovery).unwrap_or_else(|error| panic!("{here}, reopen: {error}"));
    let rows = player.store.engine().read(rows_of).expect("reads");
    let (found, letters) = (promised_by(&rows.records), letters::promised_by(&rows.messages));
    let is_possible = possible
        .iter()
        .any(|state| after_open(&state.promises) == found && letters::after_open(&state.letters) == letters);
    assert!(is_possible, "{here}, reopen: found {found:#?}, expected one of {possible:#?}");
    let mut promises = found;
    for act in [Act::Begin("z"), Act::Succeed("z", 9)] {
        player.perform(act).unwrap_or_else(|error| panic!("{here}, after the reopen: {error}"));
        promises = promise(&promises, act);
    }
    assert_eq!(
        promises["z"],
        Promise { status: Status::Succeeded, attempts: 1, response: Some(value("z", 9)) },
        "the model"
    );
    for image in [backend.disk(), backend.disk_after_power_cut(seed)] {
        let second = possible.last().expect("never empty").second;
        let options = options(&clock_at(second.min(possible[0].second)), recovery);
        let store = StoreFile::on(LabBackend::of(image), None, &options)
            .and_then(|file| crate::Store::on(file, &options))
            .unwrap_or_else(|error| panic!("{here}, second power cut: {error}"));
        check_as_caller(&store, &promises, &letters)
            .unwrap_or_else(|error| panic!("{here}, second power cut: {error}"));
    }
    Some(())
}

#[test]
fn sync_that_fails_and_forgets_loses_no_answer_and_leaves_a_store_that_opens() {
    let start = schema::image().expect("an image");
    let mut runs = 0;
    for recovery in [Recovery::Scan, Recovery::Quick] {
        let history = play(&LabBackend::of(start.clone()), recovery);
        for seed in seeds(8) {
            runs += (0..).take_while(|sync| run(&start, &history, *sync, seed, recovery).is_some()).count();
        }
    }
    println!("{runs} syncs that failed and forgot");
}
