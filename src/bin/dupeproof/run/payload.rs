//! What is run, as far as it counts: another payload under the same key is another operation.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};

use dupeproof::Fingerprint;

use crate::Fallible;
use crate::args::RunArgs;
use crate::failure::Failure;

/// Each part of a payload is held in memory while it is fingerprinted.
const PART_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(crate) struct Payload {
    arguments: Vec<OsString>,
    files: Vec<Vec<u8>>,
    stdin: Option<Vec<u8>>,
}

impl Payload {
    pub(crate) fn gather(args: &RunArgs) -> Fallible<Self> {
        let read_file = |path: &std::path::PathBuf| {
            let name = path.display();
            let file = File::open(path).map_err(|error| Failure::new(format!("read the payload {name}: {error}")))?;
            bounded(file, &name.to_string())
        };
        Ok(Self {
            arguments: args.command.clone(),
            files: args.payload_file.iter().map(read_file).collect::<Fallible<_>>()?,
            stdin: args.stdin.then(|| bounded(io::stdin().lock(), "standard input")).transpose()?,
        })
    }

    /// Every argument, file and the input as a part of its own, so that no two commands look alike.
    pub(crate) fn fingerprint(&self) -> Fallible<Fingerprint> {
        let arguments = self.arguments.iter().map(|argument| argument.as_encoded_bytes());
        let mut parts: Vec<(String, &[u8])> =
            arguments.enumerate().map(|(at, argument)| (format!("argument {at}"), argument)).collect();
        let files = self.files.iter().enumerate();
        parts.extend(files.map(|(at, content)| (format!("file {at}"), content.as_slice())));
        parts.extend(self.stdin.as_deref().map(|input| ("stdin".to_owned(), input)));
        let parts: Vec<(&str, &[u8])> = parts.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(Fingerprint::of_parts(&parts)?)
    }

    /// What the command gets as its standard input, if not ours.
    pub(crate) fn into_stdin(self) -> Option<Vec<u8>> {
        self.stdin
    }
}

fn bounded(from: impl Read, name: &str) -> Fallible<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(PART_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(format!("read the payload {name}: {error}")))?;
    if bytes.len() as u64 > PART_BYTES_MAX {
        return Err(Failure::new(format!("the payload {name} is larger than {PART_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}
