//! `inbox` and `outbox`, beside an application that has the store open.

use dupeproof::{Begin, DeliveryError, Fingerprint, Message, Options, Sharing, Store};

use super::{Shell, code, stderr, stdout};

fn application(shell: &Shell) -> Store {
    Options::new().with_sharing(Sharing::Shared).open(shell.store()).unwrap()
}

fn json_lines(output: &std::process::Output) -> Vec<serde_json::Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Two dead letters of the topic mail, one of sms, one message that waits in a lane.
fn letters(store: &Store) {
    let outbox = store.outbox();
    let letter = |id: &str, topic: &str| Message::new(id, topic, "dear jane \u{1b}[2J").with_header("from", "acme");
    outbox.send_many(&[letter("1", "mail"), letter("2", "mail"), letter("3", "sms")]).unwrap();
    outbox.relay().run_once(|_| Err(DeliveryError::permanent("no such mailbox"))).unwrap();
    outbox.send(&letter("4", "mail").with_lane("jane")).unwrap();
}

#[test]
fn outbox_is_listed_and_shown_without_what_it_says_unless_that_is_asked_for() {
    let shell = Shell::new();
    let store = application(&shell);
    letters(&store);
    let listed = |options: &[&str]| {
        let output = shell.output(["outbox", "list", "--json"].iter().chain(options));
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json_lines(&output).iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["1", "2", "3", "4"]);
    assert_eq!(listed(&["--status", "dead", "--topic", "mail"]), ["1", "2"]);
    assert_eq!(listed(&["--lane", "jane"]), ["4"]);
    assert_eq!(listed(&["--limit", "2"]), ["1", "2"]);
    let table = stdout(&shell.output(["outbox", "list"]));
    assert!(table.contains("LAST ERROR") && table.contains("no such mailbox"), "{table}");
    let shown = stdout(&shell.output(["outbox", "show", "1"]));
    assert!(shown.contains("from: acme") && !shown.contains("dear jane"), "{shown}");
    let said = shell.output(["outbox", "show", "1", "--show-payload"]);
    assert!(stdout(&said).ends_with("dear jane \u{1b}[2J"), "the bytes, for whoever asks for them");
    let shown = json_lines(&shell.output(["outbox", "show", "1", "--json", "--show-payload"]));
    assert_eq!(shown[0]["payload"]["text"], "dear jane \u{1b}[2J");
    assert_eq!(shown[0]["dead_because"], "no attempt can succeed");
    assert_eq!(code(&shell.output(["outbox", "show", "9"])), 3);
    assert_eq!(code(&shell.output(["outbox", "list", "--status", "lost"])), 2);
    let stats = json_lines(&shell.output(["stats", "--json"]));
    assert_eq!((&stats[0]["outbox_dead"], &stats[0]["outbox_pending"]), (&3.into(), &1.into()));
}

#[test]
fn dead_letters_are_sent_again_under_the_same_id() {
    let shell = Shell::new();
    let store = application(&shell);
    letters(&store);
    assert_eq!(code(&shell.output(["outbox", "redrive"])), 2, "which?");
    assert_eq!(code(&shell.output(["outbox", "redrive", "4"])), 4, "it is no dead letter");
    assert_eq!(code(&shell.output(["outbox", "redrive", "9"])), 3);
    let dry = shell.output(["outbox", "redrive", "--all", "--topic", "mail"]);
    assert!(stderr(&dry).contains("2 dead letters would be sent again; nothing was done"), "{}", stderr(&dry));
    assert_eq!(store.stats().unwrap().outbox.dead, 3);
    let done = shell.output(["outbox", "redrive", "--all", "--topic", "mail", "--yes"]);
    assert_eq!((code(&done), stdout(&done).as_str()), (0, "1 is now due\n2 is now due\n"));
    assert_eq!(code(&shell.output(["outbox", "redrive", "3"])), 0);
    let mut ids = Vec::new();
    while store
        .outbox()
        .relay()
        .run_once(|message| {
            ids.push(message.id().to_owned());
            Ok(())
        })
        .unwrap()
        .more
    {}
    ids.sort();
    assert_eq!(ids, ["1", "2", "3", "4"]);
}

#[test]
fn discard_is_a_dry_run_until_it_is_meant_and_is_recorded() {
    let shell = Shell::new();
    let store = application(&shell);
    letters(&store);
    let discard = |id: &str, yes: &[&str]| {
        shell.output(["outbox", "discard", id, "--by", "jane", "--reason", "by hand"].iter().chain(yes))
    };
    let dry = discard("1", &[]);
    assert!(code(&dry) == 0 && stderr(&dry).contains("nothing was done"), "{}", stderr(&dry));
    assert_eq!(store.stats().unwrap().outbox.discarded, 0);
    assert_eq!(code(&discard("1", &["--yes"])), 0);
    let refused = discard("1", &["--yes"]);
    assert_eq!(code(&refused), 4);
    assert!(stderr(&refused).contains("next: dupeproof outbox "), "{}", stderr(&refused));
    assert_eq!((code(&discard("9", &["--yes"])), code(&discard("9", &[]))), (3, 3));
    let shown = json_lines(&shell.output(["outbox", "show", "1", "--json"]));
    assert_eq!(shown[0]["discarded"], serde_json::json!({ "by": "jane", "reason": "by hand" }));
}

#[test]
fn unknown_message_is_found_and_decided_at_the_shell() {
    let shell = Shell::new();
    let store = application(&shell);
    let inbox = store.inbox("acme", "orders").unwrap();
    let Begin::Execute(claim) = inbox.claim("m-1", Fingerprint::unchecked()).unwrap() else { panic!("a new message") };
    claim.give_up("the answer was lost").unwrap();
    let _ = inbox.process("m-2", Fingerprint::unchecked(), |_| Ok::<_, dupeproof::Error>("booked")).unwrap();
    let of = ["--tenant", "acme", "--source", "orders"];
    let listed = json_lines(&shell.output(["inbox", "list", "--json", "--status", "unknown"].iter().chain(&of)));
    assert_eq!((listed.len(), &listed[0]["key"]), (1, &"m-1".into()));
    assert_eq!(stdout(&shell.output(["list", "--json"])), "", "operations are another matter");
    let show = |id: &str| shell.output(["inbox", "show", "--id", id, "--show-response"].iter().chain(&of));
    assert!(stdout(&show("m-1")).contains("the answer was lost"));
    assert!(stdout(&show("m-2")).ends_with("\n\"booked\""), "{}", stdout(&show("m-2")));
    assert_eq!(code(&show("m-3")), 3);
    let resolve = |id: &str| {
        let verdict = ["inbox", "resolve", "--did-not-happen", "--by", "jane", "--reason", "looked", "--id", id];
        shell.output(verdict.iter().chain(&of))
    };
    assert_eq!((code(&resolve("m-1")), code(&resolve("m-2")), code(&resolve("m-3"))), (0, 4, 3));
    let again = inbox.claim("m-1", Fingerprint::unchecked()).unwrap();
    assert!(matches!(again, Begin::Execute(_)), "{again:?}");
    assert_eq!(json_lines(&shell.output(["stats", "--json"]))[0]["inbox_marks"], 1);
}
