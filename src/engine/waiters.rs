//! Callers who wait until another caller's claim has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::machine::key::Identity;

/// Who waits for what. Empty almost always, and then it costs the writer one atomic read a commit.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    count: AtomicUsize,
    bells: Mutex<HashMap<Identity, Vec<Bell>>>,
    next: AtomicUsize,
}

/// A waiter's number and what wakes it.
type Bell = (usize, Sender<()>);

/// A place in the waiting room, given up when dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    identity: Identity,
    number: usize,
    bell: Receiver<()>,
}

impl Waiters {
    /// Takes a place. Look at the record once more after this: what ended before it rings no bell.
    pub(super) fn wait_for(&self, identity: &Identity) -> Waiting<'_> {
        let (ring, bell) = bounded(1);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.bells.lock().entry(identity.clone()).or_default().push((number, ring));
        self.count.fetch_add(1, Ordering::AcqRel);
        Waiting { waiters: self, identity: identity.clone(), number, bell }
    }

    pub(super) fn wake(&self, freed: &[Identity]) {
        if freed.is_empty() || self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let bells = self.bells.lock();
        for identity in freed {
            bells.get(identity).into_iter().flatten().for_each(ring);
        }
    }

    pub(super) fn wake_all(&self) {
        self.bells.lock().values().flatten().for_each(ring);
    }
}

fn ring((_, bell): &Bell) {
    // A full bell was rung already.
    let _ = bell.try_send(());
}

impl Waiting<'_> {
    /// Waits until the claim has ended, at most so long.
    pub(crate) fn wait(&self, at_most: Duration) {
        let _ = self.bell.recv_timeout(at_most);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut bells = self.waiters.bells.lock();
        if let Some(places) = bells.get_mut(&self.identity) {
            places.retain(|(number, _)| *number != self.number);
            if places.is_empty() {
                bells.remove(&self.identity);
            }
        }
        self.waiters.count.fetch_sub(1, Ordering::AcqRel);
    }
}
