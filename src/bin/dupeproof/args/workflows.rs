//! What can be said of runs.

use clap::{Args, Subcommand};
use dupeproof::{RunKey, RunStatus};

use super::CODES;
use crate::Fallible;

/// Look at runs of several steps, end them, or undo what they did
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    List(WorkflowListArgs),
    Show(WorkflowShowArgs),
    Finish(WorkflowFinishArgs),
    Compensate(WorkflowCompensateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunNameArgs {
    /// What kind of run it is
    #[arg(long)]
    pub(crate) workflow: String,
    /// What you call this one run
    #[arg(long)]
    pub(crate) run: String,
    /// Whose run it is
    #[arg(long, default_value = "default")]
    pub(crate) tenant: String,
}

impl RunNameArgs {
    pub(crate) fn key(&self) -> Fallible<RunKey> {
        Ok(RunKey::new(&self.tenant, &self.workflow, &self.run)?)
    }
}

/// List runs, by what they and their steps have come to
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof workflow list --status blocked_unknown"))]
pub(crate) struct WorkflowListArgs {
    /// Only those of this status
    #[arg(long, value_parser = parse_status)]
    pub(crate) status: Option<RunStatus>,
    /// Only those of this tenant
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Only those of this kind
    #[arg(long)]
    pub(crate) workflow: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// Show a run with every step and its compensation, as they really are
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExample:\n  dupeproof workflow show --workflow release --run v1.4"))]
pub(crate) struct WorkflowShowArgs {
    #[command(flatten)]
    pub(crate) name: RunNameArgs,
}

const FINISH_NOTES: &str = "\
A run that is over takes no more steps; a script that is run again gets the recorded output of each. It is refused while \
a step is being executed or its outcome is unknown.

Example:
  dupeproof workflow finish --workflow release --run v1.4";

/// End a run
#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\n{FINISH_NOTES}"))]
pub(crate) struct WorkflowFinishArgs {
    #[command(flatten)]
    pub(crate) name: RunNameArgs,
    /// It failed, for this reason; what its steps did stands as it is
    #[arg(long, value_name = "REASON")]
    pub(crate) failed: Option<String>,
}

const COMPENSATE_NOTES: &str = "\
The command is run by `sh -c` once for each step that succeeded, the last one first, and finds DUPEPROOF_STEP, \
DUPEPROOF_INDEX (of a loop), DUPEPROOF_RUN, IDEMPOTENCY_KEY, DUPEPROOF_ATTEMPT and DUPEPROOF_REFERENCE in its environment; \
what the step printed is its standard input. Its exit says how that ended: 0, it is undone; 75, it is not, and may be \
tried again; 1, it cannot be; anything else, nobody knows, and nobody tries it again before that is found out.

The run takes no more steps from then on. What is undone is not undone again: repeat the command until the run is over.

Exit codes: 0 everything is undone or there was nothing to undo, 1 failed, 2 wrong usage, 3 not found, 4 not everything \
is undone: see `workflow show`

Example:
  dupeproof workflow compensate --workflow trip --run t-17 --command './cancel.sh \"$DUPEPROOF_STEP\"'";

/// Undo what a run did, step by step, the last one first
#[derive(Debug, Args)]
#[command(after_help = COMPENSATE_NOTES)]
pub(crate) struct WorkflowCompensateArgs {
    #[command(flatten)]
    pub(crate) name: RunNameArgs,
    /// What undoes a step
    #[arg(long, value_name = "SHELL-COMMAND")]
    pub(crate) command: String,
}

fn parse_status(name: &str) -> Result<RunStatus, String> {
    RunStatus::ALL.into_iter().find(|status| status.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}
