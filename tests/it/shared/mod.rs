//! Shared mode: processes that have one store open at the same time, and survive one another.

mod claims;
mod doors;
mod race;

use dupeproof::{Options, Sharing, Store};

use crate::support::World;

fn shared(world: &World) -> Options {
    world.options().with_sharing(Sharing::Shared)
}

fn open(world: &World) -> Store {
    shared(world).open(world.path()).unwrap()
}
