//! `run`: once per key, and every repeat gets what was recorded.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::{Shell, code, stderr, stdout, until};

const CHARGE: &str = "echo charged >> ledger; echo receipt; echo careful >&2";

#[test]
fn hundred_repeats_run_the_command_once_and_print_the_same() {
    let shell = Shell::new();
    let first = shell.run("a", &["--quiet"], CHARGE);
    assert_eq!((code(&first), stdout(&first).as_str(), stderr(&first).as_str()), (0, "receipt\n", "careful\n"));
    for _ in 0..100 {
        let again = shell.run("a", &["--quiet"], CHARGE);
        assert_eq!((code(&again), &again.stdout, &again.stderr), (0, &first.stdout, &first.stderr));
    }
    assert_eq!(shell.effects(), 1);
}

#[test]
fn repeat_says_on_standard_error_that_it_is_one() {
    let shell = Shell::new();
    shell.run("a", &[], CHARGE);
    let again = shell.run("a", &[], CHARGE);
    assert_eq!(stdout(&again), "receipt\n");
    assert!(stderr(&again).contains("dupeproof: ran before"), "{}", stderr(&again));
}

#[test]
fn output_is_replayed_byte_for_byte() {
    let shell = Shell::new();
    let script = r"printf 'a\000\377\n\r\n\033[1m'; printf '\376err' >&2; echo x >> ledger";
    let first = shell.run("a", &["--quiet"], script);
    assert_eq!(first.stdout, b"a\0\xff\n\r\n\x1b[1m");
    assert_eq!(first.stderr, b"\xfeerr");
    let again = shell.run("a", &["--quiet"], script);
    assert_eq!((again.stdout, again.stderr), (first.stdout, first.stderr));
    assert_eq!(shell.effects(), 1);
}

#[test]
fn other_command_file_or_input_under_the_same_key_is_a_conflict() {
    let shell = Shell::new();
    fs::write(shell.path("body"), "one").unwrap();
    let options = ["--payload-file", "body", "--quiet"];
    assert_eq!(code(&shell.run("a", &options, CHARGE)), 0);
    assert_eq!(code(&shell.run("a", &options, "echo other >> ledger")), 121);
    assert_eq!(code(&shell.run("a", &["--quiet"], CHARGE)), 121);
    fs::write(shell.path("body"), "two").unwrap();
    let conflict = shell.run("a", &options, CHARGE);
    assert_eq!((code(&conflict), stdout(&conflict).as_str()), (121, ""));
    fs::write(shell.path("body"), "one").unwrap();
    assert_eq!(code(&shell.run("a", &options, CHARGE)), 0);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn arguments_keep_their_borders() {
    let shell = Shell::new();
    let run = |arguments: &[&str]| {
        code(&shell.output(["run", "--key", "a", "--", "sh", "-c", "echo x >> ledger", "sh"].iter().chain(arguments)))
    };
    assert_eq!(run(&["a", "b c"]), 0);
    assert_eq!(run(&["a b", "c"]), 121);
    assert_eq!(run(&["a", "b c", ""]), 121);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn standard_input_counts_and_reaches_the_command() {
    let shell = Shell::new();
    let feed = |input: &str| {
        let mut child = shell
            .dupeproof(["run", "--key", "a", "--stdin", "--quiet", "--", "sh", "-c", "cat; echo x >> ledger"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    assert_eq!(stdout(&feed("one")), "one");
    assert_eq!(stdout(&feed("one")), "one");
    assert_eq!(code(&feed("two")), 121);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn same_key_under_another_tenant_or_operation_is_another_operation() {
    let shell = Shell::new();
    for options in [&[][..], &["--tenant", "b"], &["--operation", "b"], &["--tenant", "b", "--operation", "b"]] {
        for _ in 0..2 {
            assert_eq!(code(&shell.run("a", options, CHARGE)), 0);
        }
    }
    assert_eq!(shell.effects(), 4);
}

#[test]
fn command_finds_its_keys_in_its_environment() {
    let shell = Shell::new();
    let script = "echo $IDEMPOTENCY_KEY $DUPEPROOF_ATTEMPT";
    let output = stdout(&shell.run("a", &[], script));
    let (key, attempt) = output.trim_end().split_once(' ').expect("two words");
    assert_eq!((key, attempt), (shell.show("a")["downstream_key"].as_str().unwrap(), "1"));
}

#[test]
fn two_shells_at_once_run_the_command_once() {
    let shell = Shell::new();
    // Whoever runs it waits until all the others had their answer.
    let script = &format!("echo x >> ledger; {}; echo receipt", until("others-done"));
    let winner = shell.spawn("a", &[], script);
    shell.await_file("ledger");
    for _ in 0..5 {
        assert_eq!(code(&shell.run("a", &[], script)), 120);
    }
    fs::write(shell.path("others-done"), "").unwrap();
    let won = winner.wait_with_output().unwrap();
    assert_eq!((code(&won), stdout(&won).as_str()), (0, "receipt\n"));
    assert_eq!(stdout(&shell.run("a", &["--quiet"], script)), "receipt\n");
    assert_eq!(shell.effects(), 1);
}

#[test]
fn many_shells_that_race_run_the_command_once() {
    let shell = Shell::new();
    let racers: Vec<_> = (0..12).map(|_| shell.spawn("a", &[], CHARGE)).collect();
    let codes: Vec<i32> = racers.into_iter().map(|racer| code(&racer.wait_with_output().unwrap())).collect();
    assert!(codes.iter().all(|code| matches!(code, 0 | 120)), "{codes:?}");
    assert!(codes.contains(&0), "{codes:?}");
    assert_eq!(shell.effects(), 1);
}

#[test]
fn output_that_is_too_long_is_cut_and_the_code_kept() {
    let shell = Shell::new();
    let script = "head -c 3000000 /dev/zero; echo much >&2; echo x >> ledger";
    let first = shell.run("a", &["--quiet"], script);
    assert_eq!((code(&first), first.stdout.len()), (0, 3_000_000));
    let again = shell.run("a", &[], script);
    assert_eq!(code(&again), 0);
    assert!(again.stdout.len() > 1_000_000 && again.stdout.len() < 1_048_576, "{}", again.stdout.len());
    assert!(stderr(&again).contains("too long to keep"), "{}", stderr(&again));
    assert!(stderr(&again).contains("much"), "{}", stderr(&again));
    assert_eq!(shell.effects(), 1);
}

#[test]
fn reader_who_hangs_up_loses_no_outcome() {
    let shell = Shell::new();
    let script = "seq 1 50000; echo x >> ledger";
    let mut child = shell.spawn("a", &["--quiet"], script);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let again = stdout(&shell.run("a", &["--quiet"], script));
    assert!(again.starts_with("1\n2\n") && again.ends_with("50000\n"), "{} bytes", again.len());
    assert_eq!(shell.effects(), 1);
}

#[test]
fn background_process_that_keeps_the_output_open_does_not_hold_up_the_outcome() {
    let shell = Shell::new();
    let script = &format!("({}) & echo done", until("end"));
    let first = shell.run("a", &["--quiet"], script);
    fs::write(shell.path("end"), "").unwrap();
    assert_eq!((code(&first), stdout(&first).as_str()), (0, "done\n"));
    assert_eq!(stdout(&shell.run("a", &["--quiet"], script)), "done\n");
}
