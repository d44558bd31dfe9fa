//! One table of the index: its buckets, and how it is searched and changed.

use super::bucket::{LockedBucket, Place};
use super::line::*;
use super::overflow::{Lines, OverflowLines};
use super::version_lock::{self, Look};
use super::{Change, Items};
use crate::FIRST_COMMIT_BYTES;
use crate::{Commit, Reserved};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_durable::BucketLock;
use terrace_durable::sections::{Address, Changes};
use terrace_memory::{Budget, Claim, Memory};

/// What a table owes to a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Persistence {
    /// Nothing: it is rebuilt.
    Nothing,
    /// It is to be found. Every change is one durable word, before the bucket is let go.
    Words,
    /// It is to be found as it was, free lines and all. The changes of an operation are words of its
    /// section.
    Sections,
}

impl Persistence {
    #[inline(always)]
    pub(super) fn is_persistent(self) -> bool {
        self != Persistence::Nothing
    }
}

/// What every lookup reads comes first, in one line.
#[repr(C)]
pub(super) struct Shard<I: Memory> {
    pub(super) buckets: I,
    /// Buckets in the table; grows only.
    pub(super) count: AtomicU64,
    pub(super) persistence: Persistence,
    /// What the header of a locked bucket says: the number of this opening.
    pub(super) opening: u8,
    pub(super) tags: Tags,
    pub(super) overflow: I,
    pub(super) entries: AtomicU64,
    /// Whoever adds buckets holds it.
    pub(super) growth: Mutex<()>,
    /// Bytes committed for buckets.
    pub(super) bucket_bytes: AtomicU64,
    pub(super) lines: Mutex<OverflowLines>,
    pub(super) budget: Arc<Budget>,
    pub(super) commit_buckets: Commit,
    pub(super) commit_overflow: Commit,
    /// Where sections find buckets and overflow lines.
    pub(super) starts: [u64; 2],
    pub(super) _claims: [Claim; 2],
}

/// A look at a key's bucket, to tell later whether a writer came.
pub struct Watch<'a, I: Memory> {
    shard: &'a Shard<I>,
    hash: u64,
    bucket: u64,
    look: Look,
}

impl<I: Memory> Watch<'_, I> {
    /// Whether no item of the key was overwritten since the look. `false` also for other changes
    /// of the bucket, and if a writer held it at the time.
    #[inline(always)]
    pub fn saw_no_overwrite(&self) -> bool {
        let is_as_it_was = self.look.holds(&self.shard.buckets, self.shard.opening);
        let count = self.shard.count.load(Ordering::Acquire);
        is_as_it_was && bucket_of(self.hash, count) == self.bucket
    }
}

impl<I: Memory> Drop for Shard<I> {
    fn drop(&mut self) {
        self.budget.give(*self.bucket_bytes.get_mut() + self.lines.get_mut().committed);
    }
}

impl<I: Memory> Shard<I> {
    /// An empty table. Both regions are zero.
    pub(super) fn new(
        buckets: Reserved<I>,
        overflow: Reserved<I>,
        persistence: Persistence,
        tags: Tags,
        budget: &Arc<Budget>,
    ) -> io::Result<Shard<I>> {
        let claims = [buckets.claim(), overflow.claim()];
        let committed = FIRST_COMMIT_BYTES;
        (buckets.commit)(0, committed)?;
        (overflow.commit)(0, committed)?;
        budget.take_anyway(2 * committed);
        // What is not zero would be taken for entries, and links to overflow lines that are not there.
        // SAFETY: words of the first buckets, committed.
        let is_zero = |at| unsafe { buckets.memory.load(at) } == 0;
        if !(0..FIRST_BUCKETS * LINE).step_by(8).all(is_zero) {
            budget.give(2 * committed);
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a new table begins with zeros",
            ));
        }
        let shard = Shard {
            _claims: claims,
            buckets: buckets.memory,
            overflow: overflow.memory,
            persistence,
            opening: 1,
            tags,
            starts: [buckets.start, overflow.start],
            count: AtomicU64::new(FIRST_BUCKETS),
            entries: AtomicU64::new(0),
            growth: Mutex::new(()),
            bucket_bytes: AtomicU64::new(committed),
            lines: Mutex::new(OverflowLines { free: Vec::new(), next: 1, committed }),
            budget: Arc::clone(budget),
            commit_buckets: buckets.commit,
            commit_overflow: overflow.commit,
        };
        for bucket in 0..FIRST_BUCKETS {
            shard.note_in(&shard.buckets, bucket * LINE, checked(0, bucket, false));
        }
        shard.note(COUNT_AT, counted(FIRST_BUCKETS, COUNT_AT));
        shard.note(OVERFLOW_BYTES_AT, counted(committed, OVERFLOW_BYTES_AT));
        Ok(shard)
    }

    /// A header with the check of what it names, if the table is persistent.
    pub(super) fn checked(&self, header: u64, number: u64, is_overflow: bool) -> u64 {
        if self.persistence.is_persistent() { checked(header, number, is_overflow) } else { header }
    }

    /// A header with its version raised.
    pub(super) fn raised(&self, header: u64, versions: u64) -> u64 {
        let raised = header.wrapping_add(versions * VERSION_UNIT);
        match self.persistence.is_persistent() {
            true => header & !VERSION_MASK | raised & VERSION_MASK,
            false => raised,
        }
    }

    /// Changes a word of a locked bucket: now, durably if the table is persistent, or with the section.
    #[inline(always)]
    pub(super) fn set(&self, changes: &mut Changes, memory: &I, at: u64, word: u64) {
        match self.persistence {
            Persistence::Sections => changes.set(self.address(memory, at), word),
            Persistence::Words | Persistence::Nothing => self.set_now(memory, at, word),
        }
    }

    /// Stores a word of a locked bucket; of a table that is persistent, durably.
    #[inline(always)]
    pub(super) fn set_now(&self, memory: &I, at: u64, word: u64) {
        // SAFETY: callers pass words of a bucket whose lock they hold, or that nobody else can see.
        unsafe { memory.store(at, word) };
        self.keep(memory, at, 8);
    }

    /// A word of a locked bucket as the open section leaves it.
    #[inline(always)]
    pub(super) fn seen(&self, changes: &Changes, memory: &I, at: u64) -> u64 {
        let pending = match changes.is_empty() {
            true => None,
            false => changes.pending(self.address(memory, at)),
        };
        // SAFETY: callers pass words of a bucket whose lock they hold.
        pending.unwrap_or_else(|| unsafe { memory.load(at) })
    }

    /// Bytes to grow by: an index that is not persistent nears the limit of its budget in small steps. What is
    /// persistent grows in steps that follow from its size.
    pub(super) fn step(&self, usual: u64) -> u64 {
        match self.persistence {
            Persistence::Nothing => self.budget.step(usual, FIRST_COMMIT_BYTES),
            Persistence::Words | Persistence::Sections => usual,
        }
    }

    fn address(&self, memory: &I, at: u64) -> Address {
        let start = self.starts[usize::from(std::ptr::eq(memory, &self.overflow))];
        // SAFETY: callers pass words of a bucket whose lock they hold, or of the table's own line.
        unsafe { Address::in_index(start + at) }
    }

    /// Changes a word of the table's allocation with the section; without sections repair finds out.
    pub(super) fn book(&self, changes: &mut Changes, at: u64, word: u64) {
        if self.persistence == Persistence::Sections {
            changes.set(self.address(&self.overflow, at), word);
        }
    }

    /// An entry becomes another with the section: 0 is none.
    #[inline(always)]
    fn record_entry(&self, changes: &mut Changes, before: u64, after: u64) {
        let more = i64::from(after != 0) - i64::from(before != 0);
        if more != 0 {
            self.entries.fetch_add(more as u64, Ordering::Relaxed);
        }
        if self.persistence == Persistence::Sections {
            if more != 0 {
                changes.add(self.address(&self.overflow, ENTRIES_AT), more);
            }
            let of = |entry: u64| if entry == 0 { 0 } else { mixed(entry) };
            let sum = of(after).wrapping_sub(of(before));
            changes.add(self.address(&self.overflow, SUM_AT), sum as i64);
        }
    }

    /// What was stored there is durable on return, if the table is persistent.
    #[inline(always)]
    pub(super) fn keep(&self, memory: &I, at: u64, bytes: u64) {
        if self.persistence.is_persistent() {
            // SAFETY: callers pass committed lines.
            unsafe { memory.persist(at, bytes) };
        }
    }

    /// Stores a word of the table's own line, the overflow line that is never used.
    pub(super) fn note(&self, at: u64, word: u64) {
        self.note_in(&self.overflow, at, word);
    }

    fn note_in(&self, memory: &I, at: u64, word: u64) {
        if self.persistence.is_persistent() {
            self.set_now(memory, at, word);
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let tags = self.tags;
        loop {
            let count = self.count.load(Ordering::Acquire);
            let bucket = bucket_of(hash, count);
            // SAFETY: buckets below the count are committed; the header is an aligned word.
            let first = unsafe { Look::at(&self.buckets, bucket * LINE) };
            let mut memory = &self.buckets;
            let mut line = bucket * LINE;
            let mut header = first.header();
            loop {
                let mut slots = matching_slots(memory, line, tags, hash);
                while slots != 0 {
                    // SAFETY: slots of a committed line are aligned words.
                    let entry =
                        unsafe { memory.load(line + u64::from(slots.trailing_zeros()) * 8) };
                    let location = tags.location(entry);
                    if location != 0 && tags.has(entry, hash) && is_it(location) {
                        self.settle(bucket, memory, line);
                        return Some(location);
                    }
                    slots &= slots - 1;
                }
                self.settle(bucket, memory, line);
                let Some(next) = self.next_line(header) else { break };
                memory = &self.overflow;
                line = next;
                // SAFETY: an overflow number names a committed line.
                header = unsafe { memory.load(line) };
            }
            if first.is_unmoved(&self.buckets)
                && bucket_of(hash, self.count.load(Ordering::Acquire)) == bucket
            {
                return None;
            }
        }
    }

    /// Sees to it that what was just read of a line is durable before anyone is told, if the table
    /// is persistent word by word. A writer makes its change durable before it lets go of the bucket; while
    /// it holds it, the reader does that for it. (Words of a section are stored when they are safe.)
    #[inline(always)]
    fn settle(&self, bucket: u64, memory: &I, line: u64) {
        if self.persistence != Persistence::Words {
            return;
        }
        // SAFETY: the header of a committed bucket.
        let header = unsafe { self.buckets.load(bucket * LINE) };
        if self.is_locked(header) {
            self.keep(memory, line, LINE);
        }
    }

    /// Where the overflow line is that a header names: none that is not in the memory, whatever it names.
    #[inline(always)]
    pub(super) fn next_line(&self, header: u64) -> Option<u64> {
        let line = overflow_of(header) * LINE;
        (line != 0 && line < self.overflow.len()).then_some(line)
    }

    #[inline(always)]
    pub(super) fn is_locked(&self, header: u64) -> bool {
        version_lock::is_locked(header, self.opening)
    }

    /// See [`super::HashIndex::watch`].
    #[inline(always)]
    pub(super) fn watch(&self, hash: u64) -> Watch<'_, I> {
        let bucket = bucket_of(hash, self.count.load(Ordering::Acquire));
        // SAFETY: the header of a bucket below the count, an aligned word.
        let look = unsafe { Look::at(&self.buckets, bucket * LINE) };
        Watch { shard: self, hash, bucket, look }
    }

    #[inline(always)]
    pub(super) fn update<T>(
        &self,
        hash: u64,
        items: &impl Items,
        is_key: impl Fn(u64, &BucketLock) -> bool,
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        let mut lines = Lines::of(self);
        let bucket = self.lock_bucket_of(hash, items);
        let found = bucket.find(hash, |location| is_key(location, &bucket.lock));
        let before = found.map(|(_, _, entry)| self.tags.location(entry));
        // Before anything is changed: what `f` does cannot be taken back.
        let room = match found {
            Some(_) => None,
            None => Some(bucket.room(&mut lines)?),
        };
        let mut changes = Changes::new();
        let (change, rest) = f(before, &bucket.lock, &mut changes);
        let mut inserted = false;
        let mut shrunk = false;
        match (change, found, room) {
            (change, Some(place), _) => {
                shrunk = self.change(&bucket, place, hash, change, &mut lines, &mut changes);
            }
            (Change::Set(location), None, Some(room)) => {
                let entry = self.tags.entry(hash, location);
                bucket.insert(entry, room, &mut lines, &mut changes);
                self.record_entry(&mut changes, 0, entry);
                inserted = true;
            }
            (_, None, _) => {}
        }
        then(rest, &mut changes);
        Self::commit(&bucket, shrunk, items, &mut changes);
        drop(bucket);
        drop(lines);
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
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> bool {
        let mut lines = Lines::of(self);
        let bucket = self.lock_bucket_of(hash, items);
        let Some(place) = bucket.find(hash, |found| found == location) else { return false };
        let mut changes = Changes::new();
        let change = f(&bucket.lock, &mut changes);
        let shrunk = self.change(&bucket, place, hash, change, &mut lines, &mut changes);
        Self::commit(&bucket, shrunk, items, &mut changes);
        drop(bucket);
        true
    }

    /// Does to the entry in `place` of the locked bucket what `change` says; whether other entries moved.
    #[inline(always)]
    fn change<'a>(
        &'a self,
        bucket: &LockedBucket<'a, I>,
        (memory, at, before): Place<'_, I>,
        hash: u64,
        change: Change,
        lines: &mut Lines<'a, I>,
        changes: &mut Changes,
    ) -> bool {
        match change {
            Change::Keep => {}
            Change::Set(location) => {
                let after = self.tags.entry(hash, location);
                self.set(changes, memory, at, after);
                self.record_entry(changes, before, after);
            }
            Change::Overwritten => bucket.raise_version(),
            Change::Remove => {
                self.set(changes, memory, at, 0);
                self.record_entry(changes, before, 0);
                return bucket.shrink(lines, changes);
            }
        }
        false
    }

    /// Commits what a section changes of a locked bucket. Where entries moved, a reader who missed one looks again:
    /// the version is raised before any of it is stored.
    #[inline(always)]
    fn commit(
        bucket: &LockedBucket<'_, I>,
        moved: bool,
        items: &impl Items,
        changes: &mut Changes,
    ) {
        let publish = || {
            if moved {
                bucket.raise_version();
            }
        };
        if !changes.is_empty() {
            items.commit(changes, publish);
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
        self.lock_with(bucket, || ())
    }

    fn lock_with(&self, bucket: u64, pause: impl Fn()) -> LockedBucket<'_, I> {
        let at = bucket * LINE;
        // SAFETY: the header of a bucket below the count, an aligned word.
        unsafe { version_lock::lock(&self.buckets, at, self.opening, pause) };
        // SAFETY: the bucket is locked, until this is dropped.
        let lock = unsafe { BucketLock::held() };
        LockedBucket { shard: self, at, is_hidden: false, lock }
    }

    /// Word by word also where changes are sections: a table that is being cleared goes with nothing.
    pub(super) fn clear(&self) {
        let _no_growth = self.growth.lock();
        for bucket in 0..self.count.load(Ordering::Acquire) {
            let locked = self.lock(bucket);
            locked.each(&Changes::new(), |memory, at, _| self.set_now(memory, at, 0));
            locked.forget_overflow();
        }
        let mut lines = self.lines.lock();
        (lines.next, lines.free) = (1, Vec::new());
        self.entries.store(0, Ordering::Relaxed);
        self.note_allocation(&lines);
    }

    /// As [`super::HashIndex::used`].
    pub(super) fn used(&self) -> [(u64, u64); 2] {
        let [buckets, overflow] = self.starts;
        let count = self.count.load(Ordering::Acquire);
        [(buckets, count * LINE), (overflow, self.lines.lock().next * LINE)]
    }

    /// Notes what repair would find out, durably if the table is persistent. Nobody changes it meanwhile.
    pub(super) fn note_allocation(&self, lines: &OverflowLines) {
        let mut first = 0;
        for line in &lines.free {
            // SAFETY: the header of a committed line that nobody uses.
            unsafe { self.overflow.store(line * LINE, first << VERSION_SHIFT) };
            self.keep(&self.overflow, line * LINE, 8);
            first = *line;
        }
        self.note(NEXT_AT, lines.next);
        self.note(FREE_AT, first);
        self.note(ENTRIES_AT, self.entries.load(Ordering::Relaxed));
        if self.persistence.is_persistent() {
            self.note(SUM_AT, self.sum().1);
        }
    }

    /// How many entries there are, and the sum of what [`mixed`] makes of each. Nobody changes the table meanwhile.
    pub(super) fn sum(&self) -> (u64, u64) {
        let (mut entries, mut sum) = (0, 0u64);
        for bucket in 0..self.count.load(Ordering::Relaxed) {
            let (mut memory, mut line) = (&self.buckets, bucket * LINE);
            loop {
                // SAFETY: a committed line, which nobody changes.
                let words = unsafe { memory.load_line(line) };
                for entry in words[1..].iter().filter(|entry| **entry != 0) {
                    entries += 1;
                    sum = sum.wrapping_add(mixed(*entry));
                }
                match self.next_line(words[0]) {
                    None => break,
                    Some(next) => (memory, line) = (&self.overflow, next),
                }
            }
        }
        (entries, sum)
    }

    pub(super) fn visit(&self, bucket: u64, visit: &mut impl FnMut(u64)) -> usize {
        // Locked, so that no split moves an entry from behind the scan to before it.
        let mut found = [0u64; 64];
        let mut seen = 0;
        let mut more = Vec::new();
        {
            let locked = self.lock(bucket);
            locked.each(&Changes::new(), |_, _, entry| {
                if seen < found.len() {
                    found[seen] = self.tags.location(entry);
                } else {
                    more.push(self.tags.location(entry));
                }
                seen += 1;
            });
        }
        found[..seen.min(64)].iter().copied().chain(more).for_each(visit);
        seen
    }
}
