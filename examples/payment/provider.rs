//! A payment provider: a process of its own, with a ledger of its own that nothing is ever removed from.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::Fallible;

/// First argument of the provider's process.
pub(crate) const ROLE: &str = "provider";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until it is killed. Prints its port first.
pub(crate) fn serve(ledger: &Path, dedupes: bool) -> Fallible<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    for stream in listener.incoming() {
        let stream = stream?;
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request)?;
        let answer = match request.trim_end().split(' ').collect::<Vec<_>>()[..] {
            ["charge", key, amount] => match charge_under(ledger, key)? {
                Some(charge) if dedupes => charge,
                _ => charge(ledger, key, amount)?,
            },
            ["look-up", key] => charge_under(ledger, key)?.unwrap_or_default(),
            _ => "?".to_owned(),
        };
        writeln!(&stream, "{answer}")?;
    }
    Ok(())
}

/// The effect: money moves. One line a charge.
fn charge(ledger: &Path, key: &str, amount: &str) -> Fallible<String> {
    let charge = format!("ch_{}", charges(ledger)? + 1);
    let mut file = OpenOptions::new().create(true).append(true).open(ledger)?;
    writeln!(file, "{charge} {key} {amount}")?;
    file.sync_all()?;
    Ok(charge)
}

fn charge_under(ledger: &Path, key: &str) -> Fallible<Option<String>> {
    let found = read(ledger)?.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let charge = fields.next()?;
        (fields.next()? == key).then(|| charge.to_owned())
    });
    Ok(found)
}

/// How often anybody was charged.
pub(crate) fn charges(ledger: &Path) -> Fallible<usize> {
    Ok(read(ledger)?.lines().count())
}

fn read(ledger: &Path) -> Fallible<String> {
    match fs::read_to_string(ledger) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => Ok(text?),
    }
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
    pub(crate) fn charge(&self, downstream_key: &str, amount: u64) -> Fallible<String> {
        self.ask(&format!("charge {downstream_key} {amount}"))
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
