//! The recipes of `docs/recipes.md`, as they stand there: run, killed in the middle, run again, and counted.
//!
//! Around them, fake programs that append to a ledger; `mail`, `bucket` and `rollout` die with everything around them
//! after their effect if a file named `die` is there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use super::{Shell, code, stderr, stdout};

const RECIPES: &str = include_str!("../../../docs/recipes.md");

/// Dies like a machine: the whole group of processes, the one that records included.
const DIE: &str = "[ -e die ] && { rm die; kill -9 0; }";

struct Kitchen(Shell);

impl Kitchen {
    fn new() -> Self {
        let shell = Shell::new();
        fs::create_dir(shell.path("bin")).unwrap();
        let kitchen = Self(shell);
        for line in RECIPES.lines().filter_map(|line| line.strip_prefix("# recipe: ")) {
            kitchen.program(line, recipe(line));
        }
        std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin!("dupeproof"), kitchen.0.path("bin/dupeproof"))
            .unwrap();
        kitchen
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.0.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// In a group of its own, so that a kill of the group is a kill of the machine.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.0.path("bin").join(words[0]));
        command
            .args(&words[1..])
            .current_dir(self.0.path("."))
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.path("bin").display()))
            .env("DUPEPROOF_STORE", self.0.store())
            .env("DEPLOY_PAUSE", "0.05")
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn die_next(&self) {
        fs::write(self.0.path("die"), "").unwrap();
    }

    /// Until the lease of the killed run is over: its outcome is unknown then.
    fn lapse(&self, words: &[&str]) -> Output {
        loop {
            let output = self.run(words);
            if code(&output) != 120 {
                return output;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
    }
}

/// The block that begins with the name.
fn recipe(name: &str) -> &'static str {
    let begin = format!("```sh\n# recipe: {name}\n");
    let (_, block) = RECIPES.split_once(&begin).unwrap_or_else(|| panic!("no recipe {name}"));
    block.split_once("```").expect("the block ends").0
}

/// Shorter leases, so that a killed run does not keep the test waiting.
fn hasty(kitchen: &Kitchen, name: &str) {
    let script = recipe(name).replace("--lease 2m", "").replace("dupeproof run", "dupeproof run --lease 300ms");
    kitchen.program(name, &script);
}

#[test]
fn mailed_report_goes_out_once_however_often_cron_runs_and_whenever_it_dies() {
    let kitchen = Kitchen::new();
    hasty(&kitchen, "mail-report");
    kitchen.program("make-report", "[ -e ready ] && echo \"all is well on $1\"");
    kitchen.program("mail", &format!("{{ echo \"$*\"; cat; }} >> ledger; {DIE}; exit 0"));
    let cron = ["mail-report", "2026-12-01"];
    assert_eq!(code(&kitchen.run(&cron)), 75, "no report yet");
    assert_eq!(code(&kitchen.run(&cron)), 124, "not at once again");
    fs::write(kitchen.0.path("ready"), "").unwrap();
    let output = loop {
        let output = kitchen.run(&cron);
        if code(&output) != 124 {
            break output;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    };
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let mail = "-s Report of 2026-12-01 board@example.org\nall is well on 2026-12-01\n";
    assert_eq!(fs::read_to_string(kitchen.0.path("ledger")).unwrap(), mail);
    for _ in 0..3 {
        let repeat = kitchen.run(&cron);
        assert_eq!((code(&repeat), stdout(&repeat) + &stderr(&repeat)), (0, String::new()), "cron stays silent");
    }
    // The next day the machine dies after the mail and before its record.
    let cron = ["mail-report", "2026-12-02"];
    kitchen.die_next();
    assert_eq!(kitchen.run(&cron).status.code(), None);
    let told = kitchen.lapse(&cron);
    assert_eq!(code(&told), 122);
    assert!(stderr(&told).contains("dupeproof resolve"), "{}", stderr(&told));
    for _ in 0..3 {
        assert_eq!(code(&kitchen.run(&cron)), 122);
    }
    let key = "board-report-2026-12-02";
    assert_eq!(code(&kitchen.0.resolve(key, &["--happened"])), 0);
    assert_eq!(code(&kitchen.run(&cron)), 0);
    assert_eq!(kitchen.0.effects(), 4, "two mails of two lines");
}

#[test]
fn guarded_upload_happens_once_and_its_probe_never_guesses() {
    let kitchen = Kitchen::new();
    hasty(&kitchen, "upload-backup");
    fs::create_dir(kitchen.0.path("data")).unwrap();
    fs::write(kitchen.0.path("data/file"), "precious").unwrap();
    let bucket = |put: &str| {
        let script = format!(
            "[ -e offline ] && exit 1
             case $1 in list) cat remote 2>/dev/null; exit 0;; put) {put};; esac"
        );
        kitchen.program("bucket", &script);
    };
    let once = |day: &str| {
        let listing = fs::read_to_string(kitchen.0.path("remote")).unwrap_or_default();
        listing.lines().filter(|line| *line == format!("backup-{day}.tar.gz")).count()
    };
    // Dies after the upload: the probe finds it, and nothing is uploaded again.
    bucket(&format!("echo $2 >> remote; {DIE}; exit 0"));
    kitchen.die_next();
    assert_eq!(kitchen.run(&["upload-backup", "1"]).status.code(), None);
    fs::write(kitchen.0.path("offline"), "").unwrap();
    assert_eq!(code(&kitchen.lapse(&["upload-backup", "1"])), 122, "a probe that could not look");
    fs::remove_file(kitchen.0.path("offline")).unwrap();
    for _ in 0..3 {
        let repeat = kitchen.run(&["upload-backup", "1"]);
        assert_eq!((code(&repeat), stdout(&repeat).as_str()), (0, "backup-1.tar.gz\n"), "{}", stderr(&repeat));
    }
    assert_eq!(once("1"), 1);
    // Dies before it: the probe finds nothing, and it is uploaded now.
    bucket(&format!("{DIE}; echo $2 >> remote; exit 0"));
    kitchen.die_next();
    assert_eq!(kitchen.run(&["upload-backup", "2"]).status.code(), None);
    for _ in 0..3 {
        assert_eq!(code(&kitchen.lapse(&["upload-backup", "2"])), 0);
    }
    assert_eq!((once("1"), once("2")), (1, 1));
}

#[test]
fn deployment_happens_once_waits_for_a_busy_cluster_and_stops_where_it_broke_off() {
    let kitchen = Kitchen::new();
    hasty(&kitchen, "deploy");
    fs::write(kitchen.0.path("release.tar.gz"), "1.4.2").unwrap();
    kitchen.program(
        "rollout",
        &format!("case $1 in status) [ -e idle ];; apply) echo applied >> ledger; {DIE}; echo done;; esac"),
    );
    let people: Vec<_> = (0..2)
        .map(|_| {
            let mut command = kitchen.command(&["deploy", "1.4.2"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    // Busy for a while: nothing is touched.
    std::thread::park_timeout(std::time::Duration::from_millis(200));
    assert_eq!(kitchen.0.effects(), 0);
    fs::write(kitchen.0.path("idle"), "").unwrap();
    for person in people {
        let output = person.wait_with_output().unwrap();
        assert_eq!((code(&output), stdout(&output).as_str()), (0, "done\n"), "{}", stderr(&output));
    }
    assert_eq!(kitchen.0.effects(), 1);
    fs::write(kitchen.0.path("release.tar.gz"), "another one under the same version").unwrap();
    assert_eq!(code(&kitchen.run(&["deploy", "1.4.2"])), 121);
    kitchen.die_next();
    assert_eq!(kitchen.run(&["deploy", "1.4.3"]).status.code(), None);
    for _ in 0..3 {
        assert_eq!(code(&kitchen.run(&["deploy", "1.4.3"])), 122, "the loop waits for the lease, and then stops");
    }
    assert_eq!(kitchen.0.effects(), 2);
}

#[test]
fn release_in_steps_goes_on_where_it_was_cut_off_and_takes_no_step_behind_one_in_doubt() {
    let kitchen = Kitchen::new();
    let script = recipe("release").replace("dupeproof run", "dupeproof run --lease 300ms");
    kitchen.program("release", &script);
    kitchen.program("make-dist", "echo built >> ledger");
    kitchen.program("bucket", &format!("echo uploaded >> ledger; {DIE}; exit 0"));
    kitchen.program("mail", "echo mailed >> ledger");
    let release = ["release", "1.4.2"];
    kitchen.die_next();
    assert_eq!(kitchen.run(&release).status.code(), None);
    for _ in 0..3 {
        assert_eq!(code(&kitchen.lapse(&release)), 122, "nothing behind the upload");
    }
    assert_eq!(kitchen.0.effects(), 2);
    let blocked = kitchen.run(&["dupeproof", "workflow", "list", "--status", "blocked_unknown"]);
    assert!(stdout(&blocked).contains("1.4.2"), "{}", stdout(&blocked));
    let upload = ["dupeproof", "resolve", "--workflow", "release", "--run", "1.4.2", "--step", "upload"];
    let verdict = ["--happened", "--by", "jane", "--reason", "it is in the bucket"];
    assert_eq!(code(&kitchen.run(&[&upload[..], &verdict].concat())), 0);
    for _ in 0..3 {
        let output = kitchen.run(&release);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
    assert_eq!(fs::read_to_string(kitchen.0.path("ledger")).unwrap(), "built\nuploaded\nmailed\n");
}

#[test]
fn night_ends_with_a_verdict_that_repeats_get() {
    let kitchen = Kitchen::new();
    kitchen.program("provider", "case $1 in find) grep \"$2\" ledger;; esac");
    let pay = || kitchen.0.run("invoice-981", &["--quiet"], "echo \"ch_17 $IDEMPOTENCY_KEY\" >> ledger; exit 1");
    assert_eq!((code(&pay()), code(&pay())), (1, 122));
    let night = kitchen.run(&["at-night"]);
    assert_eq!(code(&night), 0, "{}", stderr(&night));
    assert!(stdout(&night).contains("\nch_17 "), "the provider knows the key: {}", stdout(&night));
    assert_eq!(code(&pay()), 0);
    assert_eq!(kitchen.0.effects(), 1);
    assert_eq!(kitchen.0.show("invoice-981")["external_reference"], "ch_17");
}

/// On two machines, two stores derive the same key for the provider.
#[test]
fn two_stores_send_the_same_downstream_key() {
    let sent = || {
        let shell = Shell::new();
        stdout(&shell.run("invoice-981", &["--quiet"], "echo $IDEMPOTENCY_KEY"))
    };
    assert_eq!(sent(), sent());
}
