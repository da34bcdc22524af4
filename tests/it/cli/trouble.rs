//! Signals, deaths, wrong arguments, missing commands, and files that are no store.

use std::fs;
use std::process::Command;

use super::{Shell, code, stderr, stdout, until};

#[test]
fn kill_of_the_program_leaves_unknown_and_after_a_verdict_one_more_run() {
    let shell = Shell::new();
    let script = &format!("echo x >> ledger; {}", until("go-on"));
    let options = ["--lease", "300ms"];
    let mut child = shell.spawn("a", &options, script);
    shell.await_file("ledger");
    child.kill().unwrap();
    child.wait().unwrap();
    let unknown = shell.await_code_with("a", &options, script, 122);
    assert!(stderr(&unknown).contains("dupeproof resolve"), "{}", stderr(&unknown));
    for _ in 0..20 {
        assert_eq!(code(&shell.run("a", &options, script)), 122);
    }
    assert_eq!(shell.effects(), 1);
    fs::write(shell.path("go-on"), "").unwrap();
    assert_eq!(code(&shell.resolve("a", &["--did-not-happen"])), 0);
    assert_eq!(code(&shell.run("a", &options, script)), 0);
    assert_eq!(code(&shell.run("a", &options, script)), 0);
    assert_eq!(shell.effects(), 2);
}

#[test]
fn lease_is_renewed_while_the_command_runs() {
    let shell = Shell::new();
    let script = &format!("echo x >> ledger; {}", until("go-on"));
    let options = ["--lease", "300ms"];
    let child = shell.spawn("a", &options, script);
    shell.await_file("ledger");
    let first = shell.show("a")["lease_until"].clone();
    // Leases have a grain of a second in what is shown.
    for turn in 0.. {
        assert_eq!(code(&shell.run("a", &options, script)), 120);
        if shell.show("a")["lease_until"] != first {
            break;
        }
        assert!(turn < 1000, "the lease was not renewed");
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    fs::write(shell.path("go-on"), "").unwrap();
    assert_eq!(code(&child.wait_with_output().unwrap()), 0);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn signal_reaches_the_command_and_the_outcome_is_recorded() {
    for signal in ["TERM", "INT", "HUP"] {
        let shell = Shell::new();
        let script = format!("trap 'echo got it; exit 0' {signal}; touch ready; {}", until("no signal"));
        let child = shell.spawn("a", &["--quiet"], &script);
        shell.await_file("ready");
        let kill = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let output = child.wait_with_output().unwrap();
        assert_eq!((code(&output), stdout(&output).as_str()), (0, "got it\n"), "{signal}");
        assert_eq!(stdout(&shell.run("a", &["--quiet"], &script)), "got it\n", "{signal}");
    }
}

#[test]
fn command_that_dies_of_a_signal_is_unknown_whatever_errors_mean() {
    let shell = Shell::new();
    for (key, on_error) in [("a", "unknown"), ("b", "retry"), ("c", "final")] {
        let options = ["--on-error", on_error];
        assert_eq!(code(&shell.run(key, &options, "kill -9 $$")), 137);
        assert_eq!(code(&shell.run(key, &options, "kill -9 $$")), 122);
    }
}

#[test]
fn mistyped_command_does_not_bind_its_key() {
    let shell = Shell::new();
    let run = |words: &[&str]| code(&shell.output(["run", "--key", "a", "--"].iter().chain(words)));
    assert_eq!(run(&["no-such-command-anywhere"]), 127);
    assert_eq!(run(&["./store.redb"]), 126, "a file that is not executable");
    assert_eq!(run(&["/"]), 126);
    assert_eq!(run(&["sh", "-c", "echo x >> ledger"]), 0);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn what_is_recorded_is_replayed_when_its_command_is_gone() {
    let shell = Shell::new();
    let tool = shell.path("tool");
    fs::write(&tool, "#!/bin/sh\necho x >> ledger\necho receipt\n").unwrap();
    make_executable(&tool);
    let run = || shell.output(["run", "--quiet", "--key", "a", "--", "./tool"]);
    assert_eq!(stdout(&run()), "receipt\n");
    fs::remove_file(&tool).unwrap();
    assert_eq!(stdout(&run()), "receipt\n");
    assert_eq!(shell.effects(), 1);
}

#[test]
fn command_that_the_system_refuses_is_released() {
    let shell = Shell::new();
    let tool = shell.path("tool");
    fs::write(&tool, "#!/no/such/interpreter\n").unwrap();
    make_executable(&tool);
    let run = || code(&shell.output(["run", "--key", "a", "--", "./tool"]));
    assert_eq!(run(), 127);
    assert_eq!(run(), 127, "it may be tried again at once");
    assert_eq!(shell.show("a")["status"], "failed_retryable");
}

fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_written() {
    let shell = Shell::new();
    let long = "k".repeat(513);
    let runs: &[&[&str]] = &[
        &["run"],
        &["run", "--key", "a"],
        &["run", "--key", "a", "--"],
        &["run", "--", "true"],
        &["run", "--key", "", "--", "true"],
        &["run", "--key", &long, "--", "true"],
        &["run", "--key", "a\nb", "--", "true"],
        &["run", "--key", "a", "--tenant", "", "--", "true"],
        &["run", "--key", "a", "--lease", "1", "--", "true"],
        &["run", "--key", "a", "--lease", "-5s", "--", "true"],
        &["run", "--key", "a", "--lease", "0s", "--", "true"],
        &["run", "--key", "a", "--lease", "999999d", "--", "true"],
        &["run", "--key", "a", "--keep", "0s", "--", "true"],
        &["run", "--key", "a", "--keep", "200000d", "--", "true"],
        &["run", "--key", "a", "--remote-dedupes", "tomorrow", "--", "true"],
        &["run", "--key", "a", "--on-error", "ignore", "--", "true"],
        &["run", "--key", "a", "--payload-file", "missing", "--", "true"],
        &["run", "--key", "a", "--unheard-of", "--", "true"],
    ];
    for arguments in runs {
        let output = shell.output(*arguments);
        assert_eq!(code(&output), 125, "{arguments:?}: {}", stderr(&output));
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
    let others: &[&[&str]] = &[
        &[],
        &["dance"],
        &["show"],
        &["show", "--key", ""],
        &["list", "--status", "happy"],
        &["list", "--limit", "0"],
        &["list", "--older-than", "yesterday"],
        &["resolve", "--key", "a", "--by", "me", "--reason", "x"],
        &["resolve", "--key", "a", "--by", "me", "--reason", "x", "--happened", "--failed"],
        &["resolve", "--key", "a", "--happened", "--reason", "x"],
        &["resolve", "--key", "a", "--did-not-happen", "--reference", "r", "--by", "me", "--reason", "x"],
    ];
    for arguments in others {
        let output = shell.output(*arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
    }
    assert!(!shell.store().exists(), "and no store was made");
}

#[test]
fn store_that_is_none_is_refused_and_left_alone() {
    let shell = Shell::new();
    for (content, what) in [(&b""[..], "empty"), (b"SQLite format 3\0 and so on", "another program")] {
        fs::write(shell.store(), content).unwrap();
        let output = shell.run("a", &[], "echo x >> ledger");
        assert_eq!(code(&output), 125);
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
        assert_eq!(code(&shell.output(["list"])), 1);
        assert_eq!(fs::read(shell.store()).unwrap(), content);
    }
    let folder = shell.dupeproof(["run", "--key", "a", "--store", ".", "--", "true"]).output().unwrap();
    assert_eq!(code(&folder), 125);
    let missing = shell.dupeproof(["run", "--key", "a", "--store", "no/such/folder/s", "--", "true"]).output().unwrap();
    assert_eq!(code(&missing), 125);
    assert_eq!(shell.effects(), 0);
}

#[test]
fn looking_at_a_store_that_is_not_there_makes_none() {
    let shell = Shell::new();
    assert_eq!(code(&shell.output(["list"])), 3);
    assert_eq!(code(&shell.output(["show", "--key", "a"])), 3);
    assert_eq!(code(&shell.resolve("a", &["--happened"])), 3);
    assert!(!shell.store().exists());
}

#[test]
fn program_that_has_the_store_for_itself_is_waited_for_as_long_as_asked() {
    let shell = Shell::new();
    let store = dupeproof::Store::open(shell.store()).unwrap();
    let output = shell.run("a", &[], "echo x >> ledger");
    assert_eq!(code(&output), 125);
    assert!(stderr(&output).contains("open elsewhere"), "{}", stderr(&output));
    let waiting = shell.spawn("a", &["--open-wait", "1m"], "echo x >> ledger");
    drop(store);
    assert_eq!(code(&waiting.wait_with_output().unwrap()), 0);
    assert_eq!(shell.effects(), 1);
}
