//! Commands that behave in their own ways: what a person expects of each, the first time and on a repeat.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Shell, code, stderr, stdout};

#[test]
fn command_that_closes_its_output_early_goes_on_and_is_recorded() {
    let shell = Shell::new();
    let script = "echo early; exec >&- 2>&-; sleep 0.3; echo x >> ledger; exit 0";
    for _ in 0..2 {
        let output = shell.run("a", &["--quiet"], script);
        assert_eq!((code(&output), stdout(&output).as_str()), (0, "early\n"));
    }
    assert_eq!(shell.effects(), 1);
}

/// What a daemon says afterwards is its own affair; that it lives on is the command's purpose.
#[test]
fn command_that_leaves_a_daemon_behind_ends_when_it_ends_and_the_daemon_lives_on() {
    let shell = Shell::new();
    let script = "echo started; (while [ ! -e stop ]; do sleep 0.05; done; echo x >> ledger) & exit 0";
    let output = shell.run("a", &["--quiet"], script);
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "started\n"));
    assert_eq!(shell.effects(), 0, "it still runs");
    fs::write(shell.path("stop"), "").unwrap();
    shell.await_file("ledger");
    let repeat = shell.run("a", &["--quiet"], script);
    assert_eq!((code(&repeat), stdout(&repeat).as_str()), (0, "started\n"));
    assert_eq!(shell.effects(), 1);
}

#[test]
fn command_reads_what_the_program_is_given_and_only_stdin_makes_it_count() {
    let shell = Shell::new();
    let with_input = |options: &[&str], key: &str, input: &str| {
        let words = [&["run", "--quiet", "--key", key], options, &["--", "cat"]].concat();
        let mut child =
            shell.dupeproof(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // A repeat that is answered without reading hangs up.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        (code(&output), stdout(&output))
    };
    assert_eq!(with_input(&[], "a", "one"), (0, "one".to_owned()));
    assert_eq!(with_input(&[], "a", "two"), (0, "one".to_owned()), "not counted: the recorded output");
    assert_eq!(with_input(&["--stdin"], "b", "one"), (0, "one".to_owned()));
    assert_eq!(with_input(&["--stdin"], "b", "two"), (121, String::new()), "counted: another payload");
    assert_eq!(with_input(&["--stdin"], "b", "one"), (0, "one".to_owned()));
}

#[test]
fn both_streams_are_replayed_byte_for_byte_whatever_is_in_them() {
    let shell = Shell::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    fs::write(shell.path("bytes"), &bytes).unwrap();
    for (key, script, out, err) in [
        ("binary", "cat bytes; cat bytes >&2", &bytes[..], &bytes[..]),
        ("nothing", "true", b"", b""),
        ("no line end", "printf x; printf y >&2", b"x", b"y"),
        ("one zero", "printf '\\0'; printf '\\0' >&2", b"\0", b"\0"),
        ("like a recording", "printf 'dupeRec\\001'", b"dupeRec\x01", b""),
    ] {
        for turn in ["first", "repeat"] {
            let output = shell.run(key, &["--quiet"], script);
            assert_eq!(code(&output), 0);
            assert!(output.stdout == out && output.stderr == err, "{key}, {turn}");
        }
    }
}

/// Ctrl-C at a terminal goes to the program and to the command: the command decides, and what it says counts.
#[test]
fn ctrl_c_ends_the_command_and_its_outcome_is_recorded() {
    for (script, expected, then) in [
        ("touch started; sleep 30", 130, 122),
        ("trap 'echo cleaned; exit 75' INT; touch started; while :; do sleep 0.05; done", 75, 124),
        ("trap 'echo finished anyway; exit 0' INT; touch started; while :; do sleep 0.05; done", 0, 0),
    ] {
        let shell = Shell::new();
        let screen: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let seat = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let program = shell.dupeproof(["run", "--key", "a", "--", "sh", "-c", script]);
        // A session of its own, whose terminal this is.
        let mut session = Command::new("setsid");
        session
            .args(["--ctty", "--wait"])
            .arg(program.get_program())
            .args(program.get_args())
            .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(shell.path("."))
            .stdin(seat.try_clone().unwrap())
            .stdout(seat.try_clone().unwrap())
            .stderr(seat);
        let mut child = session.spawn().expect("util-linux");
        drop(session);
        shell.await_file("started");
        let mut screen: File = screen.into();
        screen.write_all(b"\x03").unwrap();
        let mut drawn = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(len @ 1..) = screen.read(&mut chunk) {
            drawn.extend_from_slice(&chunk[..len]);
        }
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(expected), "{script}: {}", String::from_utf8_lossy(&drawn));
        let repeat = shell.run("a", &[], script);
        assert_eq!(code(&repeat), then, "{script}: {}", stderr(&repeat));
    }
}
