//! What a listener hears of long work.

use std::sync::{Arc, Mutex};

use dupeproof::{Options, Progress, Recovery, Sharing, Store, Work};

use crate::support::child::Child;
use crate::support::*;

/// Hears, and opens.
struct Ear(Arc<Mutex<Vec<Progress>>>);

impl Ear {
    fn on(options: Options) -> (Self, Options) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let options = options.with_progress({
            let heard = heard.clone();
            move |progress| heard.lock().unwrap().push(progress)
        });
        (Self(heard), options)
    }

    /// What was heard since the last look: from nothing to all, of one piece of work, never backwards.
    #[track_caller]
    fn heard(&self) -> Vec<(Work, u64, Option<u64>)> {
        let heard = std::mem::take(&mut *self.0.lock().unwrap());
        let heard: Vec<_> = heard.iter().map(|progress| (progress.work, progress.done, progress.total)).collect();
        if let (Some(first), Some(last)) = (heard.first(), heard.last()) {
            assert_eq!(first.1, 0, "{heard:?}");
            assert!(last.2.is_none_or(|total| total == last.1), "{heard:?}");
            assert!(heard.windows(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 <= pair[1].1), "{heard:?}");
        }
        heard
    }
}

fn filled(store: &Store, records: usize) {
    let operations: Vec<_> = (0..records).map(|number| operation(&number.to_string())).collect();
    for some in operations.chunks(1000) {
        drop(store.begin_many(some).unwrap());
    }
}

#[test]
fn work_reports_from_nothing_to_all() {
    let world = World::new();
    let (ear, options) = Ear::on(world.options());
    let store = options.open(world.path()).unwrap();
    assert_eq!(ear.heard(), [], "a new store needs no repair");
    filled(&store, 2500);
    store.verify().unwrap();
    let heard = ear.heard();
    assert_eq!(heard.first(), Some(&(Work::Verify, 0, Some(7500))));
    assert_eq!(heard.len(), 9, "once in a thousand rows: {heard:?}");
    store.backup(world.folder().join("copy")).unwrap();
    assert_eq!(ear.heard().len(), 4);
    store.compact().unwrap();
    assert_eq!(ear.heard(), [(Work::Compact, 0, None), (Work::Compact, 1, None)]);
}

#[cfg(feature = "json")]
#[test]
fn export_and_import_report_as_well() {
    let (ear, options) = Ear::on(Options::new());
    let store = options.in_memory().unwrap();
    filled(&store, 2500);
    let mut lines = Vec::new();
    store.export(&mut lines).unwrap();
    assert_eq!(ear.heard().last(), Some(&(Work::Export, 2500, Some(2500))));
    options.in_memory().unwrap().import(lines.as_slice()).unwrap();
    assert_eq!(ear.heard().len(), 4);
    // Cut, it never says that all is done.
    options.in_memory().unwrap().import(&lines[..lines.len() / 2]).unwrap_err();
    let heard = std::mem::take(&mut *ear.0.lock().unwrap());
    assert!(heard.iter().all(|progress| Some(progress.done) != progress.total), "{heard:?}");
}

/// After SIGKILL: a scan is a repair and reports, a quick recovery is none; a check at open always reports.
#[test]
fn repair_at_open_reports_where_there_is_one() {
    for (recovery, sharing, is_repaired) in [
        (Recovery::Scan, Sharing::Exclusive, true),
        (Recovery::Quick, Sharing::Exclusive, false),
        (Recovery::Scan, Sharing::Shared, false),
    ] {
        let world = World::new();
        let options = world.options().with_recovery(recovery).with_sharing(sharing);
        options.open(world.path()).unwrap().close().unwrap();
        let mut child = Child::start(module_path!(), &world, format!("{recovery:?} {sharing:?}"));
        child.expect("committed");
        child.kill();
        let (ear, options) = Ear::on(options);
        let store = options.open(world.path()).unwrap();
        let heard = ear.heard();
        assert_eq!(!heard.is_empty(), is_repaired, "{recovery:?} {sharing:?}: {heard:?}");
        assert!(heard.iter().all(|(work, _, total)| (*work, *total) == (Work::Repair, Some(1000))));
        store.close().unwrap();
        options.open(world.path()).unwrap().close().unwrap();
        assert_eq!(ear.heard(), [], "closed cleanly");
        options.with_verify_on_open().open(world.path()).unwrap();
        assert!(!ear.heard().is_empty());
    }
}

#[test]
fn child() {
    let Some(task) = crate::support::child::Task::given() else { return };
    let [recovery, sharing] = task.words();
    let recovery = if recovery == "Quick" { Recovery::Quick } else { Recovery::Scan };
    let sharing = if sharing == "Shared" { Sharing::Shared } else { Sharing::Exclusive };
    let options = task.world.options().with_recovery(recovery).with_sharing(sharing);
    let store = options.open(task.world.path()).unwrap();
    filled(&store, 100);
    crate::support::child::park("committed");
}
