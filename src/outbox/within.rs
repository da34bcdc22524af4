//! Sending as part of a greater commit: the message goes out exactly if the change it tells of is there.

use std::fmt;

use super::{Sent, admitted};
use crate::engine::{heard_message, mixed_up};
use crate::error::Result;
use crate::machine::message::content::Message;
use crate::transaction::Transaction;

/// The outbox, within a transaction. Got from [`Transaction::outbox`].
pub struct Sending<'t, 'b, 'txn>(&'t mut Transaction<'b, 'txn>);

impl<'b, 'txn> Transaction<'b, 'txn> {
    /// The outbox, to send messages in this commit: they are delivered if, and only if, all the rest is committed too.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Message, redb::TableDefinition};
    /// const ORDERS: TableDefinition<&str, u64> = TableDefinition::new("orders");
    /// # let store = dupeproof::Store::in_memory()?;
    /// store.transaction(|tx| {
    ///     tx.open_table(ORDERS)?.insert("i-1", 1200)?;
    ///     tx.outbox().send(&Message::new("i-1/receipt", "mail", "dear jane, …"))?;
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn outbox(&mut self) -> Sending<'_, 'b, 'txn> {
        Sending(self)
    }
}

impl Sending<'_, '_, '_> {
    /// As [`Outbox::send`](super::Outbox::send), in this commit.
    ///
    /// # Errors
    /// Those of [`Outbox::send`](super::Outbox::send). Nothing was enqueued, and the transaction can go on.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Message, Sent};
    /// # let store = dupeproof::Store::in_memory()?;
    /// let receipt = Message::new("i-1/receipt", "mail", "dear jane, …");
    /// let sent = store.transaction(|tx| tx.outbox().send(&receipt))?;
    /// assert_eq!(sent, Sent::Enqueued);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn send(&mut self, message: &Message) -> Result<Sent> {
        let mut sent = self.send_many(std::slice::from_ref(message))?;
        sent.pop().ok_or_else(mixed_up)
    }

    /// As [`Outbox::send_many`](super::Outbox::send_many), in this commit.
    ///
    /// # Errors
    /// Those of [`Outbox::send_many`](super::Outbox::send_many). Nothing was enqueued, and the transaction can go on.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::Message;
    /// # let store = dupeproof::Store::in_memory()?;
    /// let sent = store.transaction(|tx| {
    ///     tx.outbox().send_many(&[Message::new("1", "mail", "…"), Message::new("2", "mail", "…")])
    /// })?;
    /// assert_eq!(sent.len(), 2);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn send_many(&mut self, messages: &[Message]) -> Result<Vec<Sent>> {
        let admitted = admitted(messages)?;
        let sent = self.0.drive(|batch, moment| heard_message(batch.send(admitted, moment)))?;
        Ok(sent.into_iter().map(Sent::of).collect())
    }
}

impl fmt::Debug for Sending<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sending").field(&self.0).finish()
    }
}
