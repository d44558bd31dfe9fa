//! The gate that makes a transaction the only thing that runs.
//!
//! Several event loops execute commands at once; single-key commands are atomic by the engine's
//! own means. `EXEC`, `MSET` and their like touch several keys and must look like one step to
//! every client on every loop. So each loop *enters* before it runs a turn of commands and
//! *leaves* after it; a loop that needs to be alone *closes* the gate: it raises a flag, waits
//! until every other loop is outside, and runs alone until its own turn ends.
//!
//! Entering is the hot side: one store and one load on a cache line of the loop's own and a flag
//! that is almost always clean. It is Dekker's pattern: the enterer stores "inside" then loads
//! the flag, the closer stores the flag then loads every "inside". Each side puts a sequentially
//! consistent fence between its store and its loads; without it both loads may miss the other's
//! store and two loops run where one should.
//!
//! A loop stays alone until its turn ends even when only one of its commands asked for it: the
//! next such command in the same turn then costs nothing, and a load made of transactions only
//! degrades to one loop at a time, which is what a single-threaded server does anyway.

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// One gate for all loops of a server.
pub(crate) struct Gate {
    inside: Vec<CachePadded<AtomicBool>>,
    closed: CachePadded<AtomicBool>,
    /// Held by the loop that runs alone; the others wait on it, parked.
    alone: Mutex<()>,
}

impl Gate {
    pub(crate) fn new(loops: usize) -> Gate {
        Gate {
            inside: (0..loops).map(|_| CachePadded::default()).collect(),
            closed: CachePadded::default(),
            alone: Mutex::new(()),
        }
    }

    /// Starts a turn of loop `id`. Each id is used by one thread.
    pub(crate) fn enter(&self, id: usize) -> Turn<'_> {
        let mut turn = Turn { gate: self, id, alone: None };
        turn.go_inside();
        turn
    }

    /// Waits until every loop but `id` is outside.
    fn wait_for_others(&self, id: usize) {
        let others = self.inside.iter().enumerate().filter(|(other, _)| *other != id);
        for (_, inside) in others {
            let backoff = crossbeam_utils::Backoff::new();
            while inside.load(Ordering::Acquire) {
                match backoff.is_completed() {
                    false => backoff.snooze(),
                    true => std::thread::sleep(std::time::Duration::from_micros(20)),
                }
            }
        }
    }
}

/// A loop's stay inside the gate; dropping it leaves.
pub(crate) struct Turn<'g> {
    gate: &'g Gate,
    id: usize,
    alone: Option<MutexGuard<'g, ()>>,
}

impl Turn<'_> {
    fn go_inside(&mut self) {
        let inside = &self.gate.inside[self.id];
        loop {
            inside.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.gate.closed.load(Ordering::Acquire) {
                return;
            }
            inside.store(false, Ordering::Release);
            drop(self.gate.alone.lock());
        }
    }

    /// From here to the end of the turn no other loop runs a command. What ran earlier in this
    /// turn ran among others.
    ///
    /// The loop steps outside while it waits: two loops that both want to be alone would
    /// otherwise wait for each other.
    pub(crate) fn close(&mut self) {
        if self.alone.is_some() {
            return;
        }
        let inside = &self.gate.inside[self.id];
        inside.store(false, Ordering::Release);
        self.alone = Some(self.gate.alone.lock());
        self.gate.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.gate.wait_for_others(self.id);
        inside.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.inside[self.id].store(false, Ordering::Release);
        if let Some(alone) = self.alone.take() {
            self.gate.closed.store(false, Ordering::Release);
            drop(alone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

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
    fn who_closed_the_gate_is_alone() {
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
}
