//! `export` and `import`.

use std::error::Error as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter};

use dupeproof::ErrorKind;
use serde_json::json;

use crate::args::{ImportArgs, StoreArgs};
use crate::failure::{Failure, Voice};
use crate::place;
use crate::print::print_out;
use crate::text::quoted;
use crate::{Fallible, code};

/// A reader who has seen enough is no failure.
pub(crate) fn export(store: &StoreArgs) -> Fallible<()> {
    let store = place::open_existing(store)?;
    let exported = store.export(BufWriter::new(io::stdout().lock()));
    store.close()?;
    match exported {
        Err(error) if error.source().is_some_and(is_broken_pipe) => Ok(()),
        exported => Ok(exported.map(|_| ())?),
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

pub(crate) fn import(store: &StoreArgs, args: &ImportArgs, voice: Voice) -> Fallible<()> {
    let from: Box<dyn BufRead> = match &args.file {
        Some(path) if path.as_os_str() != "-" => Box::new(BufReader::new(
            File::open(path).map_err(|error| Failure::new(format!("read {}: {error}", path.display())))?,
        )),
        _ => Box::new(io::stdin().lock()),
    };
    let opened = place::open_or_create(store)?;
    let records = opened.import(from).map_err(|error| match error.kind() {
        ErrorKind::Refused => {
            let file = args.file.as_ref().map_or_else(|| "-".to_owned(), |file| quoted(&file.display().to_string()));
            Failure::with_code(code::REFUSED, error.to_string())
                .next(format!("dupeproof import {file} --store NEW_FILE"))
        }
        _ => error.into(),
    })?;
    opened.close()?;
    match voice {
        Voice::Json => print_out(&format!("{}\n", json!({ "records": records }))),
        Voice::Human => print_out(&format!("{records} records imported\n")),
    }
}
