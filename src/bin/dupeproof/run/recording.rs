//! What a run left behind: its output, byte for byte, and its exit code.
//!
//! `magic (8) · exit code (1) · length of the kept and of the whole stdout (8 + 8) · the same of stderr (8 + 8) ·
//! stdout · stderr`, integers little endian. A response that does not begin so was given by a person or a program: it
//! is the standard output of a success.

const MAGIC: [u8; 8] = *b"dupeRec\x01";
const HEAD_BYTES: usize = MAGIC.len() + 1 + 4 * 8;
/// What a store keeps of a response unless told otherwise.
const RECORDING_BYTES_MAX: usize = 1024 * 1024;
/// What is kept of both streams together.
pub(crate) const OUTPUT_BYTES_MAX: usize = RECORDING_BYTES_MAX - HEAD_BYTES;
/// What standard error may take of that when there is too much of both.
const STDERR_BYTES_SHARE: usize = 128 * 1024;

/// One stream: what is kept of it, and how long it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) kept: Vec<u8>,
    pub(crate) whole_len: u64,
}

impl Captured {
    pub(crate) fn whole(kept: Vec<u8>) -> Self {
        Self { whole_len: kept.len() as u64, kept }
    }

    /// Takes what came, as far as there is room.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.whole_len += bytes.len() as u64;
        let room = OUTPUT_BYTES_MAX - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub(crate) fn is_cut(&self) -> bool {
        (self.kept.len() as u64) < self.whole_len
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recording {
    pub(crate) exit_code: u8,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
}

impl Recording {
    pub(crate) fn fits(&self) -> bool {
        self.stdout.kept.len() + self.stderr.kept.len() <= OUTPUT_BYTES_MAX
    }

    /// What is too long is cut, so that the recording never becomes too large for the store: the exit code counts most.
    pub(crate) fn encode(mut self) -> Vec<u8> {
        if !self.fits() {
            let share = OUTPUT_BYTES_MAX.saturating_sub(self.stdout.kept.len()).max(STDERR_BYTES_SHARE);
            self.stderr.kept.truncate(share);
            self.stdout.kept.truncate(OUTPUT_BYTES_MAX - self.stderr.kept.len());
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.stdout.kept.len() + self.stderr.kept.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(self.exit_code);
        for stream in [&self.stdout, &self.stderr] {
            bytes.extend_from_slice(&(stream.kept.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&stream.whole_len.to_le_bytes());
        }
        bytes.extend_from_slice(&self.stdout.kept);
        bytes.extend_from_slice(&self.stderr.kept);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        Self::try_decode(bytes).unwrap_or_else(|| Self { stdout: Captured::whole(bytes.to_vec()), ..Self::default() })
    }

    fn try_decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (&exit_code, mut rest) = rest.split_first()?;
        let mut number = || {
            let (number, behind) = rest.split_first_chunk::<8>()?;
            rest = behind;
            Some(u64::from_le_bytes(*number))
        };
        let [stdout_len, stdout_whole, stderr_len, stderr_whole] = [number()?, number()?, number()?, number()?];
        let (stdout, stderr) = rest.split_at_checked(usize::try_from(stdout_len).ok()?)?;
        if stderr.len() as u64 != stderr_len {
            return None;
        }
        Some(Self {
            exit_code,
            stdout: Captured { kept: stdout.to_vec(), whole_len: stdout_whole },
            stderr: Captured { kept: stderr.to_vec(), whole_len: stderr_whole },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(len: usize) -> Captured {
        let mut captured = Captured::default();
        for chunk in vec![7; len].chunks(4096) {
            captured.push(chunk);
        }
        captured
    }

    #[test]
    fn recording_is_read_back_as_it_was() {
        for (out, err) in [(&b""[..], &b""[..]), (b"out\0\xff\n", b"err"), (b"", b"e")] {
            let recording = Recording {
                exit_code: 3,
                stdout: Captured::whole(out.to_vec()),
                stderr: Captured::whole(err.to_vec()),
            };
            assert_eq!(Recording::decode(&recording.clone().encode()), recording);
        }
    }

    #[test]
    fn response_that_is_no_recording_is_the_output_of_a_success() {
        for bytes in [&b""[..], b"paid", b"dupeRec\x01", b"dupeRec\x01\0and then something else that is long enough"] {
            let recording = Recording::decode(bytes);
            assert_eq!((recording.exit_code, &recording.stdout.kept[..]), (0, bytes));
        }
    }

    #[test]
    fn recording_never_outgrows_the_store_and_says_that_it_was_cut() {
        let most = 1024 * 1024;
        for (out, err) in [(3 * most, 0), (0, 3 * most), (3 * most, 3 * most), (most, 10), (10, most), (most / 2, most)]
        {
            let recording = Recording { exit_code: 9, stdout: captured(out), stderr: captured(err) };
            let bytes = recording.encode();
            assert!(bytes.len() <= most, "{out} and {err}: {}", bytes.len());
            let recording = Recording::decode(&bytes);
            assert_eq!(recording.exit_code, 9);
            assert_eq!((recording.stdout.whole_len, recording.stderr.whole_len), (out as u64, err as u64));
            assert!(recording.stdout.is_cut() || recording.stderr.is_cut());
            assert!(
                recording.stdout.kept.len() + recording.stderr.kept.len() > most / 2,
                "as much as there is room for"
            );
        }
    }
}
