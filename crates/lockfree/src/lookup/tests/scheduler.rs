//! Threads that take turns: one runs at a time, and at each step of a protocol the next is drawn. A seed repeats a run.

use super::super::step::AT_STEP;
use super::threads::Draws;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Threads that have not ended.
    running: Vec<usize>,
    turn: usize,
    draws: Draws,
}

impl Turns {
    /// Draws whose turn it is, and waits until it is this thread's.
    fn step(&self, thread: usize) {
        let mut state = self.state.lock();
        let running = state.running.len() as u64;
        let drawn = state.draws.below(running) as usize;
        state.turn = state.running[drawn];
        self.wait(thread, state);
    }

    fn wait(&self, thread: usize, mut state: parking_lot::MutexGuard<'_, State>) {
        if state.turn != thread {
            self.changed.notify_all();
        }
        while state.turn != thread {
            self.changed.wait(&mut state);
        }
    }

    fn end(&self, thread: usize) {
        let mut state = self.state.lock();
        state.running.retain(|other| *other != thread);
        if let Some(first) = state.running.first().copied() {
            state.turn = first;
        }
        self.changed.notify_all();
    }
}

/// Ends a thread's turns, even after a failed assertion.
struct Ends<'a>(&'a Turns, usize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        AT_STEP.set(None);
        self.0.end(self.1);
    }
}

/// Runs threads by turns that the seed draws; returns what they return.
pub(super) fn interleaved<T: Send>(
    seed: u64,
    threads: usize,
    run: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let state = State { running: (0..threads).collect(), turn: 0, draws: Draws(seed) };
    let turns = Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() });
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let (turns, run) = (Arc::clone(&turns), &run);
                scope.spawn(move || {
                    let mine = Arc::clone(&turns);
                    let _ends = Ends(&mine, thread);
                    mine.wait(thread, mine.state.lock());
                    AT_STEP.set(Some(Box::new(move || turns.step(thread))));
                    run(thread)
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
