//! Exit codes, one by one: scripts are written against them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use dupeproof::Options;

use super::{Shell, code, stderr, stdout, until};

/// A store with one record in each state that `run` can find, and the code that says so.
#[test]
fn run_says_with_its_code_what_became_of_the_key() {
    let shell = Shell::new();
    let script = format!("touch started; {}", until("go-on"));
    let running = shell.spawn("120", &[], &script);
    shell.await_file("started");
    shell.run("121", &[], "echo something else");
    shell.run("122", &[], "exit 1");
    shell.run("123", &["--keep", "1s"], "true");
    fs::write(shell.path("plain"), "no program").unwrap();
    let repeat = |key: &str| match key {
        "120" => shell.run(key, &[], &script),
        "121" => shell.run(key, &[], "true"),
        "122" => shell.run(key, &[], "exit 1"),
        "123" => shell.run(key, &["--keep", "1s"], "true"),
        // Again before the wait of the first failure is over.
        "124" => [0; 2].map(|_| shell.run(key, &[], "exit 75"))[1].clone(),
        "125" => shell.output(["run", "--key", "", "--", "true"]),
        "126" => shell.output(["run", "--key", key, "--", "./plain"]),
        "127" => shell.output(["run", "--key", key, "--", "no-such-command"]),
        other => panic!("{other}"),
    };
    while code(&repeat("123")) == 0 {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    for expected in 120..=127 {
        let output = repeat(&expected.to_string());
        assert_eq!(code(&output), expected, "{}", stderr(&output));
        assert_eq!(stdout(&output), "", "standard output is the command's");
        assert!(stderr(&output).starts_with("dupeproof: "), "{expected}: {}", stderr(&output));
    }
    fs::write(shell.path("go-on"), "").unwrap();
    assert_eq!(code(&running.wait_with_output().unwrap()), 0);
}

#[test]
fn run_fails_with_125_whatever_the_reason() {
    let shell = Shell::new();
    let run = |arguments: &[&str]| code(&shell.output([&["run"], arguments].concat()));
    for wrong in [
        &["--key", "a"][..],
        &["--key", "a", "--lease", "soon", "--", "true"],
        &["--key", "a", "--lease", "1ms", "--", "true"],
        &["--key", "a", "--payload-file", "no such file", "--", "true"],
        &["--key", "a", "--store", "/no/such/folder/store.redb", "--", "true"],
        &["--key", "a\u{7}", "--", "true"],
        &["--what", "--", "true"],
        &["--", "true"],
    ] {
        assert_eq!(run(wrong), 125, "{wrong:?}");
    }
    fs::write(shell.path("foreign"), "text").unwrap();
    assert_eq!(run(&["--key", "a", "--store", "foreign", "--", "true"]), 125);
    let alone = Options::new().open(shell.store()).unwrap();
    assert_eq!(run(&["--key", "a", "--", "true"]), 125, "a program has it for itself");
    drop(alone);
    assert_eq!(run(&["--key", "a", "--", "true"]), 0);
}

/// The command's own codes come through, on the first run and on every repeat, where the outcome is final.
#[test]
fn every_code_of_the_command_comes_through() {
    let shell = Shell::new();
    for expected in [0, 1, 2, 74, 76, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 254, 255] {
        let script = format!("echo x >> ledger; exit {expected}");
        for _ in 0..2 {
            let output = shell.run(&expected.to_string(), &["--on-error", "final"], &script);
            assert_eq!(code(&output), expected);
        }
    }
    assert_eq!(shell.effects(), 17);
}

#[test]
fn other_commands_say_done_failed_usage_not_found_or_refused() {
    let shell = Shell::new();
    shell.run("a", &[], "true");
    shell.run("b", &[], "exit 3");
    fs::write(shell.path("foreign"), "text").unwrap();
    let verdict = ["resolve", "--happened", "--by", "jane", "--reason", "seen", "--key"];
    let cases: [(i32, &[&[&str]]); 5] = [
        (0, &[&["list"], &["show", "--key", "a"], &["stats"], &["sweep"], &["verify"], &["compact"], &["export"]]),
        (1, &[&["list", "--store", "foreign"], &["import", "no such file"]]),
        (
            2,
            &[
                &[],
                &["wat"],
                &["list", "--status", "wat"],
                &["list", "--older-than", "1mo"],
                &["list", "--limit", "0"],
                &["show"],
                &["show", "--key", ""],
                &["resolve", "--key", "b", "--by", "jane", "--reason", "seen"],
                &["resolve", "--key", "b", "--happened", "--failed", "--by", "jane", "--reason", "seen"],
                &["sweep", "--limit", "0"],
                &["backup"],
                &["backup", "store.redb"],
                &["backup", "store.redb/x"],
                &["reconcile", "--command", "true"],
                &["completions", "cobol"],
                &["import", "foreign", "--store", "new"],
            ],
        ),
        (3, &[&["list", "--store", "none"], &["show", "--key", "zz"], &["man", "wat"]]),
        (4, &[&["reconcile", "--operation", "command", "--command", "exit 9"]]),
    ];
    for (expected, all) in cases {
        for arguments in all {
            let output = shell.output(arguments.iter());
            assert_eq!(code(&output), expected, "{arguments:?}: {}", stderr(&output));
        }
    }
    for (expected, key) in [(4, "a"), (3, "zz"), (0, "b")] {
        assert_eq!(code(&shell.output(verdict.iter().chain([&key]))), expected, "{key}");
    }
    let full = shell.output(["export"]).stdout;
    fs::write(shell.path("lines"), full).unwrap();
    assert_eq!(code(&shell.output(["import", "lines"])), 4);
    // A file that may not be written: nothing can be recorded, so nothing is promised. The superuser may everything.
    fs::set_permissions(shell.store(), fs::Permissions::from_mode(0o400)).unwrap();
    let output = shell.output(["list"]);
    assert!(code(&output) == 1 || rustix::process::geteuid().is_root(), "{}", stderr(&output));
}

#[test]
fn help_tells_every_code() {
    let shell = Shell::new();
    let run = stdout(&shell.output(["run", "--help"]));
    for code in 120..=127 {
        assert!(run.contains(&format!("\n  {code}  ")), "{code}");
    }
    for command in ["list", "show", "resolve", "reconcile", "stats", "sweep", "verify", "compact", "backup", "export"] {
        let help = stdout(&shell.output([command, "--help"]));
        assert!(help.contains("Exit codes: 0 "), "{command}");
    }
}
