//! The rows of messages. The payload lies behind the body as it is, like the response of a record.

use serde::{Deserialize, Serialize};

use crate::machine::message::content::Message;
use crate::machine::message::stored::{Head, Sequence, State, StoredMessage};
use crate::machine::time::{Span, Timestamp};
use crate::storage::codec::{DecodeError, Space, fingerprint, seal, unseal};

#[derive(Serialize, Deserialize)]
pub(in crate::storage) struct Body<Str, Headers, Digest, Stored> {
    id: Str,
    topic: Str,
    lane: Option<Str>,
    headers: Headers,
    algorithm: u8,
    payload_len: u64,
    digest: Digest,
    sent_at: Timestamp,
    attempts: u32,
    takes: u32,
    redrives: u32,
    last_error: Option<Str>,
    state: Stored,
}

/// Name and value.
pub(in crate::storage) type Header = (Box<str>, Box<str>);
type BodyRef<'a> = Body<&'a str, &'a [Header], &'a [u8], &'a State>;
type BodyFound<'a> = Body<&'a str, Vec<Header>, &'a [u8], State>;

/// The row of a message.
///
/// # Panics
/// If the message breaks its own invariants: only a defect of this crate can do that, and it must not reach the disk.
pub(in crate::storage) fn encode(stored: &StoredMessage) -> Vec<u8> {
    assert_eq!(stored.check(), Ok(()), "a message is checked before it is written");
    let (_, _, digest) = stored.head.fingerprint.to_stored();
    let body: BodyRef<'_> = body_of(stored, digest);
    seal(Space::Messages, stored.head.sequence.0, &body, &stored.head.message.payload)
}

/// What a message is written as, with the digest of its fingerprint in the shape that suits the format.
pub(in crate::storage) fn body_of<Digest>(
    stored: &StoredMessage,
    digest: Digest,
) -> Body<&str, &[Header], Digest, &State> {
    let head = &stored.head;
    let (algorithm, payload_len, _) = head.fingerprint.to_stored();
    Body {
        id: &head.message.id,
        topic: &head.message.topic,
        lane: head.message.lane.as_deref(),
        headers: &head.message.headers,
        algorithm,
        payload_len,
        digest,
        sent_at: head.sent_at,
        attempts: head.attempts,
        takes: head.takes,
        redrives: head.redrives,
        last_error: head.last_error.as_deref(),
        state: &stored.state,
    }
}

/// The message of a row. Never guesses: what was not written by this format is an error.
pub(in crate::storage) fn decode(sequence: Sequence, row: &[u8]) -> Result<StoredMessage, DecodeError> {
    let (body, payload) = unseal::<BodyFound<'_>>(Space::Messages, sequence.0, row)?;
    message_of(sequence, body, payload.to_vec())
}

/// The message that was written so; never one out of bounds.
pub(in crate::storage) fn message_of<Str: AsRef<str>, Digest: AsRef<[u8]>>(
    sequence: Sequence,
    body: Body<Str, Vec<Header>, Digest, State>,
    payload: Vec<u8>,
) -> Result<StoredMessage, DecodeError> {
    let message = Message {
        id: body.id.as_ref().into(),
        topic: body.topic.as_ref().into(),
        lane: body.lane.map(|lane| lane.as_ref().into()),
        headers: body.headers,
        payload,
        delay: Span::ZERO,
    };
    let head = Head {
        sequence,
        message,
        fingerprint: fingerprint(body.algorithm, body.payload_len, body.digest.as_ref())?,
        sent_at: body.sent_at,
        attempts: body.attempts,
        takes: body.takes,
        redrives: body.redrives,
        last_error: body.last_error.map(|error| error.as_ref().into()),
    };
    let stored = head.with(body.state);
    stored.check().map_err(DecodeError::Damaged)?;
    Ok(stored)
}
