//! Upkeep as an operator types it, and waiting for somebody else's run.

use std::fs;
use std::process::Command;

use super::{Shell, code, stderr, stdout, until};

fn json(output: &std::process::Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn fifty_shells_that_wait_all_exit_with_the_code_of_the_one_run() {
    let shell = Shell::new();
    let script = &format!("echo x >> ledger; {}; echo receipt; exit 9", until("go-on"));
    let options = ["--wait", "1m", "--on-error", "final", "--quiet"];
    let shells: Vec<_> = (0..50).map(|_| shell.spawn("a", &options, script)).collect();
    shell.await_file("ledger");
    fs::write(shell.path("go-on"), "").unwrap();
    for waiting in shells {
        let output = waiting.wait_with_output().unwrap();
        assert_eq!((code(&output), stdout(&output).as_str()), (9, "receipt\n"), "{}", stderr(&output));
    }
    assert_eq!(shell.effects(), 1);
}

#[test]
fn wait_ends_with_in_progress_and_a_signal_ends_the_wait() {
    let shell = Shell::new();
    let script = &format!("echo x >> ledger; {}", until("go-on"));
    let runner = shell.spawn("a", &[], script);
    shell.await_file("ledger");
    assert_eq!(code(&shell.run("a", &["--wait", "50ms"], script)), 120);
    let mut waiting = shell.spawn("a", &["--wait", "1h"], script);
    // It has to be waiting to be ended by the signal and not before it listens; sent until it is gone, to be sure.
    while waiting.try_wait().unwrap().is_none() {
        Command::new("kill").args(["-TERM", &waiting.id().to_string()]).status().unwrap();
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    fs::write(shell.path("go-on"), "").unwrap();
    assert_eq!(code(&runner.wait_with_output().unwrap()), 0);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn kill_of_the_one_run_tells_everybody_who_waits_that_nobody_knows() {
    let shell = Shell::new();
    let script = &format!("echo x >> ledger; {}", until("go-on"));
    let options = ["--lease", "500ms", "--wait", "1m"];
    let mut runner = shell.spawn("a", &options, script);
    shell.await_file("ledger");
    let waiting: Vec<_> = (0..10).map(|_| shell.spawn("a", &options, script)).collect();
    runner.kill().unwrap();
    runner.wait().unwrap();
    for waiting in waiting {
        assert_eq!(code(&waiting.wait_with_output().unwrap()), 122);
    }
    fs::write(shell.path("go-on"), "").unwrap();
    assert_eq!(shell.effects(), 1);
}

#[test]
fn probe_that_finds_the_effect_settles_it_with_what_it_prints() {
    let shell = Shell::new();
    let script = "echo $IDEMPOTENCY_KEY >> ledger; exit 3";
    // The probe looks into the provider's books, under the key that the command sent.
    let options = ["--quiet", "--reconcile", "grep $IDEMPOTENCY_KEY ledger"];
    assert_eq!(code(&shell.run("a", &options, script)), 3);
    let found = shell.run("a", &options, script);
    assert_eq!((code(&found), found.stdout), (0, fs::read(shell.path("ledger")).unwrap()));
    assert_eq!(code(&shell.run("a", &["--quiet"], script)), 0);
    assert_eq!(shell.effects(), 1);
    assert_eq!(shell.show("a")["decisions"][0]["by"], "--reconcile");
}

#[test]
fn probe_that_finds_nothing_lets_one_more_run_through() {
    let shell = Shell::new();
    let script = "[ $DUPEPROOF_ATTEMPT = 1 ] && kill -9 $$; echo x >> ledger";
    let options = ["--quiet", "--reconcile", "grep x ledger 2>/dev/null"];
    assert_eq!(code(&shell.run("a", &["--reconcile", "exit 1"], script)), 137);
    assert_eq!(code(&shell.run("a", &["--reconcile", "exit 2"], script)), 122, "a probe that cannot tell");
    assert_eq!(code(&shell.run("a", &["--reconcile", "kill -9 $$"], script)), 122);
    assert_eq!(code(&shell.run("a", &["--reconcile", "no-such-probe"], script)), 122);
    // grep says 2 where there is no ledger, and that is no "it did not happen".
    assert_eq!(code(&shell.run("a", &options, script)), 122);
    fs::write(shell.path("ledger"), "").unwrap();
    for _ in 0..3 {
        assert_eq!(code(&shell.run("a", &options, script)), 0);
    }
    assert_eq!(shell.effects(), 1);
}

/// While the probe looks into the first attempt, somebody else decides, and a second attempt is lost as well.
#[test]
fn verdict_of_a_probe_says_nothing_about_an_attempt_that_came_after_its_look() {
    let shell = Shell::new();
    let script = "echo x >> ledger; exit 3";
    let program = shell.dupeproof(["--version"]).get_program().to_str().unwrap().to_owned();
    let meanwhile = format!(
        "{program} resolve --key a --did-not-happen --by jane --reason looked >&2; \
         {program} run --key a -- sh -c '{script}' >&2; exit 1"
    );
    assert_eq!(code(&shell.run("a", &[], script)), 3);
    assert_eq!(code(&shell.run("a", &["--reconcile", &meanwhile], script)), 122);
    assert_eq!(shell.effects(), 2);
    assert_eq!(shell.show("a")["attempts"], 2);
}

#[test]
fn probes_that_race_let_one_run_through() {
    let shell = Shell::new();
    let script = "[ $DUPEPROOF_ATTEMPT = 1 ] && exit 3; echo x >> ledger";
    assert_eq!(code(&shell.run("a", &[], script)), 3);
    let racers: Vec<_> = (0..8).map(|_| shell.spawn("a", &["--reconcile", "exit 1"], script)).collect();
    for racer in racers {
        let output = racer.wait_with_output().unwrap();
        // 122: another one was asking.
        assert!(matches!(code(&output), 0 | 120 | 122), "{}", stderr(&output));
    }
    assert_eq!(shell.effects(), 1);
}

#[test]
fn stats_count_by_status() {
    let shell = Shell::new();
    shell.run("a", &[], "true");
    shell.run("b", &[], "exit 3");
    shell.run("c", &[], "exit 75");
    let stats = json(&shell.output(["stats", "--json"]));
    assert_eq!((&stats["succeeded"], &stats["unknown"], &stats["failed_retryable"]), (&1.into(), &1.into(), &1.into()));
    assert!(stats["file_bytes"].as_u64().unwrap() > 0 && stats["oldest_unknown"].is_string());
    assert!(stdout(&shell.output(["stats"])).contains("unknown             1"));
}

#[test]
fn sweep_says_what_it_did() {
    let shell = Shell::new();
    shell.run("a", &["--keep", "1s"], "true");
    shell.run("b", &[], "true");
    let swept = (0..200).find_map(|_| {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        let swept = json(&shell.output(["sweep", "--json"]));
        (swept["tombstoned"] == 1).then_some(swept)
    });
    assert_eq!(swept.expect("it expires within seconds")["more"], false);
    assert_eq!(code(&shell.output(["sweep", "--limit", "0"])), 2);
}

#[test]
fn copy_answers_as_the_store_did_and_replaces_nothing() {
    let shell = Shell::new();
    shell.run("a", &["--quiet"], "echo x >> ledger; echo receipt");
    shell.run("b", &[], "exit 3");
    let backup = || shell.output(["backup", "copy.redb"]);
    assert_eq!(code(&backup()), 0);
    let bytes = fs::read(shell.path("copy.redb")).unwrap();
    assert_eq!(code(&backup()), 2);
    assert!(fs::read(shell.path("copy.redb")).unwrap() == bytes);
    let options = ["--store", "copy.redb", "--quiet"];
    assert_eq!(stdout(&shell.run("a", &options, "echo x >> ledger; echo receipt")), "receipt\n");
    assert_eq!(code(&shell.run("b", &options, "exit 3")), 122);
    assert_eq!(shell.effects(), 1);
}

#[test]
fn verify_tells_a_good_store_from_a_damaged_one() {
    let shell = Shell::new();
    for key in ["a", "b", "c"] {
        shell.run(key, &[], "echo some output of the command");
    }
    let good = shell.output(["verify", "--json"]);
    assert_eq!((code(&good), &json(&good)["records"]), (0, &3.into()));
    let mut bytes = fs::read(shell.store()).unwrap();
    let at = bytes.windows(11).position(|window| window == b"some output").expect("the recording is in the file");
    bytes[at] ^= 1;
    fs::write(shell.store(), bytes).unwrap();
    let damaged = shell.output(["verify"]);
    assert_eq!(code(&damaged), 1);
    assert!(stdout(&damaged).contains("checksum"), "{}{}", stdout(&damaged), stderr(&damaged));
}

#[test]
fn compact_leaves_every_answer_as_it_was() {
    let shell = Shell::new();
    for key in 0..10 {
        shell.run(&key.to_string(), &["--quiet"], "echo x >> ledger; head -c 100000 /dev/zero");
    }
    let compacted = json(&shell.output(["compact", "--json"]));
    assert!(compacted["bytes_after"].as_u64() <= compacted["bytes_before"].as_u64(), "{compacted}");
    for key in 0..10 {
        let again = shell.run(&key.to_string(), &["--quiet"], "echo x >> ledger; head -c 100000 /dev/zero");
        assert_eq!(again.stdout.len(), 100_000);
    }
    assert_eq!(shell.effects(), 10);
}

#[test]
fn upkeep_of_a_store_that_is_not_there_makes_none() {
    let shell = Shell::new();
    for arguments in [&["stats"][..], &["sweep"], &["verify"], &["compact"], &["backup", "copy.redb"]] {
        assert_eq!(code(&shell.output(arguments)), 3, "{arguments:?}");
    }
    assert!(!shell.store().exists() && !shell.path("copy.redb").exists());
}

#[test]
fn packages_get_completions_and_pages() {
    let shell = Shell::new();
    for name in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(stdout(&shell.output(["completions", name])).contains("resolve"), "{name}");
    }
    assert!(stdout(&shell.output(["man"])).contains(".TH dupeproof"));
    assert!(stdout(&shell.output(["man", "run"])).contains("EX_TEMPFAIL"));
    assert_eq!(code(&shell.output(["man", "dance"])), 3);
    assert_eq!(code(&shell.output(["completions", "tcsh"])), 2);
}
