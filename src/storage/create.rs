//! Finds or makes the file of a store: it opens what is there, or lets a new store appear whole or not at all.
//!
//! It must never make a new store where something else already is, nor replace anything: a store that forgot its keys
//! runs every operation a second time. So an empty file is an error, a link to nothing is an error, and a new file
//! is put in place by an operation of the file system that fails if the name is taken.
//!
//! Creators hold a shared lock on the *directory*, and whoever gets it alone may remove what dead creators left. The
//! temporary file itself is not locked: once linked it is the store, and a lock on it would look to the storage
//! engine like another process that has the store open.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{self, Path, PathBuf};

/// What begins every file of the storage engine.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];

/// How often a creation starts again because its temporary file was swept away under it. That takes a directory lock
/// that failed and another creator in the same milliseconds, once for each such creator.
const ATTEMPTS_MAX: u32 = 32;

/// What to do about a path where nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    MustExist,
    OrCreate,
}

/// A file that is a store by its first bytes, open for reading and writing and not yet locked.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    /// Absolute, without symbolic links.
    pub(crate) path: PathBuf,
    pub(crate) identity: FileIdentity,
    /// Whether this call put the file there.
    pub(crate) created: bool,
}

/// Opens the store at `path`, or makes one from the bytes that `image` returns.
///
/// When this returns, the file's name and, if it is new, its content survive a power cut. A crash at any point leaves
/// a path that opens as if nothing had been done, or as the finished store. Of several callers that create at once,
/// one succeeds and the others open its file; `image` is called only when nothing is there.
pub(crate) fn open_or_create<E>(
    path: &Path,
    existing: Existing,
    image: impl FnOnce() -> Result<Vec<u8>, E>,
) -> Result<OpenedFile, OpenError<E>> {
    if let Some(opened) = open_existing(path).map_err(OpenError::File)? {
        return Ok(opened);
    }
    match existing {
        Existing::MustExist => Err(OpenError::File(CreateError::Missing { path: path.to_owned() })),
        Existing::OrCreate => {
            let place = Place::of(path).map_err(OpenError::File)?;
            let image = image().map_err(OpenError::Image)?;
            create(&place, &image).map_err(OpenError::File)
        }
    }
}

fn create(place: &Place, image: &[u8]) -> Result<OpenedFile, CreateError> {
    assert!(image.starts_with(&MAGIC), "a new store begins like every store");
    for _ in 0..ATTEMPTS_MAX {
        let creation = place.create_with(image, &mut |_| Ok(()))?;
        // The handle that goes out is a new one even for a file of ours: see the module's second paragraph.
        if let Some(opened) = open_existing(&place.target)? {
            return Ok(OpenedFile { created: creation == Creation::Ours(opened.identity), ..opened });
        }
    }
    Err(CreateError::Contended { path: place.target.clone() })
}

/// Opens what is at `path`; `None` if nothing is.
fn open_existing(path: &Path) -> Result<Option<OpenedFile>, CreateError> {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Creating what a link points to would hide that the disk behind it is not mounted.
            return match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_symlink() => Err(CreateError::DanglingLink { path: path.to_owned() }),
                _ => Ok(None),
            };
        }
        Err(error) => return Err(CreateError::io("resolve", path, error)),
    };
    // Before it is opened, because opening a pipe or a device can block or do something.
    match fs::metadata(&real) {
        Ok(metadata) => expect_regular(&real, &metadata)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CreateError::io("inspect", &real, error)),
    }
    let file = match OpenOptions::new().read(true).write(true).open(&real) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CreateError::from_open(&real, error)),
    };
    let metadata = file.metadata().map_err(|error| CreateError::io("inspect", &real, error))?;
    expect_regular(&real, &metadata)?;
    if metadata.len() == 0 {
        return Err(CreateError::Empty { path: real });
    }
    if !begins_like_a_store(&file).map_err(|error| CreateError::io("read", &real, error))? {
        return Err(CreateError::Foreign { path: real });
    }
    let identity = FileIdentity::of(&metadata);
    if !identity.still_at(&real).map_err(|error| CreateError::io("inspect", &real, error))? {
        return Err(CreateError::Replaced { path: real });
    }
    secure_name(&real, &metadata)?;
    Ok(Some(OpenedFile { file, path: real, identity, created: false }))
}

fn expect_regular(path: &Path, metadata: &Metadata) -> Result<(), CreateError> {
    if metadata.is_file() {
        return Ok(());
    }
    let found = if metadata.is_dir() { "a directory" } else { "a pipe, socket or device" };
    Err(CreateError::NotAFile { path: path.to_owned(), found })
}

fn begins_like_a_store(mut file: &File) -> io::Result<bool> {
    /// Windows lets nobody read what another process has locked. Then the file is in use by the storage engine, whose
    /// own lock will say so in better words.
    const ERROR_LOCK_VIOLATION: i32 = 33;

    let mut start = Vec::with_capacity(MAGIC.len());
    match file.take(MAGIC.len() as u64).read_to_end(&mut start) {
        Err(error) if cfg!(windows) && error.raw_os_error() == Some(ERROR_LOCK_VIOLATION) => return Ok(true),
        read => read?,
    };
    file.rewind()?;
    Ok(start == MAGIC)
}

/// Finishes what a creator may have left undone: its name may not be durable yet, and its temporary name not removed.
/// Without the first, everything we are about to record could vanish with the name in a power cut.
fn secure_name(path: &Path, metadata: &Metadata) -> Result<(), CreateError> {
    let (Some(parent), Some(file_name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let directory = match Directory::open(parent) {
        Ok(directory) => directory,
        // A directory that may be entered but not listed cannot be synced; whoever set it up so made the file, too.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(CreateError::io("open", parent, error)),
    };
    directory.sync().map_err(|error| CreateError::io("sync", parent, error))?;
    if FileIdentity::has_other_names(metadata) {
        directory.sweep_dead_creators(file_name);
    }
    Ok(())
}

/// Where a new store is to appear. Its directory handle holds the creators' shared lock for as long as it lives.
struct Place {
    directory: Directory,
    file_name: OsString,
    target: PathBuf,
}

/// The points at which a crash leaves something different on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    TempCreated,
    TempWritten,
    TempSynced,
    Placed,
    TempRemoved,
    DirectorySynced,
}

/// What became of one attempt to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    Ours(FileIdentity),
    /// Somebody else's store was there first.
    Theirs,
    /// Our temporary file vanished before it was in place.
    Swept,
}

impl Place {
    fn of(path: &Path) -> Result<Self, CreateError> {
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
    fn create_with(
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

enum Placing {
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
fn rename_unless_taken(temp: &Path, target: &Path, _link_error: io::Error) -> Result<Placing, CreateError> {
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
fn rename_unless_taken(_temp: &Path, target: &Path, link_error: io::Error) -> Result<Placing, CreateError> {
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
struct Directory {
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
}

#[cfg(unix)]
impl Directory {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), handle: File::open(path)? })
    }

    /// Makes names in this directory survive a power cut, as far as its file system offers that at all.
    fn sync(&self) -> io::Result<()> {
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
    fn sweep_dead_creators(&self, file_name: &OsStr) {
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
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned() })
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn announce_creator(&self) {}

    fn sweep_dead_creators(&self, _file_name: &OsStr) {}
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
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    #[cfg(not(unix))]
    fn of(_metadata: &Metadata) -> Self {
        Self {}
    }

    #[cfg(unix)]
    fn has_other_names(metadata: &Metadata) -> bool {
        std::os::unix::fs::MetadataExt::nlink(metadata) > 1
    }

    #[cfg(not(unix))]
    fn has_other_names(_metadata: &Metadata) -> bool {
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

/// Why [`open_or_create`] failed: with the file, or already with the bytes for it.
#[derive(Debug)]
pub(crate) enum OpenError<E> {
    File(CreateError),
    Image(E),
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
        "open {}: found a file that may not be both read and written, expected one that may; mend its permissions, or \
         mount its file system for writing", path.display()
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
    fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    fn from_open(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path: path.to_owned(), source }
            }
            _ => Self::io("open", path, source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    fn image() -> Vec<u8> {
        let mut image = MAGIC.to_vec();
        image.resize(100_000, 0x5a);
        image
    }

    fn open(path: &Path, existing: Existing) -> Result<OpenedFile, CreateError> {
        open_or_create(path, existing, || Ok::<_, Infallible>(image())).map_err(|error| match error {
            OpenError::File(error) => error,
            OpenError::Image(never) => match never {},
        })
    }

    fn refused(path: &Path) -> CreateError {
        open(path, Existing::OrCreate).expect_err("no store there")
    }

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn temps(directory: &Path) -> Vec<PathBuf> {
        names(directory).iter().filter(|name| name.ends_with(".new")).map(|name| directory.join(name)).collect()
    }

    /// Creates as far as `last` and dies there.
    fn crash_after(path: &Path, last: Step) {
        let place = Place::of(path).unwrap();
        let mut die = |step| if step == last { Err(io::Error::other("crash")) } else { Ok(()) };
        place.create_with(&image(), &mut die).expect_err("crashed");
    }

    #[test]
    fn missing_path_is_created_once_and_opened_afterwards() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        let first = open(&path, Existing::OrCreate).unwrap();
        assert!(first.created);
        assert_eq!(first.path, fs::canonicalize(&path).unwrap());
        let second =
            open_or_create(&path, Existing::OrCreate, || Err::<Vec<u8>, _>("no image is wanted")).expect("opens");
        assert!(!second.created);
        assert_eq!(second.identity, first.identity);
        assert_eq!(fs::read(&path).unwrap(), image());
        assert_eq!(names(directory.path()), ["store.redb"]);
    }

    #[test]
    fn handle_that_is_returned_is_unlocked_and_at_the_start() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        for created in [true, false] {
            let mut opened = open(&path, Existing::OrCreate).unwrap();
            assert_eq!(opened.created, created);
            assert_eq!(opened.file.stream_position().unwrap(), 0);
            File::open(&path).unwrap().try_lock().expect("nobody holds a lock on a store we merely opened");
        }
    }

    #[test]
    fn relative_path_is_created_in_the_current_directory() {
        let path = PathBuf::from(format!("relative-{}.redb", std::process::id()));
        let opened = open(&path, Existing::OrCreate).unwrap();
        fs::remove_file(&opened.path).unwrap();
        assert_eq!(opened.path, std::env::current_dir().unwrap().canonicalize().unwrap().join(&path));
    }

    #[test]
    fn missing_path_is_an_error_if_it_must_exist() {
        let directory = directory();
        let error = open(&directory.path().join("store.redb"), Existing::MustExist).unwrap_err();
        assert!(matches!(error, CreateError::Missing { .. }));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn failing_image_leaves_nothing_behind() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        let error = open_or_create(&path, Existing::OrCreate, || Err::<Vec<u8>, _>("no memory")).unwrap_err();
        assert!(matches!(error, OpenError::Image("no memory")));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn empty_file_is_refused_and_stays_empty() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        File::create(&path).unwrap();
        assert!(matches!(refused(&path), CreateError::Empty { .. }));
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }

    #[test]
    fn file_of_another_program_is_refused_and_not_touched() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        for foreign in [&b"r"[..], b"redb", b"SQLite format 3\0", &[0; 4096]] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(refused(&path), CreateError::Foreign { .. }));
            assert_eq!(fs::read(&path).unwrap(), foreign);
        }
    }

    #[test]
    fn file_of_the_storage_engine_begins_with_the_magic_bytes() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        redb::Database::create(&path).unwrap().close().unwrap();
        let opened = open(&path, Existing::MustExist).unwrap();
        let backend = redb::backends::FileBackend::new(opened.file).unwrap();
        redb::Builder::new().create_with_backend(backend).unwrap().close().unwrap();
    }

    #[test]
    fn path_without_a_directory_or_a_name_is_refused() {
        let directory = directory();
        let path = directory.path().join("missing/store.redb");
        assert!(matches!(refused(&path), CreateError::NoDirectory { .. }));
        assert!(matches!(refused(&directory.path().join("missing/..")), CreateError::NoFileName { .. }));
        assert!(matches!(refused(&directory.path().join("store.redb/")), CreateError::NoFileName { .. }));
        assert!(matches!(refused(Path::new("")), CreateError::NoFileName { .. }));
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn directory_is_refused() {
        let directory = directory();
        assert!(matches!(refused(directory.path()), CreateError::NotAFile { found: "a directory", .. }));
    }

    #[cfg(unix)]
    #[test]
    fn pipes_sockets_and_devices_are_refused_without_being_opened() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let directory = directory();
        let (pipe, socket) = (directory.path().join("pipe"), directory.path().join("socket"));
        #[cfg(not(target_vendor = "apple"))]
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&pipe, &socket, Path::new("/dev/null")] {
            assert!(matches!(refused(path), CreateError::NotAFile { .. }), "{path:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn read_only_file_is_an_error_that_names_it() {
        use std::os::unix::fs::PermissionsExt;

        let directory = directory();
        let path = directory.path().join("store.redb");
        fs::write(&path, image()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        // Permissions do not bind the superuser, so there the operating system's answer is made up.
        let error = match OpenOptions::new().write(true).open(&path) {
            Ok(_) => CreateError::from_open(&path, ErrorKind::PermissionDenied.into()),
            Err(_) => refused(&path),
        };
        assert!(matches!(error, CreateError::NotWritable { .. }));
        assert!(error.to_string().contains("store.redb"));
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_link_leads_to_the_store_and_the_path_is_the_real_one() {
        let directory = directory();
        let (path, link) = (directory.path().join("store.redb"), directory.path().join("link"));
        let real = open(&path, Existing::OrCreate).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let linked = open(&link, Existing::OrCreate).unwrap();
        assert_eq!(linked.path, real.path);
        assert_eq!(linked.identity, real.identity);
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_link_to_nothing_is_refused_and_its_target_is_not_created() {
        let directory = directory();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("not-mounted"), &link).unwrap();
        assert!(matches!(refused(&link), CreateError::DanglingLink { .. }));
        assert_eq!(names(directory.path()), ["link"]);
    }

    #[cfg(unix)]
    #[test]
    fn new_store_is_private_to_its_user() {
        use std::os::unix::fs::PermissionsExt;

        let directory = directory();
        let opened = open(&directory.path().join("store.redb"), Existing::OrCreate).unwrap();
        assert_eq!(opened.file.metadata().unwrap().permissions().mode() & 0o077, 0);
    }

    #[cfg(unix)]
    #[test]
    fn deleted_renamed_or_replaced_file_is_no_longer_at_its_path() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        let opened = open(&path, Existing::OrCreate).unwrap();
        assert!(opened.identity.still_at(&opened.path).unwrap());
        fs::rename(&path, directory.path().join("moved")).unwrap();
        assert!(!opened.identity.still_at(&opened.path).unwrap());
        fs::write(&path, image()).unwrap();
        assert!(!opened.identity.still_at(&opened.path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!opened.identity.still_at(&opened.path.join("below")).unwrap());
    }

    #[test]
    fn crash_after_any_step_leaves_a_path_that_opens_as_new_or_as_created() {
        use Step::*;
        for last in [TempCreated, TempWritten, TempSynced, Placed, TempRemoved, DirectorySynced] {
            for left_by_crash in [None, Some(0), Some(4), Some(50_000)] {
                let directory = directory();
                let path = directory.path().join("store.redb");
                crash_after(&path, last);
                let is_placed = matches!(last, Placed | TempRemoved | DirectorySynced);
                // What was not synced may be there in part.
                if let Some(len) = left_by_crash
                    && matches!(last, TempCreated | TempWritten)
                {
                    for temp in temps(directory.path()) {
                        OpenOptions::new().write(true).open(temp).unwrap().set_len(len).unwrap();
                    }
                }

                assert_eq!(open(&path, Existing::MustExist).is_ok(), is_placed, "{last:?}");
                let opened = open(&path, Existing::OrCreate).unwrap();
                assert_eq!(opened.created, !is_placed, "{last:?}");
                assert_eq!(fs::read(&path).unwrap(), image(), "{last:?}");
                #[cfg(unix)]
                assert_eq!(names(directory.path()), ["store.redb"], "{last:?}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn temporary_file_of_a_living_creator_is_left_alone_and_that_of_a_dead_one_swept() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        let living = Place::of(&path).unwrap();
        let mut created_beside = |step| match step {
            Step::TempSynced => {
                assert!(open(&path, Existing::OrCreate).unwrap().created);
                assert_eq!(temps(directory.path()).len(), 1);
                Err(io::Error::other("crash"))
            }
            _ => Ok(()),
        };
        living.create_with(&image(), &mut created_beside).unwrap_err();
        drop(living);
        fs::remove_file(&path).unwrap();
        assert!(open(&path, Existing::OrCreate).unwrap().created);
        assert_eq!(names(directory.path()), ["store.redb"]);
    }

    #[test]
    fn sweeping_removes_no_file_of_another_name() {
        let directory = directory();
        let others = [
            ".other.redb.1-2.new",
            ".store.redb.1-2.new.bak",
            ".store.redb.1-.new",
            ".store.redb.1-2-3.new",
            ".store.redb.a-2.new",
            ".store.redb.new",
            "store.redb.1-2.new",
        ];
        for name in others {
            fs::write(directory.path().join(name), b"").unwrap();
        }
        fs::write(directory.path().join(".store.redb.1-2.new"), b"").unwrap();
        open(&directory.path().join("store.redb"), Existing::OrCreate).unwrap();
        let left = names(directory.path());
        assert!(others.iter().all(|name| left.iter().any(|found| found == name)), "{left:?}");
        #[cfg(unix)]
        assert_eq!(left.len(), others.len() + 1, "{left:?}");
    }

    #[test]
    fn creator_who_comes_second_takes_what_is_there_and_replaces_nothing() {
        let directory = directory();
        let path = directory.path().join("store.redb");
        let place = Place::of(&path).unwrap();
        let mut theirs = image();
        theirs.push(1);
        let mut overtaken = |step| match step {
            Step::TempSynced => fs::write(&path, &theirs),
            _ => Ok(()),
        };
        assert_eq!(place.create_with(&image(), &mut overtaken).unwrap(), Creation::Theirs);
        assert_eq!(fs::read(&path).unwrap(), theirs);
        assert_eq!(names(directory.path()), ["store.redb"]);
        assert!(!create(&place, &image()).unwrap().created);
    }

    #[test]
    fn creator_whose_temporary_file_was_swept_starts_again() {
        let directory = directory();
        let place = Place::of(&directory.path().join("store.redb")).unwrap();
        let mut swept = |step| match step {
            Step::TempSynced => fs::remove_file(&temps(directory.path())[0]),
            _ => Ok(()),
        };
        assert_eq!(place.create_with(&image(), &mut swept).unwrap(), Creation::Swept);
        assert!(create(&place, &image()).unwrap().created);
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    #[test]
    fn rename_instead_of_a_link_replaces_nothing() {
        let directory = directory();
        let (temp, target) = (directory.path().join("temp"), directory.path().join("store.redb"));
        let place = || rename_unless_taken(&temp, &target, io::Error::other("no hard links")).unwrap();
        assert!(matches!(place(), Placing::TempGone));
        fs::write(&temp, b"first").unwrap();
        assert!(matches!(place(), Placing::Done));
        fs::write(&temp, b"second").unwrap();
        assert!(matches!(place(), Placing::NameTaken));
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert_eq!(fs::read(&temp).unwrap(), b"second");
    }

    #[test]
    fn of_many_creators_at_once_one_creates_and_all_open_the_same_file() {
        const CREATORS: usize = 8;
        for _ in 0..25 {
            let directory = directory();
            let path = directory.path().join("store.redb");
            let start = Barrier::new(CREATORS);
            let opened: Vec<OpenedFile> = thread::scope(|scope| {
                let creators: Vec<_> = (0..CREATORS)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            open(&path, Existing::OrCreate).unwrap()
                        })
                    })
                    .collect();
                creators.into_iter().map(|creator| creator.join().unwrap()).collect()
            });
            assert_eq!(opened.iter().filter(|opened| opened.created).count(), 1);
            assert!(opened.iter().all(|one| one.identity == opened[0].identity));
            assert_eq!(fs::read(&path).unwrap(), image());
        }
    }
}
