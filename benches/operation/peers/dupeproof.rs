//! dupeproof through its public API, with the default options.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dupeproof::{Begin, Claim, Fingerprint, Operation, OperationKey, Options, Retention, Settlement, Store};

use super::{CACHE_BYTES, Contestant, Fallible, Session};
use crate::work::{Item, OPERATION, RETENTION, response};

/// Enough callers for large groups; loading is bound by the processor then.
const LOAD_THREADS: usize = 64;

pub(super) struct Cycles(Store);

pub(super) struct Chains(Store);

struct CycleSession<'a>(&'a Store);

struct ChainSession<'a> {
    store: &'a Store,
    held: Option<(Claim, String)>,
}

pub(super) fn load(path: &Path, records: u64) -> Fallible<()> {
    let store = open(path)?;
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let loaders: Vec<_> = (0..LOAD_THREADS)
            .map(|_| {
                scope.spawn(|| -> Fallible<()> {
                    let mut session = CycleSession(&store);
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= records {
                            return Ok(());
                        }
                        session.cycle(&Item::number(number), response(number))?;
                    }
                })
            })
            .collect();
        loaders.into_iter().try_for_each(|loader| loader.join().expect("a loader does not panic"))
    })?;
    Ok(store.close()?)
}

fn open(path: &Path) -> Fallible<Store> {
    Ok(Options::new().with_cache_bytes(CACHE_BYTES).open(path)?)
}

fn operation(item: &Item) -> Fallible<Operation> {
    let key = OperationKey::new(&item.tenant, OPERATION, &item.key)?;
    let fingerprint = Fingerprint::from_digest_128(item.fingerprint);
    Ok(Operation::new(key, fingerprint).with_retention(Retention::default().with_response(RETENTION)))
}

fn granted(begin: Begin) -> Fallible<Claim> {
    match begin {
        Begin::Execute(claim) => Ok(claim),
        other => Err(format!("a new key was not granted: {other:?}").into()),
    }
}

fn replay(store: &Store, item: &Item) -> Fallible<Vec<u8>> {
    match store.begin(&operation(item)?)? {
        Begin::Replay(replay) => Ok(replay.value()?.to_vec()),
        other => Err(format!("a settled key was not replayed: {other:?}").into()),
    }
}

impl Cycles {
    pub(super) fn open(path: &Path) -> Fallible<Self> {
        open(path).map(Self)
    }
}

impl Contestant for Cycles {
    fn session(&self) -> Fallible<Box<dyn Session + '_>> {
        Ok(Box::new(CycleSession(&self.0)))
    }

    fn close(self: Box<Self>) -> Fallible<()> {
        Ok(self.0.close()?)
    }
}

impl Session for CycleSession<'_> {
    fn cycle(&mut self, item: &Item, response: String) -> Fallible<()> {
        granted(self.0.begin(&operation(item)?)?)?.succeed_raw(response)?;
        Ok(())
    }

    fn replay(&mut self, item: &Item) -> Fallible<Vec<u8>> {
        replay(self.0, item)
    }
}

impl Chains {
    pub(super) fn open(path: &Path) -> Fallible<Self> {
        open(path).map(Self)
    }
}

impl Contestant for Chains {
    fn session(&self) -> Fallible<Box<dyn Session + '_>> {
        Ok(Box::new(ChainSession { store: &self.0, held: None }))
    }

    fn close(self: Box<Self>) -> Fallible<()> {
        Ok(self.0.close()?)
    }
}

impl Session for ChainSession<'_> {
    /// Settles the operation before this one and begins this one. The last one is left to the end of the session.
    fn cycle(&mut self, item: &Item, response: String) -> Fallible<()> {
        let operation = operation(item)?;
        let begin = match self.held.take() {
            Some((claim, response)) => claim.settle_and_begin(Settlement::Succeeded(response.into()), &operation)?,
            None => self.store.begin(&operation)?,
        };
        self.held = Some((granted(begin)?, response));
        Ok(())
    }

    fn replay(&mut self, item: &Item) -> Fallible<Vec<u8>> {
        replay(self.store, item)
    }
}
