//! `dupeproof reconcile`: asks a probe about every outcome that is unknown.

use std::sync::{Mutex, PoisonError};

use dupeproof::{Filter, Kind, OperationView, Reconciled, Status, StepKey, Subject};
use serde_json::json;

use crate::args::{ReconcileArgs, StoreArgs};
use crate::failure::{Failure, Voice, next_command, say};
use crate::print::print_out;
use crate::text::escaped;
use crate::{Fallible, code, list, place, probe};

/// Who asked, in the record.
const BY: &str = "dupeproof reconcile";

pub(crate) fn main(store: &StoreArgs, args: &ReconcileArgs, voice: Voice) -> Fallible<()> {
    let opened = place::open_existing(store)?;
    let command = args.command.clone();
    let unprinted = std::sync::Arc::new(Mutex::new(None));
    let failed = unprinted.clone();
    let mut reconciler = opened
        .reconciler()
        .with_name(BY)
        .with_lease(args.lease)
        .with_probes_max(args.probes)
        .with_probe(subject(args), move |inquiry: &dupeproof::Inquiry| {
            probe::ask(&command, inquiry)
        })
        // Told one by one: each took as long as its probe.
        .with_observer(move |one| {
            if let Err(failure) = print_out(&line(one, voice)) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
            }
        });
    if let Some(tenant) = &args.tenant {
        reconciler = reconciler.with_tenant(tenant);
    }
    if args.now {
        reconciler = reconciler.early();
    }
    let report = reconciler.run_once(args.limit as usize)?;
    drop(reconciler);
    // Also what was not asked about now: its time has not come, or it waits for a person.
    let (mut unknown, _) = list::collect(&opened, &filter(args), args.limit as usize)?;
    unknown.retain(|one| one.identity.step_key().map(StepKey::name) == args.step.as_deref());
    opened.close()?;
    if let Some(failure) = unprinted.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(failure);
    }
    if report.more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let failure = Failure::with_code(code::REFUSED, still_unknown(&unknown));
    let words = ["list", "--status", "unknown", "--kind", kind(args).as_str(), "--operation", name(args)];
    Err(failure.next(next_command(store, &words)))
}

fn kind(args: &ReconcileArgs) -> Kind {
    match (args.compensation, &args.step) {
        (true, _) => Kind::Compensation,
        (false, Some(_)) => Kind::Step,
        (false, None) => Kind::Operation,
    }
}

/// Of the operation, or of the workflow.
fn name(args: &ReconcileArgs) -> &str {
    args.operation.as_ref().or(args.workflow.as_ref()).map(String::as_str).unwrap_or_default()
}

fn subject(args: &ReconcileArgs) -> Subject {
    let subject = match &args.step {
        Some(step) => Subject::step(name(args), step),
        None => Subject::operation(name(args)),
    };
    if args.compensation { subject.compensation() } else { subject }
}

fn filter(args: &ReconcileArgs) -> Filter {
    let filter = Filter::new().with_kind(kind(args)).with_status(Status::Unknown).with_operation(name(args));
    match &args.tenant {
        Some(tenant) => filter.with_tenant(tenant),
        None => filter,
    }
}

fn still_unknown(unknown: &[OperationView]) -> String {
    let waiting = unknown.iter().filter(|operation| operation.waits_for_person).count();
    let text = format!("{} outcomes are still unknown", unknown.len());
    if waiting == 0 { text } else { format!("{text}, {waiting} of them wait for a person") }
}

fn line(one: &Reconciled, voice: Voice) -> String {
    let identity = &one.identity;
    match voice {
        Voice::Json => {
            let value = json!({
                "tenant": identity.tenant(),
                "operation": identity.name(),
                "key": identity.key(),
                "kind": identity.kind().as_str(),
                "step": identity.step_key().map(StepKey::name),
                "index": identity.step_key().and_then(StepKey::index),
                "attempt": one.attempt,
                "finding": probe::word(one),
            });
            format!("{value}\n")
        }
        Voice::Human => {
            let [tenant, operation, key] = [identity.tenant(), identity.name(), identity.key()].map(escaped);
            let step = identity.step_key().map(|step| format!("  {}", escaped(&step.to_string()))).unwrap_or_default();
            format!("{:<18}{tenant}  {operation}  {key}{step}\n", probe::word(one))
        }
    }
}
