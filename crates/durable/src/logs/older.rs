//! Which logs may hold older versions of what lies in a log: what decides whether a key can be evicted without a
//! tombstone.
//!
//! The versions of a key are written in turn, under the lock of its bucket. So whatever an item superseded was written
//! before the item's log was closed, and lies in that log or in one that had been begun by then; and it counts there
//! as dead. Where neither is so of any other log, no crash can bring an older version back once the item's log is
//! free.

use super::overwrite::ALL;
use super::{Logs, SEGMENT_HEADER_BYTES, State, start_of};
use crate::item::{self, Item};
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

impl<M: Memory> Logs<M> {
    /// The logs that may hold older versions of items of `segments`, which may be among them; none if that cannot be
    /// told now. On return nothing is overwritten in them any more. The caller is the only one to free logs.
    pub fn holding_older(&self, segments: &[u32]) -> Option<Vec<u32>> {
        let closed = |segment: &u32| {
            let closed = self.segments[*segment as usize].closed.load(Ordering::Relaxed);
            if closed == 0 { u64::MAX } else { closed }
        };
        let end = segments.iter().map(closed).max()?;
        let may_hold = || -> Vec<_> {
            let mut views = self.survey();
            views.retain(|view| view.sequence < end && view.dead_bytes > 0);
            views
        };
        let mut found = may_hold();
        if found.iter().any(|view| view.state == State::Open) {
            self.seal_open();
            found = may_hold();
        }
        // One that is part of a batch under way stays open.
        let is_open = found.iter().any(|view| view.state == State::Open);
        let numbers: Vec<u32> = found.iter().map(|view| view.number).collect();
        self.freeze(&numbers);
        (!is_open).then_some(numbers)
    }

    /// Says of the logs in `kept`, which recovery found, before which log each was closed: the next of its writer, or
    /// the first of this life. Otherwise all of them would count as written after each other, and evicting one after
    /// a restart would read all.
    pub(super) fn recall_closings(&self, kept: impl Iterator<Item = u32>, next_sequence: u64) {
        let mut found = Vec::new();
        for segment in kept {
            let row = &self.segments[segment as usize];
            let writer = row.header_writer.load(Ordering::Relaxed);
            if writer != 0 {
                found.push((writer, row.sequence.load(Ordering::Relaxed), segment));
            }
        }
        found.sort_unstable();
        for (at, (writer, _, segment)) in found.iter().enumerate() {
            let next = found.get(at + 1).filter(|(next, ..)| next == writer);
            let closed = next.map_or(next_sequence, |(_, sequence, _)| *sequence);
            self.segments[*segment as usize].closed.store(closed, Ordering::Relaxed);
        }
    }

    /// Visits the keys of a log of [`Logs::holding_older`]; whether all of it could be read. Nothing is of one that
    /// was opened or freed meanwhile.
    pub fn each_key(&self, segment: u32, _guard: &Guard, mut visit: impl FnMut(&[u8])) -> bool {
        let row = &self.segments[segment as usize];
        let (state, is_here) = (row.state(), row.place.residence().is_resident);
        let is_frozen = self.frozen[segment as usize].load(Ordering::Acquire) == ALL;
        if !matches!(state, State::Sealed | State::Collecting) || !is_frozen || !is_here {
            return false;
        }
        let end = start_of(segment)
            + u64::from(self.segments[segment as usize].end.load(Ordering::Acquire));
        let mut at = start_of(segment) + u64::from(SEGMENT_HEADER_BYTES);
        // SAFETY: a closed log whose items are all frozen (checked) is written by nobody until it is freed, and used
        // again when no guard from before is held (`Freed`).
        while let Some(bytes) = unsafe { item::borrow(self.medium.memory(), at, end) } {
            match Item::read(bytes) {
                Some(item) if item::is_item(bytes) => visit(item.key),
                _ => {}
            }
            at += bytes.len() as u64;
        }
        at >= end
    }
}
