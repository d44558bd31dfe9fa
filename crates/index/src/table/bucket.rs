//! A locked bucket: finding, inserting and moving entries.

use super::line::*;
use super::shard::Shard;
use terrace_memory::{Memory, Native};

/// A bucket whose header bit is held; released on drop, panics included.
pub(super) struct LockedBucket<'a> {
    pub(super) shard: &'a Shard,
    pub(super) at: u64,
}

pub(super) type Place<'a> = (&'a Native, u64, u64);

impl<'a> LockedBucket<'a> {
    pub(super) fn header(&self) -> u64 {
        // SAFETY: the header of a committed bucket.
        unsafe { self.shard.buckets.load(self.at) }
    }

    pub(super) fn each(&self, mut f: impl FnMut(&'a Native, u64, u64)) {
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
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, is_key: impl Fn(u64) -> bool) -> Option<Place<'a>> {
        let tag = tag_of(hash);
        let mut memory = &self.shard.buckets;
        let mut line = self.at;
        loop {
            let mut slots = matching_slots(memory, line, hash);
            while slots != 0 {
                let at = line + u64::from(slots.trailing_zeros()) * 8;
                // SAFETY: a slot of a committed line.
                let entry = unsafe { memory.load(at) };
                if entry != 0 && entry & !LOCATION_MASK == tag && is_key(entry & LOCATION_MASK) {
                    return Some((memory, at, entry));
                }
                slots &= slots - 1;
            }
            // SAFETY: the header of a committed line.
            let next = unsafe { memory.load(line) } >> OVERFLOW_SHIFT & OVERFLOW_MASK;
            if next == 0 {
                return None;
            }
            memory = &self.shard.overflow;
            line = next * LINE;
        }
    }

    pub(super) fn insert(&self, entry: u64) {
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

    pub(super) fn raise_version(&self) {
        // SAFETY: the header of the locked bucket; only the holder writes it.
        unsafe { self.shard.buckets.store(self.at, self.header().wrapping_add(VERSION_UNIT)) };
    }

    /// Moves what is left in overflow lines into the bucket's own line and frees them. Copies are
    /// made before the chain is unlinked, and the version is raised with the unlinking.
    pub(super) fn pull_in_overflow(&self) {
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
            next =
                unsafe { self.shard.overflow.load(next * LINE) } >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        }
    }
}

impl Drop for LockedBucket<'_> {
    fn drop(&mut self) {
        // SAFETY: the header of the locked bucket; only the holder writes it.
        unsafe { self.shard.buckets.store(self.at, self.header() & !LOCKED) };
    }
}
