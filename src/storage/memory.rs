//! A backend in memory: for stores without a file, and for building the image a new file starts from.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

/// Bytes that outlive the database opened on them: a clone shares them.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryBackend(Arc<Mutex<Vec<u8>>>);

impl MemoryBackend {
    pub(crate) fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(image)))
    }

    pub(crate) fn image(&self) -> Vec<u8> {
        self.0.lock().clone()
    }
}

fn range(offset: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let end = start.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(start..end)
}

impl StorageBackend for MemoryBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let range = range(offset, out.len())?;
        let bytes = self.0.lock();
        out.copy_from_slice(bytes.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.0.lock().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = range(offset, data.len())?;
        let mut bytes = self.0.lock();
        if bytes.len() < range.end {
            bytes.resize(range.end, 0);
        }
        bytes[range].copy_from_slice(data);
        Ok(())
    }
}
