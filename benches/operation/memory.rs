//! Space: how much memory a process needs that opens a large store and replays from it, and how large the file is.

use std::fs;
use std::path::Path;

use crate::peers::{Fallible, Format, Peer};
use crate::scale::Scale;
use crate::stores::Stores;
use crate::visit::{Task, Visit, proc_field};
use crate::work::{Item, Random};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) format: Format,
    /// What the file takes from the disk. Its length can be more: it grows in steps, and what was never written is a
    /// hole.
    pub(crate) bytes_per_record: f64,
    pub(crate) length_per_record: f64,
    /// Nothing where the system does not tell.
    pub(crate) resident_mib: Option<f64>,
}

pub(crate) fn measure(stores: &mut Stores, scale: &Scale) -> Fallible<Vec<Space>> {
    let most = scale.replay_records.last().copied().unwrap_or(scale.cycle_records);
    Format::ALL
        .into_iter()
        .map(|format| {
            let meta = fs::metadata(stores.loaded(format, scale.cycle_records)?)?;
            let path = stores.loaded(format, most)?;
            let task = Task::Memory { replays: scale.memory_replays };
            let figures = Visit { peer: format.peer(), path, records: most, task }.start()?;
            let [bytes_per_record, length_per_record] =
                [allocated(&meta), meta.len()].map(|bytes| bytes as f64 / scale.cycle_records as f64);
            Ok(Space { format, bytes_per_record, length_per_record, resident_mib: figures.first().copied() })
        })
        .collect()
}

#[cfg(unix)]
fn allocated(meta: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(meta) * 512
}

#[cfg(not(unix))]
fn allocated(meta: &fs::Metadata) -> u64 {
    meta.len()
}

/// In the visit's process: the resident memory in MiB.
pub(crate) fn run(peer: Peer, path: &Path, records: u64, replays: u64) -> Fallible<Vec<f64>> {
    let contestant = peer.open(path)?;
    let resident_kib = {
        let mut session = contestant.session()?;
        let mut random = Random(1);
        for _ in 0..replays {
            session.replay(&Item::number(random.below(records)))?;
        }
        proc_field("status", "VmRSS")
    };
    contestant.close()?;
    Ok(resident_kib.into_iter().map(|kib| kib as f64 / 1024.0).collect())
}
