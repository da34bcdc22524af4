//! The work that every contestant does, and the one clock it is timed with. Keys and responses follow from a number, so
//! that a store loaded by one process can be asked by another.

use std::time::{Duration, Instant};

/// The one operation name; the keys are what is many.
pub(crate) const OPERATION: &str = "charge";
/// How long a result answers repeats: one constant, so that expiries ascend.
pub(crate) const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

const TENANTS: u64 = 16;
const KEY_BYTES: usize = 33;
const RESPONSE_BYTES: usize = 200;

/// One operation: a key of 33 random characters under one of 16 tenants, and a fingerprint that is given.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) tenant: String,
    pub(crate) key: String,
    pub(crate) fingerprint: [u8; 16],
}

impl Item {
    pub(crate) fn number(number: u64) -> Self {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut fingerprint = [0; 16];
        fingerprint[..8].copy_from_slice(&random.next().to_le_bytes());
        fingerprint[8..].copy_from_slice(&random.next().to_le_bytes());
        let tenant = format!("tenant-{:02}", random.next() % TENANTS);
        Self { tenant, key: random.letters(KEY_BYTES), fingerprint }
    }
}

/// 200 random letters: compression gains little.
pub(crate) fn response(number: u64) -> String {
    Random(!number).letters(RESPONSE_BYTES)
}

/// splitmix64: small, and good enough to scatter keys.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn letters(&mut self, count: usize) -> String {
        let mut letters = String::with_capacity(count + 8);
        while letters.len() < count {
            letters.extend(self.next().to_le_bytes().map(|byte| char::from(b'a' + byte % 26)));
        }
        letters.truncate(count);
        letters
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the window of a measurement passes in real time")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
