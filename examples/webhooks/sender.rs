//! The sender: repeats every event until it is taken, from several threads at once.

use std::thread;
use std::time::Duration;

use crate::{Fallible, expect, http};

pub(crate) const EVENTS: usize = 40;
pub(crate) const SENDERS: usize = 8;

/// All senders deliver the same events at once, each in an order of its own. Every event has one answer.
pub(crate) fn deliver_all(port: u16) -> Fallible<Vec<Vec<u8>>> {
    let deliver_in_turn = |sender: usize| {
        let mut answers = vec![Vec::new(); EVENTS];
        for turn in 0..EVENTS {
            // 7 and 40 have no common divisor: every event once, in another order for each sender.
            let event = (turn * 7 + sender * 5) % EVENTS;
            answers[event] = deliver(port, &id(event), &order(event))?;
        }
        Fallible::Ok(answers)
    };
    let mut answers = thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS).map(|sender| scope.spawn(move || deliver_in_turn(sender))).collect();
        senders.into_iter().map(|sender| sender.join().map_err(|_| "a sender panicked")?).collect::<Fallible<Vec<_>>>()
    })?;
    answers.dedup();
    expect(answers.len() == 1, "the same answer to every delivery of an event")?;
    Ok(answers.remove(0))
}

/// Delivers an event until it is taken, as senders do, but with less patience than `Retry-After` asks for.
pub(crate) fn deliver(port: u16, event: &str, body: &str) -> Fallible<Vec<u8>> {
    const DELIVERIES_MAX: usize = 1000;
    const PAUSE: Duration = Duration::from_millis(5);

    for _ in 0..DELIVERIES_MAX {
        let response = http::post(port, event, body.as_bytes())?;
        match (response.status, response.retry_after_s) {
            (200, _) => return Ok(response.body),
            (503, Some(_)) => thread::park_timeout(PAUSE),
            (status, _) => return Err(format!("{event}: {status}, {}", String::from_utf8_lossy(&response.body)).into()),
        }
    }
    Err(format!("{event} was not taken in {DELIVERIES_MAX} deliveries").into())
}

pub(crate) fn id(event: usize) -> String {
    format!("evt_{event:03}")
}

pub(crate) fn order(event: usize) -> String {
    format!("order {event}")
}
