//! The examples that kill their own processes and count effects, as tests. They were built with the tests; where they
//! were not (`cargo test --test it` alone builds none), the tests say so and end.

use std::process::Command;

fn runs(example: &str, told: &str) {
    let here = std::env::current_exe().expect("this binary");
    let program =
        here.parent().and_then(|deps| deps.parent()).expect("a build directory").join("examples").join(example);
    if !program.exists() {
        println!("SKIPPED: {} was not built", program.display());
        return;
    }
    let output = Command::new(program).output().expect("the example starts");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert!(said.contains(told) || said.contains("SKIPPED"), "{said}");
}

/// 1,000 messages of QoS 1, a consumer that is killed ten times, a broker that is restarted twice.
#[test]
fn orders_from_a_real_broker_are_booked_once_whatever_is_killed() {
    runs("mqtt_gateway", "1000 orders booked, 0 of them more than once");
}

/// Sender and receiver are killed in turns.
#[test]
fn messages_over_http_act_once_and_in_order_whatever_is_killed() {
    runs("outbox_http", "300 messages, received");
}

/// A model, a warehouse, a bank, a site and a post office; the agent is killed at three places of each step.
#[test]
fn agent_that_is_killed_at_every_boundary_decides_charges_and_mails_once() {
    runs("agent", "16 runs, 15 kills: one decision, one reservation, one charge, one publication and one mail in each");
}

/// Compensations that succeed, are refused, lose their answer, and are cut short.
#[test]
fn saga_that_turns_back_is_shown_as_it_stands_and_cancels_nothing_twice() {
    runs("saga", "Nothing was booked or cancelled twice.");
}
