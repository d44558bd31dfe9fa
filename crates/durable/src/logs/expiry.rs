//! When logs that leave memory are worth collecting: nobody looks at their items any more to see what has expired.

use super::{Logs, SEGMENT_HEADER_BYTES, start_of};
use crate::item::{self, Item};
use crate::values::place::offset_of;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

impl<M: Memory> Logs<M> {
    /// Notes of a log at rest, in memory, what nobody looks for once it has left: when half of what it holds is dead or
    /// has expired, and the items that say that a key is deleted.
    pub(super) fn look_through(&self, segment: u32) {
        let (half_expires_at_ms, deleted) = self.half_expires_at(segment);
        let row = &self.segments[segment as usize];
        row.half_expires_at_ms.store(half_expires_at_ms, Ordering::Relaxed);
        if !deleted.is_empty() {
            self.away.deleted.lock().insert(segment, deleted.into());
        }
    }

    /// Notes when half of a log has expired, if that is not known and nobody else has claimed it.
    pub(super) fn notes_expiry(&self, segment: u32) {
        let row = &self.segments[segment as usize];
        let is_known = row.half_expires_at_ms.load(Ordering::Relaxed) != 0;
        if is_known || !row.place.residence().is_resident || !self.claim(segment) {
            return;
        }
        if row.place.residence().is_resident {
            let (half_expires_at_ms, _) = self.half_expires_at(segment);
            row.half_expires_at_ms.store(half_expires_at_ms, Ordering::Relaxed);
        }
        self.unclaim(segment);
    }

    /// When half of a log at rest, in memory, is dead or has expired, never: [`u64::MAX`]; and the offsets of items
    /// that say that a key is deleted.
    fn half_expires_at(&self, segment: u32) -> (u64, Vec<u32>) {
        let (start, row) = (start_of(segment), &self.segments[segment as usize]);
        let used = u64::from(row.end.load(Ordering::Relaxed));
        let mut at = start + u64::from(SEGMENT_HEADER_BYTES);
        let (mut expiring, mut deleted) = (Vec::new(), Vec::new());
        while at < start + used {
            // SAFETY: a log at rest, which is in memory until its readers have left.
            let bytes = unsafe { item::borrow(self.medium.memory(), at, start + used) };
            let Some(bytes) = bytes else { break };
            let found = Item::read(bytes).filter(|_| item::is_item(bytes));
            if let Some(expires_at_ms) = found.and_then(|item| item.expires_at_ms) {
                expiring.push((expires_at_ms, bytes.len() as u64));
            }
            deleted.extend(found.filter(|item| item.tombstone).map(|_| offset_of(at)));
            at += bytes.len() as u64;
        }
        expiring.sort_unstable();
        let mut gone = self.dead_bytes(segment);
        let half = expiring.iter().find(|(_, bytes)| {
            gone += bytes;
            gone * 2 >= used
        });
        (half.map_or(u64::MAX, |(expires_at_ms, _)| *expires_at_ms), deleted)
    }

    /// Whether logs that are away are half expired, as counted last. No writer waits for that.
    pub fn has_expired(&self) -> bool {
        self.has_expired.load(Ordering::Relaxed)
    }
}
