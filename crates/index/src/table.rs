//! A concurrent hash index that grows one bucket at a time (linear hashing).
//!
//! A bucket is one cache line: a header and seven entries of 8 bytes, tag (16 bits of the hash)
//! and location (48 bits); what does not fit chains into overflow lines. Readers take no lock and
//! write nothing. Writers lock one bucket by a bit in its header. When the table grows, bucket
//! `s` is split into `s` and `s + 2^L`; nothing else moves, so growth never stops the world and
//! the load, and with it the memory per key, stays level at every size.
//!
//! # Why a lock-free reader is right
//! * A *hit* compares the whole key in the item, so it is always true at the moment the entry was
//!   read. Items stay readable for as long as a reader may hold their location (the owner of the
//!   items defers reuse; see the epochs in `durable`).
//! * A *miss* may only be believed if no entry of the bucket was moved while it was scanned.
//!   Whoever moves entries (a split) first publishes the new bucket count, then raises the
//!   version in the header, then removes entries; a reader that misses re-reads both and scans
//!   again if either changed. A split raises the version again before it frees an overflow line.
//! * An update replaces one entry by one store; a reader sees the old or the new location.
//!
//! Cost: a lookup reads one line of the table and the item; the share of buckets with an overflow
//! line is [`Stats::overflow_lines`] over [`Stats::buckets`].

use crossbeam_utils::{Backoff, CachePadded};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::{Backing, Budget, Memory, Native, Region};

const LINE: u64 = 64;
const SLOTS: u64 = 7;
/// Keys per bucket the table grows at: 4.75 of 7 slots keeps overflow rare and an entry, with its
/// share of header and empty slots, below 14 bytes.
const LOAD_QUARTERS: u64 = 21;
const COMMIT_BYTES: u64 = 2 << 20;
const FIRST_COMMIT_BYTES: u64 = 64 << 10;
const FIRST_BUCKETS: u64 = 16;
const LOCATION_BITS: u32 = 48;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;

const LOCKED: u64 = 1;
const OVERFLOW_SHIFT: u32 = 1;
const OVERFLOW_MASK: u64 = (1 << 31) - 1;
const VERSION_UNIT: u64 = 1 << 32;

/// What the index must be told about the items its locations name.
pub trait Items {
    /// Whether the item at `location` has this key.
    fn has_key(&self, location: u64, key: &[u8]) -> bool;
    /// The hash of the key of the item at `location`.
    fn hash(&self, location: u64) -> u64;
    /// Asks for the item to be brought near.
    fn prefetch(&self, location: u64);
}

/// What a writer does to a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leaves it as it is.
    Keep,
    /// Makes the key point to this location (not zero, below 2^48).
    Set(u64),
    /// Removes the key.
    Remove,
}

/// Where a key's entry is to be looked for; a hint that the table's growth may outdate.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    shard: &'a Shard,
    memory: &'a Native,
    at: u64,
}

impl<'a> Line<'a> {
    /// Asks for the line to be brought near.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.memory.prefetch(self.at);
    }

    /// A location whose tag fits `hash`. Its item must be verified; if it is not the key's, or
    /// there is none, only [`HashIndex::get`] knows.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u64> {
        let slot = matching_slots(self.memory, self.at, hash).trailing_zeros();
        if slot == 32 {
            return None;
        }
        // SAFETY: a slot of a committed line; taken again, since only its tag was kept.
        let entry = unsafe { self.memory.load(self.at + u64::from(slot) * 8) };
        (entry & !LOCATION_MASK == tag_of(hash)).then_some(entry & LOCATION_MASK).filter(|l| *l != 0)
    }

    /// The overflow line behind this one, if there is one.
    #[inline(always)]
    pub fn next(&self) -> Option<Line<'a>> {
        // SAFETY: the header of a committed line.
        let next = unsafe { self.memory.load(self.at) } >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        (next != 0).then_some(Line { memory: &self.shard.overflow, at: next * LINE, ..*self })
    }
}

/// The slots of the line at `at` whose entries have the tag of `hash`, as bits 1 to 7. Without
/// branches: which slot it is cannot be predicted.
#[inline(always)]
fn matching_slots(memory: &Native, at: u64, hash: u64) -> u32 {
    // SAFETY: a committed line.
    let words = unsafe { memory.load_line(at) };
    let tag = tag_of(hash) >> LOCATION_BITS;
    let equal = words.map(|word| u32::from(word >> LOCATION_BITS == tag));
    (1..8).fold(0, |slots, slot| slots | equal[slot] << slot)
}

/// Position of an unordered scan: shard and bucket. 0 is the start and, returned, the end.
pub type Cursor = u64;

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
pub struct HashIndex {
    shards: Box<[CachePadded<Shard>]>,
    shard_bits: u32,
}

struct Shard {
    buckets: Native,
    overflow: Native,
    /// Buckets in the table; grows only.
    count: AtomicU64,
    entries: AtomicU64,
    growth: Mutex<Growth>,
    lines: Mutex<OverflowLines>,
    budget: Arc<Budget>,
    bucket_region: Region,
    overflow_region: Region,
}

struct Growth {
    committed: u64,
}

struct OverflowLines {
    free: Vec<u64>,
    next: u64,
    committed: u64,
}

#[inline(always)]
fn bucket_of(hash: u64, count: u64) -> u64 {
    let mask = (count.next_power_of_two()) - 1;
    let bucket = hash & mask;
    if bucket < count { bucket } else { hash & (mask >> 1) }
}

#[inline(always)]
fn tag_of(hash: u64) -> u64 {
    // Bits 40..56: clear of the bucket number below and the shard above.
    (hash >> 40) << LOCATION_BITS
}

#[inline(always)]
fn entry(hash: u64, location: u64) -> u64 {
    debug_assert!(location != 0 && location <= LOCATION_MASK);
    tag_of(hash) | location
}

impl HashIndex {
    /// An empty index of `shards` (a power of two) tables that may hold `capacity` entries at
    /// most. Memory is taken from `budget` as it grows.
    ///
    /// # Errors
    /// The kernel's, when it has no address space or memory for it.
    pub fn new(shards: usize, capacity: u64, budget: &Arc<Budget>) -> io::Result<HashIndex> {
        assert!(shards.is_power_of_two() && shards <= 256, "1 to 256 shards, a power of two");
        let per_shard = (capacity / shards as u64).max(1 << 16).next_power_of_two();
        let shards: io::Result<Vec<_>> =
            (0..shards).map(|_| Shard::new(per_shard, budget).map(CachePadded::new)).collect();
        let shards = shards?.into_boxed_slice();
        Ok(HashIndex { shard_bits: shards.len().trailing_zeros(), shards })
    }

    #[inline(always)]
    fn shard(&self, hash: u64) -> &Shard {
        // The top bits: bucket numbers use the bottom ones. Two shifts, so that 0 bits is legal.
        &self.shards[(hash >> 1 >> (63 - self.shard_bits)) as usize]
    }

    /// The location of `key`. Lock-free.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8], items: &impl Items) -> Option<u64> {
        self.shard(hash).find(hash, |location| items.has_key(location, key))
    }

    /// The line `hash` is to be found in: the first stage of a batched lookup is to take the lines
    /// of many keys and bring them near, the second to ask each for its candidate and bring that
    /// item near, the third to verify.
    #[inline(always)]
    pub fn line(&self, hash: u64) -> Line<'_> {
        let shard = self.shard(hash);
        let bucket = bucket_of(hash, shard.count.load(Ordering::Acquire));
        Line { shard, memory: &shard.buckets, at: bucket * LINE }
    }

    /// Runs `f` on the current location of `key` while no other writer can change it, and does
    /// what `f` says. Returns the location before. `f` must not touch this index.
    pub fn update(
        &self,
        hash: u64,
        key: &[u8],
        items: &impl Items,
        f: impl FnOnce(Option<u64>) -> Change,
    ) -> Option<u64> {
        self.shard(hash).update(hash, items, |location| items.has_key(location, key), f)
    }

    /// As [`HashIndex::update`], for the key whose entry is exactly `location`; `f` runs only if
    /// it still is. Returns whether it was: the compare-and-swap redirect of a collector.
    pub fn update_at(&self, hash: u64, location: u64, items: &impl Items, f: impl FnOnce() -> Change) -> bool {
        let mut ran = false;
        self.shard(hash).update(hash, items, |l| l == location, |found| match found {
            Some(_) => {
                ran = true;
                f()
            }
            None => Change::Keep,
        });
        ran
    }

    /// Whether some key's entry is exactly `location`. Lock-free.
    pub fn holds(&self, hash: u64, location: u64) -> bool {
        self.shard(hash).find(hash, |found| found == location).is_some()
    }

    /// Visits the locations of whole buckets from `cursor` until at least `count` were seen;
    /// returns where to go on, 0 at the end. Every entry present from the first call to the last
    /// is visited at least once; one inserted, removed or moved meanwhile may be visited or not,
    /// or twice.
    pub fn scan(&self, cursor: Cursor, count: usize, mut visit: impl FnMut(u64)) -> Cursor {
        let shard_of = |cursor: Cursor| (cursor >> LOCATION_BITS) as usize;
        let mut at = cursor;
        let mut seen = 0;
        while shard_of(at) < self.shards.len() {
            let shard = &self.shards[shard_of(at)];
            let bucket = at & LOCATION_MASK;
            if bucket >= shard.count.load(Ordering::Acquire) {
                at = (shard_of(at) as u64 + 1) << LOCATION_BITS;
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

    /// Sizes, summed over the shards.
    pub fn stats(&self) -> Stats {
        self.shards.iter().fold(Stats::default(), |sum, shard| {
            let lines = shard.lines.lock();
            Stats {
                entries: sum.entries + shard.entries.load(Ordering::Relaxed),
                buckets: sum.buckets + shard.count.load(Ordering::Relaxed),
                overflow_lines: sum.overflow_lines + lines.next - 1 - lines.free.len() as u64,
                bytes: sum.bytes + lines.committed + shard.growth.lock().committed,
            }
        })
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.budget.give(self.growth.get_mut().committed + self.lines.get_mut().committed);
    }
}

impl Shard {
    fn new(capacity: u64, budget: &Arc<Budget>) -> io::Result<Shard> {
        let round = |bytes: u64| bytes.next_multiple_of(COMMIT_BYTES);
        let bucket_region = Region::reserve(round(capacity * LINE / 2), Backing::HugePages)?;
        // Few and rarely read: base pages and small steps waste less than they cost.
        let overflow_region = Region::reserve(round(capacity * LINE / 2), Backing::Anonymous)?;
        bucket_region.commit(0, FIRST_COMMIT_BYTES)?;
        overflow_region.commit(0, FIRST_COMMIT_BYTES)?;
        budget.take_anyway(2 * FIRST_COMMIT_BYTES);
        Ok(Shard {
            buckets: bucket_region.native(),
            overflow: overflow_region.native(),
            count: AtomicU64::new(FIRST_BUCKETS),
            entries: AtomicU64::new(0),
            growth: Mutex::new(Growth { committed: FIRST_COMMIT_BYTES }),
            // Line 0 is never used: overflow number 0 means none.
            lines: Mutex::new(OverflowLines { free: Vec::new(), next: 1, committed: FIRST_COMMIT_BYTES }),
            budget: Arc::clone(budget),
            bucket_region,
            overflow_region,
        })
    }

    #[inline(always)]
    fn find(&self, hash: u64, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let tag = tag_of(hash);
        loop {
            let count = self.count.load(Ordering::Acquire);
            let bucket = bucket_of(hash, count);
            // SAFETY: buckets below the count are committed; the header is an aligned word.
            let first = unsafe { self.buckets.load(bucket * LINE) };
            let mut memory = &self.buckets;
            let mut line = bucket * LINE;
            let mut header = first;
            loop {
                let mut slots = matching_slots(memory, line, hash);
                while slots != 0 {
                    // SAFETY: slots of a committed line are aligned words.
                    let entry = unsafe { memory.load(line + u64::from(slots.trailing_zeros()) * 8) };
                    let location = entry & LOCATION_MASK;
                    if location != 0 && entry & !LOCATION_MASK == tag && is_it(location) {
                        return Some(location);
                    }
                    slots &= slots - 1;
                }
                let next = header >> OVERFLOW_SHIFT & OVERFLOW_MASK;
                if next == 0 {
                    break;
                }
                memory = &self.overflow;
                line = next * LINE;
                // SAFETY: an overflow number names a committed line.
                header = unsafe { memory.load(line) };
            }
            // SAFETY: as for `first`.
            let last = unsafe { self.buckets.load(bucket * LINE) };
            let unmoved = (first ^ last) & !LOCKED == 0;
            if unmoved && bucket_of(hash, self.count.load(Ordering::Acquire)) == bucket {
                return None;
            }
        }
    }

    fn update(
        &self,
        hash: u64,
        items: &impl Items,
        is_key: impl Fn(u64) -> bool,
        f: impl FnOnce(Option<u64>) -> Change,
    ) -> Option<u64> {
        let bucket = self.lock_bucket_of(hash);
        let found = bucket.find(hash, is_key);
        let before = found.map(|(_, _, entry)| entry & LOCATION_MASK);
        let change = f(before);
        let mut inserted = false;
        match (change, found) {
            (Change::Keep, _) | (Change::Remove, None) => {}
            (Change::Set(location), Some((memory, at, _))) => {
                // SAFETY: `find` returned the place of a slot of this locked bucket.
                unsafe { memory.store(at, entry(hash, location)) };
            }
            (Change::Set(location), None) => {
                bucket.insert(entry(hash, location));
                self.entries.fetch_add(1, Ordering::Relaxed);
                inserted = true;
            }
            (Change::Remove, Some((memory, at, _))) => {
                // SAFETY: as above.
                unsafe { memory.store(at, 0) };
                self.entries.fetch_sub(1, Ordering::Relaxed);
            }
        }
        drop(bucket);
        if inserted {
            self.grow_if_full(items);
        }
        before
    }

    fn lock_bucket_of(&self, hash: u64) -> LockedBucket<'_> {
        loop {
            let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
            let locked = self.lock(bucket);
            if bucket_of(hash, self.count.load(Ordering::Acquire)) == bucket {
                return locked;
            }
        }
    }

    fn lock(&self, bucket: u64) -> LockedBucket<'_> {
        let backoff = Backoff::new();
        let at = bucket * LINE;
        loop {
            // SAFETY: the header of a bucket below the count, an aligned word.
            let header = unsafe { self.buckets.load(at) };
            // SAFETY: as above.
            if header & LOCKED == 0 && unsafe { self.buckets.compare_exchange(at, header, header | LOCKED) }.is_ok() {
                return LockedBucket { shard: self, at };
            }
            backoff.snooze();
        }
    }

    fn clear(&self) {
        let _no_growth = self.growth.lock();
        for bucket in 0..self.count.load(Ordering::Acquire) {
            let locked = self.lock(bucket);
            let mut removed = 0;
            locked.each(|memory, at, _| {
                // SAFETY: the place of a slot of the locked bucket.
                unsafe { memory.store(at, 0) };
                removed += 1;
            });
            locked.pull_in_overflow();
            self.entries.fetch_sub(removed, Ordering::Relaxed);
        }
    }

    fn visit(&self, bucket: u64, visit: &mut impl FnMut(u64)) -> usize {
        // Locked, so that no split moves an entry from behind the scan to before it.
        let mut found = [0u64; 64];
        let mut seen = 0;
        let mut more = Vec::new();
        {
            let locked = self.lock(bucket);
            locked.each(|_, _, entry| {
                if seen < found.len() {
                    found[seen] = entry & LOCATION_MASK;
                } else {
                    more.push(entry & LOCATION_MASK);
                }
                seen += 1;
            });
        }
        found[..seen.min(64)].iter().copied().chain(more).for_each(visit);
        seen
    }

    fn grow_if_full(&self, items: &impl Items) {
        let full = |shard: &Shard| {
            let count = shard.count.load(Ordering::Relaxed);
            shard.entries.load(Ordering::Relaxed) * 4 > count * LOAD_QUARTERS
        };
        if !full(self) {
            return;
        }
        let Some(mut growth) = self.growth.try_lock() else { return };
        // Two at a time: a table that fell behind catches up.
        for _ in 0..2 {
            if !full(self) || !self.make_room(&mut growth) {
                return;
            }
            self.split(items);
        }
    }

    /// Commits the line of the next bucket. At the end of the reserved range or of the system's
    /// memory the table stays as it is: chains grow instead.
    fn make_room(&self, growth: &mut Growth) -> bool {
        let needed = (self.count.load(Ordering::Relaxed) + 1) * LINE;
        if needed <= growth.committed {
            return true;
        }
        let step = growth.committed.min(COMMIT_BYTES);
        if needed > self.bucket_region.len() || self.bucket_region.commit(growth.committed, step).is_err() {
            return false;
        }
        self.budget.take_anyway(step);
        growth.committed += step;
        true
    }

    /// Splits the next bucket in turn. Under the growth lock.
    fn split(&self, items: &impl Items) {
        let count = self.count.load(Ordering::Relaxed);
        let level = if count.is_power_of_two() { count } else { count.next_power_of_two() / 2 };
        let source = self.lock(count - level);
        let mut moving = Vec::with_capacity(8);
        source.each(|_, _, entry| items.prefetch(entry & LOCATION_MASK));
        let mut staying = 0;
        source.each(|memory, at, entry| {
            if items.hash(entry & LOCATION_MASK) & level == 0 {
                staying += 1;
            } else {
                moving.push((memory, at, entry));
            }
        });
        // The new bucket is filled before anyone can see it ...
        let target = LockedBucket { shard: self, at: count * LINE };
        // SAFETY: the line was committed by `make_room` and is not yet visible to anyone.
        unsafe { self.buckets.store(target.at, LOCKED) };
        for (_, _, entry) in &moving {
            target.insert(*entry);
        }
        drop(target);
        // ... then the count is published, then the version raised, then entries removed: the
        // order a missing reader relies on.
        self.count.store(count + 1, Ordering::Release);
        source.raise_version();
        for (memory, at, _) in &moving {
            // SAFETY: the place of a slot of the locked bucket.
            unsafe { memory.store(*at, 0) };
        }
        if staying <= SLOTS as usize {
            source.pull_in_overflow();
        }
    }

    fn take_overflow_line(&self) -> u64 {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.free.pop() {
            return line;
        }
        if (lines.next + 1) * LINE > lines.committed {
            let step = lines.committed.min(COMMIT_BYTES / 8);
            self.overflow_region
                .commit(lines.committed, step)
                .expect("the system has memory for one more step of the index");
            self.budget.take_anyway(step);
            lines.committed += step;
        }
        lines.next += 1;
        lines.next - 1
    }
}

/// A bucket whose header bit is held; released on drop, panics included.
struct LockedBucket<'a> {
    shard: &'a Shard,
    at: u64,
}

type Place<'a> = (&'a Native, u64, u64);

impl<'a> LockedBucket<'a> {
    fn header(&self) -> u64 {
        // SAFETY: the header of a committed bucket.
        unsafe { self.shard.buckets.load(self.at) }
    }

    fn each(&self, mut f: impl FnMut(&'a Native, u64, u64)) {
        self.walk(|memory, at, entry| {
            if entry != 0 {
                f(memory, at, entry);
            }
            None::<()>
        });
    }

    /// Visits every slot, empty ones included, until `f` returns something.
    fn walk<R>(&self, mut f: impl FnMut(&'a Native, u64, u64) -> Option<R>) -> Option<R> {
        let mut memory = &self.shard.buckets;
        let mut line = self.at;
        let mut header = self.header();
        loop {
            for slot in 1..=SLOTS {
                let at = line + slot * 8;
                // SAFETY: a slot of a committed line.
                if let Some(found) = f(memory, at, unsafe { memory.load(at) }) {
                    return Some(found);
                }
            }
            let next = header >> OVERFLOW_SHIFT & OVERFLOW_MASK;
            if next == 0 {
                return None;
            }
            memory = &self.shard.overflow;
            line = next * LINE;
            // SAFETY: an overflow number names a committed line.
            header = unsafe { memory.load(line) };
        }
    }

    /// The slot of the entry with the tag of `hash` that is the key's.
    fn find(&self, hash: u64, is_key: impl Fn(u64) -> bool) -> Option<Place<'a>> {
        let tag = tag_of(hash);
        self.walk(|memory, at, entry| {
            (entry & !LOCATION_MASK == tag && entry != 0 && is_key(entry & LOCATION_MASK))
                .then_some((memory, at, entry))
        })
    }

    fn insert(&self, entry: u64) {
        let empty = self.walk(|memory, at, found| (found == 0).then_some((memory, at)));
        if let Some((memory, at)) = empty {
            // SAFETY: an empty slot of the locked bucket.
            unsafe { memory.store(at, entry) };
            return;
        }
        let line = self.shard.take_overflow_line();
        let chain = self.header() >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        // The new line goes to the head of the chain, complete before it is linked.
        // SAFETY: the line is committed and owned until the header below makes it reachable.
        unsafe {
            for slot in 2..=SLOTS {
                self.shard.overflow.store(line * LINE + slot * 8, 0);
            }
            self.shard.overflow.store(line * LINE + 8, entry);
            self.shard.overflow.store(line * LINE, chain << OVERFLOW_SHIFT);
            let header = self.header() & !(OVERFLOW_MASK << OVERFLOW_SHIFT);
            self.shard.buckets.store(self.at, header | line << OVERFLOW_SHIFT);
        }
    }

    fn raise_version(&self) {
        // SAFETY: the header of the locked bucket; only the holder writes it.
        unsafe { self.shard.buckets.store(self.at, self.header().wrapping_add(VERSION_UNIT)) };
    }

    /// Moves what is left in overflow lines into the bucket's own line and frees them. Copies are
    /// made before the chain is unlinked, and the version is raised with the unlinking.
    fn pull_in_overflow(&self) {
        let header = self.header();
        let mut next = header >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        if next == 0 {
            return;
        }
        let mut kept = Vec::new();
        let mut empty = Vec::new();
        self.walk(|memory, at, entry| {
            let own = std::ptr::eq(memory, &self.shard.buckets);
            if own && entry == 0 {
                empty.push(at);
            } else if !own && entry != 0 {
                kept.push(entry);
            }
            None::<()>
        });
        for (entry, at) in kept.iter().zip(&empty) {
            // SAFETY: an empty slot of the locked bucket's own line.
            unsafe { self.shard.buckets.store(*at, *entry) };
        }
        let cleared = header & !(OVERFLOW_MASK << OVERFLOW_SHIFT);
        // SAFETY: the header of the locked bucket.
        unsafe { self.shard.buckets.store(self.at, cleared.wrapping_add(VERSION_UNIT)) };
        let mut lines = self.shard.lines.lock();
        while next != 0 {
            lines.free.push(next);
            // SAFETY: an overflow number names a committed line.
            next = unsafe { self.shard.overflow.load(next * LINE) } >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        }
    }
}

impl Drop for LockedBucket<'_> {
    fn drop(&mut self) {
        // SAFETY: the header of the locked bucket; only the holder writes it.
        unsafe { self.shard.buckets.store(self.at, self.header() & !LOCKED) };
    }
}

#[cfg(test)]
mod tests;
