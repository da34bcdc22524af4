//! dupeproof through its public API, with the default options.

use std::path::Path;

use dupeproof::{Begin, Claim, Fingerprint, Operation, OperationKey, Options, Response, Run, Settlement, Store};

use crate::work::{Item, response};
use crate::{CACHE_BYTES, Fallible, STEPS, timed};

fn opened(path: &Path) -> Fallible<Store> {
    Ok(Options::new().with_cache_bytes(CACHE_BYTES).open(path)?)
}

fn payload(number: u64) -> Fingerprint {
    Fingerprint::from_digest_128(Item::number(number).fingerprint)
}

fn entered(store: &Store, run: u64) -> Fallible<Run> {
    Ok(store.workflow("acme", "publish")?.enter(Item::number(run).key, payload(run))?)
}

fn claimed(begin: Begin) -> Fallible<Claim> {
    match begin {
        Begin::Execute(claim) => Ok(claim),
        other => Err(format!("expected a claim, found {other:?}").into()),
    }
}

fn step(number: u64) -> Fallible<(&'static str, u32)> {
    Ok(("step", u32::try_from(number)?))
}

fn finished(store: &Store, runs: u64) -> Fallible<()> {
    if store.stats()?.runs_over != runs {
        return Err("not every run is over".into());
    }
    Ok(store.close()?)
}

/// Each step is settled with the begin of the next, the last one with the end of the run.
pub(super) fn together(path: &Path, runs: u64) -> Fallible<f64> {
    let store = opened(path)?;
    let done = |number| Settlement::Succeeded(Response::from(response(number)));
    let seconds = timed(|| {
        for number in 0..runs {
            let run = entered(&store, number)?;
            let mut claim = claimed(run.step(step(0)?, payload(0))?)?;
            for next in 1..STEPS {
                claim = claimed(run.settle_and_step(&claim, done(next), step(next)?, payload(next))?)?;
            }
            run.settle_and_finish(&claim, done(STEPS), Response::Absent)?;
        }
        Ok(())
    })?;
    finished(&store, runs)?;
    Ok(seconds)
}

/// A commit to begin a step, and one to settle it.
pub(super) fn apart(path: &Path, runs: u64) -> Fallible<f64> {
    let store = opened(path)?;
    let seconds = timed(|| {
        for number in 0..runs {
            let run = entered(&store, number)?;
            for next in 0..STEPS {
                claimed(run.step(step(next)?, payload(next))?)?.succeed_raw(response(next))?;
            }
            run.finish_raw(Response::Absent)?;
        }
        Ok(())
    })?;
    finished(&store, runs)?;
    Ok(seconds)
}

/// The same steps as operations that know nothing of one another.
pub(super) fn plain(path: &Path, runs: u64) -> Fallible<f64> {
    let store = opened(path)?;
    let seconds = timed(|| {
        for number in 0..runs * STEPS {
            let key = OperationKey::new("acme", "step", Item::number(number).key)?;
            let operation = Operation::new(key, payload(number));
            claimed(store.begin(&operation)?)?.succeed_raw(response(number))?;
        }
        Ok(())
    })?;
    if store.stats()?.succeeded != runs * STEPS {
        return Err("not every operation succeeded".into());
    }
    store.close()?;
    Ok(seconds)
}

/// Seconds that the next step of a run of so many takes, and that the replay of one takes.
pub(super) fn next_step(before: u64) -> Fallible<(f64, f64)> {
    const MEASURED: u64 = 20;
    let store = Store::in_memory()?;
    let run = entered(&store, 0)?;
    let mut claim = claimed(run.step(step(0)?, payload(0))?)?;
    let done = || Settlement::Succeeded(Response::Absent);
    for next in 1..before {
        claim = claimed(run.settle_and_step(&claim, done(), step(next)?, payload(next))?)?;
    }
    claim.succeed_raw(Response::Absent)?;
    let steps = timed(|| {
        for next in before..before + MEASURED {
            claimed(run.step(step(next)?, payload(next))?)?.succeed_raw(Response::Absent)?;
        }
        Ok(())
    })?;
    let replays = timed(|| {
        for done in 0..MEASURED.min(before) {
            let Begin::Replay(_) = run.step(step(done)?, payload(done))? else { return Err("not replayed".into()) };
        }
        Ok(())
    })?;
    Ok((steps / MEASURED as f64, replays / MEASURED.min(before) as f64))
}
