//! When logs that leave memory are worth collecting: nobody looks at their items any more to see what has expired.

use super::{Logs, SEGMENT_HEADER_BYTES, start_of};
use crate::item::{self, Item};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

impl<M: Memory> Logs<M> {
    /// When half of what a log at rest, in memory, holds is dead or has expired; never: [`u64::MAX`].
    pub(super) fn half_expires_at(&self, segment: u32) -> u64 {
        let start = start_of(segment);
        let used = u64::from(self.segments[segment as usize].end.load(Ordering::Relaxed));
        let mut at = start + u64::from(SEGMENT_HEADER_BYTES);
        let mut expiring = Vec::new();
        while at < start + used {
            // SAFETY: a log at rest, which is in memory until its readers have left.
            let bytes = unsafe { item::borrow(self.medium.memory(), at, start + used) };
            let Some(bytes) = bytes else { break };
            let found = Item::read(bytes).filter(|_| item::is_item(bytes));
            if let Some(expires_at_ms) = found.and_then(|item| item.expires_at_ms) {
                expiring.push((expires_at_ms, bytes.len() as u64));
            }
            at += bytes.len() as u64;
        }
        expiring.sort_unstable();
        let mut gone = self.dead_bytes(segment);
        let half = expiring.iter().find(|(_, bytes)| {
            gone += bytes;
            gone * 2 >= used
        });
        half.map_or(u64::MAX, |(expires_at_ms, _)| *expires_at_ms)
    }

    /// Whether logs that are away are half expired, as counted last. No writer waits for that.
    pub fn has_expired(&self) -> bool {
        self.has_expired.load(Ordering::Relaxed)
    }
}
