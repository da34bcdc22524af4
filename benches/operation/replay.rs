//! Replays: what a repeat of a settled operation costs, in stores of growing size.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::Criterion;

use crate::peers::{Contestant, Fallible, Format, Session};
use crate::scale::Scale;
use crate::stores::Stores;
use crate::work::{Item, Random, now};

/// Microseconds a replay, by number of records.
pub(crate) fn bench(
    criterion: &mut Criterion,
    stores: &mut Stores,
    scale: &Scale,
) -> Fallible<BTreeMap<(Format, u64), f64>> {
    let mut estimates = BTreeMap::new();
    for &records in scale.replay_records {
        let group_name = format!("replay {records}");
        let mut group = criterion.benchmark_group(&group_name);
        group.sample_size(scale.sample_size).warm_up_time(scale.sample_warm_up).measurement_time(scale.sample_time);
        for format in Format::ALL {
            let peer = format.peer();
            let contestant = peer.open(&stores.loaded(format, records)?)?;
            let ran = Cell::new(false);
            let mut random = Random(records);
            let mut session = contestant.session()?;
            group.bench_function(peer.name(), |bencher| {
                ran.set(true);
                bencher.iter_custom(|replays| timed(&mut *session, &mut random, records, replays));
            });
            drop(session);
            Contestant::close(contestant)?;
            if ran.get() {
                estimates.extend(estimated(&group_name, peer.name()).map(|micros| ((format, records), micros)));
            }
        }
        group.finish();
    }
    Ok(estimates)
}

fn timed(session: &mut dyn Session, random: &mut Random, records: u64, replays: u64) -> Duration {
    let items: Vec<_> = (0..replays).map(|_| Item::number(random.below(records))).collect();
    let started = now();
    for item in &items {
        black_box(session.replay(item).expect("a settled operation is replayed"));
    }
    now() - started
}

/// Where criterion keeps its results, beside the directory that cargo gives to benchmarks.
pub(crate) fn results_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("criterion")
}

/// The median that criterion found, in microseconds.
pub(crate) fn estimated(group: &str, function: &str) -> Option<f64> {
    let file = results_dir().join(group).join(function).join("new/estimates.json");
    let estimates: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Some(estimates.get("median")?.get("point_estimate")?.as_f64()? / 1e3)
}
