//! The leaf mapping table: from a leaf's number to the head of its chain, in DRAM.
//!
//! An entry is two lines. The first is all that is known of a leaf; the second, addresses of the deltas
//! behind the head, newest first, so that a reader asks for all of them before it walks (Ni, section 5.4.3,
//! "Hiding access latencies with prefetching"). An index that remembers one address leaves it alone.
//!
//! The first word is a version and a latch: odd while a writer has the leaf, and another even number
//! afterwards. A reader believes what it saw between two looks at the same even number. Numbers of leaves are
//! used again, versions go on.

use super::record::{Ends, LINE};
use crate::keys::Keys;
use crate::latch;
use crate::{Commit, Reserved, grow_to};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_memory::{Budget, Claim, Memory};

const ENTRY_BYTES: u64 = 2 * LINE;
/// Addresses that can be remembered, that of the head among them.
pub(super) const RECENT_MOST: usize = 8;
/// Addresses behind the head that a recovery remembers.
const RECOVERED: usize = 6;
const LOW_48: u64 = (1 << 48) - 1;

/// What became of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// It is of no leaf.
    #[default]
    Free,
    /// It is a leaf's.
    Live,
    /// Its leaf is no more, but there are parts of it in logs: it must not be used again.
    Gone,
}

/// What is known of a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaf {
    /// Where its newest part lies; 0: there is none.
    pub(super) head: u64,
    /// Version of that part.
    pub(super) version: u64,
    /// Entries and deltas in its chain.
    pub(super) items: u8,
    /// Entries that count.
    pub(super) live: u8,
    /// Version of the part that its chain ends with.
    pub(super) base: u64,
    pub(super) state: State,
    /// Bytes of its chain in its own log, and in another.
    pub(super) bytes: u32,
    pub(super) other_bytes: u32,
    /// The segment's use, in another log than its own, in which a part of it lies or lay; its log.
    pub(super) other: Option<(u32, u64)>,
}

/// The table.
pub(super) struct Table<D: Memory> {
    pub(super) memory: D,
    _claim: Claim,
    commit: Commit,
    budget: Arc<Budget>,
    /// Where the first entry lies; before it, a line for each log.
    first: u64,
    /// Addresses remembered of each leaf, that of the head among them.
    recent: usize,
    committed: AtomicU64,
    allocation: Mutex<Allocation>,
}

struct Allocation {
    free: Vec<u32>,
    next: u32,
}

impl<D: Memory> Drop for Table<D> {
    fn drop(&mut self) {
        self.budget.give(self.committed.load(Relaxed));
    }
}

impl<D: Memory> Table<D> {
    /// An empty one, behind a line for each of `logs`. The region is zero.
    pub(super) fn new(
        region: Reserved<D>,
        logs: u32,
        recent: usize,
        budget: &Arc<Budget>,
    ) -> io::Result<Self> {
        let table = Table {
            _claim: region.claim(),
            memory: region.memory,
            commit: region.commit,
            budget: Arc::clone(budget),
            first: (u64::from(logs) * LINE).next_multiple_of(ENTRY_BYTES),
            recent,
            committed: AtomicU64::new(0),
            allocation: Mutex::new(Allocation { free: Vec::new(), next: 0 }),
        };
        table.commit_to(table.first)?;
        Ok(table)
    }

    /// Where the line of a log lies.
    #[inline(always)]
    pub(super) fn log_line(&self, log: u32) -> u64 {
        u64::from(log) * LINE
    }

    #[inline(always)]
    fn at(&self, leaf: u32) -> u64 {
        self.first + u64::from(leaf) * ENTRY_BYTES
    }

    /// Makes the entry of a leaf usable, and all before it.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] if the region ends before it, and those of the region.
    pub(super) fn cover(&self, leaf: u32) -> io::Result<()> {
        let end = self.at(leaf) + ENTRY_BYTES;
        if end <= self.committed.load(Acquire) {
            return Ok(());
        }
        let _one_at_a_time = self.allocation.lock();
        self.commit_to(end)
    }

    fn commit_to(&self, end: u64) -> io::Result<()> {
        let (region, committed) = ((&self.memory, &self.commit), self.committed.load(Acquire));
        let now = grow_to(end, committed, region, &self.budget, "the leaf mapping table is")?;
        self.committed.store(now, Release);
        Ok(())
    }

    /// A number that is free, latched; its version goes on.
    ///
    /// # Errors
    /// As [`Table::cover`].
    pub(super) fn take(&self, keys: &impl Keys) -> io::Result<(Latch<'_, D>, Leaf)> {
        let leaf = {
            let mut allocation = self.allocation.lock();
            match allocation.free.pop() {
                Some(leaf) => leaf,
                None => {
                    self.commit_to(self.at(allocation.next) + ENTRY_BYTES)?;
                    allocation.next += 1;
                    allocation.next - 1
                }
            }
        };
        let latch = self.latch(leaf, keys);
        let before = self.leaf(leaf);
        let version = before.version;
        Ok((latch, Leaf { version, base: version, state: State::Live, ..Leaf::default() }))
    }

    /// From here on there is nothing of a leaf; what was known of it. Its version goes on.
    pub(super) fn forget(&self, leaf: u32, keys: &impl Keys) -> Leaf {
        let latch = self.latch(leaf, keys);
        let before = self.leaf(leaf);
        latch.change();
        let version = before.version;
        self.set(leaf, &Leaf { version, base: version + 1, ..Leaf::default() });
        before
    }

    /// Takes a number back that is in no log any more.
    pub(super) fn give(&self, leaf: u32) {
        self.allocation.lock().free.push(leaf);
    }

    /// Numbers that were used.
    pub(super) fn used(&self) -> u32 {
        self.allocation.lock().next
    }

    /// From here on these are all numbers that were used, and those free.
    pub(super) fn resume(&self, next: u32, free: Vec<u32>) {
        *self.allocation.lock() = Allocation { free, next };
    }

    /// Leaves in use, and bytes.
    pub(super) fn sizes(&self) -> (u64, u64) {
        let allocation = self.allocation.lock();
        (u64::from(allocation.next) - allocation.free.len() as u64, self.committed.load(Relaxed))
    }

    /// Asks for an entry to be brought near, as one of many.
    #[inline(always)]
    pub(super) fn prefetch(&self, leaf: u32) {
        self.memory.prefetch_of_many(self.at(leaf));
        if self.recent > 1 {
            self.memory.prefetch_of_many(self.at(leaf) + LINE);
        }
    }

    /// Looks at a leaf as soon as no writer has it.
    #[inline(always)]
    pub(super) fn look(&self, leaf: u32, keys: &impl Keys) -> Seen {
        Seen { leaf, entry: latch::Seen::look(&self.memory, self.at(leaf), keys) }
    }

    /// Whether the leaf is as it was when it was seen.
    #[inline(always)]
    pub(super) fn holds(&self, seen: Seen) -> bool {
        seen.entry.holds(&self.memory)
    }

    /// Latches a leaf if it is as it was.
    #[inline(always)]
    pub(super) fn latch_seen(&self, seen: Seen) -> Option<Latch<'_, D>> {
        Some(Latch { leaf: seen.leaf, entry: seen.entry.latch(&self.memory)? })
    }

    /// Latches a leaf, whatever it is, when it is its turn. Whoever has another leaf's latch must not.
    pub(super) fn latch(&self, leaf: u32, keys: &impl Keys) -> Latch<'_, D> {
        Latch { leaf, entry: latch::Latch::wait(&self.memory, self.at(leaf), keys) }
    }

    /// Where the newest part of a leaf lies; it may be changing.
    #[inline(always)]
    pub(super) fn head(&self, leaf: u32) -> u64 {
        // SAFETY: a committed entry.
        unsafe { self.memory.load(self.at(leaf) + 8) }
    }

    /// What is known of a leaf; of one that is not latched it may be changing.
    #[inline(always)]
    pub(super) fn leaf(&self, leaf: u32) -> Leaf {
        // SAFETY: a committed entry.
        let words = unsafe { self.memory.load_line(self.at(leaf)) };
        let state = match words[3] >> 48 & 3 {
            1 => State::Live,
            2 => State::Gone,
            _ => State::Free,
        };
        let other = (words[5] != 0).then_some(((words[5] >> 48) as u32, words[5] & LOW_48));
        Leaf {
            head: words[1],
            version: words[2] & LOW_48,
            items: (words[2] >> 48) as u8,
            live: (words[2] >> 56) as u8,
            base: words[3] & LOW_48,
            state,
            bytes: words[4] as u32,
            other_bytes: (words[4] >> 32) as u32,
            other,
        }
    }

    /// Sets what is known of a leaf that the caller has for itself.
    #[inline(always)]
    pub(super) fn set(&self, leaf: u32, now: &Leaf) {
        let other = now.other.map_or(0, |(log, stamp)| u64::from(log) << 48 | stamp);
        let words = [
            now.head,
            now.version | u64::from(now.items) << 48 | u64::from(now.live) << 56,
            now.base | (now.state as u64) << 48,
            u64::from(now.bytes) | u64::from(now.other_bytes) << 32,
            other,
        ];
        for (word, at) in words.iter().zip((self.at(leaf) + 8..).step_by(8)) {
            // SAFETY: words of a committed entry, which readers take for what they are.
            unsafe { self.memory.store(at, *word) };
        }
    }

    /// Words of an entry that a recovery may use: between what is known and what is remembered.
    fn ends_at(&self, leaf: u32) -> [u64; 4] {
        let at = self.at(leaf);
        [at + 48, at + 56, at + LINE + 48, at + LINE + 56]
    }

    /// While the index is being recovered: the least and the greatest head of a leaf's chain.
    pub(super) fn ends(&self, leaf: u32) -> Ends {
        // SAFETY: words of a committed entry.
        let words = self.ends_at(leaf).map(|at| u128::from(unsafe { self.memory.load(at) }));
        Ends { least: words[0] << 64 | words[1], most: words[2] << 64 | words[3] }
    }

    /// Sets them.
    pub(super) fn set_ends(&self, leaf: u32, ends: Ends) {
        let words = [
            (ends.least >> 64) as u64,
            ends.least as u64,
            (ends.most >> 64) as u64,
            ends.most as u64,
        ];
        for (word, at) in words.into_iter().zip(self.ends_at(leaf)) {
            // SAFETY: as above; nobody else uses the index yet.
            unsafe { self.memory.store(at, word) };
        }
    }

    /// Addresses behind the head that are remembered, newest first, zeros at the end. They may be changing.
    #[inline(always)]
    pub(super) fn recent(&self, leaf: u32) -> [u64; 8] {
        if self.recent < 2 {
            return [0; 8];
        }
        // SAFETY: a committed entry.
        unsafe { self.memory.load_line(self.at(leaf) + LINE) }
    }

    /// Remembers an address as the newest behind the head, or with 0, forgets all.
    #[inline(always)]
    pub(super) fn remember(&self, leaf: u32, address: u64) {
        self.remember_of(leaf, address, self.recent);
    }

    /// The same while the index is being recovered, which needs some of the words itself.
    #[inline(always)]
    pub(super) fn remember_some(&self, leaf: u32, address: u64) {
        self.remember_of(leaf, address, self.recent.min(RECOVERED + 1));
    }

    #[inline(always)]
    fn remember_of(&self, leaf: u32, address: u64, recent: usize) {
        if recent < 2 {
            return;
        }
        let before = self.recent(leaf);
        let at = self.at(leaf) + LINE;
        let store = |word: usize, value: u64| {
            // SAFETY: a word of a committed entry that the caller has for itself.
            unsafe { self.memory.store(at + 8 * word as u64, value) };
        };
        store(0, address);
        for word in 1..recent - 1 {
            let value = if address == 0 { 0 } else { before[word - 1] };
            if before[word] != value {
                store(word, value);
            }
        }
    }
}

/// A leaf and the version it was seen with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) leaf: u32,
    entry: latch::Seen,
}

/// A latched leaf; let go on drop, panics included.
pub(super) struct Latch<'a, D: Memory> {
    pub(super) leaf: u32,
    entry: latch::Latch<'a, D>,
}

impl<D: Memory> Latch<'_, D> {
    /// Readers must see that something changed: said before it does.
    #[inline(always)]
    pub(super) fn change(&self) {
        self.entry.change();
    }
}
