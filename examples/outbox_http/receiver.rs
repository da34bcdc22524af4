//! The side that is told: it keeps each message's id and what the message changes in one commit.

use std::fs;
use std::path::Path;

use dupeproof::redb::{ReadableTable, ReadableTableMetadata, TableDefinition};
use dupeproof::{Fingerprint, Response, Store};

use crate::http::{self, Request, Server};
use crate::{Fallible, stage};

/// What was booked, in the order of booking: number, order and event.
const BOOKED: TableDefinition<'_, u64, (u64, &str)> = TableDefinition::new("booked");
/// Every delivery, repeats included.
const RECEIVED: TableDefinition<'_, &str, u64> = TableDefinition::new("received");

/// One row of the books.
pub(crate) struct Row {
    pub(crate) order: u64,
    pub(crate) event: String,
}

/// Receives until it is killed.
pub(crate) fn run(folder: &Path) -> Fallible<()> {
    let store = Store::open(folder.join("receiver.redb"))?;
    let server = Server::bind()?;
    // Under another name first, so that nobody reads half a number.
    fs::write(folder.join("port.new"), server.port()?.to_string())?;
    fs::rename(folder.join("port.new"), folder.join("port"))?;
    server.run(
        |request| receive(&store, request),
        |_| loop {
            stage::pause(std::time::Duration::from_secs(3600));
        },
    )
}

/// Where the receiver listens now.
pub(crate) fn port(folder: &Path) -> Fallible<u16> {
    Ok(fs::read_to_string(folder.join("port"))?.parse()?)
}

fn receive(store: &Store, request: &Request) -> Fallible<http::Response> {
    let id = request.header("Event-Id").ok_or("a delivery without an id")?;
    let body = String::from_utf8(request.body.clone())?;
    let (order, event) = body.split_once(' ').ok_or("a delivery without an order")?;
    let order: u64 = order.parse()?;
    count(store)?;
    let processed = store.inbox("acme", "orders")?.process_raw(id, Fingerprint::of_bytes(&request.body), |tx| {
        let mut booked = tx.open_table(BOOKED)?;
        let number = booked.len()?;
        booked.insert(number, (order, event))?;
        Fallible::Ok(Response::Absent)
    })?;
    let later = std::time::Duration::from_secs(1);
    Ok(if processed.may_acknowledge() { http::Response::new(200, "") } else { http::Response::later(later) })
}

fn count(store: &Store) -> Fallible<()> {
    store.transaction(|tx| {
        let mut received = tx.open_table(RECEIVED)?;
        let times = received.get("times")?.map_or(0, |times| times.value());
        received.insert("times", times + 1)?;
        Ok(())
    })
}

/// The books, and how often something was received.
pub(crate) fn booked(folder: &Path) -> Fallible<(Vec<Row>, u64)> {
    let store = Store::open(folder.join("receiver.redb"))?;
    store.transaction(|tx| {
        let booked = tx.open_table(BOOKED)?;
        let rows = booked.iter()?.map(|row| {
            let (_, row) = row?;
            let (order, event) = row.value();
            Fallible::Ok(Row { order, event: event.to_owned() })
        });
        let rows = rows.collect::<Fallible<Vec<_>>>()?;
        let received = tx.open_table(RECEIVED)?.get("times")?.map_or(0, |times| times.value());
        Ok((rows, received))
    })
}
