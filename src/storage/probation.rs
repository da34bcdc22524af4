//! A backend that holds back every write until the file is accepted.
//!
//! The storage engine writes to a file as soon as it opens it, before anybody can look whether the file is a store and
//! of a format this release reads. A file that is refused must stay as it was. So what an open writes is kept in
//! memory, and done to the file, in order and with every sync, once the store is accepted.
//!
//! Only for a file that nobody else may write: in shared mode the engine lets go of its lock between its writes.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

const PAGE: u64 = 4096;

/// Clones share the file, so that one stays behind to accept it.
#[derive(Debug)]
pub(super) struct Probation<B>(Arc<Inner<B>>);

#[derive(Debug)]
struct Inner<B> {
    backend: B,
    state: RwLock<State>,
}

#[derive(Debug)]
enum State {
    Held(Held),
    /// Everything goes through.
    Accepted,
    /// What was held back could not be written: the file is as after a crash on the way, and stays so.
    Failed,
}

#[derive(Debug)]
enum Write {
    Bytes(u64, Vec<u8>),
    Len(u64),
    Sync,
}

/// What was written to the file, and what it would look like.
#[derive(Debug)]
struct Held {
    writes: Vec<Write>,
    pages: BTreeMap<u64, Vec<u8>>,
    len: u64,
    /// How much of the file still shows; behind it everything is zero.
    shown: u64,
}

impl<B> Clone for Probation<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: StorageBackend> Probation<B> {
    pub(super) fn of(backend: B) -> io::Result<Self> {
        let len = backend.len()?;
        let held = Held { writes: Vec::new(), pages: BTreeMap::new(), len, shown: len };
        Ok(Self(Arc::new(Inner { backend, state: RwLock::new(State::Held(held)) })))
    }

    /// Nothing is held back.
    pub(super) fn without(backend: B) -> Self {
        Self(Arc::new(Inner { backend, state: RwLock::new(State::Accepted) }))
    }

    /// Does to the file what was held back. From now on everything goes through.
    pub(super) fn accept(&self) -> io::Result<()> {
        let mut state = self.0.state.write();
        let State::Held(held) = std::mem::replace(&mut *state, State::Failed) else {
            *state = State::Accepted;
            return Ok(());
        };
        for write in &held.writes {
            match write {
                Write::Bytes(offset, bytes) => self.0.backend.write(*offset, bytes)?,
                Write::Len(len) => self.0.backend.set_len(*len)?,
                Write::Sync => self.0.backend.sync_data()?,
            }
        }
        *state = State::Accepted;
        Ok(())
    }

    fn change(&self, write: Write) -> io::Result<()> {
        let backend = &self.0.backend;
        if let State::Accepted = *self.0.state.read() {
            return match write {
                Write::Bytes(offset, bytes) => backend.write(offset, &bytes),
                Write::Len(len) => backend.set_len(len),
                Write::Sync => backend.sync_data(),
            };
        }
        match &mut *self.0.state.write() {
            State::Held(held) => held.change(backend, write),
            State::Failed => Err(failed()),
            State::Accepted => Err(io::Error::other("accepted while it was opened")),
        }
    }
}

fn failed() -> io::Error {
    io::Error::other("an earlier write failed while the file was opened")
}

impl Held {
    fn change(&mut self, backend: &impl StorageBackend, write: Write) -> io::Result<()> {
        match &write {
            Write::Bytes(offset, bytes) => self.put(backend, *offset, bytes)?,
            Write::Len(len) => self.cut(backend, *len)?,
            Write::Sync => {}
        }
        self.writes.push(write);
        Ok(())
    }

    fn put(&mut self, backend: &impl StorageBackend, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = end(offset, bytes.len())?;
        self.len = self.len.max(end);
        for (page, within, from) in parts(offset, bytes.len()) {
            let bytes = &bytes[from..from + within.len()];
            self.page(backend, page)?[within].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn cut(&mut self, backend: &impl StorageBackend, len: u64) -> io::Result<()> {
        if len < self.len {
            if !len.is_multiple_of(PAGE) {
                let within = usize::try_from(len % PAGE).expect("below a page");
                self.page(backend, len / PAGE)?[within..].fill(0);
            }
            self.pages.retain(|page, _| page * PAGE < len);
            self.shown = self.shown.min(len);
        }
        self.len = len;
        Ok(())
    }

    /// A page that may be written to.
    fn page(&mut self, backend: &impl StorageBackend, page: u64) -> io::Result<&mut Vec<u8>> {
        if !self.pages.contains_key(&page) {
            let mut bytes = vec![0; usize::try_from(PAGE).expect("small")];
            self.show(backend, page * PAGE, &mut bytes)?;
            self.pages.insert(page, bytes);
        }
        Ok(self.pages.get_mut(&page).expect("it was just put there"))
    }

    /// What the file itself shows at a place.
    fn show(&self, backend: &impl StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let shown = usize::try_from(self.shown.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        out[shown..].fill(0);
        if shown == 0 { Ok(()) } else { backend.read(offset, &mut out[..shown]) }
    }

    fn read(&self, backend: &impl StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if end(offset, out.len())? > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.show(backend, offset, out)?;
        for (page, within, from) in parts(offset, out.len()) {
            if let Some(bytes) = self.pages.get(&page) {
                out[from..from + within.len()].copy_from_slice(&bytes[within]);
            }
        }
        Ok(())
    }
}

fn end(offset: u64, len: usize) -> io::Result<u64> {
    offset.checked_add(len as u64).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The pages that a range touches: which page, which part of it, and where that lies in the range.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let page_len = usize::try_from(PAGE).expect("small");
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let start = usize::try_from(at % PAGE).expect("below a page");
        let part = (page_len - start).min(len - from);
        let found = (part > 0).then_some((at / PAGE, start..start + part, from));
        from += part;
        found
    })
}

impl<B: StorageBackend> StorageBackend for Probation<B> {
    fn len(&self) -> io::Result<u64> {
        match &*self.0.state.read() {
            State::Held(held) => Ok(held.len),
            State::Accepted | State::Failed => self.0.backend.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &*self.0.state.read() {
            State::Held(held) => held.read(&self.0.backend, offset, out),
            State::Accepted | State::Failed => self.0.backend.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Write::Len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(Write::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // The way of every page once the store is open: not copied.
        if let State::Accepted = *self.0.state.read() {
            return self.0.backend.write(offset, data);
        }
        self.change(Write::Bytes(offset, data.to_vec()))
    }

    fn close(&self) -> io::Result<()> {
        self.0.backend.close()
    }

    // Without these the file would silently not be locked.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.backend.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::storage::memory::MemoryBackend;

    fn write() -> impl Strategy<Value = Write> {
        prop_oneof![
            4 => (0..30_000_u64, vec(any::<u8>(), 0..9000)).prop_map(|(offset, bytes)| Write::Bytes(offset, bytes)),
            2 => (0..30_000_u64).prop_map(Write::Len),
            1 => Just(()).prop_map(|()| Write::Sync),
        ]
    }

    fn perform(backend: &impl StorageBackend, write: &Write) {
        match write {
            Write::Bytes(offset, bytes) => backend.write(*offset, bytes),
            Write::Len(len) => backend.set_len(*len),
            Write::Sync => backend.sync_data(),
        }
        .expect("memory does not fail");
    }

    proptest! {
        #[test]
        fn held_back_file_reads_as_if_written_and_is_written_only_when_accepted(
            start in vec(any::<u8>(), 0..20_000),
            writes in vec(write(), 0..12),
            looks in vec((0..40_000_u64, 0..9000_usize), 1..8),
        ) {
            let file = MemoryBackend::of(start.clone());
            let held = Probation::of(file.clone()).expect("memory does not fail");
            let plain = MemoryBackend::of(start.clone());
            for write in &writes {
                perform(&held, write);
                perform(&plain, write);
                prop_assert_eq!(held.len().expect("answers"), plain.len().expect("answers"));
                for (offset, len) in &looks {
                    let (mut one, mut other) = (vec![1; *len], vec![2; *len]);
                    let found = held.read(*offset, &mut one).map_err(|error| error.kind());
                    prop_assert_eq!(found, plain.read(*offset, &mut other).map_err(|error| error.kind()));
                    prop_assert!(found.is_err() || one == other, "{} bytes at {}", len, offset);
                }
            }
            prop_assert_eq!(file.image(), start);
            held.accept().expect("memory does not fail");
            prop_assert_eq!(file.image(), plain.image());
            perform(&held, &Write::Bytes(3, vec![9; 5]));
            prop_assert_eq!(&file.image()[3..8], [9; 5]);
        }
    }
}
