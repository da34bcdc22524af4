//! The same commits on redb by hand: the four tables, the row with its sum, the two phases, and nothing above them.
//! What dupeproof costs beyond this is what its own code costs.

use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition, WriteTransaction};
use xxhash_rust::xxh3::Xxh3;

use super::{CACHE_BYTES, Contestant, Fallible, Session};
use crate::work::{Item, OPERATION, RETENTION, now, response};

type IndexKey = (u8, &'static str, &'static str, &'static str, &'static str);

const INDEX: TableDefinition<'_, IndexKey, u64> = TableDefinition::new("index");
const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
const UNSETTLED: TableDefinition<'_, u64, (u8, u64, u64, u64)> = TableDefinition::new("unsettled");
const RETENTION_INDEX: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("retention");

const KIND: u8 = 1;
const EXECUTING: u8 = 2;
const SUCCEEDED: u8 = 5;
const LEASE_MS: u64 = 60_000;
/// sum (8) · state (1) · fingerprint (25) · expiry (8) · created (8) · head length (2) · head · response
const FINGERPRINT_AT: usize = 9;
const FINGERPRINT_BYTES: usize = 25;
const EXPIRY_AT: usize = FINGERPRINT_AT + FINGERPRINT_BYTES;
const CREATED_AT: usize = EXPIRY_AT + 8;
const HEAD_LEN_AT: usize = CREATED_AT + 8;
const HEAD_AT: usize = HEAD_LEN_AT + 2;
/// Rows in one transaction while loading.
const LOAD_ROWS: u64 = 64;

const QUEUE_COMMANDS_MAX: usize = 1024;
const GROUP_COMMANDS_MAX: usize = 256;
/// How long the writer waits for as many callers as its last two commits had.
const COMPANY_WAIT: Duration = Duration::from_micros(300);

/// A transaction a call.
pub(super) struct Direct(Database);

/// One writer thread, which commits what waits.
pub(super) struct Grouped {
    queue: Sender<Command>,
    writer: JoinHandle<Fallible<Database>>,
}

struct DirectSession<'a>(&'a Database);

struct GroupedSession<'a>(&'a Sender<Command>);

struct Command {
    work: Work,
    reply: Sender<Fallible<u64>>,
}

enum Work {
    Begin { tenant: String, key: String, fingerprint: [u8; FINGERPRINT_BYTES] },
    Succeed { id: u64, response: String },
}

/// The tables of one write transaction.
struct Tables<'txn> {
    index: Table<'txn, IndexKey, u64>,
    records: Table<'txn, u64, &'static [u8]>,
    unsettled: Table<'txn, u64, (u8, u64, u64, u64)>,
    retention: Table<'txn, (u64, u64), ()>,
}

pub(super) fn load(path: &Path, records: u64) -> Fallible<()> {
    let database = open(path)?;
    for first in (0..records).step_by(usize::try_from(LOAD_ROWS)?) {
        let mut txn = database.begin_write()?;
        txn.set_durability(Durability::None)?;
        let mut tables = Tables::open(&txn)?;
        for number in first..records.min(first + LOAD_ROWS) {
            let id = tables.apply(&begin(&Item::number(number)))?;
            tables.apply(&Work::Succeed { id, response: response(number) })?;
        }
        drop(tables);
        txn.commit()?;
    }
    // Makes the commits before it durable, and the size of the file final.
    database.begin_write()?.commit()?;
    Ok(database.close()?)
}

fn open(path: &Path) -> Fallible<Database> {
    let database = Builder::new().set_cache_size(CACHE_BYTES).create(path)?;
    let txn = database.begin_write()?;
    drop(Tables::open(&txn)?);
    txn.commit()?;
    Ok(database)
}

fn write(database: &Database) -> Fallible<WriteTransaction> {
    let mut txn = database.begin_write()?;
    txn.set_two_phase_commit(true);
    Ok(txn)
}

fn begin(item: &Item) -> Work {
    Work::Begin { tenant: item.tenant.clone(), key: item.key.clone(), fingerprint: fingerprint(item) }
}

fn fingerprint(item: &Item) -> [u8; FINGERPRINT_BYTES] {
    let mut stored = [0; FINGERPRINT_BYTES];
    stored[FINGERPRINT_BYTES - item.fingerprint.len()..].copy_from_slice(&item.fingerprint);
    stored
}

fn index_key<'a>(tenant: &'a str, key: &'a str) -> (u8, &'a str, &'a str, &'a str, &'a str) {
    (KIND, tenant, OPERATION, key, "")
}

impl<'txn> Tables<'txn> {
    fn open(txn: &'txn WriteTransaction) -> Fallible<Self> {
        Ok(Self {
            index: txn.open_table(INDEX)?,
            records: txn.open_table(RECORDS)?,
            unsettled: txn.open_table(UNSETTLED)?,
            retention: txn.open_table(RETENTION_INDEX)?,
        })
    }

    /// Returns the id of the record.
    fn apply(&mut self, work: &Work) -> Fallible<u64> {
        let now_ms = unix_millis();
        match work {
            Work::Begin { tenant, key, fingerprint } => {
                if self.index.get(index_key(tenant, key))?.is_some() {
                    return Err("a new key was there already".into());
                }
                let id = self.records.last()?.map_or(1, |(id, _)| id.value() + 1);
                let mut row = vec![0; HEAD_AT];
                row[FINGERPRINT_AT..EXPIRY_AT].copy_from_slice(fingerprint);
                row[CREATED_AT..HEAD_LEN_AT].copy_from_slice(&now_ms.to_le_bytes());
                for part in [tenant, OPERATION, key] {
                    row.push(u8::try_from(part.len())?);
                    row.extend_from_slice(part.as_bytes());
                }
                let head_len = u16::try_from(row.len() - HEAD_AT)?;
                row[HEAD_LEN_AT..HEAD_AT].copy_from_slice(&head_len.to_le_bytes());
                self.records.insert(id, sealed(row, EXECUTING, id).as_slice())?;
                self.index.insert(index_key(tenant, key), id)?;
                self.unsettled.insert(id, (EXECUTING, now_ms + LEASE_MS, 1, now_ms))?;
                Ok(id)
            }
            Work::Succeed { id, response } => {
                let stored = self.records.get(*id)?.ok_or("a claimed record is gone")?;
                let mut row = opened(stored.value(), EXECUTING, *id)?.to_vec();
                drop(stored);
                let expires_ms = now_ms + u64::try_from(RETENTION.as_millis())?;
                row[EXPIRY_AT..CREATED_AT].copy_from_slice(&expires_ms.to_le_bytes());
                row.extend_from_slice(response.as_bytes());
                self.records.insert(*id, sealed(row, SUCCEEDED, *id).as_slice())?;
                self.unsettled.remove(*id)?;
                self.retention.insert((expires_ms, *id), ())?;
                Ok(*id)
            }
        }
    }
}

fn sum(row: &[u8], id: u64) -> [u8; 8] {
    let mut hash = Xxh3::new();
    hash.update(&id.to_le_bytes());
    hash.update(&row[8..]);
    hash.digest().to_le_bytes()
}

fn sealed(mut row: Vec<u8>, state: u8, id: u64) -> Vec<u8> {
    row[8] = state;
    let sum = sum(&row, id);
    row[..8].copy_from_slice(&sum);
    row
}

fn opened(row: &[u8], state: u8, id: u64) -> Fallible<&[u8]> {
    if row.len() < HEAD_AT || row[..8] != sum(row, id) {
        return Err("a row is damaged".into());
    }
    if row[8] == state { Ok(row) } else { Err("a record is in another state".into()) }
}

fn replay(database: &Database, item: &Item) -> Fallible<Vec<u8>> {
    let txn = database.begin_read()?;
    let (index, records) = (txn.open_table(INDEX)?, txn.open_table(RECORDS)?);
    let id = index.get(index_key(&item.tenant, &item.key))?.ok_or("a settled key is missing")?.value();
    let stored = records.get(id)?.ok_or("a settled record is missing")?;
    let row = opened(stored.value(), SUCCEEDED, id)?;
    if row[FINGERPRINT_AT..EXPIRY_AT] != fingerprint(item) {
        return Err("a settled key has another payload".into());
    }
    let head_len = usize::from(u16::from_le_bytes([row[HEAD_LEN_AT], row[HEAD_LEN_AT + 1]]));
    Ok(row[HEAD_AT + head_len..].to_vec())
}

impl Direct {
    pub(super) fn open(path: &Path) -> Fallible<Self> {
        open(path).map(Self)
    }
}

impl Contestant for Direct {
    fn session(&self) -> Fallible<Box<dyn Session + '_>> {
        Ok(Box::new(DirectSession(&self.0)))
    }

    fn close(self: Box<Self>) -> Fallible<()> {
        Ok(self.0.close()?)
    }
}

impl DirectSession<'_> {
    fn commit(&self, work: &Work) -> Fallible<u64> {
        let txn = write(self.0)?;
        let id = Tables::open(&txn)?.apply(work)?;
        txn.commit()?;
        Ok(id)
    }
}

impl Session for DirectSession<'_> {
    fn cycle(&mut self, item: &Item, response: String) -> Fallible<()> {
        let id = self.commit(&begin(item))?;
        self.commit(&Work::Succeed { id, response })?;
        Ok(())
    }

    fn replay(&mut self, item: &Item) -> Fallible<Vec<u8>> {
        replay(self.0, item)
    }
}

impl Grouped {
    #[expect(clippy::disallowed_methods, reason = "the contestant owns its writer, as a store would, and joins it")]
    pub(super) fn open(path: &Path) -> Fallible<Self> {
        let database = open(path)?;
        let (queue, commands) = bounded(QUEUE_COMMANDS_MAX);
        let writer = thread::spawn(move || {
            let mut sizes = [0; 2];
            while let Ok(first) = commands.recv() {
                let group = gather(first, &commands, sizes[0].max(sizes[1]));
                sizes = [sizes[1], group.len()];
                commit(&database, group)?;
            }
            Ok(database)
        });
        Ok(Self { queue, writer })
    }
}

fn gather(first: Command, commands: &Receiver<Command>, expected: usize) -> Vec<Command> {
    let mut group = vec![first];
    let mut deadline = None;
    while group.len() < GROUP_COMMANDS_MAX {
        let next = match commands.try_recv() {
            Ok(command) => Some(command),
            Err(_) if expected > 1 && group.len() < expected => {
                commands.recv_deadline(*deadline.get_or_insert_with(|| now() + COMPANY_WAIT)).ok()
            }
            Err(_) => None,
        };
        match next {
            Some(command) => group.push(command),
            None => break,
        }
    }
    group
}

fn commit(database: &Database, group: Vec<Command>) -> Fallible<()> {
    let txn = write(database)?;
    let mut tables = Tables::open(&txn)?;
    let answers: Vec<_> = group.iter().map(|command| tables.apply(&command.work)).collect();
    drop(tables);
    txn.commit()?;
    for (command, answer) in group.into_iter().zip(answers) {
        // A caller who is gone needs no answer.
        let _ = command.reply.try_send(answer);
    }
    Ok(())
}

impl Contestant for Grouped {
    fn session(&self) -> Fallible<Box<dyn Session + '_>> {
        Ok(Box::new(GroupedSession(&self.queue)))
    }

    fn close(self: Box<Self>) -> Fallible<()> {
        drop(self.queue);
        Ok(self.writer.join().map_err(|_| "the writer panicked")??.close()?)
    }
}

impl GroupedSession<'_> {
    fn ask(&self, work: Work) -> Fallible<u64> {
        let (reply, answer) = bounded(1);
        self.0.send(Command { work, reply })?;
        answer.recv()?
    }
}

impl Session for GroupedSession<'_> {
    fn cycle(&mut self, item: &Item, response: String) -> Fallible<()> {
        let id = self.ask(begin(item))?;
        self.ask(Work::Succeed { id, response })?;
        Ok(())
    }

    /// Reading passes no writer, so the direct contestant shows it.
    fn replay(&mut self, _: &Item) -> Fallible<Vec<u8>> {
        Err("redb_group replays as redb does".into())
    }
}

#[expect(clippy::disallowed_methods, reason = "the hand-written store has no clock but the system's")]
fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
