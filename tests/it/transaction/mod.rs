//! The application's own tables and the settlement of claims, in one commit.

mod abort;
mod attach;
mod inside;
mod killed;
mod together;

use std::collections::BTreeMap;
use std::error::Error;

use dupeproof::redb::{ReadableTable, TableDefinition};
use dupeproof::{Store, Transaction};

/// The application's own table: what was paid, by name.
pub const PAID: TableDefinition<'_, &str, u64> = TableDefinition::new("paid");

pub type Boxed = Box<dyn Error + Send + Sync>;

/// Adds one to the count under the name.
pub fn count(tx: &mut Transaction<'_>, name: &str) -> Result<(), Boxed> {
    let mut table = tx.open_table(PAID)?;
    let before = table.get(name)?.map_or(0, |count| count.value());
    table.insert(name, before + 1)?;
    Ok(())
}

/// The whole table.
pub fn paid(store: &Store) -> BTreeMap<String, u64> {
    store
        .read(|tables| -> Result<_, Boxed> {
            let Some(table) = tables.open_table(PAID)? else { return Ok(BTreeMap::new()) };
            let rows = table.iter()?.map(|row| row.map(|(name, count)| (name.value().to_owned(), count.value())));
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .expect("the table can be read")
}

pub fn once<const N: usize>(names: [&str; N]) -> BTreeMap<String, u64> {
    names.map(|name| (name.to_owned(), 1)).into()
}
