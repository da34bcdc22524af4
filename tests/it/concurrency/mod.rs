//! Many callers at once: one of them runs, the others are told the truth, and nobody's outcome is lost.

mod closing;
mod waiting;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use dupeproof::{Begin, ErrorKind, Failure, Operation, Outcome, Retry, Status, Verdict};

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
                store.resolve(key(&name), happened, &decision()).map(drop).map_err(|error| error.kind())
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
