//! Which copies stay: two queues and a memory of what went (S3-FIFO: Yang and others, SOSP 2023).
//!
//! A copy is on trial first, in a short queue. If nobody asks for it again before it comes to the end of that, it goes,
//! and its location is remembered for a while; else it is moved to the long queue. What is fetched while it is
//! remembered is put there at once. At the end of the long queue a copy begins anew, counting as asked for once less,
//! or goes if it was not asked for again. So a scan through everything displaces the short queue alone, and readers
//! move nothing: they count, up to three.
//!
//! Beside LRU, CLOCK, SIEVE, S3-FIFO as published and W-TinyLFU: `tier-policy` in docs/reproduction.md, decision 0042.

use super::copy::{CopiedItem, Queue};
use super::remembered::Remembered;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// One in so many bytes is for copies on trial,
const TRIAL_SHARE: u64 = 20;
/// and no less than this, as far as that is a quarter: whoever has many fetched together looks at them afterwards.
const TRIAL_LEAST: u64 = 1 << 20;
/// How many are remembered: one for so many in the long queue.
const REMEMBERED_SHARE: usize = 2;
/// How many copies of the long queue one that goes is looked for among, at the most. Others wait meanwhile.
const TURNS: usize = 64;

pub(super) struct Queues {
    trial: Queue,
    long: Queue,
    went: Remembered,
}

impl Queues {
    /// For about so many copies.
    pub fn new(copies: usize) -> Queues {
        let went = Remembered::new(copies / REMEMBERED_SHARE);
        Queues { trial: Queue::default(), long: Queue::default(), went }
    }

    /// What they take beside the copies.
    pub fn bytes(&self) -> u64 {
        self.went.bytes()
    }

    /// # Safety
    /// The copy is in no queue, and is not dropped before it was popped.
    pub unsafe fn push(&mut self, copy: NonNull<CopiedItem>) {
        // SAFETY: the caller's.
        let location = unsafe { copy.as_ref() }.location;
        let went_lately = self.went.take(location, self.long.copies / REMEMBERED_SHARE);
        let queue = if went_lately { &mut self.long } else { &mut self.trial };
        // SAFETY: the caller's.
        unsafe { queue.push(copy) };
    }

    /// The one to go, if there may be `most` bytes, and whether it was asked for after it was fetched.
    pub fn pop(&mut self, most: u64) -> Option<(NonNull<CopiedItem>, bool)> {
        let trial_most = (most / TRIAL_SHARE).max(TRIAL_LEAST.min(most / 4));
        for turn in 1.. {
            let is_on_trial = self.trial.bytes > trial_most || self.long.copies == 0;
            let copy = if is_on_trial { self.trial.pop() } else { self.long.pop() }?;
            // SAFETY: it was in a queue until here, so it is not dropped.
            let found = unsafe { copy.as_ref() };
            if found.was_asked_again() && (is_on_trial || turn < TURNS) {
                found.was_used.store(true, Ordering::Relaxed);
                if is_on_trial {
                    found.forget_asked()
                } else {
                    found.count_less()
                }
                // SAFETY: it is in no queue; as above.
                unsafe { self.long.push(copy) };
                continue;
            }
            self.went.note(found.location);
            return Some((copy, found.was_used.load(Ordering::Relaxed) || found.was_asked_again()));
        }
        None
    }

    /// Any of them.
    pub fn pop_any(&mut self) -> Option<NonNull<CopiedItem>> {
        self.trial.pop().or_else(|| self.long.pop())
    }
}
