//! How a command's end is recorded, what repeats get, and the ways out of an unknown outcome.

use std::fs;

use super::{Shell, code, stderr, stdout};

#[test]
fn failure_is_unknown_unless_it_is_said_what_it_means() {
    let shell = Shell::new();
    let script = "echo x >> ledger; exit 3";
    let first = shell.run("a", &[], script);
    assert_eq!(code(&first), 3, "the first run exits as the command did");
    assert!(stderr(&first).contains("nobody knows"), "{}", stderr(&first));
    for _ in 0..100 {
        assert_eq!(code(&shell.run("a", &[], script)), 122);
    }
    assert_eq!(shell.effects(), 1);
    assert_eq!(shell.show("a")["status"], "unknown");
}

#[test]
fn after_it_did_not_happen_exactly_one_more_run_goes_through() {
    let shell = Shell::new();
    let script = "echo x >> ledger; exit 3";
    shell.run("a", &[], script);
    assert_eq!(code(&shell.resolve("a", &["--did-not-happen"])), 0);
    assert_eq!(code(&shell.run("a", &[], script)), 3);
    for _ in 0..10 {
        assert_eq!(code(&shell.run("a", &[], script)), 122);
    }
    assert_eq!(shell.effects(), 2);
    let record = shell.show("a");
    assert_eq!((&record["attempts"], &record["decisions"][0]["by"]), (&2.into(), &"jane".into()));
}

/// Two people looked at the first attempt. The second one's verdict must not be taken for one about the newer attempt.
#[test]
fn verdict_about_an_attempt_that_is_no_longer_the_last_is_refused() {
    let shell = Shell::new();
    let script = "echo x >> ledger; exit 3";
    let first = shell.run("a", &[], script);
    assert!(stderr(&first).contains("--attempt 1"), "{}", stderr(&first));
    assert_eq!(code(&shell.resolve("a", &["--did-not-happen", "--attempt", "1"])), 0);
    assert_eq!(code(&shell.run("a", &[], script)), 3);
    let late = shell.resolve("a", &["--did-not-happen", "--attempt", "1"]);
    assert_eq!(code(&late), 4);
    assert!(stderr(&late).contains("attempt 2"), "{}", stderr(&late));
    assert_eq!(code(&shell.run("a", &[], script)), 122);
    assert_eq!(shell.effects(), 2);
}

#[test]
fn what_happened_is_replayed_with_the_response_a_person_gave() {
    let shell = Shell::new();
    shell.run("a", &[], "exit 3");
    fs::write(shell.path("receipt"), b"dupeRec\x01 receipt 17\n").unwrap();
    let verdict = ["--happened", "--reference", "ch_17", "--response", "receipt"];
    assert_eq!(code(&shell.resolve("a", &verdict)), 0);
    let again = shell.run("a", &[], "exit 3");
    assert_eq!((code(&again), &again.stdout[..]), (0, &b"dupeRec\x01 receipt 17\n"[..]));
    assert!(stderr(&again).contains("known as ch_17"), "{}", stderr(&again));
}

#[test]
fn what_failed_for_good_is_replayed_as_a_failure() {
    let shell = Shell::new();
    shell.run("a", &[], "echo x >> ledger; exit 3");
    assert_eq!(code(&shell.resolve("a", &["--failed"])), 0);
    let again = shell.run("a", &[], "echo x >> ledger; exit 3");
    assert_eq!((code(&again), stdout(&again).as_str()), (1, ""));
    assert!(stderr(&again).contains("failed for good: looked"), "{}", stderr(&again));
    assert_eq!(shell.effects(), 1);
}

#[test]
fn on_error_final_replays_output_and_code() {
    let shell = Shell::new();
    let script = "echo x >> ledger; echo declined; echo why >&2; exit 9";
    for _ in 0..3 {
        let output = shell.run("a", &["--on-error", "final", "--quiet"], script);
        assert_eq!((code(&output), stdout(&output).as_str(), stderr(&output).as_str()), (9, "declined\n", "why\n"));
    }
    assert_eq!(shell.effects(), 1);
    assert_eq!(shell.show("a")["status"], "failed_terminal");
}

#[test]
fn temporary_failure_may_be_tried_again_later() {
    let shell = Shell::new();
    let script = "echo x >> ledger; exit 75";
    assert_eq!(code(&shell.run("a", &[], script)), 75);
    let too_early = shell.run("a", &[], script);
    assert_eq!(code(&too_early), 124, "{}", stderr(&too_early));
    assert_eq!(shell.show("a")["status"], "failed_retryable");
    // The first backoff is at most a second.
    shell.await_code("a", script, 75);
    assert_eq!(shell.effects(), 2);
    assert_eq!(shell.show("a")["attempts"], 2);
}

#[test]
fn on_error_retry_treats_any_code_as_did_not_happen() {
    let shell = Shell::new();
    assert_eq!(code(&shell.run("a", &["--on-error", "retry"], "exit 4")), 4);
    assert_eq!(shell.show("a")["status"], "failed_retryable");
}

#[test]
fn what_expired_runs_no_more() {
    let shell = Shell::new();
    let script = "echo x >> ledger; echo receipt";
    let options = ["--keep", "1s"];
    assert_eq!(code(&shell.run("a", &options, script)), 0);
    let expired = shell.await_code_with("a", &options, script, 123);
    assert_eq!(stdout(&expired), "");
    assert_eq!(code(&shell.run("a", &options, "echo other >> ledger")), 121, "and another payload is a conflict");
    assert_eq!(shell.effects(), 1);
}

#[test]
fn unknown_outcome_is_sent_again_where_the_remote_side_dedupes() {
    let shell = Shell::new();
    let script = "echo $IDEMPOTENCY_KEY >> ledger; [ $DUPEPROOF_ATTEMPT -gt 1 ]";
    let options = ["--remote-dedupes", "1h"];
    assert_eq!(code(&shell.run("a", &options, script)), 1);
    let again = shell.run("a", &options, script);
    assert_eq!(code(&again), 0);
    assert!(stderr(&again).contains("same IDEMPOTENCY_KEY"), "{}", stderr(&again));
    assert_eq!(code(&shell.run("a", &options, script)), 0);
    let ledger = fs::read_to_string(shell.path("ledger")).unwrap();
    let keys: Vec<&str> = ledger.lines().collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

impl Shell {
    fn await_code(&self, key: &str, script: &str, wanted: i32) -> std::process::Output {
        self.await_code_with(key, &[], script, wanted)
    }

    /// Repeats until the answer changes to the wanted one, which time alone brings.
    pub(super) fn await_code_with(
        &self,
        key: &str,
        options: &[&str],
        script: &str,
        wanted: i32,
    ) -> std::process::Output {
        for _ in 0..600 {
            let output = self.run(key, options, script);
            if code(&output) == wanted {
                return output;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        panic!("{key}: {wanted} did not come");
    }
}
