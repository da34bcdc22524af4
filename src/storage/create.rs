//! Finds or makes the file of a store: it opens what is there, or lets a new store appear whole or not at all.
//!
//! It must never make a new store where something else already is, nor replace anything: a store that forgot its keys
//! runs every operation a second time. So an empty file is an error, a link to nothing is an error, and a new file
//! is put in place by an operation of the file system that fails if the name is taken.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

use super::place::{ATTEMPTS_MAX, CreateError, Creation, Directory, FileIdentity, Place};

/// What begins every file of the storage engine.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];

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
        // The handle that goes out is a new one even for a file of ours: the one to the temporary file is
        // gone before anybody locks the store.
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

/// Why [`open_or_create`] failed: with the file, or already with the bytes for it.
#[derive(Debug)]
pub(crate) enum OpenError<E> {
    File(CreateError),
    Image(E),
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Barrier;
    use std::thread;

    use super::super::place::{Placing, Step, rename_unless_taken};
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
