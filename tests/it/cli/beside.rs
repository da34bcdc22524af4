//! The program beside an application that has the same store open.

use dupeproof::{Begin, Fingerprint, Operation, OperationKey, Options, Sharing, Store};

use super::{Shell, code, stderr, stdout};

fn application(shell: &Shell, sharing: Sharing) -> Store {
    Options::new().with_sharing(sharing).open(shell.store()).unwrap()
}

fn charge(key: &str) -> Operation {
    Operation::new(OperationKey::new("acme", "charge", key).unwrap(), Fingerprint::of_bytes(b"12.00"))
}

fn begun(store: &Store, key: &str) -> Begin {
    store.begin(&charge(key)).unwrap()
}

#[test]
fn verdict_given_at_the_shell_is_seen_by_a_running_application_at_its_next_begin() {
    let shell = Shell::new();
    let store = application(&shell, Sharing::Shared);
    let Begin::Execute(claim) = begun(&store, "i-1") else { panic!("a new key") };
    claim.give_up("the answer was lost").unwrap();
    let Begin::Execute(_held) = begun(&store, "i-2") else { panic!("a new key") };
    let of = ["--tenant", "acme", "--operation", "charge", "--key"];
    let listed = shell.output(["list", "--status", "unknown", "--json"]);
    assert!(stdout(&listed).contains("\"key\":\"i-1\"") && !stdout(&listed).contains("i-2"), "{}", stdout(&listed));
    let shown = stdout(&shell.output(["show"].iter().chain(&of).chain(&["i-1"])));
    assert!(shown.contains("unknown since") && shown.contains("the answer was lost"), "{shown}");
    let verdict = ["resolve", "--happened", "--reference", "ch_17", "--by", "jane", "--reason", "seen"];
    let resolved = shell.output(verdict.iter().chain(&of).chain(&["i-1"]));
    assert_eq!(code(&resolved), 0, "{}", stderr(&resolved));
    match begun(&store, "i-1") {
        Begin::Replay(replay) => assert_eq!(replay.external_reference(), Some("ch_17")),
        other => panic!("the application does not see it: {other:?}"),
    }
    // What it holds is its own.
    assert_eq!(code(&shell.output(verdict.iter().chain(&of).chain(&["i-2"]))), 4);
}

#[test]
fn application_that_closes_ends_its_claims_for_the_shell_at_once() {
    let shell = Shell::new();
    let store = application(&shell, Sharing::Shared);
    let operation =
        |key: &str| Operation::new(OperationKey::new("default", "command", key).unwrap(), Fingerprint::unchecked());
    let executing = store.begin(&operation("started").with_lease(std::time::Duration::from_secs(3600))).unwrap();
    let reserved = store.reserve(&operation("reserved").with_lease(std::time::Duration::from_secs(3600))).unwrap();
    assert_eq!(
        (shell.show("started")["status"].as_str(), shell.show("reserved")["status"].as_str()),
        (Some("executing"), Some("reserved"))
    );
    store.close().unwrap();
    assert_eq!(
        (shell.show("started")["status"].as_str(), shell.show("reserved")["status"].as_str()),
        (Some("unknown"), Some("failed_retryable"))
    );
    drop((executing, reserved));
}

#[test]
fn application_that_has_the_store_alone_is_named_with_the_remedy() {
    let shell = Shell::new();
    let store = application(&shell, Sharing::Exclusive);
    for (arguments, expected) in [
        (&["run", "--key", "a", "--", "true"][..], 125),
        (&["list"], 1),
        (&["stats"], 1),
        (&["verify"], 1),
        (&["export"], 1),
        (&["list", "--open-wait", "50ms"], 1),
    ] {
        let output = shell.output(arguments);
        assert_eq!((code(&output), stdout(&output).as_str()), (expected, ""), "{arguments:?}");
        for remedy in ["open elsewhere", "--open-wait 30s", "shared mode", "next: fuser -v "] {
            assert!(stderr(&output).contains(remedy), "{arguments:?}: {}", stderr(&output));
        }
    }
    store.close().unwrap();
    assert_eq!(code(&shell.output(["list"])), 0);
}
