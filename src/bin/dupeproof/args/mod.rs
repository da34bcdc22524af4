//! What can be said on the command line.

mod messages;
mod naming;
mod workflows;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use dupeproof::{Kind, Status};

pub(crate) use messages::{
    DiscardArgs, InboxCommand, InboxListArgs, InboxResolveArgs, InboxShowArgs, MessageArgs, OutboxCommand,
    OutboxListArgs, OutboxShowArgs, RedriveArgs,
};
pub(crate) use naming::{NameArgs, arguments_of, subject_of};
pub(crate) use workflows::{
    RunNameArgs, WorkflowCommand, WorkflowCompensateArgs, WorkflowFinishArgs, WorkflowListArgs,
};

use crate::duration::{self, Keep};

/// Runs a command once per key; every repeat gets the recorded result.
#[derive(Debug, Parser)]
#[command(name = "dupeproof", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Say everything as JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store's file [default: $XDG_STATE_HOME/dupeproof/store.redb, or the same below ~/.local/state]
    #[arg(long, global = true, value_name = "PATH", env = "DUPEPROOF_STORE")]
    pub(crate) store: Option<PathBuf>,
    /// Wait so long for a program that has the store for itself
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
    pub(crate) open_wait: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    List(ListArgs),
    Show(ShowArgs),
    Resolve(ResolveArgs),
    Reconcile(ReconcileArgs),
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    #[command(subcommand)]
    Inbox(InboxCommand),
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Count the records by status
    #[command(after_help = STATS_NOTES)]
    Stats,
    Sweep(SweepArgs),
    /// Read every record and check everything that is derived from it
    #[command(after_help = VERIFY_NOTES)]
    Verify,
    /// Give free space back to the file system
    #[command(after_help = COMPACT_NOTES)]
    Compact,
    Backup(BackupArgs),
    /// Write every record as a line of JSON to standard output
    #[command(after_help = EXPORT_NOTES)]
    Export,
    Import(ImportArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

const RUN_NOTES: &str = "\
Exit codes: the command's own, on the first run and on every repeat (a command that itself exits with one of the codes \
below is told from them by the note on standard error, or with --json by its \"answer\"); and these:
  120  somebody else is running it
  121  the key was used for another command, file or input
  122  nobody knows whether it happened: see `dupeproof resolve`
  123  it ran so long ago that its output is gone
  124  it failed without having happened: try again later
  125  dupeproof itself failed
  126  the command cannot be executed
  127  the command cannot be found

The command finds IDEMPOTENCY_KEY (hand it to the remote side; it is the same on every repeat) and DUPEPROOF_ATTEMPT in \
its environment. Its exit says how it ended: 0, it happened; 75 (EX_TEMPFAIL), it did not and may be tried again; any \
other code, see --on-error. Death by a signal leaves the outcome unknown. A --reconcile \
command finds the same two, and DUPEPROOF_REFERENCE if the remote side's name is known.

Without --stdin the command reads this program's own standard input, which then does not count: a repeat with other \
input gets the recorded output.

Output is recorded up to the store's limit of 1 MiB. What background processes write after the command itself has ended \
is waited for only briefly.

A script with checkpoints names a step for each of its commands instead of a key; whichever are done are not run again, \
and while nobody knows what became of one of them, none is:
  dupeproof run --workflow release --run v1.4 --step build -- make dist
  dupeproof run --workflow release --run v1.4 --step upload -- ./upload.sh
  dupeproof workflow finish --workflow release --run v1.4
A run is kept for ever until it is finished; then --keep and --tombstone count, as its first step gave them.

With --compensation the command undoes what the operation did, once, and only if that succeeded:
  dupeproof run --key invoice-981 --operation charge --compensation -- ./refund.sh invoice-981

Example:
  dupeproof run --key report-2026-12-01 -- ./mail-report.sh --to board";

/// Run a command once per key; print the recorded output on every repeat
#[derive(Debug, Args)]
#[command(after_help = RUN_NOTES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// Read standard input first, count it to the payload, and hand it to the command
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Count this file's content to the payload (may be given several times)
    #[arg(long, value_name = "FILE")]
    pub(crate) payload_file: Vec<PathBuf>,
    /// How long the run is safe from others if this program dies; renewed while it lives
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1m")]
    pub(crate) lease: Duration,
    /// How long the output is kept: a duration or `forever`
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_keep, default_value = "7d")]
    pub(crate) keep: Keep,
    /// For how long after that the key is still known to be done: a duration or `forever`
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_keep, default_value = "90d")]
    pub(crate) tombstone: Keep,
    /// What an exit with a code other than 0 and 75 means
    #[arg(long, value_enum, default_value_t = OnError::Unknown)]
    pub(crate) on_error: OnError,
    /// If somebody else is running it, wait so long for the result
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Ask this shell command when the outcome is unknown: exit 0, it happened (what it prints is recorded); 1, it did
    /// not, and CMD runs now; anything else, still unknown
    #[arg(long, value_name = "SHELL-COMMAND")]
    pub(crate) reconcile: Option<String>,
    /// The remote side drops a second request under the same IDEMPOTENCY_KEY for this long: re-send unknown outcomes
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) remote_dedupes: Option<Duration>,
    /// Say nothing about repeats
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// It may have happened: nobody repeats it
    Unknown,
    /// It did not happen: it may be tried again
    Retry,
    /// It failed for good: repeats get the recorded output and code
    Final,
}

const CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused by the record's state";

/// List what is recorded
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof list --status unknown --older-than 1h"))]
pub(crate) struct ListArgs {
    /// Only those of this status
    #[arg(long, value_parser = parse_status)]
    pub(crate) status: Option<Status>,
    /// Only those of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only those of this operation, or workflow
    #[arg(long)]
    pub(crate) operation: Option<String>,
    /// List steps of runs, compensations or messages instead
    #[arg(long, value_parser = parse_kind, default_value = "operation")]
    pub(crate) kind: Kind,
    /// Only those first used longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) older_than: Option<Duration>,
    /// Only unknown outcomes that no probe is asked about any more: resolve them
    #[arg(long, conflicts_with = "status")]
    pub(crate) waiting_for_person: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// Show one record: how it stands, and what was decided about it
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof show --key invoice-981 --show-response"))]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    /// Show the recorded output too
    #[arg(long)]
    pub(crate) show_response: bool,
}

const RESOLVE_NOTES: &str = "\
Look at the remote side before you decide, under the downstream key that `dupeproof show` prints. After --did-not-happen \
exactly one more run is let through.

Example:
  dupeproof resolve --key invoice-981 --happened --reference ch_17 \\
      --by jane --reason 'charge ch_17 is in the dashboard'";

/// Decide an outcome that is unknown
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("verdict").required(true).args(["happened", "failed", "did_not_happen"])),
    after_help = format!("{CODES}\n\n{RESOLVE_NOTES}")
)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    pub(crate) name: NameArgs,
    #[command(flatten)]
    pub(crate) verdict: VerdictArgs,
}

/// What is decided, by whom and why.
#[derive(Debug, Args)]
pub(crate) struct VerdictArgs {
    /// It happened: repeats exit with 0
    #[arg(long)]
    pub(crate) happened: bool,
    /// It did not happen and must not be tried again: repeats exit with 1
    #[arg(long)]
    pub(crate) failed: bool,
    /// It did not happen: the next run goes through
    #[arg(long)]
    pub(crate) did_not_happen: bool,
    /// The attempt that was looked into: refused if a newer one is unknown by now
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// The remote side's name for it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["failed", "did_not_happen"])]
    pub(crate) reference: Option<String>,
    /// What repeats print
    #[arg(long, value_name = "FILE", conflicts_with = "did_not_happen")]
    pub(crate) response: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) decider: DeciderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeciderArgs {
    /// Who decides
    #[arg(long, value_name = "NAME")]
    pub(crate) by: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}

const RECONCILE_NOTES: &str = "\
The command is run by `sh -c` once for each unknown outcome, oldest first. It finds IDEMPOTENCY_KEY, DUPEPROOF_KEY, \
DUPEPROOF_TENANT, DUPEPROOF_OPERATION, DUPEPROOF_KIND, DUPEPROOF_ATTEMPT, of a step DUPEPROOF_STEP and \
DUPEPROOF_INDEX, and, if the remote side's name is known, DUPEPROOF_REFERENCE in \
its environment. Its exit is the verdict: 0, it happened (what it prints is what repeats get); 1, it did not happen, \
and the next run goes through; anything else, it cannot tell. Then it is asked again after 10 seconds at the earliest, \
later each time, and not at all once it was asked in vain 30 times: see `list --waiting-for-person`.

Exit codes: 0 none is unknown any more, 1 failed, 2 wrong usage, 3 not found, 4 some are still unknown

Example:
  dupeproof reconcile --operation charge --command './ask-provider.sh \"$IDEMPOTENCY_KEY\"'";

/// Ask a command about every outcome that is unknown
#[derive(Debug, Args)]
#[command(after_help = RECONCILE_NOTES)]
pub(crate) struct ReconcileArgs {
    /// What kind of operation: each has its own probe
    #[arg(long, required_unless_present = "step", conflicts_with = "step")]
    pub(crate) operation: Option<String>,
    /// What kind of run, for one of its steps
    #[arg(long, requires = "step")]
    pub(crate) workflow: Option<String>,
    /// Which step of it
    #[arg(long, requires = "workflow")]
    pub(crate) step: Option<String>,
    /// Ask about what undoes it
    #[arg(long)]
    pub(crate) compensation: bool,
    /// The probe
    #[arg(long, value_name = "SHELL-COMMAND")]
    pub(crate) command: String,
    /// Only those of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Ask about at most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// Ask also where the wait after the last probe is not over
    #[arg(long)]
    pub(crate) now: bool,
    /// After so many probes in vain an outcome waits for a person
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) probes: u32,
    /// For so long nobody else asks about the same outcome: longer than the command takes
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub(crate) lease: Duration,
}

const STATS_NOTES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found

Example:
  dupeproof stats --json";

const VERIFY_NOTES: &str = "\
Exit codes: 0 all is well, 1 it is not, 2 wrong usage, 3 not found. Nothing is changed.

Example:
  dupeproof verify --store effects.redb";

const COMPACT_NOTES: &str = "\
Other programs may have the store open, but none may be in the middle of a transaction: try again if it says so.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found

Example:
  dupeproof compact --store effects.redb";

/// End lapsed leases, and forget what is over
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof sweep --limit 10000"))]
pub(crate) struct SweepArgs {
    /// Change at most so many records
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

/// Write a consistent copy of the store to a new file, while it is used
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\n{BACKUP_NOTES}"))]
pub(crate) struct BackupArgs {
    /// The new file; nothing may be there
    pub(crate) path: PathBuf,
}

const BACKUP_NOTES: &str = "\
A copy that is restored has forgotten what came after it, and would let that run again: restore it only together with \
everything else of that moment.

Example:
  dupeproof backup effects-2026-12-01.redb";

const EXPORT_NOTES: &str = "\
The lines hold everything, recorded outputs included, as of one moment. They are for `dupeproof import`, for jq, and \
to compare; who changes or cuts them cannot import them any more, because a store that lacks a key would let it run \
again.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found

Example:
  dupeproof export > effects.jsonl";

const IMPORT_NOTES: &str = "\
The store is created if there is none; one with records is refused (4). All or nothing is taken over. What the original \
store answers after the export, this one does not know: never let both work.

Exit codes: 0 done, 1 failed, 2 wrong usage or a line that is wrong, 4 the store is not empty

Example:
  dupeproof import effects.jsonl --store copy.redb";

/// Take over what `export` wrote, into an empty store
#[derive(Debug, Args)]
#[command(after_help = IMPORT_NOTES)]
pub(crate) struct ImportArgs {
    /// What `export` wrote; `-`, or nothing, is standard input
    pub(crate) file: Option<PathBuf>,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dupeproof completions bash > /etc/bash_completion.d/dupeproof")]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, of the program or of one of its commands
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dupeproof man run | man -l -")]
pub(crate) struct ManArgs {
    pub(crate) command: Option<String>,
}

fn parse_status(name: &str) -> Result<Status, String> {
    Status::ALL.into_iter().find(|status| status.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn parse_kind(name: &str) -> Result<Kind, String> {
    let kinds = [Kind::Operation, Kind::Step, Kind::Compensation, Kind::Inbox];
    kinds
        .into_iter()
        .find(|kind| kind.as_str() == name)
        .ok_or_else(|| format!("expected one of {}", kinds.map(Kind::as_str).join(", ")))
}
