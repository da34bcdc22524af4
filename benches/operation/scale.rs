//! How much is measured: everything, a slice that a CI run can afford, or just enough to see that it works.

use std::env;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// Records in the store that cycles run on.
    pub(crate) cycle_records: u64,
    /// Records in the stores that replays run on. The last one is also the one whose memory is measured.
    pub(crate) replay_records: &'static [u64],
    pub(crate) rounds: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// Cycles of the longer of two counted runs; the shorter has a quarter.
    pub(crate) counted_cycles: u64,
    /// Replays before the memory of a process is read.
    pub(crate) memory_replays: u64,
    pub(crate) sample_size: usize,
    pub(crate) sample_warm_up: Duration,
    pub(crate) sample_time: Duration,
}

impl Scale {
    pub(crate) const THREADS: [usize; 3] = [1, 8, 64];

    /// `DUPEPROOF_BENCH=quick` is the slice; without `--bench`, as under `cargo test`, it only has to work.
    pub(crate) fn from_env(is_bench: bool) -> Self {
        match env::var("DUPEPROOF_BENCH").as_deref() {
            _ if !is_bench => Self {
                name: "smoke",
                cycle_records: 200,
                replay_records: &[200],
                rounds: 1,
                warm_up: Duration::ZERO,
                window: Duration::from_millis(50),
                counted_cycles: 8,
                memory_replays: 100,
                ..Self::QUICK
            },
            Ok("quick") => Self::QUICK,
            _ => Self::FULL,
        }
    }

    const FULL: Self = Self {
        name: "full",
        cycle_records: 100_000,
        replay_records: &[10_000, 100_000, 1_000_000],
        rounds: 3,
        warm_up: Duration::from_millis(300),
        window: Duration::from_secs(2),
        counted_cycles: 400,
        memory_replays: 200_000,
        sample_size: 20,
        sample_warm_up: Duration::from_secs(1),
        sample_time: Duration::from_secs(4),
    };

    const QUICK: Self = Self {
        name: "quick",
        cycle_records: 20_000,
        replay_records: &[10_000, 20_000],
        rounds: 1,
        warm_up: Duration::from_millis(100),
        window: Duration::from_millis(500),
        counted_cycles: 80,
        memory_replays: 40_000,
        sample_size: 10,
        sample_warm_up: Duration::from_millis(100),
        sample_time: Duration::from_millis(400),
    };
}
