//! `dupeproof outbox`: messages that go out.

use anstyle::{AnsiColor, Style};
use comfy_table::{Table, presets};
use dupeproof::{Decision, ErrorKind, MessageFilter, MessagePage, MessageStatus, MessageView, Outbox, Timestamp};
use serde_json::{Value, json};

use crate::args::{DiscardArgs, OutboxCommand, OutboxListArgs, OutboxShowArgs, RedriveArgs, StoreArgs};
use crate::failure::{Failure, Voice, next_command, say};
use crate::print::{painted, print_out, print_out_bytes};
use crate::text::{escaped, instant};
use crate::{Fallible, code, place};

/// Messages fetched at once.
const PAGE: usize = 500;

pub(crate) fn main(store: &StoreArgs, command: &OutboxCommand, voice: Voice) -> Fallible<()> {
    let opened = place::open_existing(store)?;
    let outbox = opened.outbox();
    match command {
        OutboxCommand::List(args) => list(&outbox, args, voice)?,
        OutboxCommand::Show(args) => show(store, &outbox, args, voice)?,
        OutboxCommand::Redrive(args) => redrive(store, &outbox, args, voice)?,
        OutboxCommand::Discard(args) => discard(store, &outbox, args, voice)?,
    }
    Ok(opened.close()?)
}

fn list(outbox: &Outbox, args: &OutboxListArgs, voice: Voice) -> Fallible<()> {
    let mut filter = MessageFilter::new();
    if let Some(status) = args.status {
        filter = filter.with_status(status);
    }
    if let Some(topic) = &args.topic {
        filter = filter.with_topic(topic);
    }
    if let Some(lane) = &args.lane {
        filter = filter.with_lane(lane);
    }
    let (found, may_be_more) = collect(outbox, &filter, args.limit as usize)?;
    print_all(&found, voice)?;
    if may_be_more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    Ok(())
}

fn collect(outbox: &Outbox, filter: &MessageFilter, limit: usize) -> Fallible<(Vec<MessageView>, bool)> {
    let mut found = Vec::new();
    let mut next = Some(MessagePage::first(limit.min(PAGE)));
    let mut may_be_more = false;
    while let Some(page) = next.take() {
        let listing = outbox.list(filter, &page)?;
        found.extend(listing.messages);
        may_be_more = listing.next.is_some() || found.len() > limit;
        next = listing.next.filter(|_| found.len() < limit);
    }
    found.truncate(limit);
    Ok((found, may_be_more))
}

fn show(store: &StoreArgs, outbox: &Outbox, args: &OutboxShowArgs, voice: Voice) -> Fallible<()> {
    let message = outbox.get(&args.id)?.ok_or_else(|| absent(store))?;
    if voice == Voice::Json {
        return print_out(&format!("{}\n", as_json(&message, args.show_payload)));
    }
    let text: String = lines(&message).iter().map(|(name, value)| format!("{name:<20}{value}\n")).collect();
    print_out(&text)?;
    if args.show_payload
        && let Some(payload) = &message.payload
    {
        print_out("\n")?;
        print_out_bytes(payload)?;
    }
    Ok(())
}

fn redrive(store: &StoreArgs, outbox: &Outbox, args: &RedriveArgs, voice: Voice) -> Fallible<()> {
    if !args.all {
        for id in &args.id {
            let redriven = outbox.redrive(id).map_err(|error| named(store, id, error))?;
            say_now(&redriven, voice)?;
        }
        return Ok(());
    }
    let mut filter = MessageFilter::new().with_status(MessageStatus::Dead);
    if let Some(topic) = &args.topic {
        filter = filter.with_topic(topic);
    }
    let (dead, _) = collect(outbox, &filter, usize::MAX)?;
    if !args.yes {
        print_all(&dead, voice)?;
        say_dry(voice, &format!("{} dead letters would be sent again", dead.len()));
        return Ok(());
    }
    for message in dead {
        match outbox.redrive(&message.id) {
            // Somebody else was quicker.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotFound) => {}
            redriven => say_now(&redriven?, voice)?,
        }
    }
    Ok(())
}

fn discard(store: &StoreArgs, outbox: &Outbox, args: &DiscardArgs, voice: Voice) -> Fallible<()> {
    if !args.yes {
        let message = outbox.get(&args.id)?.ok_or_else(|| absent(store))?;
        print_all(std::slice::from_ref(&message), voice)?;
        say_dry(voice, "it would be discarded");
        return Ok(());
    }
    let decision = Decision::new(&args.decider.by, &args.decider.reason);
    let discarded = outbox.discard(&args.id, &decision).map_err(|error| named(store, &args.id, error))?;
    say_now(&discarded, voice)
}

fn say_dry(voice: Voice, what: &str) {
    if voice == Voice::Human {
        say(&format!("{what}; nothing was done: say --yes to do it"));
    }
}

fn say_now(message: &MessageView, voice: Voice) -> Fallible<()> {
    match voice {
        Voice::Json => print_out(&format!("{}\n", as_json(message, false))),
        Voice::Human => print_out(&format!("{} is now {}\n", escaped(&message.id), message.status)),
    }
}

fn named(store: &StoreArgs, id: &str, error: dupeproof::Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => absent(store),
        ErrorKind::Refused => Failure::from(error).next(next_command(store, &["outbox", "show", id])),
        _ => error.into(),
    }
}

fn absent(store: &StoreArgs) -> Failure {
    let failure = Failure::with_code(code::NOT_FOUND, "there is no message of this id");
    failure.next(next_command(store, &["outbox", "list"]))
}

fn print_all(found: &[MessageView], voice: Voice) -> Fallible<()> {
    let text = match voice {
        Voice::Json => found.iter().map(|message| format!("{}\n", as_json(message, false))).collect::<String>(),
        Voice::Human if found.is_empty() => String::new(),
        Voice::Human => table(found),
    };
    print_out(&text)
}

fn table(found: &[MessageView]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["STATUS", "TOPIC", "LANE", "ID", "ATTEMPTS", "SENT", "LAST ERROR"]);
    for message in found {
        table.add_row([
            message.status.to_string(),
            escaped(&message.topic),
            message.lane.as_deref().map(escaped).unwrap_or_default(),
            escaped(&message.id),
            message.attempts.to_string(),
            instant(message.sent_at),
            message.last_error.as_deref().map(escaped).unwrap_or_default(),
        ]);
    }
    let paint =
        |line: &str| match MessageStatus::ALL.iter().find(|status| line.trim_start().starts_with(status.as_str())) {
            Some(status) => line.replacen(status.as_str(), &painted(status.as_str(), style(*status)), 1) + "\n",
            None => format!("{line}\n"),
        };
    table.to_string().lines().map(paint).collect()
}

/// Dead letters need a person.
fn style(status: MessageStatus) -> Style {
    match status {
        MessageStatus::Dead => AnsiColor::Red.on_default().bold(),
        MessageStatus::Due | MessageStatus::InFlight | MessageStatus::Scheduled => AnsiColor::Yellow.on_default(),
        MessageStatus::Delivered => AnsiColor::Green.on_default(),
        _ => Style::new().dimmed(),
    }
}

fn as_json(message: &MessageView, show_payload: bool) -> Value {
    let at = |at: Option<Timestamp>| at.map(instant);
    let mut value = json!({
        "id": message.id,
        "topic": message.topic,
        "lane": message.lane,
        "headers": message.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "status": message.status.as_str(),
        "sent_at": instant(message.sent_at),
        "attempts": message.attempts,
        "total_attempts": message.total_attempts,
        "redrives": message.redrives,
        "last_error": message.last_error,
        "due_at": at(message.due_at),
        "lease_until": at(message.lease_until),
        "dead_since": at(message.dead.map(|(since, _)| since)),
        "dead_because": message.dead.map(|(_, cause)| cause.to_string()),
        "finished_at": at(message.finished_at),
        "kept_until": at(message.purge_at),
        "discarded": message.discarded.as_ref().map(|(by, reason)| json!({ "by": by, "reason": reason })),
        "payload_bytes": message.payload.as_ref().map(Vec::len),
    });
    if show_payload && let Some(payload) = &message.payload {
        let text = String::from_utf8_lossy(payload);
        value["payload"] = json!({ "text": text, "is_exact": text.as_bytes() == payload.as_slice() });
    }
    value
}

fn lines(message: &MessageView) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("id", escaped(&message.id)),
        ("topic", escaped(&message.topic)),
        ("status", painted(message.status.as_str(), style(message.status))),
        ("sent", instant(message.sent_at)),
        ("attempts", format!("{} ({} in all)", message.attempts, message.total_attempts)),
    ];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("lane", message.lane.as_deref().map(escaped));
    for (name, value) in &message.headers {
        add("header", Some(format!("{}: {}", escaped(name), escaped(value))));
    }
    add("redrives", Some(message.redrives).filter(|redrives| *redrives > 0).map(|redrives| redrives.to_string()));
    add("last error", message.last_error.as_deref().map(escaped));
    add("due", message.due_at.map(instant));
    add("lease until", message.lease_until.map(instant));
    add("dead since", message.dead.map(|(since, cause)| format!("{} ({cause})", instant(since))));
    add("finished", message.finished_at.map(instant));
    add("kept until", message.purge_at.map(instant));
    let decided = message.discarded.as_ref();
    add("discarded", decided.map(|(by, reason)| format!("by {}: {}", escaped(by), escaped(reason))));
    add("payload", message.payload.as_ref().map(|payload| format!("{} bytes", payload.len())));
    lines
}
