//! The baton: of all threads of a scenario only the one that holds it runs.
//!
//! Threads are the operating system's, so that scenarios are ordinary code; they hand the baton on
//! where the policy says so, and nothing is paid where it says to go on.

use super::halt::Halt;
use super::schedule::Policy;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often all threads may wait for each other, nothing changing, before it is a deadlock.
const ROUNDS_MAX: u32 = 64;

#[derive(Debug)]
struct Turn {
    policy: Policy,
    record: Vec<u8>,
    /// What each thread had seen change when it last paused, while it waits.
    waiting: Vec<Option<u64>>,
    ended: Vec<bool>,
    changes: u64,
    rounds: u32,
    halted: bool,
}

/// Hands execution from thread to thread.
#[derive(Debug)]
pub(crate) struct Baton {
    turn: Mutex<Turn>,
    wake: Vec<Condvar>,
    done: Condvar,
    running: AtomicUsize,
}

impl Baton {
    pub fn new(threads: usize) -> Self {
        Baton {
            turn: Mutex::new(Turn {
                policy: Policy::script(Vec::new()),
                record: Vec::new(),
                waiting: vec![None; threads],
                ended: vec![false; threads],
                changes: 0,
                rounds: 0,
                halted: false,
            }),
            wake: (0..threads).map(|_| Condvar::new()).collect(),
            done: Condvar::new(),
            running: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run: chooses the first thread.
    pub fn begin(&self, policy: Policy) {
        let mut turn = self.lock();
        let threads = turn.ended.len();
        *turn = Turn {
            policy,
            record: Vec::new(),
            waiting: vec![None; threads],
            ended: vec![false; threads],
            changes: 0,
            rounds: 0,
            halted: false,
        };
        if threads > 0 {
            let first = turn.choose(None).unwrap_or(0);
            self.running.store(first, Relaxed);
        }
    }

    /// Ends a run and gives the policy back.
    pub fn end(&self) -> Policy {
        std::mem::replace(&mut self.lock().policy, Policy::script(Vec::new()))
    }

    /// The thread that runs.
    pub fn running(&self) -> usize {
        self.running.load(Relaxed)
    }

    /// The thread that ran at each point, so far.
    pub fn record(&self) -> Vec<u8> {
        self.lock().record.clone()
    }

    /// Whether this run has left what earlier ones have seen.
    pub fn is_new(&self) -> bool {
        self.lock().policy.is_new()
    }

    /// The running thread has changed what others may wait for.
    pub fn changed(&self) {
        let mut turn = self.lock();
        turn.changes += 1;
        turn.rounds = 0;
    }

    /// Before the first event of `me`: returns when it is its turn.
    pub fn enter(&self, me: usize) -> Result<(), Halt> {
        self.wait(self.lock(), me)
    }

    /// Before an event of the running thread: returns when it is its turn again.
    pub fn point(&self, pausing: bool) -> Result<(), Halt> {
        let me = self.running();
        let mut turn = self.lock();
        if turn.halted {
            return Err(Halt::stopped());
        }
        if pausing {
            turn.waiting[me] = Some(turn.changes);
            turn.policy.paused(me);
        } else {
            turn.waiting[me] = None;
        }
        let next = turn.choose(Some(me))?;
        if next == me {
            return Ok(());
        }
        self.hand(next);
        self.wait(turn, me)
    }

    /// The thread `me` has ended and hands the baton on.
    pub fn finish(&self, me: usize) {
        let mut turn = self.lock();
        turn.ended[me] = true;
        turn.changes += 1;
        if turn.ended.iter().all(|ended| *ended) {
            self.done.notify_all();
        } else if !turn.halted
            && let Ok(next) = turn.choose(None)
        {
            self.hand(next);
        }
    }

    /// Every thread leaves at its next event.
    pub fn halt(&self) {
        self.lock().halted = true;
        self.wake.iter().for_each(Condvar::notify_all);
    }

    /// Returns when all threads have ended; an error if there was no event for `silence_max`. `pulse`
    /// tells how many there were.
    pub fn wait_for_all(
        &self,
        silence_max: Duration,
        pulse: impl Fn() -> u64,
    ) -> Result<(), String> {
        let mut turn = self.lock();
        let mut last = pulse();
        while !turn.ended.iter().all(|ended| *ended) {
            let (after, waited) =
                self.done.wait_timeout(turn, silence_max).unwrap_or_else(PoisonError::into_inner);
            turn = after;
            let now = pulse();
            if waited.timed_out() && now == last {
                let who = self.running();
                return Err(format!(
                    "thread {who} made no event for {silence_max:?}: it blocks outside of the memory, on \
                     a lock perhaps that another thread holds; wait through the memory, with pause()"
                ));
            }
            last = now;
        }
        Ok(())
    }

    fn hand(&self, next: usize) {
        self.running.store(next, Relaxed);
        self.wake[next].notify_one();
    }

    fn wait(&self, mut turn: MutexGuard<'_, Turn>, me: usize) -> Result<(), Halt> {
        while !turn.halted && self.running() != me {
            turn = self.wake[me].wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        if turn.halted { Err(Halt::stopped()) } else { Ok(()) }
    }
}

impl Turn {
    fn waits(&self, thread: usize) -> bool {
        self.waiting[thread] == Some(self.changes)
    }

    fn choose(&mut self, current: Option<usize>) -> Result<usize, Halt> {
        let mut ready: Vec<usize> =
            (0..self.ended.len()).filter(|t| !self.ended[*t] && !self.waits(*t)).collect();
        let mut current = current.filter(|thread| ready.contains(thread));
        if ready.is_empty() {
            // All wait and nothing has changed: each tries again, in turn, some times.
            self.rounds += 1;
            if self.rounds > ROUNDS_MAX {
                return Err(Halt::new(
                    "deadlock: every thread waits (pause) and none changes the memory".into(),
                ));
            }
            for (thread, waiting) in self.waiting.iter_mut().enumerate() {
                if !self.ended[thread] {
                    *waiting = None;
                    ready.push(thread);
                }
            }
            current = None;
            ready.truncate(1);
        }
        // With one candidate there is nothing to choose, but the record has every point.
        let next = self.policy.choose(current, &ready);
        self.record.push(next as u8);
        Ok(next)
    }
}
