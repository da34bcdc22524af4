//! How a new file gets its name: made beside its place, complete and synced, and then put there by an operation of the
//! file system that fails if the name is taken.
//!
//! Creators hold a shared lock on the *directory*, and whoever gets it alone may remove what dead creators left. The
//! temporary file itself is not locked: once linked it is the store, and a lock on it would look to the storage
//! engine like another process that has the store open.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{self, Path, PathBuf};

/// How often a creation starts again because its temporary file was swept away under it. That takes a directory lock
/// that failed and another creator in the same milliseconds, once for each such creator.
pub(super) const ATTEMPTS_MAX: u32 = 32;

/// Where a new store is to appear. Its directory handle holds the creators' shared lock for as long as it lives.
pub(super) struct Place {
    directory: Directory,
    file_name: OsString,
    pub(super) target: PathBuf,
}

/// The points at which a crash leaves something different on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    TempCreated,
    TempWritten,
    TempSynced,
    Placed,
    TempRemoved,
    DirectorySynced,
}

/// What became of one attempt to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Creation {
    Ours(FileIdentity),
    /// Somebody else's store was there first.
    Theirs,
    /// Our temporary file vanished before it was in place.
    Swept,
}

impl Place {
    pub(super) fn of(path: &Path) -> Result<Self, CreateError> {
        let ends_open = path.as_os_str().as_encoded_bytes().last().is_some_and(|&byte| path::is_separator(byte.into()));
        let Some(file_name) = path.file_name().filter(|_| !ends_open) else {
            return Err(CreateError::NoFileName { path: path.to_owned() });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let real = match fs::canonicalize(parent) {
            Ok(real) if real.is_dir() => real,
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(CreateError::io("resolve", parent, error));
            }
            _ => return Err(CreateError::NoDirectory { path: path.to_owned(), directory: parent.to_owned() }),
        };
        let directory = Directory::open(&real).map_err(|error| CreateError::io("open", &real, error))?;
        directory.sweep_dead_creators(file_name);
        directory.announce_creator();
        Ok(Self { target: real.join(file_name), directory, file_name: file_name.to_owned() })
    }

    /// Makes one attempt. An error from `after` ends it at that point with nothing cleaned up, as a crash would.
    pub(super) fn create_with(
        &self,
        image: &[u8],
        after: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> Result<Creation, CreateError> {
        let (mut temp, mut file) = Temp::create(&self.directory.path, &self.file_name)?;
        let mut reached = |temp: &mut Temp, step| {
            after(step).map_err(|error| {
                temp.cleanup = Cleanup::Leave;
                CreateError::io("go on after a step with", &temp.path, error)
            })
        };
        reached(&mut temp, Step::TempCreated)?;
        file.write_all(image).map_err(|error| CreateError::io("write", &temp.path, error))?;
        reached(&mut temp, Step::TempWritten)?;
        file.sync_all().map_err(|error| CreateError::io("sync", &temp.path, error))?;
        let metadata = file.metadata().map_err(|error| CreateError::io("inspect", &temp.path, error))?;
        drop(file);
        reached(&mut temp, Step::TempSynced)?;
        match put_in_place(&temp.path, &self.target)? {
            Placing::Done => {}
            Placing::NameTaken => return Ok(Creation::Theirs),
            Placing::TempGone => return Ok(Creation::Swept),
        }
        reached(&mut temp, Step::Placed)?;
        temp.remove();
        reached(&mut temp, Step::TempRemoved)?;
        self.directory.sync().map_err(|error| CreateError::io("sync", &self.directory.path, error))?;
        reached(&mut temp, Step::DirectorySynced)?;
        Ok(Creation::Ours(FileIdentity::of(&metadata)))
    }
}

/// A file that is made beside its place by somebody else and gets its name when it is complete.
pub(crate) struct NewFile {
    place: Place,
    temp: Temp,
}

impl NewFile {
    /// Makes an empty file under a name that nobody looks for. Fails if something has the final name already.
    pub(crate) fn beside(path: &Path) -> Result<Self, CreateError> {
        let place = Place::of(path)?;
        if fs::symlink_metadata(&place.target).is_ok() {
            return Err(CreateError::Taken { path: place.target });
        }
        let (temp, _) = Temp::create(&place.directory.path, &place.file_name)?;
        Ok(Self { place, temp })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.temp.path
    }

    /// Gives the file its name. Content and name are durable on return; until then, nothing has the name.
    pub(crate) fn publish(mut self) -> Result<(), CreateError> {
        let (temp, target) = (&self.temp.path, &self.place.target);
        let file = OpenOptions::new().write(true).open(temp).map_err(|error| CreateError::io("open", temp, error))?;
        file.sync_all().map_err(|error| CreateError::io("sync", temp, error))?;
        match put_in_place(temp, target)? {
            Placing::Done => {}
            Placing::NameTaken => return Err(CreateError::Taken { path: target.clone() }),
            Placing::TempGone => return Err(CreateError::Contended { path: target.clone() }),
        }
        self.temp.remove();
        let directory = &self.place.directory;
        directory.sync().map_err(|error| CreateError::io("sync", &directory.path, error))
    }
}

pub(super) enum Placing {
    Done,
    NameTaken,
    TempGone,
}

/// Gives the finished file its name, unless the name is taken.
fn put_in_place(temp: &Path, target: &Path) -> Result<Placing, CreateError> {
    match fs::hard_link(temp, target) {
        Ok(()) => Ok(Placing::Done),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Placing::NameTaken),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Placing::TempGone),
        // File systems without hard links (FAT) answer with many different errors. Trying the other way after any of
        // them is safe, since it replaces nothing either.
        Err(error) => rename_unless_taken(temp, target, error),
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
pub(super) fn rename_unless_taken(temp: &Path, target: &Path, _link_error: io::Error) -> Result<Placing, CreateError> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    match renameat_with(CWD, temp, CWD, target, RenameFlags::NOREPLACE).map_err(io::Error::from) {
        Ok(()) => Ok(Placing::Done),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Placing::NameTaken),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Placing::TempGone),
        Err(source) => Err(CreateError::CannotPlace { path: target.to_owned(), source }),
    }
}

/// The standard rename replaces what is there, so there is no second way here.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(super) fn rename_unless_taken(_temp: &Path, target: &Path, link_error: io::Error) -> Result<Placing, CreateError> {
    Err(CreateError::CannotPlace { path: target.to_owned(), source: link_error })
}

/// The file that becomes the store, under a name that nobody looks for. Removed when dropped.
struct Temp {
    path: PathBuf,
    cleanup: Cleanup,
}

#[derive(PartialEq, Eq)]
enum Cleanup {
    Remove,
    Leave,
}

const TEMP_SUFFIX: &[u8] = b".new";

impl Temp {
    fn create(directory: &Path, file_name: &OsStr) -> Result<(Self, File), CreateError> {
        // The number is random because process ids repeat: after a reboot, and between containers that share a disk.
        let number = RandomState::new().build_hasher().finish();
        let mut name = OsString::from(".");
        name.push(file_name);
        name.push(format!(".{}-{number}.new", std::process::id()));
        let path = directory.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| CreateError::io("create", &path, error))?;
        Ok((Self { path, cleanup: Cleanup::Remove }, file))
    }

    /// Whether `name` is one that [`Temp::create`] gives on the way to a store named `file_name`.
    fn is_name_for(name: &OsStr, file_name: &OsStr) -> bool {
        let numbers = name
            .as_encoded_bytes()
            .strip_prefix(b".")
            .and_then(|rest| rest.strip_prefix(file_name.as_encoded_bytes()))
            .and_then(|rest| rest.strip_prefix(b"."))
            .and_then(|rest| rest.strip_suffix(TEMP_SUFFIX));
        let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        numbers.is_some_and(|numbers| {
            let mut parts = numbers.split(|&byte| byte == b'-');
            parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number) && parts.next().is_none()
        })
    }

    fn remove(&mut self) {
        if self.cleanup == Cleanup::Remove {
            // Already gone after a rename; and what stays is swept when the store is next opened.
            let _ = fs::remove_file(&self.path);
            self.cleanup = Cleanup::Leave;
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A directory, open to be synced and locked where the platform has that.
pub(super) struct Directory {
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
}

#[cfg(unix)]
impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), handle: File::open(path)? })
    }

    /// Makes names in this directory survive a power cut, as far as its file system offers that at all.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self.handle.sync_all() {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            synced => synced,
        }
    }

    /// Keeps sweepers away while this lives. Without locks nobody sweeps; and a creator who finds a sweeper at work
    /// risks one more attempt at most.
    fn announce_creator(&self) {
        let _ = self.handle.try_lock_shared();
    }

    /// Removes the temporary files of creators that died, if no creator is at work. What it cannot remove does no harm,
    /// so no failure here stops an opening.
    pub(super) fn sweep_dead_creators(&self, file_name: &OsStr) {
        if self.handle.try_lock().is_err() {
            return;
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if Temp::is_name_for(&entry.file_name(), file_name) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = self.handle.unlock();
    }
}

/// Directories can be neither synced nor locked here: a name is as durable as the file system makes it, and the
/// leavings of dead creators stay.
#[cfg(not(unix))]
impl Directory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn announce_creator(&self) {}

    pub(super) fn sweep_dead_creators(&self, _file_name: &OsStr) {}
}

/// Which file this is, whatever name it has: device and inode. On platforms without them, every file looks the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

impl FileIdentity {
    #[cfg(unix)]
    pub(super) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    #[cfg(not(unix))]
    pub(super) fn of(_metadata: &Metadata) -> Self {
        Self {}
    }

    #[cfg(unix)]
    pub(super) fn has_other_names(metadata: &Metadata) -> bool {
        std::os::unix::fs::MetadataExt::nlink(metadata) > 1
    }

    #[cfg(not(unix))]
    pub(super) fn has_other_names(_metadata: &Metadata) -> bool {
        false
    }

    /// Whether `path` still names this file. It is false after the file was deleted, renamed or replaced; where files
    /// have no identity, only a deletion shows.
    pub(crate) fn still_at(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Self::of(&metadata) == *self),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Why there is no file to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error("open {}: found no file, expected an existing store; check the path", path.display())]
    Missing { path: PathBuf },
    #[error(
        "open {}: found a symbolic link to nothing, expected a store behind it; mount or restore what it points to, \
         or remove the link", path.display()
    )]
    DanglingLink { path: PathBuf },
    #[error("create {}: found no directory at {}; create that first", path.display(), directory.display())]
    NoDirectory { path: PathBuf, directory: PathBuf },
    #[error("create {}: found no file name at its end, expected one", path.display())]
    NoFileName { path: PathBuf },
    #[error("open {}: found {found}, expected a regular file", path.display())]
    NotAFile { path: PathBuf, found: &'static str },
    #[error(
        "open {}: found a file that may not be both read and written, expected one that may, because to open is to \
         write (what a crash left is mended); mend its permissions, or mount its file system for writing, or open a copy \
         of it", path.display()
    )]
    NotWritable { path: PathBuf, source: io::Error },
    #[error(
        "open {}: found an empty file, expected a store; restore a backup, or remove the file if it never was one",
        path.display()
    )]
    Empty { path: PathBuf },
    #[error("open {}: found a file of another program, expected a store; give another path", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "open {}: found another file there than the one just opened, expected the same; find out who replaces it",
        path.display()
    )]
    Replaced { path: PathBuf },
    #[error(
        "create {}: found a file system that takes neither a hard link nor a rename that replaces nothing; use another",
        path.display()
    )]
    CannotPlace { path: PathBuf, source: io::Error },
    #[error("create {}: found {ATTEMPTS_MAX} attempts undone by other creators, expected one to pass", path.display())]
    Contended { path: PathBuf },
    #[error("create {}: found something there already, expected a free name; give another path", path.display())]
    Taken { path: PathBuf },
    #[error("{doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl CreateError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    pub(super) fn from_open(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path: path.to_owned(), source }
            }
            _ => Self::io("open", path, source),
        }
    }
}
