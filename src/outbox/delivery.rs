//! One delivery, as a handler gets it, and how a handler says that it failed.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::machine::limits::DELAY_MAX;
use crate::machine::message::event::{Again, Failure};
use crate::machine::message::stored::StoredMessage;
use crate::machine::policy::Backoff;
use crate::machine::response::FailureReport;
use crate::machine::time::{Span, Timestamp};

/// A message in the hands of a handler. It may come again, under the same id.
///
/// # Example
/// ```
/// # let store = dupeproof::Store::in_memory()?;
/// # store.outbox().send(&dupeproof::Message::new("7/paid", "orders", "…").with_lane("7").with_header("trace", "4bf9"))?;
/// store.outbox().relay().run_once(|message| {
///     assert_eq!((message.id(), message.topic(), message.lane()), ("7/paid", "orders", Some("7")));
///     assert_eq!(message.header("trace"), Some("4bf9"));
///     assert_eq!(message.attempt(), 1);
///     Ok(())
/// })?;
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug)]
pub struct Delivery(pub(super) StoredMessage);

impl Delivery {
    /// The id that the sender chose: give it to the receiver, who dedupes on it.
    ///
    /// # Example
    /// See [`Delivery`].
    pub fn id(&self) -> &str {
        &self.0.head.message.id
    }

    /// The topic.
    ///
    /// # Example
    /// See [`Delivery`].
    pub fn topic(&self) -> &str {
        &self.0.head.message.topic
    }

    /// The lane, if it has one.
    ///
    /// # Example
    /// See [`Delivery`].
    pub fn lane(&self) -> Option<&str> {
        self.0.head.message.lane.as_deref()
    }

    /// The value of a header.
    ///
    /// # Example
    /// See [`Delivery`].
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// All headers, in the order of the sender.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", "").with_header("trace", "4bf9"))?;
    /// store.outbox().relay().run_once(|message| {
    ///     message.headers().for_each(|(name, value)| println!("{name}: {value}"));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.head.message.headers.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The payload.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", "dear jane"))?;
    /// store.outbox().relay().run_once(|message| {
    ///     assert_eq!(message.payload(), b"dear jane");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn payload(&self) -> &[u8] {
        &self.0.head.message.payload
    }

    /// Which attempt this is, since it was sent or redriven: 1 is the first. Beyond the first, the receiver may know the
    /// message already.
    ///
    /// # Example
    /// See [`Delivery`].
    pub fn attempt(&self) -> u32 {
        self.0.head.attempts
    }

    /// How often it was handed to a relay in all, this time included.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", ""))?;
    /// store.outbox().relay().run_once(|message| {
    ///     assert_eq!(message.total_attempts(), 1);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn total_attempts(&self) -> u32 {
        self.0.head.takes
    }

    /// When it was sent, in store time.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", ""))?;
    /// let now = store.stats()?.now;
    /// store.outbox().relay().run_once(|message| {
    ///     assert!(message.sent_at() <= now);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn sent_at(&self) -> Timestamp {
        self.0.head.sent_at
    }
}

/// Why a delivery failed. A plain `?` on a foreign error means: try again, as the relay's backoff says. That is safe,
/// because the receiver dedupes on the id.
///
/// # Example
/// ```
/// use dupeproof::{Delivery, DeliveryError};
/// fn deliver(message: &Delivery) -> Result<(), DeliveryError> {
///     let text = std::str::from_utf8(message.payload()).map_err(DeliveryError::permanent)?;
///     println!("{text}");
///     Ok(())
/// }
/// # let _ = deliver;
/// ```
#[derive(Debug)]
pub struct DeliveryError {
    error: Box<str>,
    again: Wanted,
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    Backoff,
    After(Span),
    Never,
}

impl DeliveryError {
    /// Try again, as the relay's backoff says. Text over 4,096 bytes is cut.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", ""))?;
    /// use dupeproof::DeliveryError;
    /// let report = store.outbox().relay().run_once(|_| Err(DeliveryError::new("connection refused")))?;
    /// assert_eq!(report.failed, 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new(why: impl fmt::Display) -> Self {
        Self { error: FailureReport::new(why).message().into(), again: Wanted::Backoff }
    }

    /// No attempt can succeed: it is a dead letter now.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # store.outbox().send(&dupeproof::Message::new("a", "t", ""))?;
    /// use dupeproof::DeliveryError;
    /// let report = store.outbox().relay().run_once(|_| Err(DeliveryError::permanent("no such mailbox")))?;
    /// assert_eq!(report.dead, 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn permanent(why: impl fmt::Display) -> Self {
        Self { again: Wanted::Never, ..Self::new(why) }
    }

    /// Try again after so long (at most 366 days; longer ones count as that), whatever the backoff says.
    ///
    /// # Example
    /// ```
    /// use dupeproof::DeliveryError;
    /// use std::time::Duration;
    /// let busy = DeliveryError::new("429 too many requests").after(Duration::from_secs(30));
    /// # let _ = busy;
    /// ```
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { again: Wanted::After(Span::from_duration(delay).min(DELAY_MAX)), ..self }
    }

    pub(super) fn into_failure(self, backoff: Backoff) -> Failure {
        let again = match self.again {
            Wanted::Backoff => Again::Backoff(backoff),
            Wanted::After(delay) => Again::After(delay),
            Wanted::Never => Again::Never,
        };
        Failure { error: self.error, again }
    }
}

/// Unclassified means: try again.
impl<E: StdError> From<E> for DeliveryError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
