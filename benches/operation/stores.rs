//! The loaded stores of one run: each is made once, and cycles get a fresh copy of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::peers::{Fallible, Format};
use crate::work::now;

/// Where loading is bound by the processor, and not by syncs whose durability nobody needs yet.
const MEMORY_DIR: &str = "/dev/shm";
const CHUNK_BYTES: usize = 64 * 1024;

pub(crate) struct Stores {
    dir: TempDir,
    loaded: BTreeMap<(Format, u64), PathBuf>,
    copies: usize,
}

impl Stores {
    /// Beside the build, because a temporary directory may be in memory, and what is measured is a disk.
    pub(crate) fn new() -> Fallible<Self> {
        let dir = tempfile::Builder::new().prefix("operation-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        Ok(Self { dir, loaded: BTreeMap::new(), copies: 0 })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The store of that many settled records, to be read only.
    pub(crate) fn loaded(&mut self, format: Format, records: u64) -> Fallible<PathBuf> {
        if let Some(path) = self.loaded.get(&(format, records)) {
            return Ok(path.clone());
        }
        let started = now();
        let name = format!("{format:?}-{records}").to_lowercase();
        let path = self.dir.path().join(&name);
        match tempfile::Builder::new().prefix("dupeproof-bench-").tempdir_in(MEMORY_DIR) {
            Ok(nursery) => {
                let made = nursery.path().join(&name);
                format.load(&made, records)?;
                copy(&made, &path)?;
            }
            Err(_) => format.load(&path, records)?,
        }
        eprintln!("loaded {name} in {:.1} s", (now() - started).as_secs_f64());
        self.loaded.insert((format, records), path.clone());
        Ok(path)
    }

    /// A copy to write to, synced, so that the first commits on it do not pay for its pages.
    pub(crate) fn copied(&mut self, format: Format, records: u64) -> Fallible<Copied> {
        let loaded = self.loaded(format, records)?;
        self.copies += 1;
        let dir = self.dir.path().join(format!("copy-{}", self.copies));
        fs::create_dir(&dir)?;
        let path = dir.join("store");
        copy(&loaded, &path)?;
        Ok(Copied { dir, path })
    }
}

/// A store in a directory of its own, which is gone with it, journals included.
pub(crate) struct Copied {
    dir: PathBuf,
    pub(crate) path: PathBuf,
}

impl Drop for Copied {
    fn drop(&mut self) {
        // What is left goes with the directory of the run.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Holes stay holes: a store that has to fill them pays for it, as it would have before.
fn copy(from: &Path, to: &Path) -> Fallible<()> {
    let mut source = File::open(from)?;
    let mut target = File::create_new(to)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let len = source.read(&mut chunk)?;
        if len == 0 {
            break;
        }
        if chunk[..len].iter().all(|byte| *byte == 0) {
            target.seek(SeekFrom::Current(i64::try_from(len)?))?;
        } else {
            target.write_all(&chunk[..len])?;
        }
    }
    target.set_len(source.metadata()?.len())?;
    target.sync_all()?;
    Ok(())
}
