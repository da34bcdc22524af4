//! dupeproof through its public API, with the default options.

use std::path::Path;
use std::sync::mpsc::sync_channel;

use dupeproof::{Message, Options, Store};

use crate::work::{Item, response};
use crate::{CACHE_BYTES, Fallible, TOPIC, timed};

/// Messages sent in one commit while loading.
const LOAD_MESSAGES: u64 = 1000;

fn loaded(path: &Path, messages: u64) -> Fallible<Store> {
    let store = Options::new().with_cache_bytes(CACHE_BYTES).open(path)?;
    for first in (0..messages).step_by(usize::try_from(LOAD_MESSAGES)?) {
        let some = first..messages.min(first + LOAD_MESSAGES);
        let some: Vec<_> = some.map(|number| Message::new(Item::number(number).key, TOPIC, response(number))).collect();
        store.outbox().send_many(&some)?;
    }
    Ok(store)
}

fn checked(store: Store, messages: u64) -> Fallible<()> {
    if store.stats()?.outbox.delivered != messages {
        return Err("not every message was delivered".into());
    }
    Ok(store.close()?)
}

/// A commit to take a batch, and one to note what became of it.
pub(super) fn run(path: &Path, messages: u64, batch: usize) -> Fallible<f64> {
    let store = loaded(path, messages)?;
    let relay = store.outbox().relay().with_batch(batch);
    let seconds = timed(|| {
        while relay.run_once(|_| Ok(()))?.more {}
        Ok(())
    })?;
    checked(store, messages)?;
    Ok(seconds)
}

/// In a thread of the store, where both are one commit.
pub(super) fn spawn(path: &Path, messages: u64, batch: usize) -> Fallible<f64> {
    let store = loaded(path, messages)?;
    let (done, all_done) = sync_channel(1);
    let mut left = messages;
    let seconds = timed(|| {
        let relay = store.outbox().relay().with_batch(batch).spawn(move |_| {
            left -= 1;
            if left == 0 {
                done.send(())?;
            }
            Ok(())
        })?;
        all_done.recv()?;
        Ok(relay.stop()?)
    })?;
    checked(store, messages)?;
    Ok(seconds)
}
