//! `dupeproof list`.

use comfy_table::{Table, presets};
use dupeproof::{Filter, OperationView, Page, Status, Store};

use crate::Fallible;
use crate::args::{ListArgs, StoreArgs};
use crate::failure::{Voice, say};
use crate::print::{painted, print_out, status_style};
use crate::text::{escaped, instant};
use crate::{place, view};

/// Records fetched at once.
const PAGE: usize = 500;

pub(crate) fn main(store: &StoreArgs, args: &ListArgs, voice: Voice) -> Fallible<()> {
    let mut filter = Filter::new().with_kind(args.kind);
    if let Some(status) = args.status {
        filter = filter.with_status(status);
    }
    if let Some(tenant) = &args.tenant {
        filter = filter.with_tenant(tenant);
    }
    if let Some(operation) = &args.operation {
        filter = filter.with_operation(operation);
    }
    if let Some(age) = args.older_than {
        filter = filter.with_older_than(age);
    }
    if args.waiting_for_person {
        filter = filter.with_waiting_for_person();
    }
    let store = place::open_existing(store)?;
    let (found, may_be_more) = collect(&store, &filter, args.limit as usize)?;
    store.close()?;
    print(&found, voice)?;
    if may_be_more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    Ok(())
}

/// At most `limit` records, and whether there may be more.
pub(crate) fn collect(store: &Store, filter: &Filter, limit: usize) -> Fallible<(Vec<OperationView>, bool)> {
    let mut found = Vec::new();
    let mut next = Some(Page::first(limit.min(PAGE)));
    let mut may_be_more = false;
    while let Some(page) = next.take() {
        let listing = store.list(filter, &page)?;
        found.extend(listing.operations);
        may_be_more = listing.next.is_some() || found.len() > limit;
        next = listing.next.filter(|_| found.len() < limit);
    }
    found.truncate(limit);
    Ok((found, may_be_more))
}

pub(crate) fn print(found: &[OperationView], voice: Voice) -> Fallible<()> {
    let text = match voice {
        Voice::Json => found.iter().map(|operation| format!("{}\n", view::json(operation, false))).collect::<String>(),
        Voice::Human if found.is_empty() => String::new(),
        Voice::Human => paint(&table(found).to_string()),
    };
    print_out(&text)
}

/// Paints the status, which begins each line, once the columns have their widths.
fn paint(table: &str) -> String {
    let mut text = String::with_capacity(table.len() * 2);
    for line in table.lines() {
        let status = Status::ALL.into_iter().find(|status| line.trim_start().starts_with(status.as_str()));
        match status {
            Some(status) => {
                text.push_str(&line.replacen(status.as_str(), &painted(status.as_str(), status_style(status)), 1));
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

fn table(found: &[OperationView]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Of steps, the operation is the workflow and the key the run.
    let has_steps = found.iter().any(|operation| operation.identity.step_key().is_some());
    let header = ["STATUS", "TENANT", "OPERATION", "KEY", "ATTEMPTS", "FIRST USED", "REFERENCE"];
    table.set_header(header.into_iter().chain(has_steps.then_some("STEP")));
    for operation in found {
        let step = operation.identity.step_key().map(|step| escaped(&step.to_string())).unwrap_or_default();
        let cells = [
            operation.status.to_string(),
            escaped(operation.key.tenant()),
            escaped(operation.key.operation()),
            escaped(operation.key.key()),
            operation.attempts.to_string(),
            instant(operation.created_at),
            operation.external_reference.as_deref().map(escaped).unwrap_or_default(),
        ];
        table.add_row(cells.into_iter().chain(has_steps.then_some(step)));
    }
    table
}
