//! Many callers at once: one of them runs, the others are told the truth, and nobody's outcome is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use dupeproof::{
    Begin, Claim, ErrorKind, Failure, Operation, Outcome, Replay, Retry, Status, Store, UnknownCause, Verdict,
};

use crate::support::*;

const THREADS: usize = 64;

/// What each of many threads gets that begin to `work` at the same moment.
fn at_once<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(threads);
    let (start, work) = (&start, &work);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|at| {
                scope.spawn(move || {
                    start.wait();
                    work(at)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker finishes")).collect()
    })
}

fn waiting(name: &str) -> Operation {
    operation(name).with_wait(DAY)
}

#[test]
fn of_many_who_begin_one_key_at_once_exactly_one_runs() {
    let world = World::new();
    let store = world.open();
    for round in 0..10 {
        let name = round.to_string();
        let told = at_once(THREADS, |_| store.begin(&operation(&name)).unwrap());
        let (mut claims, mut others) = (0, 0);
        for answer in &told {
            match answer {
                Begin::Execute(claim) => {
                    assert_eq!(claim.attempt(), 1);
                    claims += 1;
                }
                Begin::InProgress(other) => {
                    assert_eq!(other.attempt(), 1);
                    others += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((claims, others), (1, THREADS - 1));
        drop(told);
        after_drops(&store);
        assert_eq!(get(&store, &name).attempts, 1);
    }
}

#[test]
fn of_many_who_reserve_and_begin_and_bring_other_payloads_exactly_one_runs() {
    let world = World::new();
    let store = world.open();
    for round in 0..10 {
        let name = round.to_string();
        let granted = AtomicUsize::new(0);
        let held = at_once(THREADS, |at| -> Option<Box<dyn Send>> {
            let asked = if at % 2 == 0 { operation(&name) } else { altered(&name) };
            let grant: Box<dyn Send> = match at % 4 {
                0 | 1 => match store.begin(&asked).unwrap() {
                    Begin::Execute(claim) => Box::new(claim),
                    _ => return None,
                },
                2 => match store.reserve(&asked).unwrap() {
                    dupeproof::Reserve::Reserved(reservation) => Box::new(reservation),
                    _ => return None,
                },
                _ => Box::new(store.begin_many(&[asked]).unwrap().pop().filter(|answer| {
                    // An answer that is no claim holds nothing.
                    matches!(answer, Begin::Execute(_))
                })?),
            };
            granted.fetch_add(1, Ordering::Relaxed);
            Some(grant)
        });
        assert_eq!(granted.load(Ordering::Relaxed), 1);
        drop(held);
    }
}

#[test]
fn those_who_wait_get_the_replay_of_the_one_who_runs() {
    let world = World::new();
    let store = world.open();
    let told: Vec<Replay> = at_once(THREADS, |at| match store.begin(&waiting("a")).unwrap() {
        Begin::Execute(claim) => claim.succeed_raw(format!("receipt of thread {at}")).unwrap(),
        Begin::Replay(replay) => replay,
        other => panic!("{other:?}"),
    });
    assert!(told.iter().all(|replay| *replay == told[0]));
    world.now_and_reopened(store, |store| assert_eq!(replay(store, &operation("a")), told[0]));
}

#[test]
fn effect_that_many_run_at_once_happens_once_for_each_key() {
    let world = World::new();
    let store = world.open();
    let effects = AtomicU32::new(0);
    let told = at_once(THREADS, |at| {
        let name = (at % 4).to_string();
        let run = store.run_raw(&waiting(&name), |_| {
            effects.fetch_add(1, Ordering::Relaxed);
            Ok(name.clone().into())
        });
        match run.unwrap() {
            Outcome::Succeeded(bytes) => bytes == name.as_bytes(),
            other => panic!("{other:?}"),
        }
    });
    assert!(told.into_iter().all(|is_own| is_own));
    assert_eq!(effects.load(Ordering::Relaxed), 4);
}

#[test]
fn different_keys_run_side_by_side_and_none_is_lost() {
    let world = World::new();
    let store = world.open();
    let tokens = at_once(THREADS, |at| {
        let mut tokens = Vec::new();
        for round in 0..8 {
            let claim = execute(&store, &operation(&format!("{at}/{round}")));
            tokens.push(claim.fencing_token());
            claim.succeed_raw(format!("{at}/{round}")).unwrap();
        }
        tokens
    });
    let mut tokens = tokens.concat();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), THREADS * 8, "two claims share a token");
    world.now_and_reopened(store, |store| {
        for name in (0..THREADS).flat_map(|at| (0..8).map(move |round| format!("{at}/{round}"))) {
            assert_eq!(replay(store, &operation(&name)).value().unwrap(), name.as_bytes());
        }
        assert_eq!(store.stats().unwrap().succeeded, THREADS as u64 * 8);
        assert!(store.verify().unwrap().is_clean());
    });
}

/// What somebody is told who waits for a claim on "a" that ends as `end` says.
fn waiter_of(end: impl FnOnce(&World, &Store, Claim)) -> Begin {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_max_execution(MINUTE));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.begin(&waiting("a")).unwrap());
        end(&world, &store, claim);
        waiter.join().unwrap()
    })
}

#[test]
fn waiter_is_told_how_the_claim_ended() {
    let told = waiter_of(|_, _, claim| drop(claim.succeed_raw("receipt").unwrap()));
    assert!(matches!(told, Begin::Replay(replay) if replay.value().unwrap() == b"receipt"));
    let told = waiter_of(|_, _, claim| drop(claim.fail_terminal("declined").unwrap()));
    assert!(matches!(told, Begin::Replay(replay) if !replay.is_success()));
    let told = waiter_of(|_, _, claim| drop(claim.give_up("lost").unwrap()));
    assert!(matches!(told, Begin::Unknown(unknown) if unknown.cause() == UnknownCause::GaveUp));
    let told = waiter_of(|_, _, claim| drop(claim));
    assert!(matches!(told, Begin::Unknown(unknown) if unknown.cause() == UnknownCause::ClaimDropped));
    let told = waiter_of(|_, _, claim| drop(claim.fail_retryable("busy", Retry::after(HOUR)).unwrap()));
    assert!(matches!(told, Begin::RetryLater(_)));
    let told = waiter_of(|world, _, claim| {
        world.clock.advance(MINUTE);
        drop(claim);
    });
    assert!(matches!(told, Begin::Unknown(unknown) if unknown.cause() == UnknownCause::LeaseLapsed));
}

#[test]
fn waiter_runs_if_the_one_before_did_not() {
    let told = waiter_of(|_, _, claim| claim.release().unwrap());
    assert!(matches!(told, Begin::Execute(claim) if claim.attempt() == 2));
    let told = waiter_of(|_, _, claim| drop(claim.fail_retryable("busy", Retry::now()).unwrap()));
    assert!(matches!(told, Begin::Execute(claim) if claim.attempt() == 2));
    let told = waiter_of(|_, store, claim| {
        claim.give_up("lost").unwrap();
        // The waiter may have been told before that it is unknown; then there is nothing more to tell.
        let _ = store.resolve(&key("a"), Verdict::DidNotHappen, &decision());
    });
    assert!(matches!(told, Begin::Execute(_) | Begin::Unknown(_)));
}

#[test]
fn waiters_run_one_after_another_and_never_two_at_once() {
    let world = World::new();
    let store = world.open();
    let (running, effects) = (AtomicU32::new(0), AtomicU32::new(0));
    let first = execute(&store, &operation("a"));
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let Begin::Execute(claim) = store.begin(&waiting("a")).unwrap() else { panic!("not its turn") };
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two run at once");
                    effects.fetch_add(1, Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                    claim.release().unwrap();
                })
            })
            .collect();
        first.release().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(effects.load(Ordering::SeqCst), 16);
    assert_eq!(get(&store, "a").attempts, 17);
}

#[test]
fn waiter_whose_time_is_over_is_told_that_it_is_in_progress() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a").with_lease(2 * HOUR).with_max_execution(2 * HOUR));
    assert!(matches!(store.begin(&operation("a").with_wait(Duration::ZERO)).unwrap(), Begin::InProgress(_)));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.begin(&operation("a").with_wait(MINUTE)).unwrap());
        // Moved until it notices: it may begin to wait only now.
        while !waiter.is_finished() {
            world.clock.advance(MINUTE / 60);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert!(matches!(waiter.join().unwrap(), Begin::InProgress(_)));
    });
    claim.succeed_raw("ok").unwrap();
}

#[test]
fn waiters_of_a_store_that_closes_are_told_so() {
    let world = World::new();
    let store = world.open();
    let claim = execute(&store, &operation("a"));
    let told = std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..8).map(|_| scope.spawn(|| store.begin(&waiting("a")))).collect();
        store.close().unwrap();
        waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect::<Vec<_>>()
    });
    for told in told {
        match told {
            // The close ended the claim first, and this one looked before it was complete.
            Ok(Begin::Unknown(unknown)) => assert_eq!(unknown.cause(), UnknownCause::OwnerGone),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
            Ok(other) => panic!("{other:?}"),
        }
    }
    drop(claim);
}

/// A bounded queue keeps what its reader left in it: such a call was neither answered nor dropped, and its caller waited
/// for ever.
#[test]
fn call_that_comes_just_behind_the_end_of_the_writer_is_answered() {
    for _ in 0..100 {
        let store = World::new().options().in_memory().unwrap();
        let told = at_once(9, |at| {
            if at == 0 {
                store.close().unwrap();
                return ErrorKind::Closed;
            }
            loop {
                // It passes the writer and writes nothing.
                let told = store.resolve(&key("nobody"), Verdict::DidNotHappen, &decision()).unwrap_err().kind();
                if told != ErrorKind::NotFound {
                    return told;
                }
            }
        });
        assert_eq!(told, [ErrorKind::Closed; 9]);
    }
}

#[test]
fn close_among_many_callers_loses_nothing_that_was_answered() {
    for _ in 0..5 {
        let world = World::new();
        let store = world.open();
        let answered = AtomicUsize::new(0);
        let done = at_once(THREADS, |at| {
            let (mut settled, mut started) = (Vec::new(), Vec::new());
            for round in 0.. {
                if at == 0 {
                    eventually(|| answered.load(Ordering::Relaxed) > THREADS);
                    store.close().unwrap();
                    break;
                }
                let name = format!("{at}/{round}");
                let claim = match store.begin(&operation(&name)) {
                    Ok(Begin::Execute(claim)) => claim,
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                        break;
                    }
                };
                match claim.succeed_raw(name.as_str()) {
                    Ok(_) => settled.push(name),
                    // The close ended it before: its outcome is unknown, or nobody heard of the settlement.
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                        started.push(name);
                    }
                }
                answered.fetch_add(1, Ordering::Relaxed);
            }
            (settled, started)
        });
        let store = world.open();
        for (settled, started) in &done {
            for name in settled {
                assert_eq!(replay(&store, &operation(name)).value().unwrap(), name.as_bytes());
            }
            for name in started {
                unknown(&store, &operation(name));
            }
        }
        let settled: usize = done.iter().map(|(settled, _)| settled.len()).sum();
        assert!(settled > THREADS / 2, "{settled}");
        let stats = store.stats().unwrap();
        assert_eq!(stats.succeeded, settled as u64, "what nobody was told of did not happen");
        assert_eq!((stats.executing, stats.reserved), (0, 0));
        assert!(store.verify().unwrap().is_clean());
    }
}

#[test]
fn calls_on_a_closed_store_do_nothing_and_say_so() {
    let world = World::new();
    let store = world.open();
    let clone = store.clone();
    execute(&store, &operation("a")).succeed_raw("ok").unwrap();
    store.close().unwrap();
    let before = world.bytes();
    clone.close().expect("a second close does nothing");
    let calls: [(&str, Option<ErrorKind>); 9] = [
        ("begin", clone.begin(&operation("a")).err().map(|error| error.kind())),
        ("begin anew", clone.begin(&operation("b")).err().map(|error| error.kind())),
        ("reserve", clone.reserve(&operation("b")).err().map(|error| error.kind())),
        ("begin many", clone.begin_many(&[operation("b")]).err().map(|error| error.kind())),
        ("get", clone.get(&key("a")).err().map(|error| error.kind())),
        ("stats", clone.stats().err().map(|error| error.kind())),
        ("sweep", clone.sweep(1).err().map(|error| error.kind())),
        ("verify", clone.verify().err().map(|error| error.kind())),
        ("compact", clone.compact().err().map(|error| error.kind())),
    ];
    for (name, told) in calls {
        assert_eq!(told, Some(ErrorKind::Closed), "{name}");
    }
    assert!(world.bytes() == before);
}

#[test]
fn two_who_settle_one_claim_at_once_leave_one_outcome() {
    let world = World::new();
    let store = world.open();
    for round in 0..20 {
        let name = round.to_string();
        let claim = execute(&store, &operation(&name));
        let told = at_once(2, |at| if at == 0 { claim.succeed_raw("ok") } else { claim.fail_terminal("declined") });
        assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 1);
        let (won, lost): (Vec<_>, Vec<_>) = told.into_iter().partition(Result::is_ok);
        assert!(lost.into_iter().all(|error| error.unwrap_err().kind() == ErrorKind::AlreadySettled));
        assert_eq!(replay(&store, &operation(&name)), *won[0].as_ref().unwrap());
    }
}

#[test]
fn verdict_and_late_word_at_once_leave_one_outcome() {
    let world = World::new();
    let store = world.open();
    for round in 0..20 {
        let name = round.to_string();
        let claim = execute(&store, &operation(&name).with_max_execution(MINUTE));
        world.clock.advance(MINUTE);
        let told = at_once(2, |at| match at {
            0 => claim.succeed_raw("of the owner").map(drop).map_err(|error| error.kind()),
            _ => {
                let happened = Verdict::Happened { response: "of a person".into(), external_reference: None };
                store.resolve(&key(&name), happened, &decision()).map(drop).map_err(|error| error.kind())
            }
        });
        let winner: &[u8] = match told[..] {
            [Ok(()), Err(ErrorKind::Refused)] => b"of the owner",
            [Err(ErrorKind::AlreadySettled), Ok(())] => b"of a person",
            _ => panic!("{told:?}"),
        };
        assert_eq!(replay(&store, &operation(&name)).value().unwrap(), winner);
    }
}

#[test]
fn upkeep_among_many_callers_disturbs_nobody() {
    let world = World::new();
    let options = dupeproof::Options::new().with_sweep_every(Duration::from_millis(10));
    let store = options.open(world.path()).unwrap();
    let busy = AtomicUsize::new(THREADS / 2);
    at_once(THREADS / 2 + 1, |at| {
        if at == THREADS / 2 {
            for round in 0.. {
                store.sweep(100).unwrap();
                store.compact().unwrap();
                assert!(store.verify().unwrap().is_clean());
                store.backup(world.folder().join(format!("copy-{round}"))).unwrap();
                if busy.load(Ordering::Relaxed) == 0 {
                    return;
                }
            }
        }
        for round in 0..10 {
            let name = format!("{at}/{round}");
            execute(&store, &operation(&name)).succeed_raw(name.as_str()).unwrap();
            assert_eq!(replay(&store, &operation(&name)).value().unwrap(), name.as_bytes());
        }
        busy.fetch_sub(1, Ordering::Relaxed);
    });
    assert_eq!(store.stats().unwrap().succeeded, THREADS as u64 / 2 * 10);
}

/// Many impatient clients hammer a few keys with every kind of ending. The provider keeps the books.
#[test]
fn provider_never_sees_an_effect_again_that_may_have_happened() {
    const KEYS: usize = 6;
    let world = World::new();
    let store = world.open();
    let may_have_happened: [AtomicU32; KEYS] = Default::default();
    at_once(16, |at| {
        for round in 0..40 {
            let which = (at + round) % KEYS;
            let name = which.to_string();
            let outcome = store.run_raw(&operation(&name).with_backoff(dupeproof::Backoff::none()), |claim| {
                match (at * 7 + round * 3 + which + claim.attempt() as usize) % 8 {
                    0 => {
                        may_have_happened[which].fetch_add(1, Ordering::SeqCst);
                        Ok("receipt".into())
                    }
                    1 => {
                        may_have_happened[which].fetch_add(1, Ordering::SeqCst);
                        Err(Failure::unknown("lost"))
                    }
                    2 | 3 => Err(Failure::not_started()),
                    _ => Err(Failure::retryable("no route", Retry::backoff())),
                }
            });
            assert!(!matches!(outcome.unwrap(), Outcome::Conflict(_) | Outcome::Expired(_)));
        }
    });
    for (which, count) in may_have_happened.iter().enumerate() {
        let count = count.load(Ordering::SeqCst);
        assert!(count <= 1, "key {which} may have happened {count} times");
        let expected = matches!(status(&store, &which.to_string()), Status::Succeeded | Status::Unknown);
        assert_eq!(count == 1, expected, "key {which}");
    }
    assert!(store.verify().unwrap().is_clean());
}
