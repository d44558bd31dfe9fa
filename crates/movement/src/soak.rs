//! The soak: many threads submit tasks to one engine and check every byte that comes back.
//!
//! For a device as much as for an emulated one: an engine that loses a task, does it twice, or reports success of a
//! part is noticed. Half of the tasks are copies; the others move bytes inside of a buffer by less than their number,
//! so that doing one twice moves them twice.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::job::{Finished, Handle};
use crate::range::{Buffer, Source};
use crate::task::Task;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const BYTES: (usize, usize) = (1_000, 30_000);

/// What is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soak {
    /// Threads that submit, each one task after another.
    pub threads: u64,
    /// Tasks of each.
    pub tasks: u64,
    /// A task that takes longer is lost.
    pub patience: Duration,
    /// Of the lengths and bytes.
    pub seed: u64,
}

/// What became of the tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoakCounts {
    /// Tasks whose bytes are right.
    pub right: u64,
    /// Tasks that were said to have ended well, with bytes that are not.
    pub wrong: u64,
    /// Tasks that did not end.
    pub lost: u64,
    /// Tasks that ended with an error, and said so.
    pub failed: u64,
    /// Times that a full queue refused a task, which was then submitted again.
    pub refused: u64,
}

#[derive(Default)]
struct Counters {
    right: AtomicU64,
    wrong: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl Soak {
    /// Runs it on an engine. A thread that lost a task submits no more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use terrace_movement::{Engine, Soak};
    ///
    /// let soak = Soak { threads: 2, tasks: 50, patience: Duration::from_secs(10), seed: 7 };
    /// let counts = soak.run(&Engine::pool(2, 4).unwrap()).unwrap();
    /// assert_eq!((counts.right, counts.wrong, counts.lost), (100, 0, 0));
    /// ```
    ///
    /// # Errors
    /// What the engine refused a task for, but for a full queue.
    pub fn run(&self, engine: &Engine) -> Result<SoakCounts> {
        let counters = Counters::default();
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let counters = &counters;
                    scope.spawn(move || self.submit_all(engine, thread, counters))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
        });
        all?;
        let [right, wrong, lost, failed, refused] =
            [&counters.right, &counters.wrong, &counters.lost, &counters.failed, &counters.refused]
                .map(|counter| counter.load(Relaxed));
        Ok(SoakCounts { right, wrong, lost, failed, refused })
    }

    fn submit_all(&self, engine: &Engine, thread: u64, counters: &Counters) -> Result<()> {
        let mut state = self.seed.wrapping_add(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for _ in 0..self.tasks {
            let (task, expected) = task(&mut state)?;
            let ended = match submit(engine, task, counters)?.wait_for(self.patience) {
                Ok(Finished { target: Some(target), result: Ok(_) }) => {
                    if target.bytes() == expected { &counters.right } else { &counters.wrong }
                }
                Ok(_) => &counters.failed,
                Err(_running) => &counters.lost,
            };
            ended.fetch_add(1, Relaxed);
            if std::ptr::eq(ended, &raw const counters.lost) {
                break;
            }
        }
        Ok(())
    }
}

fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 8) as usize
}

/// A task, and what its target holds in the end.
fn task(state: &mut u64) -> Result<(Task, Vec<u8>)> {
    let length = BYTES.0 + next(state) % BYTES.1;
    let (is_copy, shift) = (next(state).is_multiple_of(2), 1 + next(state) % (BYTES.0 - 1));
    let bytes: Vec<u8> = (0..length).map(|_| next(state) as u8).collect();
    let mut expected = bytes.clone();
    if is_copy {
        return Ok((Task::copy(&Source::from(bytes), Buffer::new(vec![0; length]), 0)?, expected));
    }
    expected.copy_within(..length - shift, shift);
    Ok((Task::shift(Buffer::new(bytes), 0, shift, length - shift)?, expected))
}

/// Submits, as often as the queue is full.
fn submit(engine: &Engine, mut task: Task, counters: &Counters) -> Result<Handle> {
    loop {
        match engine.submit(task) {
            Ok(handle) => return Ok(handle),
            Err(refused) if matches!(refused.error, Error::Full { .. }) => {
                counters.refused.fetch_add(1, Relaxed);
                task = refused.task;
                std::thread::yield_now();
            }
            Err(refused) => return Err(refused.error),
        }
    }
}
