//! Logs that leave memory: their items are read from the disk, one by one, and what is read often stays near.
//!
//! # What is durable when
//! A log leaves only when it is sealed, nothing in it is overwritten any more (it is frozen), and all of it was written
//! to the disk and synced. From then on the disk alone has it; nobody writes there until the log is brought back to be
//! collected. A crash finds what it would have found had the log stayed.
//!
//! # Who may still look
//! A location is learnt under an epoch guard, also by writers of a map whose logs leave. The memory is given back when
//! all guards from before the log was marked as away are gone. A reader who comes later fetches a copy, verified with
//! its checksum, and looks at that.

use super::far::Far;
use super::item_cache::{Copies, ItemCache};
use super::pool::EPOCHS;
use super::{Logs, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, State, start_of};
use crate::error::Result;
use crate::item;
use crate::medium::BLOCK_BYTES;
use crate::values::Home;
use crate::values::place::{offset_of, segment_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::Memory;

/// Most bytes of copies where the budget sets no bound.
const COPIES_MOST: u64 = 256 << 20;

/// One in so many bytes of the memory may be copies while all logs that are away are about to come back.
const FEW_COPIES_SHARE: u64 = 64;

/// Logs read by recovery that may wait for readers to leave, and for how long the next one waits for them then.
const LEAVING_MOST: usize = 2;
const LEFT_WITHIN: Duration = Duration::from_millis(50);
/// Items of a log by which it is judged how long they are.
const ITEMS_ASKED: u64 = 256;

/// What there is of logs that are away, or in far memory.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// Whether recovery sends logs away, which takes no more than its share.
    may_leave: AtomicBool,
    /// Logs that recovery has read and kept in memory.
    pub(super) kept: AtomicUsize,
    pub(super) copies: Copies,
    /// Where logs go before they leave memory.
    pub(super) far: Option<Far>,
    /// Free segments in far memory that wait for readers.
    pub(super) waiting_far: Arc<AtomicUsize>,
    /// Logs that are away, and such as are leaving.
    count: AtomicUsize,
    /// Marked as away, and in memory until their readers have left.
    pub(super) leaving: Mutex<Vec<Leaving>>,
    /// By log that is away, the offsets of items that say that a key is deleted, in order.
    pub(super) deleted: Mutex<HashMap<u32, Box<[u32]>>>,
    pub(super) fetched: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    /// Bytes of an item that was fetched lately.
    pub(super) item_bytes: AtomicUsize,
}

/// A log that is about to leave memory.
#[derive(Debug)]
pub(super) struct Leaving {
    segment: u32,
    have_left: Arc<AtomicBool>,
    /// Whether its memory holds what it did: it was not tried in vain to give it back.
    is_whole: bool,
}

/// What of a map's logs is away, and what came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwayStats {
    /// Logs on the disk alone.
    pub logs: usize,
    /// Items read from the disk.
    pub fetched: u64,
    /// Bytes read for them.
    pub fetched_bytes: u64,
    /// Bytes of copies of items, which are in memory.
    pub copied_bytes: u64,
    /// Copies that went without having been asked for again: each was made in vain.
    pub unused_copies: u64,
}

impl Away {
    /// Whether logs leave at all.
    #[inline(always)]
    pub fn may_leave(&self) -> bool {
        self.may_leave.load(Ordering::Relaxed)
    }
}

impl AwayStats {
    /// Bytes of the logs on the disk alone.
    pub fn bytes(&self) -> u64 {
        self.logs as u64 * u64::from(SEGMENT_BYTES)
    }
}

impl<M: Memory> Logs<M> {
    /// Recovery sends logs away that it has read, as soon as half of the budget is used.
    #[must_use]
    pub fn leaving_memory(self, do_leave: bool) -> Logs<M> {
        self.away.may_leave.store(do_leave, Ordering::Relaxed);
        self
    }

    /// What is away.
    pub fn away_stats(&self) -> AwayStats {
        let gone = self.lock_pool().gone.len();
        AwayStats {
            logs: self.away_logs().saturating_sub(gone),
            fetched: self.away.fetched.load(Ordering::Relaxed),
            fetched_bytes: self.away.fetched_bytes.load(Ordering::Relaxed),
            copied_bytes: self.copied_bytes(),
            unused_copies: self.away.copies.unused(),
        }
    }

    /// Logs that are away, or about to leave memory.
    pub fn away_logs(&self) -> usize {
        self.away.count.load(Ordering::Relaxed)
    }

    /// Bytes of copies of items that are away.
    pub fn copied_bytes(&self) -> u64 {
        self.away.copies.ask(ItemCache::bytes).unwrap_or(0)
    }

    /// Bytes of copies that were let go, which come back when readers have left.
    pub fn dropped_bytes(&self) -> u64 {
        self.away.copies.ask(ItemCache::dropped_bytes).unwrap_or(0)
    }

    /// From here on at most so many bytes of copies are kept.
    pub fn limit_copies(&self, most: u64) {
        self.away.copies.ask(|copies| copies.limit(most));
    }

    /// Segments whose bytes are in near memory.
    pub fn segments_in_memory(&self) -> usize {
        let far = self.far_logs().saturating_sub(self.leaving_far());
        let elsewhere = self.away_logs() + self.saved_segments() + far;
        self.total_segments().saturating_sub(elsewhere) + self.leaving_near()
    }

    /// Segments that wait for readers to leave memory.
    pub fn leaving_segments(&self) -> usize {
        self.lock_leaving().len()
    }

    /// Those of them that are near.
    pub(super) fn leaving_near(&self) -> usize {
        match self.away.far {
            Some(_) => self.leaving_from(Home::Near),
            None => self.leaving_segments(),
        }
    }

    /// Those of them that are in far memory.
    pub(super) fn leaving_far(&self) -> usize {
        match self.away.far {
            Some(_) => self.leaving_from(Home::Far),
            None => 0,
        }
    }

    fn leaving_from(&self, home: Home) -> usize {
        let is_there =
            |one: &&Leaving| self.segments[one.segment as usize].place.residence().home == home;
        self.lock_leaving().iter().filter(is_there).count()
    }

    /// During recovery: a closed log was read, and what it holds is in the index.
    ///
    /// # Errors
    /// As [`Logs::release_left`].
    pub(super) fn was_read_through(&self, segment: u32) -> Result<()> {
        if !self.may_leave() && self.away.far.is_none() {
            return Ok(());
        }
        let bytes = u64::from(SEGMENT_BYTES);
        let kept = self.away.kept.fetch_add(1, Ordering::Relaxed) + 1;
        let limit = self.budget.limit();
        let bound = if self.may_leave() { limit / 2 } else { limit - self.budget.headroom() };
        // Others may move what is noted as near: not this one before it is sure to stay.
        if self.budget.used() + kept as u64 * bytes <= bound {
            self.stays_near(segment);
            return Ok(());
        }
        if self.moves_oldest() {
            self.away.kept.fetch_sub(1, Ordering::Relaxed);
            self.stays_near(segment);
            return Ok(());
        }
        if !self.may_leave() {
            self.stays_near(segment);
            return Ok(());
        }
        self.away.kept.fetch_sub(1, Ordering::Relaxed);
        // What recovery keeps is counted at its end. This one is counted until it has left.
        self.budget.take_anyway(bytes);
        self.take_away(segment);
        // Others may look at another map all the while: they are not waited for without end.
        let start = Instant::now();
        loop {
            self.release_left()?;
            if self.leaving_segments() <= LEAVING_MOST || start.elapsed() > LEFT_WITHIN {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sends sealed logs away. Returns how many went; the memory of each comes back when its readers have left
    /// ([`Logs::release_left`]). Those that are not sealed any more stay. The caller is the collector.
    ///
    /// # Errors
    /// As [`Logs::flush_all`]; all stay then.
    pub fn send_away(&self, segments: &[u32]) -> Result<usize> {
        let claimed: Vec<u32> = segments.iter().copied().filter(|s| self.claim(*s)).collect();
        if claimed.is_empty() {
            return Ok(0);
        }
        self.freeze(&claimed);
        let flushed = self.flush_leaving();
        if flushed.is_ok() {
            claimed.iter().for_each(|segment| self.take_away(*segment));
        }
        claimed.iter().for_each(|segment| self.unclaim(*segment));
        flushed.map(|()| claimed.len())
    }

    /// Whether readers are not waited for, by mistake.
    fn releases_early(&self) -> bool {
        #[cfg(any(test, feature = "faults"))]
        if self.faults.has(super::Fault::ReleaseEarly) {
            return true;
        }
        false
    }

    fn flush_leaving(&self) -> Result<()> {
        #[cfg(any(test, feature = "faults"))]
        if self.leaves_unwritten() {
            return Ok(());
        }
        self.flush_all()
    }

    /// A log at rest, all of it on the disk, is away from here on.
    pub(super) fn take_away(&self, segment: u32) {
        self.look_through(segment);
        let have_left = Arc::new(AtomicBool::new(self.releases_early()));
        // Before anyone may ask for a copy.
        self.away.copies.make(|| self.new_copies(segment));
        let mut leaving = self.lock_leaving();
        self.away.count.fetch_add(1, Ordering::Relaxed);
        {
            // The pool's lock, as for all changes of where segments are.
            let _pool = self.lock_pool();
            self.residents.send_away(segment, &self.segments[segment as usize].place);
        }
        leaving.push(Leaving { segment, have_left: Arc::clone(&have_left), is_whole: true });
        let guard = crossbeam_epoch::pin();
        guard.defer(move || have_left.store(true, Ordering::Release));
        guard.flush();
    }

    /// During recovery: a log at rest, all of it on the disk, is away without having been read.
    pub(super) fn starts_away(&self, segment: u32) {
        self.away.count.fetch_add(1, Ordering::Relaxed);
        let _pool = self.lock_pool();
        self.residents.send_away(segment, &self.segments[segment as usize].place);
    }

    /// Items at these locations, in logs that are about to be away without having been read, say that their keys are
    /// deleted.
    pub fn found_deleted(&self, locations: &mut [u64]) {
        locations.sort_unstable();
        let mut deleted = self.away.deleted.lock();
        for of_log in locations.chunk_by(|one, other| segment_of(*one) == segment_of(*other)) {
            let offsets = of_log.iter().map(|location| offset_of(*location));
            deleted.insert(segment_of(of_log[0]) as u32, offsets.collect());
        }
    }

    /// Before `logs` logs are away that were not read: items are about so long.
    pub(super) fn expects_items_of(&self, bytes: usize, logs: u64) {
        self.away.item_bytes.store(bytes, Ordering::Relaxed);
        match self.may_come_back(logs) {
            true => {
                let most = (self.budget.limit() / FEW_COPIES_SHARE).min(COPIES_MOST);
                self.away.copies.make_few(ItemCache::new(&self.budget, most, bytes as u64));
            }
            false => self.away.copies.make(|| self.copies_of(bytes as u64)),
        }
    }

    /// Whether there is room for so many logs more, as much as recovery takes.
    pub(super) fn may_come_back(&self, logs: u64) -> bool {
        self.budget.used() + logs * u64::from(SEGMENT_BYTES) <= self.budget.limit() / 2
    }

    /// Gives up the room for copies, if no log is away. The caller is the collector.
    pub fn forget_copies(&self) {
        if self.away_logs() == 0 {
            self.away.copies.forget();
        }
    }

    /// Room for copies of items like those of `segment`, of which there is one at least: three quarters of the budget,
    /// of which recovery takes one.
    fn new_copies(&self, segment: u32) -> ItemCache {
        let end = start_of(segment)
            + u64::from(self.segments[segment as usize].end.load(Ordering::Relaxed));
        let first = start_of(segment) + u64::from(SEGMENT_HEADER_BYTES);
        let (mut at, mut items) = (first, 0);
        while items < ITEMS_ASKED {
            // SAFETY: a log at rest, which is in memory until its readers have left.
            let Some(item) = (unsafe { item::borrow(self.medium.memory(), at, end) }) else {
                break;
            };
            at += item.len() as u64;
            items += 1;
        }
        self.copies_of((at - first).checked_div(items).unwrap_or(100))
    }

    fn copies_of(&self, item_bytes: u64) -> ItemCache {
        let limit = self.budget.limit();
        let share = if limit > u64::MAX / 8 { COPIES_MOST } else { limit / 4 };
        let copies = ItemCache::new(&self.budget, 3 * share, item_bytes);
        if self.may_leave() {
            copies.limit(share);
        }
        copies
    }

    /// Gives the memory of logs back that left, as far as nobody looks at it any more.
    ///
    /// # Errors
    /// The system's; the memory stays, and is tried again.
    pub fn release_left(&self) -> Result<()> {
        for _ in 0..EPOCHS {
            if self.leaving_segments() == 0 {
                return Ok(());
            }
            crossbeam_epoch::pin().flush();
            let mut leaving = self.lock_leaving();
            let mut left: Vec<u32> = Vec::new();
            leaving.retain(|one| {
                let has_left = one.have_left.load(Ordering::Acquire);
                left.extend(has_left.then_some(one.segment));
                !has_left
            });
            for (at, segment) in left.iter().enumerate() {
                let bytes = u64::from(SEGMENT_BYTES);
                // SAFETY: it is away, and all guards from before are gone; under this lock nobody brings it back.
                let released = unsafe { self.medium.release_memory(start_of(*segment), bytes) };
                if let Err(error) = released {
                    let again = |segment: &u32| {
                        let have_left = Arc::new(AtomicBool::new(true));
                        Leaving { segment: *segment, have_left, is_whole: false }
                    };
                    leaving.extend(left[at..].iter().map(again));
                    return Err(error);
                }
                self.give_memory(*segment);
            }
        }
        Ok(())
    }

    /// Brings a claimed log back, verified, so that it can be collected.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) with the first item that does not match its checksum, and those of the
    /// disk: it stays away.
    pub fn bring_back(&self, segment: u32) -> Result<()> {
        let row = &self.segments[segment as usize];
        assert_eq!(row.state(), State::Collecting, "it is claimed");
        if row.place.residence().is_resident {
            return Ok(());
        }
        let (start, bytes) = (start_of(segment), u64::from(SEGMENT_BYTES));
        let leaves = {
            let mut leaving = self.lock_leaving();
            let at = leaving.iter().position(|one| one.segment == segment);
            at.map(|at| leaving.swap_remove(at))
        };
        if leaves.is_none() {
            self.budget.take_anyway(bytes);
        }
        if leaves.as_ref().is_some_and(|leaves| !leaves.is_whole) {
            // Parts of its memory were given back, which come from near memory when they are read.
            self.give_memory(segment);
            self.budget.take_anyway(bytes);
        }
        // Nobody gives its memory back from here on, and nobody waits for the disk.
        if leaves.is_none_or(|leaves| !leaves.is_whole) {
            self.read_back(segment).inspect_err(|_| {
                // SAFETY: nobody looks at a log that is away, once all have left who did before.
                let _kept = unsafe { self.medium.release_memory(start, bytes) };
                self.give_memory(segment);
            })?;
        }
        let pool = self.lock_pool();
        self.residents.add(&row.place, |first| self.places(&pool, first));
        self.away.count.fetch_sub(1, Ordering::Relaxed);
        drop(pool);
        self.away.deleted.lock().remove(&segment);
        Ok(())
    }

    fn read_back(&self, segment: u32) -> Result<()> {
        let (start, row) = (start_of(segment), &self.segments[segment as usize]);
        self.medium.commit(start, u64::from(SEGMENT_BYTES))?;
        let used = u64::from(row.end.load(Ordering::Relaxed));
        // SAFETY: nobody looks at a log that is away; who brings it back has claimed it.
        unsafe { self.medium.read_in(start, used.next_multiple_of(BLOCK_BYTES))? };
        let end = start + used;
        let salt = row.salt.load(Ordering::Relaxed);
        let mut at = start + u64::from(SEGMENT_HEADER_BYTES);
        while at < end {
            // SAFETY: as above; not written while borrowed.
            let bytes = unsafe { item::borrow(self.medium.memory(), at, end) };
            let length = bytes.and_then(|bytes| item::verify(bytes, salt).length());
            at += length.ok_or_else(|| self.damaged_on_disk(at))? as u64;
        }
        Ok(())
    }

    /// What tells copies of items of `segment`, as it is now, from those of logs that had its place before.
    pub(super) fn log_of_copies(&self, segment: usize) -> u64 {
        self.segments[segment].sequence.load(Ordering::Relaxed)
    }

    /// Of `segments`, which were cleared: those whose memory was given back, and the others, which are in memory. A
    /// reader who knows a location in one of the first may fetch it until he leaves.
    pub(super) fn cleared_away(&self, segments: Vec<u32>) -> (Vec<u32>, Vec<u32>) {
        let mut leaving = self.lock_leaving();
        let pool = self.lock_pool();
        let is_gone = |segment: &u32| {
            let place = &self.segments[*segment as usize].place;
            if place.residence().is_resident {
                return false;
            }
            let Some(at) = leaving.iter().position(|one| one.segment == *segment) else {
                return true;
            };
            leaving.swap_remove(at);
            self.away.count.fetch_sub(1, Ordering::Relaxed);
            self.residents.add(place, |first| self.places(&pool, first));
            false
        };
        segments.into_iter().partition(is_gone)
    }

    pub(super) fn may_leave(&self) -> bool {
        self.away.may_leave()
    }

    /// At the end of recovery: `segments` hold nothing that counts, as after a clear, and may be more than there is
    /// memory for.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn leave_free(&self, segments: &[u32]) -> Result<()> {
        for segment in segments {
            // SAFETY: recovery has written what it changed of it, and nobody else knows it.
            unsafe { self.medium.release_memory(start_of(*segment), SEGMENT_BYTES.into())? };
            self.away.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A free segment has no memory any more; its blocks are given back in time.
    pub(super) fn is_without_memory(&self, segment: u32) {
        self.away.count.fetch_add(1, Ordering::Relaxed);
        self.lock_pool().gone.push(segment);
    }

    /// Gives the blocks of logs back that were away when the map was cleared, or in far memory when they were freed,
    /// and that nobody reads any more.
    ///
    /// # Errors
    /// Those of the medium; what was not given back is tried again.
    pub fn release_gone(&self) -> Result<()> {
        loop {
            let Some(segment) = self.lock_pool().gone.pop() else { return Ok(()) };
            // SAFETY: nobody reads it any more, and nobody has taken it.
            let released = unsafe { self.medium.release(start_of(segment), SEGMENT_BYTES.into()) };
            if let Err(error) = released {
                self.lock_pool().gone.push(segment);
                return Err(error);
            }
            self.away.count.fetch_sub(1, Ordering::Relaxed);
            self.lock_pool().released.push(segment);
            self.give_disk();
        }
    }
}
