//! Logs that leave memory ([`WhenFull::Spill`]), or near memory for far memory: which go, and how the memory is shared
//! between logs and copies of items that are away.
//!
//! Where there is far memory, logs leave near memory for it, and those that were there longest leave it for the disk.
//! Moving makes room at once: nobody has to be waited for, since addresses stay.
//!
//! The collector sends logs away ahead of need, the oldest first and what it has written itself before those: what it
//! moves was not written for long. A quarter of the memory is for logs, and where it is little as many as are written
//! at a time; items that are read from the disk take of the rest as many as are asked for.
//!
//! # What waits for the disk
//! A look never does: it says what it met on the disk alone ([`NoItem::Away`]). Whoever looked has that read, together
//! with what else it will need, and looks again ([`Engine::near`]); a writer gives up room and locks before, but for
//! one in a batch, whose keys were looked up before it began and which keeps its writer alone. A thread that serves
//! others ([`Wait::Never`]) leaves the reading to the map's fetcher, and gets [`Error::Fetching`].

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::WhenFull;
use crate::pressure::Wait;
use crossbeam_epoch::Guard;
use std::sync::atomic::Ordering;
use terrace_durable::NoItem;
use terrace_durable::logs::{Logs, SegmentView, State, Wanted};
use terrace_durable::values::{Home, Residence, SEGMENT_BYTES};
use terrace_memory::Memory;

/// Logs that leave in one round at most: more would hold up who waits for room.
const LEAVING_MOST: usize = 8;
/// Logs that are kept free for writers, at the most.
const AHEAD_MOST: u64 = 2 * LEAVING_MOST as u64;
/// One in so many bytes of the memory is kept free for writers.
const AHEAD_SHARE: u64 = 32;
/// One in so many bytes of the memory is for logs.
const LOGS_SHARE: u64 = 4;
/// One in so many bytes of the memory may be copies, however much logs take.
const COPIES_SHARE: u64 = 16;
/// Items that are read from the disk together have about so many bytes, or are one.
const AT_ONCE_BYTES: usize = 1 << 20;
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

    /// Looks, again and again as long as it meets what is on the disk alone, which is read in between.
    ///
    /// # Errors
    /// What the look met; those of the disk. [`Error::Fetching`] where `wait` says so.
    #[inline(always)]
    pub(crate) fn near<T>(
        &self,
        guard: &Guard,
        wait: Wait,
        look: impl Fn() -> std::result::Result<T, NoItem>,
    ) -> Result<T> {
        match look() {
            Ok(found) => Ok(found),
            Err(met) => self.brought_near(met, guard, wait, look),
        }
    }

    #[cold]
    fn brought_near<T>(
        &self,
        mut met: NoItem,
        guard: &Guard,
        wait: Wait,
        look: impl Fn() -> std::result::Result<T, NoItem>,
    ) -> Result<T> {
        for _ in 0..FETCHES {
            self.bring_near(met, guard, wait)?;
            match look() {
                Ok(found) => return Ok(found),
                Err(again) => met = again,
            }
        }
        Err(self.damaged(met))
    }

    /// Reads what a look has met on the disk alone; anything else that it met is its error.
    ///
    /// # Errors
    /// As [`Engine::near`].
    #[cold]
    pub(crate) fn bring_near(&self, met: NoItem, guard: &Guard, wait: Wait) -> Result<()> {
        match (met, wait) {
            (NoItem::Away(location), Wait::ForRoom) => Ok(self.values.fetch(location, guard)?),
            (NoItem::Away(location), Wait::Never { .. }) => {
                let wanted = self.values.wanted(location);
                match wanted.and_then(|wanted| self.fetches.take_failure(wanted)) {
                    Some(error) => Err(error.into()),
                    None => self.bring_all_near(wanted.into_iter().collect(), wait),
                }
            }
            _ => Err(self.damaged(met)),
        }
    }

    /// How many items are looked at together, of `most`: where they may be read from the disk, no more than there is
    /// memory for, since their copies stay as long as somebody looks.
    #[inline(always)]
    pub(crate) fn near_at_once(&self, most: usize) -> usize {
        match self.has_away() {
            false => most,
            true => (AT_ONCE_BYTES / self.values.usual_item_bytes()).clamp(1, most),
        }
    }

    /// The same where the copies of all are to be there at once.
    pub(crate) fn copies_at_once(&self, most: usize) -> usize {
        let fit = self.values.copies_most() / 2 / self.values.usual_item_bytes() as u64;
        self.near_at_once(most).min(fit.max(1) as usize)
    }

    /// Whether so many items of the usual length find room among the copies. Whoever needs more than that waits for
    /// the disk: the first would be given up before the last is there, however often they were read.
    pub(crate) fn fit_as_copies(&self, items: usize) -> bool {
        (items * self.values.usual_item_bytes()) as u64 <= self.values.copies_most() / 2
    }

    /// The same for many, all together, whatever becomes of each: whoever looks at one that cannot be read is told.
    ///
    /// # Errors
    /// [`Error::Fetching`] where `wait` says so, if there are any.
    #[cold]
    pub(crate) fn bring_all_near(&self, mut wanted: Vec<Wanted>, wait: Wait) -> Result<()> {
        if wait == Wait::ForRoom {
            self.values.fetch_all(wanted, |_, _| ());
            return Ok(());
        }
        wanted.retain(|wanted| !self.fetches.has_failed(*wanted));
        if wanted.is_empty() {
            return Ok(());
        }
        self.fetches.ask(wanted);
        Err(Error::Fetching)
    }

    /// Looks at an item of which a log in memory was seen a moment ago; reads it from the disk, and waits for it, where
    /// it has left since.
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

    /// Makes room while writers will soon find none: moves logs to far memory, or sends them away. Under the
    /// collector's lock.
    ///
    /// # Errors
    /// The medium's.
    pub(crate) fn spill(&self, logs: &Logs<M>) -> Result<Made> {
        if !self.plan.may_spill {
            return Ok(self.move_far(logs));
        }
        // Whoever found no room a moment ago finds what is given back now.
        let waited = logs.leaving_segments() > 0 || logs.waiting_far() > 0;
        // What cannot be given back now is tried again.
        let _kept = (logs.release_left(), logs.release_free_far());
        let (in_memory, copied) =
            (logs.segments_in_memory() as u64 * LOG_BYTES, logs.copied_bytes());
        let (used, limit) = (self.budget.used(), self.budget.limit());
        let others = used.saturating_sub(in_memory + copied);
        let room = limit.saturating_sub(self.budget.headroom()).saturating_sub(others);
        let ahead = self.ahead(logs);
        // Logs that are written to do not leave.
        let stay = (logs.writers() as u64 + 1 + ahead) * LOG_BYTES;
        let for_logs = match self.spills() {
            true => stay.max(room / LOGS_SHARE),
            false => in_memory,
        };
        let for_copies = room.saturating_sub(for_logs).max(room / COPIES_SHARE);
        logs.limit_copies(for_copies);
        if !self.spills() {
            return Ok(self.move_far(logs));
        }
        let missing = logs.missing_segments(ahead).min(LEAVING_MOST);
        let far_excess = logs.far_excess(ahead as usize, missing > 0).min(LEAVING_MOST);
        if far_excess > 0 {
            logs.send_away(&leaving(logs, Home::Far, far_excess))?;
        }
        let is_to_come = || waited || logs.leaving_segments() > 0 || logs.dropped_bytes() > 0;
        if missing == 0 {
            return Ok(if is_to_come() { Made::Soon } else { Made::Nothing });
        }
        let with_free = in_memory + ahead * LOG_BYTES;
        let mut beyond = with_free.saturating_sub(for_logs).div_ceil(LOG_BYTES) as usize;
        if beyond < missing {
            // Logs have no more than their share: copies make room, and once there are none, logs.
            let too_many = (missing - beyond) as u64 * LOG_BYTES;
            logs.limit_copies(for_copies.min(copied.saturating_sub(too_many)));
            if copied < too_many {
                beyond = missing;
            }
        }
        let (near, most) = (leaving(logs, Home::Near, usize::MAX), missing.min(beyond));
        if logs.move_far(&near, most) > 0 {
            return Ok(Made::Now);
        }
        // While logs leave far memory, those that are near wait for their turn there.
        let waits = logs.may_move() && logs.far_stats().logs > 0 && logs.leaving_segments() > 0;
        let comes = waits || logs.send_away(&near[..most.min(near.len())])? > 0 || is_to_come();
        let _kept = logs.release_left();
        Ok(if comes { Made::Soon } else { Made::Nothing })
    }

    /// Moves logs to far memory while writers will soon find no room, of a map whose logs do not leave memory.
    fn move_far(&self, logs: &Logs<M>) -> Made {
        if self.plan.far.is_none() {
            return Made::Nothing;
        }
        let waited = logs.waiting_far() > 0 || logs.leaving_segments() > 0;
        // What cannot be given back now is tried again.
        let _kept = (logs.release_left(), logs.release_free_far());
        let missing = logs.missing_segments(self.ahead(logs)).min(LEAVING_MOST);
        let has_moved = missing > 0
            && logs.far_room() > 0
            && logs.move_far(&leaving(logs, Home::Near, usize::MAX), missing) > 0;
        match (has_moved, waited) {
            (true, _) => Made::Now,
            // Far memory that is about to come back is room for what is near.
            (false, true) => Made::Soon,
            (false, false) => Made::Nothing,
        }
    }

    /// Logs that are kept free for writers: logs move, or leave, no later than any would be evicted.
    fn ahead(&self, logs: &Logs<M>) -> u64 {
        let ahead = (self.budget.limit() / LOG_BYTES / AHEAD_SHARE).clamp(2, AHEAD_MOST);
        if self.evicts() { ahead.max(self.evicts_ahead(logs)) } else { ahead }
    }
}

/// What became of room that writers will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// There was enough, or none could be made.
    Nothing,
    /// It is to come, once readers have left.
    Soon,
    /// There is some.
    Now,
}

/// The next logs to leave this memory: of those that are not about to be collected, the collector's first, the oldest
/// first.
fn leaving<M: Memory>(logs: &Logs<M>, home: Home, most: usize) -> Vec<u32> {
    let mut sealed = logs.survey();
    let is_there = |view: &SegmentView| view.residence == Residence { home, is_resident: true };
    sealed.retain(|view| view.state == State::Sealed && is_there(view));
    let order = |view: &SegmentView| (view.is_due(), !view.is_of_collector, view.sequence);
    sealed.sort_by_key(order);
    sealed.iter().take(most).map(|view| view.number).collect()
}
