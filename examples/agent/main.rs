//! An agent asks a model what to do and does it with four other services. It is killed at every boundary of every step.
//!
//! ```sh
//! cargo run --example agent                                  # sixteen runs, fifteen kills
//! cargo run --example agent -- --kill-at charge:performed    # one of them
//! ```
//!
//! `--kill-at all | never | STEP:begun | STEP:performed | STEP:recorded`, where STEP is `decide`, `reserve`, `charge`,
//! `publish` or `mail`.
//!
//! A model that is asked twice decides twice: so its answer is recorded like any other effect, and what was decided is
//! what is charged, published and mailed. Model, warehouse, bank, site and post office are processes of their own with
//! ledgers of their own. After each kill the store is opened again and the agent is started a hundred times; where nobody
//! knows whether a step happened, none of them does anything, until the service was asked. In the end there is one line
//! for the run in each of the five ledgers. Anything else makes this program fail.

mod service;
mod worker;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use dupeproof::{
    Begin, Finding, Fingerprint, Inquiry, Reconciler, Replay, RunEntry, RunStatus, RunView, Store, Subject,
};

use service::{Answer, Client, Service};

type Fallible<T> = Result<T, Box<dyn Error>>;

const WORKFLOW: &str = "restock";
/// Changed with the steps: a run that was begun by another version is reported, not resumed as if nothing had happened.
const VERSION: &[u8] = b"restock 1";
/// Each step, and who does it.
const STEPS: [(&str, &str); 5] =
    [("decide", "model"), ("reserve", "warehouse"), ("charge", "bank"), ("publish", "site"), ("mail", "post")];
const PLACES: [&str; 3] = ["begun", "performed", "recorded"];
const REPEATS: usize = 100;

/// What starting the agent came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    Done(String),
    /// Nobody knows whether this step happened.
    Blocked(String),
}

/// One run of the agent, and everybody it talks to, in the order of [`STEPS`].
struct Agent<'a> {
    run: dupeproof::Run,
    clients: &'a [Client],
    reached: &'a dyn Fn(&str, &str),
}

/// Works on an order until it is done, however often it is called. `reached` hears of every boundary.
fn work(store: &Store, order: &str, clients: &[Client], reached: &dyn Fn(&str, &str)) -> Fallible<Told> {
    let workflow = store.workflow("acme", WORKFLOW)?.with_definition_fingerprint(Fingerprint::of_bytes(VERSION));
    let run = match workflow.run(order, Fingerprint::of_bytes(order.as_bytes()))? {
        RunEntry::Run(run) => run,
        RunEntry::Replay(replay) => return Ok(Told::Done(text(&replay)?)),
        // With several releases, orders that change, or runs that are given up: `DefinitionChanged`, `Conflict`, …
        other => return Err(format!("one version and one order, and yet: {other:?}").into()),
    };
    let agent = Agent { run, clients, reached };
    let mut known = order.to_owned();
    for (step, _) in STEPS {
        match agent.take(step, &known)? {
            // Each step knows what the ones before it came to, and its fingerprint says so.
            Told::Done(result) => known = format!("{known} {result}"),
            blocked @ Told::Blocked(_) => return Ok(blocked),
        }
    }
    agent.run.finish_raw(known.as_str())?;
    Ok(Told::Done(known))
}

impl Agent<'_> {
    fn take(&self, step: &str, known: &str) -> Fallible<Told> {
        match self.run.step(step, Fingerprint::of_bytes(known.as_bytes()))? {
            Begin::Execute(claim) => {
                (self.reached)(step, "begun");
                let answer = self.client(step)?.ask(step, &claim.downstream_key(), known);
                (self.reached)(step, "performed");
                let result = match answer {
                    Ok(Answer::Done(result)) => result,
                    Ok(Answer::Refused(why)) => {
                        claim.fail_terminal(&why)?;
                        return Err(format!("{step}: {why}").into());
                    }
                    // The request may have arrived: not a failure, but unknown.
                    Err(error) => {
                        claim.give_up(error)?;
                        return Ok(Told::Blocked(step.to_owned()));
                    }
                };
                let replay = claim.with_external_reference(&result).succeed_raw(result.as_str())?;
                (self.reached)(step, "recorded");
                Ok(Told::Done(text(&replay)?))
            }
            Begin::Replay(replay) => Ok(Told::Done(text(&replay)?)),
            Begin::Unknown(unknown) => {
                let step = unknown.identity().step_key().map(ToString::to_string);
                Ok(Told::Blocked(step.unwrap_or_default()))
            }
            other => Err(format!("one worker and one payload, and yet: {other:?}").into()),
        }
    }

    fn client(&self, step: &str) -> Fallible<&Client> {
        let at = STEPS.iter().position(|(found, _)| *found == step);
        Ok(at.and_then(|at| self.clients.get(at)).ok_or("no such step")?)
    }
}

/// Finds out what became of a step by asking the service that does it, under the key that the service was given.
fn reconciler(store: &Store, clients: &[Client]) -> Reconciler {
    STEPS.iter().zip(clients).fold(store.reconciler(), |reconciler, ((step, service), client)| {
        let (client, service) = (client.clone(), *service);
        reconciler.with_probe(Subject::step(WORKFLOW, *step), move |inquiry: &Inquiry| {
            let found = client.look_up(inquiry.downstream_key()).map_err(|error| error.to_string())?;
            Ok(match found {
                Some(result) => Finding::happened(result).because(format!("the {service} has it")),
                None => Finding::did_not_happen().because(format!("the {service} has no such thing")),
            })
        })
    })
}

fn text(replay: &Replay) -> Fallible<String> {
    Ok(String::from_utf8(replay.value()?.to_vec())?)
}

/// Kills an agent at one place, opens the store again, and counts.
fn scene(store_path: &Path, services: &[Service], last: &str) -> Fallible<String> {
    let order = format!("order-{last}");
    let ports: Vec<u16> = services.iter().map(Service::port).collect();
    let clients: Vec<Client> = ports.iter().map(|port| Client::at(*port)).collect();
    worker::run_and_kill(store_path, &order, last, &ports)?;

    let store = Store::open(store_path)?;
    let effects = || services.iter().map(Service::effects).sum::<Fallible<usize>>();
    let start_often = || {
        let told = work(&store, &order, &clients, &|_, _| ())?;
        for _ in 1..REPEATS {
            let repeated = work(&store, &order, &clients, &|_, _| ())?;
            expect(repeated == told, || format!("{told:?} for every repeat, found {repeated:?}"))?;
        }
        Fallible::Ok(told)
    };
    let mut story = String::new();
    let before = effects()?;
    let mut told = start_often()?;
    let (step, place) = last.split_once(':').unwrap_or_default();
    if matches!(place, "begun" | "performed") {
        expect(told == Told::Blocked(step.to_owned()), || format!("{step} in the way, found {told:?}"))?;
        expect(effects()? == before, || "no effect while nobody knew".to_owned())?;
        let report = reconciler(&store, &clients).run_once(10)?;
        let (found, verdict) =
            if place == "begun" { (report.did_not_happen, "did not happen") } else { (report.happened, "happened") };
        expect((report.asked, found) == (1, 1), || format!("one that {verdict}, found {report:?}"))?;
        story = format!("{REPEATS} × nobody knows → {step} {verdict} → ");
        told = start_often()?;
    }
    let view = store.workflow("acme", WORKFLOW)?.find(&order)?.ok_or("the run is gone")?;
    let is_done = told == Told::Done(known_of(&order, &view, services)?);
    expect(is_done, || format!("what the ledgers say, found {told:?}"))?;
    expect(view.summary.status == RunStatus::Succeeded, || format!("success, found {}", view.summary.status))?;
    store.close()?;
    Ok(format!("{story}{REPEATS} × done"))
}

/// What the run came to, put together from the ledgers: one line in each, and each of them knew what the ones before did.
fn known_of(order: &str, view: &RunView, services: &[Service]) -> Fallible<String> {
    expect(view.steps.len() == STEPS.len(), || format!("five steps, found {:?}", view.steps))?;
    let mut known = order.to_owned();
    for ((step, _), (service, shown)) in STEPS.iter().zip(services.iter().zip(&view.steps)) {
        let (result, done) = service.only_effect(&shown.operation.downstream_key)?;
        expect(done == format!("{step} {known}"), || format!("{step} of {known}, found {done}"))?;
        expect(shown.operation.status == dupeproof::Status::Succeeded, || format!("{step} on record as done"))?;
        known = format!("{known} {result}");
    }
    Ok(known)
}

/// All scenes share a store and the services: each kill must leave the other runs alone.
fn play(places: &[String]) -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let store = dir.path().join("effects.redb");
    let services: Vec<Service> =
        STEPS.iter().map(|(_, name)| Service::start(dir.path(), name, "-", "-")).collect::<Fallible<_>>()?;
    for last in places {
        let told = scene(&store, &services, last).map_err(|error| format!("{last}: {error}"))?;
        println!("  --kill-at {last:<18} {told}");
    }
    for service in &services {
        let found = service.effects()?;
        expect(found == places.len(), || format!("{} lines in each ledger, found {found}", places.len()))?;
    }
    let kills = places.iter().filter(|place| *place != "never").count();
    println!(
        "{} runs, {kills} kills: one decision, one reservation, one charge, one publication and one mail in each",
        places.len()
    );
    Ok(())
}

fn expect(is_so: bool, what: impl FnOnce() -> String) -> Fallible<()> {
    if is_so { Ok(()) } else { Err(format!("BROKEN: expected {}", what()).into()) }
}

fn run(arguments: &[&str]) -> Fallible<()> {
    let mut places = vec!["never".to_owned()];
    places.extend(STEPS.iter().flat_map(|(step, _)| PLACES.map(|place| format!("{step}:{place}"))));
    match arguments {
        ["service", ledger, name, refused, unanswered] => service::serve(Path::new(ledger), name, refused, unanswered),
        ["worker", store, order, last, ports @ ..] => {
            let clients = ports.iter().map(|port| port.parse().map(Client::at)).collect::<Result<Vec<_>, _>>()?;
            let store = Store::open(Path::new(store))?;
            work(&store, order, &clients, &|step, place| worker::reached(&format!("{step}:{place}"), last))?;
            Ok(store.close()?)
        }
        [] | ["--kill-at", "all"] => play(&places),
        ["--kill-at", place] if places.iter().any(|found| found == place) => play(&[(*place).to_owned()]),
        other => Err(format!("{other:?}: expected --kill-at all | {}", places.join(" | ")).into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::FAILURE
        }
    }
}
