//! A message as its sender means it.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::part;
use crate::machine::limits::{
    DELAY_MAX, HEADER_VALUE_BYTES_MAX, HEADERS_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX,
};
use crate::machine::time::Span;

/// Something to be told to another system, kept until it was delivered.
///
/// The id is chosen by the sender and names one thing to say, such as `"invoice-981/receipt"`. It is unique in the store:
/// sending it again with the same content changes nothing. The receiver gets it with every delivery, for *its* dedupe: a
/// message is delivered at least once, and now and then twice.
///
/// Values out of bounds are refused when it is sent, before anything is written.
///
/// # Example
/// ```
/// use dupeproof::Message;
/// let message = Message::new("invoice-981/receipt", "mail", r#"{"to":"jane"}"#)
///     .with_lane("customer-17")
///     .with_header("content-type", "application/json");
/// assert!(message.check().is_ok());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) id: Box<str>,
    pub(crate) topic: Box<str>,
    pub(crate) lane: Option<Box<str>>,
    pub(crate) headers: Vec<(Box<str>, Box<str>)>,
    pub(crate) payload: Vec<u8>,
    pub(crate) delay: Span,
}

impl Message {
    /// A message of this id (1–512 bytes) under this topic (1–128 bytes): names without control characters. The payload
    /// may be empty; with the headers it takes at most 1 MiB.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Message;
    /// assert!(Message::new("order-7/shipped", "orders", "…").check().is_ok());
    /// assert!(Message::new("", "orders", "…").check().is_err());
    /// ```
    pub fn new(id: impl AsRef<str>, topic: impl AsRef<str>, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: id.as_ref().into(),
            topic: topic.as_ref().into(),
            lane: None,
            headers: Vec::new(),
            payload: payload.into(),
            delay: Span::ZERO,
        }
    }

    /// Puts the message behind the others of this lane (1–128 bytes): they are delivered in the order they were sent in,
    /// one at a time, and one that fails holds up those behind it. Lanes do not hold up one another, and messages
    /// without a lane hold up nobody.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Message;
    /// let first = Message::new("order-7/paid", "orders", "…").with_lane("order-7");
    /// let second = Message::new("order-7/shipped", "orders", "…").with_lane("order-7");
    /// # let _ = (first, second);
    /// ```
    #[must_use]
    pub fn with_lane(mut self, lane: impl AsRef<str>) -> Self {
        self.lane = Some(lane.as_ref().into());
        self
    }

    /// Adds a header: a name of 1–128 bytes, once, and a value of up to 4,096 bytes. At most 32 of them.
    ///
    /// # Example
    /// ```
    /// let message = dupeproof::Message::new("order-7/paid", "orders", "…").with_header("trace", "4bf92f35");
    /// assert!(message.check().is_ok());
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.headers.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Delivers it no sooner than so long after it was sent (at most 366 days). In a lane, those behind it wait as well.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// let message = dupeproof::Message::new("invoice-981/reminder", "mail", "…").with_delay(Duration::from_secs(86_400));
    /// # let _ = message;
    /// ```
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = Span::from_duration(delay);
        self
    }

    /// Refuses what is out of bounds, as sending does.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput).
    ///
    /// # Example
    /// ```
    /// use dupeproof::Message;
    /// let twice = Message::new("a", "t", "").with_header("trace", "1").with_header("trace", "2");
    /// assert!(twice.check().is_err());
    /// ```
    pub fn check(&self) -> Result<()> {
        part("message id", &self.id, KEY_BYTES_MAX)?;
        part("topic", &self.topic, NAME_BYTES_MAX)?;
        self.lane.as_ref().map(|lane| part("lane", lane, NAME_BYTES_MAX)).transpose()?;
        let headers = self.headers.len();
        if headers > HEADERS_MAX {
            return Err(Error::invalid_input(format!("message has {headers} headers: at most {HEADERS_MAX} expected")));
        }
        for (at, (name, value)) in self.headers.iter().enumerate() {
            part("header name", name, NAME_BYTES_MAX)?;
            if value.len() > HEADER_VALUE_BYTES_MAX {
                let found = value.len();
                return Err(Error::invalid_input(format!(
                    "header value has {found} bytes: at most {HEADER_VALUE_BYTES_MAX} expected"
                )));
            }
            if self.headers[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::invalid_input("message has a header twice"));
            }
        }
        let bytes = self.bytes();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(Error::invalid_input(format!(
                "message has {bytes} bytes: at most {MESSAGE_BYTES_MAX} expected"
            )));
        }
        if self.delay > DELAY_MAX {
            return Err(Error::invalid_input("delay of a message is longer than 366 days"));
        }
        Ok(())
    }

    /// Bytes of payload and headers.
    pub(crate) fn bytes(&self) -> usize {
        self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() + self.payload.len()
    }

    /// What the content is recognised by, once the content itself is gone. The delay is no part of it: it says when, not
    /// what.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let lane = self.lane.as_deref().unwrap_or_default();
        let names: Vec<_> = self.headers.iter().map(|(name, _)| format!("header {name}")).collect();
        let mut parts: Vec<(&str, &[u8])> =
            vec![("topic", self.topic.as_bytes()), ("lane", lane.as_bytes()), ("payload", &self.payload)];
        parts.extend(names.iter().zip(&self.headers).map(|(name, (_, value))| (name.as_str(), value.as_bytes())));
        Fingerprint::of_parts(&parts).expect("the names of a checked message differ")
    }
}

/// Shows names and lengths: payloads and ids may hold personal data, and `Debug` ends up in logs.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, payload, lane) = (self.id.len(), self.payload.len(), self.lane.is_some());
        write!(f, "Message({}, id <{id} bytes>, payload <{payload} bytes>, lane {lane})", self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message::new("invoice-981/receipt", "mail", "dear jane").with_lane("jane").with_header("trace", "1")
    }

    #[test]
    fn parts_out_of_bounds_are_refused_and_those_at_the_bound_are_not() {
        let long = |bytes: usize| "x".repeat(bytes);
        for bad in [
            Message::new("", "t", ""),
            Message::new(long(513), "t", ""),
            Message::new("a\nb", "t", ""),
            Message::new("a", "", ""),
            Message::new("a", long(129), ""),
            message().with_lane(""),
            message().with_lane(long(129)),
            message().with_header("", "1"),
            message().with_header(long(129), "1"),
            message().with_header("trace", "2"),
            message().with_header("other", long(4097)),
            message().with_delay(Duration::from_secs(367 * 86_400)),
            Message::new("a", "t", vec![0; MESSAGE_BYTES_MAX + 1]),
            (0..33).fold(Message::new("a", "t", ""), |message, at| message.with_header(at.to_string(), "")),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        let most = (0..32)
            .fold(Message::new(long(512), long(128), vec![0; 1000]).with_lane(long(128)), |message, at| {
                message.with_header(format!("{at:0128}"), long(4096))
            });
        assert!(most.check().is_ok());
        assert!(Message::new("a", "t", vec![0; MESSAGE_BYTES_MAX]).check().is_ok());
    }

    #[test]
    fn every_part_of_the_content_counts_and_the_delay_does_not() {
        let same = message().with_delay(Duration::from_secs(5));
        assert_eq!(same.fingerprint(), message().fingerprint());
        let reordered = |first: &str, second: &str| {
            Message::new("a", "t", "").with_header(first, "1").with_header(second, "1").fingerprint()
        };
        assert_eq!(reordered("a", "b"), reordered("b", "a"));
        let plain = Message::new("invoice-981/receipt", "mail", "dear jane");
        for other in [
            Message::new("a", "other", "dear jane").with_lane("jane").with_header("trace", "1"),
            Message::new("a", "mail", "dear joe").with_lane("jane").with_header("trace", "1"),
            message().with_lane("joe"),
            message().with_header("more", ""),
            plain.clone().with_lane("jane"),
            plain.clone().with_lane("jane").with_header("trace", "2"),
            plain.with_header("trace", "1"),
        ] {
            assert_ne!(other.fingerprint(), message().fingerprint(), "{other:?}");
        }
    }

    #[test]
    fn debug_hides_id_and_payload() {
        assert_eq!(format!("{:?}", message()), "Message(mail, id <19 bytes>, payload <9 bytes>, lane true)");
    }
}
