//! A service elsewhere: a process of its own, with a ledger of its own that nothing is ever removed from.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Fallible;

const REQUEST_BYTES_MAX: u64 = 512;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a service says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It did it: its name for what it did.
    Done(String),
    /// It did not do it, and will not.
    Refused(String),
}

/// The service's process as its customers see it. It is killed when this is dropped.
pub(crate) struct Service {
    name: String,
    ledger: PathBuf,
    child: Child,
    port: u16,
}

/// How to reach a service.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    port: u16,
}

/// Serves until it is killed. Prints its port first. It refuses one verb; of another it does what it is asked and then
/// hangs up without a word.
pub(crate) fn serve(ledger: &Path, name: &str, refused: &str, unanswered: &str) -> Fallible<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        let mut request = String::new();
        BufReader::new(&stream).take(REQUEST_BYTES_MAX).read_line(&mut request)?;
        let answer = match request.trim_end().splitn(3, ' ').collect::<Vec<_>>()[..] {
            ["look-up", key] => match lines_under(ledger, key)?.pop() {
                Some((number, _)) => format!("done {name}_{number}"),
                None => "refused no such thing".to_owned(),
            },
            [verb, _, _] if verb == refused => format!("refused {name} does not {verb} today"),
            [verb, key, what] => {
                let number = append(ledger, &format!("{key} {verb} {what}"))?;
                if verb == unanswered {
                    continue;
                }
                format!("done {name}_{number}")
            }
            _ => return Err(format!("no such request: {request:?}").into()),
        };
        // Whoever asked may be dead by now.
        let _ = writeln!(&stream, "{answer}");
    }
    Ok(())
}

/// The effect: one line each, which nobody takes back. Returns its number.
fn append(path: &Path, line: &str) -> Fallible<usize> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    Ok(lines(path)?.len())
}

fn lines(path: &Path) -> Fallible<Vec<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        text => Ok(text?.lines().map(str::to_owned).collect()),
    }
}

/// What was done under a downstream key, with the numbers of the lines.
fn lines_under(path: &Path, key: &str) -> Fallible<Vec<(usize, String)>> {
    let parts = lines(path)?.into_iter().enumerate().map(|(at, line)| match line.split_once(' ') {
        Some((key, what)) => (key.to_owned(), (at + 1, what.to_owned())),
        None => (line, (at + 1, String::new())),
    });
    Ok(parts.filter(|(found, _)| found == key).map(|(_, done)| done).collect())
}

impl Client {
    pub(crate) fn at(port: u16) -> Self {
        Self { port }
    }

    /// Has something done. An error says nothing about whether it was.
    pub(crate) fn ask(&self, verb: &str, downstream_key: &str, what: &str) -> Fallible<Answer> {
        self.say(&format!("{verb} {downstream_key} {what}"))
    }

    /// Looks up what was done under a key: the service's name for it.
    pub(crate) fn look_up(&self, downstream_key: &str) -> Fallible<Option<String>> {
        Ok(match self.say(&format!("look-up {downstream_key}"))? {
            Answer::Done(name) => Some(name),
            Answer::Refused(_) => None,
        })
    }

    fn say(&self, request: &str) -> Fallible<Answer> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        writeln!(&stream, "{request}")?;
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer)?;
        match answer.trim_end().split_once(' ') {
            Some(("done", name)) => Ok(Answer::Done(name.to_owned())),
            Some(("refused", why)) => Ok(Answer::Refused(why.to_owned())),
            _ => Err("the service hung up".into()),
        }
    }
}

impl Service {
    /// Starts this program again, as a service: see [`serve`].
    pub(crate) fn start(dir: &Path, name: &str, refused: &str, unanswered: &str) -> Fallible<Self> {
        let ledger = dir.join(name);
        let child = Command::new(std::env::current_exe()?)
            .arg("service")
            .arg(&ledger)
            .args([name, refused, unanswered])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut service = Self { name: name.to_owned(), ledger, child, port: 0 };
        let mut line = String::new();
        BufReader::new(service.child.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
        service.port = line.trim_end().parse()?;
        Ok(service)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How much it ever did.
    pub(crate) fn effects(&self) -> Fallible<usize> {
        Ok(lines(&self.ledger)?.len())
    }

    /// The one thing that was done under a key: the service's name for it, and what it was.
    pub(crate) fn only_effect(&self, downstream_key: &str) -> Fallible<(String, String)> {
        let mut found = lines_under(&self.ledger, downstream_key)?;
        match (found.pop(), found.is_empty()) {
            (Some((number, what)), true) => Ok((format!("{}_{number}", self.name), what)),
            (last, _) => Err(format!("BROKEN: expected one line in {}, found {found:?} {last:?}", self.name).into()),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
