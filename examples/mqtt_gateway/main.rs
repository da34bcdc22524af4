//! A gateway that takes orders from a broker: 1,000 messages of QoS 1, a consumer that is killed ten times, a broker that
//! is restarted twice, and every order is booked once.
//!
//! ```sh
//! apt-get install mosquitto
//! cargo run --example mqtt_gateway
//! ```
//!
//! MQTT with QoS 1 delivers at least once. The gateway acknowledges by hand, and only what is committed: the id of the
//! message and the order that it books are one commit of the inbox. Killed before the commit, it is handed the message
//! again; killed between the commit and the acknowledgement too, and then it is a duplicate.
//!
//! The broker is mosquitto, on a loopback port, with a session that outlives the consumer (`clean_session` false). Where
//! it is not installed, this program says so and ends.

mod broker;
mod gateway;
#[path = "../outbox_http/stage.rs"]
mod stage;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use broker::Broker;
use stage::{Actor, Dice};

type Fallible<T> = Result<T, Box<dyn Error>>;

const TOPIC: &str = "orders";
const MESSAGES: u64 = 1000;
const KILLS: u32 = 10;
/// Before which kills the broker is restarted.
const RESTARTS: [u32; 2] = [3, 7];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let played = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--consume-in", folder] => gateway::consume(Path::new(folder)),
        ["--publish-from", folder] => gateway::publish(Path::new(folder)),
        _ => direct(),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mqtt_gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

fn direct() -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let Some(mut broker) = Broker::start(dir.path())? else {
        println!("SKIPPED: mosquitto is not installed (apt-get install mosquitto)");
        return Ok(());
    };
    let mut dice = Dice::fresh();
    let mut consumer = Actor::start("--consume-in", dir.path())?;
    // From here on the broker keeps for the consumer whatever is published.
    stage::await_file(&dir.path().join("subscribed"))?;
    let mut publisher = Actor::start("--publish-from", dir.path())?;
    let mut killed = 0;
    for kill in 0..KILLS {
        stage::pause(Duration::from_millis(50 + dice.below(150)));
        if RESTARTS.contains(&kill) {
            broker.restart()?;
        }
        if consumer.is_alive()? {
            consumer.kill()?;
            killed += 1;
            consumer = Actor::start("--consume-in", dir.path())?;
        }
    }
    publisher.finish()?;
    consumer.finish()?;
    let (booked, deliveries) = gateway::booked(dir.path())?;
    println!("{MESSAGES} messages, delivered {deliveries} times, to a consumer that was killed {killed} times");
    let twice = booked.iter().filter(|(_, times)| *times != 1).count();
    println!("{} orders booked, {twice} of them more than once", booked.len());
    if booked.len() as u64 == MESSAGES && twice == 0 {
        Ok(())
    } else {
        Err("an order was booked twice or never".into())
    }
}
