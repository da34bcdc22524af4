//! `reconcile`, `export`, `import`, `verify`: what an operator does to whole stores; and what each failure says next.

use std::fs;
use std::process::{Command, Stdio};

use dupeproof::{Fingerprint, Operation, OperationKey, Options, Sharing, Store};
use redb::{Database, ReadableTable, TableDefinition};

use super::{Shell, code, stderr, stdout};

/// `sh -c`, with the program on the path of the shell.
fn pipeline(shell: &Shell, script: &str) -> std::process::Output {
    let program = shell.dupeproof([""; 0]);
    let folder = std::path::Path::new(program.get_program()).parent().unwrap();
    let path =
        std::env::join_paths([folder.into(), "/usr/bin".into(), "/bin".into()] as [std::path::PathBuf; 3]).unwrap();
    Command::new("sh")
        .args(["-c", script])
        .current_dir(shell.path("."))
        .env("PATH", path)
        .env("DUPEPROOF_STORE", shell.store())
        .env("HOME", shell.path("."))
        .output()
        .unwrap()
}

/// One record in every status. The store is left as by a process that was killed: two claims are still held.
fn every_status(shell: &Shell) -> Store {
    shell.run("expired", &["--keep", "1s"], "true");
    shell.run("succeeded", &[], "printf 'a\\0b\\377'; echo note >&2");
    shell.run("failed", &["--on-error", "final"], "exit 9");
    shell.run("later", &[], "exit 75");
    shell.run("unknown", &[], "exit 3");
    while code(&shell.run("expired", &["--keep", "1s"], "true")) != 123 {
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let store = Options::new().with_sharing(Sharing::Shared).open(shell.store()).unwrap();
    store.sweep(100).unwrap();
    let held =
        |key: &str| Operation::new(OperationKey::new("default", "command", key).unwrap(), Fingerprint::unchecked());
    std::mem::forget(store.begin(&held("executing")).unwrap());
    std::mem::forget(store.reserve(&held("reserved")).unwrap());
    store
}

#[test]
fn export_into_import_makes_a_store_of_the_same_answers() {
    let shell = Shell::new();
    let application = every_status(&shell);
    let copied = pipeline(&shell, "dupeproof export | dupeproof import --store copy.redb");
    assert_eq!((code(&copied), stdout(&copied).as_str()), (0, "7 records imported\n"), "{}", stderr(&copied));
    for command in ["list --json", "export", "stats --json | grep -o 'e[a-z]*d\":[0-9]*'"] {
        let [of_store, of_copy] = ["", " --store copy.redb"].map(|store| {
            let (before, after) = command.split_once(' ').unwrap_or((command, ""));
            stdout(&pipeline(&shell, &format!("dupeproof {before}{store} {after}")))
        });
        assert!(!of_store.is_empty());
        assert_eq!(of_copy, of_store, "{command}");
    }
    drop(application);
    let statuses = stdout(&pipeline(&shell, "dupeproof list --json | grep -o 'status\":\"[a-z_]*' | sort -u | wc -l"));
    assert_eq!(statuses.trim(), "7");
    let replayed = pipeline(
        &shell,
        "dupeproof run --store copy.redb --key succeeded -- sh -c \"printf 'a\\\\0b\\\\377'; echo note >&2\" 2>err; cat err >&2",
    );
    assert_eq!((replayed.stdout.as_slice(), stderr(&replayed).contains("note")), (&b"a\0b\xff"[..], true));
}

#[test]
fn import_refuses_a_store_with_records_and_lines_that_are_wrong() {
    let shell = Shell::new();
    shell.run("a", &[], "true");
    let exported = shell.output(["export"]).stdout;
    fs::write(shell.path("lines"), &exported).unwrap();
    assert_eq!(code(&shell.output(["import", "lines"])), 4);
    assert_eq!(code(&shell.output(["import", "no such file", "--store", "copy.redb"])), 1);
    assert!(!shell.path("copy.redb").exists(), "a store that was not made");
    fs::write(shell.path("cut"), &exported[..exported.len() / 2]).unwrap();
    let cut = shell.output(["import", "cut", "--store", "copy.redb"]);
    assert_eq!(code(&cut), 2);
    assert!(stderr(&cut).contains("line 2 of the export"), "{}", stderr(&cut));
    let whole = shell.output(["import", "lines", "--store", "copy.redb", "--json"]);
    assert_eq!((code(&whole), stdout(&whole).as_str()), (0, "{\"records\":1}\n"));
}

#[test]
fn reader_who_has_seen_enough_is_no_failure() {
    let shell = Shell::new();
    for key in 0..50 {
        shell.run(&key.to_string(), &[], "head -c 20000 /dev/zero");
    }
    for command in ["export", "list --json", "list", "show --key 7 --show-response", "man run", "completions bash"] {
        let script = format!("{{ dupeproof {command}; echo $? > code; }} | head -c 1 > first; cat code first");
        let output = pipeline(&shell, &script);
        assert!(stdout(&output).starts_with("0\n"), "{command}: {} {}", stdout(&output), stderr(&output));
        assert_eq!(stdout(&output).len(), 3, "{command}");
    }
}

#[test]
fn reconcile_asks_about_each_unknown_outcome_of_the_operation_and_of_no_other() {
    let shell = Shell::new();
    for (key, operation) in [("a", "charge"), ("b", "charge"), ("c", "charge"), ("d", "mail")] {
        shell.run(key, &["--operation", operation, "--tenant", "acme"], "exit 3");
    }
    shell.run("fine", &["--operation", "charge", "--tenant", "acme"], "true");
    let probe = "echo $DUPEPROOF_TENANT $DUPEPROOF_OPERATION $DUPEPROOF_KEY $DUPEPROOF_ATTEMPT ${#IDEMPOTENCY_KEY} >> asked; \
                 case $DUPEPROOF_KEY in a) echo found;; b) exit 1;; *) exit 7;; esac";
    let arguments = ["reconcile", "--operation", "charge", "--command", probe];
    let output = shell.output(arguments);
    assert_eq!(code(&output), 4);
    assert_eq!(
        fs::read_to_string(shell.path("asked")).unwrap(),
        "acme charge a 1 36\nacme charge b 1 36\nacme charge c 1 36\n"
    );
    for line in
        ["happened          acme  charge  a", "did_not_happen    acme  charge  b", "still_unknown     acme  charge  c"]
    {
        assert!(stdout(&output).contains(line), "{}", stdout(&output));
    }
    assert!(stderr(&output).contains("next: dupeproof list --store"), "{}", stderr(&output));
    let run = |key, script| shell.run(key, &["--quiet", "--operation", "charge", "--tenant", "acme"], script);
    assert_eq!(stdout(&run("a", "exit 3")), "found\n", "the probe's words are the result");
    assert_eq!(code(&run("b", "exit 3")), 3, "one more run");
    assert_eq!(code(&run("c", "exit 3")), 122, "as unknown as before");
    assert_eq!(code(&shell.run("d", &["--operation", "mail", "--tenant", "acme"], "exit 3")), 122);
    // The second of b is another attempt, and it is asked about again.
    let soon = shell.output(["reconcile", "--operation", "charge", "--json", "--command", "exit 7"]);
    assert_eq!((code(&soon), stdout(&soon).lines().count()), (4, 1), "the time to ask about c again has not come");
    let again = shell.output(["reconcile", "--now", "--operation", "charge", "--json", "--command", "exit 0"]);
    assert_eq!(code(&again), 0, "{}", stderr(&again));
    let findings: Vec<serde_json::Value> =
        stdout(&again).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(findings.len(), 2);
    assert!(findings.iter().all(|finding| finding["finding"] == "happened"), "{findings:?}");
    assert_eq!(code(&shell.output(["reconcile", "--operation", "charge", "--command", "exit 9"])), 0, "nothing to ask");
    assert_eq!(
        code(&shell.output(["reconcile", "--operation", "charge", "--command", "exit 9", "--store", "none"])),
        3
    );
}

#[test]
fn reconcilers_that_race_settle_each_outcome_once() {
    let shell = Shell::new();
    for key in 0..10 {
        shell.run(&key.to_string(), &[], "exit 3");
    }
    let arguments = ["reconcile", "--operation", "command", "--command", "exit 1"];
    let racing: Vec<_> = (0..8).map(|_| shell.dupeproof(arguments).stdout(Stdio::null()).spawn().unwrap()).collect();
    for mut reconciler in racing {
        // One that comes while another asks leaves that outcome to it.
        assert!(matches!(reconciler.wait().unwrap().code(), Some(0 | 4)));
    }
    for key in 0..10 {
        let decisions = shell.show(&key.to_string())["decisions"].as_array().unwrap().len();
        assert_eq!(decisions, 1, "one verdict for one attempt");
    }
}

#[test]
fn outcome_that_was_asked_about_in_vain_is_listed_as_waiting_for_a_person_with_its_history() {
    let shell = Shell::new();
    for key in ["a", "b"] {
        assert_eq!(code(&shell.run(key, &[], "exit 3")), 3);
    }
    let probe = "[ $DUPEPROOF_KEY = b ] && exit 1; echo x >> asked; exit 7";
    let ask = ["reconcile", "--operation", "command", "--probes", "2", "--now", "--command", probe];
    for _ in 0..4 {
        assert_eq!(code(&shell.output(ask)), 4);
    }
    assert_eq!(fs::read_to_string(shell.path("asked")).unwrap().lines().count(), 2, "nobody asks after the limit");
    let waiting = stdout(&shell.output(["list", "--waiting-for-person", "--json"])).to_owned();
    assert_eq!(waiting.lines().count(), 1);
    let shown = shell.show("a");
    assert_eq!((&shown["waits_for_person"], &shown["status"]), (&true.into(), &"unknown".into()));
    assert_eq!(shown["decisions"].as_array().unwrap().len(), 2);
    assert_eq!((&shown["decisions"][0]["witness"], &shown["decisions"][0]["attempt"]), (&"probe".into(), &1.into()));
    let text = stdout(&shell.output(["show", "--key", "a"])).to_owned();
    assert!(text.contains("attempt 1, probe dupeproof reconcile: still unknown"), "{text}");
    assert!(text.contains("waits for           a person"), "{text}");
    assert_eq!(code(&shell.run("a", &["--reconcile", "exit 0"], "exit 3")), 122, "not even a run asks");
    shell.output(["resolve", "--key", "a", "--happened", "--by", "jane", "--reason", "saw it"]);
    assert_eq!(shell.show("a")["decisions"][2]["witness"], "person");
    assert_eq!(stdout(&shell.output(["list", "--waiting-for-person", "--json"])), "");
}

type Index = TableDefinition<'static, (u8, &'static str, &'static str, &'static str, &'static str, u64), u64>;
const INDEX: Index = TableDefinition::new("dupeproof/index");
const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("dupeproof/records");
const UNSETTLED: TableDefinition<'_, u64, (u8, u64, u64, u64)> = TableDefinition::new("dupeproof/unsettled");
const RETENTION: TableDefinition<'_, (u64, u64), ()> = TableDefinition::new("dupeproof/retention/succeeded");

/// Each plants one kind of damage into a store with a settled record 1 and an unknown record 2.
#[test]
fn verify_finds_each_kind_of_damage_and_names_the_record() {
    type Plant = fn(&redb::WriteTransaction);
    let kinds: [(&str, Plant); 7] = [
        ("record 1 is not in the index", |txn| {
            txn.open_table(INDEX).unwrap().retain(|_, id| id != 1).unwrap();
        }),
        ("an index row leads to record 9", |txn| {
            txn.open_table(INDEX).unwrap().insert((1, "x", "y", "z", "", 0), 9).unwrap();
        }),
        ("an index row leads to record 1, which is not its own", |txn| {
            txn.open_table(INDEX).unwrap().insert((1, "x", "y", "z", "", 0), 1).unwrap();
        }),
        ("record 2 lacks its side row", |txn| {
            txn.open_table(UNSETTLED).unwrap().remove(2).unwrap();
        }),
        ("a side row of record 7 should not be there", |txn| {
            txn.open_table(RETENTION).unwrap().insert((5, 7), ()).unwrap();
        }),
        ("record 1 lacks its side row", |txn| {
            let mut table = txn.open_table(RETENTION).unwrap();
            let due = table.first().unwrap().unwrap().0.value().0;
            table.remove((due, 1)).unwrap();
            table.insert((due + 1, 1), ()).unwrap();
        }),
        ("record 1 cannot be read", |txn| {
            let mut table = txn.open_table(RECORDS).unwrap();
            let mut row = table.get(1).unwrap().unwrap().value().to_vec();
            *row.last_mut().unwrap() ^= 1;
            table.insert(1, row.as_slice()).unwrap();
        }),
    ];
    for (found, plant) in kinds {
        let shell = Shell::new();
        shell.run("a", &[], "echo x");
        shell.run("b", &[], "exit 3");
        assert_eq!(code(&shell.output(["verify"])), 0);
        let database = Database::open(shell.store()).unwrap();
        let txn = database.begin_write().unwrap();
        plant(&txn);
        txn.commit().unwrap();
        drop(database);
        let output = shell.output(["verify"]);
        assert_eq!(code(&output), 1, "{found}");
        assert!(stdout(&output).contains(found), "{found}: {}", stdout(&output));
        assert!(stderr(&output).contains("next: cp "), "{}", stderr(&output));
        let as_json = shell.output(["verify", "--json"]);
        let report: serde_json::Value = serde_json::from_slice(&as_json.stdout).unwrap();
        assert!(report["problem_count"].as_u64().unwrap() >= 1, "{found}");
    }
}

#[test]
fn failures_name_the_next_command_to_type() {
    let shell = Shell::new();
    let next = |arguments: &[&str]| {
        let output = shell.output(arguments);
        assert_ne!(code(&output), 0);
        let said = stderr(&output);
        let at = said.find("next: ").unwrap_or_else(|| panic!("{arguments:?}: {said}"));
        said[at + 6..].trim().to_owned()
    };
    let store = shell.store().display().to_string();
    assert_eq!(next(&["list"]), format!("dupeproof run --store {store} --key KEY -- COMMAND"));
    shell.run("a b", &["--tenant", "acme"], "true");
    let list = format!("dupeproof list --store {store} --tenant acme --operation command");
    assert_eq!(next(&["show", "--tenant", "acme", "--key", "zz"]), list);
    let verdict = ["resolve", "--did-not-happen", "--by", "jane", "--reason", "looked", "--tenant", "acme", "--key"];
    assert_eq!(next(&[&verdict[..], &["zz"]].concat()), list);
    assert_eq!(
        next(&[&verdict[..], &["a b"]].concat()),
        format!("dupeproof show --store {store} --key 'a b' --tenant acme")
    );
    assert_eq!(next(&["man", "nothing"]), "dupeproof help");
    let held = Options::new().open(shell.store()).unwrap();
    assert_eq!(next(&["list"]), format!("fuser -v {store}"));
    assert!(stderr(&shell.output(["list"])).contains("--open-wait"));
    drop(held);
    // And what is named can be typed.
    let unknown = shell.run("c", &["--json"], "exit 3");
    let resolve =
        serde_json::from_slice::<serde_json::Value>(&unknown.stderr).unwrap()["resolve"].as_str().unwrap().to_owned();
    let typed = pipeline(&shell, &format!("{resolve} --happened --by jane --reason 'it is there'"));
    assert_eq!(code(&typed), 0, "{}", stderr(&typed));
}

#[test]
fn every_command_has_a_help_with_an_example_and_a_manual_page() {
    let shell = Shell::new();
    let help = stdout(&shell.output(["help"]));
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let commands: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 14, "{commands:?}");
    let groups = [
        ("inbox", &["list", "show", "resolve"][..]),
        ("outbox", &["list", "show", "redrive", "discard"]),
        ("workflow", &["list", "show", "finish", "compensate"]),
    ];
    let is_group = |name: &str| groups.iter().any(|(group, _)| *group == name);
    let plain = commands.into_iter().filter(|name| !is_group(name)).map(str::to_owned);
    let grouped = groups.iter().flat_map(|(group, names)| names.iter().map(move |name| format!("{group} {name}")));
    for command in plain.chain(grouped) {
        let help = stdout(&shell.output(command.split(' ').chain(["--help"])));
        let example = help.split("Example:").nth(1).unwrap_or_else(|| panic!("{command} has no example"));
        assert!(example.contains(&format!("dupeproof {command}")), "{example}");
        let man = shell.output(["man", command.split(' ').next().unwrap()]);
        assert!(code(&man) == 0 && stdout(&man).contains(".TH"), "{command}");
    }
}
