//! The pool of segments: where a log's next one comes from, and where freed ones go.

use super::survey::Backlog;
use super::{COLLECTOR, Logs, RECOVERED, SEGMENT_BYTES, start_of};
use crate::error::{Error, Result};
use crate::medium::BLOCK_BYTES;
use crate::values::Room;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Free segments that only the collector and deletes may take, where the budget is not too small for that: without
/// them a full disk could never be collected.
pub(super) const COLLECTOR_SPARE: usize = 2;

/// Segments given back that are tried at the most on a full disk.
const RELEASED_TRIED: usize = 64;

/// Free bytes at the end of a segment that are worth a hole in the file.
const RELEASED_BYTES: u64 = 256 << 10;

/// Moves of the epoch after which what was freed before can be used, and one for whoever was slow.
pub(super) const EPOCHS: usize = 4;

/// Segments nobody uses, and the numbers the next one gets.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) free: Vec<u32>,
    /// Free, and their memory and blocks given back to the system.
    pub(super) released: Vec<u32>,
    /// Free, their memory given back, and their blocks not yet: logs that were away when the map was cleared.
    pub(super) gone: Vec<u32>,
    /// Free, in far memory, which is about to be given back.
    pub(super) far: Vec<u32>,
    /// The first segment that was never used.
    pub(super) fresh: u32,
    /// Whether collected segments came back since a delete last took one beyond the budget.
    pub(super) has_freed: bool,
}

impl<M: Memory> Logs<M> {
    pub(super) fn take_segment(&self, room: Room) -> Result<(u32, u64)> {
        if room == Room::Ordinary && self.is_behind() {
            return Err(self.no_room_behind_collector());
        }
        self.take_back_waiting();
        // What cannot be given back now is tried again.
        let _kept = self.release_left();
        let mut pool = self.lock_pool();
        if room == Room::Ordinary && self.missing_bytes(&pool, 1) > 0 {
            return Err(self.no_room());
        }
        if room == Room::Ordinary && self.waits_to_grow(&pool) {
            drop(pool);
            return Err(self.no_room_behind_collector());
        }
        if room == Room::Urgent && !self.leaves_one(&pool) && !self.is_on_the_way_back(&mut pool) {
            return Err(self.no_room());
        }
        let spare = if room == Room::Ordinary { self.spare() } else { 0 };
        let mut was_free = true;
        let segment = match pool.free.len() > spare {
            true => pool.free.pop().expect("there are more"),
            false => match self.grow_pool(&mut pool, room) {
                // There is room beside what is free, if not for a segment more.
                Err(Error::NoRoom { .. }) if !pool.free.is_empty() => {
                    pool.free.pop().expect("there is one")
                }
                other => {
                    was_free = false;
                    other?
                }
            },
        };
        if room == Room::Ordinary {
            self.put_spare_aside(&mut pool);
        }
        // Under the pool's lock, so that whoever sees the segment in use sees the number raised.
        let sequence = self.next_sequence.fetch_add(1, Ordering::AcqRel);
        drop(pool);
        if was_free {
            self.make_whole(segment, room).inspect_err(|_| self.lock_pool().free.push(segment))?;
        }
        Ok((segment, sequence))
    }

    /// Of a segment that was there when the map was opened a part may have no blocks ([`Logs::release_at_end`]).
    /// Nobody else has it.
    fn make_whole(&self, segment: u32, room: Room) -> Result<()> {
        let is_recovered =
            self.segments[segment as usize].origin.load(Ordering::Relaxed) == RECOVERED;
        if !is_recovered || self.medium.is_byte_addressable() {
            return Ok(());
        }
        if room == Room::Ordinary && self.needs_reserve(segment) {
            self.is_disk_full.store(true, Ordering::Relaxed);
            return Err(self.disk_full());
        }
        self.grow_file(segment)
    }

    /// A segment more than there are.
    fn grow_pool(&self, pool: &mut Pool, room: Room) -> Result<u32> {
        match self.take_disk(room) {
            Ok(()) => self.grow_pool_on_disk(pool, room).inspect_err(|_| self.give_disk()),
            Err(refused) => {
                let at = self.with_blocks(&pool.released, RELEASED_TRIED).ok_or(refused)?;
                self.take_disk_anyway();
                self.take_released(pool, at, room).inspect_err(|_| self.give_disk())
            }
        }
    }

    /// One that was given back.
    fn take_released(&self, pool: &mut Pool, at: usize, room: Room) -> Result<u32> {
        self.grow_to(pool.released[at], room)?;
        let segment = pool.released.swap_remove(at);
        let place = &self.segments[segment as usize].place;
        self.residents.add(place, |first| self.places(pool, first));
        Ok(segment)
    }

    fn grow_pool_on_disk(&self, pool: &mut Pool, room: Room) -> Result<u32> {
        for tried in 1..=pool.released.len().min(RELEASED_TRIED) {
            let at = pool.released.len() - tried;
            match self.take_released(pool, at, room) {
                // Another may have kept its blocks, as one that was found free at the start.
                Err(Error::DiskFull { .. }) => {}
                other => return other,
            }
        }
        let segment = pool.fresh;
        self.grow_to(segment, room)?;
        pool.fresh += 1;
        self.budget.take_anyway(self.row_bytes(1));
        let place = &self.segments[segment as usize].place;
        self.residents.add(place, |first| self.places(pool, first));
        Ok(segment)
    }

    /// The same for a saved index, which takes no memory.
    pub(super) fn grow_for_saving(&self, pool: &mut Pool) -> Result<u32> {
        self.take_disk(Room::Ordinary)?;
        let (segment, is_fresh) = match pool.released.pop() {
            Some(segment) => (segment, false),
            None => (pool.fresh, true),
        };
        let grown = match (segment as usize) < self.segments.len() {
            true => self.grow_file(segment),
            false => Err(self.no_room()),
        };
        if let Err(error) = grown {
            pool.released.extend((!is_fresh).then_some(segment));
            self.give_disk();
            return Err(error);
        }
        if is_fresh {
            pool.fresh += 1;
            self.budget.take_anyway(self.row_bytes(1));
        }
        let place = &self.segments[segment as usize].place;
        self.residents.add(place, |first| self.places(pool, first));
        Ok(segment)
    }

    /// Whether more waits for the collector than may.
    fn is_behind(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) >= Backlog::Behind as u8
    }

    /// Whether the file is as large as it may be while there is something to collect. What waits for readers is no
    /// matter of the collector's; a saved index, and what was cleared, are none of what lives.
    fn is_at_bound(&self, pool: &Pool) -> bool {
        let others =
            self.waiting_segments() + self.saved_segments() + pool.gone.len() + pool.far.len();
        let taken = (pool.fresh as usize - 1).saturating_sub(pool.released.len() + others);
        self.has_backlog() && taken >= self.segments_most.load(Ordering::Relaxed)
    }

    /// Whether an ordinary writer would have to make the file larger than it may be.
    fn waits_to_grow(&self, pool: &Pool) -> bool {
        pool.free.len() <= self.spare() && self.is_at_bound(pool)
    }

    /// Whether an ordinary writer that takes a segment finds room.
    pub fn has_room(&self) -> bool {
        self.has_memory() && !self.is_behind() && !self.waits_to_grow(&self.lock_pool())
    }

    fn has_memory(&self) -> bool {
        self.missing_bytes(&self.lock_pool(), 1) == 0
    }

    /// Lets writers go on that wait for the collector alone, which has freed nothing that helps them: the file may grow
    /// until it is counted again. Whether that is all they wait for.
    pub fn let_grow(&self) -> bool {
        let lets = self.has_memory();
        if lets {
            self.segments_most.store(usize::MAX, Ordering::Relaxed);
            self.backlog.fetch_min(Backlog::Due as u8, Ordering::Relaxed);
        }
        lets
    }

    /// Makes the spare segments one by one beside those of a map that fills more than its first: on a full disk, keys
    /// can be deleted and logs collected in them.
    fn put_spare_aside(&self, pool: &mut Pool) {
        let is_small = pool.fresh <= 2;
        if !is_small && pool.free.len() < self.spare() {
            // Else it is tried with the next one.
            let made = self.grow_pool(pool, Room::Ordinary);
            pool.free.extend(made);
        }
    }

    /// Why writers wait for a collector that is far behind: on a full disk it may have no room to copy to.
    fn no_room_behind_collector(&self) -> Error {
        match self.is_disk_full() {
            true => self.disk_full(),
            false => self.no_room(),
        }
    }

    /// Free segments that are kept for the collector and deletes.
    fn spare(&self) -> usize {
        ((self.budget.headroom() / u64::from(SEGMENT_BYTES)) as usize).min(COLLECTOR_SPARE)
    }

    /// Bytes that would have to be free beside those that are for ordinary writers to take so many segments and
    /// leave the headroom.
    fn missing_bytes(&self, pool: &Pool, segments: u64) -> u64 {
        let bytes = |segments| segments * u64::from(SEGMENT_BYTES);
        let wanted = self.budget.used() + self.budget.headroom() + bytes(segments);
        wanted.saturating_sub(self.budget.limit().saturating_add(bytes(pool.free.len() as u64)))
    }

    /// Whether the collector finds another segment within the budget when one is taken.
    fn leaves_one(&self, pool: &Pool) -> bool {
        let bytes = |segments: usize| segments as u64 * u64::from(SEGMENT_BYTES);
        let (used, limit) = (self.budget.used(), self.budget.limit());
        used + bytes(2) <= limit.saturating_add(bytes(pool.free.len()))
    }

    /// Whether so much more than the budget is used that only deletes lead back to it, as after it was lowered: then
    /// they take one segment each time that the collector gave some back, so that they do not outrun it.
    fn is_on_the_way_back(&self, pool: &mut Pool) -> bool {
        let is_far = self.budget.excess() > self.budget.headroom() + 2 * u64::from(SEGMENT_BYTES);
        is_far && std::mem::take(&mut pool.has_freed)
    }

    /// How many segments would have to be freed for ordinary writers to find `ahead` of them. Those that wait for
    /// readers count as free, and the memory of those that leave, and of copies that were let go.
    pub fn missing_segments(&self, ahead: u64) -> usize {
        let missing = self.missing_bytes(&self.lock_pool(), ahead);
        let missing = missing.saturating_sub(self.dropped_bytes());
        let missing = missing.div_ceil(u64::from(SEGMENT_BYTES)) as usize;
        missing.saturating_sub(self.waiting_segments() + self.leaving_near())
    }

    /// Bytes that the collector can copy without exceeding the budget, whatever writers take meanwhile.
    pub fn room_for_copies(&self) -> u64 {
        self.take_back_waiting();
        let open = self.lock_writer(COLLECTOR);
        let open = open.borrow();
        let tail = if open.segment == 0 { SEGMENT_BYTES } else { open.tail };
        let (limit, used) = (self.budget.limit(), self.budget.used());
        let segment_bytes = u64::from(SEGMENT_BYTES);
        let free = self.lock_pool().free.len() as u64 * segment_bytes;
        // Writers leave the headroom; growth of the index may have taken of it.
        let left = limit.saturating_add(free).saturating_sub(used).min(self.budget.headroom());
        u64::from(SEGMENT_BYTES - tail) + left / segment_bytes * segment_bytes
    }

    /// Gives free segments back to the system while the budget is spent, by an index that grew perhaps, or more than
    /// that is used.
    ///
    /// # Errors
    /// Those of the medium; the segments stay free.
    pub fn release_excess(&self) -> Result<()> {
        while self.budget.is_spent() && self.release_one(0)? {}
        Ok(())
    }

    /// Takes freed segments back that no reader holds any more. Epochs move on only when someone
    /// asks, and writers hold no guards that would.
    fn take_back_waiting(&self) {
        for _ in 0..EPOCHS {
            if self.waiting.load(Ordering::Acquire) == 0 {
                return;
            }
            crossbeam_epoch::pin().flush();
        }
    }

    fn no_room(&self) -> Error {
        Error::NoRoom { used: self.budget.used(), limit: self.budget.limit() }
    }

    fn grow_to(&self, segment: u32, room: Room) -> Result<()> {
        let bytes = u64::from(SEGMENT_BYTES);
        if segment as usize >= self.segments.len() {
            return Err(self.no_room());
        }
        match room {
            // Of what is beyond a lowered budget deletes take more.
            Room::Urgent | Room::Anyway => self.budget.take_anyway(bytes),
            Room::Ordinary if self.budget.is_spent_by(bytes) => return Err(self.no_room()),
            Room::Ordinary => self.budget.take(bytes).map_err(|_| self.no_room())?,
        }
        self.grow_file(segment).inspect_err(|_| self.budget.give(bytes))
    }

    fn grow_file(&self, segment: u32) -> Result<()> {
        let grown = self.medium.grow(start_of(segment), SEGMENT_BYTES.into());
        let is_full = matches!(grown, Err(Error::DiskFull { .. }));
        self.is_disk_full.store(is_full, Ordering::Relaxed);
        if is_full { Err(self.disk_full_at(None)) } else { grown }
    }

    /// Makes up to `count` fresh segments ready ahead of need: memory committed, and the file's
    /// blocks written once, which makes their syncs cheaper. For durability `sync`.
    ///
    /// # Errors
    /// As [`Logs::appender`]; harmless, the segment is made when it is needed.
    pub fn prepare(&self, count: usize) -> Result<()> {
        self.prepared.store(count, Ordering::Relaxed);
        for _ in 0..count + COLLECTOR_SPARE {
            let segment = {
                let mut pool = self.lock_pool();
                if pool.free.len() >= count + COLLECTOR_SPARE || self.is_at_bound(&pool) {
                    return Ok(());
                }
                self.grow_pool(&mut pool, Room::Ordinary)?
            };
            // Not in the list yet: nobody uses it while it is zeroed.
            let zeroed = self.medium.write_zeros(start_of(segment), u64::from(SEGMENT_BYTES));
            // A failed sync may have lost what others wrote before it.
            let zeroed = zeroed.and_then(|()| self.stop_on_error(self.medium.sync()));
            self.lock_pool().free.push(segment);
            zeroed?;
        }
        Ok(())
    }

    /// Gives memory and disk blocks of free segments beyond `keep`, and those that [`Logs::prepare`] was asked for,
    /// back to the system: otherwise each would undo what the other did, every second of an idle map.
    ///
    /// # Errors
    /// Those of the medium; the segments stay free.
    pub fn release_free(&self, keep: usize) -> Result<()> {
        let kept = self.prepared.load(Ordering::Relaxed) + COLLECTOR_SPARE;
        while self.release_one(keep.max(kept))? {}
        self.release_gone()
    }

    /// Gives back what a map that is closed need not have on the disk: the free segments if it is small, and on a
    /// mirrored medium the blocks behind the last item of every segment.
    ///
    /// # Errors
    /// Those of the medium; what was not given back stays.
    pub fn release_at_end(&self) -> Result<()> {
        let segment_bytes = u64::from(SEGMENT_BYTES);
        let used: u64 = self.survey_exactly().iter().map(|view| view.used_bytes).sum();
        match used <= segment_bytes {
            true => while self.release_one(0)? {},
            false => self.release_free(0)?,
        }
        if self.medium.is_byte_addressable() {
            return Ok(());
        }
        let _writers = self.lock_writers();
        for view in self.survey_exactly() {
            let end = view.used_bytes.next_multiple_of(BLOCK_BYTES);
            // Of a segment without an end nothing is known.
            if view.used_bytes > 0
                && view.residence.is_resident
                && end + RELEASED_BYTES <= segment_bytes
            {
                let start = start_of(view.number) + end;
                // SAFETY: what lies behind the last item of a segment is its writer's, and all writers are locked out
                // here; nothing points there.
                unsafe { self.medium.release(start, segment_bytes - end)? };
            }
        }
        Ok(())
    }

    /// Gives one free segment beyond `keep` back to the system; whether there was one.
    fn release_one(&self, keep: usize) -> Result<bool> {
        let segment = {
            let mut pool = self.lock_pool();
            if pool.free.len() <= keep {
                return Ok(false);
            }
            // The highest first: what is used gathers at the front of the file.
            let highest = (0..pool.free.len()).max_by_key(|at| pool.free[*at]).expect("not empty");
            let segment = pool.free.swap_remove(highest);
            self.residents.remove(segment, &self.segments[segment as usize].place);
            segment
        };
        let bytes = u64::from(SEGMENT_BYTES);
        // SAFETY: a segment of the pool is nobody's, and this one was taken out of it.
        if let Err(error) = unsafe { self.medium.release(start_of(segment), bytes) } {
            let mut pool = self.lock_pool();
            let place = &self.segments[segment as usize].place;
            self.residents.add(place, |first| self.places(&pool, first));
            pool.free.push(segment);
            return Err(error);
        }
        self.budget.give(bytes);
        self.lock_pool().released.push(segment);
        self.give_disk();
        Ok(true)
    }

    /// Segments that are free but wait for readers to leave.
    pub fn waiting_segments(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Segments that take memory and disk, used or free.
    pub fn total_segments(&self) -> usize {
        let pool = self.lock_pool();
        pool.fresh as usize - 1 - pool.released.len()
    }
}
