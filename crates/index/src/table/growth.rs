//! How a table grows: by one bucket at a time, split from another.

use super::Items;
use super::bucket::{LockedBucket, Place};
use super::line::*;
use super::overflow::Lines;
use super::shard::{Persistence, Shard};
use crate::COMMIT_BYTES;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_memory::{Memory, Spin};

/// How often a writer yields to whoever grows a table that fell behind.
const PATIENCE: usize = 64;

impl<I: Memory> Shard<I> {
    pub(super) fn grow_if_full(&self, items: &impl Items) {
        if !self.is_fuller_than(LOAD_QUARTERS) {
            return;
        }
        let Some(_alone) = self.turn_to_grow() else { return };
        // Two at a time: a table that fell behind catches up.
        for _ in 0..2 {
            if !self.is_fuller_than(LOAD_QUARTERS) || !self.make_room() {
                return;
            }
            self.split(items);
        }
    }

    /// Whether there are more entries than so many quarters of a bucket each.
    fn is_fuller_than(&self, quarters: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        self.entries.load(Ordering::Relaxed) * 4 > count * quarters
    }

    /// The lock of growth; none while somebody else grows the table, who catches up with it. But what a section can
    /// move is bounded: where that one does not get to run and buckets become crowded, writers of sections let it,
    /// though not for ever, whatever their callers hold.
    fn turn_to_grow(&self) -> Option<MutexGuard<'_, ()>> {
        let (mut turn, spin) = (self.growth.try_lock(), Spin::on(&self.buckets));
        for _ in 0..PATIENCE {
            let may_pass = self.persistence != Persistence::Sections
                || !self.is_fuller_than(4 * LOAD_QUARTERS);
            if turn.is_some() || may_pass {
                break;
            }
            spin.wait();
            turn = self.growth.try_lock();
        }
        turn
    }

    /// Commits the line of the next bucket. At the end of the reserved range or of the system's
    /// memory the table stays as it is: chains grow instead. Under the growth lock.
    fn make_room(&self) -> bool {
        let needed = (self.count.load(Ordering::Relaxed) + 1) * LINE;
        let committed = self.bucket_bytes.load(Ordering::Relaxed);
        if needed <= committed {
            return true;
        }
        let left = self.buckets.len().saturating_sub(committed);
        let step = self.step(committed.min(COMMIT_BYTES)).min(left);
        if needed > self.buckets.len() || (self.commit_buckets)(committed, step).is_err() {
            return false;
        }
        self.budget.take_anyway(step);
        self.bucket_bytes.store(committed + step, Ordering::Relaxed);
        true
    }

    /// Splits the next bucket in turn. Under the growth lock.
    fn split(&self, items: &impl Items) {
        let mut lines = Lines::of(self);
        let mut changes = Changes::new();
        let count = self.count.load(Ordering::Relaxed);
        let level = if count.is_power_of_two() { count } else { count.next_power_of_two() / 2 };
        let source = self.lock(count - level);
        let mut moving = Vec::with_capacity(8);
        let tags = self.tags;
        source.each(&changes, |_, _, entry| {
            if tags.has_bit(entry, level).is_none() {
                items.prefetch(tags.location(entry));
            }
        });
        let goes = |entry| {
            let by_item =
                || Some(items.hash_locked(tags.location(entry), &source.lock)? & level != 0);
            tags.has_bit(entry, level).or_else(by_item)
        };
        let (mut staying, mut is_known) = (0, true);
        source.each(&changes, |memory, at, entry| match goes(entry) {
            None => is_known = false,
            Some(false) => staying += 1,
            Some(true) => moving.push((memory, at, entry)),
        });
        if !is_known {
            // Where a damaged item's entry belongs nobody knows: the table stays as it is, and chains grow.
            return;
        }
        // The new bucket is filled before anyone can see it, or a crash can make it count ...
        let Some(mut target) = self.fill(count, &moving, &mut lines, &mut changes) else {
            // No memory for one line more: the table stays as it is.
            if !changes.is_empty() {
                items.commit(&mut changes, || ());
            }
            return;
        };
        target.persist_all();
        target.is_hidden = false;
        // ... then the count is published, then the version raised, then entries removed: the
        // order a missing reader relies on.
        let publish = || {
            self.count.store(count + 1, Ordering::Release);
            source.raise_version();
        };
        if self.persistence == Persistence::Sections {
            self.book(&mut changes, COUNT_AT, counted(count + 1, COUNT_AT));
            for (memory, at, _) in &moving {
                self.set(&mut changes, memory, *at, 0);
            }
            if staying <= SLOTS as usize {
                source.pull_in_overflow(&mut lines, &mut changes);
            }
            return items.commit(&mut changes, publish);
        }
        self.note(COUNT_AT, counted(count + 1, COUNT_AT));
        publish();
        for (memory, at, _) in &moving {
            // SAFETY: the place of a slot of the locked bucket.
            unsafe { memory.store(*at, 0) };
        }
        source.persist_all();
        if staying <= SLOTS as usize {
            source.pull_in_overflow(&mut lines, &mut changes);
        }
        // Only now may entries of the new bucket change: until then a crash leaves the same twice,
        // which repair can tell.
        drop(target);
    }

    /// Fills the bucket behind the last one, locked and hidden; none without memory for it, or if there
    /// is more to move than a section holds.
    fn fill<'a>(
        &'a self,
        number: u64,
        moving: &[Place<'a, I>],
        lines: &mut Lines<'a, I>,
        changes: &mut Changes,
    ) -> Option<LockedBucket<'a, I>> {
        // SAFETY: nobody finds it before it is let go.
        let lock = unsafe { BucketLock::held() };
        let target = LockedBucket { shard: self, at: number * LINE, is_hidden: true, lock };
        // SAFETY: the line was committed by `make_room` and is not yet visible to anyone.
        unsafe { self.buckets.store(target.at, self.checked(self.opening.into(), number, false)) };
        // A section has each entry removed, perhaps copied, and its line freed.
        let mut fits =
            self.persistence != Persistence::Sections || moving.len() * 8 < Changes::MOST;
        for (_, _, entry) in moving {
            match target.room(lines) {
                Ok(room) if fits => target.insert(*entry, room, lines, changes),
                _ => fits = false,
            }
        }
        if !fits {
            target.unlink_overflow(lines, changes);
            for slot in 1..=SLOTS {
                // SAFETY: as above.
                unsafe { self.buckets.store(target.at + 8 * slot, 0) };
            }
        }
        fits.then_some(target)
    }
}
