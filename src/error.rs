//! The one public error: opaque, one pointer wide, with a [kind](ErrorKind) that answers the operator.
//!
//! Expected answers (a replay, a conflict, somebody else is on it) are never errors. An error means
//! misuse, a limit, a lost lease, or trouble with the file; its kind says whether the outcome of *this
//! call* is known, whether to retry it, whether to reopen the store and whether the file is damaged.

use std::error::Error as StdError;
use std::fmt;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Branch on [`kind`](Error::kind), print with `Display`.
///
/// # Example: let the kind decide
/// ```
/// let error = dupeproof::OperationKey::new("acme", "charge", "").unwrap_err();
/// assert_eq!(error.kind(), dupeproof::ErrorKind::InvalidInput);
/// assert!(!error.kind().must_reopen());
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What an [`Error`] means for whoever has to act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is out of bounds. Nothing was written. Mend the argument.
    InvalidInput,
    /// There is no such store or record. Nothing was written.
    NotFound,
    /// Another process (or another handle in this one) has the store open in a way that excludes this one.
    OpenElsewhere,
    /// The file is empty, of another program, or not a file. It was not touched.
    NotAStore,
    /// The file, or a row in it, was written by a newer release. It was not touched.
    NewerFormat,
    /// The claim is no longer the current one: its lease ended or another attempt was granted.
    /// Nothing was written.
    LeaseLost,
    /// The operation was settled with another outcome before. Nothing was written.
    AlreadySettled,
    /// The record's state does not allow this call. Nothing was written.
    Refused,
    /// Everything waiting took longer than allowed. Nothing was written.
    Busy,
    /// The commit failed, and a failed commit may still be found after a restart: whether *this call* took
    /// effect is not known. Close, reopen, and ask again.
    Indeterminate,
    /// An earlier failure stopped the store. *This call* did nothing. Close and reopen.
    Stopped,
    /// The store was closed. This call did nothing.
    Closed,
    /// The path no longer names the file that is open (deleted or replaced). The store stopped: two live
    /// stores would each say "first time". Find out who replaced it before reopening.
    Replaced,
    /// The operating system refused a read or a write. Nothing was promised.
    Io,
    /// The file holds something this crate never wrote. Restore a backup, or run `verify`.
    Damaged,
    /// The file that a stored response refers to is not there any more, or is not what it was. The operation did succeed,
    /// and nobody repeats it. Put the file back.
    ArtifactMissing,
    /// A stored or given response could not be turned into the asked type. The record is as it was before, or, after
    /// `run`, settled.
    Response,
}

impl ErrorKind {
    /// Whether it is known what *this call* did. Only [`Indeterminate`](ErrorKind::Indeterminate) leaves it open.
    ///
    /// # Example
    /// ```
    /// assert!(!dupeproof::ErrorKind::Indeterminate.outcome_is_known());
    /// assert!(dupeproof::ErrorKind::LeaseLost.outcome_is_known());
    /// ```
    pub fn outcome_is_known(self) -> bool {
        self != Self::Indeterminate
    }

    /// Whether the same call on the same handle may succeed later.
    ///
    /// # Example
    /// ```
    /// assert!(dupeproof::ErrorKind::OpenElsewhere.may_retry());
    /// assert!(!dupeproof::ErrorKind::InvalidInput.may_retry());
    /// ```
    pub fn may_retry(self) -> bool {
        matches!(self, Self::OpenElsewhere | Self::Busy)
    }

    /// Whether the handle is of no more use: close it and open the store again.
    ///
    /// # Example
    /// ```
    /// assert!(dupeproof::ErrorKind::Indeterminate.must_reopen());
    /// ```
    pub fn must_reopen(self) -> bool {
        match self {
            Self::Indeterminate | Self::Stopped | Self::Closed | Self::Replaced | Self::Io => true,
            Self::InvalidInput
            | Self::NotFound
            | Self::OpenElsewhere
            | Self::NotAStore
            | Self::NewerFormat
            | Self::LeaseLost
            | Self::AlreadySettled
            | Self::Refused
            | Self::Busy
            | Self::Damaged
            | Self::ArtifactMissing
            | Self::Response => false,
        }
    }

    /// Whether the file itself is suspect.
    ///
    /// # Example
    /// ```
    /// assert!(dupeproof::ErrorKind::Damaged.is_damage());
    /// ```
    pub fn is_damage(self) -> bool {
        matches!(self, Self::Damaged | Self::Replaced)
    }

    /// One sentence on what to do now.
    ///
    /// # Example
    /// ```
    /// assert!(dupeproof::ErrorKind::Indeterminate.advice().contains("reopen"));
    /// ```
    pub fn advice(self) -> &'static str {
        match self {
            Self::InvalidInput => "mend the argument and call again; nothing was written",
            Self::NotFound => "check the name; nothing was written",
            Self::OpenElsewhere => "wait for the other process, or open the store in shared mode in both",
            Self::NotAStore => "check the path; the file was not touched",
            Self::NewerFormat => "use the release that wrote the store, or a later one; nothing was written",
            Self::LeaseLost => "stop: this attempt is no longer the current one; look the operation up",
            Self::AlreadySettled => "look the operation up: it ended with another outcome",
            Self::Refused => "look the operation up: its state does not allow this",
            Self::Busy => "try again later; nothing was written",
            Self::Indeterminate => "reopen the store and ask again: this call may or may not have taken effect",
            Self::Stopped => "close the store and reopen it; this call did nothing",
            Self::Closed => "reopen the store; this call did nothing",
            Self::Replaced => "find out who deleted or replaced the file before you reopen it",
            Self::Io => "mend the disk or the permissions, then reopen the store",
            Self::Damaged => "restore a backup, or run verify to see the extent",
            Self::ArtifactMissing => "put the file back where it was: the operation succeeded, and is not repeated",
            Self::Response => "ask for the type that was stored, or read the raw response",
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Puts what was being done before the message: `failed to open store at …: …`.
    pub(crate) fn context(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    pub(crate) fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// What this error means for whoever has to act on it.
    ///
    /// # Example
    /// ```
    /// let error = dupeproof::Options::new().must_exist().open("/nonexistent/store.redb").unwrap_err();
    /// assert_eq!(error.kind(), dupeproof::ErrorKind::NotFound);
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
