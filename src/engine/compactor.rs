//! The compactor: every tick it looks whether the file is still in its place and sends bounded sweep commands through
//! the same queue as everybody, so it never holds the file for long.

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::command::{Command, Message};
use super::{SWEEP_ROWS_MAX, Shared};

/// Sweep commands in one tick. A backlog is worked off at this rate while begins go on between the commands.
const SWEEPS_PER_TICK_MAX: usize = 64;

pub(super) struct Compactor {
    interval: Duration,
    stopped: Receiver<()>,
}

impl Compactor {
    /// The compactor, and what stops it when dropped.
    pub(super) fn new(interval: Duration) -> (Self, Sender<()>) {
        let (stop, stopped) = bounded(0);
        (Self { interval, stopped }, stop)
    }

    pub(super) fn run(self, shared: &Shared, queue: &Sender<Message>) {
        let mut after = None;
        while self.pause(self.interval) {
            if shared.check_place().is_err() || shared.health.check().is_err() {
                return;
            }
            for _ in 0..SWEEPS_PER_TICK_MAX {
                let swept = shared.ask(queue, |reply| Command::Sweep { rows_max: SWEEP_ROWS_MAX, after, reply });
                // An error stopped the store; its cause is kept and told to the next caller.
                let Ok(swept) = swept else { break };
                after = swept.next;
                if !swept.more || !self.pause(Duration::ZERO) {
                    break;
                }
            }
        }
    }

    /// Whether to go on afterwards.
    fn pause(&self, interval: Duration) -> bool {
        self.stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout)
    }
}
