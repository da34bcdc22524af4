//! Values by reference: files beside the store.

use std::fs::File;
use std::io::{ErrorKind as Io, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::machine::limits::LOCATION_BYTES_MAX;
use crate::machine::response::Artifact;

/// Bytes hashed at a time.
const CHUNK_BYTES: usize = 64 * 1024;

impl Artifact {
    /// Refers to a file as it is now. The file is synced first, so that no reference outlives a power cut that the file
    /// did not; its directory is the caller's to sync. Write it under a name that is not used again: a file that is
    /// changed later is no longer this value.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if the file cannot be read; [`InvalidInput`](ErrorKind::InvalidInput) for a path that is
    /// not UTF-8 or longer than 4096 bytes.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Artifact, Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("report.pdf");
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "render", "r-1")?, Fingerprint::unchecked());
    /// let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// std::fs::write(&path, "a large report").unwrap();
    /// let replay = claim.succeed_raw(Artifact::of_file(&path)?)?;
    /// assert_eq!(replay.artifact().unwrap().read()?, b"a large report");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let trouble = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("cannot read the artifact {}: {error}", path.display()))
                .with_source(error)
        };
        let absolute = std::path::absolute(path).map_err(trouble)?;
        let location = absolute.to_str().filter(|location| location.len() <= LOCATION_BYTES_MAX).ok_or_else(|| {
            Error::invalid_input(format!("the artifact's path is not UTF-8 of at most {LOCATION_BYTES_MAX} bytes"))
        })?;
        let mut file = File::open(path).map_err(trouble)?;
        if !file.metadata().map_err(trouble)?.is_file() {
            return Err(Error::invalid_input(format!("the artifact {} is no file", path.display())));
        }
        file.sync_all().map_err(trouble)?;
        let (len, sha256) = digest(&mut file).map_err(trouble)?;
        Ok(Self { location: location.into(), len, sha256 })
    }

    /// Where it lies: an absolute path.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, "text").unwrap();
    /// assert!(dupeproof::Artifact::of_file(&path)?.path().is_absolute());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        Path::new(&*self.location)
    }

    /// Its length in bytes.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, "text").unwrap();
    /// assert_eq!(dupeproof::Artifact::of_file(&path)?.byte_len(), 4);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn byte_len(&self) -> u64 {
        self.len
    }

    /// Its SHA-256.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, "").unwrap();
    /// assert_eq!(dupeproof::Artifact::of_file(&path)?.sha256()[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// Looks whether a file of the right length is there. [`read`](Self::read) looks at what is in it, too.
    ///
    /// # Errors
    /// [`ArtifactMissing`](ErrorKind::ArtifactMissing) if it is not; [`Io`](ErrorKind::Io) if nobody can tell.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, "text").unwrap();
    /// let artifact = dupeproof::Artifact::of_file(&path)?;
    /// std::fs::remove_file(&path).unwrap();
    /// assert_eq!(artifact.look().unwrap_err().kind(), dupeproof::ErrorKind::ArtifactMissing);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn look(&self) -> Result<()> {
        let found = std::fs::metadata(self.path()).map_err(|error| self.trouble(error))?;
        if found.is_file() && found.len() == self.len { Ok(()) } else { Err(self.missing("another file lies there")) }
    }

    /// The value. All of it is read into memory and compared with its SHA-256.
    ///
    /// # Errors
    /// [`ArtifactMissing`](ErrorKind::ArtifactMissing) if the file is not there or not what it was;
    /// [`Io`](ErrorKind::Io) if it cannot be read.
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("a");
    /// # std::fs::write(&path, "text").unwrap();
    /// let artifact = dupeproof::Artifact::of_file(&path)?;
    /// std::fs::write(&path, "lies").unwrap();
    /// assert_eq!(artifact.read().unwrap_err().kind(), dupeproof::ErrorKind::ArtifactMissing);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn read(&self) -> Result<Vec<u8>> {
        self.look()?;
        let file = File::open(self.path()).map_err(|error| self.trouble(error))?;
        let mut value = Vec::new();
        // One byte more than it should have, so that a file that grows meanwhile is seen and does not fill the memory.
        file.take(self.len.saturating_add(1)).read_to_end(&mut value).map_err(|error| self.trouble(error))?;
        let sha256: [u8; 32] = Sha256::digest(&value).into();
        if sha256 == self.sha256 { Ok(value) } else { Err(self.missing("its content has changed")) }
    }

    fn trouble(&self, error: std::io::Error) -> Error {
        match error.kind() {
            Io::NotFound | Io::NotADirectory => self.missing("there is no such file"),
            _ => Error::new(ErrorKind::Io, format!("cannot read the artifact {}: {error}", self.location))
                .with_source(error),
        }
    }

    fn missing(&self, why: &str) -> Error {
        Error::new(ErrorKind::ArtifactMissing, format!("the artifact {} is missing: {why}", self.location))
    }
}

fn digest(file: &mut File) -> std::io::Result<(u64, [u8; 32])> {
    let (mut hash, mut len, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((len, hash.finalize().into())),
            Ok(read) => {
                hash.update(&chunk[..read]);
                len += read as u64;
            }
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
