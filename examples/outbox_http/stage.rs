//! The scenery: processes that are killed, chance, and the places where the two sides meet.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use crate::Fallible;

/// This program once more, in a role.
pub(crate) struct Actor(Child);

impl Actor {
    pub(crate) fn start(role: &str, folder: &Path) -> Fallible<Self> {
        Ok(Self(Command::new(std::env::current_exe()?).arg(role).arg(folder).spawn()?))
    }

    /// SIGKILL, and gone when this returns.
    pub(crate) fn kill(&mut self) -> Fallible<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    pub(crate) fn is_alive(&mut self) -> Fallible<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    pub(crate) fn finish(&mut self) -> Fallible<()> {
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("an actor failed: {status}").into()) }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// SplitMix64, from other seeds on every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn fresh() -> Self {
        Self(RandomState::new().hash_one("dice"))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[expect(clippy::disallowed_methods, reason = "the scene plays in real time")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Waits for a file that another process makes, at most ten seconds.
pub(crate) fn await_file(path: &Path) -> Fallible<()> {
    for _ in 0..1000 {
        if path.exists() {
            return Ok(());
        }
        pause(Duration::from_millis(10));
    }
    Err(format!("{} does not appear", path.display()).into())
}
