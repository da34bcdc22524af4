//! Visits: measurements that need a process of their own, which is this program started again.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::peers::{Fallible, Peer};
use crate::{cycle, memory};

/// The first argument of a visit's process.
pub(crate) const FLAG: &str = "--visit";

#[derive(Debug, Clone)]
pub(crate) struct Visit {
    pub(crate) peer: Peer,
    pub(crate) path: PathBuf,
    /// Records that were in the store when it was loaded.
    pub(crate) records: u64,
    pub(crate) task: Task,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// Cycles from many threads, for a time.
    Cycle { threads: usize, warm_up: Duration, window: Duration },
    /// So many cycles from one thread, for somebody else to count what they do.
    Count { cycles: u64 },
    /// Random replays, and then the memory of the process.
    Memory { replays: u64 },
}

impl Visit {
    fn arguments(&self) -> Vec<OsString> {
        let task = match self.task {
            Task::Cycle { threads, warm_up, window } => {
                format!("cycle {threads} {} {}", warm_up.as_millis(), window.as_millis())
            }
            Task::Count { cycles } => format!("count {cycles}"),
            Task::Memory { replays } => format!("memory {replays}"),
        };
        let words = [FLAG.to_owned(), self.peer.name().to_owned(), self.records.to_string()];
        let path = [self.path.clone().into_os_string()];
        words.into_iter().map(OsString::from).chain(path).chain(task.split(' ').map(OsString::from)).collect()
    }

    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Fallible<Self> {
        let odd = || "a visit's arguments do not fit";
        let peer = arguments.next().as_deref().and_then(|name| Peer::named(name.to_str()?)).ok_or_else(odd)?;
        let records = arguments.next().and_then(|text| text.to_str()?.parse().ok()).ok_or_else(odd)?;
        let path = arguments.next().map(PathBuf::from).ok_or_else(odd)?;
        let task = arguments.next().and_then(|text| text.into_string().ok()).ok_or_else(odd)?;
        let mut number = || arguments.next().and_then(|text| text.to_str()?.parse::<u64>().ok()).ok_or_else(odd);
        let task = match task.as_str() {
            "cycle" => Task::Cycle {
                threads: usize::try_from(number()?)?,
                warm_up: Duration::from_millis(number()?),
                window: Duration::from_millis(number()?),
            },
            "count" => Task::Count { cycles: number()? },
            "memory" => Task::Memory { replays: number()? },
            _ => return Err(odd().into()),
        };
        Ok(Self { peer, path, records, task })
    }

    /// In the process of the visit: does the task and prints its figures.
    pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> Fallible<()> {
        let Self { peer, path, records, task } = Self::parse(arguments)?;
        let figures = match task {
            Task::Cycle { threads, warm_up, window } => cycle::run(peer, &path, records, threads, warm_up, window)?,
            Task::Count { cycles } => cycle::count(peer, &path, records, cycles)?,
            Task::Memory { replays } => memory::run(peer, &path, records, replays)?,
        };
        println!("{}", figures.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
        Ok(())
    }

    /// Starts the process and returns its figures.
    pub(crate) fn start(&self) -> Fallible<Vec<f64>> {
        self.start_under(&[])
    }

    /// The same, under another program.
    pub(crate) fn start_under(&self, tracer: &[&str]) -> Fallible<Vec<f64>> {
        let program = env::current_exe()?;
        let mut command = match tracer {
            [] => Command::new(&program),
            [tracer, arguments @ ..] => {
                let mut command = Command::new(tracer);
                command.args(arguments).arg(&program);
                command
            }
        };
        let output = command.args(self.arguments()).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("the visit of {} ended with {}", self.peer.name(), output.status).into());
        }
        let text = String::from_utf8(output.stdout)?;
        Ok(text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
    }
}

/// A field of a file under `/proc/self`, where there is one.
pub(crate) fn proc_field(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/self").join(file)).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}
