//! Orders go out over HTTP, whichever side is killed: the outbox delivers each at least once, and the receiver, who
//! dedupes by the message's id, acts exactly once.
//!
//! ```sh
//! cargo run --example outbox_http
//! ```
//!
//! Sender and receiver are processes of their own with a store each, and both die of SIGKILL, again and again. The
//! sender writes an order and its three messages in one commit and relays them. The receiver keeps the id of each
//! message and the change that it makes in one commit. At the end every order was booked as created, paid and shipped,
//! once each and in this order. Anything else makes this program fail.

#[path = "../webhooks/http.rs"]
mod http;
mod receiver;
mod sender;
mod stage;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use stage::{Actor, Dice};

type Fallible<T> = Result<T, Box<dyn Error>>;

const ORDERS: u64 = 100;
/// What is told of each order, in this order.
const EVENTS: [&str; 3] = ["created", "paid", "shipped"];
/// Deaths of each side.
const KILLS: u32 = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let played = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--receive-in", folder] => receiver::run(Path::new(folder)),
        ["--send-from", folder] => sender::run(Path::new(folder)),
        _ => direct(),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outbox_http: {error}");
            ExitCode::FAILURE
        }
    }
}

fn direct() -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let mut dice = Dice::fresh();
    let mut receiver = Actor::start("--receive-in", dir.path())?;
    stage::await_file(&dir.path().join("port"))?;
    let mut sender = Actor::start("--send-from", dir.path())?;
    for kill in 0..2 * KILLS {
        stage::pause(Duration::from_millis(20 + dice.below(120)));
        // A sender that is through lives no more.
        if kill % 2 == 0 {
            receiver.kill()?;
            receiver = Actor::start("--receive-in", dir.path())?;
        } else if sender.is_alive()? {
            sender.kill()?;
            sender = Actor::start("--send-from", dir.path())?;
        }
    }
    sender.finish()?;
    receiver.kill()?;
    let (booked, received) = receiver::booked(dir.path())?;
    let expected = ORDERS * EVENTS.len() as u64;
    println!("{expected} messages, received {received} times, booked {} times", booked.len());
    if booked.len() as u64 != expected {
        return Err("a message was booked twice or never".into());
    }
    for order in 0..ORDERS {
        let of_order: Vec<&str> =
            booked.iter().filter(|row| row.order == order).map(|row| row.event.as_str()).collect();
        if of_order != EVENTS {
            return Err(format!("order {order} was booked as {of_order:?}").into());
        }
    }
    println!("each once, and those of each order in their order");
    Ok(())
}
