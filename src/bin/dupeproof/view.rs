//! A record for people and for programs.

use dupeproof::{Kind, OperationView, Response, StepKey, Timestamp};
use serde_json::{Value, json};

use crate::print::{painted, status_style};
use crate::run::recording::Recording;
use crate::text::{escaped, instant};

/// Bytes as JSON can hold them. Who needs every byte asks without `--json`.
fn shown(bytes: &[u8]) -> Value {
    let text = String::from_utf8_lossy(bytes);
    json!({ "text": text, "is_exact": text.as_bytes() == bytes })
}

pub(crate) fn json(view: &OperationView, show_response: bool) -> Value {
    let at = |at: Option<Timestamp>| at.map(instant);
    let mut value = json!({
        "tenant": view.key.tenant(),
        "operation": view.key.operation(),
        "key": view.key.key(),
        "kind": view.identity.kind().as_str(),
        "step": view.identity.step_key().map(StepKey::name),
        "index": view.identity.step_key().and_then(StepKey::index),
        "status": view.status.as_str(),
        "attempts": view.attempts,
        "downstream_key": view.downstream_key,
        "external_reference": view.external_reference,
        "created_at": instant(view.created_at),
        "settled_at": at(view.settled_at),
        "expires_at": at(view.expires_at),
        "lease_until": at(view.lease_until),
        "retry_at": at(view.retry_at),
        "unknown_since": at(view.unknown.map(|(since, _)| since)),
        "unknown_cause": view.unknown.map(|(_, cause)| cause.to_string()),
        "probes": view.probes,
        "next_probe_at": at(view.next_probe_at),
        "waits_for_person": view.waits_for_person,
        "ended": view.ended.map(|status| status.as_str()),
        "failure": view.failure,
        "response": response_name(view.response.as_ref()),
        "decisions": view.decisions.iter().map(|decision| json!({
            "at": instant(decision.at),
            "witness": decision.witness.as_str(),
            "by": decision.by,
            "attempt": decision.attempt,
            "ruling": ruling(decision.ruling),
            "reason": decision.reason,
        })).collect::<Vec<_>>(),
        "compensation": view.compensation.as_ref().map(|compensation| json(compensation, show_response)),
    });
    if show_response && let Some(bytes) = view.response.as_ref().and_then(Response::bytes) {
        let recording = Recording::decode(bytes);
        value["recording"] = json!({
            "exit_code": recording.exit_code,
            "stdout": shown(&recording.stdout.kept),
            "stderr": shown(&recording.stderr.kept),
        });
    }
    value
}

/// The lines of `show`.
pub(crate) fn lines(view: &OperationView) -> Vec<(&'static str, String)> {
    let step = view.identity.step_key();
    let (key, name) = if step.is_some() { ("run", "workflow") } else { ("key", "operation") };
    let mut lines = vec![
        (key, escaped(view.key.key())),
        ("tenant", escaped(view.key.tenant())),
        (name, escaped(view.key.operation())),
    ];
    lines.extend(step.map(|step| ("step", escaped(&step.to_string()))));
    lines.extend((view.identity.kind() == Kind::Compensation).then(|| ("kind", "compensation".to_owned())));
    lines.extend([
        ("status", painted(view.status.as_str(), status_style(view.status))),
        ("attempts", view.attempts.to_string()),
        ("downstream key", view.downstream_key.clone()),
    ]);
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("external reference", view.external_reference.as_deref().map(escaped));
    add("first used", Some(instant(view.created_at)));
    add("settled", view.settled_at.map(instant));
    add("ended as", view.ended.map(|status| status.to_string()));
    add("kept until", view.expires_at.map(instant));
    add("lease until", view.lease_until.map(instant));
    add("again from", view.retry_at.map(instant));
    add("unknown since", view.unknown.map(|(since, cause)| format!("{} ({cause})", instant(since))));
    add("probes", (view.probes > 0).then(|| view.probes.to_string()));
    add("next probe", view.next_probe_at.map(instant));
    add("waits for", view.waits_for_person.then(|| "a person".to_owned()));
    add("failure", view.failure.as_deref().map(escaped));
    add("response", response_name(view.response.as_ref()));
    for decision in &view.decisions {
        let (by, reason) = (escaped(&decision.by), escaped(&decision.reason));
        let (at, attempt, witness) = (instant(decision.at), decision.attempt, decision.witness.as_str());
        let ruling = ruling(decision.ruling);
        add("history", Some(format!("{at} attempt {attempt}, {witness} {by}: {ruling} – {reason}")));
    }
    if let Some(compensation) = &view.compensation {
        let status = painted(compensation.status.as_str(), status_style(compensation.status));
        let why = compensation.failure.as_deref().map(|why| format!(" ({})", escaped(why))).unwrap_or_default();
        add("compensation", Some(format!("{status}{why}, since {}", instant(compensation.created_at))));
    }
    lines
}

fn response_name(response: Option<&Response>) -> Option<String> {
    Some(match response? {
        Response::Absent => "none".to_owned(),
        Response::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Response::TooLarge { len, .. } => format!("too large to keep ({len} bytes)"),
        Response::Withheld => "withheld".to_owned(),
        Response::Artifact(artifact) => format!("the file {}", escaped(&artifact.path().display().to_string())),
        _ => "of a newer kind".to_owned(),
    })
}

fn ruling(ruling: dupeproof::Ruling) -> &'static str {
    match ruling {
        dupeproof::Ruling::Happened => "happened",
        dupeproof::Ruling::FailedForGood => "failed for good",
        dupeproof::Ruling::DidNotHappen => "did not happen",
        dupeproof::Ruling::StillUnknown => "still unknown",
        _ => "of a newer kind",
    }
}
