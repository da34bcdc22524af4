//! `dupeproof show`.

use std::io::Write;

use dupeproof::{Identity, Kind, OperationView, Response};

use crate::Fallible;
use crate::args::{ShowArgs, StoreArgs};
use crate::failure::{Failure, Voice, next_command};
use crate::print::{print_out, print_out_bytes};
use crate::run::recording::Recording;
use crate::{code, place, view};

pub(crate) fn main(store_args: &StoreArgs, args: &ShowArgs, voice: Voice) -> Fallible<()> {
    let identity = args.name.identity()?;
    let store = place::open_existing(store_args)?;
    let found = store.get(&identity)?;
    store.close()?;
    let operation = found.ok_or_else(|| {
        let words = list_of(&identity);
        Failure::with_code(code::NOT_FOUND, "there is no record of this key").next(next_command(store_args, &words))
    })?;
    print(&operation, args.show_response, voice)
}

/// What to type to find the right name.
pub(crate) fn list_of(identity: &Identity) -> Vec<&str> {
    let kind = identity.kind();
    let kinds = if kind == Kind::Operation { &[][..] } else { &["--kind", kind.as_str()] };
    [&["list"], kinds, &["--tenant", identity.tenant(), "--operation", identity.name()]].concat()
}

pub(crate) fn print(operation: &OperationView, show_response: bool, voice: Voice) -> Fallible<()> {
    if voice == Voice::Json {
        return print_out(&format!("{}\n", view::json(operation, show_response)));
    }
    let text: String = view::lines(operation).iter().map(|(name, value)| format!("{name:<20}{value}\n")).collect();
    print_out(&text)?;
    if show_response && let Some(bytes) = operation.response.as_ref().and_then(Response::bytes) {
        let recording = Recording::decode(bytes);
        print_out("\n")?;
        // As it was recorded: whoever asks for it wants the bytes.
        print_out_bytes(&recording.stdout.kept)?;
        let _ = std::io::stderr().lock().write_all(&recording.stderr.kept);
    }
    Ok(())
}
