//! The scenery: the provider and the worker as processes, and how the worker dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use dupeproof::Store;

use crate::provider::Client;
use crate::{Fallible, Offer, Point, pay, provider};

/// First argument of a worker's process.
pub(crate) const ROLE: &str = "worker";

/// Is told what the payment has reached.
pub(crate) trait Stage {
    fn reached(&self, point: Point) -> Fallible<()>;
}

/// Nobody listens.
impl Stage for () {
    fn reached(&self, _point: Point) -> Fallible<()> {
        Ok(())
    }
}

/// Says where it is, and goes on only when it is told to.
struct Announced;

impl Stage for Announced {
    fn reached(&self, point: Point) -> Fallible<()> {
        println!("{point}");
        std::io::stdout().flush()?;
        std::io::stdin().read_exact(&mut [0])?;
        Ok(())
    }
}

/// In the worker's process.
pub(crate) fn work(store: &Path, invoice: &str, offer: &str, port: &str) -> Fallible<()> {
    let offer = if offer == "dedupes" { Offer::Dedupes } else { Offer::Books };
    let store = Store::open(store)?;
    pay(&store, invoice, offer, &Client::at(port.parse()?), &Announced)?;
    Ok(store.close()?)
}

pub(crate) struct Worker {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(store: &Path, invoice: &str, offer: Offer, port: u16) -> Fallible<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ROLE)
            .arg(store)
            .args([invoice, argument(offer), &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, says })
    }

    /// Lets it go on until it is at the point, and kills it there: SIGKILL, which no program can catch.
    pub(crate) fn kill_at(mut self, last: Point) -> Fallible<()> {
        loop {
            let mut line = String::new();
            if self.says.read_line(&mut line)? == 0 {
                return Err(format!("the worker ended before {last}").into());
            }
            if line.trim_end() == last.name() {
                break;
            }
            self.child.stdin.as_mut().ok_or("no standard input")?.write_all(b".")?;
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct ProviderProcess {
    child: Child,
    port: u16,
}

impl ProviderProcess {
    pub(crate) fn start(ledger: &Path, offer: Offer) -> Fallible<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(provider::ROLE)
            .arg(ledger)
            .arg(argument(offer))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
        Ok(Self { child, port: line.trim_end().parse()? })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for ProviderProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn argument(offer: Offer) -> &'static str {
    match offer {
        Offer::Books => "books",
        Offer::Dedupes => "dedupes",
    }
}
