//! Which parts of a queue's file have blocks on the disk, and memory of the budget: those that its elements have
//! reached.
//!
//! A ring goes round its file, so that in the end it has all of it; a queue that is new, or was never long, has not.
//! On a byte-addressable medium the file is the memory, and all of it is there from the start: a store to a part
//! without blocks could not be refused.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use terrace_durable::Medium;
use terrace_memory::{Budget, Memory};

/// Bytes that are allocated at a time.
const CHUNK_BYTES: u64 = 1 << 20;

pub(super) struct Allocated {
    /// By chunk of the file, whether it is there.
    chunks: Box<[AtomicBool]>,
    /// How many are not.
    left: AtomicUsize,
    making: Mutex<()>,
    budget: Arc<Budget>,
    taken: AtomicU64,
    /// Slots that pushes under way are about to claim.
    expected: AtomicU64,
}

/// A push under way, until its slots are claimed.
pub(super) struct Expected<'a> {
    slots: u64,
    all: &'a AtomicU64,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.slots, Ordering::SeqCst);
    }
}

impl Allocated {
    /// Of a file of so many bytes, all of it there or none. `taken`: bytes of the budget that were taken for it.
    pub fn new(bytes: u64, all: bool, budget: &Arc<Budget>, taken: u64) -> Allocated {
        let chunks: Box<[_]> =
            (0..bytes.div_ceil(CHUNK_BYTES)).map(|_| AtomicBool::new(all)).collect();
        let left = AtomicUsize::new(if all { 0 } else { chunks.len() });
        let (making, budget) = (Mutex::new(()), Arc::clone(budget));
        let (taken, expected) = (AtomicU64::new(taken), AtomicU64::new(0));
        Allocated { chunks, left, making, budget, taken, expected }
    }

    /// Whether all of the file is there.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Notes that so many slots are about to be claimed; how many there are in all now, of every push under way.
    ///
    /// Whoever asks for the head then, and ensures so many slots from there on, has ensured its own wherever they come
    /// to lie: of those whose slots come before, who began earlier is counted, and who began later has ensured these
    /// slots too, before it claimed its own.
    pub fn expect(&self, slots: u64) -> (Expected<'_>, u64) {
        let before = self.expected.fetch_add(slots, Ordering::SeqCst);
        (Expected { slots, all: &self.expected }, before + slots)
    }

    /// Sees to it that `[at, at + bytes)` of the file is there.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::DiskFull`]: what is missing stays so.
    #[inline]
    pub fn ensure<M: Memory>(&self, medium: &Medium<M>, at: u64, bytes: u64) -> Result<()> {
        self.missing(at, bytes).try_for_each(|chunk| self.make(medium, chunk, false))
    }

    /// The same for elements that are there already, whatever the budget says, and a full disk: what lies around them
    /// is asked for again by who pushes.
    ///
    /// # Errors
    /// [`Error::Medium`].
    pub fn adopt<M: Memory>(&self, medium: &Medium<M>, at: u64, bytes: u64) -> Result<()> {
        self.missing(at, bytes).try_for_each(|chunk| match self.make(medium, chunk, true) {
            Err(Error::DiskFull { .. }) => Ok(()),
            made => made,
        })
    }

    /// The chunks of `[at, at + bytes)` that are not there.
    #[inline]
    fn missing(&self, at: u64, bytes: u64) -> impl Iterator<Item = usize> {
        let chunks = at / CHUNK_BYTES..(at + bytes).div_ceil(CHUNK_BYTES);
        let chunks = chunks.map(|chunk| chunk as usize).filter(move |_| bytes > 0);
        chunks.filter(|chunk| {
            self.chunks.get(*chunk).is_some_and(|there| !there.load(Ordering::Acquire))
        })
    }

    #[cold]
    fn make<M: Memory>(&self, medium: &Medium<M>, chunk: usize, anyway: bool) -> Result<()> {
        let _one = self.making.lock();
        let there = &self.chunks[chunk];
        if there.load(Ordering::Acquire) {
            return Ok(());
        }
        let at = chunk as u64 * CHUNK_BYTES;
        let bytes = CHUNK_BYTES.min(medium.file_bytes()?.saturating_sub(at));
        take(&self.budget, bytes, anyway)?;
        medium.grow(at, bytes).inspect_err(|_| self.budget.give(bytes))?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        there.store(true, Ordering::Release);
        self.left.fetch_sub(1, Ordering::Release);
        Ok(())
    }
}

/// Takes from the budget, `anyway` beyond its limit.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(super) fn take(budget: &Budget, bytes: u64, anyway: bool) -> Result<()> {
    match anyway {
        true => budget.take_anyway(bytes),
        false => budget
            .take(bytes)
            .map_err(|spent| Error::OutOfMemory { used: spent.used, budget: spent.limit })?,
    }
    Ok(())
}

impl Drop for Allocated {
    fn drop(&mut self) {
        self.budget.give(self.taken.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use crate::queue::{Queue, QueueOptions};
    use std::sync::Arc;
    use terrace_memory::Budget;

    /// Two that pushed at once had room ensured for the same slots, and the second's came to lie behind them, in a
    /// part of the file without blocks: on a full disk that stopped the queue when it was written out.
    #[test]
    fn pushes_side_by_side_are_allocated_wherever_they_come_to_lie() {
        let dir = tempfile::tempdir().expect("directory");
        let budget = Arc::new(Budget::new(1 << 30));
        let queue = Queue::open(dir.path(), &QueueOptions::default(), &budget).expect("a queue");
        let (ring, element) = (&queue.inner.ring, vec![7; 1 << 20]);
        // Both have asked before either has claimed.
        let asked = [(); 2].map(|()| queue.provide(&[&element]).expect("room"));
        for _ in &asked {
            ring.try_push_all(&[&element]).expect("push");
        }
        for (at, bytes) in ring.ranges(0, ring.head()) {
            let missing: Vec<usize> = queue.inner.allocated.missing(at, bytes).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }
}
