//! The pool of segments: where a log's next one comes from, and where freed ones go.

use super::{Logs, SEGMENT_BYTES, start_of};
use crate::error::{Error, Result};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Free segments that only the collector and deletes may take.
const COLLECTOR_SPARE: usize = 2;

/// Moves of the epoch after which what was freed before can be used, and one for whoever was slow.
const EPOCHS: usize = 4;

/// Segments nobody uses, and the numbers the next one gets.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) free: Vec<u32>,
    /// Free, and their memory and blocks given back to the system.
    pub(super) released: Vec<u32>,
    /// The first segment that was never used.
    pub(super) fresh: u32,
}

/// How badly room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Refused when the budget is spent or the collector is behind.
    Ordinary,
    /// For what frees room in the end, deletes and the collector itself: may exceed the budget.
    Urgent,
}

impl<M: Memory> Logs<M> {
    pub(super) fn take_segment(&self, room: Room) -> Result<(u32, u64)> {
        if room == Room::Ordinary && self.backlog.load(Ordering::Relaxed) > self.backlog_limit() {
            return Err(self.no_room());
        }
        self.take_back_waiting();
        let mut pool = self.pool.lock();
        // The last free segments are the collector's: without them a full disk could never be
        // collected.
        let spare = if room == Room::Urgent { 0 } else { COLLECTOR_SPARE };
        let segment = if pool.free.len() > spare {
            pool.free.pop().expect("just counted")
        } else if let Some(segment) = pool.released.pop() {
            self.grow_to(segment, room).inspect_err(|_| pool.released.push(segment))?;
            segment
        } else {
            let segment = pool.fresh;
            self.grow_to(segment, room)?;
            pool.fresh += 1;
            segment
        };
        // Under the pool's lock, so that whoever sees the segment in use sees the number raised.
        Ok((segment, self.next_sequence.fetch_add(1, Ordering::AcqRel)))
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

    /// Segments that may wait for the collector before writers wait too: what bounds the space
    /// that dead items take.
    fn backlog_limit(&self) -> i64 {
        (self.total_segments() / 11).max(2) as i64
    }

    fn grow_to(&self, segment: u32, room: Room) -> Result<()> {
        let bytes = u64::from(SEGMENT_BYTES);
        if segment as usize >= self.segments.len() {
            return Err(self.no_room());
        }
        match room {
            Room::Urgent => self.budget.take_anyway(bytes),
            Room::Ordinary => self.budget.take(bytes).map_err(|_| self.no_room())?,
        }
        self.medium.grow(start_of(segment), bytes).inspect_err(|_| self.budget.give(bytes))
    }

    /// Makes up to `count` fresh segments ready ahead of need: memory committed, and the file's
    /// blocks written once, which makes their syncs cheaper. For durability `sync`.
    ///
    /// # Errors
    /// As [`Logs::appender`]; harmless, the segment is made when it is needed.
    pub fn prepare(&self, count: usize) -> Result<()> {
        for _ in 0..count + COLLECTOR_SPARE {
            let segment = {
                let mut pool = self.pool.lock();
                if pool.free.len() >= count + COLLECTOR_SPARE {
                    return Ok(());
                }
                match pool.released.pop() {
                    Some(segment) => {
                        self.grow_to(segment, Room::Ordinary)
                            .inspect_err(|_| pool.released.push(segment))?;
                        segment
                    }
                    None => {
                        let segment = pool.fresh;
                        self.grow_to(segment, Room::Ordinary)?;
                        pool.fresh += 1;
                        segment
                    }
                }
            };
            // Not in the list yet: nobody uses it while it is zeroed.
            let zeroed = self.medium.write_zeros(start_of(segment), u64::from(SEGMENT_BYTES));
            // A failed sync may have lost what others wrote before it.
            let zeroed = zeroed.and_then(|()| self.stop_on_error(self.medium.sync()));
            self.pool.lock().free.push(segment);
            zeroed?;
        }
        Ok(())
    }

    /// Gives memory and disk blocks of free segments beyond `keep` back to the system.
    ///
    /// # Errors
    /// Those of the medium; the segments stay free.
    pub fn release_free(&self, keep: usize) -> Result<()> {
        loop {
            let segment = {
                let mut pool = self.pool.lock();
                if pool.free.len() <= keep.max(COLLECTOR_SPARE) {
                    return Ok(());
                }
                // The highest first: what is used gathers at the front of the file.
                let highest =
                    (0..pool.free.len()).max_by_key(|at| pool.free[*at]).expect("not empty");
                pool.free.swap_remove(highest)
            };
            let bytes = u64::from(SEGMENT_BYTES);
            if let Err(error) = self.medium.release(start_of(segment), bytes) {
                self.pool.lock().free.push(segment);
                return Err(error);
            }
            self.budget.give(bytes);
            self.pool.lock().released.push(segment);
        }
    }

    /// Segments that are free but wait for readers to leave.
    pub fn waiting_segments(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Segments that take memory and disk, used or free.
    pub fn total_segments(&self) -> usize {
        let pool = self.pool.lock();
        pool.fresh as usize - 1 - pool.released.len()
    }
}
