//! A webhook receiver whose sender delivers twice, at once, out of order, again after a restart, and altered: one effect
//! an event.
//!
//! ```sh
//! cargo run --features json --example webhooks
//! ```
//!
//! The receiver is an HTTP server on loopback. Its effects are lines in a file that nothing is ever removed from; the
//! sender counts them at the end, and anything but one line an event makes this program fail.

mod http;

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Retry, Store};

use http::{Request, Response, Server};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const EVENTS: usize = 40;
const SENDERS: usize = 8;
/// The event whose first delivery fails before anything happened.
const FRAGILE: usize = 7;

/// What the receiver needs for its work.
struct Shop {
    store: Store,
    effects: PathBuf,
    attempts_at_fragile: AtomicU32,
}

impl Shop {
    fn open(dir: &Path) -> Fallible<Self> {
        let store = Store::open(dir.join("inbox.redb"))?;
        Ok(Self { store, effects: dir.join("effects"), attempts_at_fragile: AtomicU32::new(0) })
    }

    /// One delivery. The sender repeats whatever is not answered with 2xx, and gives up after 422.
    fn receive(&self, request: &Request) -> Fallible<Response> {
        let Some(event) = request.header("Event-Id") else {
            return Ok(Response::new(400, "an Event-Id is expected"));
        };
        // The sender's own id of the event is the key: the same on every delivery of it, and of no other event.
        let Ok(key) = OperationKey::new("shop.example", "order-paid", event) else {
            return Ok(Response::new(400, "the Event-Id is not one"));
        };
        let operation = Operation::new(key, Fingerprint::of_bytes(&request.body));
        Ok(match self.store.begin(&operation)? {
            Begin::Execute(claim) => match self.ship(event, &request.body) {
                Ok(parcel) => Response::new(200, claim.with_external_reference(&parcel).succeed_raw(parcel)?.value()?),
                Err(NotShipped::OutOfBoxes) => {
                    claim.fail_retryable("out of boxes", Retry::now())?;
                    Response::new(503, "later")
                }
                Err(NotShipped::Unclear(error)) => {
                    claim.give_up(error)?;
                    Response::new(500, "somebody will look at it")
                }
            },
            Begin::Replay(replay) => Response::new(200, replay.value()?),
            Begin::Expired(_) => Response::new(200, "done long ago"),
            Begin::InProgress(_) | Begin::RetryLater(_) => Response::new(503, "later"),
            Begin::Unknown(_) => Response::new(500, "somebody will look at it"),
            Begin::Conflict(_) => Response::new(422, "another body under the same Event-Id"),
        })
    }

    /// The effect: a parcel leaves the house. One line each.
    fn ship(&self, event: &str, order: &[u8]) -> Result<String, NotShipped> {
        if event == event_id(FRAGILE) && self.attempts_at_fragile.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(NotShipped::OutOfBoxes);
        }
        let line = format!("{event} {}\n", String::from_utf8_lossy(order));
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).open(&self.effects)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        write().map_err(NotShipped::Unclear)?;
        Ok(format!("parcel for {event}"))
    }
}

enum NotShipped {
    /// Nothing happened.
    OutOfBoxes,
    /// It may have happened.
    Unclear(std::io::Error),
}

fn event_id(event: usize) -> String {
    format!("evt_{event:03}")
}

fn body(event: usize) -> String {
    format!("order {event}")
}

/// Delivers an event until it is taken, as senders do. Returns what the receiver answered.
fn deliver(port: u16, event: usize, body: &str) -> Fallible<Response> {
    const DELIVERIES_MAX: usize = 200;
    const PAUSE: Duration = Duration::from_millis(5);

    for _ in 0..DELIVERIES_MAX {
        let response = http::post(port, &event_id(event), body.as_bytes())?;
        match response.status {
            200 | 422 => return Ok(response),
            503 => thread::park_timeout(PAUSE),
            other => return Err(format!("{}: {other} {:?}", event_id(event), response.text()).into()),
        }
    }
    Err(format!("{} was not taken in {DELIVERIES_MAX} deliveries", event_id(event)).into())
}

/// Runs a receiver on the store in `dir` while `senders` send.
fn with_receiver<T>(dir: &Path, senders: impl FnOnce(u16) -> Fallible<T>) -> Fallible<T> {
    let shop = Shop::open(dir)?;
    let server = Server::bind()?;
    let sent = server.run(|request| shop.receive(request), senders)?;
    shop.store.close()?;
    Ok(sent)
}

/// All senders deliver the same events at once, each in an order of its own. Every event has one answer.
fn deliver_all_at_once(port: u16) -> Fallible<Vec<Vec<u8>>> {
    let answers = thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn(move || {
                    let mut answers = vec![Vec::new(); EVENTS];
                    for turn in 0..EVENTS {
                        // 7 and 40 have no common divisor: every event once, in another order for each sender.
                        let event = (turn * 7 + sender * 5) % EVENTS;
                        answers[event] = deliver(port, event, &body(event))?.body;
                    }
                    Fallible::Ok(answers)
                })
            })
            .collect();
        senders.into_iter().map(|sender| sender.join().map_err(|_| "a sender panicked")?).collect::<Fallible<Vec<_>>>()
    })?;
    expect(answers.windows(2).all(|pair| pair[0] == pair[1]), "the same answer to every delivery of an event")?;
    answers.into_iter().next().ok_or_else(|| "nobody sent".into())
}

fn expect(is_so: bool, what: &str) -> Fallible<()> {
    if is_so { Ok(()) } else { Err(format!("broken: expected {what}").into()) }
}

fn run() -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let dir = dir.path();

    let first = with_receiver(dir, deliver_all_at_once)?;
    println!("{EVENTS} events × {SENDERS} senders at once, reordered   {EVENTS} answers");

    let again = with_receiver(dir, deliver_all_at_once)?;
    expect(again == first, "the same answers after a restart")?;
    println!("all of them again after a restart          the same answers");

    let refused = with_receiver(dir, |port| {
        (0..EVENTS).map(|event| Ok(deliver(port, event, "another order")?.status)).collect::<Fallible<Vec<u16>>>()
    })?;
    expect(refused.iter().all(|status| *status == 422), "every altered delivery refused")?;
    println!("all of them with another body              refused");

    let effects = fs::read_to_string(dir.join("effects"))?;
    let mut lines: Vec<&str> = effects.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..EVENTS).map(|event| format!("{} {}", event_id(event), body(event))).collect();
    expect(lines == expected, &format!("one effect an event, found {lines:?}"))?;
    println!("effects                                    {} for {EVENTS} events", lines.len());
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("webhooks: {error}");
            ExitCode::FAILURE
        }
    }
}
