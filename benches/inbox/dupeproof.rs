//! The inbox, with the business row in the application's own table.

use std::path::Path;

use dupeproof::redb::TableDefinition;
use dupeproof::{Fingerprint, Options, Processed, Response, Store};

use crate::work::Item;
use crate::{CACHE_BYTES, Contestant, Fallible};

const BUSINESS: TableDefinition<'_, u64, &str> = TableDefinition::new("business");

struct Ours(Store);

pub(crate) fn open(path: &Path) -> Fallible<Box<dyn Contestant>> {
    Ok(Box::new(Ours(Options::new().with_cache_bytes(CACHE_BYTES).open(path)?)))
}

impl Contestant for Ours {
    fn handler(&self) -> Fallible<Box<dyn FnMut(u64) -> Fallible<bool> + '_>> {
        let inbox = self.0.inbox("acme", "orders")?;
        Ok(Box::new(move |number| {
            let item = Item::number(number);
            let processed = inbox.process_raw(&item.key, Fingerprint::from_digest_128(item.fingerprint), |tx| {
                tx.open_table(BUSINESS)?.insert(number, item.tenant.as_str())?;
                Fallible::Ok(Response::Absent)
            })?;
            match processed {
                Processed::Done(_) => Ok(true),
                Processed::Duplicate(_) => Ok(false),
                other => Err(format!("{other:?}").into()),
            }
        }))
    }
}
