//! Rows as bytes, and back: the only place that knows bincode.
//!
//! A row is `format version (1) · codec id (1) · xxh3-64 (8) · body length (4) · body · response`, integers little
//! endian. The sum is taken over the row's own key, the two bytes before it, and the sum of everything behind it, and
//! is checked before anything is decoded. The response is opaque: it lies behind the body as it is, and no codec
//! touches it on its way to a replay.

use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::machine::fingerprint::{Fingerprint, StoredError};
use crate::machine::key::{Identity, Kind};
use crate::machine::limits::ROW_BYTES_MAX;
use crate::machine::record::{Decision, Head, Record, RecordId, State};
use crate::machine::response::{ExternalReference, Response};
use crate::machine::time::Timestamp;

/// The format of rows written by this release.
const ROW_FORMAT: u8 = 1;
/// bincode 2, variable-width integers.
const CODEC_BINCODE: u8 = 1;
const SUM_AT: usize = 2;
const BODY_LEN_AT: usize = 10;
const BODY_AT: usize = 14;

/// Which rows: part of the sum, so that a good row among those of another kind is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Records,
    Messages,
}

/// What is wrong with the bytes of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("{0}")]
    Damaged(&'static str),
    #[error("row format {found} is newer than {ROW_FORMAT}, the newest this release reads")]
    NewerRow { found: u8 },
    #[error("row codec {found} is not known to this release")]
    UnknownCodec { found: u8 },
    #[error("fingerprint algorithm {found} is not known to this release")]
    UnknownAlgorithm { found: u8 },
}

use DecodeError::Damaged;

/// With a limit, always: without one, a few hostile bytes make bincode allocate until the process aborts.
type Config = Configuration<LittleEndian, Varint, Limit<ROW_BYTES_MAX>>;
const CONFIG: Config = config::standard().with_limit::<ROW_BYTES_MAX>();

#[derive(Serialize, Deserialize)]
pub(super) struct Body<Str, Digest, Decisions, Stored> {
    kind: u8,
    tenant: Str,
    operation: Str,
    key: Str,
    step: Str,
    index: Option<u32>,
    algorithm: u8,
    payload_len: u64,
    digest: Digest,
    created_at: Timestamp,
    attempt: u32,
    generation: u32,
    reference: Option<Str>,
    decisions: Decisions,
    state: Stored,
}

type BodyRef<'a> = Body<&'a str, &'a [u8], &'a [Decision], &'a State>;
/// Borrows from the row what the record will own in another shape anyway.
type BodyFound<'a> = Body<&'a str, &'a [u8], Vec<Decision>, State>;

/// The row of a record.
///
/// # Panics
/// If the record breaks its own invariants: only a defect of this crate can do that, and it must not reach the disk.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    assert_eq!(record.check(), Ok(()), "a record is checked before it is written");
    let (_, _, digest) = record.head.fingerprint.to_stored();
    let body: BodyRef<'_> = body_of(record, digest);
    let response = record.state.response().and_then(Response::bytes).unwrap_or_default();
    seal(Space::Records, record.head.id.0, &body, response)
}

/// What a record is written as, with the digest of its fingerprint in the shape that suits the format.
pub(super) fn body_of<Digest>(record: &Record, digest: Digest) -> Body<&str, Digest, &[Decision], &State> {
    let head = &record.head;
    let (algorithm, payload_len, _) = head.fingerprint.to_stored();
    let (step, index) = head.identity.step_parts();
    Body {
        kind: head.identity.kind.code(),
        tenant: head.identity.key.tenant(),
        operation: head.identity.key.operation(),
        key: head.identity.key.key(),
        step,
        index,
        algorithm,
        payload_len,
        digest,
        created_at: head.created_at,
        attempt: head.attempt,
        generation: head.generation,
        reference: head.reference.as_ref().map(ExternalReference::as_str),
        decisions: &head.decisions,
        state: &record.state,
    }
}

/// A row: the body encoded, what lies behind it, and the sum over both.
pub(super) fn seal(space: Space, number: u64, body: &impl Serialize, tail: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(BODY_AT + 256 + tail.len());
    row.extend_from_slice(&[ROW_FORMAT, CODEC_BINCODE]);
    row.extend_from_slice(&[0; BODY_AT - SUM_AT]);
    let len = bincode::serde::encode_into_std_write(body, &mut row, CONFIG)
        .expect("what is within its limits always fits a row");
    let len = u32::try_from(len).expect("the row limit is below 4 GiB");
    row[BODY_LEN_AT..BODY_AT].copy_from_slice(&len.to_le_bytes());
    row.extend_from_slice(tail);
    let sum = sum(space, number, &row);
    row[SUM_AT..BODY_LEN_AT].copy_from_slice(&sum.to_le_bytes());
    row
}

/// The body of a row, and what lies behind it.
pub(super) fn unseal<'row, T: Deserialize<'row>>(
    space: Space,
    number: u64,
    row: &'row [u8],
) -> Result<(T, &'row [u8]), DecodeError> {
    let (body, tail) = open_row(space, number, row)?;
    let (decoded, used) = bincode::serde::borrow_decode_from_slice::<T, Config>(body, CONFIG)
        .map_err(|_| Damaged("the row's body does not decode"))?;
    if used != body.len() {
        return Err(Damaged("the row's body has trailing bytes"));
    }
    Ok((decoded, tail))
}

/// The record of a row. Never guesses: what was not written by this format is an error.
pub(super) fn decode(id: RecordId, row: &[u8]) -> Result<Record, DecodeError> {
    let (body, response) = unseal::<BodyFound<'_>>(Space::Records, id.0, row)?;
    record_of(id, body, response)
}

/// The record that was written so; never one out of bounds.
pub(super) fn record_of<Str: AsRef<str>, Digest: AsRef<[u8]>>(
    id: RecordId,
    body: Body<Str, Digest, Vec<Decision>, State>,
    response: &[u8],
) -> Result<Record, DecodeError> {
    let kind = Kind::from_code(body.kind).ok_or(Damaged("the row's kind is not known"))?;
    let parts = [&body.tenant, &body.operation, &body.key, &body.step].map(AsRef::as_ref);
    let identity =
        Identity::from_parts(kind, parts, body.index).map_err(|_| Damaged("the row's identity is out of bounds"))?;
    let fingerprint = fingerprint(body.algorithm, body.payload_len, body.digest.as_ref())?;
    let reference = body
        .reference
        .map(|reference| ExternalReference::new(reference.as_ref()))
        .transpose()
        .map_err(|_| Damaged("the row's external reference is out of bounds"))?;
    let head = Head {
        id,
        identity,
        fingerprint,
        created_at: body.created_at,
        attempt: body.attempt,
        generation: body.generation,
        reference,
        decisions: body.decisions,
    };
    let mut state = body.state;
    match state.response_mut() {
        Some(Response::Bytes(bytes)) => bytes.extend_from_slice(response),
        _ if response.is_empty() => {}
        _ => return Err(Damaged("the row has bytes behind its body")),
    }
    let record = head.with(state);
    record.check().map_err(Damaged)?;
    Ok(record)
}

pub(super) fn fingerprint(algorithm: u8, payload_len: u64, digest: &[u8]) -> Result<Fingerprint, DecodeError> {
    Fingerprint::from_stored(algorithm, payload_len, digest).map_err(|error| match error {
        StoredError::UnknownAlgorithm { id } => DecodeError::UnknownAlgorithm { found: id },
        StoredError::DigestLength { .. } | StoredError::UnseenPayload { .. } => {
            Damaged("the row's fingerprint does not fit its algorithm")
        }
    })
}

fn open_row(space: Space, number: u64, row: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (&[format, codec], _) = row.split_first_chunk::<SUM_AT>().ok_or(Damaged("the row is cut short"))?;
    if format > ROW_FORMAT {
        return Err(DecodeError::NewerRow { found: format });
    }
    let stored = row.get(SUM_AT..BODY_LEN_AT).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let len = row.get(BODY_LEN_AT..BODY_AT).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let (Some(stored), Some(len)) = (stored, len) else {
        return Err(Damaged("the row is cut short"));
    };
    if stored != sum(space, number, row) {
        return Err(Damaged("the row's checksum does not match"));
    }
    // Behind the sum: a changed byte is damage, and only a good row can be of a newer codec.
    if format != ROW_FORMAT {
        return Err(Damaged("the row's format was never written"));
    }
    if codec != CODEC_BINCODE {
        return Err(DecodeError::UnknownCodec { found: codec });
    }
    row[BODY_AT..].split_at_checked(len as usize).ok_or(Damaged("the row is shorter than its body"))
}

/// Over the row's key, its format and codec, and everything behind the sum, so that a good row in a wrong place is
/// seen. In two short steps, because hashing in pieces costs more than all the bytes of a small row.
fn sum(space: Space, number: u64, row: &[u8]) -> u64 {
    let mut outer = [0; 8 + SUM_AT + 8 + 1];
    outer[..8].copy_from_slice(&number.to_le_bytes());
    outer[8..8 + SUM_AT].copy_from_slice(&row[..SUM_AT]);
    outer[8 + SUM_AT..16 + SUM_AT].copy_from_slice(&xxh3_64(&row[BODY_LEN_AT..]).to_le_bytes());
    outer[16 + SUM_AT] = b'm';
    match space {
        Space::Records => xxh3_64(&outer[..16 + SUM_AT]),
        Space::Messages => xxh3_64(&outer),
    }
}

/// A meta row: numbers with a sum over its name and themselves.
pub(super) fn encode_meta<const N: usize>(name: &str, values: [u64; N]) -> Vec<u8> {
    let mut row = values.map(u64::to_le_bytes).concat();
    let sum = meta_sum(name, &row);
    row.extend_from_slice(&sum.to_le_bytes());
    row
}

pub(super) fn decode_meta<const N: usize>(name: &str, row: &[u8]) -> Result<[u64; N], DecodeError> {
    let (numbers, sum) = row.split_last_chunk::<8>().ok_or(Damaged("a meta row is cut short"))?;
    let (numbers, rest) = numbers.as_chunks::<8>();
    let numbers: &[[u8; 8]; N] = numbers.try_into().map_err(|_| Damaged("a meta row has the wrong length"))?;
    if rest.is_empty() && u64::from_le_bytes(*sum) == meta_sum(name, numbers.as_flattened()) {
        Ok(numbers.map(u64::from_le_bytes))
    } else {
        Err(Damaged("a meta row's checksum does not match"))
    }
}

fn meta_sum(name: &str, numbers: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(name.as_bytes());
    hash.update(numbers);
    hash.digest()
}
