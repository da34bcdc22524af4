//! A store as lines of JSON: what `export` writes and `import` reads.
//!
//! `{"export":{…}}` first, then a `{"record":{…}}` for each record and a `{"message":{…}}` for each message of the outbox, in
//! the order of their numbers, then `{"end":{…}}` with their counts and the xxh3-128 of all lines before it: a store that lacks a key would let it run again, so an export that
//! was cut or changed is refused as a whole. A record's line holds all that its row holds.

use std::io::{self, BufRead, Read, Write};

use data_encoding::{BASE64, HEXLOWER};
use redb::ReadableTable;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

use super::batch::Batch;
use super::codec::{Body, body_of, decode, record_of};
use super::snapshot::{Snapshot, Visit};
use super::tables::meta;
use super::{fault, outbox};
use crate::error::{Error, ErrorKind, Result};
use crate::machine::message::stored::{Sequence, State as MessageState, StoredMessage};
use crate::machine::record::{Decision, Record, RecordId, State};
use crate::machine::response::Response;
use crate::machine::time::{Anchor, Timestamp};
use crate::progress::{Reporter, Work};

/// The lines as they are now.
const EXPORT_FORMAT: u32 = 1;
/// Longest line: the largest response takes 22 MiB in base64. Less than a row may have, so that every line fits one.
const LINE_BYTES_MAX: u64 = 24 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line<Record, Message> {
    Export(Header),
    Record(Record),
    Message(Message),
    End(Footer),
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    records: u64,
    messages: u64,
    /// Opens so far: an open of the copy must not pass for one of the original.
    incarnation: u64,
    /// The highest number of a message that is gone.
    sequence: u64,
    /// Mark, wall clock, furthest wall clock and the mark then.
    clocks: Option<[Timestamp; 4]>,
}

#[derive(Serialize, Deserialize)]
struct Row<Str, Decisions, Stored> {
    id: u64,
    status: Str,
    body: Body<Str, Hex, Decisions, Stored>,
    response: Option<Content>,
}

type RowRef<'a> = Row<&'a str, &'a [Decision], &'a State>;
type RowFound = Row<String, Vec<Decision>, State>;

#[derive(Serialize, Deserialize)]
struct Letter<Str, Headers, Stored> {
    sequence: u64,
    status: Str,
    body: outbox::codec::Body<Str, Headers, Hex, Stored>,
    payload: Content,
}

type LetterRef<'a> = Letter<&'a str, &'a [outbox::codec::Header], &'a MessageState>;
type LetterFound = Letter<String, Vec<outbox::codec::Header>, MessageState>;
type LineRef<'a> = Line<RowRef<'a>, LetterRef<'a>>;
type LineFound = Line<RowFound, LetterFound>;

/// Text as it is, everything else in base64.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    Text(String),
    Base64(String),
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Footer {
    records: u64,
    messages: u64,
    xxh3_128: String,
}

/// Bytes in hexadecimal digits.
struct Hex(Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(from)?;
        HEXLOWER.decode(digits.as_bytes()).map(Self).map_err(serde::de::Error::custom)
    }
}

impl AsRef<[u8]> for Hex {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Content {
    fn of(bytes: &[u8]) -> Self {
        match str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(BASE64.encode(bytes)),
        }
    }

    fn into_bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64(text) => BASE64.decode(text.as_bytes()).map_err(|error| format!("what is in base64: {error}")),
        }
    }
}

impl Footer {
    fn of(records: u64, messages: u64, sum: &Xxh3) -> Self {
        Self { records, messages, xxh3_128: format!("{:032x}", sum.digest128()) }
    }
}

impl Snapshot {
    /// Writes every record and every message as a line. Every row is checked on the way. Returns how many there were.
    pub(crate) fn export(&self, to: impl Write, reporter: &Reporter) -> Result<u64> {
        let (records, messages) = (self.count()?, self.message_count()?);
        let header = Header {
            format: EXPORT_FORMAT,
            records,
            messages,
            incarnation: self.number(meta::INCARNATION)?,
            sequence: self.number(meta::SEQUENCE)?,
            clocks: self
                .anchor()?
                .map(|Anchor { mark, wall, wall_max, mark_at_max }| [mark, wall, wall_max, mark_at_max]),
        };
        let mut counter = reporter.count(Work::Export, Some(records + messages));
        let mut lines = Lines { to, sum: Xxh3::new() };
        lines.write(&Line::Export(header))?;
        for entry in self.records().iter().map_err(fault::storage)? {
            let (id, row) = entry.map_err(fault::storage)?;
            let id = RecordId(id.value());
            let record = decode(id, row.value()).map_err(|error| fault::row(format_args!("record {}", id.0), error))?;
            lines.write(&Line::Record(row_of(&record)))?;
            counter.row();
        }
        self.scan_messages(None, |stored| {
            lines.write(&Line::Message(letter_of(&stored)))?;
            counter.row();
            Ok(Visit::Next)
        })?;
        let footer = Footer::of(records, messages, &lines.sum);
        lines.write(&Line::End(footer))?;
        lines.to.flush().map_err(not_written)?;
        counter.finish();
        Ok(records + messages)
    }
}

struct Lines<W> {
    to: W,
    sum: Xxh3,
}

impl<W: Write> Lines<W> {
    fn write(&mut self, line: &LineRef<'_>) -> Result<()> {
        let mut text = serde_json::to_vec(line).map_err(|error| not_written(error.into()))?;
        text.push(b'\n');
        self.sum.update(&text);
        self.to.write_all(&text).map_err(not_written)
    }
}

fn row_of(record: &Record) -> RowRef<'_> {
    let (_, _, digest) = record.head.fingerprint.to_stored();
    Row {
        id: record.head.id.0,
        status: record.status().as_str(),
        body: body_of(record, Hex(digest.to_vec())),
        response: record.state.response().and_then(Response::bytes).map(Content::of),
    }
}

fn letter_of(stored: &StoredMessage) -> LetterRef<'_> {
    let (_, _, digest) = stored.head.fingerprint.to_stored();
    Letter {
        sequence: stored.head.sequence.0,
        status: stored.status().as_str(),
        body: outbox::codec::body_of(stored, Hex(digest.to_vec())),
        payload: Content::of(&stored.head.message.payload),
    }
}

fn not_written(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("write the export: {error}")).with_source(error)
}

impl Batch<'_> {
    /// Takes over an export, whole or, on an error, not at all: then the transaction must be aborted. The store has to
    /// be empty. Returns how many records and messages there were, and the store time of the original.
    pub(crate) fn import(&mut self, from: impl BufRead, reporter: &Reporter) -> Result<(u64, Option<Timestamp>)> {
        if self.last_id()?.is_some() || self.outbox()?.last()?.is_some() {
            return Err(Error::new(
                ErrorKind::Refused,
                "an import needs an empty store, and this one has records or messages",
            ));
        }
        let mut source = Source { from, sum: Xxh3::new(), line: Vec::new(), number: 0 };
        let Line::Export(header) = source.next()? else { return Err(source.wrong("it does not begin an export")) };
        if header.format != EXPORT_FORMAT {
            let found = header.format;
            return Err(Error::new(
                ErrorKind::NewerFormat,
                format!("the export has format {found}; this release reads {EXPORT_FORMAT}"),
            ));
        }
        let mut counter = reporter.count(Work::Import, Some(header.records.saturating_add(header.messages)));
        let (mut records, mut messages) = (0, 0);
        loop {
            match source.next()? {
                Line::Record(row) => {
                    let record = record_from(row).map_err(|reason| source.wrong(reason))?;
                    self.take_over(record).map_err(|error| source.context(error))?;
                    records += 1;
                    counter.row();
                }
                Line::Message(letter) => {
                    let stored = message_from(letter).map_err(|reason| source.wrong(reason))?;
                    self.outbox()?.take_over(&stored).map_err(|error| source.context(error))?;
                    messages += 1;
                    counter.row();
                }
                Line::End(found)
                    if found == Footer::of(records, messages, &source.sum)
                        && (records, messages) == (header.records, header.messages) =>
                {
                    break;
                }
                Line::End(_) => return Err(source.wrong("the export was cut or changed after it was written")),
                Line::Export(_) => return Err(source.wrong("a second export begins")),
            }
        }
        source.expect_end()?;
        self.reach_incarnation(header.incarnation)?;
        self.reach_sequence(header.sequence)?;
        let anchor =
            header.clocks.map(|[mark, wall, wall_max, mark_at_max]| Anchor { mark, wall, wall_max, mark_at_max });
        if let Some(anchor) = anchor
            && self.anchor()?.is_none_or(|known| known.mark < anchor.mark)
        {
            self.set_anchor(anchor)?;
        }
        counter.finish();
        Ok((records + messages, anchor.map(|anchor| anchor.mark)))
    }
}

struct Source<R> {
    from: R,
    /// Of all lines before the one at hand.
    sum: Xxh3,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Source<R> {
    fn next(&mut self) -> Result<LineFound> {
        self.sum.update(&self.line);
        self.number += 1;
        self.read()?;
        if self.line.is_empty() {
            return Err(self.wrong("the export ends before its last line"));
        }
        serde_json::from_slice(&self.line).map_err(|error| self.wrong(error))
    }

    /// Takes the next line, or nothing at the end.
    fn read(&mut self) -> Result<()> {
        self.line.clear();
        let limited = self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        limited.map_err(|error| {
            Error::new(ErrorKind::Io, format!("read line {} of the export: {error}", self.number)).with_source(error)
        })?;
        Ok(())
    }

    fn expect_end(&mut self) -> Result<()> {
        self.number += 1;
        self.read()?;
        if self.line.is_empty() { Ok(()) } else { Err(self.wrong("the export goes on after its last line")) }
    }

    fn wrong(&self, reason: impl std::fmt::Display) -> Error {
        Error::invalid_input(format!("line {} of the export: {reason}", self.number))
    }

    fn context(&self, error: Error) -> Error {
        error.context(format_args!("line {} of the export", self.number))
    }
}

/// A record that may be written: within its bounds, and as its status says.
fn record_from(row: RowFound) -> Result<Record, String> {
    let Row { id, status, body, response } = row;
    let response = response.map(Content::into_bytes).transpose()?.unwrap_or_default();
    let record = record_of(RecordId(id), body, &response).map_err(|error| error.to_string())?;
    if record.status().as_str() == status { Ok(record) } else { Err(format!("a record that is not {status}")) }
}

/// A message that may be written.
fn message_from(letter: LetterFound) -> Result<StoredMessage, String> {
    let Letter { sequence, status, body, payload } = letter;
    let stored = outbox::codec::message_of(Sequence(sequence), body, payload.into_bytes()?);
    let stored = stored.map_err(|error| error.to_string())?;
    if stored.status().as_str() == status { Ok(stored) } else { Err(format!("a message that is not {status}")) }
}
