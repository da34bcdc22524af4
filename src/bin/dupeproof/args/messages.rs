//! What can be said of messages: those that came in, and those that go out.

use clap::{ArgGroup, Args, Subcommand};
use dupeproof::{MessageStatus, Status};

use super::{CODES, DeciderArgs, VerdictArgs, parse_status};

/// Look at messages that came in, and decide about them
#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    List(InboxListArgs),
    Show(InboxShowArgs),
    Resolve(InboxResolveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MessageArgs {
    /// Where it came from
    #[arg(long)]
    pub(crate) source: String,
    /// The id that its sender gave it
    #[arg(long)]
    pub(crate) id: String,
    /// Whose message it is
    #[arg(long, default_value = "default")]
    pub(crate) tenant: String,
}

/// List messages that came in
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof inbox list --source orders --status unknown"))]
pub(crate) struct InboxListArgs {
    /// Only those of this status
    #[arg(long, value_parser = parse_status)]
    pub(crate) status: Option<Status>,
    /// Only those of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only those from there
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// Show what is recorded of a message that came in
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof inbox show --source orders --id m-17"))]
pub(crate) struct InboxShowArgs {
    #[command(flatten)]
    pub(crate) message: MessageArgs,
    /// Show the recorded response too
    #[arg(long)]
    pub(crate) show_response: bool,
}

/// Decide about a message whose outcome is unknown
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("verdict").required(true).args(["happened", "failed", "did_not_happen"])),
    after_help = format!(
        "{CODES}\n\nExample:\n  dupeproof inbox resolve --source orders --id m-17 --did-not-happen \\\n      \
         --by jane --reason 'no such order in the books'"
    )
)]
pub(crate) struct InboxResolveArgs {
    #[command(flatten)]
    pub(crate) message: MessageArgs,
    #[command(flatten)]
    pub(crate) verdict: VerdictArgs,
}

/// Look at messages that go out, and decide about dead letters
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    List(OutboxListArgs),
    Show(OutboxShowArgs),
    Redrive(RedriveArgs),
    Discard(DiscardArgs),
}

/// List messages that go out
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof outbox list --status dead --topic mail"))]
pub(crate) struct OutboxListArgs {
    /// Only those of this status
    #[arg(long, value_parser = parse_message_status)]
    pub(crate) status: Option<MessageStatus>,
    /// Only those of this topic
    #[arg(long)]
    pub(crate) topic: Option<String>,
    /// Only those of this lane
    #[arg(long)]
    pub(crate) lane: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// Show one message that goes out
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof outbox show invoice-981/receipt --show-payload"))]
pub(crate) struct OutboxShowArgs {
    /// Its id
    pub(crate) id: String,
    /// Show what it says too
    #[arg(long)]
    pub(crate) show_payload: bool,
}

const REDRIVE_NOTES: &str = "\
A dead letter is sent again under the same id, with its attempts starting over. With --all, every dead letter (of the \
topic) is: a dry run that only lists them, unless --yes is given.

Example:
  dupeproof outbox redrive --all --topic mail --yes";

/// Send dead letters again
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("which").required(true).args(["id", "all"])),
    after_help = format!("{CODES}\n\n{REDRIVE_NOTES}")
)]
pub(crate) struct RedriveArgs {
    /// Their ids
    pub(crate) id: Vec<String>,
    /// All dead letters
    #[arg(long)]
    pub(crate) all: bool,
    /// Of all, only those of this topic
    #[arg(long, requires = "all")]
    pub(crate) topic: Option<String>,
    /// Do it
    #[arg(long, requires = "all")]
    pub(crate) yes: bool,
}

const DISCARD_NOTES: &str = "\
Nobody will deliver it any more, and what it says is dropped. A dry run that only shows it, unless --yes is given.

Example:
  dupeproof outbox discard invoice-981/receipt --by jane --reason 'sent by hand' --yes";

/// Decide that a message will not be delivered
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\n{DISCARD_NOTES}"))]
pub(crate) struct DiscardArgs {
    /// Its id
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) decider: DeciderArgs,
    /// Do it
    #[arg(long)]
    pub(crate) yes: bool,
}

fn parse_message_status(name: &str) -> Result<MessageStatus, String> {
    MessageStatus::ALL.into_iter().find(|status| status.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = MessageStatus::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}
