//! Stores full of settled operations, as callers of many threads leave them.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Options};

use crate::Fallible;

/// Where loading is bound by the processor, and not by syncs whose durability nobody needs yet.
const MEMORY_DIR: &str = "/dev/shm";
/// Enough callers for large groups.
const THREADS: usize = 64;
/// As long as a receipt.
pub(crate) const RESPONSE: [u8; 200] = [b'x'; 200];

/// Makes the store at `path`, with so many settled operations whose keys are spread over the index.
pub(crate) fn fill(path: &Path, records: u64) -> Fallible<()> {
    match tempfile::Builder::new().prefix("dupeproof-bench-").tempdir_in(MEMORY_DIR) {
        Ok(nursery) => {
            let made = nursery.path().join("store");
            load(&made, records)?;
            std::fs::copy(&made, path)?;
            std::fs::File::open(path)?.sync_all()?;
            Ok(())
        }
        Err(_) => load(path, records),
    }
}

fn load(path: &Path, records: u64) -> Fallible<()> {
    let store = Options::new().without_compactor().open(path)?;
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let cycle = || -> Result<(), dupeproof::Error> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= records {
                    return Ok(());
                }
                if let Begin::Execute(claim) = store.begin(&operation(number)?)? {
                    claim.succeed_raw(&RESPONSE[..])?;
                }
            }
        };
        let loaders: Vec<_> = (0..THREADS).map(|_| scope.spawn(cycle)).collect();
        loaders.into_iter().try_for_each(|loader| loader.join().expect("a loader does not panic"))
    })?;
    Ok(store.close()?)
}

pub(crate) fn operation(number: u64) -> Result<Operation, dupeproof::Error> {
    Ok(Operation::new(
        OperationKey::new("default", "command", key(number))?,
        Fingerprint::of_bytes(&number.to_le_bytes()),
    ))
}

/// The same from the same number, and far from its neighbours'.
pub(crate) fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
