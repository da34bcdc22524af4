//! The part of the workload that goes through the outbox, one commit an act, and what each act promises.

use std::collections::{BTreeMap, HashMap};

use crate::engine::Post;
use crate::error::Result;
use crate::machine::message::event::{Again, Event, Failure, Grant};
use crate::machine::message::stored::{LaneWhenDead, MessageStatus, StoredMessage, Terms, Ticket};
use crate::machine::time::Span;
use crate::storage::outbox::work::{Round, Take, Told};
use crate::{Backoff, Decision, Message, Sent, Store};

/// How long finished messages are remembered: the second sweep of the script forgets them.
pub(super) const RETENTION_SECS: u64 = 15;
const ATTEMPTS: u32 = 2;

/// One call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Letter {
    Send(&'static [&'static str]),
    /// A relay takes, and gets exactly these.
    Take(&'static [&'static str]),
    /// It says what became of some of them.
    Tell(&'static [(&'static str, Says)]),
    Redrive(&'static str),
    Discard(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Says {
    Delivered,
    Failed,
    GaveBack,
}

use Letter::{Discard, Redrive, Send, Take as T, Tell};
use Says::{Delivered, Failed, GaveBack};

/// Every message that the script sends, with its lane.
pub(super) const LETTERS: [(&str, Option<&str>); 6] =
    [("m1", Some("x")), ("m2", Some("x")), ("m3", None), ("m4", Some("x")), ("m5", Some("y")), ("m6", None)];

/// What the last answer about a message promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LetterPromise {
    pub(super) status: MessageStatus,
    pub(super) attempts: u32,
    pub(super) takes: u32,
}

pub(super) type Letters = BTreeMap<&'static str, LetterPromise>;

pub(super) fn message(id: &str) -> Message {
    let (_, lane) = LETTERS.iter().find(|(letter, _)| *letter == id).expect("a known letter");
    let message = Message::new(id, "lab", format!("content of {id}")).with_header("id", id);
    match lane {
        Some(lane) => message.with_lane(lane),
        None => message,
    }
}

fn grant() -> Grant {
    // As long as the script takes, so that none lapses.
    let terms = Terms { attempts_max: ATTEMPTS, lane_when_dead: LaneWhenDead::GoesOn };
    Grant { lease: Span::from_secs(3600), terms }
}

/// A relay that holds tickets, and speaks when it is told to.
#[derive(Debug, Default)]
pub(super) struct Postman {
    tickets: HashMap<&'static str, Ticket>,
}

impl Postman {
    pub(super) fn perform(&mut self, store: &Store, letter: Letter) -> Result<()> {
        let post = store.engine().post();
        match letter {
            Send(ids) => {
                let messages: Vec<_> = ids.iter().map(|id| message(id)).collect();
                store.outbox().send_many(&messages).map(drop)
            }
            T(ids) => {
                let mut taken: Vec<_> = take(&post)?.iter().map(|stored| (known(stored), stored.ticket())).collect();
                taken.sort_unstable_by_key(|(id, _)| *id);
                assert_eq!(taken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
                self.tickets.extend(taken);
                Ok(())
            }
            Tell(said) => {
                let words: Vec<_> = said.iter().map(|(id, says)| word(*says, self.tickets[id])).collect();
                let told = post.round(Round { words, take: None, topics: None })?.told;
                assert!(told.iter().all(|told| matches!(told, Told::Now(_))), "{told:?}");
                Ok(())
            }
            Redrive(id) => store.outbox().redrive(id).map(drop),
            Discard(id) => store.outbox().discard(id, &Decision::new("lab", "not needed")).map(drop),
        }
    }
}

fn take(post: &Post) -> Result<Vec<StoredMessage>> {
    let take = Some(Take { grant: grant(), messages_max: 10 });
    Ok(post.round(Round { words: Vec::new(), take, topics: None })?.taken)
}

fn known(stored: &StoredMessage) -> &'static str {
    let (id, _) = LETTERS.iter().find(|(id, _)| **id == *stored.head.message.id).expect("a known letter");
    id
}

fn word(says: Says, ticket: Ticket) -> Event {
    match says {
        Delivered => Event::Delivered(ticket),
        Failed => {
            let again = Again::Backoff(Backoff::none());
            Event::Failed(ticket, Failure { error: "no route".into(), again })
        }
        GaveBack => Event::GaveBack(ticket),
    }
}

/// What an act promises, said independently of the store.
pub(super) fn promise(before: &Letters, letter: Letter) -> Letters {
    let mut after = before.clone();
    let mut change = |id: &'static str, change: &dyn Fn(&mut LetterPromise)| change(after.get_mut(id).expect("sent"));
    match letter {
        Send(ids) => {
            for id in ids {
                let new = LetterPromise { status: MessageStatus::Due, attempts: 0, takes: 0 };
                after.entry(id).or_insert(new);
            }
        }
        T(ids) => ids.iter().for_each(|id| {
            change(id, &|known| {
                known.status = MessageStatus::InFlight;
                known.attempts += 1;
                known.takes += 1;
            });
        }),
        Tell(said) => said.iter().for_each(|(id, says)| {
            change(id, &|known| match says {
                Delivered => known.status = MessageStatus::Delivered,
                Failed if known.attempts == ATTEMPTS => known.status = MessageStatus::Dead,
                Failed => known.status = MessageStatus::Scheduled,
                GaveBack => {
                    known.status = MessageStatus::Due;
                    known.attempts -= 1;
                }
            });
        }),
        Redrive(id) => change(id, &|known| {
            known.status = MessageStatus::Due;
            known.attempts = 0;
        }),
        Discard(id) => change(id, &|known| known.status = MessageStatus::Discarded),
    }
    after
}

pub(super) fn after_sweep(before: &Letters, seconds: u64) -> Letters {
    let mut after = before.clone();
    after.retain(|_, known| !is_finished(known.status) || seconds < RETENTION_SECS);
    after
}

/// An open or a close ends the leases there were.
pub(super) fn after_open(before: &Letters) -> Letters {
    let mut after = before.clone();
    for known in after.values_mut().filter(|known| known.status == MessageStatus::InFlight) {
        known.status = if known.attempts == ATTEMPTS { MessageStatus::Dead } else { MessageStatus::Due };
    }
    after
}

pub(super) fn promised_by(messages: &[StoredMessage]) -> Letters {
    let promise = |stored: &StoredMessage| LetterPromise {
        status: stored.status(),
        attempts: stored.head.attempts,
        takes: stored.head.takes,
    };
    messages.iter().map(|stored| (known(stored), promise(stored))).collect()
}

fn is_finished(status: MessageStatus) -> bool {
    matches!(status, MessageStatus::Delivered | MessageStatus::Discarded)
}

/// What was sent is known, what is open is delivered once and in the order of its lane, and nothing else is.
pub(super) fn check_as_caller(store: &Store, promises: &Letters) -> Result<(), String> {
    let messages: Vec<_> = LETTERS.iter().map(|(id, _)| message(id)).collect();
    let sent = store.outbox().send_many(&messages).map_err(|error| format!("send: {error}"))?;
    let mut open = Vec::new();
    for ((id, _), sent) in LETTERS.iter().zip(sent) {
        let known = promises.get(id);
        if (sent == Sent::Duplicate) != known.is_some() {
            return Err(format!("{id} is {known:?}, and sending says {sent:?}"));
        }
        if known.is_none_or(|known| matches!(known.status, MessageStatus::Due | MessageStatus::Scheduled)) {
            open.push(*id);
        }
    }
    let mut arrived = Vec::new();
    let relay = store.outbox().relay();
    loop {
        let report = relay.run_once(|message| {
            arrived.push(message.id().to_owned());
            Ok(())
        });
        if !report.map_err(|error| format!("relay: {error}"))?.more {
            break;
        }
    }
    arrived.sort_unstable();
    if arrived == open { Ok(()) } else { Err(format!("{arrived:?} arrived, and {open:?} were open")) }
}
