//! A webhook receiver whose sender delivers twice, at once, out of order, again after a restart, and altered: one
//! effect an event.
//!
//! ```sh
//! cargo run --example webhooks
//! ```
//!
//! The receiver is an HTTP server on loopback. Its effects are lines in a file that nothing is ever removed from. The
//! answers and the lines are counted; one too many or too few makes this program fail.

mod http;
mod sender;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use dupeproof::{Begin, Decision, Fingerprint, Operation, OperationKey, Retry, Store, Verdict};

use http::{Request, Response, Server};
use sender::{EVENTS, SENDERS, deliver, deliver_all, id, order};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What the receiver needs for its work.
struct Shop {
    store: Store,
    effects: PathBuf,
    port: u16,
}

impl Shop {
    /// One delivery. The sender repeats whatever is answered with 5xx, and gives up after 4xx.
    fn receive(&self, request: &Request) -> Fallible<Response> {
        let Some(Ok(key)) = request.header("Event-Id").map(key) else {
            return Ok(Response::new(400, "a proper Event-Id is expected"));
        };
        let operation = Operation::new(key, Fingerprint::of_bytes(&request.body));
        Ok(match self.store.begin(&operation)? {
            Begin::Execute(claim) => match self.ship(claim.key().key(), &request.body, claim.attempt()) {
                Ok(parcel) => Response::new(200, claim.with_external_reference(&parcel).succeed_raw(parcel)?.value()?),
                Err(NotShipped::OutOfBoxes) => {
                    claim.fail_retryable("out of boxes", Retry::now())?;
                    Response::later(Duration::ZERO)
                }
                Err(NotShipped::Unclear(error)) => {
                    claim.give_up(error)?;
                    Response::new(500, "somebody will look into it")
                }
            },
            Begin::Replay(replay) => Response::new(200, replay.value()?),
            Begin::Expired(_) => Response::new(200, "done long ago"),
            Begin::InProgress(_) => Response::later(Duration::from_secs(1)),
            Begin::RetryLater(later) => Response::later(later.wait()),
            Begin::Unknown(_) => Response::new(500, "somebody will look into it"),
            Begin::Conflict(_) => Response::new(422, "another body under the same Event-Id"),
        })
    }

    /// The effect: a parcel leaves the house, one line each. Three events have a story of their own.
    fn ship(&self, event: &str, order: &[u8], attempt: u32) -> Result<String, NotShipped> {
        if event == FRAGILE && attempt == 1 {
            return Err(NotShipped::OutOfBoxes);
        }
        if event == HASTY {
            // The sender does not wait for its answer: the same event comes again while this one is handled.
            http::post(self.port, event, order).map_err(NotShipped::Unclear)?;
        }
        append(&self.effects, &format!("{event} {}\n", String::from_utf8_lossy(order))).map_err(NotShipped::Unclear)?;
        if event == LOST {
            return Err(NotShipped::Unclear("the warehouse hung up".into()));
        }
        Ok(format!("parcel for {event}"))
    }
}

enum NotShipped {
    /// Nothing happened.
    OutOfBoxes,
    /// It may have happened.
    Unclear(Box<dyn Error + Send + Sync>),
}

/// The sender is the tenant, and its own id of the event is the key: the same on every delivery of that event, and on
/// no other's. The body is not part of it, so that an altered one is noticed.
fn key(event: &str) -> dupeproof::Result<OperationKey> {
    OperationKey::new("shop.example", "webhook.order-paid", event)
}

/// What a person does about an unknown outcome: looks what left the house, and records it.
fn look_into(dir: &Path, event: &str) -> Fallible<()> {
    let left_the_house = effects(dir)?.iter().any(|line| line.split(' ').next() == Some(event));
    let verdict = if left_the_house {
        let parcel = format!("parcel for {event}");
        Verdict::Happened { response: parcel.as_str().into(), external_reference: Some(parcel) }
    } else {
        Verdict::DidNotHappen
    };
    let store = Store::open(store_path(dir))?;
    store.resolve(&key(event)?, verdict, &Decision::new("operator", "the warehouse's own list"))?;
    Ok(store.close()?)
}

/// Its first attempt fails before anything happened.
const FRAGILE: &str = "evt_fragile";
/// Is delivered again while it is handled.
const HASTY: &str = "evt_hasty";
/// Is done, and its handler does not hear so.
const LOST: &str = "evt_lost";
const ORDER: &str = "one umbrella";

fn run() -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let dir = dir.path();
    println!(
        "{:<48}{:>6}{:>6}{:>6}{:>6}{:>9}",
        "every scene opens the receiver's store anew", 200, 422, 500, 503, "effects"
    );
    let all = EVENTS * SENDERS;

    let (first, counts) = scene(dir, &format!("{EVENTS} events, {SENDERS} senders at once, reordered"), deliver_all)?;
    // How many came while their event was handled, only the scheduler knows.
    let told_to_wait = counts.of(503);
    expect(counts.are(&[(200, all), (503, told_to_wait)], EVENTS), "every delivery taken, one effect an event")?;

    let (again, counts) = scene(dir, "all of them again after a restart", deliver_all)?;
    expect(counts.are(&[(200, all)], EVENTS), "every delivery taken at once")?;
    expect(again == first, "the same bodies as the first time")?;

    let altered = |port| (0..EVENTS).try_for_each(|event| http::post(port, &id(event), b"another order").map(drop));
    let ((), counts) = scene(dir, "all of them with another body", altered)?;
    expect(counts.are(&[(422, EVENTS)], EVENTS), "every altered delivery refused")?;

    let (taken, counts) = scene(dir, "one that fails at first", |port| deliver(port, FRAGILE, ORDER))?;
    expect(
        counts.are(&[(503, 1), (200, 1)], EVENTS + 1) && taken == b"parcel for evt_fragile",
        "refused once, then taken",
    )?;

    let (_, counts) = scene(dir, "one delivered again while it is handled", |port| deliver(port, HASTY, ORDER))?;
    expect(counts.are(&[(503, 1), (200, 1)], EVENTS + 2), "the second delivery told to come later")?;

    let thrice = |port| (0..3).try_for_each(|_| http::post(port, LOST, ORDER.as_bytes()).map(drop));
    let ((), counts) = scene(dir, "one of unknown outcome, three times", thrice)?;
    expect(counts.are(&[(500, 3)], EVENTS + 3), "nobody to know, and nobody to try again")?;
    look_into(dir, LOST)?;
    let (taken, counts) = scene(dir, "the same after the operator's look", |port| deliver(port, LOST, ORDER))?;
    expect(counts.are(&[(200, 1)], EVENTS + 3) && taken == b"parcel for evt_lost", "the operator's word")?;

    let mut found = effects(dir)?;
    found.sort_unstable();
    let mut expected: Vec<String> = (0..EVENTS).map(|event| format!("{} {}", id(event), order(event))).collect();
    expected.extend([FRAGILE, HASTY, LOST].map(|event| format!("{event} {ORDER}")));
    expect(found == expected, &format!("one effect an event, found {found:#?}"))?;
    println!("{} events, {} effects, one each", expected.len(), found.len());
    Ok(())
}

/// A receiver that runs while the senders send. Counts and prints what it answered.
fn scene<T>(dir: &Path, name: &str, senders: impl FnOnce(u16) -> Fallible<T>) -> Fallible<(T, Counts)> {
    let server = Server::bind()?;
    let shop = Shop { store: Store::open(store_path(dir))?, effects: dir.join("effects"), port: server.port()? };
    let counts = Mutex::new(BTreeMap::new());
    let counted = |request: &Request| {
        let response = shop.receive(request)?;
        *counts.lock().map_err(|_| "a handler panicked")?.entry(response.status).or_default() += 1;
        Ok(response)
    };
    let sent = server.run(counted, senders)?;
    shop.store.close()?;
    let counts = Counts { answers: counts.into_inner()?, effects: effects(dir)?.len() };
    let [taken, refused, unknown, later] = [200, 422, 500, 503].map(|status| counts.of(status));
    println!("{name:<48}{taken:>6}{refused:>6}{unknown:>6}{later:>6}{:>9}", counts.effects);
    Ok((sent, counts))
}

/// How often the receiver answered with which status, and how many effects there are since the beginning.
struct Counts {
    answers: BTreeMap<u16, usize>,
    effects: usize,
}

impl Counts {
    fn of(&self, status: u16) -> usize {
        self.answers.get(&status).copied().unwrap_or_default()
    }

    fn are(&self, answers: &[(u16, usize)], effects: usize) -> bool {
        let answers = answers.iter().copied().filter(|(_, n)| *n > 0).collect();
        self.answers == answers && self.effects == effects
    }
}

fn store_path(dir: &Path) -> PathBuf {
    dir.join("inbox.redb")
}

fn append(path: &Path, line: &str) -> Fallible<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(line.as_bytes())?;
    Ok(file.sync_all()?)
}

fn effects(dir: &Path) -> Fallible<Vec<String>> {
    Ok(fs::read_to_string(dir.join("effects"))?.lines().map(str::to_owned).collect())
}

fn expect(is_so: bool, what: &str) -> Fallible<()> {
    if is_so { Ok(()) } else { Err(format!("BROKEN: expected {what}").into()) }
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
