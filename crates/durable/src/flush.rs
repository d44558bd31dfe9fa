//! Whether an item's lines are written back as soon as it is written (paper 000, A5, figure 2.7).
//!
//! Where stores survive only once they are written back (ADR) there is no choice. Where the caches
//! survive too (eADR) an item is durable without it, and the question is one of speed: written back at
//! once, its lines leave the caches when the writer has the time, and together; kept, they leave one by
//! one when other lines need their place, and whoever caused that waits, even if it only read DRAM.
//!
//! # What a kept line costs, and when it pays
//! The medium works in lines of its own, of 256 bytes. An item that is written back touches `m` of
//! these, and costs their writes. One that is kept, and whose `l` lines of the processor leave alone,
//! costs `l` writes; none if its place is written again before. With the part `p` of items whose
//! place ends soon after it was written, keeping pays if `(1 - p) l < m`.
//!
//! [`Flush::Auto`] measures `p` in slabs: the writers remember some of the places written last, and each
//! counts how many of the items it ends are among them. In logs a place is written again only when its
//! log was collected, whatever becomes of its item: there every line leaves, and `Auto` writes back at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::{Domain, Memory};

/// When the lines of an item are written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// As they must under ADR; under eADR at once, but for items in slabs that are expected to end before
    /// their lines would leave the caches.
    #[default]
    Auto,
    /// At once.
    Eager,
    /// When the caches evict them. Needs eADR.
    Keep,
}

/// A line of the medium: of Optane, and the smallest of CXL flash (paper 000, table 3.1).
const MEDIUM_LINE_BYTES: u64 = 256;
const LINE_BYTES: u64 = 64;
/// One place in so many is looked at, always the same ones.
const SAMPLED: u64 = 8;
/// Places remembered: those of the last few thousand items, a megabyte if they are of 256 bytes.
const PLACES: usize = 512;
/// Items looked at, of those ended, between two judgements.
const WINDOW: u64 = 128;

/// The places that all writers wrote last, by their hash; 0: none.
#[derive(Debug)]
pub(crate) struct Recent(Box<[AtomicU64]>);

/// A writer's policy.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    flush: Flush,
    /// Nothing where there is nothing to measure.
    recent: Option<Arc<Recent>>,
    ended: u64,
    ended_soon: u64,
    /// Of a window of items ended, how many were written a short while before.
    soon: u64,
}

impl Flusher {
    /// Of so many writers whose places are written again soon after their items ended.
    pub fn of_slabs(flush: Flush, domain: Domain, writers: usize) -> impl Iterator<Item = Flusher> {
        let measures = flush == Flush::Auto && domain == Domain::Eadr;
        let recent = measures.then(|| Arc::new(Recent((0..PLACES).map(|_| 0.into()).collect())));
        (0..writers).map(move |_| Flusher { flush, recent: recent.clone(), ..Flusher::default() })
    }

    /// Of a writer whose places are not.
    pub fn of_log(flush: Flush) -> Flusher {
        Flusher { flush, ..Flusher::default() }
    }

    /// Makes an item of `bytes` at `at` durable on a byte-addressable memory.
    ///
    /// # Safety
    /// As for [`Memory::persist`].
    #[inline(always)]
    pub unsafe fn persist<M: Memory>(&mut self, memory: &M, at: u64, bytes: u64) {
        if memory.domain() == Domain::Eadr && self.writes_back(bytes) {
            // SAFETY: by contract.
            unsafe { memory.write_back(at, bytes) };
        }
        // SAFETY: by contract.
        unsafe { memory.persist(at, bytes) };
        if let Some((recent, place)) = self.sampled(at) {
            recent.0[place].store(at, Ordering::Relaxed);
        }
    }

    fn writes_back(&self, bytes: u64) -> bool {
        match self.flush {
            Flush::Eager => true,
            Flush::Keep => false,
            // An item may begin anywhere: the lines that it touches on the average, of the medium's size
            // each, so that there are no fractions.
            Flush::Auto => {
                let more = bytes.saturating_sub(1);
                let medium_lines = MEDIUM_LINE_BYTES + more;
                let lines = MEDIUM_LINE_BYTES + more * (MEDIUM_LINE_BYTES / LINE_BYTES);
                (WINDOW - self.soon) * lines >= WINDOW * medium_lines
            }
        }
    }

    /// The item at `at` has ended.
    #[inline(always)]
    pub fn ended(&mut self, at: u64) {
        let Some((recent, place)) = self.sampled(at) else { return };
        let is_recent = recent.0[place].load(Ordering::Relaxed) == at;
        self.ended += 1;
        self.ended_soon += u64::from(is_recent);
        if self.ended == WINDOW {
            self.soon = self.ended_soon;
            (self.ended, self.ended_soon) = (0, 0);
        }
    }

    /// Where a place is remembered, if it is one of those looked at.
    #[inline(always)]
    fn sampled(&self, at: u64) -> Option<(&Recent, usize)> {
        let recent = self.recent.as_ref()?;
        let hash = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32).is_multiple_of(SAMPLED).then(|| (&**recent, hash as usize >> 55))
    }
}
