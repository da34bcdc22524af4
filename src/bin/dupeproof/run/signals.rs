//! Signals end this program until it has something to record. From then on they are for the command, and it stays.

#[cfg(unix)]
pub(crate) use unix::Forwarder;

#[cfg(not(unix))]
pub(crate) use elsewhere::Forwarder;

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io;
    use std::process::{Child, Command, ExitStatus};
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, waitid};
    use rustix::termios::tcgetpgrp;
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::iterator::{Handle, Signals};
    use signal_hook::low_level::emulate_default_handler;

    /// Passes signals on to the command while it runs.
    pub(crate) struct Forwarder {
        phase: Arc<Mutex<Phase>>,
        handle: Handle,
    }

    enum Phase {
        /// Nothing was begun: a signal does what it does by default.
        Idle,
        /// The command is about to start: what comes now is for it.
        Starting(Vec<Signal>),
        Running(Pid),
        /// The command has ended, and how is being recorded.
        Ended,
    }

    impl Forwarder {
        pub(crate) fn start() -> io::Result<Self> {
            let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
            let handle = signals.handle();
            let phase = Arc::new(Mutex::new(Phase::Idle));
            let seen = phase.clone();
            watch(move || {
                for number in &mut signals {
                    let signal = match number {
                        SIGINT => Signal::INT,
                        SIGQUIT => Signal::QUIT,
                        SIGHUP => Signal::HUP,
                        _ => Signal::TERM,
                    };
                    match &mut *seen.lock() {
                        Phase::Idle => drop(emulate_default_handler(number)),
                        Phase::Starting(early) => early.push(signal),
                        // A key pressed at the terminal reaches the command by itself.
                        Phase::Running(_) if matches!(number, SIGINT | SIGQUIT) && is_in_foreground() => {}
                        Phase::Running(pid) => send(*pid, signal),
                        Phase::Ended => {}
                    }
                }
            });
            Ok(Self { phase, handle })
        }

        /// From here on there is something to record.
        pub(crate) fn hold(&self) {
            *self.phase.lock() = Phase::Starting(Vec::new());
        }

        pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
            let child = command.spawn()?;
            let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return Ok(child) };
            if let Phase::Starting(early) = std::mem::replace(&mut *self.phase.lock(), Phase::Running(pid)) {
                early.into_iter().for_each(|signal| send(pid, signal));
            }
            Ok(child)
        }

        /// Waits for the command. Its number is given back to the system only when nobody signals it any more.
        pub(crate) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
            let running = match &*self.phase.lock() {
                Phase::Running(pid) => Some(*pid),
                Phase::Idle | Phase::Starting(_) | Phase::Ended => None,
            };
            if let Some(pid) = running {
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while matches!(waitid(WaitId::Pid(pid), ended), Err(rustix::io::Errno::INTR)) {}
            }
            *self.phase.lock() = Phase::Ended;
            child.wait()
        }
    }

    impl Drop for Forwarder {
        fn drop(&mut self) {
            self.handle.close();
        }
    }

    fn send(pid: Pid, signal: Signal) {
        // A command that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }

    fn is_in_foreground() -> bool {
        File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
    }

    #[expect(clippy::disallowed_methods, reason = "ends when the forwarder is dropped")]
    fn watch(work: impl FnOnce() + Send + 'static) {
        drop(std::thread::spawn(work));
    }
}

/// Where there are no signals, a console event ends both programs, and the outcome is unknown.
#[cfg(not(unix))]
mod elsewhere {
    use std::io;
    use std::process::{Child, Command, ExitStatus};

    pub(crate) struct Forwarder;

    impl Forwarder {
        pub(crate) fn start() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn hold(&self) {}

        pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
            command.spawn()
        }

        pub(crate) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
            child.wait()
        }
    }
}
