//! A worker that pays invoices is killed at every step, and the provider's own ledger says how often it was charged.
//!
//! ```sh
//! cargo run --features json --example payment                     # every kill point, with both kinds of provider
//! cargo run --features json --example payment -- after-effect     # one of them
//! ```
//!
//! The provider and the worker are processes of their own; the worker dies of SIGKILL. After each kill the store is
//! opened again and the payment is asked for a hundred times. Exactly one charge is the result, or a clear "nobody
//! knows" until the provider was asked. Anything else makes this program fail.

mod processes;
mod provider;

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dupeproof::{Begin, Decision, Fingerprint, Operation, OperationKey, Remote, Reserve, Response, Store, Verdict};

use processes::{ProviderProcess, Stage, Worker};
use provider::Client;

pub(crate) type Fallible<T> = Result<T, Box<dyn Error>>;

const AMOUNT: u64 = 1200;
const REPEATS: usize = 100;

/// Where the worker is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforeReserve,
    AfterReserve,
    AfterStart,
    AfterEffect,
    AfterSettle,
}

impl Point {
    const ALL: [Self; 5] =
        [Self::BeforeReserve, Self::AfterReserve, Self::AfterStart, Self::AfterEffect, Self::AfterSettle];

    fn name(self) -> &'static str {
        match self {
            Self::BeforeReserve => "before-reserve",
            Self::AfterReserve => "after-reserve",
            Self::AfterStart => "after-start",
            Self::AfterEffect => "after-effect",
            Self::AfterSettle => "after-settle",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }
}

/// What the provider offers when an answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// It can be asked.
    Books,
    /// It drops a second charge under the same key.
    Dedupes,
}

impl Offer {
    const ALL: [Self; 2] = [Self::Books, Self::Dedupes];

    fn name(self) -> &'static str {
        match self {
            Self::Books => "can be asked",
            Self::Dedupes => "dedupes on our key",
        }
    }
}

/// What asking for the payment came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Paid {
    Receipt(String),
    NobodyKnows { downstream_key: String },
}

fn operation(invoice: &str, offer: Offer) -> Fallible<Operation> {
    let payload = format!("{AMOUNT} cents for {invoice}");
    let operation =
        Operation::new(OperationKey::new("acme", "charge", invoice)?, Fingerprint::of_bytes(payload.as_bytes()));
    Ok(match offer {
        Offer::Books => operation.with_remote(Remote::Queryable),
        Offer::Dedupes => operation.with_remote(Remote::DedupesOnKey { window: Duration::from_secs(3600) }),
    })
}

/// Pays an invoice once, however often it is called. `stage` is told each step, and may be the last to hear of it.
fn pay(store: &Store, invoice: &str, offer: Offer, provider: &Client, stage: &dyn Stage) -> Fallible<Paid> {
    let operation = operation(invoice, offer)?;
    stage.reached(Point::BeforeReserve)?;
    // Reserving first makes a crash before the start cost nothing. A re-send cannot be reserved, so there it is `begin`.
    let begin = match offer {
        Offer::Dedupes => store.begin(&operation)?,
        Offer::Books => match store.reserve(&operation)? {
            Reserve::Reserved(reservation) => {
                stage.reached(Point::AfterReserve)?;
                Begin::Execute(reservation.start()?)
            }
            Reserve::Replay(replay) => Begin::Replay(replay),
            Reserve::Unknown(unknown) => Begin::Unknown(unknown),
            other => return Err(format!("nobody else is paying, and yet: {other:?}").into()),
        },
    };
    match begin {
        Begin::Execute(claim) => {
            stage.reached(Point::AfterStart)?;
            match provider.charge(&claim.downstream_key(), AMOUNT) {
                Ok(charge) => {
                    stage.reached(Point::AfterEffect)?;
                    let receipt = format!("receipt for {charge}");
                    let replay = claim.with_external_reference(&charge).succeed_raw(receipt)?;
                    stage.reached(Point::AfterSettle)?;
                    Ok(Paid::Receipt(String::from_utf8(replay.value()?.to_vec())?))
                }
                // The request may have arrived: not "failed", but unknown.
                Err(error) => {
                    let unknown = claim.give_up(error)?;
                    Ok(Paid::NobodyKnows { downstream_key: unknown.downstream_key().to_owned() })
                }
            }
        }
        Begin::Replay(replay) => Ok(Paid::Receipt(String::from_utf8(replay.value()?.to_vec())?)),
        Begin::Unknown(unknown) => Ok(Paid::NobodyKnows { downstream_key: unknown.downstream_key().to_owned() }),
        other => Err(format!("nobody else is paying, and yet: {other:?}").into()),
    }
}

/// What a person does about an unknown outcome: looks at the provider's books, and says what is there.
fn ask_the_provider(store: &Store, invoice: &str, downstream_key: &str, provider: &Client) -> Fallible<&'static str> {
    let key = OperationKey::new("acme", "charge", invoice)?;
    let (verdict, reason, said) = match provider.look_up(downstream_key)? {
        Some(charge) => {
            let response = Response::from(format!("receipt for {charge}"));
            let verdict = Verdict::Happened { response, external_reference: Some(charge) };
            (verdict, "the charge is in the provider's books", "it happened")
        }
        None => (Verdict::DidNotHappen, "no such charge in the provider's books", "it did not happen"),
    };
    store.resolve(&key, verdict, &Decision::new("operator", reason))?;
    Ok(said)
}

/// Kills a worker at one point, opens the store again, and counts.
fn scene(dir: &Path, point: Point, offer: Offer) -> Fallible<Vec<String>> {
    let invoice = format!("invoice-{}", point.name());
    let (store_path, ledger) = (dir.join("effects.redb"), dir.join("ledger"));
    let provider = ProviderProcess::start(&ledger, offer)?;
    Worker::start(&store_path, &invoice, offer, provider.port())?.kill_at(point)?;

    let store = Store::open(&store_path)?;
    let client = Client::at(provider.port());
    let mut answers =
        (0..REPEATS).map(|_| pay(&store, &invoice, offer, &client, &())).collect::<Fallible<Vec<Paid>>>()?;
    answers.dedup();
    let [answer] = &answers[..] else {
        return Err(format!("{REPEATS} repeats had different answers: {answers:?}").into());
    };
    let mut story = vec![match answer {
        Paid::Receipt(receipt) => format!("{REPEATS} × {receipt}"),
        Paid::NobodyKnows { .. } => format!("{REPEATS} × nobody knows"),
    }];
    let may_be_unknown = offer == Offer::Books && matches!(point, Point::AfterStart | Point::AfterEffect);
    expect(may_be_unknown == matches!(answer, Paid::NobodyKnows { .. }), "unknown exactly where it must be")?;
    if let Paid::NobodyKnows { downstream_key } = answer {
        story.push(ask_the_provider(&store, &invoice, downstream_key, &client)?.to_owned());
        match pay(&store, &invoice, offer, &client, &())? {
            Paid::Receipt(receipt) => story.push(receipt),
            nobody_knows => return Err(format!("still {nobody_knows:?} after the provider was asked").into()),
        }
    }
    store.close()?;
    let charges = provider::charges(&ledger)?;
    expect(charges == 1, &format!("one charge, not {charges}"))?;
    story.push("1 charge".to_owned());
    Ok(story)
}

fn expect(is_so: bool, what: &str) -> Fallible<()> {
    if is_so { Ok(()) } else { Err(format!("broken: expected {what}").into()) }
}

fn play(points: &[Point]) -> Fallible<()> {
    for offer in Offer::ALL {
        println!("A provider that {}:", offer.name());
        for &point in points {
            if offer == Offer::Dedupes && point == Point::AfterReserve {
                continue;
            }
            let dir = tempfile::tempdir()?;
            let story = scene(dir.path(), point, offer).map_err(|error| format!("{}: {error}", point.name()))?;
            println!("  killed {:<15} {}", point.name(), story.join(" → "));
        }
    }
    Ok(())
}

fn run() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [provider::ROLE, ledger, offer] => provider::serve(Path::new(ledger), offer == "dedupes"),
        [processes::ROLE, store, invoice, offer, port] => processes::work(Path::new(store), invoice, offer, port),
        [] | ["all"] => play(&Point::ALL),
        [name] => match Point::named(name) {
            Some(point) => play(&[point]),
            None => {
                let names = Point::ALL.map(Point::name).join(" | ");
                Err(format!("{name} is no kill point: expected all | {names}").into())
            }
        },
        _ => Err("expected at most one kill point".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payment: {error}");
            ExitCode::FAILURE
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
