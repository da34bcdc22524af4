//! `list`, `show`, `resolve`, and what programs read.

use std::fs;

use super::{Shell, code, stderr, stdout};

fn json_lines(bytes: &[u8]) -> Vec<serde_json::Value> {
    String::from_utf8_lossy(bytes).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn list_shows_what_was_asked_for() {
    let shell = Shell::new();
    shell.run("a", &[], "true");
    shell.run("b", &[], "exit 3");
    shell.run("c", &["--tenant", "acme"], "exit 3");
    let listed = |options: &[&str]| {
        let output = shell.output(["list", "--json"].iter().chain(options));
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json_lines(&output.stdout).iter().map(|line| line["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["c", "a", "b"], "in the order of tenant, operation and key");
    assert_eq!(listed(&["--status", "unknown"]), ["b", "c"], "oldest first");
    assert_eq!(listed(&["--tenant", "acme"]), ["c"]);
    assert_eq!(listed(&["--operation", "mail"]), Vec::<String>::new());
    assert_eq!(listed(&["--limit", "2"]), ["c", "a"]);
    assert_eq!(listed(&["--older-than", "1d"]), Vec::<String>::new());
    assert!(stderr(&shell.output(["list", "--limit", "2"])).contains("may be more"));
    assert_eq!(stderr(&shell.output(["list"])), "");
    let table = stdout(&shell.output(["list"]));
    assert!(table.contains("STATUS") && table.contains("succeeded"), "{table}");
    assert_eq!(stdout(&shell.output(["list", "--operation", "mail"])), "");
}

#[test]
fn show_hides_the_output_unless_it_is_asked_for() {
    let shell = Shell::new();
    shell.run("a", &[], "echo the secret");
    let hidden = shell.output(["show", "--key", "a"]);
    assert!(!stdout(&hidden).contains("secret"), "{}", stdout(&hidden));
    assert!(!shell.show("a").to_string().contains("secret"));
    let shown = shell.output(["show", "--key", "a", "--show-response"]);
    assert!(stdout(&shown).contains("the secret"), "{}", stdout(&shown));
    let shown = shell.output(["show", "--key", "a", "--show-response", "--json"]);
    assert_eq!(json_lines(&shown.stdout)[0]["recording"]["stdout"]["text"], "the secret\n");
}

#[test]
fn resolve_is_refused_where_nothing_is_unknown() {
    let shell = Shell::new();
    shell.run("a", &[], "true");
    assert_eq!(code(&shell.resolve("a", &["--happened"])), 4);
    assert_eq!(code(&shell.resolve("b", &["--happened"])), 3);
    shell.run("c", &[], "exit 3");
    assert_eq!(code(&shell.resolve("c", &["--happened", "--response", "missing"])), 1);
    fs::write(shell.path("huge"), vec![0; 2_000_000]).unwrap();
    assert_eq!(code(&shell.resolve("c", &["--happened", "--response", "huge"])), 1);
    assert_eq!(shell.show("c")["status"], "unknown");
}

#[test]
fn text_of_others_cannot_steer_the_terminal() {
    let shell = Shell::new();
    shell.run("a", &[], "exit 3");
    let verdict = ["resolve", "--key", "a", "--did-not-happen", "--by", "jane\u{202e}", "--reason", "x\u{1b}[2Jy"];
    shell.output(verdict);
    let shown = stdout(&shell.output(["show", "--key", "a"]));
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
}

#[test]
fn programs_are_told_everything_as_json() {
    let shell = Shell::new();
    shell.run("a", &[], "exit 3");
    let answer = |output: std::process::Output| {
        let lines = json_lines(&output.stderr);
        assert_eq!(lines.len(), 1, "{}", stderr(&output));
        lines[0].clone()
    };
    let unknown = answer(shell.run("a", &["--json"], "exit 3"));
    assert_eq!((&unknown["answer"], &unknown["cause"]), (&"unknown".into(), &"exited with 3".into()));
    let conflict = answer(shell.run("a", &["--json"], "exit 4"));
    assert_eq!((&conflict["answer"], &conflict["status"]), (&"conflict".into(), &"unknown".into()));
    shell.run("b", &[], "true");
    assert_eq!(answer(shell.run("b", &["--json"], "true"))["answer"], "replay");
    let missing = answer(shell.output(["show", "--json", "--key", "zz"]));
    assert_eq!(missing["exit_code"], 3);
    fs::write(shell.path("none"), "").unwrap();
    let none = answer(shell.dupeproof(["list", "--json", "--store", "none"]).output().unwrap());
    assert_eq!((&none["kind"], &none["may_retry"]), (&"NotAStore".into(), &false.into()));
}

#[test]
fn store_is_found_below_the_home_folder_and_is_private() {
    use std::os::unix::fs::PermissionsExt;

    let shell = Shell::new();
    let run = || {
        shell
            .dupeproof(["run", "--key", "a", "--", "sh", "-c", "echo x >> ledger"])
            .env_remove("DUPEPROOF_STORE")
            .output()
            .unwrap()
    };
    assert_eq!((code(&run()), code(&run())), (0, 0));
    assert_eq!(shell.effects(), 1);
    let folder = shell.path(".local/state/dupeproof");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(folder.join("store.redb")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn short_runs_alone_keep_a_store_tidy() {
    let shell = Shell::new();
    shell.run("a", &["--keep", "1s", "--tombstone", "0s"], "true");
    while code(&shell.output(["show", "--key", "a"])) == 0 {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let stats = || {
        let store = dupeproof::Options::new().without_compactor().open(shell.store()).unwrap();
        store.stats().unwrap()
    };
    assert_eq!(stats().succeeded, 1, "over, and still there");
    shell.run("b", &[], "true");
    let stats = stats();
    assert_eq!((stats.succeeded, stats.tombstones), (1, 0));
}

#[test]
fn help_and_version_are_no_failure() {
    let shell = Shell::new();
    for arguments in [&["--help"][..], &["run", "--help"], &["help", "resolve"], &["--version"]] {
        let output = shell.output(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
}
