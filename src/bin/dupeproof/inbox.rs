//! `dupeproof inbox`: messages that came in.

use dupeproof::{ErrorKind, Filter};

use crate::args::{InboxCommand, InboxListArgs, InboxResolveArgs, InboxShowArgs, MessageArgs, StoreArgs};
use crate::failure::{Failure, Voice, next_command, say};
use crate::{Fallible, code, list, place, resolve, show};

pub(crate) fn main(store: &StoreArgs, command: &InboxCommand, voice: Voice) -> Fallible<()> {
    match command {
        InboxCommand::List(args) => list(store, args, voice),
        InboxCommand::Show(args) => show(store, args, voice),
        InboxCommand::Resolve(args) => resolve(store, args, voice),
    }
}

fn list(store: &StoreArgs, args: &InboxListArgs, voice: Voice) -> Fallible<()> {
    let mut filter = Filter::inbox();
    if let Some(status) = args.status {
        filter = filter.with_status(status);
    }
    if let Some(tenant) = &args.tenant {
        filter = filter.with_tenant(tenant);
    }
    if let Some(source) = &args.source {
        filter = filter.with_operation(source);
    }
    let store = place::open_existing(store)?;
    let (found, may_be_more) = list::collect(&store, &filter, args.limit as usize)?;
    store.close()?;
    list::print(&found, voice)?;
    if may_be_more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    Ok(())
}

fn show(store: &StoreArgs, args: &InboxShowArgs, voice: Voice) -> Fallible<()> {
    let MessageArgs { source, id, tenant } = &args.message;
    let opened = place::open_existing(store)?;
    let found = opened.inbox(tenant, source)?.get(id)?;
    opened.close()?;
    let message = found.ok_or_else(|| absent(store, &args.message))?;
    show::print(&message, args.show_response, voice)
}

fn resolve(store: &StoreArgs, args: &InboxResolveArgs, voice: Voice) -> Fallible<()> {
    let MessageArgs { source, id, tenant } = &args.message;
    let verdict = resolve::verdict(&args.verdict)?;
    let opened = place::open_existing(store)?;
    let decision = resolve::decision(&args.verdict);
    let resolved =
        opened.inbox(tenant, source)?.resolve(id, verdict, &decision).map_err(|error| match error.kind() {
            ErrorKind::NotFound => absent(store, &args.message),
            ErrorKind::Refused => {
                let words = ["inbox", "show", "--source", source, "--id", id, "--tenant", tenant];
                Failure::from(error).next(next_command(store, &words))
            }
            _ => error.into(),
        })?;
    opened.close()?;
    resolve::say_resolved(&resolved, voice)
}

fn absent(store: &StoreArgs, message: &MessageArgs) -> Failure {
    let words = ["inbox", "list", "--source", &message.source, "--tenant", &message.tenant];
    Failure::with_code(code::NOT_FOUND, "there is no record of this message").next(next_command(store, &words))
}
