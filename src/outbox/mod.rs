//! The outbox: what is to be told to other systems, kept until it was delivered. The door to the rules of messages.

mod delivery;
mod relay;
mod view;
mod within;

pub use delivery::{Delivery, DeliveryError};
pub use relay::{Relay, RelayHandle, RelayReport};
pub use view::{MessageFilter, MessageListing, MessagePage, MessageView};
pub use within::Sending;

use crate::engine::mixed_up;
use crate::error::{Error, Result};
use crate::machine::limits::{KEY_BYTES_MAX, SEND_BYTES_MAX, SEND_MESSAGES_MAX};
use crate::machine::message::content::Message;
use crate::machine::message::event::Event;
use crate::machine::message::stored::{Aged, MessageStatus, StoredMessage};
use crate::machine::time::Timestamp;
use crate::reconcile::Decision;
use crate::storage::outbox::work::{Done, Enqueued, Work};
use crate::storage::snapshot::Visit;
use crate::store::Store;
use view::{Collected, view};

/// The outbox of a store: see [`Store::outbox`].
#[derive(Debug, Clone)]
pub struct Outbox {
    store: Store,
}

/// Whether a message that was sent is new. Either way it is in the outbox, and will be delivered or already was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// It is in the outbox now.
    Enqueued,
    /// It was sent before, with the same content: nothing was enqueued a second time.
    Duplicate,
}

impl Store {
    /// The outbox: messages that a relay hands to another system, at least once, in order within a lane.
    ///
    /// # Example: a receipt is mailed, whatever happens to this process
    /// ```
    /// use dupeproof::{DeliveryError, Message, Store};
    ///
    /// let store = Store::in_memory()?;
    /// store.outbox().send(&Message::new("invoice-981/receipt", "mail", "dear jane, …"))?;
    ///
    /// # fn mail(id: &str, body: &[u8]) -> std::io::Result<()> { assert_eq!(id, "invoice-981/receipt"); Ok(()) }
    /// let relay = store.outbox().relay().with_topics(["mail"]);
    /// let report = relay.run_once(|message| Ok(mail(message.id(), message.payload())?))?;
    /// assert_eq!(report.delivered, 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn outbox(&self) -> Outbox {
        Outbox { store: self.clone() }
    }
}

impl Outbox {
    /// Puts a message into the outbox: one durable commit. An id that is there already is a duplicate if the content is
    /// the same.
    ///
    /// A message is remembered by its id until the retention after its delivery is over
    /// ([`Options::with_outbox_retention`](crate::Options::with_outbox_retention)).
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) if the id was used for another content: nothing was enqueued;
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the message is out of bounds.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{ErrorKind, Message, Sent};
    /// let outbox = store.outbox();
    /// let message = Message::new("invoice-981/receipt", "mail", "dear jane, …");
    /// assert_eq!(outbox.send(&message)?, Sent::Enqueued);
    /// assert_eq!(outbox.send(&message)?, Sent::Duplicate);
    /// let other = Message::new("invoice-981/receipt", "mail", "dear joe, …");
    /// assert_eq!(outbox.send(&other).unwrap_err().kind(), ErrorKind::Refused);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn send(&self, message: &Message) -> Result<Sent> {
        let mut sent = self.send_many(std::slice::from_ref(message))?;
        sent.pop().ok_or_else(mixed_up)
    }

    /// Puts messages into the outbox in one durable commit: all of them or none. At most 1,000 messages of 16 MiB
    /// together. Those of one lane are delivered in the order of the list.
    ///
    /// # Errors
    /// As for [`send`](Self::send); the message names the first that was refused.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{Message, Sent};
    /// let of_order = |id, payload| Message::new(id, "orders", payload).with_lane("order-7");
    /// let sent = store.outbox().send_many(&[of_order("7/paid", "…"), of_order("7/shipped", "…")])?;
    /// assert_eq!(sent, [Sent::Enqueued, Sent::Enqueued]);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn send_many(&self, messages: &[Message]) -> Result<Vec<Sent>> {
        let admitted = admitted(messages)?;
        if admitted.is_empty() {
            return Ok(Vec::new());
        }
        match self.store.engine().post().work(Work::Send(admitted))? {
            Done::Sent(answers) => Ok(answers.into_iter().map(Sent::of).collect()),
            Done::Round(_) | Done::Decided(_) => Err(mixed_up()),
        }
    }

    /// A relay that hands messages to a handler: configure it, then [`run_once`](Relay::run_once) or
    /// [`spawn`](Relay::spawn). Any number of relays may run at once, in any number of threads and, in shared mode,
    /// processes.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// let relay = store.outbox().relay().with_batch(10);
    /// let print = |message: &dupeproof::Delivery| {
    ///     println!("{}", message.id());
    ///     Ok(())
    /// };
    /// while relay.run_once(print)?.more {}
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn relay(&self) -> Relay {
        Relay::new(self.store.clone())
    }

    /// Looks a message up, whatever became of it. Changes nothing.
    ///
    /// # Errors
    /// [`Damaged`](crate::ErrorKind::Damaged), [`NewerFormat`](crate::ErrorKind::NewerFormat),
    /// [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{Message, MessageStatus};
    /// store.outbox().send(&Message::new("invoice-981/receipt", "mail", "dear jane, …"))?;
    /// assert_eq!(store.outbox().get("invoice-981/receipt")?.unwrap().status, MessageStatus::Due);
    /// assert!(store.outbox().get("invoice-982/receipt")?.is_none());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn get(&self, id: &str) -> Result<Option<MessageView>> {
        if id.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let now = self.store.engine().moment().now;
        let stored = self.store.engine().read(|snapshot| snapshot.find_message(id))?;
        Ok(stored.and_then(|stored| as_of(stored, now)).map(view))
    }

    /// Lists messages page by page, in the order they were sent in.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{MessageFilter, MessagePage};
    /// let mut next = Some(MessagePage::first(100));
    /// while let Some(page) = next {
    ///     let listing = store.outbox().list(&MessageFilter::new().with_topic("mail"), &page)?;
    ///     listing.messages.iter().for_each(|message| println!("{} is {}", message.id, message.status));
    ///     next = listing.next;
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn list(&self, filter: &MessageFilter, page: &MessagePage) -> Result<MessageListing> {
        let now = self.store.engine().moment().now;
        let mut collected = Collected::new(filter, page);
        let mut visit = |stored: StoredMessage| -> Result<Visit> {
            let sequence = stored.head.sequence;
            Ok(collected.take(sequence, as_of(stored, now)))
        };
        self.store.engine().read(|snapshot| match filter.is_dead_only() {
            true => snapshot.scan_dead(page.after, &mut visit),
            false => snapshot.scan_messages(page.after, &mut visit),
        })?;
        Ok(collected.listing)
    }

    /// Lists the dead letters: those whose attempts are used up, or whose handler said that no attempt can succeed. They
    /// stay until somebody [redrives](Self::redrive) or [discards](Self::discard) them.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{DeliveryError, Message, MessagePage};
    /// store.outbox().send(&Message::new("invoice-981/receipt", "mail", "dear jane, …"))?;
    /// store.outbox().relay().run_once(|_| Err(DeliveryError::permanent("no such mailbox")))?;
    /// let dead = store.outbox().dead(&MessagePage::first(100))?.messages;
    /// assert_eq!(dead[0].last_error.as_deref(), Some("no such mailbox"));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn dead(&self, page: &MessagePage) -> Result<MessageListing> {
        self.list(&MessageFilter::new().with_status(MessageStatus::Dead), page)
    }

    /// Sends a dead letter again, under the same id: its attempts start over. In a lane that went on without it, it goes
    /// to the end; one that it held goes on with it. Durable on return.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Refused`](crate::ErrorKind::Refused) if it is no dead letter.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// # use dupeproof::{DeliveryError, Message, MessageStatus};
    /// # store.outbox().send(&Message::new("invoice-981/receipt", "mail", "dear jane, …"))?;
    /// # store.outbox().relay().run_once(|_| Err(DeliveryError::permanent("no such mailbox")))?;
    /// let view = store.outbox().redrive("invoice-981/receipt")?;
    /// assert_eq!((view.status, view.attempts, view.total_attempts), (MessageStatus::Due, 0, 1));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn redrive(&self, id: &str) -> Result<MessageView> {
        self.decide(id, Event::Redrive)
    }

    /// Decides that a message will not be delivered: a dead letter, or one that nobody has in hand. Recorded with who
    /// decided and why; its content is dropped, its id remembered for the outbox's retention. Durable on return.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Refused`](crate::ErrorKind::Refused) if a relay has it or it is
    /// finished; [`InvalidInput`](crate::ErrorKind::InvalidInput) for a decision out of bounds.
    ///
    /// # Example
    /// ```
    /// # let store = dupeproof::Store::in_memory()?;
    /// use dupeproof::{Decision, Message, MessageStatus};
    /// store.outbox().send(&Message::new("invoice-981/receipt", "mail", "dear jane, …"))?;
    /// let view = store.outbox().discard("invoice-981/receipt", &Decision::new("jane", "sent by hand"))?;
    /// assert_eq!(view.status, MessageStatus::Discarded);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn discard(&self, id: &str, decision: &Decision) -> Result<MessageView> {
        let recorded = decision.recorded()?;
        self.decide(id, Event::Discard { by: recorded.by, reason: recorded.reason })
    }

    fn decide(&self, id: &str, event: Event) -> Result<MessageView> {
        match self.store.engine().post().work(Work::Decide(id.into(), event))? {
            Done::Decided(stored) => Ok(view(*stored)),
            Done::Sent(_) | Done::Round(_) => Err(mixed_up()),
        }
    }
}

impl Sent {
    pub(crate) fn of(enqueued: Enqueued) -> Self {
        match enqueued {
            Enqueued::Now => Self::Enqueued,
            Enqueued::Before => Self::Duplicate,
        }
    }
}

/// Messages that may be written: whoever sends passes here first.
pub(crate) fn admitted(messages: &[Message]) -> Result<Vec<Message>> {
    let (count, bytes) = (messages.len(), messages.iter().map(Message::bytes).sum::<usize>());
    if count > SEND_MESSAGES_MAX {
        return Err(Error::invalid_input(format!("{count} messages at once: at most {SEND_MESSAGES_MAX} expected")));
    }
    if bytes > SEND_BYTES_MAX {
        return Err(Error::invalid_input(format!("messages of {bytes} bytes: at most {SEND_BYTES_MAX} expected")));
    }
    for message in messages {
        message.check()?;
    }
    Ok(messages.to_vec())
}

fn as_of(stored: StoredMessage, now: Timestamp) -> Option<StoredMessage> {
    match stored.at(now) {
        Aged::Same(stored) | Aged::Moved(stored) => Some(stored),
        Aged::Gone => None,
    }
}
