//! `dupeproof show`.

use std::io::Write;

use dupeproof::{OperationView, Response};

use crate::Fallible;
use crate::args::{ShowArgs, StoreArgs};
use crate::failure::{Failure, Voice, next_command};
use crate::print::{print_out, print_out_bytes};
use crate::run::recording::Recording;
use crate::{code, place, view};

pub(crate) fn main(store_args: &StoreArgs, args: &ShowArgs, voice: Voice) -> Fallible<()> {
    let key = args.key.key()?;
    let store = place::open_existing(store_args)?;
    let found = store.get(&key)?;
    store.close()?;
    let operation = found.ok_or_else(|| {
        let list = next_command(store_args, &["list", "--tenant", key.tenant(), "--operation", key.operation()]);
        Failure::with_code(code::NOT_FOUND, "there is no record of this key").next(list)
    })?;
    print(&operation, args.show_response, voice)
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
