//! One table of the index: its buckets, how it is searched, and how it grows.

use super::bucket::LockedBucket;
use super::line::*;
use super::{Change, Items};
use crossbeam_utils::Backoff;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::{Backing, Budget, Memory, Native, Region};

pub(super) struct Shard {
    pub(super) buckets: Native,
    pub(super) overflow: Native,
    /// Buckets in the table; grows only.
    pub(super) count: AtomicU64,
    pub(super) entries: AtomicU64,
    pub(super) growth: Mutex<Growth>,
    pub(super) lines: Mutex<OverflowLines>,
    pub(super) budget: Arc<Budget>,
    pub(super) bucket_region: Region,
    pub(super) overflow_region: Region,
}

pub(super) struct Growth {
    pub(super) committed: u64,
}

pub(super) struct OverflowLines {
    pub(super) free: Vec<u64>,
    pub(super) next: u64,
    pub(super) committed: u64,
}

/// A look at a key's bucket, to tell later whether a writer came.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    shard: &'a Shard,
    hash: u64,
    bucket: u64,
    header: u64,
}

impl Watch<'_> {
    /// Whether no item of the key was overwritten since the look. `false` also for other changes
    /// of the bucket, and if a writer held it at the time.
    #[inline(always)]
    pub fn saw_no_overwrite(&self) -> bool {
        // SAFETY: the header of a bucket that was below the count.
        let now = unsafe { self.shard.buckets.load(self.bucket * LINE) };
        let count = self.shard.count.load(Ordering::Acquire);
        now == self.header && now & LOCKED == 0 && bucket_of(self.hash, count) == self.bucket
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.budget.give(self.growth.get_mut().committed + self.lines.get_mut().committed);
    }
}

impl Shard {
    pub(super) fn new(capacity: u64, budget: &Arc<Budget>) -> io::Result<Shard> {
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
            lines: Mutex::new(OverflowLines {
                free: Vec::new(),
                next: 1,
                committed: FIRST_COMMIT_BYTES,
            }),
            budget: Arc::clone(budget),
            bucket_region,
            overflow_region,
        })
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u64) -> bool) -> Option<u64> {
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
                    let entry =
                        unsafe { memory.load(line + u64::from(slots.trailing_zeros()) * 8) };
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

    /// See [`super::HashIndex::watch`].
    #[inline(always)]
    pub(super) fn watch(&self, hash: u64) -> Watch<'_> {
        let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
        // SAFETY: the header of a bucket below the count, an aligned word.
        let header = unsafe { self.buckets.load(bucket * LINE) };
        Watch { shard: self, hash, bucket, header }
    }

    pub(super) fn update(
        &self,
        hash: u64,
        items: &impl Items,
        is_key: impl Fn(u64) -> bool,
        f: impl FnOnce(Option<u64>) -> Change,
    ) -> Option<u64> {
        let bucket = self.lock_bucket_of(hash, items);
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
            (Change::Overwritten, _) => bucket.raise_version(),
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

    pub(super) fn lock_bucket_of(&self, hash: u64, items: &impl Items) -> LockedBucket<'_> {
        loop {
            let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
            let locked = self.lock_with(bucket, || items.pause());
            if bucket_of(hash, self.count.load(Ordering::Acquire)) == bucket {
                return locked;
            }
        }
    }

    pub(super) fn lock(&self, bucket: u64) -> LockedBucket<'_> {
        self.lock_with(bucket, || {})
    }

    fn lock_with(&self, bucket: u64, pause: impl Fn()) -> LockedBucket<'_> {
        let backoff = Backoff::new();
        let at = bucket * LINE;
        loop {
            // SAFETY: the header of a bucket below the count, an aligned word.
            let header = unsafe { self.buckets.load(at) };
            if header & LOCKED == 0 {
                // SAFETY: as above.
                let locked = unsafe { self.buckets.compare_exchange(at, header, header | LOCKED) };
                if locked.is_ok() {
                    return LockedBucket { shard: self, at };
                }
            }
            pause();
            backoff.snooze();
        }
    }

    pub(super) fn clear(&self) {
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

    pub(super) fn visit(&self, bucket: u64, visit: &mut impl FnMut(u64)) -> usize {
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
        if needed > self.bucket_region.len()
            || self.bucket_region.commit(growth.committed, step).is_err()
        {
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

    pub(super) fn take_overflow_line(&self) -> u64 {
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
