//! Messages that come in: each acts once, however often it is delivered.

use crate::engine::heard;
use crate::error::{Error, Result};
use crate::machine::event::{Answer, Event, Settlement};
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, Kind, OperationKey};
use crate::machine::policy::Retention;
use crate::machine::record::Token;
use crate::machine::response::{Response, ResponsePolicy};
#[cfg(feature = "json")]
use crate::operation::to_json;
use crate::operation::{
    Begin, Conflict, Expired, InProgress, Operation, OperationView, Replay, RetryLater, UnknownOutcome, odd_answer,
    replay_of, turned_away,
};
use crate::reconcile::{Decision, Verdict};
use crate::storage::batch::{NOBODY, Step, Target};
use crate::store::Store;
use crate::transaction::Transaction;

/// The messages of one source: a broker's topic, a webhook's sender.
///
/// A message is known by the source and the id that the *sender* gave it, the same on every delivery. Two kinds of
/// handlers:
/// - one that only changes the application's own tables: [`process_raw`](Inbox::process_raw) keeps the mark and the
///   change in one commit;
/// - one with an external effect: [`claim`](Inbox::claim), and everything that holds for operations.
///
/// Got from [`Store::inbox`].
#[derive(Debug, Clone)]
pub struct Inbox {
    store: Store,
    tenant: String,
    source: String,
    retention: Retention,
}

/// What became of a message that was handed to [`Inbox::process_raw`].
#[derive(Debug)]
#[must_use = "it says whether the message may be acknowledged"]
pub enum Processed {
    /// It was handled now, and the mark, the change and the response are durable.
    Done(Replay),
    /// It was handled before: the response of then.
    Duplicate(Replay),
    /// It was claimed, and somebody is on it.
    InProgress(InProgress),
    /// It was claimed, failed without effect, and may be tried again.
    RetryLater(RetryLater),
    /// It was claimed, and nobody knows whether its effect happened.
    Unknown(UnknownOutcome),
    /// The id was used by a message of other content.
    Conflict(Conflict),
    /// It was handled so long ago that the response is gone.
    Expired(Expired),
}

impl Processed {
    /// Whether it is handled for good, so that the broker need not deliver it again.
    ///
    /// Not so for a [`Conflict`](Processed::Conflict): the sender used one id for two messages, and a person should see
    /// the second before it goes.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Response, Store};
    /// let store = Store::in_memory()?;
    /// let processed = store.inbox("acme", "orders")?.process_raw("m-1", Fingerprint::of_bytes(b"an order"), |_| {
    ///     Ok::<_, dupeproof::Error>(Response::Absent)
    /// })?;
    /// assert!(processed.may_acknowledge());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn may_acknowledge(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Duplicate(_) | Self::Expired(_))
    }
}

impl Store {
    /// The messages of one source, for one tenant. Both are names as in an [`OperationKey`].
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name out of bounds.
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// let orders = store.inbox("acme", "mqtt/orders")?;
    /// # drop(orders);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn inbox(&self, tenant: &str, source: &str) -> Result<Inbox> {
        OperationKey::new(tenant, source, "any")?;
        let (tenant, source) = (tenant.to_owned(), source.to_owned());
        Ok(Inbox { store: self.clone(), tenant, source, retention: Retention::default() })
    }
}

impl Inbox {
    /// How long a message is remembered from when it was handled: its response, and then the bare mark. Both together
    /// are the *window in which a duplicate is recognised*; a delivery that comes later acts again. Choose it longer
    /// than the broker or the sender can possibly take. Default: 7 and 90 days, as for operations.
    ///
    /// # Example
    /// ```
    /// use dupeproof::Retention;
    /// use std::time::Duration;
    /// const DAY: Duration = Duration::from_secs(86_400);
    /// # let store = dupeproof::Store::in_memory()?;
    /// let orders = store
    ///     .inbox("acme", "orders")?
    ///     .with_retention(Retention::default().with_response(DAY).with_tombstone(30 * DAY));
    /// # drop(orders);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// The message as an operation, to set a lease, attempts and the like before it is begun with
    /// [`Store::begin`]. Its name space is apart from that of other operations.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an id out of bounds (1 to 512 bytes, no control characters).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Store};
    /// # use std::time::Duration;
    /// # let store = Store::in_memory()?;
    /// let message = store.inbox("acme", "orders")?.message("m-1", Fingerprint::of_bytes(b"an order"))?;
    /// let Begin::Execute(claim) = store.begin(&message.with_lease(Duration::from_secs(5)))? else { unreachable!() };
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn message(&self, message_id: &str, fingerprint: Fingerprint) -> Result<Operation> {
        Ok(Operation::of(self.identity(message_id)?, fingerprint).with_retention(self.retention))
    }

    /// Handles a message whose effect is a change of the application's own tables: the mark that it was handled, the
    /// change and the response are one commit. A duplicate is told the response of the first delivery, and `handler`
    /// does not run.
    ///
    /// With an `Err` of `handler`, a panic, or a crash before the commit, there is no mark and no change: the next
    /// delivery handles it. Never perform an external effect in `handler`: use [`claim`](Inbox::claim) for that, or send
    /// a message through the outbox.
    ///
    /// # Errors
    /// Those of `handler` and of [`Store::transaction`];
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an id out of bounds.
    ///
    /// # Example
    /// ```
    /// use dupeproof::redb::{ReadableTable, TableDefinition};
    /// use dupeproof::{Fingerprint, Response};
    /// const STOCK: TableDefinition<&str, i64> = TableDefinition::new("stock");
    ///
    /// # let store = dupeproof::Store::in_memory()?;
    /// let deliveries = store.inbox("acme", "deliveries")?;
    /// for _ in 0..2 {
    ///     let payload = br#"{"widget": 5}"#;
    ///     let processed = deliveries.process_raw("m-1", Fingerprint::of_bytes(payload), |tx| {
    ///         let mut stock = tx.open_table(STOCK)?;
    ///         let before = stock.get("widget")?.map_or(0, |count| count.value());
    ///         stock.insert("widget", before + 5)?;
    ///         Ok::<_, Box<dyn std::error::Error>>(Response::from("booked"))
    ///     })?;
    ///     assert!(processed.may_acknowledge());
    /// }
    /// store.transaction(|tx| {
    ///     assert_eq!(tx.open_table(STOCK)?.get("widget")?.map(|count| count.value()), Some(5));
    ///     Ok::<_, Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn process_raw<E: From<Error>>(
        &self,
        message_id: &str,
        fingerprint: Fingerprint,
        handler: impl FnOnce(&mut Transaction<'_, '_>) -> std::result::Result<Response, E>,
    ) -> std::result::Result<Processed, E> {
        let message = self.message(message_id, fingerprint)?;
        message.check()?;
        // A duplicate needs no transaction.
        if let Some(told) = self.store.told_without_writing(&message)? {
            return Ok(known(told)?);
        }
        self.store.transaction(|tx| match tx.find(&message)? {
            Found::New(mark) => {
                let response = handler(tx)?;
                Ok(Processed::Done(tx.mark(&message, mark, response)?))
            }
            Found::Known(told) => Ok(known(told)?),
        })
    }

    /// The same with a typed response. The first delivery, too, is told the value as it will be replayed: ask
    /// [`Replay::response`] for it.
    ///
    /// # Errors
    /// As for [`process_raw`](Inbox::process_raw); [`Response`](crate::ErrorKind::Response) if the value cannot be
    /// written as JSON: nothing happened.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Processed, Store};
    /// # let store = Store::in_memory()?;
    /// let orders = store.inbox("acme", "orders")?;
    /// let processed = orders.process("m-1", Fingerprint::of_bytes(b"an order"), |_| Ok::<_, dupeproof::Error>(17))?;
    /// let Processed::Done(replay) = processed else { unreachable!() };
    /// assert_eq!(replay.response::<u32>()?, 17);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[cfg(feature = "json")]
    pub fn process<T: serde::Serialize, E: From<Error>>(
        &self,
        message_id: &str,
        fingerprint: Fingerprint,
        handler: impl FnOnce(&mut Transaction<'_, '_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<Processed, E> {
        self.process_raw(message_id, fingerprint, |tx| {
            let value = handler(tx)?;
            Ok(to_json(&value)?.into())
        })
    }

    /// Begins the handling of a message that has an external effect: answers as [`Store::begin`] does.
    ///
    /// # Errors
    /// Those of [`Store::begin`].
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Store};
    /// # let store = Store::in_memory()?;
    /// match store.inbox("acme", "orders")?.claim("m-1", Fingerprint::of_bytes(b"an order"))? {
    ///     Begin::Execute(claim) => { claim.succeed_raw("mailed")?; }
    ///     Begin::Replay(_) | Begin::Expired(_) => println!("handled before: acknowledge it"),
    ///     other => println!("leave it to a later delivery: {other:?}"),
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn claim(&self, message_id: &str, fingerprint: Fingerprint) -> Result<Begin> {
        self.store.begin(&self.message(message_id, fingerprint)?)
    }

    /// The same for a polled batch, in one commit: the answers are in the order of the messages, up to 1,000 of them.
    ///
    /// # Errors
    /// Those of [`Store::begin_many`].
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Store};
    /// # let store = Store::in_memory()?;
    /// let polled = [("m-1", Fingerprint::of_bytes(b"a")), ("m-2", Fingerprint::of_bytes(b"b"))];
    /// assert_eq!(store.inbox("acme", "orders")?.claim_many(&polled)?.len(), 2);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn claim_many(&self, messages: &[(&str, Fingerprint)]) -> Result<Vec<Begin>> {
        let messages = messages.iter().map(|(id, fingerprint)| self.message(id, fingerprint.clone()));
        self.store.begin_many(&messages.collect::<Result<Vec<_>>>()?)
    }

    /// What is recorded of a message. In the view, the operation is the source and the key is the id.
    ///
    /// # Errors
    /// As for [`Store::get`].
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// assert!(store.inbox("acme", "orders")?.get("m-1")?.is_none());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn get(&self, message_id: &str) -> Result<Option<OperationView>> {
        self.store.view_of(&self.identity(message_id)?)
    }

    /// Records a person's verdict on a message whose outcome is unknown, as [`Store::resolve`] does on an operation.
    ///
    /// # Errors
    /// Those of [`Store::resolve`].
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Decision, Fingerprint, Store, Verdict};
    /// # let store = Store::in_memory()?;
    /// let orders = store.inbox("acme", "orders")?;
    /// let Begin::Execute(claim) = orders.claim("m-1", Fingerprint::of_bytes(b"an order"))? else { unreachable!() };
    /// claim.give_up("the answer was lost")?;
    /// orders.resolve("m-1", Verdict::DidNotHappen, &Decision::new("jane", "looked it up"))?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn resolve(&self, message_id: &str, verdict: Verdict, decision: &Decision) -> Result<OperationView> {
        self.store.resolve(self.identity(message_id)?, verdict, decision)
    }

    fn identity(&self, message_id: &str) -> Result<Identity> {
        Identity::from_parts(Kind::Inbox, [&self.tenant, &self.source, message_id, ""], None)
    }
}

/// What was found at the beginning of a transaction.
enum Found {
    New(Mark),
    Known(Begin),
}

/// The grant of a message that is new: written once the handler is through, and in one with its settlement, so that
/// there is never one without the other.
struct Mark {
    begin: Event,
    token: Token,
}

impl Transaction<'_, '_> {
    /// Looks whether the message is new, and writes nothing.
    fn find(&mut self, message: &Operation) -> Result<Found> {
        let begin = message.begin_within();
        let event = begin.clone();
        match self.drive(|batch, moment| heard(batch.foresee(message.identity(), event, moment)))? {
            Answer::Granted(record, _) => Ok(Found::New(Mark { begin, token: record.token() })),
            known => turned_away(known, self.moment).map(Found::Known),
        }
    }

    fn mark(&mut self, message: &Operation, mark: Mark, response: Response) -> Result<Replay> {
        let response = response.admitted(ResponsePolicy::Store, self.store.response_bytes_max());
        let settlement = Settlement::Succeeded { response, reference: None };
        let target = || Target::Key(message.identity().clone());
        let steps = vec![
            Step { target: target(), event: mark.begin },
            Step { target: target(), event: Event::Settle(mark.token, settlement) },
        ];
        match self.drive(|batch, moment| heard(batch.drive(steps, moment, NOBODY)))?.pop() {
            Some(Answer::Accepted(record)) => replay_of(*record),
            _ => Err(odd_answer("a settlement that was neither accepted nor refused")),
        }
    }
}

fn known(told: Begin) -> Result<Processed> {
    Ok(match told {
        Begin::Replay(replay) => Processed::Duplicate(replay),
        Begin::InProgress(other) => Processed::InProgress(other),
        Begin::RetryLater(later) => Processed::RetryLater(later),
        Begin::Unknown(unknown) => Processed::Unknown(unknown),
        Begin::Conflict(conflict) => Processed::Conflict(conflict),
        Begin::Expired(expired) => Processed::Expired(expired),
        Begin::Execute(_) => return Err(odd_answer("a grant to somebody who was turned away")),
    })
}
