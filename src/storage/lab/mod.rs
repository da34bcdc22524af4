//! The laboratory: what a store does on a disk that fails, forgets, tears, or lies.
//!
//! It works below the public API, at the seam where a backend is put under a store, and drives the store through the
//! public API from there. Every run is seeded, and a failure prints its seed. `DUPEPROOF_LAB_SEEDS` raises how many
//! seeds are tried.

mod audits;
mod backend;
mod codecs;
mod commit_failures;
mod corruptions;
mod creation;
mod formats;
mod golden;
mod images;
mod letters;
mod messages;
mod nonces;
mod power_cuts;
mod records;
mod runs;
mod script;
mod syncs;
mod together;

use std::time::Duration;

use super::file::StoreFile;
use super::snapshot::Snapshot;
use crate::clock::ManualClock;
use crate::error::Result;
use crate::machine::message::stored::StoredMessage;
use crate::machine::record::Record;
use crate::options::Options;

/// How many seeds a test tries unless it is told otherwise.
fn seeds(default: u64) -> std::ops::Range<u64> {
    0..std::env::var("DUPEPROOF_LAB_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(default)
}

/// Options of a store that no thread but its caller and the writer touches.
fn quiet(clock: &ManualClock) -> Options {
    // The smallest cache makes the store read its file instead of its memory.
    let quiet = Options::new().without_compactor().with_clock(clock.clone()).with_cache_bytes(1024 * 1024);
    quiet.with_outbox_retention(Duration::from_secs(letters::RETENTION_SECS))
}

fn clock_at(second: u64) -> ManualClock {
    ManualClock::at(Duration::from_secs(1_700_000_000 + second))
}

/// Every row as it lies on disk, in the order of the numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rows {
    records: Vec<Record>,
    messages: Vec<StoredMessage>,
}

fn rows(file: &StoreFile) -> Result<Rows> {
    file.read(rows_of)
}

fn rows_of(snapshot: &Snapshot) -> Result<Rows> {
    use redb::ReadableTable;

    let mut rows = Rows::default();
    for entry in snapshot.records().iter().map_err(super::fault::storage)? {
        let (id, row) = entry.map_err(super::fault::storage)?;
        let id = crate::machine::record::RecordId(id.value());
        let record = super::codec::decode(id, row.value());
        rows.records.push(record.map_err(|error| super::fault::row(format_args!("record {}", id.0), error))?);
    }
    snapshot.scan_messages(None, |stored| {
        rows.messages.push(stored);
        Ok(super::snapshot::Visit::Next)
    })?;
    Ok(rows)
}

/// A small generator: the same numbers for the same seed, for ever.
#[derive(Debug, Clone)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound.max(1) as u64).expect("the bound is a usize")
    }

    fn coin(&mut self) -> bool {
        self.roll() & 1 == 1
    }
}
