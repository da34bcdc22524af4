//! A worker that pays invoices is killed at every step, and the provider's own ledger says how often it was charged.
//!
//! ```sh
//! cargo run --example payment                                                    # everything below
//! cargo run --example payment -- --kill-at after-effect --remote dedupes         # one scene
//! ```
//!
//! `--kill-at all | none | before-reserve | after-reserve | after-start | after-effect | after-settle`,
//! `--remote all | opaque | dedupes`.
//!
//! Provider and worker are processes of their own; the worker dies of SIGKILL. After each kill the store is opened
//! again and the payment is asked for a hundred times. The result is one charge, or a clear "nobody knows" until the
//! provider's books were looked at. Anything else makes this program fail.

mod provider;
mod stage;

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use dupeproof::{
    Begin, Decision, Fingerprint, Operation, OperationKey, Remote, Replay, Reserve, Response, Store, Verdict,
};

use provider::Client;
use stage::{KillPoint, REMOTES, named};

type Fallible<T> = Result<T, Box<dyn Error>>;

const AMOUNT_CENTS: u64 = 1200;
const REPEATS: usize = 100;

/// What asking for a payment came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Paid {
    Receipt(String),
    NobodyKnows { downstream_key: String },
}

/// Pays an invoice once, however often it is called. `reached` hears of every step, and the worker may die there.
fn pay(store: &Store, invoice: &str, remote: Remote, provider: &Client, reached: &dyn Fn(KillPoint)) -> Fallible<Paid> {
    let payload = format!("{AMOUNT_CENTS} cents for {invoice}");
    let operation = Operation::new(key(invoice)?, Fingerprint::of_bytes(payload.as_bytes())).with_remote(remote);

    reached(KillPoint::BeforeReserve);
    // Reserved is not started: whoever dies here has certainly not charged, and the next caller may go on at once.
    // Without preparations to make in between, `begin` alone does both in one commit.
    let begin = match store.reserve(&operation)? {
        Reserve::Reserved(reservation) => {
            reached(KillPoint::AfterReserve);
            Begin::Execute(reservation.start()?)
        }
        Reserve::Replay(replay) => Begin::Replay(replay),
        // A second sending cannot be reserved. `begin` grants it if the provider dedupes; otherwise it is unknown
        // still.
        Reserve::Unknown(_) => store.begin(&operation)?,
        // With several workers, or payloads that change: `InProgress`, `RetryLater`, `Conflict`, `Expired`.
        other => return Err(format!("one worker and one payload, and yet: {other:?}").into()),
    };
    match begin {
        Begin::Execute(claim) => {
            reached(KillPoint::AfterStart);
            let charge = match provider.charge(&claim.downstream_key(), AMOUNT_CENTS) {
                Ok(charge) => charge,
                // The request may have arrived: not a failure, but unknown.
                Err(error) => {
                    let downstream_key = claim.give_up(error)?.downstream_key().to_owned();
                    return Ok(Paid::NobodyKnows { downstream_key });
                }
            };
            reached(KillPoint::AfterEffect);
            let receipt = format!("receipt for {charge}");
            let replay = claim.with_external_reference(&charge).succeed_raw(receipt)?;
            reached(KillPoint::AfterSettle);
            receipt_of(&replay)
        }
        Begin::Replay(replay) => receipt_of(&replay),
        Begin::Unknown(unknown) => Ok(Paid::NobodyKnows { downstream_key: unknown.downstream_key().to_owned() }),
        other => Err(format!("one worker and one payload, and yet: {other:?}").into()),
    }
}

/// What the operator does about an unknown outcome: looks into the provider's books, and records what is there.
fn look_into(store: &Store, invoice: &str, downstream_key: &str, provider: &Client) -> Fallible<&'static str> {
    let (verdict, reason) = match provider.look_up(downstream_key)? {
        Some(charge) => {
            let response = Response::from(format!("receipt for {charge}"));
            (Verdict::Happened { response, external_reference: Some(charge) }, "it is in the provider's books")
        }
        None => (Verdict::DidNotHappen, "it is not in the provider's books"),
    };
    store.resolve(&key(invoice)?, verdict, &Decision::new("operator", reason))?;
    Ok(reason)
}

fn key(invoice: &str) -> dupeproof::Result<OperationKey> {
    OperationKey::new("acme", "charge", invoice)
}

fn receipt_of(replay: &Replay) -> Fallible<Paid> {
    Ok(Paid::Receipt(String::from_utf8(replay.value()?.to_vec())?))
}

/// Kills a worker at one point, opens the store again, and counts.
fn scene(dir: &Path, point: KillPoint, remote: Remote, port: u16) -> Fallible<String> {
    let (store_path, ledger, client) = (dir.join("effects.redb"), dir.join("ledger"), Client::at(port));
    let invoice = format!("invoice-{point}");
    stage::run_worker(&store_path, &invoice, remote, port, point)?;

    let charged_by_worker = provider::ledger(&ledger)?.len();
    let store = Store::open(&store_path)?;
    let ask_often = || {
        let answer = pay(&store, &invoice, remote, &client, &|_| ())?;
        for _ in 1..REPEATS {
            let repeated = pay(&store, &invoice, remote, &client, &|_| ())?;
            expect(repeated == answer, || format!("{answer:?} for every repeat, found {repeated:?}"))?;
        }
        Fallible::Ok(answer)
    };
    let mut answer = ask_often()?;
    let mut story = format!("{REPEATS} × {answer}");

    let may_be_unknown = remote == Remote::Opaque && point.is_between_start_and_settlement();
    let is_unknown = matches!(answer, Paid::NobodyKnows { .. });
    expect(is_unknown == may_be_unknown, || format!("unknown to be {may_be_unknown}, found {answer}"))?;
    if let Paid::NobodyKnows { downstream_key } = &answer {
        let charged = provider::ledger(&ledger)?.len();
        expect(charged == charged_by_worker, || "nothing charged while nobody knew".to_owned())?;
        story += &format!(" → operator: {}", look_into(&store, &invoice, downstream_key, &client)?);
        answer = ask_often()?;
        story += &format!(" → {REPEATS} × {answer}");
    }

    let view = store.get(&key(&invoice)?)?.ok_or("the record is gone")?;
    let charges = provider::charges_under(&ledger, &view.downstream_key)?;
    expect(charges.len() == 1, || format!("one charge, found {charges:?}"))?;
    expect(answer == Paid::Receipt(format!("receipt for {}", charges[0])), || format!("its receipt, found {answer}"))?;
    expect(view.external_reference.as_ref() == charges.first(), || "its reference on record".to_owned())?;
    let attempts = point.attempts(remote);
    expect(view.attempts == attempts, || format!("{attempts} attempts, found {}", view.attempts))?;
    store.close()?;
    Ok(format!("{story} → attempts: {attempts}, charges: 1"))
}

/// All scenes with one provider share a store and a ledger: each kill must leave the other invoices alone.
fn play(points: &[KillPoint], name: &str, remote: Remote) -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let ledger = dir.path().join("ledger");
    let provider = stage::Provider::start(&ledger, remote)?;
    println!("--remote {name}");
    for &point in points {
        let told = scene(dir.path(), point, remote, provider.port());
        println!("  --kill-at {:<15} {}", point.name(), told.map_err(|error| format!("{name}, {point}: {error}"))?);
    }
    let charged = provider::ledger(&ledger)?.len();
    expect(charged == points.len(), || format!("{} charges in the ledger, found {charged}", points.len()))
}

fn expect(is_so: bool, what: impl FnOnce() -> String) -> Fallible<()> {
    if is_so { Ok(()) } else { Err(format!("BROKEN: expected {}", what()).into()) }
}

fn run(arguments: &[&str]) -> Fallible<()> {
    match arguments {
        ["provider", ledger, remote] => return provider::serve(Path::new(ledger), named(&REMOTES, remote)?),
        ["worker", store, invoice, remote, port, point] => {
            return stage::work(Path::new(store), invoice, named(&REMOTES, remote)?, port.parse()?, point);
        }
        _ => {}
    }
    let (mut points, mut remotes) = (KillPoint::ALL.to_vec(), REMOTES.to_vec());
    for option in arguments.chunks(2) {
        match option {
            ["--kill-at" | "--remote", "all"] => {}
            ["--kill-at", name] => points = vec![named(&KillPoint::ALL.map(|point| (point.name(), point)), name)?],
            ["--remote", name] => remotes = vec![(*name, named(&REMOTES, name)?)],
            other => return Err(format!("{other:?}: expected --kill-at POINT or --remote KIND").into()),
        }
    }
    remotes.iter().try_for_each(|&(name, remote)| play(&points, name, remote))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payment: {error}");
            ExitCode::FAILURE
        }
    }
}

impl fmt::Display for Paid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receipt(receipt) => f.write_str(receipt),
            Self::NobodyKnows { .. } => f.write_str("nobody knows"),
        }
    }
}
