//! The scenery: as much HTTP/1.1 (RFC 9112) as a webhook needs, a connection a request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::Fallible;

const TIMEOUT: Duration = Duration::from_secs(10);
const HANDLERS: usize = 4;
/// A webhook is small; whatever is larger is refused unread.
const BODY_BYTES_MAX: usize = 64 * 1024;
const LINE_BYTES_MAX: u64 = 1024;
const HEADERS_MAX: usize = 32;

type Headers = Vec<(String, String)>;

pub(crate) struct Request {
    headers: Headers,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) retry_after_s: Option<u64>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self { status, retry_after_s: None, body: body.as_ref().to_vec() }
    }

    /// Not now: the sender may come again after so long.
    pub(crate) fn later(wait: Duration) -> Self {
        Self { retry_after_s: Some(wait.as_millis().div_ceil(1000) as u64), ..Self::new(503, "later") }
    }
}

pub(crate) struct Server {
    listener: TcpListener,
    ends: AtomicBool,
}

impl Server {
    pub(crate) fn bind() -> Fallible<Self> {
        Ok(Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, ends: AtomicBool::new(false) })
    }

    pub(crate) fn port(&self) -> Fallible<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Answers requests, several at once, while `senders` run with the port.
    pub(crate) fn run<T>(
        &self,
        handle: impl Fn(&Request) -> Fallible<Response> + Sync,
        senders: impl FnOnce(u16) -> Fallible<T>,
    ) -> Fallible<T> {
        let port = self.port()?;
        thread::scope(|scope| {
            for _ in 0..HANDLERS {
                scope.spawn(|| {
                    while let Ok((stream, _)) = self.listener.accept() {
                        if self.ends.load(Ordering::Acquire) {
                            break;
                        }
                        if let Err(error) = answer(&stream, &handle) {
                            eprintln!("a delivery was not answered: {error}");
                        }
                    }
                });
            }
            let sent = senders(port);
            self.ends.store(true, Ordering::Release);
            // Each handler is woken once, to see that it is over.
            for _ in 0..HANDLERS {
                drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
            }
            sent
        })
    }
}

fn answer(mut stream: &TcpStream, handle: &impl Fn(&Request) -> Fallible<Response>) -> Fallible<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let response = match read_message(&mut BufReader::new(stream)) {
        // The text of an error is for our own log, not for a stranger.
        Ok((_, headers, body)) => handle(&Request { headers, body }).unwrap_or_else(|error| {
            eprintln!("a delivery failed: {error}");
            Response::new(500, "an error of ours")
        }),
        Err(error) => Response::new(400, error.to_string()),
    };
    write!(stream, "HTTP/1.1 {} \r\nConnection: close\r\n", response.status)?;
    if let Some(seconds) = response.retry_after_s {
        write!(stream, "Retry-After: {seconds}\r\n")?;
    }
    write!(stream, "Content-Length: {}\r\n\r\n", response.body.len())?;
    Ok(stream.write_all(&response.body)?)
}

pub(crate) fn post(port: u16, event_id: &str, body: &[u8]) -> Fallible<Response> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "POST / HTTP/1.1\r\nHost: localhost\r\nEvent-Id: {event_id}\r\n")?;
    write!(stream, "Content-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)?;
    let (start, headers, body) = read_message(&mut BufReader::new(&stream))?;
    let status = start.split(' ').nth(1).ok_or("an answer without a status")?.parse()?;
    let retry_after_s = find(&headers, "Retry-After").map(str::parse).transpose()?;
    Ok(Response { status, retry_after_s, body })
}

/// The start line, the headers and the body.
fn read_message(from: &mut impl BufRead) -> Fallible<(String, Headers, Vec<u8>)> {
    let start = read_line(from)?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
        headers.push((name.to_owned(), value.trim().to_owned()));
        if headers.len() > HEADERS_MAX {
            return Err("too many headers".into());
        }
    }
    let len: usize = find(&headers, "Content-Length").ok_or("no Content-Length")?.parse()?;
    if len > BODY_BYTES_MAX {
        return Err("the body is too large".into());
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    Ok((start, headers, body))
}

fn read_line(from: &mut impl BufRead) -> Fallible<String> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or("a line that does not end")?;
    Ok(line.to_owned())
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}
