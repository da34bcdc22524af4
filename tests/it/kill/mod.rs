//! Processes that are killed: whatever they were about to do, no effect happens twice, and none is reported that did
//! not.

mod file;
mod lease;
mod panic;
mod points;
mod repeats;
mod soak;
mod upkeep;

use dupeproof::Recovery;

/// As the tests name it to their children.
fn recovery_of(name: &str) -> Recovery {
    if name == "quick" { Recovery::Quick } else { Recovery::Scan }
}
