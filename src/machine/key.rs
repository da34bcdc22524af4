//! Identity: what makes two calls the same business operation.
//!
//! The parts stay separate fields all the way to the disk; they are never joined with a separator, so
//! `("a", "b/c")` and `("a/b", "c")` cannot meet.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::error::{Error, Result};

/// What the user calls *one operation*: a tenant, an operation name and a key.
///
/// The key must be the same on every retry and different for every operation the user would call another one:
/// `invoice_id`, `campaign_id/recipient_id`, `document_id@version`. A fresh random key for each retry protects
/// nothing. The operation name is a plain string that you choose once and keep; it is never derived from a type or
/// a module path, which a refactoring would change.
///
/// # Example
/// ```
/// use dupeproof::OperationKey;
/// let key = OperationKey::new("acme", "charge", "invoice-981")?;
/// assert_eq!(key.operation(), "charge");
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OperationKey {
    tenant: Box<str>,
    operation: Box<str>,
    key: Box<str>,
}

impl OperationKey {
    /// Names an operation. `tenant` and `operation` take 1–128 bytes, `key` 1–512, all UTF-8 without control
    /// characters.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a part is empty, too long or holds a control character.
    ///
    /// # Example
    /// ```
    /// use dupeproof::OperationKey;
    /// assert!(OperationKey::new("acme", "charge", "a\nb").is_err());
    /// ```
    pub fn new(tenant: impl AsRef<str>, operation: impl AsRef<str>, key: impl AsRef<str>) -> Result<Self> {
        Ok(Self {
            tenant: part("tenant", tenant.as_ref(), NAME_BYTES_MAX)?,
            operation: part("operation", operation.as_ref(), NAME_BYTES_MAX)?,
            key: part("key", key.as_ref(), KEY_BYTES_MAX)?,
        })
    }

    /// The tenant.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::OperationKey;
    /// let key = OperationKey::new("acme", "charge", "invoice-981")?;
    /// assert_eq!(key.tenant(), "acme");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The operation name.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::OperationKey;
    /// let key = OperationKey::new("acme", "charge", "invoice-981")?;
    /// assert_eq!(key.operation(), "charge");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The key within tenant and operation.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::OperationKey;
    /// let key = OperationKey::new("acme", "charge", "invoice-981")?;
    /// assert_eq!(key.key(), "invoice-981");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// Shows names, but only the length of the key: keys may hold personal data, and `Debug` ends up in logs.
impl fmt::Debug for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationKey({}, {}, <{} bytes>)", self.tenant, self.operation, self.key.len())
    }
}

pub(crate) fn part(name: &str, value: &str, bytes_max: usize) -> Result<Box<str>> {
    if value.is_empty() {
        return Err(Error::invalid_input(format!("{name} is empty: 1 to {bytes_max} bytes expected")));
    }
    if value.len() > bytes_max {
        let found = value.len();
        return Err(Error::invalid_input(format!("{name} has {found} bytes: 1 to {bytes_max} expected")));
    }
    if let Some(at) = value.chars().position(char::is_control) {
        return Err(Error::invalid_input(format!("{name} has a control character at position {at}")));
    }
    Ok(value.into())
}

/// One run of a workflow: a tenant, a workflow's name and a key.
///
/// The key is what the user calls this one run (`post-17@4`), the same on every resumption.
///
/// # Example
/// ```
/// use dupeproof::RunKey;
/// let run = RunKey::new("acme", "publish", "post-17@4")?;
/// assert_eq!((run.tenant(), run.workflow(), run.run()), ("acme", "publish", "post-17@4"));
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey(OperationKey);

impl RunKey {
    /// Names a run. `tenant` and `workflow` take 1–128 bytes, `run` 1–512, all UTF-8 without control characters.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if a part is out of bounds.
    ///
    /// # Example
    /// ```
    /// assert!(dupeproof::RunKey::new("acme", "publish", "").is_err());
    /// ```
    pub fn new(tenant: impl AsRef<str>, workflow: impl AsRef<str>, run: impl AsRef<str>) -> Result<Self> {
        Ok(Self(OperationKey {
            tenant: part("tenant", tenant.as_ref(), NAME_BYTES_MAX)?,
            operation: part("workflow", workflow.as_ref(), NAME_BYTES_MAX)?,
            key: part("run", run.as_ref(), KEY_BYTES_MAX)?,
        }))
    }

    /// The run that an identity of a run, or of a part of one, names.
    pub(crate) fn of(identity: &Identity) -> Self {
        Self(identity.key.clone())
    }

    /// The tenant.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::RunKey::new("acme", "publish", "post-17@4")?.tenant(), "acme");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// The workflow's name.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::RunKey::new("acme", "publish", "post-17@4")?.workflow(), "publish");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn workflow(&self) -> &str {
        &self.0.operation
    }

    /// The key of the run.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::RunKey::new("acme", "publish", "post-17@4")?.run(), "post-17@4");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn run(&self) -> &str {
        &self.0.key
    }
}

/// Shows names, but only the length of the key, as [`OperationKey`] does.
impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunKey({}, {}, <{} bytes>)", self.tenant(), self.workflow(), self.run().len())
    }
}

/// A step within its run: a name and, in a loop, which turn of it.
///
/// The name and the turn stay apart all the way to the disk: the step `"a:1"` is not turn 1 of the step `"a"`.
///
/// # Example
/// ```
/// use dupeproof::StepKey;
/// let third = StepKey::at("mail", 2)?;
/// assert_eq!(third.to_string(), "mail[2]");
/// assert_ne!(third, StepKey::new("mail[2]")?);
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepKey {
    name: Box<str>,
    index: Option<u32>,
}

impl StepKey {
    /// Names a step: 1–128 bytes, UTF-8 without control characters. Choose the name once and keep it: it is what the
    /// run remembers the step by.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the name is out of bounds.
    ///
    /// # Example
    /// ```
    /// assert!(dupeproof::StepKey::new("charge").is_ok());
    /// assert!(dupeproof::StepKey::new("").is_err());
    /// ```
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        Ok(Self { name: part("step", name.as_ref(), NAME_BYTES_MAX)?, index: None })
    }

    /// Names one turn of a step that is taken in a loop. The index must mean the same on every resumption: the place
    /// in a recorded list, not in one that is fetched anew.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Example
    /// ```
    /// use dupeproof::StepKey;
    /// assert_ne!(StepKey::at("mail", 0)?, StepKey::new("mail")?);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn at(name: impl AsRef<str>, index: u32) -> Result<Self> {
        Ok(Self { index: Some(index), ..Self::new(name)? })
    }

    /// The name.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::StepKey::at("mail", 2)?.name(), "mail");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which turn of a loop, if it is one.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::StepKey::at("mail", 2)?.index(), Some(2));
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn index(&self) -> Option<u32> {
        self.index
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.pad(&self.name),
            Some(index) => f.pad(&format!("{}[{index}]", self.name)),
        }
    }
}

impl TryFrom<&str> for StepKey {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<(&str, u32)> for StepKey {
    type Error = Error;

    fn try_from((name, index): (&str, u32)) -> Result<Self> {
        Self::at(name, index)
    }
}

impl TryFrom<&StepKey> for StepKey {
    type Error = Error;

    fn try_from(step: &StepKey) -> Result<Self> {
        Ok(step.clone())
    }
}

/// What a record is about. Each has a name space of its own, so that none can be taken for another.
// The codes are stored and never change meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    /// An operation of its own.
    #[default]
    Operation = 1,
    /// A step of a workflow's run.
    Step = 2,
    /// The compensation of an operation or of a step.
    Compensation = 3,
    /// A message that came in.
    Inbox = 4,
    /// A workflow's run.
    Run = 5,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Operation, Self::Step, Self::Compensation, Self::Inbox, Self::Run];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The name that the command line and the docs use.
    ///
    /// # Example
    /// ```
    /// assert_eq!(dupeproof::Kind::Compensation.as_str(), "compensation");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Step => "step",
            Self::Compensation => "compensation",
            Self::Inbox => "inbox",
            Self::Run => "run",
        }
    }
}

/// The full name of a record: the unique index is over exactly its parts.
///
/// # Example
/// ```
/// use dupeproof::{Identity, OperationKey, RunKey, StepKey};
/// let charge = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?);
/// let refund = charge.compensation()?;
/// let step = Identity::step(&RunKey::new("acme", "publish", "post-17@4")?, StepKey::new("charge")?);
/// assert_eq!(step.name(), "publish");
/// # Ok::<(), dupeproof::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    pub(crate) kind: Kind,
    pub(crate) key: OperationKey,
    pub(crate) step: Option<StepKey>,
}

impl From<OperationKey> for Identity {
    fn from(key: OperationKey) -> Self {
        Self::operation(key)
    }
}

impl From<&OperationKey> for Identity {
    fn from(key: &OperationKey) -> Self {
        Self::operation(key.clone())
    }
}

impl From<&Identity> for Identity {
    fn from(identity: &Identity) -> Self {
        identity.clone()
    }
}

impl Identity {
    /// An operation of its own.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Identity, Kind, OperationKey};
    /// let charge = Identity::operation(OperationKey::new("acme", "charge", "invoice-981")?);
    /// assert_eq!(charge.kind(), Kind::Operation);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn operation(key: OperationKey) -> Self {
        Self { kind: Kind::Operation, key, step: None }
    }

    /// A run itself.
    pub(crate) fn run(run: &RunKey) -> Self {
        Self { kind: Kind::Run, key: run.0.clone(), step: None }
    }

    /// The run that a step, or the compensation of one, belongs to.
    pub(crate) fn run_of(&self) -> Option<RunKey> {
        self.step.is_some().then(|| RunKey(self.key.clone()))
    }

    /// A step of a run.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Identity, RunKey, StepKey};
    /// let step = Identity::step(&RunKey::new("acme", "publish", "post-17@4")?, StepKey::new("charge")?);
    /// assert_eq!(step.key(), "post-17@4");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn step(run: &RunKey, step: StepKey) -> Self {
        Self { kind: Kind::Step, key: run.0.clone(), step: Some(step) }
    }

    /// The compensation of an operation.
    pub(crate) fn compensation_of(key: &OperationKey) -> Self {
        Self { kind: Kind::Compensation, key: key.clone(), step: None }
    }

    /// The compensation of this operation or step: an operation of its own, under a key of its own.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for anything else: a compensation is not compensated.
    ///
    /// # Example
    /// ```
    /// use dupeproof::{Identity, OperationKey};
    /// let refund = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?).compensation()?;
    /// assert!(refund.compensation().is_err());
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn compensation(&self) -> Result<Self> {
        match self.kind {
            Kind::Operation | Kind::Step => Ok(Self { kind: Kind::Compensation, ..self.clone() }),
            Kind::Compensation | Kind::Inbox | Kind::Run => {
                Err(Error::invalid_input(format!("a record of kind {} has no compensation", self.kind.as_str())))
            }
        }
    }

    /// What it is about.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Identity, Kind, OperationKey};
    /// # let charge = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?);
    /// assert_eq!(charge.compensation()?.kind(), Kind::Compensation);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The tenant.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Identity, OperationKey};
    /// # let charge = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?);
    /// assert_eq!(charge.tenant(), "acme");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn tenant(&self) -> &str {
        &self.key.tenant
    }

    /// The operation's name; the workflow's for a step or a run, the source's for a message.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Identity, OperationKey};
    /// # let charge = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?);
    /// assert_eq!(charge.name(), "charge");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.key.operation
    }

    /// The key; the run's for a step, the id of a message.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Identity, OperationKey};
    /// # let charge = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?);
    /// assert_eq!(charge.key(), "invoice-981");
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn key(&self) -> &str {
        &self.key.key
    }

    /// The step, if it is one or the compensation of one.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Identity, OperationKey};
    /// # let charge = Identity::from(OperationKey::new("acme", "charge", "invoice-981")?);
    /// assert_eq!(charge.step_key(), None);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn step_key(&self) -> Option<&StepKey> {
        self.step.as_ref()
    }

    /// Rebuilds an identity from stored parts, checking what the constructors check.
    pub(crate) fn from_parts(
        kind: Kind,
        [tenant, operation, key, step]: [&str; 4],
        index: Option<u32>,
    ) -> Result<Self> {
        let key = OperationKey::new(tenant, operation, key)?;
        let has_steps = match kind {
            Kind::Step => true,
            Kind::Operation | Kind::Inbox | Kind::Run => false,
            Kind::Compensation => !step.is_empty(),
        };
        let step = match (has_steps, index) {
            (true, Some(index)) => Some(StepKey::at(step, index)?),
            (true, None) => Some(StepKey::new(step)?),
            (false, None) if step.is_empty() => None,
            (false, _) => {
                return Err(Error::invalid_input(format!("a record of kind {} has no step", kind.as_str())));
            }
        };
        Ok(Self { kind, key, step })
    }

    /// The step's parts as they are stored: no name where there is no step.
    pub(crate) fn step_parts(&self) -> (&str, Option<u32>) {
        self.step.as_ref().map_or(("", None), |step| (&step.name, step.index))
    }

    /// The key a provider sees: derived from the identity and the generation alone, so it is the same over every
    /// ambiguous retry, and hidden from guessing no more than the identity is.
    ///
    /// SHA-256 of the length-prefixed parts, cut to a UUID version 8 (RFC 9562 §5.8 and appendix B.2): 36
    /// characters fit the key field of every provider we know of. A cryptographic hash, because two operations that
    /// shared a downstream key would lose an effect at the provider.
    pub(crate) fn downstream_key(&self, generation: u32) -> String {
        let mut hash = Sha256::new();
        hash.update(b"dupeproof downstream key 1");
        hash.update([self.kind.code()]);
        let (step, index) = self.step_parts();
        for part in [self.key.tenant(), self.key.operation(), self.key.key(), step] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        if let Some(index) = index {
            hash.update(index.to_le_bytes());
        }
        hash.update(generation.to_le_bytes());
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(tenant: &str, operation: &str, key: &str) -> Identity {
        Identity::operation(OperationKey::new(tenant, operation, key).expect("valid key"))
    }

    #[test]
    fn parts_out_of_bounds_are_refused() {
        for (tenant, operation, key) in [
            ("", "o", "k"),
            ("t", "", "k"),
            ("t", "o", ""),
            (&"t".repeat(129), "o", "k"),
            ("t", &"o".repeat(129), "k"),
            ("t", "o", &"k".repeat(513)),
            ("t\0", "o", "k"),
            ("t", "o", "a\u{85}b"),
        ] {
            assert!(OperationKey::new(tenant, operation, key).is_err());
        }
        assert!(OperationKey::new("t".repeat(128), "o".repeat(128), "k".repeat(512)).is_ok());
    }

    #[test]
    fn downstream_keys_of_parts_that_join_alike_differ() {
        let one = identity("a", "b/c", "d").downstream_key(0);
        assert_ne!(one, identity("a/b", "c", "d").downstream_key(0));
        assert_ne!(one, identity("a", "b/c", "d").downstream_key(1));
        let step = Identity { kind: Kind::Step, ..identity("a", "b/c", "d") };
        assert_ne!(one, step.downstream_key(0));
    }

    #[test]
    fn turns_of_a_step_have_downstream_keys_of_their_own() {
        let run = RunKey::new("acme", "publish", "post-17").expect("valid key");
        let steps = [StepKey::new("a"), StepKey::new("a:1"), StepKey::at("a", 0), StepKey::at("a", 1)];
        let mut keys: Vec<String> = steps
            .into_iter()
            .map(|step| Identity::step(&run, step.expect("valid step")))
            .flat_map(|step| [step.clone(), step.compensation().expect("a step has one")])
            .flat_map(|identity| [identity.downstream_key(0), identity.downstream_key(1)])
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 16);
    }

    /// The provider remembers keys for days: a release that derives another key would send a second effect.
    #[test]
    fn downstream_key_never_changes_between_releases() {
        let key = identity("acme", "charge", "invoice-981").downstream_key(0);
        assert_eq!(key.len(), 36);
        assert_eq!(&key[14..15], "8");
        assert_eq!(key, "90dabfe2-3deb-801d-a80b-d77a92a13d88");
    }

    #[test]
    fn debug_hides_the_key() {
        let key = OperationKey::new("acme", "mail", "jane@example.org").expect("valid key");
        assert_eq!(format!("{key:?}"), "OperationKey(acme, mail, <16 bytes>)");
    }

    #[test]
    fn kind_codes_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(Kind::from_code(0), None);
    }
}
