//! The side that tells: an order and its messages in one commit, and a relay.

use std::path::Path;
use std::time::Duration;

use dupeproof::redb::TableDefinition;
use dupeproof::{Backoff, Delivery, DeliveryError, Message, Store};

use crate::{EVENTS, Fallible, ORDERS, http, receiver, stage};

/// The application's own table, in the same file.
const ORDERS_TABLE: TableDefinition<'_, u64, &str> = TableDefinition::new("orders");

/// Takes orders until there are enough, and relays until everything is delivered.
pub(crate) fn run(folder: &Path) -> Fallible<()> {
    let store = Store::open(folder.join("sender.redb"))?;
    // An attempt that fails is tried again soon: the receiver is about to come back.
    let relay = store
        .outbox()
        .relay()
        .with_batch(10)
        .with_attempts(1000)
        .with_backoff(Backoff::exponential(Duration::from_millis(20), Duration::from_millis(100)));
    let mut order = taken(&store)?;
    loop {
        if order < ORDERS {
            take(&store, order)?;
            order += 1;
        }
        relay.run_once(|message| deliver(folder, message))?;
        let stats = store.stats()?.outbox;
        if order == ORDERS && stats.pending + stats.in_flight == 0 {
            return if stats.dead == 0 { Ok(store.close()?) } else { Err("there are dead letters".into()) };
        }
        if order == ORDERS {
            stage::pause(Duration::from_millis(5));
        }
    }
}

/// How many orders there are: where a sender that was killed goes on.
fn taken(store: &Store) -> Fallible<u64> {
    store.transaction(|tx| {
        let orders = tx.open_table(ORDERS_TABLE)?;
        Ok(dupeproof::redb::ReadableTableMetadata::len(&orders)?)
    })
}

fn take(store: &Store, order: u64) -> Fallible<()> {
    let messages = EVENTS.map(|event| {
        let id = format!("order-{order}/{event}");
        Message::new(id, "orders", event).with_lane(format!("order-{order}")).with_header("order", order.to_string())
    });
    store.transaction(|tx| {
        tx.open_table(ORDERS_TABLE)?.insert(order, "new")?;
        tx.outbox().send_many(&messages)?;
        Ok(())
    })
}

/// At least once: a sender that dies after the answer and before its mark sends again, under the same id.
fn deliver(folder: &Path, message: &Delivery) -> Result<(), DeliveryError> {
    let body =
        format!("{} {}", message.header("order").unwrap_or_default(), String::from_utf8_lossy(message.payload()));
    let answer = receiver::port(folder).and_then(|port| http::post(port, message.id(), body.as_bytes()));
    match answer {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => Err(DeliveryError::new(format_args!("the receiver answers with {}", answer.status))),
        Err(error) => Err(DeliveryError::new(error)),
    }
}
