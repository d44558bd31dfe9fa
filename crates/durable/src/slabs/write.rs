//! Writing an item into a slot.

use super::{Slabs, Writer, classes, superblock_of};
use crate::item::{MAX_HEADER_BYTES, NewItem};
use crate::sections::Changes;
use crate::values::Ticket;
use parking_lot::ReentrantMutexGuard;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, Native};

/// Lines of a slot that are prefetched; the processor itself follows further ones.
const PREFETCHED_LINES: u64 = 4;

/// A writer's free slots, held. Reentrant: the holder's thread may ask for them again.
#[derive(Debug)]
pub struct Slots<'a, M: Memory = Native> {
    slabs: &'a Slabs<M>,
    lock: ReentrantMutexGuard<'a, RefCell<Writer>>,
    id: usize,
}

impl<'a, M: Memory> Slots<'a, M> {
    #[inline(always)]
    pub(super) fn new(
        slabs: &'a Slabs<M>,
        lock: ReentrantMutexGuard<'a, RefCell<Writer>>,
        id: usize,
    ) -> Slots<'a, M> {
        Slots { slabs, lock, id }
    }

    /// Whether a slot for an item of exactly `bytes` is at hand. If not, [`Slabs::slots`] asked for
    /// so many `bytes` makes room; here nothing is waited for, since callers hold a bucket's lock.
    #[inline]
    pub fn fits(&self, bytes: usize) -> bool {
        if bytes > super::LARGEST_ITEM_BYTES {
            return false;
        }
        let mut writer = self.lock.borrow_mut();
        if self.slabs.class_at_hand(&mut writer, bytes).is_some() {
            return true;
        }
        writer.refused = bytes;
        false
    }

    /// The next slot, and asks for the lines of the one after it: slots that were used before are
    /// anywhere in memory, and a store to a line that is far away waits for it.
    #[inline(always)]
    fn take(&self, bytes: usize) -> u64 {
        let mut writer = self.lock.borrow_mut();
        let class = self.slabs.class_at_hand(&mut writer, bytes).expect("a slot was asked for");
        let exact = classes::class_of(bytes);
        if class != exact {
            self.slabs.shared.shares(exact);
        }
        let cache = &mut writer.caches[class];
        let location = cache.pop().expect("a slot was asked for");
        if let Some(next) = cache.last() {
            let lines = u64::from(classes::slot_bytes(class)).div_ceil(64).min(PREFETCHED_LINES);
            (0..lines).for_each(|line| self.slabs.medium.memory().prefetch(*next + 64 * line));
        }
        location
    }

    /// Writes an item for which [`Slots::fits`] said yes; returns its location. Durable on return, or, with
    /// allocation metadata, once `changes` are committed: until then the slot is free.
    ///
    /// # Panics
    /// If there is no slot.
    #[inline]
    pub fn write(&mut self, new: &NewItem<'_>, changes: &mut Changes) -> u64 {
        let location = self.take(new.item_bytes());
        let salt =
            self.slabs.shared.superblocks[superblock_of(location)].salt.load(Ordering::Relaxed);
        let mut header = [0; MAX_HEADER_BYTES];
        let header_bytes = new.encode_header(salt, false, &mut header);
        let checksum = match self.slabs.allocation.get() {
            Some(_) => std::mem::take(header.first_chunk_mut::<4>().expect("a checksum")),
            None => [0; 4],
        };
        let memory = self.slabs.medium.memory();
        let parts = [&header[..header_bytes], new.key, new.value];
        // SAFETY: inside the slot, which holds the item (its class) and is this writer's alone: it was
        // free, and no reader holds its location.
        unsafe { self.lock.borrow_mut().flusher.write_slot(memory, location, parts) };
        if let Some(allocation) = self.slabs.allocation.get() {
            self.slabs.take_in_section(allocation, location, u32::from_le_bytes(checksum), changes);
        }
        location
    }

    /// The item written next supersedes the one of `bytes` at `location`.
    #[inline(always)]
    pub fn supersedes(&mut self, location: u64, bytes: usize) {
        self.lock.borrow_mut().flusher.supersedes(location, bytes as u64);
    }

    /// As [`Slabs::retire`].
    #[inline]
    pub fn retire(&mut self, location: u64, changes: &mut Changes) {
        self.slabs.retire(location, changes);
    }

    /// What supersedes the item at `location` was written. Returns the location if it must be
    /// [released](Slabs::release) once the index has forgotten it; none if this writer does so itself,
    /// later. Called under the key's lock.
    #[inline]
    pub fn supersede(&mut self, location: u64, changes: &mut Changes) -> Option<u64> {
        if self.slabs.deferred.most == 0 {
            self.retire(location, changes);
            return Some(location);
        }
        self.slabs.defer(&mut self.lock.borrow_mut(), self.id, location);
        None
    }

    /// What to commit for everything written so far: nothing, it is durable.
    #[inline(always)]
    pub fn ticket(&self) -> Ticket {
        Ticket { writer: self.id as u8, position: 0 }
    }
}
