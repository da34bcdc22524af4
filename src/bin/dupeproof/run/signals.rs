//! Signals are for the command: this program stays to record how it ended.

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

    /// Passes signals on to the command while it runs.
    pub(crate) struct Forwarder {
        target: Arc<Mutex<Target>>,
        handle: Handle,
    }

    /// Whom to tell, and what came before there was anybody.
    #[derive(Default)]
    struct Target {
        command: Option<Pid>,
        early: Vec<Signal>,
    }

    impl Forwarder {
        pub(crate) fn start() -> io::Result<Self> {
            let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
            let handle = signals.handle();
            let target = Arc::new(Mutex::new(Target::default()));
            let told = target.clone();
            watch(move || {
                for number in &mut signals {
                    let signal = match number {
                        SIGINT => Signal::INT,
                        SIGQUIT => Signal::QUIT,
                        SIGHUP => Signal::HUP,
                        _ => Signal::TERM,
                    };
                    // A key pressed at the terminal reaches the command by itself.
                    if matches!(signal, Signal::INT | Signal::QUIT) && is_in_foreground() {
                        continue;
                    }
                    let mut target = told.lock();
                    match target.command {
                        Some(pid) => drop(kill_process(pid, signal)),
                        None => target.early.push(signal),
                    }
                }
            });
            Ok(Self { target, handle })
        }

        pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
            let child = command.spawn()?;
            let mut target = self.target.lock();
            target.command = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let Target { command, early } = &mut *target;
            for signal in early.drain(..) {
                command.map(|pid| kill_process(pid, signal));
            }
            drop(target);
            Ok(child)
        }

        /// Waits for the command. Its number is given back to the system only when nobody signals it any more.
        pub(crate) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
            let pid = self.target.lock().command;
            if let Some(pid) = pid {
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while matches!(waitid(WaitId::Pid(pid), ended), Err(rustix::io::Errno::INTR)) {}
            }
            self.target.lock().command = None;
            child.wait()
        }
    }

    impl Drop for Forwarder {
        fn drop(&mut self) {
            self.handle.close();
        }
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

        pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
            command.spawn()
        }

        pub(crate) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
            child.wait()
        }
    }
}
