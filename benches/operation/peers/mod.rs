//! The contestants. All do the same work, on files of their own.

mod connection;
mod dupeproof;
mod raw_redb;
mod sqlite;

use std::error::Error;
use std::path::Path;

use crate::work::Item;

pub(crate) type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Page cache of every contestant.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// An open store, shared by the threads of a visit.
pub(crate) trait Contestant: Send + Sync {
    /// What one thread works with.
    fn session(&self) -> Fallible<Box<dyn Session + '_>>;
    /// Closes the file, so that its size is final.
    fn close(self: Box<Self>) -> Fallible<()>;
}

pub(crate) trait Session {
    /// A durable begin and a durable settlement with the response.
    fn cycle(&mut self, item: &Item, response: String) -> Fallible<()>;
    /// An owned copy of a settled operation's response, after its fingerprint and state were checked.
    fn replay(&mut self, item: &Item) -> Fallible<Vec<u8>>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Dupeproof,
    /// dupeproof, settling one operation and beginning the next in one commit.
    DupeproofChain,
    /// redb by hand, a transaction a call.
    Redb,
    /// redb by hand, behind a writer thread that commits what waits.
    RedbGroup,
    Sqlite,
}

/// The files of two contestants may be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    Dupeproof,
    Redb,
    Sqlite,
}

impl Format {
    pub(crate) const ALL: [Self; 3] = [Self::Dupeproof, Self::Redb, Self::Sqlite];

    /// The contestant that stands for the format where they do not differ.
    pub(crate) fn peer(self) -> Peer {
        match self {
            Self::Dupeproof => Peer::Dupeproof,
            Self::Redb => Peer::Redb,
            Self::Sqlite => Peer::Sqlite,
        }
    }

    /// Fills a new file with `records` settled records. Durability is nobody's concern here.
    pub(crate) fn load(self, path: &Path, records: u64) -> Fallible<()> {
        match self {
            Self::Dupeproof => dupeproof::load(path, records),
            Self::Redb => raw_redb::load(path, records),
            Self::Sqlite => sqlite::load(path, records),
        }
    }
}

impl Peer {
    pub(crate) const ALL: [Self; 5] =
        [Self::Dupeproof, Self::DupeproofChain, Self::Redb, Self::RedbGroup, Self::Sqlite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dupeproof => "dupeproof",
            Self::DupeproofChain => "dupeproof_chain",
            Self::Redb => "redb",
            Self::RedbGroup => "redb_group",
            Self::Sqlite => "sqlite",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    pub(crate) fn format(self) -> Format {
        match self {
            Self::Dupeproof | Self::DupeproofChain => Format::Dupeproof,
            Self::Redb | Self::RedbGroup => Format::Redb,
            Self::Sqlite => Format::Sqlite,
        }
    }

    /// Durable commands in one cycle.
    pub(crate) fn commands_per_cycle(self) -> f64 {
        match self {
            Self::DupeproofChain => 1.0,
            Self::Dupeproof | Self::Redb | Self::RedbGroup | Self::Sqlite => 2.0,
        }
    }

    pub(crate) fn open(self, path: &Path) -> Fallible<Box<dyn Contestant>> {
        Ok(match self {
            Self::Dupeproof => Box::new(dupeproof::Cycles::open(path)?),
            Self::DupeproofChain => Box::new(dupeproof::Chains::open(path)?),
            Self::Redb => Box::new(raw_redb::Direct::open(path)?),
            Self::RedbGroup => Box::new(raw_redb::Grouped::open(path)?),
            Self::Sqlite => Box::new(sqlite::ByHand::open(path)?),
        })
    }
}
