//! What is meant: an operation, a step of a run, or the compensation of one of them.

use clap::{ArgGroup, Args};
use dupeproof::{Identity, Kind, OperationKey, RunKey, StepKey, Subject};

use crate::Fallible;

const DEFAULT_TENANT: &str = "default";
const DEFAULT_OPERATION: &str = "command";

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("name").required(true).args(["key", "step"])))]
pub(crate) struct NameArgs {
    /// What you call this one operation: the same on every repeat, another one for everything else
    #[arg(long)]
    key: Option<String>,
    /// Whose it is
    #[arg(long, default_value = DEFAULT_TENANT)]
    pub(crate) tenant: String,
    /// What kind of operation it is
    #[arg(long, default_value = DEFAULT_OPERATION, conflicts_with = "step")]
    operation: String,
    /// Instead of --key: the step of a run
    #[arg(long, requires = "workflow", requires = "run")]
    step: Option<String>,
    /// Which turn of a step that is taken in a loop
    #[arg(long, value_name = "N", requires = "step")]
    index: Option<u32>,
    /// What kind of run it is
    #[arg(long, requires = "step")]
    pub(crate) workflow: Option<String>,
    /// What you call this one run: the same on every repeat
    #[arg(long, requires = "step")]
    pub(crate) run: Option<String>,
    /// Mean what undoes it: an operation of its own
    #[arg(long)]
    pub(crate) compensation: bool,
}

impl NameArgs {
    /// The full name.
    pub(crate) fn identity(&self) -> Fallible<Identity> {
        let named = self.compensated()?;
        Ok(if self.compensation { named.compensation()? } else { named })
    }

    /// The operation or step itself, also where its compensation is meant.
    pub(crate) fn compensated(&self) -> Fallible<Identity> {
        Ok(match (self.run()?, self.step()?) {
            (Some(run), Some(step)) => Identity::step(&run, step),
            _ => self.key()?.into(),
        })
    }

    pub(crate) fn key(&self) -> Fallible<OperationKey> {
        Ok(OperationKey::new(&self.tenant, &self.operation, self.key.as_deref().unwrap_or_default())?)
    }

    pub(crate) fn run(&self) -> Fallible<Option<RunKey>> {
        let names = self.workflow.as_ref().zip(self.run.as_ref());
        Ok(names.map(|(workflow, run)| RunKey::new(&self.tenant, workflow, run)).transpose()?)
    }

    pub(crate) fn step(&self) -> Fallible<Option<StepKey>> {
        let step = self.step.as_ref().map(|step| match self.index {
            Some(index) => StepKey::at(step, index),
            None => StepKey::new(step),
        });
        Ok(step.transpose()?)
    }
}

/// As one would write it again.
pub(crate) fn arguments_of(identity: &Identity) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
    match identity.step_key() {
        Some(step) => {
            add("--workflow", identity.name());
            add("--run", identity.key());
            add("--step", step.name());
            if let Some(index) = step.index() {
                add("--index", &index.to_string());
            }
        }
        None => {
            add("--key", identity.key());
            if identity.name() != DEFAULT_OPERATION {
                add("--operation", identity.name());
            }
        }
    }
    if identity.tenant() != DEFAULT_TENANT {
        add("--tenant", identity.tenant());
    }
    if identity.kind() == Kind::Compensation {
        arguments.push("--compensation".to_owned());
    }
    arguments
}

/// Whom a probe for it would be registered for.
pub(crate) fn subject_of(identity: &Identity) -> Subject {
    let subject = match identity.step_key() {
        Some(step) => Subject::step(identity.name(), step.name()),
        None => Subject::operation(identity.name()),
    };
    if identity.kind() == Kind::Compensation { subject.compensation() } else { subject }
}
