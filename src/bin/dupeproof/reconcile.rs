//! `dupeproof reconcile`: asks a probe about every outcome that is unknown.

use dupeproof::{Filter, OperationView, Status};
use serde_json::json;

use crate::args::{ReconcileArgs, StoreArgs};
use crate::failure::{Failure, Voice, next_command, say};
use crate::print::print_out;
use crate::probe::{self, Finding, Question};
use crate::text::escaped;
use crate::{Fallible, code, list, place};

/// Who decided, in the record.
const BY: &str = "dupeproof reconcile";

pub(crate) fn main(store: &StoreArgs, args: &ReconcileArgs, voice: Voice) -> Fallible<()> {
    let opened = place::open_existing(store)?;
    // All are found before the first is asked: a probe may take its time.
    let (unknown, may_be_more) = list::collect(&opened, &filter(args), args.limit as usize)?;
    let mut still_unknown = 0_u32;
    for operation in unknown {
        let question = Question {
            key: &operation.key,
            attempt: operation.attempts,
            downstream_key: &operation.downstream_key,
            external_reference: operation.external_reference.as_deref(),
        };
        let finding = probe::ask(&opened, &question, &args.command, BY)?;
        still_unknown += u32::from(finding == Finding::StillUnknown);
        // Told one by one: each took as long as its probe.
        print_out(&line(&operation, finding, voice))?;
    }
    opened.close()?;
    if may_be_more && voice == Voice::Human {
        say("there may be more: see --limit");
    }
    match still_unknown {
        0 => Ok(()),
        left => {
            let failure = Failure::with_code(code::REFUSED, format!("{left} outcomes are still unknown"));
            let words = ["list", "--status", "unknown", "--operation", &args.operation];
            Err(failure.next(next_command(store, &words)))
        }
    }
}

fn filter(args: &ReconcileArgs) -> Filter {
    let filter = Filter::new().with_status(Status::Unknown).with_operation(&args.operation);
    match &args.tenant {
        Some(tenant) => filter.with_tenant(tenant),
        None => filter,
    }
}

fn line(operation: &OperationView, finding: Finding, voice: Voice) -> String {
    let key = &operation.key;
    match voice {
        Voice::Json => {
            let value = json!({
                "tenant": key.tenant(),
                "operation": key.operation(),
                "key": key.key(),
                "attempt": operation.attempts,
                "finding": finding.as_str(),
            });
            format!("{value}\n")
        }
        Voice::Human => {
            let [tenant, operation, key] = [key.tenant(), key.operation(), key.key()].map(escaped);
            format!("{:<16}{tenant}  {operation}  {key}\n", finding.as_str())
        }
    }
}
