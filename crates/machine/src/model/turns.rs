//! Turns of the logical threads, given as steps or as ordinary code.
//!
//! Both forms keep to one rule, that the thread whose clock is furthest behind goes on, so that
//! what threads share is asked for nearly in the order of time. They differ in how far one goes:
//!
//! * [`Machine::run_steps`]: a logical thread is something to be called again and again, each time
//!   for one operation, which runs to its end. Nothing is switched, so 192 threads cost no more than
//!   one. Operations never overlap in the memory's contents: what one finds is what a sequential
//!   run would leave. Its clock may run ahead of the others by an operation.
//! * [`Machine::run_threads`]: a logical thread is a closure on a thread of the operating system, and
//!   one of them runs at a time. It hands on when it is a quantum ahead of the furthest behind,
//!   and where it pauses; so operations do overlap, locks of the structure are waited for, and
//!   compare-exchanges fail. A hand-over costs microseconds of real time.
//!
//! An operation of the first form that waits for another thread waits for ever. Whoever waits in the
//! second form must wait through the memory, with
//! [`pause`](terrace_memory::lab::pause): a lock of the operating system that is held by a thread
//! without the turn is never released.

use super::machine::Machine;
use super::state::ModelState;
use super::time::Ps;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How far a running thread may be ahead of the furthest behind before it hands on, ps: a few misses.
const QUANTUM: Ps = 1_000_000;

/// A logical thread as operations.
pub trait LogicalThread {
    /// Does one operation; `false` when there was none left. Work that is no access is charged
    /// with [`Machine::compute`].
    fn step(&mut self) -> bool;
}

impl<F: FnMut() -> bool> LogicalThread for F {
    fn step(&mut self) -> bool {
        self()
    }
}

/// Which of the threads that are closures has the turn.
#[derive(Debug)]
pub(super) struct Turns {
    /// Those that have not ended.
    alive: Mutex<Vec<bool>>,
    wake: Vec<Condvar>,
}

impl Turns {
    pub fn new(threads: usize) -> Self {
        let wake = (0..threads).map(|_| Condvar::new()).collect();
        Turns { alive: Mutex::new(vec![false; threads]), wake }
    }

    fn alive(&self) -> MutexGuard<'_, Vec<bool>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    /// Runs logical threads as steps until none has anything left; returns how long that took in
    /// virtual time. Thread `i` is the machine's `i`-th. All begin together.
    ///
    /// # Panics
    /// If there are more of them than the machine has threads.
    pub fn run_steps<S: LogicalThread>(&self, threads: &mut [S]) -> Duration {
        assert!(threads.len() <= self.threads(), "the machine has fewer threads");
        self.barrier();
        let start = self.elapsed();
        let start_ps = self.now_ps();
        let mut queue: BinaryHeap<Reverse<(Ps, usize)>> =
            (0..threads.len()).map(|thread| Reverse((start_ps, thread))).collect();
        while let Some(Reverse((_, thread))) = queue.pop() {
            self.lock().running = thread;
            // It goes on as long as it is behind all others: no need to ask the queue each time.
            let next = queue.peek().map_or(Ps::MAX, |Reverse((clock, _))| *clock);
            while threads[thread].step() {
                let clock = self.now_ps();
                if clock > next {
                    queue.push(Reverse((clock, thread)));
                    break;
                }
            }
        }
        self.elapsed() - start
    }

    /// Runs closures as logical threads until all have returned; returns how long that took in
    /// virtual time. They run one at a time, as the module says; all begin together.
    ///
    /// # Panics
    /// If there are more of them than the machine has threads, or one panics.
    pub fn run_threads<'a>(&self, threads: Vec<Box<dyn FnOnce() + Send + 'a>>) -> Duration {
        assert!(threads.len() <= self.threads(), "the machine has fewer threads");
        self.barrier();
        let start = self.elapsed();
        {
            let mut state = self.lock();
            let mut alive = self.shared.turns.alive();
            alive.fill(false);
            alive[..threads.len()].fill(true);
            state.running = 0;
            state.limit = limit(&state, &alive);
        }
        std::thread::scope(|scope| {
            for (thread, body) in threads.into_iter().enumerate() {
                scope.spawn(move || {
                    let ended = Ended { machine: self, thread };
                    self.wait_for_turn(self.lock(), thread);
                    body();
                    drop(ended);
                });
            }
        });
        let mut state = self.lock();
        state.limit = Ps::MAX;
        state.running = 0;
        drop(state);
        self.elapsed() - start
    }

    /// The running thread is far enough ahead: another's turn; returns when it is this one's again.
    #[cold]
    pub(super) fn hand_on(&self, mut state: MutexGuard<'_, ModelState>) {
        let me = state.running;
        {
            let alive = self.shared.turns.alive();
            state.running = behind(&state, &alive).unwrap_or(me);
            state.limit = limit(&state, &alive);
        }
        if state.running != me {
            self.shared.turns.wake[state.running].notify_one();
            self.wait_for_turn(state, me);
        }
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, ModelState>, me: usize) {
        while state.running != me {
            state = self.shared.turns.wake[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A thread that has ended, or panicked, does not run again.
struct Ended<'a> {
    machine: &'a Machine,
    thread: usize,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.machine.lock();
        let mut alive = self.machine.shared.turns.alive();
        alive[self.thread] = false;
        if let Some(next) = behind(&state, &alive) {
            state.running = next;
            state.limit = limit(&state, &alive);
            self.machine.shared.turns.wake[next].notify_one();
        }
    }
}

/// The thread that is furthest behind, of those that have not ended.
fn behind(state: &ModelState, alive: &[bool]) -> Option<usize> {
    (0..alive.len()).filter(|thread| alive[*thread]).min_by_key(|t| state.threads[*t].clock)
}

/// How far the running thread may go: a quantum past the furthest behind of the others.
fn limit(state: &ModelState, alive: &[bool]) -> Ps {
    let others = (0..alive.len()).filter(|thread| alive[*thread] && *thread != state.running);
    others.map(|t| state.threads[t].clock + QUANTUM).min().unwrap_or(Ps::MAX)
}
