//! The store's answers and views in the map's words, and the map's words on a claim.

use std::time::Duration;

use dupeproof::{
    Begin, Claim, ErrorKind, FailureReport, OperationView, Reservation, Reserve, Result, Retry, Settlement, Status,
    Timestamp,
};

use super::rules::{RESPONSE, Record, State, TOMBSTONE, Told, Why, Word};

pub fn millis(at: Timestamp) -> u64 {
    at.as_unix_millis()
}

pub fn kind<T>(result: Result<T>) -> std::result::Result<(), ErrorKind> {
    result.map(drop).map_err(|error| error.kind())
}

/// What the store told, in the map's words.
pub fn told(answer: &Begin) -> Told {
    match answer {
        Begin::Execute(claim) => Told::Granted(claim.attempt()),
        Begin::Replay(replay) => Told::Replay {
            attempt: replay.attempt(),
            settled_at: millis(replay.settled_at()),
            ending: match replay.failure() {
                None => Ok(String::from_utf8(replay.value().unwrap().to_vec()).unwrap()),
                Some(failure) => Err((failure.message().to_owned(), replay.attempts_exhausted())),
            },
        },
        Begin::InProgress(other) => {
            Told::InProgress { attempt: other.attempt(), lease_left: other.lease_left().as_millis() as u64 }
        }
        Begin::RetryLater(later) => Told::RetryLater {
            attempts: later.attempts(),
            wait: later.wait().as_millis() as u64,
            words: later.failure().map(|failure| failure.message().to_owned()),
        },
        Begin::Unknown(unknown) => {
            Told::Unknown { attempt: unknown.attempt(), since: millis(unknown.since()), cause: unknown.cause() }
        }
        Begin::Conflict(conflict) => Told::Conflict(conflict.status()),
        Begin::Expired(expired) => {
            Told::Expired { succeeded: expired.was_success(), settled_at: millis(expired.settled_at()) }
        }
    }
}

/// The answers to a reservation are those to a begin.
pub fn told_reserving(answer: Reserve) -> (Told, Option<Reservation>) {
    let begin = match answer {
        Reserve::Reserved(reservation) => return (Told::Granted(reservation.attempt()), Some(reservation)),
        Reserve::Replay(replay) => Begin::Replay(replay),
        Reserve::InProgress(other) => Begin::InProgress(other),
        Reserve::RetryLater(later) => Begin::RetryLater(later),
        Reserve::Unknown(unknown) => Begin::Unknown(unknown),
        Reserve::Conflict(conflict) => Begin::Conflict(conflict),
        Reserve::Expired(expired) => Begin::Expired(expired),
    };
    (told(&begin), None)
}

pub fn settle(claim: &Claim, word: &Word) -> std::result::Result<(), ErrorKind> {
    match word.clone() {
        Word::Succeeded(response) => kind(claim.succeed_raw(response)),
        Word::FailedTerminal(words) => kind(claim.fail_terminal(words)),
        Word::FailedRetryable(words, delay) => {
            kind(claim.fail_retryable(words, Retry::after(Duration::from_millis(delay))))
        }
        Word::GaveUp(words) => kind(claim.give_up(words)),
        Word::Released => kind(claim.release()),
    }
}

pub fn settlement(word: &Word) -> Settlement {
    match word.clone() {
        Word::Succeeded(response) => Settlement::Succeeded(response.into()),
        Word::FailedTerminal(words) => Settlement::FailedTerminal(FailureReport::new(words)),
        Word::FailedRetryable(words, delay) => {
            Settlement::FailedRetryable(FailureReport::new(words), Retry::after(Duration::from_millis(delay)))
        }
        Word::GaveUp(words) => Settlement::GaveUp(FailureReport::new(words)),
        Word::Released => Settlement::Released,
    }
}

/// What a view shows, as far as the map knows it.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    status: Status,
    attempts: u32,
    created_at: u64,
    reference: Option<String>,
    checkpoint: Option<Vec<u8>>,
    decisions: usize,
    /// The end of the lease, the time of the retry, since when it is unknown, or when it was settled.
    instant: Option<u64>,
    expires_at: Option<u64>,
    cause: Option<dupeproof::UnknownCause>,
    ended: Option<Status>,
    response: Option<String>,
    words: Option<String>,
}

impl Seen {
    pub fn of(view: &OperationView) -> Self {
        let instants = [view.lease_until, view.retry_at, view.unknown.map(|(since, _)| since), view.settled_at];
        assert_eq!(instants.iter().flatten().count(), 1, "{view:?}");
        let response = view.response.as_ref().and_then(dupeproof::Response::bytes);
        Self {
            status: view.status,
            attempts: view.attempts,
            created_at: millis(view.created_at),
            reference: view.external_reference.clone(),
            checkpoint: view.checkpoint.clone(),
            decisions: view.decisions.len(),
            instant: instants.into_iter().flatten().next().map(millis),
            expires_at: view.expires_at.map(millis),
            cause: view.unknown.map(|(_, cause)| cause),
            ended: view.ended,
            response: response.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()),
            words: view.failure.clone(),
        }
    }

    pub fn expected(record: &Record) -> Self {
        let mut seen = Self {
            status: record.state.status(),
            attempts: record.attempts,
            created_at: record.created_at,
            reference: record.reference.clone(),
            checkpoint: record.checkpoint.clone(),
            decisions: record.decisions,
            instant: None,
            expires_at: None,
            cause: None,
            ended: None,
            response: None,
            words: None,
        };
        match record.state.clone() {
            State::Reserved { until } | State::Executing { until } => seen.instant = Some(until),
            State::Retryable { why, retry_at } => {
                seen.instant = Some(retry_at);
                seen.words = if let Why::Said(words) = why { Some(words) } else { None };
            }
            State::Unknown { since, cause, words } => {
                (seen.instant, seen.cause, seen.words) = (Some(since), Some(cause), words);
            }
            State::Succeeded { response, at } => {
                (seen.response, seen.instant, seen.expires_at) = (Some(response), Some(at), Some(at + RESPONSE));
            }
            State::Failed { words, at, .. } => {
                (seen.words, seen.instant, seen.expires_at) = (Some(words), Some(at), Some(at + RESPONSE));
            }
            State::Tombstone { succeeded, at } => {
                seen.ended = Some(if succeeded { Status::Succeeded } else { Status::FailedTerminal });
                (seen.instant, seen.expires_at) = (Some(at), Some(at + RESPONSE + TOMBSTONE));
            }
        }
        // A checkpoint is for the next attempt: a settled operation has none.
        if matches!(seen.status, Status::Succeeded | Status::FailedTerminal | Status::Tombstone) {
            seen.checkpoint = None;
        }
        seen
    }
}
