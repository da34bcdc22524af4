//! The scenery: a real broker on a loopback port, with sessions that outlive it.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{Fallible, stage};

/// Where Debian keeps it, which is not on everybody's path.
const PROGRAMS: [&str; 2] = ["mosquitto", "/usr/sbin/mosquitto"];
/// Looks for its port until it listens: ten seconds.
const LOOKS_MAX: u32 = 1000;

pub(crate) struct Broker {
    process: Child,
    program: &'static str,
    config: PathBuf,
    port: u16,
}

impl Broker {
    /// Nothing where none is installed.
    pub(crate) fn start(folder: &Path) -> Fallible<Option<Self>> {
        // Free a moment ago: whoever takes it meanwhile makes the broker fail, and with it this program.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let config = folder.join("mosquitto.conf");
        // As root it would become another user, who may not write here.
        fs::write(
            &config,
            format!(
                "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n\
                 persistence_location {}/\nmax_queued_messages 0\nlog_type none\n",
                folder.display()
            ),
        )?;
        fs::write(folder.join("port"), port.to_string())?;
        for program in PROGRAMS {
            match spawn(program, &config) {
                Ok(process) => {
                    let broker = Self { process, program, config, port };
                    broker.await_port()?;
                    return Ok(Some(broker));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Ends it in order, so that it writes down what it holds, and starts it again.
    pub(crate) fn restart(&mut self) -> Fallible<()> {
        let id = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        self.process.wait()?;
        self.process = spawn(self.program, &self.config)?;
        self.await_port()
    }

    fn await_port(&self) -> Fallible<()> {
        for _ in 0..LOOKS_MAX {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            stage::pause(Duration::from_millis(10));
        }
        Err("the broker does not listen".into())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &str, config: &Path) -> std::io::Result<Child> {
    Command::new(program).arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}
