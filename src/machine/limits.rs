//! Every bound on what a caller may hand in, in one place, each with its reason.

use super::time::Span;

/// Longest tenant, operation or step name, in bytes: names, not data; two of them and a key fit one page with room.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Longest key, in bytes: a URL or a composed business key fits; a payload does not.
pub(crate) const KEY_BYTES_MAX: usize = 512;
/// Longest external reference, in bytes: provider ids are tens of bytes, a URL fits.
pub(crate) const REFERENCE_BYTES_MAX: usize = 1024;
/// Longest path of an artifact, in bytes: what the system itself takes.
pub(crate) const LOCATION_BYTES_MAX: usize = 4096;
/// Longest error text kept, in bytes; longer ones are cut, since an error's size must never stop its record.
pub(crate) const FAILURE_BYTES_MAX: usize = 4096;
/// Longest name of who decided, in bytes.
pub(crate) const DECIDER_BYTES_MAX: usize = 256;
/// Longest reason of a decision, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 4096;
/// Decisions kept with a record; the oldest goes first. Bounds a row that is looked at and left unknown daily.
pub(crate) const DECISIONS_MAX: usize = 16;
/// Probes about one unknown outcome unless the reconciler says otherwise: with the default backoff, about a day. Who has
/// not found out by then does not find out by asking.
pub(crate) const PROBES_DEFAULT: u32 = 30;
/// How long one probe keeps others from asking unless the reconciler says otherwise: longer than a request and its
/// retries take, short enough for a reconciler that died.
pub(crate) const PROBE_LEASE_DEFAULT: Span = Span::from_secs(60);
/// Steps of one run: each is counted when one is taken, in the same commit. What has more to do sends messages, or is
/// several runs.
pub(crate) const RUN_STEPS_MAX: u32 = 10_000;
/// Largest checkpoint, in bytes: a cursor or a plan, written on each call; files belong beside the store.
pub(crate) const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Response limit unless the options say otherwise, in bytes.
pub(crate) const RESPONSE_BYTES_DEFAULT: usize = 1024 * 1024;
/// Highest response limit the options may ask for, in bytes: a value takes a power of two of pages in one commit.
pub(crate) const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest row body that is decoded, in bytes: a response, a checkpoint and every other part at its bound, doubled.
pub(crate) const ROW_BYTES_MAX: usize = 2 * (RESPONSE_BYTES_MAX + CHECKPOINT_BYTES_MAX + 128 * 1024);

/// Headers of a message: metadata, not data.
pub(crate) const HEADERS_MAX: usize = 32;
/// Longest value of a header, in bytes: a token or a URL fits.
pub(crate) const HEADER_VALUE_BYTES_MAX: usize = 4096;
/// Largest message, in bytes of payload and headers: its row is written again at each step of its way.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Messages in one call to send: bounds what one commit takes.
pub(crate) const SEND_MESSAGES_MAX: usize = 1000;
/// Bytes of payload and headers in one call to send, and about what one take hands to a relay.
pub(crate) const SEND_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Messages a relay takes at once, at most: all of them wait while one is handled.
pub(crate) const TAKE_MESSAGES_MAX: usize = 1000;
/// Topics one relay can be limited to.
pub(crate) const RELAY_TOPICS_MAX: usize = 100;
/// Attempts to deliver a message unless the relay says otherwise: with the default backoff, an hour or so.
pub(crate) const DELIVERY_ATTEMPTS_DEFAULT: u32 = 16;
/// How long delivered and discarded messages are remembered unless the options say otherwise.
pub(crate) const OUTBOX_RETENTION_DEFAULT: Span = Span::from_days(7);

/// Shortest lease: below it, one slow sync would end leases of live owners.
pub(crate) const LEASE_MIN: Span = Span::from_millis(50);
/// Lease unless the operation says otherwise.
pub(crate) const LEASE_DEFAULT: Span = Span::from_secs(60);
/// Longest lease: beyond it nobody learns of a dead owner in useful time.
pub(crate) const LEASE_MAX: Span = Span::from_days(7);
/// Longest time the keeper renews a lease, unless the operation says otherwise.
pub(crate) const MAX_EXECUTION_DEFAULT: Span = Span::from_secs(60 * 60);
/// Longest `max_execution`.
pub(crate) const MAX_EXECUTION_MAX: Span = Span::from_days(30);
/// Shortest response retention: below it a waiter could miss the replay it waits for.
pub(crate) const RESPONSE_RETENTION_MIN: Span = Span::from_secs(1);
/// Response retention unless the operation says otherwise.
pub(crate) const RESPONSE_RETENTION_DEFAULT: Span = Span::from_days(7);
/// Tombstone retention unless the operation says otherwise.
pub(crate) const TOMBSTONE_RETENTION_DEFAULT: Span = Span::from_days(90);
/// Longest finite retention: what is longer is a mistake in units; say "for ever" instead.
pub(crate) const RETENTION_MAX: Span = Span::from_days(100 * 366);
/// Longest delay before a retry, provider window or wait.
pub(crate) const DELAY_MAX: Span = Span::from_days(366);
/// Attempts unless the operation says otherwise: more than any patient human tries, fewer than a loop makes in a
/// minute.
pub(crate) const ATTEMPTS_DEFAULT: u32 = 100;
/// First backoff delay unless the operation says otherwise.
pub(crate) const BACKOFF_BASE_DEFAULT: Span = Span::from_secs(1);
/// Longest backoff delay unless the operation says otherwise.
pub(crate) const BACKOFF_CAP_DEFAULT: Span = Span::from_secs(15 * 60);

const _: () = assert!(LEASE_MIN.as_millis() < LEASE_DEFAULT.as_millis());
const _: () = assert!(LEASE_DEFAULT.as_millis() < MAX_EXECUTION_DEFAULT.as_millis());
const _: () = assert!(LEASE_MAX.as_millis() < MAX_EXECUTION_MAX.as_millis());
const _: () = assert!(RESPONSE_BYTES_DEFAULT <= RESPONSE_BYTES_MAX);
const _: () = assert!(RESPONSE_BYTES_MAX < ROW_BYTES_MAX);
