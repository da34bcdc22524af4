//! Fifty shells at once, and the one that won is killed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use super::{Shell, code, stderr, stdout, until};

const SHELLS: usize = 50;

/// Appends to the ledger, and ends when it is told to, with a receipt and 9.
fn script() -> String {
    format!("echo $$ >> ledger; {}; printf 'rec\\0eipt'; exit 9", until("go-on"))
}

const OPTIONS: [&str; 5] = ["--quiet", "--on-error", "final", "--lease", "500ms"];

fn shells(shell: &Shell, options: &[&str]) -> Vec<Child> {
    let script = script();
    let words = [&["run", "--key", "a"], &OPTIONS[..], options, &["--", "sh", "-c", &script]].concat();
    (0..SHELLS)
        .map(|_| {
            // In a group of its own, so that a kill can take the command along.
            let mut command = shell.dupeproof(&words);
            command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect()
}

fn run(shell: &Shell, options: &[&str]) -> Output {
    shell.run("a", &[&OPTIONS[..], options].concat(), &script())
}

/// The process that runs the command: the parent of who wrote into the ledger.
fn winner(shell: &Shell) -> i32 {
    let ledger = fs::read_to_string(shell.path("ledger")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/status", ledger.trim())).unwrap();
    stat.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn kill(what: &str) {
    assert!(std::process::Command::new("kill").args(["-9", "--", what]).status().unwrap().success());
}

#[test]
fn fifty_shells_that_do_not_wait_run_the_command_once_and_are_told_that_it_runs() {
    let shell = Shell::new();
    let racing = shells(&shell, &[]);
    shell.await_file("ledger");
    let first = winner(&shell);
    // The others are answered while the command still runs.
    let (winners, losers): (Vec<_>, Vec<_>) =
        racing.into_iter().partition(|process| i32::try_from(process.id()) == Ok(first));
    for loser in losers {
        let output = loser.wait_with_output().unwrap();
        assert_eq!((code(&output), output.stdout.len()), (120, 0), "{}", stderr(&output));
    }
    fs::write(shell.path("go-on"), "").unwrap();
    for winner in winners {
        let output = winner.wait_with_output().unwrap();
        assert_eq!((code(&output), output.stdout.as_slice()), (9, &b"rec\0eipt"[..]));
    }
    for output in [run(&shell, &[]), run(&shell, &["--wait", "1m"])] {
        assert_eq!((code(&output), output.stdout.as_slice()), (9, &b"rec\0eipt"[..]));
    }
    assert_eq!(shell.effects(), 1);
}

/// Whether the command dies with it or lives on, and whichever way the outcome is found out.
#[test]
fn kill_of_the_winner_among_fifty_leaves_unknown_until_somebody_decides() {
    type Decide = fn(&Shell) -> Output;
    let resolved: [(&str, Decide, i32, usize); 4] = [
        ("happened", |shell| shell.resolve("a", &["--happened"]), 0, 1),
        ("failed", |shell| shell.resolve("a", &["--failed"]), 1, 1),
        ("did not happen", |shell| shell.resolve("a", &["--did-not-happen"]), 9, 2),
        ("a probe", |shell| run(shell, &["--reconcile", "grep . ledger"]), 0, 1),
    ];
    for (at, (name, decide, repeated, effects)) in resolved.into_iter().enumerate() {
        let shell = Shell::new();
        let waits = at % 2 == 0;
        let racing = shells(&shell, if waits { &["--wait", "1m"] } else { &[] });
        shell.await_file("ledger");
        let first = winner(&shell);
        let command_dies = at >= 2;
        kill(&if command_dies { format!("-{first}") } else { first.to_string() });
        for process in racing {
            let is_first = i32::try_from(process.id()) == Ok(first);
            let output = process.wait_with_output().unwrap();
            match output.status.code() {
                None => assert!(is_first, "{name}"),
                // Who does not wait was answered before the kill or after the lease; who waits, after the lease.
                Some(told) => assert!(told == 122 || !waits && told == 120, "{name}: {told} {}", stderr(&output)),
            }
        }
        while code(&run(&shell, &[])) == 120 {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        for _ in 0..10 {
            assert_eq!(code(&run(&shell, &[])), 122, "{name}: nobody runs it again");
        }
        assert_eq!(shell.effects(), 1, "{name}");
        let decided = decide(&shell);
        assert_eq!(code(&decided), 0, "{name}: {}", stderr(&decided));
        fs::write(shell.path("go-on"), "").unwrap();
        for _ in 0..3 {
            let output = run(&shell, &[]);
            assert_eq!(code(&output), repeated, "{name}: {} {}", stdout(&output), stderr(&output));
        }
        assert_eq!(shell.effects(), effects, "{name}");
    }
}
