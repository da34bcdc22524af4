//! Scripts with checkpoints, and what people are shown of them.

use std::process::Output;

use serde_json::Value;

use super::{Shell, code, stderr, stdout};

impl Shell {
    /// `run --workflow release --run v1 --step STEP … -- sh -c SCRIPT`.
    fn step(&self, step: &str, options: &[&str], script: &str) -> Output {
        let name = ["run", "--workflow", "release", "--run", "v1", "--step", step];
        self.output([&name[..], options, &["--", "sh", "-c", script]].concat())
    }

    fn workflow(&self, what: &str, more: &[&str]) -> Output {
        self.output([&["workflow", what, "--workflow", "release", "--run", "v1"][..], more].concat())
    }

    fn run_view(&self) -> Value {
        let output = self.workflow("show", &["--json"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The script that is cut off and run again, in full: what each line exits with.
    fn release(&self) -> Vec<i32> {
        let steps = ["build", "upload", "announce"];
        steps.map(|step| code(&self.step(step, &[], &format!("echo {step} | tee -a ledger")))).to_vec()
    }
}

#[test]
fn script_with_checkpoints_does_each_step_once_however_often_it_is_run() {
    let shell = Shell::new();
    assert_eq!(code(&shell.step("build", &[], "echo build | tee -a ledger")), 0);
    for _ in 0..3 {
        assert_eq!(shell.release(), [0, 0, 0]);
    }
    assert_eq!(shell.effects(), 3);
    assert_eq!(stdout(&shell.step("upload", &[], "echo upload | tee -a ledger")), "upload\n");
    let finished = shell.workflow("finish", &[]);
    assert_eq!((code(&finished), stdout(&finished).as_str()), (0, "the run is now succeeded\n"));
    // What is done is replayed also after the end; what is new is refused.
    assert_eq!((shell.release(), shell.effects()), (vec![0, 0, 0], 3));
    let more = shell.step("celebrate", &[], "echo celebrate >> ledger");
    assert_eq!(code(&more), 125);
    assert!(stderr(&more).contains("the run is over: succeeded"), "{}", stderr(&more));
    assert_eq!(shell.effects(), 3);
}

#[test]
fn step_with_another_command_is_a_conflict_and_turns_of_a_loop_are_steps_of_their_own() {
    let shell = Shell::new();
    for index in ["0", "1"] {
        assert_eq!(code(&shell.step("mail", &["--index", index], "echo mail >> ledger")), 0);
    }
    assert_eq!(code(&shell.step("mail", &[], "echo mail >> ledger")), 0);
    assert_eq!(code(&shell.step("mail", &["--index", "1"], "echo other >> ledger")), 121);
    assert_eq!(shell.effects(), 3);
    let view = shell.run_view();
    let steps: Vec<_> = view["steps"].as_array().unwrap().iter().map(|step| (&step["step"], &step["index"])).collect();
    assert_eq!(steps, [(&"mail".into(), &0.into()), (&"mail".into(), &1.into()), (&"mail".into(), &Value::Null)]);
}

#[test]
fn unknown_step_blocks_the_script_says_so_and_is_resolved_as_told() {
    let shell = Shell::new();
    shell.step("build", &[], "echo build >> ledger");
    assert_eq!(code(&shell.step("upload", &[], "echo upload >> ledger; exit 7")), 7);
    for _ in 0..3 {
        assert_eq!(code(&shell.step("upload", &[], "echo upload >> ledger; exit 7")), 122);
        let blocked = shell.step("announce", &[], "echo announce >> ledger");
        assert_eq!(code(&blocked), 122);
        let said = stderr(&blocked);
        assert!(said.contains("whether the step upload before it happened"), "{said}");
        assert!(said.contains("resolve"), "{said}");
    }
    assert_eq!(shell.effects(), 2);
    let listed = shell.output(["workflow", "list", "--status", "blocked_unknown"]);
    assert!(stdout(&listed).contains("upload, unknown since"), "{}", stdout(&listed));
    assert_eq!(shell.run_view()["blocked_by"]["step"], "upload");
    assert_eq!(code(&shell.workflow("finish", &[])), 4);

    // The command that it was told to type.
    let name = ["--workflow", "release", "--run", "v1", "--step", "upload"];
    let by = ["--attempt", "1", "--happened", "--by", "jane", "--reason", "it is there"];
    assert_eq!(code(&shell.output([&["resolve"][..], &name, &by].concat())), 0);
    let shown = shell.output([&["show"][..], &name].concat());
    let said = stdout(&shown);
    assert!(said.contains("history") && said.contains("person jane: happened – it is there"), "{said}");
    assert!(said.contains("step                upload") && said.contains("workflow            release"), "{said}");
    assert_eq!(code(&shell.step("announce", &[], "echo announce >> ledger")), 0);
    assert_eq!(code(&shell.workflow("finish", &[])), 0);
}

#[test]
fn unknown_step_is_looked_up_by_its_probe_and_by_reconcile() {
    let shell = Shell::new();
    shell.step("upload", &[], "exit 7");
    let probe = "[ \"$DUPEPROOF_STEP $DUPEPROOF_KIND $DUPEPROOF_KEY\" = 'upload step v1' ]";
    let asked = ["reconcile", "--now", "--workflow", "release", "--step", "upload", "--command"];
    let other = ["reconcile", "--now", "--workflow", "release", "--step", "other", "--command"];
    assert_eq!(code(&shell.output([&other[..], &["exit 0"]].concat())), 0);
    assert_eq!(code(&shell.output([&asked[..], &["exit 3"]].concat())), 4);
    let output = shell.output([&asked[..], &[probe]].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).starts_with("happened") && stdout(&output).contains("upload"), "{}", stdout(&output));
    shell.step("announce", &[], "exit 7");
    assert_eq!(code(&shell.step("announce", &["--reconcile", "exit 1"], "exit 7")), 7, "it ran again");
    assert_eq!(code(&shell.step("announce", &["--reconcile", "echo found"], "exit 7")), 0);
}

#[test]
fn run_is_undone_step_by_step_and_said_to_be_what_it_is() {
    let shell = Shell::new();
    for step in ["flight", "hotel", "car"] {
        shell.step(step, &[], &format!("echo {step}-17"));
    }
    shell.step("boat", &["--on-error", "final"], "exit 3");
    let undo =
        "echo \"$DUPEPROOF_STEP $(cat)\" >> ledger; [ ! -e \"no-$DUPEPROOF_STEP\" ] || exit $(cat no-$DUPEPROOF_STEP)";
    std::fs::write(shell.path("no-hotel"), "9").unwrap();
    std::fs::write(shell.path("no-flight"), "75").unwrap();
    let undone = shell.workflow("compensate", &["--command", undo]);
    assert_eq!(code(&undone), 4);
    assert!(stdout(&undone).contains("compensation_unknown"), "{}", stdout(&undone));
    let ledger = || std::fs::read_to_string(shell.path("ledger")).unwrap();
    assert_eq!(ledger(), "car car-17\nhotel hotel-17\nflight flight-17\n");

    // What is unknown is not tried again; what did not happen waits for its time.
    let hotel = ["--workflow", "release", "--run", "v1", "--step", "hotel", "--compensation"];
    assert_eq!(shell.run_view()["blocked_by"]["kind"], "compensation");
    let by = ["--happened", "--by", "jane", "--reason", "they said so"];
    assert_eq!(code(&shell.output([&["resolve"][..], &hotel, &by].concat())), 0);
    std::fs::remove_file(shell.path("no-flight")).unwrap();
    let mut last = shell.workflow("compensate", &["--command", undo]);
    for _ in 0..200 {
        if code(&last) == 0 {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        last = shell.workflow("compensate", &["--command", undo]);
    }
    assert_eq!((code(&last), stdout(&last).as_str()), (0, "the run is now compensated\n"));
    assert_eq!(ledger(), "car car-17\nhotel hotel-17\nflight flight-17\nflight flight-17\n");
    let shown = stdout(&shell.workflow("show", &[]));
    assert!(shown.contains("status              compensated"), "{shown}");
    assert_eq!(shown.matches("compensation      succeeded").count(), 3, "{shown}");
    assert!(shown.contains("step boat failed"), "{shown}");
    assert_eq!(code(&shell.step("train", &[], "true")), 125);
}

#[test]
fn compensation_that_cannot_be_done_leaves_the_run_partially_compensated() {
    let shell = Shell::new();
    shell.step("flight", &[], "true");
    let undone = shell.workflow("compensate", &["--command", "exit 1"]);
    assert_eq!(code(&undone), 4);
    assert_eq!(shell.run_view()["status"], "partially_compensated");
    assert_eq!(shell.run_view()["steps"][0]["compensation"]["status"], "failed_terminal");
    let nothing = Shell::new();
    nothing.step("flight", &["--on-error", "final"], "exit 3");
    let undone = nothing.workflow("compensate", &["--command", "exit 0"]);
    assert_eq!((code(&undone), stdout(&undone).as_str()), (0, "the run is now failed\n"));
}

#[test]
fn operation_is_compensated_once_and_only_if_it_succeeded() {
    let shell = Shell::new();
    let refund =
        |options: &[&str]| shell.run("i-1", &[options, &["--compensation"]].concat(), "echo refund | tee -a ledger");
    assert_eq!(code(&refund(&[])), 125, "there is nothing to undo");
    shell.run("i-1", &[], "exit 7");
    assert_eq!(code(&refund(&[])), 125, "nobody knows whether there is");
    assert_eq!(shell.effects(), 0);
    shell.resolve("i-1", &["--happened"]);
    for _ in 0..3 {
        let output = refund(&[]);
        assert_eq!((code(&output), stdout(&output).as_str()), (0, "refund\n"));
    }
    assert_eq!(shell.effects(), 1);
    assert_eq!(shell.show("i-1")["compensation"]["status"], "succeeded");
    let human = stdout(&shell.output(["show", "--key", "i-1"]));
    assert!(human.contains("compensation        succeeded, since"), "{human}");
    let listed = stdout(&shell.output(["list", "--kind", "compensation"]));
    assert!(listed.contains("i-1"), "{listed}");
}

#[test]
fn wrong_names_are_told_with_what_to_type() {
    let shell = Shell::new();
    for wrong in [
        &["run", "--", "true"][..],
        &["run", "--step", "a", "--", "true"],
        &["run", "--workflow", "w", "--run", "r", "--", "true"],
        &["run", "--key", "k", "--workflow", "w", "--run", "r", "--step", "a", "--", "true"],
        &["run", "--key", "k", "--index", "3", "--", "true"],
        &["run", "--workflow", "w", "--run", "", "--step", "a", "--", "true"],
        &["run", "--workflow", "w", "--run", "r", "--step", "a", "--operation", "o", "--", "true"],
    ] {
        assert_eq!(code(&shell.output(wrong)), 125, "{wrong:?}");
    }
    assert!(!shell.store().exists(), "nothing was made");
    shell.step("build", &[], "true");
    let absent = shell.output(["workflow", "show", "--workflow", "release", "--run", "v2"]);
    assert_eq!(code(&absent), 3);
    assert!(
        stderr(&absent).contains("workflow list") || stderr(&absent).contains("workflow --store"),
        "{}",
        stderr(&absent)
    );
    assert_eq!(code(&shell.output(["workflow", "list", "--status", "nonsense"])), 2);
    let steps = stdout(&shell.output(["list", "--kind", "step"]));
    assert!(steps.contains("STEP") && steps.contains("build"), "{steps}");
}
