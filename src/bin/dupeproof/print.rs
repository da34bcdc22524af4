//! Standard output: what was asked for, and nothing else.

use std::io::{ErrorKind, Write};

use crate::Fallible;
use crate::failure::Failure;

/// Prints what was asked for. A reader who has seen enough (`| head`) is no failure.
pub(crate) fn print_out(text: &str) -> Fallible<()> {
    print_out_bytes(text.as_bytes())
}

pub(crate) fn print_out_bytes(bytes: &[u8]) -> Fallible<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(format!("print the result: {error}"))),
        _ => Ok(()),
    }
}
