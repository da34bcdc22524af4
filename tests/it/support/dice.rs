//! Chance from a seed that is printed, so that a failed run says which dice it threw.

use std::hash::{BuildHasher, RandomState};

/// A seed to use again.
const SEED: &str = "DUPEPROOF_SEED";

/// SplitMix64.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    /// Other dice on every run, unless the environment gives a seed.
    pub fn fresh() -> Self {
        let given = std::env::var(SEED).ok().map(|seed| seed.parse().expect("the seed is a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(SEED));
        println!("{SEED}={seed}");
        Self(seed)
    }

    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.throw() % end as u64).expect("below the end")
    }
}
