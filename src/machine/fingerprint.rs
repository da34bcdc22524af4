//! What two calls for one operation have to agree on: a digest of the payload, and how it was made.
//!
//! A fingerprint made in a way that this build does not know must never count as equal to anything.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::error::Error;

/// A digest of a payload, by which a repeat with another payload is told from a true repeat.
///
/// The key says *which* operation; the fingerprint says *what* it was asked to do. A call that brings a known key with
/// another fingerprint is a conflict and does not run. Two fingerprints agree only if they were made in the same way:
/// changing from [`of_bytes`](Fingerprint::of_bytes) to [`of_parts`](Fingerprint::of_parts) between two releases
/// turns every repeat of an older operation into a conflict, which is loud and loses nothing.
///
/// - [`of_bytes`](Fingerprint::of_bytes): the payload is bytes and a retry sends the same ones. The default choice.
/// - [`of_parts`](Fingerprint::of_parts): only some fields count; volatile ones (a time, a trace id) are left out.
#[cfg_attr(
    feature = "json",
    doc = "- [`of_json`](Fingerprint::of_json): a retry may order or space its JSON differently."
)]
/// - [`from_digest_256`](Fingerprint::from_digest_256): strangers choose the payload.
/// - [`unchecked`](Fingerprint::unchecked): the payload is deliberately not compared.
///
/// # Not against an adversary
///
/// The built-in digest is xxh3 with 128 bits. Two payloads do not meet in it by accident, but it is not cryptographic:
/// somebody who may choose payloads can construct two that share a digest, and have the second answered with the
/// result of the first. Whoever lets strangers choose payloads hands in SHA-256 through
/// [`from_digest_256`](Fingerprint::from_digest_256).
///
/// # Example: the amount counts
///
/// ```
/// use dupeproof::Fingerprint;
///
/// let ten = Fingerprint::of_bytes(b"pay 10 EUR to Zoe");
/// assert_eq!(ten, Fingerprint::of_bytes(b"pay 10 EUR to Zoe"));
/// assert_ne!(ten, Fingerprint::of_bytes(b"pay 99 EUR to Zoe"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct Fingerprint {
    algorithm: Algorithm,
    /// Zero where the payload was never seen.
    payload_len: u64,
    /// As many bytes as the algorithm has, then zeros.
    digest: [u8; DIGEST_LEN_MAX],
}

const DIGEST_LEN_MAX: usize = 32;

/// A fingerprint that is a part of something stored: algorithm id, payload length, digest.
#[derive(Serialize, Deserialize)]
struct Stored(u8, u64, Vec<u8>);

impl From<Fingerprint> for Stored {
    fn from(fingerprint: Fingerprint) -> Self {
        let (algorithm, payload_len, digest) = fingerprint.to_stored();
        Self(algorithm, payload_len, digest.to_vec())
    }
}

impl TryFrom<Stored> for Fingerprint {
    type Error = StoredError;

    fn try_from(Stored(algorithm, payload_len, digest): Stored) -> Result<Self, StoredError> {
        Self::from_stored(algorithm, payload_len, &digest)
    }
}

/// How a [`Fingerprint`] was made.
///
/// # Example: what a default fingerprint was made by
///
/// ```
/// use dupeproof::{Fingerprint, FingerprintAlgorithm};
///
/// assert_eq!(Fingerprint::of_bytes(b"").algorithm(), FingerprintAlgorithm::Bytes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FingerprintAlgorithm {
    /// The payload is not compared: [`Fingerprint::unchecked`].
    Unchecked,
    /// xxh3-128 of bytes as given: [`Fingerprint::of_bytes`].
    Bytes,
    /// xxh3-128 of named parts: [`Fingerprint::of_parts`].
    Parts,
    /// xxh3-128 of the canonical JSON of RFC 8785: `Fingerprint::of_json` and `Fingerprint::of_json_value`.
    Json,
    /// A digest of 128 bits made by the caller: [`Fingerprint::from_digest_128`].
    Digest128,
    /// A digest of 256 bits made by the caller: [`Fingerprint::from_digest_256`].
    Digest256,
}

use FingerprintAlgorithm as Algorithm;

impl Algorithm {
    /// Every algorithm, each at the place of its stored id. Append only: the ids are in every file ever written.
    const BY_ID: [Self; 6] = [Self::Unchecked, Self::Bytes, Self::Parts, Self::Json, Self::Digest128, Self::Digest256];

    fn id(self) -> u8 {
        match self {
            Self::Unchecked => 0,
            Self::Bytes => 1,
            Self::Parts => 2,
            Self::Json => 3,
            Self::Digest128 => 4,
            Self::Digest256 => 5,
        }
    }

    fn digest_len(self) -> usize {
        match self {
            Self::Unchecked => 0,
            Self::Bytes | Self::Parts | Self::Json | Self::Digest128 => 16,
            Self::Digest256 => DIGEST_LEN_MAX,
        }
    }

    fn sees_payload(self) -> bool {
        match self {
            Self::Bytes | Self::Parts | Self::Json => true,
            Self::Unchecked | Self::Digest128 | Self::Digest256 => false,
        }
    }
}

impl Fingerprint {
    /// Fingerprints a payload byte for byte.
    ///
    /// Right when a retry sends the very same bytes: the stored body of a webhook, a file, a serialized command.
    ///
    /// # Example: an empty payload is a payload
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    ///
    /// assert_eq!(Fingerprint::of_bytes(b"").payload_len(), Some(0));
    /// assert_ne!(Fingerprint::of_bytes(b""), Fingerprint::unchecked());
    /// ```
    #[must_use]
    pub fn of_bytes(payload: &[u8]) -> Self {
        Self::new(Algorithm::Bytes, payload.len() as u64, &xxh3_128(payload).to_be_bytes())
    }

    /// Fingerprints the named parts of a payload that count, and nothing else.
    ///
    /// Fields that differ between retries without meaning another operation (a timestamp, a trace id, free text) are
    /// simply not listed. The order of the list does not matter. Names and values keep their borders: no two
    /// different lists are hashed from the same bytes.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a name occurs twice, or if the list is empty: nothing would
    /// be compared then, and [`unchecked`](Fingerprint::unchecked) says so openly.
    ///
    /// # Example: the time of the request is left out
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    ///
    /// let first = Fingerprint::of_parts(&[("recipient", b"zoe"), ("amount", b"1000")])?;
    /// let retry = Fingerprint::of_parts(&[("amount", b"1000"), ("recipient", b"zoe")])?;
    /// assert_eq!(first, retry);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn of_parts(parts: &[(&str, &[u8])]) -> Result<Self, Error> {
        Self::try_of_parts(parts).map_err(FingerprintError::into_error)
    }

    fn try_of_parts(parts: &[(&str, &[u8])]) -> Result<Self, FingerprintError> {
        let mut by_name = BTreeMap::new();
        for &(name, value) in parts {
            if by_name.insert(name, value).is_some() {
                return Err(FingerprintError::DuplicatePart { name: name.to_owned() });
            }
        }
        if by_name.is_empty() {
            return Err(FingerprintError::NoParts);
        }
        let mut framed = Framed { hasher: Xxh3::new(), len: 0 };
        frame(&by_name, &mut |bytes| framed.update(bytes));
        Ok(Self::new(Algorithm::Parts, framed.len, &framed.hasher.digest128().to_be_bytes()))
    }

    /// Fingerprints a JSON text by what it says, not by how it is written: member order, white space, escapes and
    /// the spelling of numbers do not matter.
    ///
    /// The text is brought to the canonical form of RFC 8785. What that form would merge is refused, because two
    /// different payloads must not share a fingerprint: an integer beyond ±2^53, any number that a double rounds
    /// (`1e400`, `9007199254740993.0`, `0.30000000000000001`), two members of one name, a lone surrogate. Send such
    /// numbers as strings, or use [`of_bytes`](Fingerprint::of_bytes). The order of arrays counts, and strings are
    /// compared without Unicode normalisation.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the text is not one JSON value, nests more than 100 deep,
    /// or says something that the canonical form would merge. The message names the byte, not the content.
    ///
    /// # Example: the same order, written twice
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    ///
    /// let first = Fingerprint::of_json(br#"{"amount": 10.0, "to": "Zo\u00eb"}"#)?;
    /// let retry = Fingerprint::of_json(r#"{"to":"Zoë","amount":10}"#.as_bytes())?;
    /// assert_eq!(first, retry);
    /// assert!(Fingerprint::of_json(br#"{"id": 9007199254740993}"#).is_err());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn of_json(text: &[u8]) -> Result<Self, Error> {
        super::canonical_json::canonicalize(text)
            .map(|canonical| Self::of_canonical_json(&canonical))
            .map_err(|error| FingerprintError::Json(error).into_error())
    }

    /// Fingerprints a Rust value by the JSON that it serializes to, as [`of_json`](Fingerprint::of_json) would.
    ///
    /// A text from outside is better given to [`of_json`](Fingerprint::of_json) as it came: a parser in between may
    /// already have rounded its numbers or dropped a member. A collection without a fixed order (a `HashSet`) gives
    /// another fingerprint in every process; sort it first.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for what [`of_json`](Fingerprint::of_json) refuses, for a NaN
    /// or an infinity (which `serde_json` would write as `null`), and if the value does not serialize.
    ///
    /// # Example: a struct and its text
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    ///
    /// let charge = std::collections::BTreeMap::from([("amount", 1000)]);
    /// assert_eq!(Fingerprint::of_json_value(&charge)?, Fingerprint::of_json(br#"{"amount":1e3}"#)?);
    /// assert!(Fingerprint::of_json_value(&f64::NAN).is_err());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn of_json_value<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        super::canonical_json::canonicalize_value(value)
            .map(|canonical| Self::of_canonical_json(&canonical))
            .map_err(|error| FingerprintError::Json(error).into_error())
    }

    #[cfg(feature = "json")]
    fn of_canonical_json(canonical: &[u8]) -> Self {
        Self::new(Algorithm::Json, canonical.len() as u64, &xxh3_128(canonical).to_be_bytes())
    }

    /// Takes a digest of 128 bits that the caller made, over whatever the caller decided to be the payload.
    ///
    /// The store cannot see how it was made: a change of the method shows as a conflict, or, if two methods give the
    /// same digest for different payloads, not at all.
    ///
    /// # Example: a digest that came with the message
    ///
    /// ```
    /// use dupeproof::{Fingerprint, FingerprintAlgorithm};
    ///
    /// let fingerprint = Fingerprint::from_digest_128([7; 16]);
    /// assert_eq!(fingerprint.algorithm(), FingerprintAlgorithm::Digest128);
    /// ```
    #[must_use]
    pub fn from_digest_128(digest: [u8; 16]) -> Self {
        Self::new(Algorithm::Digest128, 0, &digest)
    }

    /// Takes a digest of 256 bits that the caller made, SHA-256 for instance.
    ///
    /// The right choice where strangers choose the payload: see
    /// [the note on adversaries](Fingerprint#not-against-an-adversary).
    ///
    /// # Example: SHA-256 of a body
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    /// # fn sha256(body: &[u8]) -> [u8; 32] { let mut sum = [0; 32]; sum[..body.len()].copy_from_slice(body); sum }
    ///
    /// let fingerprint = Fingerprint::from_digest_256(sha256(b"body"));
    /// assert_ne!(fingerprint, Fingerprint::from_digest_256(sha256(b"other")));
    /// ```
    #[must_use]
    pub fn from_digest_256(digest: [u8; 32]) -> Self {
        Self::new(Algorithm::Digest256, 0, &digest)
    }

    /// Opts out: payloads of this operation are not compared with one another.
    ///
    /// A repeat with another payload is then answered with the stored result of the first. It is still a conflict to
    /// bring a real fingerprint to an operation that was recorded without one, and the other way round.
    ///
    /// # Example: the key already says everything
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    ///
    /// assert_eq!(Fingerprint::unchecked(), Fingerprint::unchecked());
    /// ```
    #[must_use]
    pub fn unchecked() -> Self {
        Self::new(Algorithm::Unchecked, 0, &[])
    }

    /// Returns how this fingerprint was made.
    ///
    /// # Example: find out whether payloads are compared
    ///
    /// ```
    /// use dupeproof::{Fingerprint, FingerprintAlgorithm};
    ///
    /// assert_eq!(Fingerprint::unchecked().algorithm(), FingerprintAlgorithm::Unchecked);
    /// ```
    #[must_use]
    pub fn algorithm(&self) -> FingerprintAlgorithm {
        self.algorithm
    }

    /// Returns how many bytes were hashed, after normalisation; `None` if the store never saw the payload.
    ///
    /// # Example: the canonical text is counted, not the written one
    ///
    /// ```
    /// use dupeproof::Fingerprint;
    ///
    /// assert_eq!(Fingerprint::of_bytes(b"four").payload_len(), Some(4));
    /// assert_eq!(Fingerprint::unchecked().payload_len(), None);
    /// ```
    #[must_use]
    pub fn payload_len(&self) -> Option<u64> {
        self.algorithm.sees_payload().then_some(self.payload_len)
    }

    /// Decides whether a repeat brought the payload that is on record.
    pub(crate) fn compare(&self, stored: &Fingerprint) -> Comparison {
        if self == stored { Comparison::Same } else { Comparison::Differs }
    }

    /// The three parts that are stored: algorithm id, payload length, digest.
    pub(crate) fn to_stored(&self) -> (u8, u64, &[u8]) {
        (self.algorithm.id(), self.payload_len, &self.digest[..self.algorithm.digest_len()])
    }

    /// Puts a fingerprint together from its stored parts, or says why they cannot be one.
    pub(crate) fn from_stored(algorithm_id: u8, payload_len: u64, digest: &[u8]) -> Result<Self, StoredError> {
        let Some(&algorithm) = Algorithm::BY_ID.get(usize::from(algorithm_id)) else {
            return Err(StoredError::UnknownAlgorithm { id: algorithm_id });
        };
        if digest.len() != algorithm.digest_len() {
            return Err(StoredError::DigestLength { algorithm, found: digest.len() });
        }
        if payload_len != 0 && !algorithm.sees_payload() {
            return Err(StoredError::UnseenPayload { algorithm, payload_len });
        }
        Ok(Self::new(algorithm, payload_len, digest))
    }

    fn new(algorithm: Algorithm, payload_len: u64, digest: &[u8]) -> Self {
        assert_eq!(digest.len(), algorithm.digest_len(), "every caller passes the digest of its algorithm");
        let mut padded = [0; DIGEST_LEN_MAX];
        padded[..digest.len()].copy_from_slice(digest);
        Self { algorithm, payload_len, digest: padded }
    }
}

/// Shows how it was made and of how much, and keeps the digest to itself: for a short payload it gives it away.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprint")
            .field("algorithm", &self.algorithm)
            .field("payload_len", &self.payload_len())
            .finish_non_exhaustive()
    }
}

/// The answer of [`Fingerprint::compare`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Comparison {
    Same,
    Differs,
}

/// Gives `sink` the bytes that stand for a list of parts: their number, then name and value of each, in the order of
/// names, each after its length. They can be read back in one way only, so no two lists share them.
fn frame(parts: &BTreeMap<&str, &[u8]>, sink: &mut dyn FnMut(&[u8])) {
    sink(&(parts.len() as u64).to_le_bytes());
    for (name, value) in parts {
        for field in [name.as_bytes(), value] {
            sink(&(field.len() as u64).to_le_bytes());
            sink(field);
        }
    }
}

struct Framed {
    hasher: Xxh3,
    len: u64,
}

impl Framed {
    fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
    }
}

/// Why a payload has no fingerprint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum FingerprintError {
    #[error("found no parts, expected at least one: use `Fingerprint::unchecked` to compare nothing")]
    NoParts,
    #[error("found the part {name:?} twice, expected each name once")]
    DuplicatePart { name: String },
    #[cfg(feature = "json")]
    #[error(transparent)]
    Json(super::canonical_json::JsonError),
}

impl FingerprintError {
    fn into_error(self) -> Error {
        Error::invalid_input(format!("fingerprint payload: {self}"))
    }
}

/// Why stored parts are no fingerprint that this build can compare.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoredError {
    #[error("found fingerprint algorithm {id}, which this build does not know: use a newer one")]
    UnknownAlgorithm { id: u8 },
    #[error("found {found} bytes of digest, expected {} for {algorithm:?}", algorithm.digest_len())]
    DigestLength { algorithm: FingerprintAlgorithm, found: usize },
    #[error("found a payload length of {payload_len}, expected none for {algorithm:?}")]
    UnseenPayload { algorithm: FingerprintAlgorithm, payload_len: u64 },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest_hex(fingerprint: &Fingerprint) -> String {
        fingerprint.to_stored().2.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn every_kind() -> Vec<Fingerprint> {
        vec![
            Fingerprint::unchecked(),
            Fingerprint::of_bytes(b"payload"),
            Fingerprint::of_parts(&[("part", b"payload")]).unwrap(),
            #[cfg(feature = "json")]
            Fingerprint::of_json(b"\"payload\"").unwrap(),
            Fingerprint::from_digest_128([7; 16]),
            Fingerprint::from_digest_256([7; 32]),
        ]
    }

    // The digests below are in files. If one of these tests fails, the code is wrong, not the test.

    #[test]
    fn digest_of_bytes_is_the_published_xxh3_128() {
        // The two values of the empty and of the short input come from the reference implementation, `xxhsum -H2`.
        assert_eq!(digest_hex(&Fingerprint::of_bytes(b"")), "99aa06d3014798d86001c324468d497f");
        assert_eq!(digest_hex(&Fingerprint::of_bytes(b"a")), "a96faf705af16834e6c632b61e964e1f");
        let long: Vec<u8> = (0..10_000_u32).map(|index| index as u8).collect();
        assert_eq!(digest_hex(&Fingerprint::of_bytes(&long)), "ddd880951f8af0043eee77440c4c3d08");
    }

    #[test]
    fn digest_of_parts_stays_what_it_was() {
        let parts = Fingerprint::of_parts(&[("recipient", b"zoe"), ("amount", b"1000")]).unwrap();
        assert_eq!(parts.to_stored().0, 2);
        assert_eq!(parts.payload_len(), Some(8 + 8 + 6 + 8 + 4 + 8 + 9 + 8 + 3));
        assert_eq!(digest_hex(&parts), "17cb81e6a110bf408a158b24a328579b");
    }

    #[cfg(feature = "json")]
    #[test]
    fn digest_of_json_is_that_of_its_canonical_text() {
        let json = Fingerprint::of_json(br#" { "b" : 1.0, "a" : "\u0041" } "#).unwrap();
        assert_eq!(json.to_stored().0, 3);
        assert_eq!(digest_hex(&json), digest_hex(&Fingerprint::of_bytes(br#"{"a":"A","b":1}"#)));
        assert_eq!(digest_hex(&json), "bfb3c1065f6497175ecd10cde5a5bfdc");
    }

    #[test]
    fn every_kind_survives_the_way_through_its_stored_parts() {
        for fingerprint in every_kind() {
            let (id, payload_len, digest) = fingerprint.to_stored();
            assert_eq!(Fingerprint::from_stored(id, payload_len, digest), Ok(fingerprint.clone()));
        }
    }

    #[test]
    fn algorithm_ids_are_their_places_and_stay_so() {
        let ids: Vec<u8> = Algorithm::BY_ID.into_iter().map(Algorithm::id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn every_kind_is_the_same_as_itself_and_differs_from_every_other() {
        for (place, one) in every_kind().iter().enumerate() {
            for (other_place, other) in every_kind().iter().enumerate() {
                let expected = if place == other_place { Comparison::Same } else { Comparison::Differs };
                assert_eq!(one.compare(other), expected, "{one:?} against {other:?}");
            }
        }
    }

    #[test]
    fn same_digest_of_another_algorithm_or_length_differs() {
        let bytes = Fingerprint::of_bytes(b"payload");
        let (_, payload_len, digest) = bytes.to_stored();
        let as_parts = Fingerprint::from_stored(2, payload_len, digest).unwrap();
        assert_eq!(bytes.compare(&as_parts), Comparison::Differs);
        let longer = Fingerprint::from_stored(1, payload_len + 1, digest).unwrap();
        assert_eq!(bytes.compare(&longer), Comparison::Differs);
        assert_eq!(
            Fingerprint::from_digest_128([0; 16]).compare(&Fingerprint::from_digest_256([0; 32])),
            Comparison::Differs
        );
    }

    #[test]
    fn stored_parts_this_build_does_not_know_are_an_error() {
        for id in 6..=u8::MAX {
            assert_eq!(Fingerprint::from_stored(id, 0, &[0; 16]), Err(StoredError::UnknownAlgorithm { id }));
        }
    }

    #[test]
    fn stored_digest_of_another_length_is_an_error() {
        for algorithm in Algorithm::BY_ID {
            for len in (0..=40).filter(|&len| len != algorithm.digest_len()) {
                let found = Fingerprint::from_stored(algorithm.id(), 0, &vec![0; len]);
                assert_eq!(found, Err(StoredError::DigestLength { algorithm, found: len }));
            }
        }
        assert!(matches!(Fingerprint::from_stored(4, 1, &[0; 16]), Err(StoredError::UnseenPayload { .. })));
    }

    #[test]
    fn parts_count_in_any_order_and_with_their_borders() {
        let of = |parts: &[(&str, &[u8])]| Fingerprint::try_of_parts(parts).unwrap();
        assert_eq!(of(&[("a", b"1"), ("b", b"2")]), of(&[("b", b"2"), ("a", b"1")]));
        assert_ne!(of(&[("a", b"1"), ("b", b"2")]), of(&[("a", b"2"), ("b", b"1")]));
        assert_ne!(of(&[("ab", b"c")]), of(&[("a", b"bc")]));
        assert_ne!(of(&[("a", b"1")]), of(&[("a", b"1"), ("b", b"")]));
        assert_ne!(of(&[("", b"")]), of(&[("", b"\0")]));
    }

    #[test]
    fn parts_that_compare_nothing_or_contradict_one_another_are_refused() {
        assert_eq!(Fingerprint::try_of_parts(&[]), Err(FingerprintError::NoParts));
        let twice = Fingerprint::try_of_parts(&[("a", b"1"), ("b", b"2"), ("a", b"1")]);
        assert_eq!(twice, Err(FingerprintError::DuplicatePart { name: "a".to_owned() }));
    }

    #[test]
    fn debug_shows_the_kind_and_the_length_but_no_digest() {
        let shown = format!("{:?}", Fingerprint::of_bytes(b"1234"));
        assert_eq!(shown, "Fingerprint { algorithm: Bytes, payload_len: Some(4), .. }");
    }

    fn framed(parts: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
        let parts = parts.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let mut bytes = Vec::new();
        frame(&parts, &mut |field| bytes.extend_from_slice(field));
        bytes
    }

    /// The inverse of `frame`: that it exists is what makes the framing injective.
    fn unframed(mut bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
        fn number(bytes: &mut &[u8]) -> usize {
            usize::try_from(u64::from_le_bytes(*bytes.split_off(..8).unwrap().first_chunk().unwrap())).unwrap()
        }
        let mut parts = BTreeMap::new();
        for _ in 0..number(&mut bytes) {
            let name_len = number(&mut bytes);
            let name = String::from_utf8(bytes.split_off(..name_len).unwrap().to_vec()).unwrap();
            let value_len = number(&mut bytes);
            parts.insert(name, bytes.split_off(..value_len).unwrap().to_vec());
        }
        assert!(bytes.is_empty());
        parts
    }

    fn any_parts() -> impl Strategy<Value = BTreeMap<String, Vec<u8>>> {
        prop::collection::btree_map(".{0,4}", prop::collection::vec(any::<u8>(), 0..12), 1..6)
    }

    proptest! {
        #[test]
        fn framing_can_be_undone(parts in any_parts()) {
            prop_assert_eq!(unframed(&framed(&parts)), parts);
        }

        #[test]
        fn framings_of_different_parts_differ(
            // A small alphabet, zeros included, so that borders shift and lengths look like content.
            one in prop::collection::btree_map("[a\0]{0,2}", "[a\0\u{8}]{0,9}".prop_map(String::into_bytes), 1..4),
            two in prop::collection::btree_map("[a\0]{0,2}", "[a\0\u{8}]{0,9}".prop_map(String::into_bytes), 1..4),
        ) {
            prop_assert_eq!(framed(&one) == framed(&two), one == two);
        }

        #[test]
        fn streamed_digest_of_parts_is_that_of_the_framing(parts in any_parts()) {
            let list: Vec<(&str, &[u8])> =
                parts.iter().rev().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
            let fingerprint = Fingerprint::of_parts(&list).unwrap();
            let whole = Fingerprint::of_bytes(&framed(&parts));
            prop_assert_eq!(fingerprint.to_stored().2, whole.to_stored().2);
            prop_assert_eq!(fingerprint.payload_len(), whole.payload_len());
        }
    }
}
