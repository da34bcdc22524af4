//! Where the store is, and how it is opened: shared, so that two shells can use one store at once.

use std::env;
use std::path::{Path, PathBuf};

use dupeproof::{ErrorKind, Options, Sharing, Store};

use crate::args::StoreArgs;
use crate::failure::{Failure, next_command};
use crate::{Fallible, bar};

const FILE: &str = "store.redb";

/// Opens the store, and makes it if there is none.
pub(crate) fn open_or_create(args: &StoreArgs) -> Fallible<Store> {
    if args.store.is_none() {
        let folder = default_folder()?;
        make_private(&folder)
            .map_err(|error| Failure::new(format!("create the folder {}: {error}", folder.display())))?;
    }
    Ok(options(args).open(path(args)?)?)
}

/// Opens a store that is there.
pub(crate) fn open_existing(args: &StoreArgs) -> Fallible<Store> {
    options(args).must_exist().open(path(args)?).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::from(error).next(next_command(args, &["run", "--key", "KEY", "--", "COMMAND"])),
        _ => error.into(),
    })
}

/// Where the store is looked for.
pub(crate) fn path(args: &StoreArgs) -> Fallible<PathBuf> {
    match &args.store {
        Some(path) => Ok(path.clone()),
        None => Ok(default_folder()?.join(FILE)),
    }
}

fn options(args: &StoreArgs) -> Options {
    let options = Options::new().with_sharing(Sharing::Shared).with_open_wait(args.open_wait);
    match bar::listener() {
        Some(listener) => options.with_progress(listener),
        None => options,
    }
}

fn default_folder() -> Fallible<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // As the XDG Base Directory Specification has it: what is not absolute is ignored.
    let state = set("XDG_STATE_HOME").or_else(|| env::home_dir().map(|home| home.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("dupeproof")),
        None => Err(Failure::new("there is no home folder to keep a store in: give --store or set DUPEPROOF_STORE")),
    }
}

fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
