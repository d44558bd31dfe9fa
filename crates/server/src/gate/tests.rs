//! The gate on this machine; under every order that memory allows it is tried in `machine`'s `tests/weak_memory`.

use crate::gate::{Gate, Turn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn a_moment() {
    (0..30).for_each(|_| std::hint::spin_loop());
}

/// Two loops start their turns at the same instant, round after round; the second wants to be
/// alone in its. How often they were inside together all the same. `enter` and `close` stand
/// for what makes a turn, so that the alarm can be tried without a gate.
fn met_inside<'g, T>(
    rounds: u64,
    enter: impl Fn(usize) -> T + Sync + 'g,
    close: impl Fn(&mut T) + Sync + 'g,
) -> u64 {
    let (round, arrived, met) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let inside = [AtomicBool::new(false), AtomicBool::new(false)];
    std::thread::scope(|scope| {
        for id in 0..2 {
            let (round, arrived, met, inside) = (&round, &arrived, &met, &inside);
            let (enter, close) = (&enter, &close);
            scope.spawn(move || {
                for this in 1..=rounds {
                    if arrived.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                        round.store(this, Ordering::SeqCst);
                    }
                    let backoff = crossbeam_utils::Backoff::new();
                    while round.load(Ordering::SeqCst) < this {
                        backoff.snooze();
                    }
                    let mut turn = enter(id);
                    if id == 1 {
                        close(&mut turn);
                    }
                    inside[id].store(true, Ordering::SeqCst);
                    a_moment();
                    let together = inside[1 - id].load(Ordering::SeqCst);
                    met.fetch_add(u64::from(together), Ordering::SeqCst);
                    inside[id].store(false, Ordering::SeqCst);
                    drop(turn);
                }
            });
        }
    });
    met.load(Ordering::SeqCst)
}

#[test]
fn a_thread_that_closes_the_gate_is_alone() {
    let gate = Gate::new(2);
    assert_eq!(met_inside(200_000, |id| gate.enter(id), Turn::close), 0);
}

/// The alarm works: without a gate the same two do meet.
#[test]
fn without_the_gate_they_meet() {
    assert!((0..50).any(|_| met_inside(20_000, |_| (), |()| ()) > 0));
}

/// Writers that are alone change two cells one after the other; readers among others must not
/// see them differ, and no change may be lost. The cells are relaxed: the gate has to order
/// them.
#[test]
fn nothing_is_seen_half_done() {
    const TURNS: u64 = 20_000;
    let gate = Gate::new(4);
    let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for id in 0..4 {
            let (gate, a, b) = (&gate, &a, &b);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let mut guard = gate.enter(id);
                    if id < 2 && turn % 4 == 0 {
                        guard.close();
                        let next = a.load(Ordering::Relaxed) + 1;
                        a.store(next, Ordering::Relaxed);
                        a_moment();
                        b.store(next, Ordering::Relaxed);
                    } else {
                        let first = b.load(Ordering::Relaxed);
                        assert_eq!(first, a.load(Ordering::Relaxed));
                    }
                }
            });
        }
    });
    assert_eq!(a.load(Ordering::Relaxed), 2 * TURNS / 4, "a change was lost");
}

#[test]
fn two_that_want_to_be_alone_do_not_wait_for_each_other() {
    let gate = Gate::new(2);
    std::thread::scope(|scope| {
        for id in 0..2 {
            let gate = &gate;
            scope.spawn(move || {
                for _ in 0..10_000 {
                    let mut turn = gate.enter(id);
                    turn.close();
                    turn.close();
                }
            });
        }
    });
}
