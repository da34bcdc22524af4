//! A trip of three bookings: the third one fails, and what was booked is cancelled. Cancellations succeed, are refused,
//! lose their answer, and are cut short by SIGKILL; people are told how it really stands.
//!
//! ```sh
//! cargo run --example saga                       # everything below
//! cargo run --example saga -- --case unknown     # one case
//! ```
//!
//! `--case all | ok | failed | unknown | killed | nothing-to-undo`.
//!
//! Airline, hotel and car rental are processes of their own with ledgers of their own. Nothing that happened there can
//! be rolled back: a cancellation is an operation of its own, under a key of its own. After each case the store is
//! opened again and everything is repeated a hundred times; the ledgers say that nothing was booked or cancelled twice.
//! Anything else makes this program fail.

// Services and killed workers are those of the `agent` example.
#[path = "../agent/service.rs"]
mod service;
#[path = "../agent/worker.rs"]
mod worker;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use dupeproof::{
    Claim, Failure, Finding, Fingerprint, Inquiry, Reconciler, Response, RunEntry, RunStatus, Store, Subject,
};

use service::{Answer, Client, Service};

type Fallible<T> = Result<T, Box<dyn Error>>;

const WORKFLOW: &str = "trip";
/// What is booked, in this order. Nobody has a car in any of these cases.
const BOOKINGS: [&str; 3] = ["flight", "hotel", "car"];
const REPEATS: usize = 100;

/// How the services behave, and what must come of it.
struct Case {
    name: &'static str,
    told: &'static str,
    /// A booking, and what its service refuses and what it does without an answer.
    odd: (&'static str, &'static str, &'static str),
    /// Where the worker is killed.
    last: &'static str,
    /// What the run is after the worker, and after everybody was asked who could know.
    found: RunStatus,
    ends: RunStatus,
    /// What is in the ledgers of airline and hotel in the end.
    effects: [&'static [&'static str]; 2],
}

const BOOKED: &[&str] = &["book"];
const UNDONE: &[&str] = &["book", "cancel"];

const CASES: [Case; 5] = [
    Case {
        name: "ok",
        told: "both bookings are cancelled",
        odd: ("-", "-", "-"),
        last: "never",
        found: RunStatus::Compensated,
        ends: RunStatus::Compensated,
        effects: [UNDONE, UNDONE],
    },
    Case {
        name: "failed",
        told: "the hotel is not refundable",
        odd: ("hotel", "cancel", "-"),
        last: "never",
        found: RunStatus::PartiallyCompensated,
        ends: RunStatus::PartiallyCompensated,
        effects: [UNDONE, BOOKED],
    },
    Case {
        name: "unknown",
        told: "the hotel cancels and hangs up",
        odd: ("hotel", "-", "cancel"),
        last: "never",
        found: RunStatus::CompensationUnknown,
        ends: RunStatus::Compensated,
        effects: [UNDONE, UNDONE],
    },
    Case {
        name: "killed",
        told: "killed between the hotel's cancellation and its record",
        odd: ("-", "-", "-"),
        last: "hotel:cancelled",
        found: RunStatus::CompensationUnknown,
        ends: RunStatus::Compensated,
        effects: [UNDONE, UNDONE],
    },
    Case {
        name: "nothing-to-undo",
        told: "no flight to be had",
        odd: ("flight", "book", "-"),
        last: "never",
        found: RunStatus::Failed,
        ends: RunStatus::Failed,
        effects: [&[], &[]],
    },
];

/// Books a trip, or cancels what was booked, and says how it stands. It can be called as often as one likes.
fn travel(store: &Store, trip: &str, clients: &[Client], reached: &dyn Fn(&str)) -> Fallible<RunStatus> {
    let workflow = store.workflow("acme", WORKFLOW)?;
    let run = match workflow.run(trip, Fingerprint::of_bytes(trip.as_bytes()))? {
        RunEntry::Run(run) => run,
        RunEntry::Compensating(run) => return cancel(&run, clients, reached),
        RunEntry::Replay(_) => {
            return Ok(workflow.find(trip)?.ok_or("the run is gone")?.summary.status);
        }
        other => return Err(format!("one version and one trip, and yet: {other:?}").into()),
    };
    for (booking, client) in BOOKINGS.iter().zip(clients) {
        let outcome = run.step_with_raw(*booking, Fingerprint::of_bytes(trip.as_bytes()), |claim| {
            perform(client, "book", claim, trip)
        })?;
        match outcome {
            dupeproof::Outcome::Succeeded(_) => {}
            dupeproof::Outcome::FailedTerminal(_) => return cancel(&run, clients, reached),
            other => return Err(format!("no such booking in this program: {other:?}").into()),
        }
    }
    run.finish_raw(trip)?;
    Ok(RunStatus::Succeeded)
}

/// Cancels what was booked, the last booking first.
fn cancel(run: &dupeproof::Run, clients: &[Client], reached: &dyn Fn(&str)) -> Fallible<RunStatus> {
    let view = run.compensate(|undo| {
        let booking = undo.step().name();
        let at = BOOKINGS.iter().position(|found| *found == booking);
        let client = at.and_then(|at| clients.get(at)).ok_or_else(|| Failure::terminal("no such booking"))?;
        let booked = undo.done().value().map_err(Failure::terminal)?;
        let done = perform(client, "cancel", undo.claim(), &String::from_utf8_lossy(booked));
        reached(&format!("{booking}:cancelled"));
        done
    })?;
    Ok(view.summary.status)
}

fn perform(client: &Client, verb: &str, claim: &Claim, what: &str) -> Result<Response, Failure> {
    match client.ask(verb, &claim.downstream_key(), what) {
        Ok(Answer::Done(name)) => Ok(name.into()),
        Ok(Answer::Refused(why)) => Err(Failure::terminal(why)),
        // The request may have arrived.
        Err(error) => Err(Failure::unknown(error)),
    }
}

/// Asks the services for bookings and cancellations of which nobody knows whether they happened.
fn reconciler(store: &Store, clients: &[Client]) -> Reconciler {
    BOOKINGS.iter().zip(clients).fold(store.reconciler(), |reconciler, (booking, client)| {
        let probe = |client: Client| {
            move |inquiry: &Inquiry| {
                let found = client.look_up(inquiry.downstream_key()).map_err(|error| error.to_string())?;
                Ok(found.map_or_else(Finding::did_not_happen, Finding::happened))
            }
        };
        reconciler
            .with_probe(Subject::step(WORKFLOW, *booking), probe(client.clone()))
            .with_probe(Subject::step(WORKFLOW, *booking).compensation(), probe(client.clone()))
    })
}

fn play(case: &Case) -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let (store_path, trip) = (dir.path().join("effects.redb"), "vienna");
    let start = |booking: &&str| match case.odd {
        (odd, refused, unanswered) if odd == *booking => Service::start(dir.path(), booking, refused, unanswered),
        _ if *booking == "car" => Service::start(dir.path(), booking, "book", "-"),
        _ => Service::start(dir.path(), booking, "-", "-"),
    };
    let services: Vec<Service> = BOOKINGS.iter().map(start).collect::<Fallible<_>>()?;
    let ports: Vec<u16> = services.iter().map(Service::port).collect();
    let clients: Vec<Client> = ports.iter().map(|port| Client::at(*port)).collect();
    let effects = || services.iter().map(Service::effects).collect::<Fallible<Vec<usize>>>();

    worker::run_and_kill(&store_path, trip, case.last, &ports)?;
    let store = Store::open(&store_path)?;
    let repeat = |expected: RunStatus| {
        for _ in 0..REPEATS {
            let status = travel(&store, trip, &clients, &|_| ())?;
            expect(status == expected, || format!("{expected}, found {status}"))?;
        }
        Fallible::Ok(())
    };
    let shown = store.workflow("acme", WORKFLOW)?.find(trip)?.ok_or("the run is gone")?.summary.status;
    expect(shown == case.found, || format!("{}, found {shown}", case.found))?;
    let mut story = format!("{shown}");
    if case.ends != case.found {
        let is_blocked = || format!("compensations in doubt are left alone, found {:?}", effects());
        // Killed, it had no chance to try the others: that is made up for, and nothing else.
        travel(&store, trip, &clients, &|_| ())?;
        let before = effects()?;
        repeat(case.found)?;
        expect(effects()? == before, is_blocked)?;
        let report = reconciler(&store, &clients).run_once(10)?;
        expect((report.asked, report.happened) == (1, 1), || format!("one that happened, found {report:?}"))?;
        story += " → the hotel has it in its books";
    }
    repeat(case.ends)?;
    story += &format!(" → {REPEATS} × {}", case.ends);

    let view = store.workflow("acme", WORKFLOW)?.find(trip)?.ok_or("the run is gone")?;
    for (service, expected) in services.iter().zip(case.effects) {
        expect(service.effects()? == expected.len(), || format!("{expected:?}, found {:?}", effects()))?;
    }
    for (step, (service, expected)) in view.steps.iter().zip(services.iter().zip(case.effects)) {
        let operations = [Some(&step.operation), step.operation.compensation.as_deref()];
        for (verb, operation) in expected.iter().zip(operations) {
            let operation = operation.ok_or("an effect that is not on record")?;
            let (name, done) = service.only_effect(&operation.downstream_key)?;
            expect(done.starts_with(verb), || format!("{verb} under its key, found {done}"))?;
            let is_on_record = operation.status == dupeproof::Status::Succeeded;
            expect(is_on_record, || format!("{name} on record as done, found {}", operation.status))?;
        }
    }
    store.close()?;
    println!("  --case {:<16} {}: {story}", case.name, case.told);
    Ok(())
}

fn expect(is_so: bool, what: impl FnOnce() -> String) -> Fallible<()> {
    if is_so { Ok(()) } else { Err(format!("BROKEN: expected {}", what()).into()) }
}

fn run(arguments: &[&str]) -> Fallible<()> {
    match arguments {
        ["service", ledger, name, refused, unanswered] => {
            return service::serve(Path::new(ledger), name, refused, unanswered);
        }
        ["worker", store, trip, last, ports @ ..] => {
            let clients = ports.iter().map(|port| port.parse().map(Client::at)).collect::<Result<Vec<_>, _>>()?;
            let store = Store::open(Path::new(store))?;
            travel(&store, trip, &clients, &|place| worker::reached(place, last))?;
            return Ok(store.close()?);
        }
        _ => {}
    }
    let chosen = match arguments {
        [] | ["--case", "all"] => "",
        ["--case", name] if CASES.iter().any(|case| case.name == *name) => name,
        other => {
            let names = CASES.map(|case| case.name).join(" | ");
            return Err(format!("{other:?}: expected --case all | {names}").into());
        }
    };
    for case in CASES.iter().filter(|case| chosen.is_empty() || case.name == chosen) {
        play(case).map_err(|error| format!("{}: {error}", case.name))?;
    }
    println!("Nothing was booked or cancelled twice.");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("saga: {error}");
            ExitCode::FAILURE
        }
    }
}
