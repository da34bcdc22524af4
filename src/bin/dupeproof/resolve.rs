//! `dupeproof resolve`: a person decides an outcome that is unknown.

use dupeproof::{Decision, ErrorKind, FailureReport, OperationView, Response, Verdict};

use crate::Fallible;
use crate::args::{ResolveArgs, StoreArgs, VerdictArgs};
use crate::failure::{Failure, Voice, look_up, next_command};
use crate::print::print_out;
use crate::run::recording::{Captured, Recording};
use crate::show::list_of;
use crate::{place, view};

pub(crate) fn main(store: &StoreArgs, args: &ResolveArgs, voice: Voice) -> Fallible<()> {
    let identity = args.name.identity()?;
    let verdict = verdict(&args.verdict)?;
    let opened = place::open_existing(store)?;
    let resolved =
        opened.resolve(&identity, verdict, &decision(&args.verdict)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::from(error).next(next_command(store, &list_of(&identity))),
            ErrorKind::Refused => Failure::from(error).next(look_up(store, &identity)),
            _ => error.into(),
        })?;
    opened.close()?;
    say_resolved(&resolved, voice)
}

pub(crate) fn say_resolved(resolved: &OperationView, voice: Voice) -> Fallible<()> {
    match voice {
        Voice::Json => print_out(&format!("{}\n", view::json(resolved, false))),
        Voice::Human => print_out(&format!("recorded; it is now {}\n", resolved.status)),
    }
}

pub(crate) fn decision(args: &VerdictArgs) -> Decision {
    let decision = Decision::new(&args.decider.by, &args.decider.reason);
    match args.attempt {
        Some(attempt) => decision.about_attempt(attempt),
        None => decision,
    }
}

pub(crate) fn verdict(args: &VerdictArgs) -> Fallible<Verdict> {
    let recorded = |exit_code: u8| -> Fallible<Option<Response>> {
        let Some(path) = &args.response else { return Ok(None) };
        let stdout = std::fs::read(path)
            .map_err(|error| Failure::new(format!("read the response {}: {error}", path.display())))?;
        let recording = Recording { exit_code, stdout: Captured::whole(stdout), stderr: Captured::default() };
        if !recording.fits() {
            return Err(Failure::new(format!("the response {} is larger than a store keeps", path.display())));
        }
        Ok(Some(Response::from(recording.encode())))
    };
    Ok(if args.happened {
        let response = recorded(0)?.unwrap_or(Response::Absent);
        Verdict::Happened { response, external_reference: args.reference.clone() }
    } else if args.failed {
        let failure = FailureReport::new(&args.decider.reason);
        let failure = match recorded(1)? {
            Some(response) => failure.with_response(response),
            None => failure,
        };
        Verdict::FailedForGood { failure }
    } else {
        Verdict::DidNotHappen
    })
}
