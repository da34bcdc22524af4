//! As a person types it: standard streams that are a terminal.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Shell, stderr, stdout};

/// A terminal that a command sits at, seen from the other side.
struct Terminal {
    screen: File,
    seat: File,
}

impl Terminal {
    fn new() -> Self {
        let screen: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let seat = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        Self { screen: screen.into(), seat }
    }

    fn seat(&self) -> Stdio {
        self.seat.try_clone().unwrap().into()
    }

    /// What was drawn by the time that the command has ended, escape sequences included.
    fn watch(self, mut child: Child) -> (Option<i32>, String) {
        let Self { mut screen, seat } = self;
        // Once nobody sits at it any more, reading ends.
        drop(seat);
        let mut drawn = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(len @ 1..) = screen.read(&mut chunk) {
            drawn.extend_from_slice(&chunk[..len]);
        }
        (child.wait().unwrap().code(), String::from_utf8_lossy(&drawn).into_owned())
    }
}

/// Everything at a terminal of its own.
fn typed(mut command: Command) -> (Option<i32>, String) {
    let terminal = Terminal::new();
    command.env("TERM", "xterm-256color");
    let child = command.stdin(terminal.seat()).stdout(terminal.seat()).stderr(terminal.seat()).spawn().unwrap();
    // It holds on to the seats.
    drop(command);
    terminal.watch(child)
}

const ESCAPE: char = '\u{1b}';

#[test]
fn statuses_have_colours_at_a_terminal_and_nowhere_else() {
    let shell = Shell::new();
    shell.run("a", &[], "exit 3");
    shell.run("b", &[], "true");
    let (status, drawn) = typed(shell.dupeproof(["list"]));
    assert_eq!(status, Some(0));
    assert!(drawn.contains("\u{1b}[1m\u{1b}[31munknown\u{1b}[0m"), "{drawn:?}");
    assert!(drawn.contains("\u{1b}[32msucceeded\u{1b}[0m"), "{drawn:?}");
    let (_, shown) = typed(shell.dupeproof(["show", "--key", "a"]));
    assert!(shown.contains("\u{1b}[31munknown"), "{shown:?}");

    let piped = shell.output(["list"]);
    assert!(!stdout(&piped).contains(ESCAPE));
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let terminal = Terminal::new();
        let mut command = shell.dupeproof(["list"]);
        let child = command.env("TERM", "xterm").env(name, value).stdout(terminal.seat()).spawn().unwrap();
        drop(command);
        let (_, drawn) = terminal.watch(child);
        assert!(drawn.contains("unknown") && !drawn.contains(ESCAPE), "{name}: {drawn:?}");
    }
}

#[test]
fn failures_are_red_at_a_terminal_and_plain_in_a_log() {
    let shell = Shell::new();
    let (status, drawn) = typed(shell.dupeproof(["list"]));
    assert_eq!(status, Some(3));
    assert!(drawn.contains("\u{1b}[31mdupeproof:"), "{drawn:?}");
    assert!(stderr(&shell.output(["list"])).starts_with("dupeproof: "));
}

/// What a command prints is its own: neither stripped nor painted, first time and on every repeat.
#[test]
fn colours_of_the_command_are_left_to_it() {
    let shell = Shell::new();
    let arguments = ["run", "--quiet", "--key", "a", "--", "printf", "\\033[35mmagenta\\033[0m"];
    for _ in 0..2 {
        assert_eq!(shell.output(arguments).stdout, b"\x1b[35mmagenta\x1b[0m");
        assert_eq!(typed(shell.dupeproof(arguments)).1, "\u{1b}[35mmagenta\u{1b}[0m");
    }
}

#[test]
fn short_work_shows_no_bar() {
    let shell = Shell::new();
    shell.run("a", &[], "true");
    for arguments in [&["verify"][..], &["compact"], &["backup", "copy"], &["export"]] {
        let (status, drawn) = typed(shell.dupeproof(arguments));
        assert_eq!(status, Some(0));
        assert!(!drawn.contains(ESCAPE), "{arguments:?}: {drawn:?}");
    }
}

/// An export of so many records, made from one.
fn many(shell: &Shell, records: usize) -> Vec<u8> {
    shell.run("template", &["--quiet"], "true");
    let whole = stdout(&shell.output(["export"]));
    let lines: Vec<&str> = whole.lines().collect();
    let mut text = lines[0].replace("\"records\":1", &format!("\"records\":{records}")) + "\n";
    for id in 1..=records {
        let line = lines[1].replacen("\"id\":1,", &format!("\"id\":{id},"), 1);
        text.push_str(&line.replacen("\"template\"", &format!("\"key {id}\""), 1));
        text.push('\n');
    }
    let sum = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
    text.push_str(&format!("{{\"end\":{{\"records\":{records},\"messages\":0,\"xxh3_128\":\"{sum:032x}\"}}}}\n"));
    fs::remove_file(shell.store()).unwrap();
    text.into_bytes()
}

#[test]
fn work_that_takes_longer_than_a_second_shows_a_bar_and_takes_it_away() {
    let shell = Shell::new();
    fs::write(shell.path("lines"), many(&shell, 200_000)).unwrap();
    for (arguments, bar) in
        [(&["import", "lines"][..], "import ["), (&["verify"], "verify ["), (&["backup", "copy"], "backup [")]
    {
        let terminal = Terminal::new();
        let mut command = shell.dupeproof(arguments);
        command.env("TERM", "xterm").stdout(terminal.seat()).stderr(terminal.seat());
        let child = command.spawn().unwrap();
        drop(command);
        // However fast the machine is: it is stopped in the middle for longer than a second.
        std::thread::park_timeout(Duration::from_millis(200));
        signal(&child, "STOP");
        std::thread::park_timeout(Duration::from_millis(1100));
        signal(&child, "CONT");
        let (status, drawn) = terminal.watch(child);
        assert_eq!(status, Some(0));
        assert!(drawn.contains(bar), "{arguments:?}: {drawn:?}");
        let (_, left) = drawn.rsplit_once("\u{1b}[2K").expect("the line is cleared");
        assert!(!left.contains('['), "{arguments:?}: {left:?}");
    }
    // No terminal, no bar: a log stays readable.
    let output = shell.output(["verify"]);
    assert_eq!((stderr(&output).as_str(), stdout(&output).as_str()), ("", "200000 records, 0 messages, 0 problems\n"));
}

fn signal(child: &Child, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
}

/// Data that goes elsewhere and a bar on the terminal do not meet.
#[test]
fn bar_of_an_export_is_shown_while_its_lines_go_into_a_pipe() {
    let shell = Shell::new();
    fs::write(shell.path("lines"), many(&shell, 2000)).unwrap();
    shell.output(["import", "lines"]);
    let terminal = Terminal::new();
    let mut command = shell.dupeproof(["export"]);
    command.env("TERM", "xterm").stdout(Stdio::piped()).stderr(terminal.seat());
    let mut child = command.spawn().unwrap();
    drop(command);
    // Nobody reads: the pipe is full long before the last line.
    std::thread::park_timeout(Duration::from_millis(1300));
    let mut exported = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut exported).unwrap();
    let (status, drawn) = terminal.watch(child);
    assert_eq!(status, Some(0));
    assert!(drawn.contains("export ["), "{drawn:?}");
    assert!(exported == fs::read(shell.path("lines")).unwrap());
}
