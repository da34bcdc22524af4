//! The command as a process: its output passes through live and is kept for the recording.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::recording::Captured;
use super::signals::Forwarder;

const CHUNK_BYTES: usize = 64 * 1024;
/// How long the output of background processes is waited for once the command itself has ended: they may never end.
const DRAIN_WAIT: Duration = Duration::from_secs(1);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(u8),
    Signal(u8),
}

impl Ended {
    /// As shells have it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Exit(code) => code,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }

    fn of(status: ExitStatus) -> Self {
        #[cfg(unix)]
        if let Some(number) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return Self::Signal(u8::try_from(number).unwrap_or(u8::MAX));
        }
        // Systems with longer codes: what does not fit is still a failure.
        Self::Exit(status.code().map_or(u8::MAX, |code| u8::try_from(code).unwrap_or(u8::MAX)))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exited with {code}"),
            Self::Signal(number) => write!(f, "died of signal {number}"),
        }
    }
}

pub(crate) struct Finished {
    pub(crate) ended: Ended,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
}

/// Why there is no result.
pub(crate) enum NotRun {
    /// Certainly nothing happened.
    NotStarted(io::Error),
    /// It was started, and then lost.
    Lost(io::Error),
}

pub(crate) fn command(words: &[OsString], environment: [(&str, String); 2]) -> Command {
    let mut command = Command::new(words.first().map(OsString::as_os_str).unwrap_or_default());
    command.args(words.iter().skip(1)).envs(environment);
    command
}

/// Looks for the command as the system will.
pub(crate) fn find(words: &[OsString]) -> io::Result<()> {
    let name = Path::new(words.first().map(OsString::as_os_str).unwrap_or_default());
    let is_path = name.components().count() > 1 || name.is_absolute();
    if !cfg!(unix) || is_path {
        // Elsewhere the name alone says little: endings are added and more places searched.
        return if cfg!(unix) { executable(name) } else { Ok(()) };
    }
    let mut found = Err(io::Error::new(io::ErrorKind::NotFound, "there is no such command on the PATH"));
    for folder in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        match executable(&folder.join(name)) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found = Err(error),
            Err(_) => {}
        }
    }
    found
}

#[cfg(unix)]
fn executable(path: &Path) -> io::Result<()> {
    let meta = std::fs::metadata(path)?;
    let may_execute = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0;
    if meta.is_file() && may_execute { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(not(unix))]
fn executable(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Runs the command to its end.
pub(crate) fn run(mut command: Command, stdin: Option<Vec<u8>>, signals: &Forwarder) -> Result<Finished, NotRun> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = signals.spawn(&mut command).map_err(NotRun::NotStarted)?;
    let (done, drained) = sync_channel(2);
    let stdout = pass_through(child.stdout.take(), io::stdout(), &done);
    let stderr = pass_through(child.stderr.take(), io::stderr(), &done);
    drop(done);
    feed(&mut child, stdin);
    let status = signals.wait(&mut child).map_err(NotRun::Lost)?;
    drain(&drained);
    let take = |stream: Arc<Mutex<Captured>>| std::mem::take(&mut *stream.lock());
    Ok(Finished { ended: Ended::of(status), stdout: take(stdout), stderr: take(stderr) })
}

/// Copies a stream to ours and keeps it. Goes on keeping when nobody reads ours any more.
fn pass_through(
    from: Option<impl Read + Send + 'static>,
    mut to: impl Write + Send + 'static,
    done: &SyncSender<()>,
) -> Arc<Mutex<Captured>> {
    let captured = Arc::new(Mutex::new(Captured::default()));
    let Some(mut from) = from else { return captured };
    let (kept, done) = (captured.clone(), done.clone());
    in_background(move || {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut has_reader = true;
        loop {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => {
                    kept.lock().push(&chunk[..len]);
                    has_reader = has_reader && to.write_all(&chunk[..len]).and_then(|()| to.flush()).is_ok();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = done.send(());
    });
    captured
}

/// A command that does not read its input is not at fault.
fn feed(child: &mut Child, stdin: Option<Vec<u8>>) {
    if let (Some(bytes), Some(mut to)) = (stdin, child.stdin.take()) {
        in_background(move || drop(to.write_all(&bytes)));
    }
}

fn drain(drained: &Receiver<()>) {
    while !matches!(drained.recv_timeout(DRAIN_WAIT), Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) {
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it may wait for a background process for ever; the program's end ends it"
)]
fn in_background(work: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(work));
}
