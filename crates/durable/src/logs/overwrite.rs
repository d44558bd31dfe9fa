//! Overwriting: a hot key's newest item, changed where it lies until it is handed to the medium.
//!
//! A log-structured store pays for every update with space that the collector must win back, and a
//! skewed load updates few keys again and again. What no checkpoint has counted yet exists in DRAM only:
//! overwriting it there loses nothing that was promised, writes nothing to the medium twice, and
//! leaves nothing dead behind. (The mutable region of hybrid logs; here it ends where the medium
//! begins, so the checkpoint stays a plain prefix of the writes.)
//!
//! # Who may touch what
//! `frozen[segment]` is the offset below which the items of a segment never change again. It is
//! raised only while *every* writer is locked out, and an overwriter holds its own writer's lock:
//! whoever reads an offset below it, to hand it to the medium or to look at it in place, looks at
//! bytes at rest. Two overwriters of one item are kept apart by the lock of the key's bucket.
//! Readers take no lock: what is not frozen they copy, and ask the index whether a writer came in
//! between ([`Logs::copy_item`]).
//!
//! Under `Rule::All`, and on byte-addressable media, nothing is ever overwritten: there an item
//! may be durable, and told of, as soon as it is written.

use super::appender::Appender;
use super::{Logs, SEGMENT_BYTES, segment_of};
use crate::item::{self, Header, Item, MAX_HEADER_BYTES, NewItem};
use crate::values::ItemCopy;
use crate::values::place::offset_of;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Longest item that is overwritten: readers copy it.
pub const MOST_OVERWRITTEN_BYTES: usize = 1024;

/// The whole segment.
pub(super) const ALL: u32 = SEGMENT_BYTES;

impl<M: Memory> Logs<M> {
    /// Whether the item at `location` may be overwritten while it is read.
    #[inline(always)]
    pub fn may_change(&self, location: u64) -> bool {
        let frozen = self.frozen_to(segment_of(location));
        frozen.is_some_and(|frozen| offset_of(location) >= frozen)
    }

    /// Brings the item at `location` near for an update: all of its `lines` to be written if it may
    /// be overwritten, else its head.
    #[inline(always)]
    pub fn prefetch_to_update(&self, location: u64, lines: u64) {
        if self.may_change(location) {
            for line in 0..lines {
                self.medium.memory().prefetch_to_write(location + 64 * line);
            }
        } else {
            self.medium.memory().prefetch(location);
        }
    }

    /// Copies the item at `location`, learnt under a guard; its bytes may be those of two writes
    /// unless the caller finds that no writer held the key's lock meanwhile. `false` for an item
    /// that does not change after all.
    pub fn copy_item(&self, location: u64, copy: &mut ItemCopy) -> bool {
        if !self.may_change(location) {
            return false;
        }
        let Ok(found) = self.resolve(location) else { return false };
        let (memory, room) = (self.medium.memory(), found.end - location);
        let head_bytes = room.min(MAX_HEADER_BYTES as u64) as usize;
        let target = copy.target();
        // SAFETY: within the segment, which is committed, and within the copy.
        unsafe { memory.copy_changing(location, target, head_bytes) };
        // Lengths are never overwritten.
        // SAFETY: just written.
        let head = unsafe { std::slice::from_raw_parts(target, head_bytes) };
        let Some(bytes) = Header::decode(head).map(|header| header.item_bytes()) else {
            return false;
        };
        if bytes > MOST_OVERWRITTEN_BYTES || bytes as u64 > room {
            return false;
        }
        // SAFETY: as above; the item lies within its segment (checked).
        unsafe {
            memory.copy_changing(location, target, bytes);
            copy.holds(bytes);
        }
        true
    }

    /// Freezes all of the claimed `segments`, for a collector.
    pub fn freeze(&self, segments: &[u32]) {
        let _nobody_writes = self.lock_writers();
        for segment in segments {
            self.freeze_to(*segment as usize, ALL);
        }
    }
}

impl<M: Memory> Appender<'_, M> {
    /// Whether [`Appender::overwrite`] would write `new` over `old` at `location`.
    #[inline]
    pub fn may_overwrite(&self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool {
        let bytes = new.item_bytes();
        let fits = new.value.len() == old.value.len()
            && old.expires_at_ms.is_none()
            && new.expires_at_ms.is_none()
            && !(old.tombstone || new.tombstone || old.in_batch)
            && item::have_one_width(old.version, new.version)
            && bytes <= MOST_OVERWRITTEN_BYTES
            && location % u64::from(SEGMENT_BYTES) + bytes as u64 <= u64::from(SEGMENT_BYTES);
        fits && self.logs.may_change(location) && !self.lock.borrow().in_batch
    }

    /// Writes `new` over the current item of its key, `old` at `location`, if nobody was promised
    /// that and nothing but value and version differ. Called under the key's lock; readers must
    /// learn of it before that is released. Durability as for [`Appender::append`].
    #[inline]
    pub fn overwrite(&mut self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool {
        if !self.may_overwrite(location, old, new) {
            return false;
        }
        let mut writer = self.lock.borrow_mut();
        writer.writes += 1;
        let segment = &self.logs.segments[segment_of(location)];
        let mut header = [0; MAX_HEADER_BYTES];
        let salt = segment.salt.load(Ordering::Relaxed);
        let header_bytes = new.encode_header(salt, false, &mut header);
        let memory = self.logs.medium.memory();
        // SAFETY: the bytes of an item that is not frozen, which this writer's lock keeps so, within its segment
        // (`may_overwrite`); the key's lock keeps other overwriters away, and readers copy (`copy_changing`). `old`,
        // which borrows them, is not looked at any more.
        unsafe {
            memory.write_changing(location, &header[..header_bytes]);
            memory.write_changing(location + (header_bytes + new.key.len()) as u64, new.value);
        }
        let parts = [&header[..header_bytes], new.key, new.value];
        writer.redo(memory, Some(new.key), salt, &parts);
        true
    }
}
