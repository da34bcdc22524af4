//! `dupeproof run`: a command, once per key.

mod answer;
mod child;
mod payload;
pub(crate) mod recording;
mod signals;

use std::process::ExitCode;
use std::time::Duration;

use dupeproof::{
    AfterFailure, Begin, Claim, Error, ErrorKind, FailureReport, Fingerprint, Inquiry, Operation, OperationKey, Remote,
    Retention, Retry, RunEntry, Store,
};

use crate::Fallible;
use crate::args::{OnError, RunArgs, StoreArgs, subject_of};
use crate::duration::Keep;
use crate::failure::{Failure, Voice, look_up};
use crate::workflow::payload_of_run;
use crate::{code, place, probe};
use answer::Speaker;
use child::{Ended, Finished};
use payload::Payload;
use recording::Recording;

/// EX_TEMPFAIL of sysexits.h: "try again later".
const EX_TEMPFAIL: u8 = 75;
/// A command is held for as long as this program lives; the longest the store allows.
const MAX_EXECUTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Who decided, in the record.
const PROBE: &str = "--reconcile";
/// A run may forget more than it adds, and still ends at once.
const SWEEP_RECORDS_MAX: usize = 100;

pub(crate) fn main(store: &StoreArgs, args: &RunArgs, voice: Voice) -> ExitCode {
    match run(store, args, voice) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report_as(store, voice, code::RUN_FAILED),
    }
}

fn run(store: &StoreArgs, args: &RunArgs, voice: Voice) -> Fallible<u8> {
    let payload = Payload::gather(args)?;
    let identity = args.name.identity()?;
    let speaker = Speaker { voice, quiet: args.quiet, store, identity: &identity };
    let missing = child::find(&args.command).err();
    checked(args)?;
    let store = place::open_or_create(store)?;
    let operation = operation(&store, args, &payload)?;
    // A mistyped name must not bind the key to it. What is recorded is replayed also when its command is gone by now.
    if let Some(error) = &missing
        && store.get(&identity)?.is_none()
    {
        store.close()?;
        return Ok(speaker.not_started(&args.command, error));
    }
    let signals = signals::Forwarder::start().map_err(|error| Failure::new(format!("watch for signals: {error}")))?;
    let mut begin = match store.begin(&operation) {
        Err(error) if error.kind() == ErrorKind::Refused => return not_begun(&store, args, &speaker, error),
        begin => begin?,
    };
    if let (Begin::Unknown(unknown), Some(probe)) = (&begin, &args.reconcile)
        && *unknown.identity() == identity
    {
        let (subject, command) = (subject_of(&identity), probe.clone());
        let probe = move |inquiry: &Inquiry| probe::ask(&command, inquiry);
        let reconciler = store.reconciler().early().with_name(PROBE).with_probe(subject, probe);
        let report = reconciler.run_for(&identity)?;
        if report.still_unknown == 0 {
            begin = store.begin(&operation)?;
        }
    }
    let code = match begin {
        Begin::Execute(claim) => {
            signals.hold();
            let code = execute(&claim, args, payload, &signals, &speaker)?;
            // Where only short runs use a store, nobody else tidies it.
            if let Err(error) = store.sweep(SWEEP_RECORDS_MAX) {
                speaker.not_swept(&error);
            }
            code
        }
        Begin::Replay(replay) => speaker.replay(&replay),
        Begin::InProgress(other) => speaker.in_progress(&other),
        Begin::RetryLater(later) => speaker.retry_later(&later),
        Begin::Unknown(unknown) => speaker.unknown(&unknown),
        Begin::Conflict(conflict) => speaker.conflict(&conflict),
        Begin::Expired(expired) => speaker.expired(&expired),
    };
    store.close()?;
    Ok(code)
}

/// Bad terms are refused before a store is made for them.
fn checked(args: &RunArgs) -> Fallible<()> {
    Ok(on_terms(
        Operation::new(OperationKey::new("any", "any", "any")?, Fingerprint::unchecked())
            .with_retention(retention(args)),
        args,
    )
    .check()?)
}

/// A run that is over, or was used otherwise, has an answer of its own.
fn not_begun(store: &Store, args: &RunArgs, speaker: &Speaker<'_>, error: Error) -> Fallible<u8> {
    let Some(run) = args.name.run()? else { return Err(error.into()) };
    let entry = store.workflow(run.tenant(), run.workflow())?.run(run.run(), payload_of_run())?;
    let code = match entry {
        RunEntry::Conflict(conflict) => speaker.conflict(&conflict),
        RunEntry::Expired(expired) => speaker.expired(&expired),
        _ => return Err(error.into()),
    };
    store.close()?;
    Ok(code)
}

/// What is to be begun: on its own, or as a step of its run.
fn operation(store: &Store, args: &RunArgs, payload: &Payload) -> Fallible<Operation> {
    let (fingerprint, is_compensation) = (payload.fingerprint()?, args.name.compensation);
    let operation = match (args.name.run()?, args.name.step()?) {
        (Some(run), Some(step)) => {
            let workflow = store.workflow(run.tenant(), run.workflow())?.with_retention(retention(args));
            let run = workflow.enter(run.run(), payload_of_run())?;
            if is_compensation { run.compensation(step, fingerprint)? } else { run.operation(step, fingerprint)? }
        }
        _ if is_compensation => Operation::compensation(&args.name.key()?, fingerprint),
        _ => Operation::new(args.name.key()?, fingerprint).with_retention(retention(args)),
    };
    Ok(on_terms(operation, args))
}

fn retention(args: &RunArgs) -> Retention {
    let retention = match args.keep {
        Keep::For(duration) => Retention::default().with_response(duration),
        Keep::Forever => Retention::default().with_response_forever(),
    };
    match args.tombstone {
        Keep::For(duration) => retention.with_tombstone(duration),
        Keep::Forever => retention.with_tombstone_forever(),
    }
}

fn on_terms(operation: Operation, args: &RunArgs) -> Operation {
    let remote = args.remote_dedupes.map_or(Remote::Opaque, |window| Remote::DedupesOnKey { window });
    let operation = operation.with_lease(args.lease).with_max_execution(MAX_EXECUTION).with_remote(remote);
    match args.wait {
        Some(timeout) => operation.with_wait(timeout),
        None => operation,
    }
}

/// Runs the command and records how it ended.
fn execute(
    claim: &Claim,
    args: &RunArgs,
    payload: Payload,
    signals: &signals::Forwarder,
    speaker: &Speaker<'_>,
) -> Fallible<u8> {
    if claim.is_resend() {
        speaker.resending();
    }
    let environment = [("IDEMPOTENCY_KEY", claim.downstream_key()), ("DUPEPROOF_ATTEMPT", claim.attempt().to_string())];
    let command = child::command(&args.command, environment);
    match child::run(command, payload.into_stdin(), signals) {
        Ok(finished) => settle(claim, finished, args.on_error, speaker),
        Err(child::NotRun::NotStarted(error)) => {
            claim.release()?;
            Ok(speaker.not_started(&args.command, &error))
        }
        Err(child::NotRun::Lost(error)) => {
            claim.give_up(format!("the command was started and lost: {error}"))?;
            Err(Failure::new(format!("the command was started and lost, so its outcome is unknown: {error}")))
        }
    }
}

fn settle(claim: &Claim, finished: Finished, on_error: OnError, speaker: &Speaker<'_>) -> Fallible<u8> {
    let Finished { ended, stdout, stderr } = finished;
    let code = ended.exit_code();
    let recorded = match (ended, on_error) {
        (Ended::Exit(0), _) => claim.succeed_raw(Recording { exit_code: 0, stdout, stderr }.encode()).map(|_| ()),
        (Ended::Exit(EX_TEMPFAIL), _) | (Ended::Exit(_), OnError::Retry) => {
            claim.fail_retryable(ended, Retry::backoff()).map(|after| match after {
                AfterFailure::RetryLater(_) => {}
                AfterFailure::Exhausted(_) => speaker.exhausted(),
                AfterFailure::StillUnknown(unknown) => speaker.lost(&unknown),
            })
        }
        (Ended::Exit(_), OnError::Final) => {
            let recording = Recording { exit_code: code, stdout, stderr }.encode();
            claim.fail_terminal_with(FailureReport::new(ended).with_response(recording)).map(|_| ())
        }
        (Ended::Exit(_), OnError::Unknown) | (Ended::Signal(_), _) => {
            claim.give_up(ended).map(|unknown| speaker.lost(&unknown))
        }
    };
    match recorded {
        Ok(()) => Ok(code),
        Err(error) => Err(Failure::new(format!(
            "the command {ended}, and that could not be recorded: {error}; look the key up before you run it again",
        ))
        .next(look_up(speaker.store, speaker.identity))),
    }
}
