//! A payment provider: a process of its own, with a ledger of its own that nothing is ever removed from.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use dupeproof::Remote;

use crate::Fallible;

const REQUEST_BYTES_MAX: u64 = 256;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until it is killed. Prints its port first.
pub(crate) fn serve(ledger: &Path, remote: Remote) -> Fallible<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        let mut request = String::new();
        BufReader::new(&stream).take(REQUEST_BYTES_MAX).read_line(&mut request)?;
        let answer = match request.trim_end().split(' ').collect::<Vec<_>>()[..] {
            ["charge", key, amount] => match charges_under(ledger, key)?.pop() {
                Some(charge) if remote != Remote::Opaque => charge,
                _ => charge(ledger, key, amount)?,
            },
            ["look-up", key] => charges_under(ledger, key)?.pop().unwrap_or_default(),
            _ => return Err(format!("no such request: {request:?}").into()),
        };
        writeln!(&stream, "{answer}")?;
    }
    Ok(())
}

/// The effect: money moves. One line a charge; the charge is named after its line.
fn charge(path: &Path, key: &str, amount: &str) -> Fallible<String> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{key} {amount}")?;
    file.sync_all()?;
    Ok(format!("ch_{}", ledger(path)?.len()))
}

/// The lines of the ledger: downstream key and amount.
pub(crate) fn ledger(path: &Path) -> Fallible<Vec<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        text => Ok(text?.lines().map(str::to_owned).collect()),
    }
}

/// The names of all charges under a downstream key.
pub(crate) fn charges_under(path: &Path, key: &str) -> Fallible<Vec<String>> {
    let lines = ledger(path)?.into_iter().enumerate();
    let under_key = lines.filter(|(_, line)| line.split(' ').next() == Some(key));
    Ok(under_key.map(|(n, _)| format!("ch_{}", n + 1)).collect())
}

/// The provider as its customers see it.
pub(crate) struct Client {
    port: u16,
}

impl Client {
    pub(crate) fn at(port: u16) -> Self {
        Self { port }
    }

    /// Charges, and returns the provider's name for the charge. An error says nothing about whether it happened.
    pub(crate) fn charge(&self, downstream_key: &str, amount_cents: u64) -> Fallible<String> {
        self.ask(&format!("charge {downstream_key} {amount_cents}"))
    }

    pub(crate) fn look_up(&self, downstream_key: &str) -> Fallible<Option<String>> {
        self.ask(&format!("look-up {downstream_key}")).map(|charge| Some(charge).filter(|charge| !charge.is_empty()))
    }

    fn ask(&self, request: &str) -> Fallible<String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        writeln!(&stream, "{request}")?;
        let mut answer = String::new();
        if BufReader::new(&stream).read_line(&mut answer)? == 0 {
            return Err("the provider hung up".into());
        }
        Ok(answer.trim_end().to_owned())
    }
}
