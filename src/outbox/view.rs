//! Messages as people and programs see them, and lists of them.

use std::fmt;

use crate::machine::message::stored::{Dead, DeadCause, MessageStatus, Sequence, State, StoredMessage};
use crate::machine::time::Timestamp;
use crate::storage::snapshot::Visit;

/// Rows one page of a list may look at, so that a filter that matches nothing cannot walk a whole outbox in one call.
const SCAN_ROWS_MAX: usize = 20_000;
/// Messages in one page.
const PAGE_MESSAGES_MAX: usize = 1000;
/// Bytes of content in one page, about.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A message as it is now, for people and programs that look.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageView {
    /// The id that the sender chose.
    pub id: String,
    /// The topic.
    pub topic: String,
    /// The lane.
    pub lane: Option<String>,
    /// The headers; none once it is finished.
    pub headers: Vec<(String, String)>,
    /// The payload, until it is finished.
    pub payload: Option<Vec<u8>>,
    /// Where it stands, ended leases and waiting times counted in, whether or not anybody has come by.
    pub status: MessageStatus,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// Attempts since it was sent, or redriven.
    pub attempts: u32,
    /// How often it was handed to a relay in all.
    pub total_attempts: u32,
    /// How often it was redriven.
    pub redrives: u32,
    /// Why the last delivery that said so failed.
    pub last_error: Option<String>,
    /// Since when it is due, or when it will be; others of its lane may be before it.
    pub due_at: Option<Timestamp>,
    /// Until when a relay has it.
    pub lease_until: Option<Timestamp>,
    /// Since when, and why, it is a dead letter.
    pub dead: Option<(Timestamp, DeadCause)>,
    /// When it was delivered or discarded.
    pub finished_at: Option<Timestamp>,
    /// Until when its id is remembered.
    pub purge_at: Option<Timestamp>,
    /// Who discarded it, and why.
    pub discarded: Option<(String, String)>,
}

/// The view of a message that was aged to the present before.
pub(super) fn view(stored: StoredMessage) -> MessageView {
    let status = stored.status();
    let StoredMessage { head, state } = stored;
    let is_finished = matches!(status, MessageStatus::Delivered | MessageStatus::Discarded);
    let mut view = MessageView {
        id: head.message.id.into(),
        topic: head.message.topic.into(),
        lane: head.message.lane.map(Into::into),
        headers: head.message.headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        payload: Some(head.message.payload).filter(|_| !is_finished),
        status,
        sent_at: head.sent_at,
        attempts: head.attempts,
        total_attempts: head.takes,
        redrives: head.redrives,
        last_error: head.last_error.map(Into::into),
        due_at: None,
        lease_until: None,
        dead: None,
        finished_at: None,
        purge_at: None,
        discarded: None,
    };
    match state {
        State::Due(due) => view.due_at = Some(due.since),
        State::Scheduled { at } => view.due_at = Some(at),
        State::InFlight(lease) => view.lease_until = Some(lease.until),
        State::Dead(Dead { since, cause, .. }) => view.dead = Some((since, cause)),
        State::Delivered { at, purge_at } => (view.finished_at, view.purge_at) = (Some(at), Some(purge_at)),
        State::Discarded { at, by, reason, purge_at } => {
            (view.finished_at, view.purge_at) = (Some(at), Some(purge_at));
            view.discarded = Some((by.into(), reason.into()));
        }
    }
    view
}

/// Shows names and lengths: ids and payloads may hold personal data.
impl fmt::Debug for MessageView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageView")
            .field("id", &format_args!("<{} bytes>", self.id.len()))
            .field("topic", &self.topic)
            .field("payload", &self.payload.as_ref().map(|payload| format!("<{} bytes>", payload.len())))
            .field("status", &self.status)
            .field("attempts", &self.attempts)
            .field("total_attempts", &self.total_attempts)
            .field("redrives", &self.redrives)
            .field("last_error", &self.last_error)
            .field("due_at", &self.due_at)
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}

/// Which messages to list. Start from [`MessageFilter::new`], which lists all.
///
/// # Example
/// ```
/// use dupeproof::{MessageFilter, MessageStatus};
/// let filter = MessageFilter::new().with_status(MessageStatus::Scheduled).with_topic("mail").with_lane("jane");
/// # let _ = filter;
/// ```
#[derive(Debug, Clone, Default)]
pub struct MessageFilter {
    status: Option<MessageStatus>,
    topic: Option<String>,
    lane: Option<String>,
}

impl MessageFilter {
    /// Everything.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{MessageFilter, MessagePage};
    /// assert!(store.outbox().list(&MessageFilter::new(), &MessagePage::first(100))?.messages.is_empty());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Only messages in this status.
    ///
    /// # Example
    /// See [`MessageFilter`].
    #[must_use]
    pub fn with_status(mut self, status: MessageStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Only messages of this topic.
    ///
    /// # Example
    /// See [`MessageFilter`].
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Only messages of this lane.
    ///
    /// # Example
    /// See [`MessageFilter`].
    #[must_use]
    pub fn with_lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }

    /// Whether the table of dead letters holds all that can match. A lease that lapsed for good counts once somebody
    /// has come by.
    pub(super) fn is_dead_only(&self) -> bool {
        self.status == Some(MessageStatus::Dead)
    }

    fn admits(&self, stored: &StoredMessage) -> bool {
        let message = &stored.head.message;
        self.status.is_none_or(|status| stored.status() == status)
            && self.topic.as_deref().is_none_or(|topic| &*message.topic == topic)
            && self.lane.as_deref().is_none_or(|lane| message.lane.as_deref() == Some(lane))
    }
}

/// Where a list of messages goes on. Start from [`MessagePage::first`].
#[derive(Debug, Clone)]
pub struct MessagePage {
    messages_max: usize,
    pub(super) after: Option<Sequence>,
}

impl MessagePage {
    /// The first page, with at most so many messages (1 to 1,000).
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let dead = store.outbox().dead(&dupeproof::MessagePage::first(100))?;
    /// assert!(dead.messages.is_empty() && dead.next.is_none());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn first(messages_max: usize) -> Self {
        Self { messages_max: messages_max.clamp(1, PAGE_MESSAGES_MAX), after: None }
    }
}

/// One page of messages, and where the next one starts. A page can be short, even empty, with more behind it: how many
/// rows one call may look at is bounded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MessageListing {
    /// The messages.
    pub messages: Vec<MessageView>,
    /// The next page, if there is one.
    pub next: Option<MessagePage>,
}

/// A page while it fills.
pub(super) struct Collected<'a> {
    filter: &'a MessageFilter,
    messages_max: usize,
    looked_at: usize,
    bytes: usize,
    pub(super) listing: MessageListing,
}

impl<'a> Collected<'a> {
    pub(super) fn new(filter: &'a MessageFilter, page: &MessagePage) -> Self {
        let listing = MessageListing { messages: Vec::new(), next: None };
        Self { filter, messages_max: page.messages_max, looked_at: 0, bytes: 0, listing }
    }

    pub(super) fn take(&mut self, sequence: Sequence, stored: Option<StoredMessage>) -> Visit {
        self.looked_at += 1;
        if let Some(stored) = stored.filter(|stored| self.filter.admits(stored)) {
            self.bytes += stored.head.message.bytes();
            self.listing.messages.push(view(stored));
        }
        let is_full = self.listing.messages.len() == self.messages_max || self.bytes > PAGE_BYTES_MAX;
        if is_full || self.looked_at == SCAN_ROWS_MAX {
            self.listing.next = Some(MessagePage { messages_max: self.messages_max, after: Some(sequence) });
            return Visit::Stop;
        }
        Visit::Next
    }
}
