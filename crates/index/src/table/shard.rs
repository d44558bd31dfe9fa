//! One table of the index: its buckets, how it is searched, and how it grows.

use super::bucket::{LockedBucket, Place, Room};
use super::line::*;
use super::{Change, Items};
use crossbeam_utils::Backoff;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_memory::{Budget, Memory};

/// A memory that is made usable piece by piece, as it is needed; what was never written is zero.
pub struct Ground<I> {
    /// All of it.
    pub memory: I,
    /// Makes so many bytes from an offset on usable.
    pub commit: Commit,
}

/// As [`Ground::commit`]: offset and number of bytes.
pub type Commit = Box<dyn Fn(u64, u64) -> io::Result<()> + Send + Sync>;

impl<I> fmt::Debug for Ground<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").finish_non_exhaustive()
    }
}

/// What every lookup reads comes first, in one line.
#[repr(C)]
pub(super) struct Shard<I: Memory> {
    pub(super) buckets: I,
    /// Buckets in the table; grows only.
    pub(super) count: AtomicU64,
    /// Whether the table is to be found after a crash: every change is durable before the bucket is
    /// let go.
    pub(super) is_kept: bool,
    pub(super) overflow: I,
    pub(super) entries: AtomicU64,
    pub(super) growth: Mutex<Growth>,
    pub(super) lines: Mutex<OverflowLines>,
    pub(super) budget: Arc<Budget>,
    pub(super) commit_buckets: Commit,
    pub(super) commit_overflow: Commit,
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
pub struct Watch<'a, I: Memory> {
    shard: &'a Shard<I>,
    hash: u64,
    bucket: u64,
    header: u64,
}

impl<I: Memory> Watch<'_, I> {
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

impl<I: Memory> Drop for Shard<I> {
    fn drop(&mut self) {
        self.budget.give(self.growth.get_mut().committed + self.lines.get_mut().committed);
    }
}

impl<I: Memory> Shard<I> {
    /// An empty table. Both grounds are zero.
    pub(super) fn new(
        buckets: Ground<I>,
        overflow: Ground<I>,
        is_kept: bool,
        budget: &Arc<Budget>,
    ) -> io::Result<Shard<I>> {
        let committed = FIRST_COMMIT_BYTES;
        (buckets.commit)(0, committed)?;
        (overflow.commit)(0, committed)?;
        budget.take_anyway(2 * committed);
        let shard = Shard {
            buckets: buckets.memory,
            overflow: overflow.memory,
            is_kept,
            count: AtomicU64::new(FIRST_BUCKETS),
            entries: AtomicU64::new(0),
            growth: Mutex::new(Growth { committed }),
            // Line 0 is never used: overflow number 0 means none.
            lines: Mutex::new(OverflowLines { free: Vec::new(), next: 1, committed }),
            budget: Arc::clone(budget),
            commit_buckets: buckets.commit,
            commit_overflow: overflow.commit,
        };
        shard.note(COUNT_AT, FIRST_BUCKETS);
        shard.note(OVERFLOW_BYTES_AT, committed);
        Ok(shard)
    }

    /// Stores a word of a locked bucket; of a table that is kept, durably.
    #[inline(always)]
    pub(super) fn set(&self, memory: &I, at: u64, word: u64) {
        // SAFETY: callers pass words of a bucket whose lock they hold, or that nobody else can see.
        unsafe { memory.store(at, word) };
        self.keep(memory, at, 8);
    }

    /// What was stored there is durable on return, if the table is kept.
    #[inline(always)]
    pub(super) fn keep(&self, memory: &I, at: u64, bytes: u64) {
        if self.is_kept {
            // SAFETY: callers pass committed lines.
            unsafe { memory.persist(at, bytes) };
        }
    }

    /// Stores a word of the table's own line, the overflow line that is never used.
    pub(super) fn note(&self, at: u64, word: u64) {
        if self.is_kept {
            self.set(&self.overflow, at, word);
        }
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
                        self.settle(bucket, memory, line);
                        return Some(location);
                    }
                    slots &= slots - 1;
                }
                self.settle(bucket, memory, line);
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

    /// Sees to it that what was just read of a line is durable before anyone is told, if the table
    /// is kept. A writer makes its change durable before it lets go of the bucket; while it holds
    /// it, the reader does that for it.
    #[inline(always)]
    fn settle(&self, bucket: u64, memory: &I, line: u64) {
        // SAFETY: the header of a committed bucket.
        if self.is_kept && unsafe { self.buckets.load(bucket * LINE) } & LOCKED != 0 {
            self.keep(memory, line, LINE);
        }
    }

    /// See [`super::HashIndex::watch`].
    #[inline(always)]
    pub(super) fn watch(&self, hash: u64) -> Watch<'_, I> {
        let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
        // SAFETY: the header of a bucket below the count, an aligned word.
        let header = unsafe { self.buckets.load(bucket * LINE) };
        Watch { shard: self, hash, bucket, header }
    }

    pub(super) fn update<T>(
        &self,
        hash: u64,
        items: &impl Items,
        is_key: impl Fn(u64) -> bool,
        f: impl FnOnce(Option<u64>) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<u64>> {
        let bucket = self.lock_bucket_of(hash, items);
        let found = bucket.find(hash, is_key);
        let before = found.map(|(_, _, entry)| entry & LOCATION_MASK);
        // Before anything is changed: what `f` does cannot be taken back.
        let room = match found {
            Some(_) => None,
            None => Some(bucket.room()?),
        };
        let (change, rest) = f(before);
        let mut inserted = false;
        match (change, found, room) {
            (change, Some(place), _) => self.change(&bucket, place, hash, change),
            (Change::Set(location), None, Some(room)) => {
                bucket.insert(entry(hash, location), room);
                self.entries.fetch_add(1, Ordering::Relaxed);
                inserted = true;
            }
            (_, None, Some(Room::Line(line))) => self.lines.lock().free.push(line),
            (_, None, _) => {}
        }
        then(rest);
        drop(bucket);
        if inserted {
            self.grow_if_full(items);
        }
        Ok(before)
    }

    /// See [`super::HashIndex::update_at`]. An entry that is there takes no new line, so this cannot
    /// fail.
    pub(super) fn update_at(
        &self,
        hash: u64,
        location: u64,
        items: &impl Items,
        f: impl FnOnce() -> Change,
    ) -> bool {
        let bucket = self.lock_bucket_of(hash, items);
        let Some(place) = bucket.find(hash, |found| found == location) else { return false };
        self.change(&bucket, place, hash, f());
        true
    }

    /// Does to the entry in `place` of the locked bucket what `change` says.
    #[inline(always)]
    fn change(
        &self,
        bucket: &LockedBucket<'_, I>,
        (memory, at, _): Place<'_, I>,
        hash: u64,
        change: Change,
    ) {
        match change {
            Change::Keep => {}
            Change::Set(location) => self.set(memory, at, entry(hash, location)),
            Change::Overwritten => bucket.raise_version(),
            Change::Remove => {
                self.set(memory, at, 0);
                self.entries.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn lock_bucket_of(&self, hash: u64, items: &impl Items) -> LockedBucket<'_, I> {
        loop {
            let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
            let locked = self.lock_with(bucket, || items.pause());
            if bucket_of(hash, self.count.load(Ordering::Acquire)) == bucket {
                return locked;
            }
        }
    }

    pub(super) fn lock(&self, bucket: u64) -> LockedBucket<'_, I> {
        self.lock_with(bucket, || self.buckets.pause())
    }

    fn lock_with(&self, bucket: u64, pause: impl Fn()) -> LockedBucket<'_, I> {
        let backoff = Backoff::new();
        let at = bucket * LINE;
        loop {
            // SAFETY: the header of a bucket below the count, an aligned word.
            let header = unsafe { self.buckets.load(at) };
            if header & LOCKED == 0 {
                // SAFETY: as above.
                let locked = unsafe { self.buckets.compare_exchange(at, header, header | LOCKED) };
                if locked.is_ok() {
                    return LockedBucket { shard: self, at, is_hidden: false };
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
                self.set(memory, at, 0);
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
        let full = |shard: &Shard<I>| {
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
        if needed > self.buckets.len() || (self.commit_buckets)(growth.committed, step).is_err() {
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
        // The new bucket is filled before anyone can see it, or a crash can make it count ...
        let mut target = LockedBucket { shard: self, at: count * LINE, is_hidden: true };
        // SAFETY: the line was committed by `make_room` and is not yet visible to anyone.
        unsafe { self.buckets.store(target.at, LOCKED) };
        for (_, _, entry) in &moving {
            let Ok(room) = target.room() else {
                // No memory for one line more: the table stays as it is.
                target.unlink_overflow();
                // SAFETY: as above.
                (1..=SLOTS).for_each(|slot| unsafe { self.buckets.store(target.at + 8 * slot, 0) });
                return;
            };
            target.insert(*entry, room);
        }
        target.keep_all();
        target.is_hidden = false;
        self.note(COUNT_AT, count + 1);
        // ... then the count is published, then the version raised, then entries removed: the
        // order a missing reader relies on.
        self.count.store(count + 1, Ordering::Release);
        source.raise_version();
        for (memory, at, _) in &moving {
            // SAFETY: the place of a slot of the locked bucket.
            unsafe { memory.store(*at, 0) };
        }
        source.keep_all();
        if staying <= SLOTS as usize {
            source.pull_in_overflow();
        }
        // Only now may entries of the new bucket change: until then a crash leaves the same twice,
        // which repair can tell.
        drop(target);
    }

    pub(super) fn take_overflow_line(&self) -> io::Result<u64> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.free.pop() {
            return Ok(line);
        }
        if (lines.next + 1) * LINE > lines.committed {
            let step = lines.committed.min(COMMIT_BYTES / 8);
            (self.commit_overflow)(lines.committed, step)?;
            self.budget.take_anyway(step);
            lines.committed += step;
            self.note(OVERFLOW_BYTES_AT, lines.committed);
        }
        lines.next += 1;
        Ok(lines.next - 1)
    }
}
