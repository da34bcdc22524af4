//! Looking without touching: single records, lists, counts.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::index::Shelf;
use crate::machine::key::{Identity, Kind};
use crate::machine::record::{Record, RecordId, Status};
use crate::machine::time::Timestamp;
use crate::operation::{OperationView, as_of, view_with_compensation};
use crate::storage::outbox::look::OutboxStats;
use crate::storage::snapshot::{Snapshot, Visit};
use crate::store::Store;

/// Rows one page of a list may look at, so that a filter that matches nothing cannot walk a whole store in one call.
const SCAN_ROWS_MAX: usize = 20_000;
/// Operations in one page.
const PAGE_OPERATIONS_MAX: usize = 1000;

/// Which operations to list. Start from [`Filter::new`], which lists all, or from [`Filter::inbox`].
///
/// # Example
/// ```
/// use dupeproof::{Filter, Status};
/// let filter = Filter::new().with_status(Status::Unknown).with_tenant("acme");
/// # let _ = filter;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Filter {
    kind: Kind,
    status: Option<Status>,
    tenant: Option<String>,
    operation: Option<String>,
    older_than: Option<Duration>,
    waits_for_person: bool,
}

impl Filter {
    /// Everything.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Filter, Fingerprint, Operation, OperationKey, Page, Status, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let all = store.list(&Filter::new(), &Page::first(100))?;
    /// assert_eq!(all.operations.len(), 1);
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Messages that came in, instead of operations: in their views the operation is the source and the key is the
    /// message's id.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Filter, Fingerprint, Page, Response, Store};
    /// # let store = Store::in_memory()?;
    /// let orders = store.inbox("acme", "orders")?;
    /// let _ = orders.process_raw("m-1", Fingerprint::unchecked(), |_| Ok::<_, dupeproof::Error>(Response::Absent))?;
    /// let messages = store.list(&Filter::inbox(), &Page::first(100))?;
    /// assert_eq!(messages.operations[0].key.key(), "m-1");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn inbox() -> Self {
        Self { kind: Kind::Inbox, ..Self::default() }
    }

    /// Records of another kind instead of operations: steps of runs, say, or compensations.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Filter, Kind, Status};
    /// let refunds = Filter::new().with_kind(Kind::Compensation).with_status(Status::Unknown);
    /// # let _ = refunds;
    /// ```
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Only operations in this status.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Filter, Fingerprint, Operation, OperationKey, Page, Status, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// claim.give_up("connection lost")?;
    /// let unknown = store.list(&Filter::new().with_status(Status::Unknown), &Page::first(100))?;
    /// assert_eq!(unknown.operations.len(), 1);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Only operations of this tenant.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Filter, Fingerprint, Operation, OperationKey, Page, Status, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let theirs = store.list(&Filter::new().with_tenant("globex"), &Page::first(100))?;
    /// assert!(theirs.operations.is_empty());
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Only operations of this name.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Filter, Fingerprint, Operation, OperationKey, Page, Status, Store};
    /// # let store = Store::in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// let charges = store.list(&Filter::new().with_operation("charge"), &Page::first(100))?;
    /// assert_eq!(charges.operations[0].status, Status::Executing);
    /// # claim.release()?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_operation(mut self, operation: impl Into<String>) -> Self {
        self.operation = Some(operation.into());
        self
    }

    /// Only operations whose key was first used longer ago than this.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Filter, Fingerprint, ManualClock, Operation, OperationKey, Options, Page};
    /// # let clock = ManualClock::at(std::time::Duration::from_secs(1_790_000_000));
    /// # let store = Options::new().with_clock(clock.clone()).in_memory()?;
    /// # let operation = Operation::new(OperationKey::new("acme", "charge", "i-1")?, Fingerprint::of_bytes(b"12.00"));
    /// # let Begin::Execute(claim) = store.begin(&operation)? else { unreachable!() };
    /// use std::time::Duration;
    /// let old = Filter::new().with_older_than(Duration::from_secs(3600));
    /// assert!(store.list(&old, &Page::first(100))?.operations.is_empty());
    /// clock.advance(Duration::from_secs(7200));
    /// assert_eq!(store.list(&old, &Page::first(100))?.operations.len(), 1);
    /// # drop(claim);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Only operations whose outcome is unknown and that wait for a person, because the provider was asked in vain as
    /// often as it may be.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Filter, Page, Store};
    /// # let store = Store::in_memory()?;
    /// for operation in store.list(&Filter::new().with_waiting_for_person(), &Page::first(100))?.operations {
    ///     println!("{:?}: asked {} times", operation.key, operation.probes);
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    #[must_use]
    pub fn with_waiting_for_person(mut self) -> Self {
        self.waits_for_person = true;
        self
    }

    fn admits(&self, record: &Record, now: Timestamp) -> bool {
        let key = &record.head.identity.key;
        self.status.is_none_or(|status| record.status() == status)
            && self.tenant.as_deref().is_none_or(|tenant| key.tenant() == tenant)
            && self.operation.as_deref().is_none_or(|operation| key.operation() == operation)
            && self.older_than.is_none_or(|age| now.since(record.head.created_at) > age)
            && (!self.waits_for_person || record.waits_for_person())
    }

    /// Whether the small table of unsettled records holds all that can match.
    fn is_unsettled_only(&self) -> bool {
        self.waits_for_person || self.status.is_some_and(|status| !status.is_settled())
    }
}

/// Where a list goes on. Start from [`Page::first`].
#[derive(Debug, Clone)]
pub struct Page {
    operations_max: usize,
    after: After,
}

#[derive(Debug, Clone)]
enum After {
    Start,
    Identity(Identity),
    Unsettled(RecordId),
}

impl Page {
    /// The first page, with at most so many operations (1 to 1,000).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Filter, Page, Store};
    /// # let store = Store::in_memory()?;
    /// let mut next = Some(Page::first(100));
    /// while let Some(page) = next {
    ///     let listing = store.list(&Filter::new(), &page)?;
    ///     for operation in &listing.operations {
    ///         println!("{:?} is {}", operation.key, operation.status);
    ///     }
    ///     next = listing.next;
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn first(operations_max: usize) -> Self {
        Self { operations_max: operations_max.clamp(1, PAGE_OPERATIONS_MAX), after: After::Start }
    }
}

/// One page of a list, and where the next one starts. A page can be short, even empty, with more behind it: how many
/// rows one call may look at is bounded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listing {
    /// The operations.
    pub operations: Vec<OperationView>,
    /// The next page, if there is one.
    pub next: Option<Page>,
}

/// Counts of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Claimed, not started.
    pub reserved: u64,
    /// Started.
    pub executing: u64,
    /// Known not to have happened.
    pub failed_retryable: u64,
    /// Of unknown outcome.
    pub unknown: u64,
    /// Those of them that wait for a person.
    pub waiting_for_person: u64,
    /// Succeeded, with their response.
    pub succeeded: u64,
    /// Failed for good.
    pub failed_terminal: u64,
    /// Compact residues.
    pub tombstones: u64,
    /// Messages that came in and are still recognised, however they ended. Those above are operations, but for the
    /// unsettled ones, which are counted whatever they are of.
    pub inbox_marks: u64,
    /// Runs of workflows that are not over.
    pub runs_open: u64,
    /// Runs that are over and remembered.
    pub runs_over: u64,
    /// Steps of runs and their compensations that are settled. They count among no other settled records.
    pub steps_settled: u64,
    /// The outbox.
    pub outbox: OutboxStats,
    /// Since when the oldest unknown outcome is unknown.
    pub oldest_unknown: Option<Timestamp>,
    /// Length of the file in bytes; nothing for a store in memory.
    pub file_bytes: Option<u64>,
    /// Store time when this was counted.
    pub now: Timestamp,
}

impl Store {
    /// Looks a record up, in whatever status it is. Changes nothing.
    ///
    /// # Errors
    /// [`Damaged`](ErrorKind::Damaged), [`NewerFormat`](ErrorKind::NewerFormat), [`Closed`](ErrorKind::Closed).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Fingerprint, Operation, OperationKey, Response, Status, Store};
    /// # let store = Store::in_memory()?;
    /// let key = OperationKey::new("acme", "mail", "welcome/jane")?;
    /// assert!(store.get(&key)?.is_none());
    /// let operation = Operation::new(key.clone(), Fingerprint::unchecked());
    /// let _ = store.run_raw(&operation, |_| Ok(Response::Absent))?;
    /// assert_eq!(store.get(&key)?.unwrap().status, Status::Succeeded);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn get(&self, key: impl Into<Identity>) -> Result<Option<OperationView>> {
        self.view_of(&key.into())
    }

    /// Lists operations page by page: by key, or, if only an unsettled status can match, by age of the record.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Filter, Page, Status, Store};
    /// # let store = Store::in_memory()?;
    /// let mut page = Some(Page::first(100));
    /// while let Some(this) = page {
    ///     let listing = store.list(&Filter::new().with_status(Status::Unknown), &this)?;
    ///     for operation in &listing.operations {
    ///         println!("{} is unknown", operation.key.key());
    ///     }
    ///     page = listing.next;
    /// }
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn list(&self, filter: &Filter, page: &Page) -> Result<Listing> {
        let now = self.engine().moment().now;
        let mut collected = Collected::new(filter, page, now);
        self.engine().read(|snapshot| match (&page.after, filter.is_unsettled_only()) {
            (After::Unsettled(_), _) | (After::Start, true) => {
                let after = match page.after {
                    After::Unsettled(id) => Some(id),
                    After::Start | After::Identity(_) => None,
                };
                snapshot.scan_unsettled(after, |id, _| match snapshot.read(id)? {
                    Some(record) => collected.take(snapshot, record, |record| After::Unsettled(record.head.id)),
                    None => Err(Error::new(ErrorKind::Damaged, format!("unsettled record {} is missing", id.0))),
                })
            }
            (After::Identity(_), _) | (After::Start, false) => {
                let after = match &page.after {
                    After::Identity(identity) => Some(identity),
                    After::Start | After::Unsettled(_) => None,
                };
                snapshot.scan(filter.kind, after, |record| {
                    collected.take(snapshot, record, |record| After::Identity(record.head.identity.clone()))
                })
            }
        })?;
        Ok(collected.listing)
    }

    /// Counts records by status. Settled ones are counted by the length of a table, unsettled ones by a walk over the
    /// small table that holds only them. Both are as of the last sweep.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    ///
    /// # Example
    /// ```
    /// let store = dupeproof::Store::in_memory()?;
    /// assert_eq!(store.stats()?.unknown, 0);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn stats(&self) -> Result<Stats> {
        let mut stats = Stats { now: self.engine().moment().now, ..Stats::default() };
        self.engine().read(|snapshot| {
            stats.succeeded = snapshot.shelf_len(Shelf::Succeeded)?;
            stats.failed_terminal = snapshot.shelf_len(Shelf::FailedTerminal)?;
            stats.tombstones = snapshot.shelf_len(Shelf::Tombstone)?;
            stats.inbox_marks = snapshot.shelf_len(Shelf::Inbox)?;
            stats.runs_over = snapshot.shelf_len(Shelf::Run)?;
            stats.steps_settled = snapshot.shelf_len(Shelf::Member)?;
            stats.outbox = snapshot.outbox_stats(stats.now)?;
            snapshot.scan_unsettled(None, |_, row| {
                match row.status {
                    Status::Reserved => stats.reserved += 1,
                    Status::Executing => stats.executing += 1,
                    Status::FailedRetryable => stats.failed_retryable += 1,
                    Status::Unknown => {
                        stats.unknown += 1;
                        stats.waiting_for_person += u64::from(row.due == Timestamp::FOREVER);
                        stats.oldest_unknown = Some(stats.oldest_unknown.map_or(row.since, |at| at.min(row.since)));
                    }
                    Status::Open => stats.runs_open += 1,
                    Status::Succeeded | Status::FailedTerminal | Status::Tombstone => {}
                }
                Ok(Visit::Next)
            })
        })?;
        stats.file_bytes = self.engine().file().len()?;
        Ok(stats)
    }
}

/// A page while it fills.
struct Collected<'a> {
    filter: &'a Filter,
    now: Timestamp,
    operations_max: usize,
    looked_at: usize,
    listing: Listing,
}

impl<'a> Collected<'a> {
    fn new(filter: &'a Filter, page: &Page, now: Timestamp) -> Self {
        let listing = Listing { operations: Vec::new(), next: None };
        Self { filter, now, operations_max: page.operations_max, looked_at: 0, listing }
    }

    fn take(&mut self, snapshot: &Snapshot, record: Record, after: impl FnOnce(&Record) -> After) -> Result<Visit> {
        let after = after(&record);
        self.looked_at += 1;
        if let Some(record) = as_of(record, self.now)
            && record.head.identity.kind == self.filter.kind
            && self.filter.admits(&record, self.now)
        {
            self.listing.operations.push(view_with_compensation(snapshot, record, self.now)?);
        }
        if self.listing.operations.len() == self.operations_max || self.looked_at == SCAN_ROWS_MAX {
            self.listing.next = Some(Page { operations_max: self.operations_max, after });
            return Ok(Visit::Stop);
        }
        Ok(Visit::Next)
    }
}
