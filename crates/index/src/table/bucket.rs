//! A locked bucket: finding, inserting and moving entries.

use super::line::*;
use super::overflow::Lines;
use super::shard::Shard;
use super::version_lock;
use std::io;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_memory::Memory;

/// A bucket whose header says so; released on drop, panics included.
pub(super) struct LockedBucket<'a, I: Memory> {
    pub(super) shard: &'a Shard<I>,
    pub(super) at: u64,
    /// Whether nobody can find it yet, not even after a crash: it becomes durable as a whole.
    pub(super) is_hidden: bool,
    /// What is lent to those who run meanwhile.
    pub(super) lock: BucketLock,
}

/// A slot: the memory it is in, its offset there, its entry.
pub(super) type Place<'a, I> = (&'a I, u64, u64);

/// Where an entry goes: an empty slot, or an overflow line of its own, of which there is one.
pub(super) enum Room<'a, I> {
    Slot(&'a I, u64),
    Line,
}

impl<'a, I: Memory> LockedBucket<'a, I> {
    fn header(&self) -> u64 {
        // SAFETY: the header of a committed bucket.
        unsafe { self.shard.buckets.load(self.at) }
    }

    /// Visits every entry, as the open section leaves it.
    pub(super) fn each(&self, changes: &Changes, mut f: impl FnMut(&'a I, u64, u64)) {
        self.walk(changes, |memory, at, entry| {
            if entry != 0 {
                f(memory, at, entry);
            }
            None::<()>
        });
    }

    /// Visits every slot, empty ones included, until `f` returns something.
    fn walk<R>(
        &self,
        changes: &Changes,
        mut f: impl FnMut(&'a I, u64, u64) -> Option<R>,
    ) -> Option<R> {
        let mut memory = &self.shard.buckets;
        let mut line = self.at;
        loop {
            for slot in 1..=SLOTS {
                let at = line + slot * 8;
                if let Some(found) = f(memory, at, self.shard.seen(changes, memory, at)) {
                    return Some(found);
                }
            }
            let header = self.shard.seen(changes, memory, line);
            let next = self.shard.next_line(header)?;
            memory = &self.shard.overflow;
            line = next;
        }
    }

    /// The slot of the entry with the tag of `hash` that is the key's.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, is_key: impl Fn(u64) -> bool) -> Option<Place<'a, I>> {
        let tags = self.shard.tags;
        let mut memory = &self.shard.buckets;
        let mut line = self.at;
        loop {
            let mut slots = matching_slots(memory, line, tags, hash);
            while slots != 0 {
                let at = line + u64::from(slots.trailing_zeros()) * 8;
                // SAFETY: a slot of a committed line.
                let entry = unsafe { memory.load(at) };
                if entry != 0 && tags.has(entry, hash) && is_key(tags.location(entry)) {
                    return Some((memory, at, entry));
                }
                slots &= slots - 1;
            }
            // SAFETY: the header of a committed line.
            let next = self.shard.next_line(unsafe { memory.load(line) })?;
            memory = &self.shard.overflow;
            line = next;
        }
    }

    /// Where one entry more goes.
    ///
    /// # Errors
    /// Those of the memory, if that takes an overflow line more.
    pub(super) fn room(&self, lines: &mut Lines<'a, I>) -> io::Result<Room<'a, I>> {
        let empty = |memory, at, entry| (entry == 0).then_some((memory, at));
        match self.walk(&Changes::new(), empty) {
            Some((memory, at)) => Ok(Room::Slot(memory, at)),
            None => lines.reserve().map(|()| Room::Line),
        }
    }

    /// Adds an entry where [`LockedBucket::room`] said.
    pub(super) fn insert(
        &self,
        entry: u64,
        room: Room<'a, I>,
        lines: &mut Lines<'a, I>,
        changes: &mut Changes,
    ) {
        let Room::Slot(memory, at) = room else {
            return self.insert_line(entry, lines.take(changes), changes);
        };
        self.set(changes, memory, at, entry);
    }

    /// The new line goes to the head of the chain, complete before it is linked.
    fn insert_line(&self, entry: u64, line: u64, changes: &mut Changes) {
        let chain = self.header() >> OVERFLOW_SHIFT & OVERFLOW_MASK;
        // SAFETY: the line is committed and owned until the header below makes it reachable.
        unsafe {
            // Until the section is there the line is free, and leads to the next free one.
            let link = self.shard.overflow.load(line * LINE) & VERSION_MASK;
            for slot in 2..=SLOTS {
                self.shard.overflow.store(line * LINE + slot * 8, 0);
            }
            self.shard.overflow.store(line * LINE + 8, entry);
            let header = self.shard.checked(link | chain << OVERFLOW_SHIFT, line, true);
            self.shard.overflow.store(line * LINE, header);
        }
        if !self.is_hidden {
            self.shard.keep(&self.shard.overflow, line * LINE, LINE);
        }
        let header = self.header() & !(OVERFLOW_MASK << OVERFLOW_SHIFT);
        let header = self.shard.checked(header | line << OVERFLOW_SHIFT, self.at / LINE, false);
        self.set(changes, &self.shard.buckets, self.at, header);
    }

    /// Changes a word of the bucket.
    fn set(&self, changes: &mut Changes, memory: &I, at: u64, word: u64) {
        if self.is_hidden {
            // SAFETY: a word of a committed line that nobody else can see.
            unsafe { memory.store(at, word) };
        } else {
            self.shard.set(changes, memory, at, word);
        }
    }

    /// All lines of the bucket are durable on return, if the table is persistent.
    pub(super) fn persist_all(&self) {
        if !self.shard.persistence.is_persistent() {
            return;
        }
        let mut line = Some((&self.shard.buckets, self.at));
        while let Some((memory, at)) = line {
            // SAFETY: a committed line of the bucket, here and for its header.
            unsafe { memory.write_back(at, LINE) };
            // SAFETY: as above.
            let next = self.shard.next_line(unsafe { memory.load(at) });
            line = next.map(|next| (&self.shard.overflow, next));
        }
        self.shard.buckets.fence();
    }

    pub(super) fn raise_version(&self) {
        let raised = |header| self.shard.raised(header, 1);
        // SAFETY: the header of the bucket that this has locked.
        unsafe { version_lock::change(&self.shard.buckets, self.at, raised) };
    }

    /// Gives up the overflow lines if what is left has room in the bucket's own line, one slot to spare: they would
    /// stay for ever where keys come and go. Whether it did.
    pub(super) fn shrink(&self, lines: &mut Lines<'a, I>, changes: &mut Changes) -> bool {
        if self.header() >> OVERFLOW_SHIFT & OVERFLOW_MASK == 0 {
            return false;
        }
        let mut left = 0;
        self.each(changes, |_, _, _| left += 1);
        if left >= SLOTS {
            return false;
        }
        self.pull_in_overflow(lines, changes);
        true
    }

    /// Moves what is left in overflow lines into the bucket's own line, which has room for it, and frees them. Copies
    /// are made before the chain is unlinked, and the version is raised with the unlinking.
    pub(super) fn pull_in_overflow(&self, lines: &mut Lines<'a, I>, changes: &mut Changes) {
        if self.header() >> OVERFLOW_SHIFT & OVERFLOW_MASK == 0 {
            return;
        }
        let (mut moving, mut empty) = ([0; SLOTS as usize], [0; SLOTS as usize]);
        let (mut move_count, mut empty_count) = (0, 0);
        self.walk(changes, |memory, at, entry| {
            let own = std::ptr::eq(memory, &self.shard.buckets);
            if own && entry == 0 {
                empty[empty_count] = at;
                empty_count += 1;
            } else if !own && entry != 0 {
                moving[move_count] = entry;
                move_count += 1;
            }
            None::<()>
        });
        debug_assert!(move_count <= empty_count, "the bucket's own line has room");
        for (entry, at) in moving[..move_count].iter().zip(&empty) {
            self.shard.set(changes, &self.shard.buckets, *at, *entry);
        }
        self.unlink_overflow(lines, changes);
    }

    /// Unlinks the overflow lines of a table that is being cleared.
    pub(super) fn forget_overflow(&self) {
        let header = self.header();
        if header >> OVERFLOW_SHIFT & OVERFLOW_MASK != 0 {
            let raised = self.without_overflow(header, 1);
            self.shard.set_now(&self.shard.buckets, self.at, raised);
        }
    }

    fn without_overflow(&self, header: u64, versions: u64) -> u64 {
        let cleared = header & !(OVERFLOW_MASK << OVERFLOW_SHIFT);
        self.shard.checked(self.shard.raised(cleared, versions), self.at / LINE, false)
    }

    /// Unlinks and frees the overflow lines.
    pub(super) fn unlink_overflow(&self, lines: &mut Lines<'a, I>, changes: &mut Changes) {
        let header = self.header();
        let mut next = self.shard.next_line(header);
        // Two more than now: a split raises it by one before the section's words are stored.
        self.set(changes, &self.shard.buckets, self.at, self.without_overflow(header, 2));
        while let Some(line) = next {
            // SAFETY: an overflow number names a committed line; its link is read before it is freed.
            next = self.shard.next_line(unsafe { self.shard.overflow.load(line) });
            lines.free(line / LINE, changes);
        }
    }
}

impl<I: Memory> Drop for LockedBucket<'_, I> {
    fn drop(&mut self) {
        // SAFETY: the header of the bucket that this has locked.
        unsafe { version_lock::unlock(&self.shard.buckets, self.at) };
    }
}
