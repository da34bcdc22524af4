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

/// The name space a key lives in. The codes are stored and never change meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Kind {
    #[default]
    Operation = 1,
    /// A step of a workflow run.
    Step = 2,
    /// The compensation of an operation.
    Compensation = 3,
    /// A message that came in.
    Inbox = 4,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Operation, Self::Step, Self::Compensation, Self::Inbox];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The full identity of a record: the unique index is over exactly these fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) kind: Kind,
    pub(crate) key: OperationKey,
    /// Empty unless the kind has steps.
    pub(crate) step: Box<str>,
}

impl Identity {
    pub(crate) fn operation(key: OperationKey) -> Self {
        Self { kind: Kind::Operation, key, step: "".into() }
    }

    /// Rebuilds an identity from stored parts, checking what [`OperationKey::new`] checks.
    pub(crate) fn from_parts(kind: Kind, tenant: &str, operation: &str, key: &str, step: &str) -> Result<Self> {
        let key = OperationKey::new(tenant, operation, key)?;
        let step = if step.is_empty() { "".into() } else { part("step", step, NAME_BYTES_MAX)? };
        Ok(Self { kind, key, step })
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
        for part in [self.key.tenant(), self.key.operation(), self.key.key(), &self.step] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
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
