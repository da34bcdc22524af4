//! `dupeproof list`.

use comfy_table::{Table, presets};
use dupeproof::{Filter, OperationView, Page};

use crate::Fallible;
use crate::args::{ListArgs, StoreArgs};
use crate::failure::{Voice, say};
use crate::print::print_out;
use crate::text::{escaped, instant};
use crate::{place, view};

/// Records fetched at once.
const PAGE: u32 = 500;

pub(crate) fn main(store: &StoreArgs, args: &ListArgs, voice: Voice) -> Fallible<()> {
    let mut filter = Filter::new();
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
    let store = place::open_existing(store)?;
    let mut found: Vec<OperationView> = Vec::new();
    let mut next = Some(Page::first(args.limit.min(PAGE) as usize));
    let mut may_be_more = false;
    while let Some(page) = next.take() {
        let listing = store.list(&filter, &page)?;
        found.extend(listing.operations);
        may_be_more = listing.next.is_some() || found.len() > args.limit as usize;
        next = listing.next.filter(|_| found.len() < args.limit as usize);
    }
    found.truncate(args.limit as usize);
    store.close()?;
    print(&found, voice)?;
    if may_be_more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    Ok(())
}

fn print(found: &[OperationView], voice: Voice) -> Fallible<()> {
    let text = match voice {
        Voice::Json => found.iter().map(|operation| format!("{}\n", view::json(operation, false))).collect::<String>(),
        Voice::Human if found.is_empty() => String::new(),
        Voice::Human => format!("{}\n", table(found)),
    };
    print_out(&text)
}

fn table(found: &[OperationView]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["STATUS", "TENANT", "OPERATION", "KEY", "ATTEMPTS", "FIRST USED", "REFERENCE"]);
    for operation in found {
        table.add_row([
            operation.status.to_string(),
            escaped(operation.key.tenant()),
            escaped(operation.key.operation()),
            escaped(operation.key.key()),
            operation.attempts.to_string(),
            instant(operation.created_at),
            operation.external_reference.as_deref().map(escaped).unwrap_or_default(),
        ]);
    }
    table
}
