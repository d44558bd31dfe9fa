//! Logs that leave memory ([`WhenFull::Spill`]): which go, and how the memory is shared between logs and copies of
//! items that are away.
//!
//! The collector sends logs away ahead of need, the oldest first and what it has written itself before those: what it
//! moves was not written for long. A quarter of the memory is for logs, at least; items that are read from the disk
//! take of the other three as many as are asked for.
//!
//! # What waits for the disk
//! A reader who meets an item that is away reads it from the disk and looks again. A writer gives up room and locks
//! before it does; within a batch, whose keys were looked up before it began, it keeps the writer alone.

use crate::engine::Engine;
use crate::error::Result;
use crate::options::WhenFull;
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_durable::NoItem;
use terrace_durable::logs::{Logs, SegmentView, State};
use terrace_durable::values::SEGMENT_BYTES;
use terrace_memory::Memory;

/// Logs that leave in one round at most: more would hold up who waits for room.
const LEAVING_MOST: usize = 8;
/// One in so many bytes of the memory is kept free for writers.
const AHEAD_SHARE: u64 = 32;
/// One in so many bytes of the memory is for logs.
const LOGS_SHARE: u64 = 4;
/// How often an item is read from the disk for one look: each time it may have been given up before the look.
pub(crate) const FETCHES: usize = 100;

const LOG_BYTES: u64 = SEGMENT_BYTES as u64;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Whether logs leave memory when the budget is spent.
    pub(crate) fn spills(&self) -> bool {
        self.plan.may_spill && self.when_full.load(Ordering::Relaxed) == WhenFull::Spill as u8
    }

    /// Whether items may have to be read from the disk first.
    pub(crate) fn has_away(&self) -> bool {
        self.plan.may_spill && self.values.logs().is_some_and(|logs| logs.away_logs() > 0)
    }

    /// Looks at an item, again and again if it is read from the disk in between.
    #[inline(always)]
    pub(crate) fn here<T>(
        &self,
        guard: &Guard,
        look: impl Fn() -> std::result::Result<T, NoItem>,
    ) -> std::result::Result<T, NoItem> {
        match look() {
            Err(NoItem::Away(location)) => self.fetched(location, guard, look),
            other => other,
        }
    }

    #[cold]
    fn fetched<T>(
        &self,
        mut location: u64,
        guard: &Guard,
        look: impl Fn() -> std::result::Result<T, NoItem>,
    ) -> std::result::Result<T, NoItem> {
        for _ in 0..FETCHES {
            let fetched = self.values.fetch(location, guard);
            fetched.map_err(|_| NoItem::Unreadable(location))?;
            match look() {
                Err(NoItem::Away(again)) => location = again,
                other => return other,
            }
        }
        Err(NoItem::Away(location))
    }

    /// Sends logs away while writers will soon find no room. Whether room was made, or is to come once readers have
    /// left. Under the collector's lock.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn spill(&self, logs: &Logs<M>) -> Result<bool> {
        if !self.plan.may_spill {
            return Ok(false);
        }
        let waited = logs.leaving_segments();
        // What cannot be given back now is tried again.
        let _kept = logs.release_left();
        let (in_memory, copied) =
            (logs.segments_in_memory() as u64 * LOG_BYTES, logs.copied_bytes());
        let (used, limit) = (self.budget.used(), self.budget.limit());
        let others = used.saturating_sub(in_memory + copied);
        let room = limit.saturating_sub(self.budget.headroom()).saturating_sub(others);
        let for_logs = match self.spills() {
            true => room / LOGS_SHARE,
            false => in_memory,
        };
        logs.limit_copies(room.saturating_sub(for_logs));
        if !self.spills() {
            return Ok(false);
        }
        let ahead = (limit / LOG_BYTES / AHEAD_SHARE).clamp(2, 2 * LEAVING_MOST as u64);
        let missing = logs.missing_segments(ahead);
        // Whoever found no room a moment ago finds what has been given back since.
        let is_to_come = waited > 0 || logs.leaving_segments() > 0;
        let beyond = in_memory.saturating_sub(for_logs).div_ceil(LOG_BYTES) as usize;
        let most = missing.min(beyond).min(LEAVING_MOST);
        if most == 0 {
            return Ok(is_to_come);
        }
        let left = logs.send_away(&leaving(logs, most))?;
        let _kept = logs.release_left();
        Ok(left > 0 || is_to_come)
    }
}

/// The next logs to leave: of those that are not about to be collected, the collector's first, the oldest first.
fn leaving<M: Memory>(logs: &Logs<M>, most: usize) -> Vec<u32> {
    let mut sealed = logs.survey();
    sealed.retain(|view| view.state == State::Sealed && view.residence.is_resident);
    let order = |view: &SegmentView| (view.is_due(), !view.is_of_collector, view.sequence);
    sealed.sort_by_key(order);
    sealed.iter().take(most).map(|view| view.number).collect()
}
