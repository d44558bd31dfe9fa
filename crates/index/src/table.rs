//! A concurrent hash index that grows one bucket at a time (linear hashing).
//!
//! A bucket is one cache line: a header and seven entries of 8 bytes, tag (16 to 28 bits of the hash)
//! and location; what does not fit chains into overflow lines. Readers take no lock and
//! write nothing. Writers lock one bucket by a bit in its header. When the table grows, bucket
//! `s` is split into `s` and `s + 2^L`; nothing else moves, so growth never stops the world and
//! the load, and with it the memory per key, stays level at every size.
//!
//! # Why a lock-free reader is right
//! * A *hit* compares the whole key in the item, so it is always true at the moment the entry was
//!   read. Items stay readable for as long as a reader may hold their location (the owner of the
//!   items defers reuse; see the epochs in `durable`).
//! * A *miss* may only be believed if no entry of the bucket was moved while it was scanned.
//!   A split first publishes the new bucket count, then raises the version in the header, then
//!   removes entries; a reader that misses re-reads both and scans again if either changed. Whoever
//!   pulls entries out of overflow lines (a split, or a removal that leaves few) copies them, then
//!   raises the version with the unlinking, before a line is freed.
//! * An update replaces one entry by one store; a reader sees the old or the new location.
//! * An item that is overwritten where it lies is overwritten under the bucket's lock, and the
//!   version is raised before that is released; a copy is believed only if the header was
//!   unlocked before and is the same after ([`HashIndex::watch`]).
//!
//! Cost: a lookup reads one line of the table and the item; the share of buckets with an overflow
//! line is [`Stats::overflow_lines`] over [`Stats::buckets`].

mod bucket;
mod growth;
mod line;
mod overflow;
mod repair;
mod saved;
mod shard;
mod version_lock;

use crate::{COMMIT_BYTES, Reserved};
use bucket::LockedBucket;
use crossbeam_utils::CachePadded;
use line::*;
pub use saved::{Layout, Loaded};
pub use shard::Watch;
use shard::{Persistence, Shard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_memory::{Backing, Budget, Memory, Native};

/// What the index must be told about the items its locations name.
pub trait Items {
    /// Whether the item at `location` has this key.
    fn has_key(&self, location: u64, key: &[u8]) -> bool;
    /// The same of an item in a bucket that is locked.
    #[inline(always)]
    fn has_key_locked(&self, location: u64, key: &[u8], _lock: &BucketLock) -> bool {
        self.has_key(location, key)
    }
    /// The hash of the key of the item at `location`, if it can be told: a damaged one has none, and its bucket is not
    /// split.
    fn hash(&self, location: u64) -> Option<u64>;
    /// The same of an item in a bucket that is locked.
    fn hash_locked(&self, location: u64, _lock: &BucketLock) -> Option<u64> {
        self.hash(location)
    }
    /// Asks for the item to be brought near.
    fn prefetch(&self, location: u64);
    /// Called between two tries to lock a bucket that another thread has: where the threads are
    /// scheduled by the memory below, it is the other's turn.
    #[inline(always)]
    fn pause(&self) {}
    /// Changes the words together, durably on return, and runs `publish` when that is certain and none
    /// of them is stored yet: where the index's changes are sections ([`HashIndex::use_sections`]).
    fn commit(&self, changes: &mut Changes, _publish: impl FnOnce()) {
        unreachable!("{} words of a section where there are none", changes.len());
    }
}

/// What a writer does to a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leaves it as it is.
    Keep,
    /// Makes the key point to this location (not zero, below 2^48).
    Set(u64),
    /// Leaves the entry as it is, but its item was overwritten where it lies: whoever copied it
    /// meanwhile copies it again.
    Overwritten,
    /// Removes the key.
    Remove,
}

/// Where a key's entry is to be looked for; a hint that the table's growth may outdate.
pub struct Line<'a, I: Memory = Native> {
    shard: &'a Shard<I>,
    memory: &'a I,
    at: u64,
    /// Offset of the bucket's own line.
    bucket: u64,
}

impl<I: Memory> Clone for Line<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Memory> Copy for Line<'_, I> {}

impl<'a, I: Memory> Line<'a, I> {
    /// Asks for the line to be brought near, as one of many.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.memory.prefetch_of_many(self.at);
    }

    /// The same, for whoever will lock the bucket.
    #[inline(always)]
    pub fn prefetch_to_write(&self) {
        self.memory.prefetch_to_write(self.at);
    }

    /// A location whose tag fits `hash`. Its item must be verified; if it is not the key's, or
    /// there is none, only [`HashIndex::get`] knows.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u64> {
        let tags = self.shard.tags;
        let slot = matching_slots(self.memory, self.at, tags, hash).trailing_zeros();
        if slot == 32 {
            return None;
        }
        // SAFETY: a slot of a committed line; taken again, since only its tag was kept.
        let entry = unsafe { self.memory.load(self.at + u64::from(slot) * 8) };
        if self.shard.persistence == Persistence::Words {
            // After the entry: what the holder of the lock has just stored may not be durable yet.
            // SAFETY: the header of a committed bucket.
            let header = unsafe { self.shard.buckets.load(self.bucket) };
            if self.shard.is_locked(header) {
                return None;
            }
        }
        tags.has(entry, hash).then_some(tags.location(entry)).filter(|l| *l != 0)
    }

    /// The overflow line behind this one, if there is one.
    #[inline(always)]
    pub fn next(&self) -> Option<Line<'a, I>> {
        // SAFETY: the header of a committed line.
        let next = unsafe { self.memory.load(self.at) } >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        (next != 0).then_some(Line { memory: &self.shard.overflow, at: next * LINE, ..*self })
    }
}

/// Position of an unordered scan: shard and bucket. 0 is the start and, returned, the end.
pub type Cursor = u64;

/// Where a cursor has the shard, above the bucket.
const SHARD_SHIFT: u32 = 48;
/// Bits of a location at the most.
const LOCATION_BITS_MOST: u32 = 48;

/// Sizes of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries.
    pub entries: u64,
    /// Buckets, one line each.
    pub buckets: u64,
    /// Overflow lines in use.
    pub overflow_lines: u64,
    /// Bytes of memory committed.
    pub bytes: u64,
}

/// The index. `shards` independent tables, chosen by hash, keep growth from being a bottleneck.
///
/// It lives in DRAM and is gone after a crash ([`HashIndex::new`]), or is *persistent* in a persistent
/// memory ([`HashIndex::persistent`]): then every change is durable when the bucket is let go, whoever reads
/// a change before that makes it durable first, and [`HashIndex::repair`] reopens what a crash left;
/// or the changes of an operation are words of one section ([`HashIndex::use_sections`]), and nothing
/// is left.
pub struct HashIndex<I: Memory = Native> {
    shards: Box<[CachePadded<Shard<I>>]>,
    shard_bits: u32,
}

impl HashIndex {
    /// An empty index of `shards` (a power of two) tables that may hold `capacity` entries at
    /// most. Memory is taken from `budget` as it grows.
    ///
    /// # Errors
    /// The kernel's, when it has no address space or memory for it.
    pub fn new(shards: usize, capacity: u64, budget: &Arc<Budget>) -> io::Result<HashIndex> {
        HashIndex::on_node(shards, capacity, 1 << LOCATION_BITS_MOST, None, budget)
    }

    /// As [`HashIndex::new`], of locations below `locations_end` (at most 2^48), with its memory from one NUMA node.
    /// Up to 2^44 it grows without a look at its items.
    ///
    /// # Errors
    /// The errors of [`HashIndex::new`]; the kernel's, when it does not bind memory to the node.
    pub fn on_node(
        shards: usize,
        capacity: u64,
        locations_end: u64,
        node: Option<u32>,
        budget: &Arc<Budget>,
    ) -> io::Result<HashIndex> {
        assert!(shards.is_power_of_two() && shards <= 256, "1 to 256 shards, a power of two");
        let per_shard = (capacity / shards as u64).max(1 << 16).next_power_of_two();
        let bytes = (per_shard * LINE / 2).next_multiple_of(COMMIT_BYTES);
        let region = |backing| Reserved::reserve(bytes, backing, node);
        // Overflow lines are few and rarely read: base pages and small steps waste less than they
        // cost.
        let regions: io::Result<Vec<_>> = (0..shards)
            .map(|_| Ok([region(Backing::HugePages)?, region(Backing::Anonymous)?]))
            .collect();
        let tags = Tags::of_locations_below(locations_end);
        HashIndex::over(regions?, Persistence::Nothing, tags, budget)
    }
}

impl<I: Memory> HashIndex<I> {
    /// An empty index that is rebuilt at each opening, as by [`HashIndex::new`], on given regions: of each
    /// of its tables (a power of two of them) for buckets and overflow lines, all of them zero. The
    /// bytes it takes there are counted in `budget`.
    ///
    /// # Errors
    /// Those of the regions.
    pub fn on(regions: Vec<[Reserved<I>; 2]>, budget: &Arc<Budget>) -> io::Result<HashIndex<I>> {
        HashIndex::over(regions, Persistence::Nothing, Tags::PERSISTENT, budget)
    }

    /// An empty index that is persistent: on the regions of each of its tables (a power of two of them) for
    /// buckets and overflow lines, all of them zero. The bytes it takes there are counted in `budget`.
    ///
    /// # Errors
    /// Those of the regions.
    pub fn persistent(
        regions: Vec<[Reserved<I>; 2]>,
        budget: &Arc<Budget>,
    ) -> io::Result<HashIndex<I>> {
        HashIndex::over(regions, Persistence::Words, Tags::PERSISTENT, budget)
    }

    /// From here on the changes of an operation on this persistent index are words of one section, which
    /// [`Items::commit`] commits. The allocation must have been [noted](HashIndex::note_allocation).
    pub fn use_sections(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.persistence = Persistence::Sections);
    }

    fn over(
        regions: Vec<[Reserved<I>; 2]>,
        persistence: Persistence,
        tags: Tags,
        budget: &Arc<Budget>,
    ) -> io::Result<HashIndex<I>> {
        let shards: io::Result<Vec<_>> = regions
            .into_iter()
            .map(|[buckets, overflow]| {
                Shard::new(buckets, overflow, persistence, tags, budget).map(CachePadded::new)
            })
            .collect();
        Ok(HashIndex::of(shards?))
    }

    fn of(shards: Vec<CachePadded<Shard<I>>>) -> HashIndex<I> {
        let shards = shards.into_boxed_slice();
        assert!(shards.len().is_power_of_two(), "a power of two tables");
        HashIndex { shard_bits: shards.len().trailing_zeros(), shards }
    }

    #[inline(always)]
    fn shard(&self, hash: u64) -> &Shard<I> {
        // The top bits: bucket numbers use the bottom ones. Two shifts, so that 0 bits is legal.
        &self.shards[(hash >> 1 >> (63 - self.shard_bits)) as usize]
    }

    /// The location of `key`. Lock-free.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8], items: &impl Items) -> Option<u64> {
        self.shard(hash).find(hash, |location| items.has_key(location, key))
    }

    /// A look at the bucket of `hash`: an item of its key that is copied between the look and
    /// [`Watch::saw_no_overwrite`] was not overwritten meanwhile if that says so.
    #[inline(always)]
    pub fn watch(&self, hash: u64) -> Watch<'_, I> {
        self.shard(hash).watch(hash)
    }

    /// The line `hash` is to be found in: the first stage of a batched lookup is to take the lines
    /// of many keys and bring them near, the second to ask each for its candidate and bring that
    /// item near, the third to verify.
    #[inline(always)]
    pub fn line(&self, hash: u64) -> Line<'_, I> {
        let shard = self.shard(hash);
        let bucket = bucket_of(hash, shard.count.load(Ordering::Acquire));
        Line { shard, memory: &shard.buckets, at: bucket * LINE, bucket: bucket * LINE }
    }

    /// Runs `f` on the current location of `key` while no other writer can change it, and does what
    /// `f` says (durably, if the index is persistent). Returns the location before. `f` must not touch this
    /// index.
    ///
    /// # Errors
    /// Those of the memory, when the index needs a line more; `f` has not run then.
    pub fn update(
        &self,
        hash: u64,
        key: &[u8],
        items: &impl Items,
        f: impl FnOnce(Option<u64>) -> Change,
    ) -> io::Result<Option<u64>> {
        self.update_then(hash, key, items, |location, _, _| (f(location), ()), |(), _| ())
    }

    /// As [`HashIndex::update`]; passes on to `then` what `f` gave beside, once the change is done, or
    /// is a word of the section, and still alone. Both may add words to the section.
    ///
    /// # Errors
    /// The errors of [`HashIndex::update`].
    pub fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &impl Items,
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        let is_key = |location, lock: &BucketLock| items.has_key_locked(location, key, lock);
        self.shard(hash).update(hash, items, is_key, f, then)
    }

    /// Runs `f` on the current location of `key`, if it has one, while no writer can change it.
    pub fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &impl Items,
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        let bucket = self.shard(hash).lock_bucket_of(hash, items);
        let is_key = |location| items.has_key_locked(location, key, &bucket.lock);
        let (_, _, entry) = bucket.find(hash, is_key)?;
        Some(f(bucket.shard.tags.location(entry)))
    }

    /// As [`HashIndex::update_then`], for the key whose entry is exactly `location`; `f` runs only if
    /// it still is. Returns whether it was: the compare-and-swap redirect of a collector.
    pub fn update_at(
        &self,
        hash: u64,
        location: u64,
        items: &impl Items,
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> bool {
        self.shard(hash).update_at(hash, location, items, f)
    }

    /// Whether some key's entry is exactly `location`. Lock-free.
    pub fn holds(&self, hash: u64, location: u64) -> bool {
        self.shard(hash).find(hash, |found| found == location).is_some()
    }

    /// Whether entries of keys with these hashes have one tag: of two keys whose tags differ, an entry of one never
    /// names an item of the other.
    pub fn have_one_tag(&self, a: u64, b: u64) -> bool {
        let tags = self.shards[0].tags;
        tags.of(a) == tags.of(b)
    }

    /// Visits the locations of whole buckets from `cursor` until at least `count` were seen;
    /// returns where to go on, 0 at the end. Every entry present from the first call to the last
    /// is visited at least once; one inserted, removed or moved meanwhile may be visited or not,
    /// or twice.
    pub fn scan(&self, cursor: Cursor, count: usize, mut visit: impl FnMut(u64)) -> Cursor {
        let shard_of = |cursor: Cursor| (cursor >> SHARD_SHIFT) as usize;
        let mut at = cursor;
        let mut seen = 0;
        while shard_of(at) < self.shards.len() {
            let shard = &self.shards[shard_of(at)];
            let bucket = at & ((1 << SHARD_SHIFT) - 1);
            if bucket >= shard.count.load(Ordering::Acquire) {
                at = (shard_of(at) as u64 + 1) << SHARD_SHIFT;
                continue;
            }
            if seen >= count {
                return at;
            }
            seen += shard.visit(bucket, &mut visit);
            at += 1;
        }
        0
    }

    /// Removes every entry. The caller holds off writers; readers see each key until its bucket
    /// is reached. The table keeps its size.
    pub fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.clear());
    }

    /// Entries in the index.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|s| s.entries.load(Ordering::Relaxed)).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What of the regions is in use, as sections find it: beginnings and lengths.
    pub fn used(&self) -> Vec<(u64, u64)> {
        self.shards.iter().flat_map(|shard| shard.used()).collect()
    }

    /// Sizes, summed over the shards.
    pub fn stats(&self) -> Stats {
        self.shards.iter().fold(Stats::default(), |sum, shard| {
            // Not under the lock of growth: whoever asks must not keep a table from growing.
            let bucket_bytes = shard.bucket_bytes.load(Ordering::Relaxed);
            let lines = shard.lines.lock();
            Stats {
                entries: sum.entries + shard.entries.load(Ordering::Relaxed),
                buckets: sum.buckets + shard.count.load(Ordering::Relaxed),
                overflow_lines: sum.overflow_lines + lines.next - 1 - lines.free.len() as u64,
                bytes: sum.bytes + lines.committed + bucket_bytes,
            }
        })
    }
}

#[cfg(test)]
mod tests;
