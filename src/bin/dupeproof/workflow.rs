//! `dupeproof workflow`: runs of several steps.

use std::io::Write;
use std::process::{Command, Stdio};

use comfy_table::{Table, presets};
use dupeproof::{
    Failure as Failed, Fingerprint, Response, Retry, Run, RunEntry, RunFilter, RunPage, RunStatus, RunSummary, RunView,
    Store, Undo,
};
use serde_json::{Value, json};

use crate::args::{
    RunNameArgs, StoreArgs, WorkflowCommand, WorkflowCompensateArgs, WorkflowFinishArgs, WorkflowListArgs,
};
use crate::failure::{Failure, Voice, next_command, say};
use crate::print::{painted, print_out, run_status_style, status_style};
use crate::run::recording::{Captured, Recording};
use crate::text::{escaped, instant};
use crate::{Fallible, code, failure, place, view};

/// Runs fetched at once.
const PAGE: usize = 500;
/// EX_TEMPFAIL of sysexits.h: "try again later".
const EX_TEMPFAIL: i32 = 75;
/// A compensation's exit: it cannot be undone.
const CANNOT: i32 = 1;

pub(crate) fn main(store: &StoreArgs, command: &WorkflowCommand, voice: Voice) -> Fallible<()> {
    match command {
        WorkflowCommand::List(args) => list(store, args, voice),
        WorkflowCommand::Show(args) => {
            let opened = place::open_existing(store)?;
            let found = opened.get_run(&args.name.key()?)?;
            opened.close()?;
            show(&found.ok_or_else(|| absent(store, &args.name))?, voice)
        }
        WorkflowCommand::Finish(args) => finish(store, args, voice),
        WorkflowCommand::Compensate(args) => compensate(store, args, voice),
    }
}

/// Of the run as a whole nothing is compared: its key says it all, and each step has a payload of its own.
pub(crate) fn payload_of_run() -> Fingerprint {
    Fingerprint::unchecked()
}

fn absent(store: &StoreArgs, name: &RunNameArgs) -> Failure {
    let words = ["workflow", "list", "--workflow", &name.workflow, "--tenant", &name.tenant];
    Failure::with_code(code::NOT_FOUND, "there is no record of this run").next(next_command(store, &words))
}

fn look_up(store: &StoreArgs, name: &RunNameArgs) -> String {
    let words = ["workflow", "show", "--workflow", &name.workflow, "--run", &name.run, "--tenant", &name.tenant];
    next_command(store, &words)
}

fn list(store: &StoreArgs, args: &WorkflowListArgs, voice: Voice) -> Fallible<()> {
    let mut filter = RunFilter::new();
    if let Some(status) = args.status {
        filter = filter.with_status(status);
    }
    if let Some(tenant) = &args.tenant {
        filter = filter.with_tenant(tenant);
    }
    if let Some(workflow) = &args.workflow {
        filter = filter.with_workflow(workflow);
    }
    let opened = place::open_existing(store)?;
    let limit = args.limit as usize;
    let (mut found, mut may_be_more, mut next) = (Vec::new(), false, Some(RunPage::first(limit.min(PAGE))));
    while let Some(page) = next.take() {
        let listing = opened.list_runs(&filter, &page)?;
        found.extend(listing.runs);
        may_be_more = listing.next.is_some() || found.len() > limit;
        next = listing.next.filter(|_| found.len() < limit);
    }
    opened.close()?;
    found.truncate(limit);
    let text = match voice {
        Voice::Json => found.iter().map(|run| format!("{}\n", summary_json(run))).collect(),
        Voice::Human if found.is_empty() => String::new(),
        Voice::Human => paint(&table(&found).to_string()),
    };
    print_out(&text)?;
    if may_be_more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    Ok(())
}

fn table(found: &[RunSummary]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["STATUS", "TENANT", "WORKFLOW", "RUN", "STEPS DONE", "BEGUN", "BLOCKED BY"]);
    for run in found {
        table.add_row([
            run.status.to_string(),
            escaped(run.key.tenant()),
            escaped(run.key.workflow()),
            escaped(run.key.run()),
            format!("{} of {}", run.steps_succeeded, run.steps),
            instant(run.created_at),
            blocked_by(run).unwrap_or_default(),
        ]);
    }
    table
}

/// Paints the status, which begins each line, once the columns have their widths.
fn paint(table: &str) -> String {
    let painted_line = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        let status = RunStatus::ALL.into_iter().find(|status| status.as_str() == word);
        status.map_or(line.to_owned(), |status| line.replacen(word, &painted(word, run_status_style(status)), 1))
    };
    table.lines().map(|line| painted_line(line) + "\n").collect()
}

fn blocked_by(run: &RunSummary) -> Option<String> {
    let (identity, since) = run.blocked_by.as_ref()?;
    let step = escaped(&identity.step_key()?.to_string());
    let what = if identity.kind() == dupeproof::Kind::Compensation { "the compensation of " } else { "" };
    Some(format!("{what}{step}, unknown since {}", instant(*since)))
}

fn summary_json(run: &RunSummary) -> Value {
    let blocked = run.blocked_by.as_ref().map(|(identity, since)| {
        json!({
            "kind": identity.kind().as_str(),
            "step": identity.step_key().map(dupeproof::StepKey::name),
            "index": identity.step_key().and_then(dupeproof::StepKey::index),
            "since": instant(*since),
        })
    });
    json!({
        "tenant": run.key.tenant(),
        "workflow": run.key.workflow(),
        "run": run.key.run(),
        "status": run.status.as_str(),
        "created_at": instant(run.created_at),
        "settled_at": run.settled_at.map(instant),
        "steps": run.steps,
        "steps_succeeded": run.steps_succeeded,
        "blocked_by": blocked,
    })
}

fn show(run: &RunView, voice: Voice) -> Fallible<()> {
    if voice == Voice::Json {
        let mut value = summary_json(&run.summary);
        value["expires_at"] = run.expires_at.map(instant).into();
        value["turned_back_at"] = run.turned_back_at.map(instant).into();
        value["failure"] = run.failure.clone().into();
        value["steps"] = run
            .steps
            .iter()
            .map(|step| {
                let mut value = view::json(&step.operation, false);
                value["artifact_trouble"] = step.artifact_trouble.clone().into();
                value
            })
            .collect();
        return print_out(&format!("{value}\n"));
    }
    let summary = &run.summary;
    let mut lines = vec![
        ("run", escaped(summary.key.run())),
        ("tenant", escaped(summary.key.tenant())),
        ("workflow", escaped(summary.key.workflow())),
        ("status", painted(summary.status.as_str(), run_status_style(summary.status))),
    ];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("begun", Some(instant(summary.created_at)));
    add("blocked by", blocked_by(summary));
    add("turned back", run.turned_back_at.map(instant));
    add("over", summary.settled_at.map(instant));
    add("kept until", run.expires_at.map(instant));
    add("failure", run.failure.as_deref().map(escaped));
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:<20}{value}\n")).collect();
    for step in &run.steps {
        let operation = &step.operation;
        let status = painted(operation.status.as_str(), status_style(operation.status));
        text.push_str(&format!("\n{:<20}{status}\n", escaped(&step.step.to_string())));
        let mut detail = |name: &str, value: Option<String>| {
            text.extend(value.map(|value| format!("  {name:<18}{value}\n")));
        };
        detail("attempts", (operation.attempts > 1).then(|| operation.attempts.to_string()));
        detail("done", operation.settled_at.map(instant));
        detail("unknown since", operation.unknown.map(|(since, cause)| format!("{} ({cause})", instant(since))));
        detail("failure", operation.failure.as_deref().map(escaped));
        detail("artifact", step.artifact_trouble.as_deref().map(escaped));
        if let Some(compensation) = &operation.compensation {
            let status = painted(compensation.status.as_str(), status_style(compensation.status));
            let why = compensation.failure.as_deref().map(|why| format!(" ({})", escaped(why))).unwrap_or_default();
            detail("compensation", Some(format!("{status}{why}")));
        }
    }
    print_out(&text)
}

/// The run, to do something about it as a whole.
fn entered(store: &StoreArgs, opened: &Store, name: &RunNameArgs) -> Fallible<Run> {
    if opened.get_run(&name.key()?)?.is_none() {
        return Err(absent(store, name));
    }
    let workflow = opened.workflow(&name.tenant, &name.workflow)?;
    let refused = |why: &str| Err(Failure::with_code(code::REFUSED, why).next(look_up(store, name)));
    match workflow.run(&name.run, payload_of_run())? {
        RunEntry::Run(run) | RunEntry::Compensating(run) => Ok(run),
        RunEntry::Replay(_) => Ok(workflow.enter(&name.run, payload_of_run())?),
        RunEntry::Expired(_) => refused("the run was over so long ago that its steps are gone"),
        RunEntry::Conflict(_) | RunEntry::DefinitionChanged(_) => {
            refused("the run was begun by a program that gave it a payload or a definition: end it there")
        }
    }
}

fn finish(store: &StoreArgs, args: &WorkflowFinishArgs, voice: Voice) -> Fallible<()> {
    let opened = place::open_existing(store)?;
    let run = entered(store, &opened, &args.name)?;
    let ended = match &args.failed {
        None => run.finish_raw(Response::Absent),
        Some(reason) => run.fail(reason),
    };
    ended.map_err(|error| Failure::from(error).next(look_up(store, &args.name)))?;
    let found = run.view()?;
    drop(run);
    opened.close()?;
    say_status(found.as_ref(), voice)
}

fn say_status(run: Option<&RunView>, voice: Voice) -> Fallible<()> {
    let Some(run) = run else { return Ok(()) };
    match voice {
        Voice::Json => print_out(&format!("{}\n", summary_json(&run.summary))),
        Voice::Human => print_out(&format!("the run is now {}\n", run.summary.status)),
    }
}

fn compensate(store: &StoreArgs, args: &WorkflowCompensateArgs, voice: Voice) -> Fallible<()> {
    let opened = place::open_existing(store)?;
    let run = entered(store, &opened, &args.name)?;
    let compensated = run.compensate(|undo| undone(&args.command, undo));
    let found = compensated.map_err(|error| Failure::from(error).next(look_up(store, &args.name)))?;
    drop(run);
    opened.close()?;
    say_status(Some(&found), voice)?;
    match found.summary.status {
        RunStatus::Compensated | RunStatus::Failed => Ok(()),
        _ => {
            let failure = Failure::with_code(code::REFUSED, "not everything is undone");
            let blocked_by = found.summary.blocked_by.as_ref();
            let unknown = blocked_by.map(|(identity, _)| failure::look_up(store, identity));
            Err(failure.next(unknown.unwrap_or_else(|| look_up(store, &args.name))))
        }
    }
}

/// Undoes one step by the shell command.
fn undone(command: &str, undo: &Undo<'_>) -> Result<Response, Failed> {
    let (step, claim) = (undo.step(), undo.claim());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .env("DUPEPROOF_STEP", step.name())
        .env("DUPEPROOF_INDEX", step.index().map(|index| index.to_string()).unwrap_or_default())
        .env("DUPEPROOF_RUN", claim.identity().key())
        .env("IDEMPOTENCY_KEY", claim.downstream_key())
        .env("DUPEPROOF_ATTEMPT", claim.attempt().to_string())
        .env("DUPEPROOF_REFERENCE", undo.done().external_reference().unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = shell.spawn().map_err(|_| Failed::not_started())?;
    let printed = undo.done().raw().bytes().map(|bytes| Recording::decode(bytes).stdout.kept).unwrap_or_default();
    let input = child.stdin.take();
    // In a thread: a command that prints before it reads must not wait for one that reads after it was written to.
    let output = std::thread::scope(|scope| {
        // A command need not read it.
        scope.spawn(move || input.map(|mut input| input.write_all(&printed)));
        child.wait_with_output()
    })?;
    let status = output.status;
    match status.code() {
        Some(0) => {
            let mut stdout = Captured::default();
            stdout.push(&output.stdout);
            Ok(Response::from(Recording { stdout, ..Recording::default() }.encode()))
        }
        Some(EX_TEMPFAIL) => Err(Failed::retryable(status, Retry::backoff())),
        Some(CANNOT) => Err(Failed::terminal(status)),
        _ => Err(Failed::unknown(status)),
    }
}
