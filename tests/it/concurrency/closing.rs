//! A store that closes while others call: everybody is answered, and what was answered is kept.

use std::sync::atomic::{AtomicUsize, Ordering};

use dupeproof::{Begin, ErrorKind, UnknownCause, Verdict};

use super::{THREADS, at_once, waiting};
use crate::support::*;

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

/// A bounded queue keeps what its reader left in it: such a call was neither answered nor dropped, and its caller
/// waited for ever.
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
                let told = store.resolve(key("nobody"), Verdict::DidNotHappen, &decision()).unwrap_err().kind();
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
        ("get", clone.get(key("a")).err().map(|error| error.kind())),
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
