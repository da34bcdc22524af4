//! The gateway, and who publishes to it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dupeproof::redb::{ReadableTable, ReadableTableMetadata, TableDefinition};
use dupeproof::{Fingerprint, Response, Store};
use rumqttc::{Client, Connection, Event, MqttOptions, Packet, Publish, QoS};

use crate::{Fallible, MESSAGES, TOPIC, stage};

/// The business: how often each order was booked.
const BOOKED: TableDefinition<'_, &str, u64> = TableDefinition::new("booked");
/// Every delivery, repeats included.
const DELIVERED: TableDefinition<'_, &str, u64> = TableDefinition::new("delivered");
/// Requests that wait for the network. As many as MQTT has packet identifiers: whoever acknowledges on the thread that
/// drives the connection must never wait for a place in the queue.
const REQUESTS_MAX: usize = 65_535;

fn connect(folder: &Path, name: &str) -> Fallible<(Client, Connection)> {
    let port = fs::read_to_string(folder.join("port"))?.parse()?;
    let mut options = MqttOptions::new(name, "127.0.0.1", port);
    options.set_clean_session(false).set_manual_acks(true).set_keep_alive(Duration::from_secs(30));
    Ok(Client::new(options, REQUESTS_MAX))
}

/// Books orders until all are there.
pub(crate) fn consume(folder: &Path) -> Fallible<()> {
    let store = Store::open(folder.join("gateway.redb"))?;
    let (client, mut connection) = connect(folder, "gateway")?;
    client.subscribe(TOPIC, QoS::AtLeastOnce)?;
    for event in connection.iter() {
        match event {
            Ok(Event::Incoming(Packet::SubAck(_))) => fs::write(folder.join("subscribed"), "")?,
            Ok(Event::Incoming(Packet::Publish(publish))) => {
                let booked = book(&store, &publish)?;
                // Only what is committed is acknowledged.
                client.ack(&publish)?;
                if booked == MESSAGES {
                    return Ok(store.close()?);
                }
            }
            Ok(_) => {}
            // The broker is away. The next turn connects again, and it repeats what was not acknowledged.
            Err(_) => stage::pause(Duration::from_millis(20)),
        }
    }
    Err("the connection is over".into())
}

/// Books one order, once. Returns how many are booked.
fn book(store: &Store, publish: &Publish) -> Fallible<u64> {
    let id = std::str::from_utf8(&publish.payload)?;
    store.transaction(|tx| {
        let mut delivered = tx.open_table(DELIVERED)?;
        let times = delivered.get("times")?.map_or(0, |times| times.value());
        delivered.insert("times", times + 1)?;
        Fallible::Ok(())
    })?;
    let processed = store.inbox("acme", TOPIC)?.process_raw(id, Fingerprint::of_bytes(&publish.payload), |tx| {
        let mut booked = tx.open_table(BOOKED)?;
        let times = booked.get(id)?.map_or(0, |times| times.value());
        booked.insert(id, times + 1)?;
        Fallible::Ok(Response::Absent)
    })?;
    if !processed.may_acknowledge() {
        return Err(format!("{id}: {processed:?}").into());
    }
    store.transaction(|tx| Ok(tx.open_table(BOOKED)?.len()?))
}

/// Publishes all messages, one after the other, each until the broker has acknowledged it.
pub(crate) fn publish(folder: &Path) -> Fallible<()> {
    let (client, mut connection) = connect(folder, "publisher")?;
    for number in 0..MESSAGES {
        client.publish(TOPIC, QoS::AtLeastOnce, false, format!("order-{number}"))?;
        loop {
            match connection.iter().next() {
                Some(Ok(Event::Incoming(Packet::PubAck(_)))) => break,
                Some(Ok(_)) => {}
                // The broker is away. The next turn connects again and repeats what was not acknowledged.
                Some(Err(_)) => stage::pause(Duration::from_millis(20)),
                None => return Err("the connection is over".into()),
            }
        }
        stage::pause(Duration::from_millis(1));
    }
    Ok(())
}

/// How often each order was booked, and how many deliveries there were.
pub(crate) fn booked(folder: &Path) -> Fallible<(Vec<(String, u64)>, u64)> {
    let store = Store::open(folder.join("gateway.redb"))?;
    store.transaction(|tx| {
        let booked = tx.open_table(BOOKED)?;
        let rows = booked.iter()?.map(|row| row.map(|(id, times)| (id.value().to_owned(), times.value())));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let deliveries = tx.open_table(DELIVERED)?.get("times")?.map_or(0, |times| times.value());
        Ok((rows, deliveries))
    })
}
