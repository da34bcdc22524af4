//! What an operation leaves behind for its repeats: a response, an external reference, or a failure.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::limits::{FAILURE_BYTES_MAX, REFERENCE_BYTES_MAX};
use crate::error::{Error, Result};

/// The response of a settled operation, as every repeat sees it.
///
/// "No value", empty bytes, `null`, `false` and `0` are five different responses.
///
/// # Example
/// ```
/// use dupeproof::Response;
/// assert_ne!(Response::Absent, Response::from(b"".as_slice()));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Response {
    /// The operation ended without a value.
    Absent,
    /// The value, as opaque bytes.
    // Not part of what the codec decodes: the row carries them behind its body, as they are.
    Bytes(#[serde(skip)] Vec<u8>),
    /// The value was larger than the store's limit. The operation did succeed.
    TooLarge {
        /// Length of the value in bytes.
        len: u64,
        /// xxh3-128 of the value, to recognise it elsewhere.
        xxh3_128: u128,
    },
    /// The operation's response policy keeps values out of the store. The operation did succeed.
    Withheld,
    /// The value lies in a file of its own, for what is too large for the store or is a file anyway.
    Artifact(Artifact),
}

/// A value that lies in a file beside the store: where, how long, and its SHA-256. Made by `Artifact::of_file`.
///
/// The store keeps the reference, not the file: whoever deletes or changes the file takes the value away, which is
/// reported wherever it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Artifact {
    pub(crate) location: Box<str>,
    pub(crate) len: u64,
    pub(crate) sha256: [u8; 32],
}

impl From<Artifact> for Response {
    fn from(artifact: Artifact) -> Self {
        Self::Artifact(artifact)
    }
}

/// Whether the value of a response is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ResponsePolicy {
    /// Store the value, up to the store's response limit.
    #[default]
    Store,
    /// Store that there was a value and the external reference, for responses that hold secrets.
    ReferenceOnly,
}

impl Response {
    /// The value, if it is there.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Response;
    /// assert_eq!(Response::from("ok").bytes(), Some(b"ok".as_slice()));
    /// assert_eq!(Response::Absent.bytes(), None);
    /// ```
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Absent | Self::TooLarge { .. } | Self::Withheld | Self::Artifact(_) => None,
        }
    }

    /// The response as it may be stored: never a failure because of its size.
    pub(crate) fn admitted(self, policy: ResponsePolicy, bytes_max: usize) -> Self {
        match (policy, self) {
            (ResponsePolicy::ReferenceOnly, Self::Bytes(_) | Self::TooLarge { .. }) => Self::Withheld,
            (ResponsePolicy::Store, Self::Bytes(bytes)) if bytes.len() > bytes_max => {
                Self::TooLarge { len: bytes.len() as u64, xxh3_128: xxh3_128(&bytes) }
            }
            (_, other) => other,
        }
    }
}

impl From<&[u8]> for Response {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Response {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&str> for Response {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for Response {
    fn from(text: String) -> Self {
        Self::Bytes(text.into_bytes())
    }
}

/// Shows the length, not the content: responses may hold personal data.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::Bytes(bytes) => write!(f, "Bytes(<{} bytes>)", bytes.len()),
            Self::TooLarge { len, .. } => write!(f, "TooLarge(<{len} bytes>)"),
            Self::Withheld => f.write_str("Withheld"),
            Self::Artifact(Artifact { len, .. }) => write!(f, "Artifact(<{len} bytes>)"),
        }
    }
}

/// The provider's own name for the effect: a charge id, a message id, a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ExternalReference(Box<str>);

impl ExternalReference {
    pub(crate) fn new(reference: &str) -> Result<Self> {
        super::key::part("external reference", reference, REFERENCE_BYTES_MAX).map(Self)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an attempt failed, in words and, if the caller wants repeats to see one, with a body.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    message: Box<str>,
    response: Response,
}

impl FailureReport {
    /// A failure in words. Text over 4,096 bytes is cut, since an error's size must never stop its record.
    ///
    /// # Example
    /// ```
    /// let report = dupeproof::FailureReport::new("card declined");
    /// assert_eq!(report.message(), "card declined");
    /// ```
    pub fn new(message: impl fmt::Display) -> Self {
        let mut message = message.to_string();
        if message.len() > FAILURE_BYTES_MAX {
            let mut end = FAILURE_BYTES_MAX - '…'.len_utf8();
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
            message.push('…');
        }
        Self { message: message.into(), response: Response::Absent }
    }

    /// Adds a body that repeats are shown with the failure.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{FailureReport, Response};
    /// let report = FailureReport::new("declined").with_response(r#"{"code":51}"#);
    /// assert!(report.response().bytes().is_some());
    /// ```
    #[must_use]
    pub fn with_response(mut self, response: impl Into<Response>) -> Self {
        self.response = response.into();
        self
    }

    /// The failure in words.
    ///
    /// # Example
    /// ```
    /// let report = dupeproof::FailureReport::new("card declined");
    /// assert_eq!(report.message(), "card declined");
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The body recorded with the failure.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{FailureReport, Response};
    /// assert_eq!(FailureReport::new("card declined").response(), &Response::Absent);
    /// ```
    pub fn response(&self) -> &Response {
        &self.response
    }

    pub(crate) fn response_mut(&mut self) -> &mut Response {
        &mut self.response
    }

    pub(crate) fn admitted(mut self, policy: ResponsePolicy, bytes_max: usize) -> Self {
        self.response = self.response.admitted(policy, bytes_max);
        self
    }
}

impl fmt::Debug for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureReport").field("message", &self.message).field("response", &self.response).finish()
    }
}

/// Bounds a text that a person gives, such as the reason of a decision.
pub(crate) fn bounded_text(name: &str, text: &str, bytes_max: usize) -> Result<Box<str>> {
    if text.trim().is_empty() || text.len() > bytes_max {
        let found = text.len();
        return Err(Error::invalid_input(format!("{name} has {found} bytes: 1 to {bytes_max} expected")));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversize_response_keeps_length_and_hash() {
        let response = Response::from(vec![7; 11]).admitted(ResponsePolicy::Store, 10);
        assert_eq!(response, Response::TooLarge { len: 11, xxh3_128: xxh3_128(&[7; 11]) });
        let fits = Response::from(vec![7; 10]);
        assert_eq!(fits.clone().admitted(ResponsePolicy::Store, 10), fits);
    }

    #[test]
    fn reference_only_withholds_values_and_leaves_no_value_alone() {
        let policy = ResponsePolicy::ReferenceOnly;
        assert_eq!(Response::from("secret").admitted(policy, 10), Response::Withheld);
        assert_eq!(Response::Absent.admitted(policy, 10), Response::Absent);
    }

    #[test]
    fn long_failure_text_is_cut_at_a_character() {
        let report = FailureReport::new("é".repeat(4096));
        assert!(report.message().len() <= FAILURE_BYTES_MAX);
        assert!(report.message().ends_with('…'));
    }

    #[test]
    fn debug_hides_response_content() {
        assert_eq!(format!("{:?}", Response::from("4111")), "Bytes(<4 bytes>)");
    }
}
