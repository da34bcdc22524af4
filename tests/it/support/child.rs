//! Another process: this test binary once more, in a role, killed with SIGKILL where it stands.
//!
//! A role is a test named `child`, in the module of the tests that need it. It returns at once unless a test started
//! it. The two talk in lines: the child says where it is, and parks there until it is told to go on or is killed.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use dupeproof::Store;

use super::{World, operation};

const FOLDER: &str = "DUPEPROOF_CHILD_FOLDER";
const TASK: &str = "DUPEPROOF_CHILD_TASK";
/// Begins a line of the child's; the others are the test harness's.
const SAID: &str = "> ";

/// A child, seen from its parent. One that is dropped is killed.
pub struct Child {
    process: std::process::Child,
    said: Lines<BufReader<ChildStdout>>,
    told: ChildStdin,
}

impl Child {
    /// Starts the role of the given module, `module_path!()`.
    pub fn start(module: &str, world: &World, task: impl Display) -> Self {
        let (_, module) = module.split_once("::").expect("a module below the crate");
        let mut process = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", &format!("{module}::child"), "--nocapture", "--test-threads=1"])
            .env(FOLDER, world.folder())
            .env(TASK, task.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let said = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let told = process.stdin.take().expect("a pipe");
        Self { process, said, told }
    }

    /// What it says next; nothing once it has ended.
    pub fn hear(&mut self) -> Option<String> {
        self.said.by_ref().map(|line| line.expect("lines")).find_map(|line| line.strip_prefix(SAID).map(str::to_owned))
    }

    #[track_caller]
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.hear().as_deref(), Some(line));
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").expect("the child listens");
    }

    /// SIGKILL. Returns when the process is gone, and with it its locks.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.kill().expect("the child can be killed");
        let status = self.process.wait().expect("the child can be waited for");
        assert!(was_killed(status), "the child was not killed, it ended by itself: {status}");
    }

    /// Tells it to go on, and waits until it has ended by itself.
    pub fn finish(mut self) -> ExitStatus {
        // It may have ended already.
        let _ = writeln!(self.told, "finish");
        self.process.wait().expect("the child can be waited for")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    !status.success()
}

/// What a child is to do, seen from itself.
pub struct Task {
    pub world: World,
    words: Vec<String>,
}

impl Task {
    /// Nothing in a process that no test has started as its child.
    pub fn given() -> Option<Self> {
        let (folder, task) = (std::env::var_os(FOLDER)?, std::env::var(TASK).ok()?);
        let words = task.split_whitespace().map(str::to_owned).collect();
        Some(Self { world: World::of(Path::new(&folder)), words })
    }

    pub fn words<const N: usize>(&self) -> [&str; N] {
        let words: Vec<_> = self.words.iter().map(String::as_str).collect();
        words.try_into().expect("as many words as the role wants")
    }
}

/// Lets a panic in any thread end the process, so that the parent, who waits for a word, hears that there is none.
pub fn die_of_any_panic() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
}

pub fn say(line: impl Display) {
    // The harness does not end its own line before a test speaks.
    println!("\n{SAID}{line}");
}

/// What the parent says next. If it is gone, so is this process.
pub fn hear() -> String {
    let line = std::io::stdin().lines().next().expect("the parent is there").expect("lines");
    line.trim().to_owned()
}

/// Says where it is, and stays there.
pub fn park(here: impl Display) {
    say(here);
    hear();
}

impl World {
    /// Checks what is told now, after the store was closed and opened again, and after the process that had it open was
    /// killed.
    pub fn throughout(&self, store: Store, check: impl Fn(&Store)) -> Store {
        self.now_and_reopened(store, &check).close().expect("the store closes");
        let mut holder = Child::start(module_path!(), self, "");
        holder.expect("holding");
        holder.kill();
        let store = self.open();
        check(&store);
        store
    }
}

/// A process that has the store open and something begun.
#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let store = task.world.open();
    let begun = store.begin(&operation(&format!("bystander {}", std::process::id()))).unwrap();
    park("holding");
    drop(begun);
}
