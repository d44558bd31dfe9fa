//! How many instructions were issued, counted without a locked instruction.
//!
//! A locked add would wait for the write-back before it, and make a write-back that nobody waits for as
//! slow as one with a fence. So every thread counts in a stripe of its own, by plain loads and stores;
//! whoever asks adds the stripes up. A stripe goes to another thread when its own has ended, and goes
//! on counting.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Call sites of pre-stores that are told apart; those registered later are counted together as the
/// last.
pub(crate) const SITES_MAX: usize = 64;

/// Issued instructions since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines written back, which had to be.
    pub lines_written_back: u64,
    /// Store fences.
    pub fences: u64,
    /// Bytes stored past the caches.
    pub bytes_streamed: u64,
    /// Lines cleaned, as a hint.
    pub lines_cleaned: u64,
    /// Lines demoted.
    pub lines_demoted: u64,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    LinesWrittenBack,
    Fences,
    BytesStreamed,
    LinesCleaned,
    LinesDemoted,
}

/// What one call site issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SiteCount {
    pub calls: u64,
    pub lines: u64,
    pub bytes: u64,
}

/// One thread's counts.
#[repr(align(128))]
struct Stripe {
    /// In the order of [`Counter`].
    counts: [AtomicU64; 5],
    /// By the number of the site: calls, lines, bytes.
    sites: [[AtomicU64; 3]; SITES_MAX],
}

impl Stripe {
    const fn new() -> Stripe {
        Stripe {
            counts: [const { AtomicU64::new(0) }; 5],
            sites: [const { [const { AtomicU64::new(0) }; 3] }; SITES_MAX],
        }
    }
}

/// Every stripe there is, and those whose thread has ended.
#[derive(Default)]
struct Stripes {
    all: Vec<&'static Stripe>,
    unused: Vec<&'static Stripe>,
}

static STRIPES: Mutex<Stripes> = Mutex::new(Stripes { all: Vec::new(), unused: Vec::new() });
/// Of threads that are ending: the one stripe that several may use at once.
static LAST: Stripe = Stripe::new();

fn stripes() -> std::sync::MutexGuard<'static, Stripes> {
    STRIPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's stripe, given back at its end.
struct Mine(&'static Stripe);

impl Mine {
    fn new() -> Mine {
        let mut stripes = stripes();
        let stripe = stripes.unused.pop().unwrap_or_else(|| {
            let stripe: &'static Stripe = Box::leak(Box::new(Stripe::new()));
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
pub(crate) fn add(counter: Counter, count: u64) {
    match HERE.get() {
        Some(stripe) => add_alone(&stripe.counts[counter as usize], count),
        None => with_first(|stripe| _ = stripe.counts[counter as usize].fetch_add(count, Relaxed)),
    }
}

/// Counts more at the site of this number.
#[inline]
pub(crate) fn add_to_site(site: usize, more: SiteCount) {
    let more = [more.calls, more.lines, more.bytes];
    match HERE.get() {
        Some(stripe) => {
            stripe.sites[site].iter().zip(more).for_each(|(count, more)| add_alone(count, more));
        }
        None => with_first(|stripe| {
            for (count, more) in stripe.sites[site].iter().zip(more) {
                count.fetch_add(more, Relaxed);
            }
        }),
    }
}

/// Adds to a count that only this thread stores to.
#[inline(always)]
fn add_alone(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed) + more, Relaxed);
}

/// The first count of a thread, or one after its stripe was given back.
#[cold]
fn with_first(count: impl FnOnce(&Stripe)) {
    match MINE.try_with(|mine| mine.0) {
        Ok(stripe) => {
            HERE.set(Some(stripe));
            count(stripe);
        }
        Err(_) => count(&LAST),
    }
}

/// What all threads counted at the site of this number.
pub(crate) fn site_counts(site: usize) -> SiteCount {
    let stripes = stripes();
    let sum = |what: usize| {
        let all = stripes.all.iter().copied().chain([&LAST]);
        all.map(|stripe| stripe.sites[site][what].load(Relaxed)).sum()
    };
    SiteCount { calls: sum(0), lines: sum(1), bytes: sum(2) }
}

/// Sums the counters of all threads.
pub fn counters() -> Counters {
    let stripes = stripes();
    let sum = |counter: Counter| {
        let all = stripes.all.iter().copied().chain([&LAST]);
        all.map(|stripe| stripe.counts[counter as usize].load(Relaxed)).sum()
    };
    Counters {
        lines_written_back: sum(Counter::LinesWrittenBack),
        fences: sum(Counter::Fences),
        bytes_streamed: sum(Counter::BytesStreamed),
        lines_cleaned: sum(Counter::LinesCleaned),
        lines_demoted: sum(Counter::LinesDemoted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_that_ended_stay_and_their_stripes_are_used_again() {
        // Other tests may demote meanwhile: none of these may be missing.
        let before = counters().lines_demoted;
        for _ in 0..50 {
            let ended = std::thread::spawn(|| add(Counter::LinesDemoted, 3)).join();
            ended.expect("a thread that counts");
        }
        assert!(counters().lines_demoted - before >= 150);
        assert!(stripes().all.len() < 50, "one after the other they share a few");
    }
}
