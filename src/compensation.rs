//! Undoing what happened, by another operation: a distributed effect cannot be rolled back.

use crate::error::Result;
use crate::machine::event::Event;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::key::{Identity, OperationKey};
use crate::machine::policy::Retention;
use crate::operation::{Begin, Operation};
use crate::store::Store;

impl Operation {
    /// The compensation of an operation: an operation of its own, under a key of its own, with every outcome that any
    /// operation can have. It begins only if the operation it compensates has succeeded, which is checked in the same
    /// commit; it is remembered for ever by default, so that it never outlives its own memory and runs twice.
    ///
    /// The fingerprint is of what the compensation is asked to do.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Store};
    /// # let store = Store::in_memory()?;
    /// let charge = OperationKey::new("acme", "charge", "invoice-981")?;
    /// # store.run_raw(&Operation::new(charge.clone(), Fingerprint::unchecked()), |_| Ok("ch_1".into()))?;
    /// let refund = Operation::compensation(&charge, Fingerprint::of_bytes(b"all of it"))
    ///     .with_lease(std::time::Duration::from_secs(10));
    /// let Begin::Execute(claim) = store.begin(&refund)? else { unreachable!() };
    /// claim.succeed_raw("refund 9")?;
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn compensation(key: &OperationKey, fingerprint: Fingerprint) -> Self {
        let original = Identity::operation(key.clone());
        Self::of(Identity::compensation_of(key), fingerprint)
            .with_retention(Retention::default().with_tombstone_forever())
            .on_condition([(original, Event::Compensate)])
    }
}

impl Store {
    /// Begins the compensation of an operation: [`begin`](Store::begin) of [`Operation::compensation`].
    ///
    /// It runs once: a repeat is replayed. It may fail, or its outcome be unknown; [`get`](Store::get) shows it with the
    /// operation, and an unknown one is reconciled and resolved like any other, by its
    /// [identity](Identity::compensation).
    ///
    /// # Errors
    /// Those of `begin`; [`Refused`](crate::ErrorKind::Refused) unless the operation succeeded: what failed needs no
    /// compensation, and what is unknown might yet happen, so find it out first;
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no such operation.
    ///
    /// # Example
    /// ```
    /// # use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Status, Store};
    /// # let store = Store::in_memory()?;
    /// let charge = OperationKey::new("acme", "charge", "invoice-981")?;
    /// # store.run_raw(&Operation::new(charge.clone(), Fingerprint::unchecked()), |_| Ok("ch_1".into()))?;
    /// let all = || Fingerprint::of_bytes(b"all of it");
    /// if let Begin::Execute(claim) = store.compensate(&charge, all())? {
    ///     claim.succeed_raw("refund 9")?;
    /// }
    /// assert!(matches!(store.compensate(&charge, all())?, Begin::Replay(_)));
    /// let refund = store.get(&charge)?.unwrap().compensation.unwrap();
    /// assert_eq!(refund.status, Status::Succeeded);
    /// # Ok::<(), dupeproof::Error>(())
    /// ```
    pub fn compensate(&self, key: &OperationKey, fingerprint: Fingerprint) -> Result<Begin> {
        self.begin(&Operation::compensation(key, fingerprint))
    }
}
