//! Threads under the controlled scheduler: what only an interleaving shows, and what would hang.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_machine::{Crashable, Explorer, Noted, Schedule};
use terrace_memory::{Domain, Laboratory, Memory};

const HEAD: u64 = 0;

#[derive(Clone, Debug)]
enum Note {
    Began(u64),
    Ended(u64),
}

/// Pushes a node of a lock-free stack: value at `node`, next at `node + 8`.
fn push(m: &Crashable, node: u64, value: u64, flushed: bool) {
    m.store(node, value);
    let mut head = m.load(HEAD);
    loop {
        m.store(node + 8, head);
        if flushed {
            m.persist(node, 16);
        }
        match m.compare_exchange(HEAD, head, node) {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    m.persist(HEAD, 8);
    if !flushed {
        m.persist(node, 16);
    }
}

fn stack(m: &Crashable) -> Vec<u64> {
    let mut values = Vec::new();
    let mut node = m.load(HEAD);
    while node != 0 {
        values.push(m.load(node));
        node = m.load(node + 8);
    }

    values
}

fn check(m: &Crashable, notes: &[Noted<Note>]) -> Result<(), String> {
    let values = stack(m);
    let begun = |v: u64| notes.iter().any(|n| matches!(n.event, Note::Began(b) if b == v));
    if let Some(value) = values.iter().find(|value| !begun(**value)) {
        return Err(format!("{value} was never pushed"));
    }
    for noted in notes {
        if let Note::Ended(value) = noted.event
            && !values.contains(&value)
        {
            return Err(format!("{value} is lost"));
        }
    }
    Ok(())
}

fn pushers(flushed: bool) -> Explorer<Note> {
    let pusher = move |value: u64| {
        move |m: &Crashable, log: &terrace_machine::Log<Note>| {
            log.note(Note::Began(value));
            push(m, value * 64, value, flushed);
            log.note(Note::Ended(value));
        }
    };
    Explorer::new(Domain::Adr, 4096).thread(pusher(1)).thread(pusher(2)).check(check)
}

#[test]
fn lock_free_pushes_need_their_nodes_flushed_before_they_publish() {
    let report = pushers(true).exhaustive(1_000_000).assert_sound();
    assert!(report.exhausted && report.schedules > 100, "{report}");
    let explorer = pushers(false);
    let failure = explorer.exhaustive(1_000_000).expect_failure();
    let again = explorer.replay(&failure.replay).unwrap().expect("fails again");
    assert_eq!(again.trace, failure.trace);
    pushers(true).sampled(5_000, 3).assert_sound();
    pushers(false).schedule(Schedule::Pct { changes: 2 }).sampled(5_000, 3).expect_failure();
}

/// One thread stores and later makes durable; the other sees the value before it is durable and
/// tells somebody. `helps`: it makes durable what it saw before it tells.
fn reader_of_the_undurable(helps: bool) -> Explorer<u64> {
    Explorer::new(Domain::Adr, 4096)
        .thread(|m, _| {
            m.store(64, 9);
            m.persist(64, 8);
        })
        .thread(move |m, log| {
            // Noise that a small trace does without.
            m.store(512, 1);
            m.persist(512, 8);
            let seen = m.load(64);
            if helps {
                m.persist(64, 8);
            }
            log.note(seen);
        })
        .check(|m, notes| match (notes.first(), m.load(64)) {
            (Some(Noted { event: 9, .. }), 0) => Err("9 was seen, and is gone".into()),
            _ => Ok(()),
        })
}

#[test]
fn visible_is_not_durable_and_the_trace_has_one_switch() {
    reader_of_the_undurable(true).exhaustive(100_000).assert_sound();
    for report in [
        reader_of_the_undurable(false).exhaustive(100_000),
        reader_of_the_undurable(false).sampled(100_000, 5),
        reader_of_the_undurable(false).schedule(Schedule::Pct { changes: 1 }).sampled(100_000, 5),
    ] {
        let failure = report.expect_failure();
        let threads: Vec<_> = failure.trace.lines().filter_map(|l| l.split("  ").next()).collect();
        let switches = threads.windows(2).filter(|w| w[0] != w[1] && !w[1].is_empty()).count();
        // From thread 0 to thread 1, and from there to the crash.
        assert_eq!(switches, 2, "{failure}");
        assert!(failure.trace.contains("line 0x40 lost its last store"), "{failure}");
    }
}

/// A lock in the memory, waited for with `pause`.
fn locked(m: &Crashable, lock: u64, section: impl FnOnce()) {
    while m.compare_exchange(lock, 0, 1).is_err() {
        m.pause();
    }
    section();
    m.store(lock, 0);
}

#[test]
fn threads_wait_for_each_other() {
    let add = |m: &Crashable, _: &terrace_machine::Log<()>| {
        locked(m, 0, || m.store(64, m.load(64) + 1));
    };
    let sum = Arc::new(AtomicU64::new(0));
    let seen = sum.clone();
    let report = Explorer::new(Domain::Eadr, 4096)
        .thread(add)
        .thread(add)
        .check(move |m, _| {
            seen.fetch_max(m.load(64), Ordering::Relaxed);
            Ok(())
        })
        .exhaustive(100_000)
        .assert_sound();
    assert!(report.exhausted && report.schedules > 3, "{report}");
    assert_eq!(sum.load(Ordering::Relaxed), 2);
}

#[test]
fn deadlocks_and_livelocks_are_failures() {
    let two = |first: u64, second: u64| {
        move |m: &Crashable, _: &terrace_machine::Log<()>| {
            locked(m, first, || locked(m, second, || {}));
        }
    };
    let explorer = Explorer::new(Domain::Adr, 4096).thread(two(0, 64)).thread(two(64, 0));
    let failure = explorer.exhaustive(100_000).expect_failure();
    assert!(failure.message.contains("deadlock"), "{failure}");
    assert!(explorer.replay(&failure.replay).unwrap().unwrap().message.contains("deadlock"));
    let ordered = Explorer::new(Domain::Adr, 4096).thread(two(0, 64)).thread(two(0, 64));
    ordered.exhaustive(100_000).assert_sound();

    // Two threads that undo each other's work for ever, and one that spins without a pause.
    let undo = |m: &Crashable, _: &terrace_machine::Log<()>| {
        while m.load(0) < 2 {
            m.store(0, 1 - m.load(0));
        }
    };
    let failure =
        Explorer::new(Domain::Adr, 4096).steps(2000).thread(undo).exhaustive(1).expect_failure();
    assert!(failure.message.contains("livelock"), "{failure}");
}

#[test]
fn panics_are_failures_with_their_message() {
    let explorer = Explorer::<()>::new(Domain::Adr, 4096)
        .thread(|m, _| m.store(0, 1))
        .thread(|m, _| assert_eq!(m.load(0), 1, "the first goes first"));
    let failure = explorer.exhaustive(1000).expect_failure();
    assert!(failure.message.starts_with("thread 1 panicked at"), "{failure}");
    assert!(failure.message.contains("the first goes first"), "{failure}");
    assert!(explorer.replay(&failure.replay).unwrap().is_some());

    let outside =
        Explorer::<()>::new(Domain::Adr, 4096).thread(|m, _| m.store(0, 1 << 40)).recover(|m| {
            m.load(m.load(0));
        });
    let failure = outside.exhaustive(1000).expect_failure();
    assert!(failure.message.contains("outside of the memory"), "{failure}");
}

#[test]
fn recovery_must_end() {
    let explorer = Explorer::<()>::new(Domain::Adr, 4096)
        .steps(10_000)
        .thread(|m, _| locked(m, 0, || {}))
        .recover(|m| locked(m, 0, || {}));
    let failure = explorer.exhaustive(1000).expect_failure();
    assert!(failure.message.contains("a thread that the crash ended"), "{failure}");
    let explorer = Explorer::<()>::new(Domain::Adr, 4096)
        .steps(10_000)
        .thread(|m, _| m.store(0, 1))
        .check(|m, _| {
            while m.load(0) == 1 {}
            Ok(())
        });
    let failure = explorer.exhaustive(1000).expect_failure();
    assert!(failure.message.contains("does not end"), "{failure}");
}

#[test]
fn a_lock_beside_the_memory_is_reported_and_does_not_hang() {
    let lock = Arc::new(std::sync::Mutex::new(()));
    let hold = move |m: &Crashable, _: &terrace_machine::Log<()>| {
        let guard = lock.lock().unwrap();
        m.store(0, 1);
        m.store(8, 1);
        drop(guard);
    };
    let explorer = Explorer::new(Domain::Adr, 4096).thread(hold.clone()).thread(hold);
    let failure = explorer.silence(Duration::from_millis(200)).exhaustive(100_000).expect_failure();
    assert!(failure.message.contains("blocks outside of the memory"), "{failure}");
}

#[test]
fn a_copy_of_what_changes_may_be_torn() {
    let explorer = Explorer::<bool>::new(Domain::Eadr, 4096)
        .thread(|m, _| m.write(0, &[1; 16]))
        .thread(|m, log| {
            let mut copy = [0; 16];
            // SAFETY: inside the memory, and the copy has room.
            unsafe { m.copy_changing(0, copy.as_mut_ptr(), 16) };
            log.note(copy[0] != copy[15]);
        })
        .check(|_, notes| match notes.first() {
            Some(Noted { event: true, .. }) => Err("torn".into()),
            _ => Ok(()),
        });
    assert_eq!(explorer.exhaustive(1000).expect_failure().message, "torn");
}
