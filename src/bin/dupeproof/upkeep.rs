//! `stats`, `sweep`, `verify`, `compact`, `backup`: what keeps a store in shape, while programs use it.

use dupeproof::{Stats, Status, Store};
use serde_json::{Value, json};

use crate::Fallible;
use crate::args::{BackupArgs, StoreArgs, SweepArgs};
use crate::failure::{Failure, Voice};
use crate::place;
use crate::print::print_out;
use crate::text::{escaped, instant, quoted};

pub(crate) fn stats(store: &StoreArgs, voice: Voice) -> Fallible<()> {
    let stats = with_store(store, |store| Ok(store.stats()?))?;
    let counts = [
        (Status::Reserved.as_str(), stats.reserved),
        (Status::Executing.as_str(), stats.executing),
        (Status::FailedRetryable.as_str(), stats.failed_retryable),
        (Status::Unknown.as_str(), stats.unknown),
        ("waiting_for_person", stats.waiting_for_person),
        (Status::Succeeded.as_str(), stats.succeeded),
        (Status::FailedTerminal.as_str(), stats.failed_terminal),
        (Status::Tombstone.as_str(), stats.tombstones),
        ("inbox_marks", stats.inbox_marks),
        ("runs_open", stats.runs_open),
        ("runs_over", stats.runs_over),
        ("steps_settled", stats.steps_settled),
        ("outbox_pending", stats.outbox.pending),
        ("outbox_in_flight", stats.outbox.in_flight),
        ("outbox_delivered", stats.outbox.delivered),
        ("outbox_dead", stats.outbox.dead),
        ("outbox_discarded", stats.outbox.discarded),
    ];
    print(
        voice,
        || stats_json(&stats, &counts),
        || {
            let mut text: String = counts.iter().map(|(name, count)| format!("{name:<20}{count}\n")).collect();
            text.extend(stats.oldest_unknown.map(|at| format!("{:<20}{}\n", "oldest unknown", instant(at))));
            text.extend(stats.outbox.oldest_due.map(|at| format!("{:<20}{}\n", "oldest message", instant(at))));
            text.extend(stats.file_bytes.map(|bytes| format!("{:<20}{bytes}\n", "bytes of the file")));
            text
        },
    )
}

fn stats_json(stats: &Stats, counts: &[(&str, u64)]) -> Value {
    let mut value: Value = counts.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect();
    value["oldest_unknown"] = stats.oldest_unknown.map(instant).into();
    value["outbox_oldest_due"] = stats.outbox.oldest_due.map(instant).into();
    value["file_bytes"] = stats.file_bytes.into();
    value["store_time"] = instant(stats.now).into();
    value
}

pub(crate) fn sweep(store: &StoreArgs, args: &SweepArgs, voice: Voice) -> Fallible<()> {
    let swept = with_store(store, |store| Ok(store.sweep(args.limit as usize)?))?;
    let numbers = [
        ("leases_ended", swept.leases_ended),
        ("tombstoned", swept.tombstoned),
        ("purged", swept.purged),
        ("messages_released", swept.messages_released),
        ("messages_purged", swept.messages_purged),
        ("unreadable", swept.unreadable),
    ];
    let as_json = || {
        let mut value: Value = numbers.iter().map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect();
        value["more"] = swept.more.into();
        value
    };
    print(voice, as_json, || {
        let mut text: String = numbers.iter().map(|(name, count)| format!("{name:<20}{count}\n")).collect();
        text.push_str(if swept.more { "there is more: sweep again\n" } else { "" });
        text
    })
}

/// An unclean store is a failure, so that a script can tell.
pub(crate) fn verify(store_args: &StoreArgs, voice: Voice) -> Fallible<()> {
    let report = with_store(store_args, |store| Ok(store.verify()?))?;
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let as_json = || json!({ "records": report.records, "messages": report.messages, "problem_count": report.problem_count, "problems": problems });
    print(voice, as_json, || {
        let mut text: String = problems.iter().map(|problem| format!("{}\n", escaped(problem))).collect();
        text.push_str(&format!(
            "{} records, {} messages, {} problems\n",
            report.records, report.messages, report.problem_count
        ));
        text
    })?;
    if report.is_clean() {
        return Ok(());
    }
    let path = place::path(store_args)?;
    let failure =
        Failure::new("the store is damaged: stop its programs, keep a copy of the file, and restore a backup");
    let path = path.display().to_string();
    Err(failure.next(format!("cp {} {}", quoted(&path), quoted(&format!("{path}.damaged")))))
}

pub(crate) fn compact(store: &StoreArgs, voice: Voice) -> Fallible<()> {
    let (before, after) = with_store(store, |store| {
        let before = store.stats()?.file_bytes;
        store.compact()?;
        Ok((before.unwrap_or_default(), store.stats()?.file_bytes.unwrap_or_default()))
    })?;
    let as_json = || json!({ "bytes_before": before, "bytes_after": after });
    print(voice, as_json, || format!("{before} bytes before, {after} after\n"))
}

pub(crate) fn backup(store: &StoreArgs, args: &BackupArgs, voice: Voice) -> Fallible<()> {
    let records = with_store(store, |store| Ok(store.backup(&args.path)?))?;
    let path = args.path.display().to_string();
    let as_json = || json!({ "records": records, "path": path });
    print(voice, as_json, || format!("{records} records copied to {}\n", escaped(&path)))
}

fn with_store<T>(args: &StoreArgs, work: impl FnOnce(&Store) -> Fallible<T>) -> Fallible<T> {
    let store = place::open_existing(args)?;
    let done = work(&store)?;
    store.close()?;
    Ok(done)
}

fn print(voice: Voice, as_json: impl FnOnce() -> Value, as_text: impl FnOnce() -> String) -> Fallible<()> {
    match voice {
        Voice::Json => print_out(&format!("{}\n", as_json())),
        Voice::Human => print_out(&as_text()),
    }
}
