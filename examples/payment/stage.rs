//! The scenery: where a worker can die, and the worker and the provider as processes.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dupeproof::{Remote, Store};

use crate::provider::Client;
use crate::{Fallible, pay};

/// What the provider offers when an answer was lost: nothing but its books, or that it drops a second charge under a
/// key.
pub(crate) const REMOTES: [(&str, Remote); 2] =
    [("opaque", Remote::Opaque), ("dedupes", Remote::DedupesOnKey { window: Duration::from_secs(3600) })];

/// Where the worker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillPoint {
    BeforeReserve,
    AfterReserve,
    AfterStart,
    AfterEffect,
    AfterSettle,
    None,
}

impl KillPoint {
    pub(crate) const ALL: [Self; 6] =
        [Self::BeforeReserve, Self::AfterReserve, Self::AfterStart, Self::AfterEffect, Self::AfterSettle, Self::None];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BeforeReserve => "before-reserve",
            Self::AfterReserve => "after-reserve",
            Self::AfterStart => "after-start",
            Self::AfterEffect => "after-effect",
            Self::AfterSettle => "after-settle",
            Self::None => "none",
        }
    }

    pub(crate) fn is_between_start_and_settlement(self) -> bool {
        matches!(self, Self::AfterStart | Self::AfterEffect)
    }

    /// How many attempts an invoice takes. After the effect only a provider that dedupes gets a second one.
    pub(crate) fn attempts(self, remote: Remote) -> u32 {
        match self {
            Self::BeforeReserve | Self::AfterSettle | Self::None => 1,
            Self::AfterReserve | Self::AfterStart => 2,
            Self::AfterEffect if remote == Remote::Opaque => 1,
            Self::AfterEffect => 2,
        }
    }
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) fn named<T: Copy>(choices: &[(&str, T)], name: &str) -> Fallible<T> {
    let found = choices.iter().find(|(found, _)| *found == name);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | ");
    Ok(found.ok_or_else(|| format!("{name}: expected {}", names()))?.1)
}

fn name_of(remote: Remote) -> &'static str {
    REMOTES.iter().find(|(_, found)| *found == remote).map_or("?", |(name, _)| name)
}

/// In the worker's process: pays, and at its point says so and waits for death.
pub(crate) fn work(store: &Path, invoice: &str, remote: Remote, port: u16, last: &str) -> Fallible<()> {
    let store = Store::open(store)?;
    pay(&store, invoice, remote, &Client::at(port), &|point| {
        if point.name() == last {
            println!("{point}");
            // Returns only if there is nobody left to kill us.
            let _ = std::io::stdin().read(&mut [0]);
        }
    })?;
    Ok(store.close()?)
}

/// Lets a worker pay up to the point, and kills it there: `kill` is SIGKILL, which no program can catch.
pub(crate) fn run_worker(store: &Path, invoice: &str, remote: Remote, port: u16, last: KillPoint) -> Fallible<()> {
    let mut worker = Command::new(std::env::current_exe()?)
        .arg("worker")
        .arg(store)
        .args([invoice, name_of(remote), &port.to_string(), last.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(worker.stdout.take().ok_or("no standard output")?).read_line(&mut said)?;
    if !said.is_empty() {
        worker.kill()?;
    }
    let status = worker.wait()?;
    let (expected, is_survivor) = if last == KillPoint::None { ("", true) } else { (last.name(), false) };
    if said.trim_end() != expected || status.success() != is_survivor {
        return Err(format!("the worker said {said:?} and ended with {status}").into());
    }
    Ok(())
}

/// The provider's process, killed when this is dropped.
pub(crate) struct Provider {
    child: Child,
    port: u16,
}

impl Provider {
    pub(crate) fn start(ledger: &Path, remote: Remote) -> Fallible<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg("provider")
            .arg(ledger)
            .arg(name_of(remote))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut provider = Self { child, port: 0 };
        let mut line = String::new();
        BufReader::new(provider.child.stdout.take().ok_or("no standard output")?).read_line(&mut line)?;
        provider.port = line.trim_end().parse()?;
        Ok(provider)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
