//! The program, as shells use it: real processes, and a ledger file that commands append to as the judge.

mod beside;
mod codes;
mod commands;
mod load;
mod messages;
mod operate;
mod operator;
mod recipes;
mod run;
mod settle;
mod terminal;
mod trouble;
mod upkeep;
mod workflow;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// A folder with a store and a ledger.
pub(crate) struct Shell {
    dir: tempfile::TempDir,
}

impl Shell {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("store.redb")
    }

    /// The program, in an environment of its own.
    pub(crate) fn dupeproof<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("dupeproof"));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("DUPEPROOF_STORE", self.store())
            .env("HOME", self.dir.path())
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        // Who runs the tests has a say in colours through these, and builds on a server count as a terminal with them.
        for name in ["CI", "CLICOLOR", "CLICOLOR_FORCE", "NO_COLOR"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn output<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        self.dupeproof(arguments).output().expect("the program starts")
    }

    /// `run --key KEY … -- sh -c SCRIPT`.
    pub(crate) fn run(&self, key: &str, options: &[&str], script: &str) -> Output {
        self.output(run_arguments(key, options, script))
    }

    pub(crate) fn spawn(&self, key: &str, options: &[&str], script: &str) -> Child {
        self.dupeproof(run_arguments(key, options, script))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    pub(crate) fn resolve(&self, key: &str, verdict: &[&str]) -> Output {
        self.output(["resolve", "--key", key, "--by", "jane", "--reason", "looked"].iter().chain(verdict))
    }

    /// How often something happened.
    pub(crate) fn effects(&self) -> usize {
        fs::read_to_string(self.path("ledger")).map_or(0, |ledger| ledger.lines().count())
    }

    /// Waits for a file that a command makes.
    pub(crate) fn await_file(&self, name: &str) {
        for _ in 0..2000 {
            if self.path(name).exists() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        panic!("{name} did not appear in 10 seconds");
    }

    /// The record as JSON.
    pub(crate) fn show(&self, key: &str) -> serde_json::Value {
        let output = self.output(["show", "--json", "--key", key]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// A script's wait for a file. It gives up after half a minute: the test may be gone, and its folder with it.
pub(crate) fn until(file: &str) -> String {
    format!("i=0; until [ -e '{file}' ] || [ $((i += 1)) -gt 1500 ]; do sleep 0.02; done")
}

fn run_arguments<'a>(key: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run", "--key", key], options, &["--", "sh", "-c", script]].concat()
}

#[track_caller]
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", stderr(output)))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
