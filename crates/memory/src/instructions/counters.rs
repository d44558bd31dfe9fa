//! How many instructions were issued, counted without a locked instruction.
//!
//! A locked add would wait for the write-back before it, and make a write-back that nobody waits for as
//! slow as one with a fence. So every thread counts in a stripe of its own, by plain loads and stores;
//! whoever asks adds the stripes up. A stripe goes to another thread when its own has ended, and goes
//! on counting.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Issued instructions since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines written back.
    pub lines_written_back: u64,
    /// Store fences.
    pub fences: u64,
    /// Bytes stored past the caches.
    pub bytes_streamed: u64,
    /// Lines demoted.
    pub lines_demoted: u64,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    LinesWrittenBack,
    Fences,
    BytesStreamed,
    LinesDemoted,
}

/// One thread's counts, in the order of [`Counter`].
#[repr(align(128))]
#[derive(Default)]
struct Stripe([AtomicU64; 4]);

/// Every stripe there is, and those whose thread has ended.
#[derive(Default)]
struct Stripes {
    all: Vec<&'static Stripe>,
    unused: Vec<&'static Stripe>,
}

static STRIPES: Mutex<Stripes> = Mutex::new(Stripes { all: Vec::new(), unused: Vec::new() });
/// Of threads that are ending: the one stripe that several may use at once.
static LAST: Stripe = Stripe([const { AtomicU64::new(0) }; 4]);

fn stripes() -> std::sync::MutexGuard<'static, Stripes> {
    STRIPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's stripe, given back at its end.
struct Mine(&'static Stripe);

impl Mine {
    fn new() -> Mine {
        let mut stripes = stripes();
        let stripe = stripes.unused.pop().unwrap_or_else(|| {
            let stripe: &'static Stripe = Box::leak(Box::default());
            stripes.all.push(stripe);
            stripe
        });
        Mine(stripe)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        HERE.set(None);
        stripes().unused.push(self.0);
    }
}

thread_local! {
    /// The stripe at hand, found without a check for its end.
    static HERE: Cell<Option<&'static Stripe>> = const { Cell::new(None) };
    static MINE: Mine = Mine::new();
}

/// Counts `count` more.
#[inline]
pub(super) fn add(counter: Counter, count: u64) {
    match HERE.get() {
        // Only this thread stores to its stripe.
        Some(Stripe(counts)) => {
            let count_at = &counts[counter as usize];
            count_at.store(count_at.load(Relaxed) + count, Relaxed);
        }
        None => add_first(counter, count),
    }
}

#[cold]
fn add_first(counter: Counter, count: u64) {
    if let Ok(stripe) = MINE.try_with(|mine| mine.0) {
        HERE.set(Some(stripe));
        stripe.0[counter as usize].fetch_add(count, Relaxed);
    } else {
        LAST.0[counter as usize].fetch_add(count, Relaxed);
    }
}

/// Sums the counters of all threads.
pub fn counters() -> Counters {
    let stripes = stripes();
    let sum = |counter: Counter| {
        let all = stripes.all.iter().copied().chain([&LAST]);
        all.map(|Stripe(counts)| counts[counter as usize].load(Relaxed)).sum()
    };
    Counters {
        lines_written_back: sum(Counter::LinesWrittenBack),
        fences: sum(Counter::Fences),
        bytes_streamed: sum(Counter::BytesStreamed),
        lines_demoted: sum(Counter::LinesDemoted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_that_ended_stay_and_their_stripes_are_used_again() {
        // Nothing else in this crate's unit tests demotes.
        let before = counters().lines_demoted;
        for _ in 0..50 {
            let ended = std::thread::spawn(|| add(Counter::LinesDemoted, 3)).join();
            ended.expect("a thread that counts");
        }
        assert_eq!(counters().lines_demoted - before, 150);
        assert!(stripes().all.len() < 50, "one after the other they share a few");
    }
}
