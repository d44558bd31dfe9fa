//! Logs in far memory: sealed ones that were not written for long, whose pages were moved to another node. Their
//! addresses stay, so whoever reads, overwrites, or collects them does not notice, but for the time that it takes.
//!
//! # What is durable when
//! Nothing changes: far memory holds a mirror of the disk, as near memory does. What a crash finds is the same.
//!
//! # Whose memory it is
//! A log in far memory counts against that memory's budget, and not against the map's. Its memory comes back to the one
//! it counts against, when it leaves for the disk or is free. A free segment has near memory or none: writers do not
//! write to far memory.

use super::pool::EPOCHS;
use super::{Logs, SEGMENT_BYTES, Segment, start_of};
use crate::error::Result;
use crate::values::{Home, Residence};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_memory::binding::Moved;
use terrace_memory::{Budget, Memory};

const BYTES: u64 = SEGMENT_BYTES as u64;
const NEAR: Residence = Residence { home: Home::Near, is_resident: true };

/// How long nothing is moved to a node that had no memory, or refused.
const PAUSE: Duration = Duration::from_secs(1);

/// Memory of a node that logs of maps are moved to. Maps may share one.
#[derive(Debug)]
pub struct FarMemory {
    name: String,
    node: u32,
    budget: Arc<Budget>,
    /// Maps that use it.
    maps: AtomicUsize,
    began: Instant,
    /// Nothing is moved before, in milliseconds since it began.
    paused_until_ms: AtomicU64,
}

impl FarMemory {
    /// Memory called `name` on `node`, of which so much may be used as `budget` has.
    pub fn new(name: impl Into<String>, node: u32, budget: Arc<Budget>) -> FarMemory {
        FarMemory {
            name: name.into(),
            node,
            budget,
            maps: AtomicUsize::new(0),
            began: Instant::now(),
            paused_until_ms: AtomicU64::new(0),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its NUMA node.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// How much of it is used, and may be.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Bytes that each map may have while another wants some.
    fn share(&self) -> u64 {
        self.budget.limit() / self.maps.load(Ordering::Relaxed).max(1) as u64
    }

    fn pause(&self) {
        let until = (self.began.elapsed() + PAUSE).as_millis() as u64;
        self.paused_until_ms.store(until, Ordering::Relaxed);
    }

    fn is_paused(&self) -> bool {
        (self.began.elapsed().as_millis() as u64) < self.paused_until_ms.load(Ordering::Relaxed)
    }
}

/// What a map has in far memory.
#[derive(Debug)]
pub(super) struct Far {
    memory: Arc<FarMemory>,
    /// Logs whose memory is far, those that are leaving it among them.
    count: AtomicUsize,
    moved: AtomicU64,
    /// Logs that stayed although they were to move.
    stayed: AtomicU64,
    /// During recovery, what was read and is near, by sequence number.
    read: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
}

impl Far {
    fn new(memory: Arc<FarMemory>) -> Far {
        memory.maps.fetch_add(1, Ordering::Relaxed);
        Far {
            memory,
            count: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            stayed: AtomicU64::new(0),
            read: Mutex::default(),
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.memory.budget.give(*self.count.get_mut() as u64 * BYTES);
        self.memory.maps.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What of a map's logs is in far memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarStats {
    /// Logs in far memory.
    pub logs: usize,
    /// Logs that were moved there since the map was opened.
    pub moved: u64,
    /// Times that one stayed near although it was to move: its pages were in use, or the node had no memory.
    pub stayed: u64,
}

impl FarStats {
    /// Bytes of the logs in far memory.
    pub fn bytes(&self) -> u64 {
        self.logs as u64 * BYTES
    }
}

impl<M: Memory> Logs<M> {
    /// Logs may be moved to this memory. To be called before recovery, which moves there what near memory has no room
    /// for.
    #[must_use]
    pub fn with_far(mut self, memory: Option<Arc<FarMemory>>) -> Logs<M> {
        self.away.far = memory.map(Far::new);
        self
    }

    /// What is in far memory; nothing where there is none.
    pub fn far_stats(&self) -> FarStats {
        let of = |far: &Far| FarStats {
            logs: far.count.load(Ordering::Relaxed),
            moved: far.moved.load(Ordering::Relaxed),
            stayed: far.stayed.load(Ordering::Relaxed),
        };
        self.away.far.as_ref().map(of).unwrap_or_default()
    }

    pub(super) fn far_logs(&self) -> usize {
        self.far_stats().logs
    }

    /// Logs that far memory has room for.
    pub fn far_room(&self) -> usize {
        match &self.away.far {
            Some(far) if !far.memory.is_paused() => {
                let budget = &far.memory.budget;
                (budget.limit().saturating_sub(budget.used()) / BYTES) as usize
            }
            _ => 0,
        }
    }

    /// Whether logs may be moved at the moment, or could be if some left far memory for the disk.
    pub fn may_move(&self) -> bool {
        self.away.far.as_ref().is_some_and(|far| !far.memory.is_paused())
    }

    /// How many logs should leave far memory for the disk, so that it has room for `ahead`: those of a map that has
    /// more than its share, or that `wants` some room there itself.
    pub fn far_excess(&self, ahead: usize, wants: bool) -> usize {
        let Some(far) = &self.away.far else { return 0 };
        // Of a small memory, no more than half is kept free.
        let ahead = ahead.min((far.memory.budget.limit() / BYTES / 2) as usize);
        let (count, share) = (far.count.load(Ordering::Relaxed), far.memory.share() / BYTES);
        let has_more = count as u64 > share;
        // What is leaving makes room soon.
        let leaving = self.leaving_far();
        let missing = ahead.saturating_sub(self.far_room() + leaving + self.waiting_far());
        match has_more || wants {
            true if !far.memory.is_paused() => missing.min(count - leaving.min(count)),
            _ => 0,
        }
    }

    /// During recovery: a log was read, and stays near unless another needs its room.
    pub(super) fn stays_near(&self, segment: u32) {
        if let Some(far) = &self.away.far {
            let sequence = self.segments[segment as usize].sequence.load(Ordering::Relaxed);
            far.read.lock().push(Reverse((sequence, segment)));
        }
    }

    /// During recovery, which has read more than near memory has room for: whether the oldest log that was read is in
    /// far memory now.
    pub(super) fn moves_oldest(&self) -> bool {
        let Some(far) = &self.away.far else { return false };
        let oldest = || far.read.lock().pop();
        std::iter::from_fn(oldest).any(|Reverse((_, segment))| self.moves_far(segment))
    }

    /// At the end of recovery.
    pub(super) fn forget_read(&self) {
        self.away.far.iter().for_each(|far| *far.read.lock() = BinaryHeap::new());
    }

    /// Moves sealed logs to far memory, `most` at the most and as far as there is room: the first of `segments`, but
    /// for such as are not sealed any more, or whose pages are in use. Returns how many have moved. The caller is the
    /// collector.
    pub fn move_far(&self, segments: &[u32], most: usize) -> usize {
        let mut moved = 0;
        for segment in segments {
            if moved >= most || self.far_room() == 0 {
                break;
            }
            if self.claim(*segment) {
                moved += usize::from(self.moves_far(*segment));
                self.unclaim(*segment);
            }
        }
        self.budget.give(moved as u64 * BYTES);
        moved
    }

    /// Whether a log in near memory that nobody frees meanwhile is in far memory now. The caller gives back what it
    /// took of near memory.
    pub(super) fn moves_far(&self, segment: u32) -> bool {
        let Some(far) = self.away.far.as_ref().filter(|far| !far.memory.is_paused()) else {
            return false;
        };
        if self.segments[segment as usize].place.residence() != NEAR
            || far.memory.budget.take(BYTES).is_err()
        {
            return false;
        }
        match self.medium.move_to_node(start_of(segment), BYTES, far.memory.node) {
            Ok(Moved::All) => {
                far.count.fetch_add(1, Ordering::Relaxed);
                far.moved.fetch_add(1, Ordering::Relaxed);
                let _pool = self.lock_pool();
                self.segments[segment as usize].place.set_home(Home::Far);
                return true;
            }
            Ok(Moved::Busy) => {}
            Ok(Moved::Refused) | Err(_) => far.memory.pause(),
        }
        far.memory.budget.give(BYTES);
        far.stayed.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Gives what a segment's memory counts for back to the budget that it counts against; the memory was given back to
    /// the system.
    pub(super) fn give_memory(&self, segment: u32) {
        let place = &self.segments[segment as usize].place;
        match (place.residence().home, &self.away.far) {
            (Home::Far, Some(far)) => {
                place.set_home(Home::Near);
                far.count.fetch_sub(1, Ordering::Relaxed);
                far.memory.budget.give(BYTES);
            }
            _ => self.budget.give(BYTES),
        }
    }

    /// Segments in far memory that are free but wait for readers to leave: their memory comes back.
    pub fn waiting_far(&self) -> usize {
        self.away.waiting_far.load(Ordering::Acquire)
    }

    /// Gives the far memory of free segments back, which nobody reads any more; their blocks follow with those of logs
    /// that were away. The caller is the collector.
    ///
    /// # Errors
    /// The system's; what was not given back is tried again.
    pub fn release_free_far(&self) -> Result<()> {
        if self.away.far.is_none() {
            return Ok(());
        }
        for _ in 0..EPOCHS {
            if self.waiting_far() > 0 {
                crossbeam_epoch::pin().flush();
            }
        }
        loop {
            let segment = {
                let mut pool = self.lock_pool();
                let Some(segment) = pool.far.pop() else { return Ok(()) };
                self.residents.remove(segment, &self.segments[segment as usize].place);
                segment
            };
            // SAFETY: it is free, nobody reads it any more, and it is in no list that segments are taken from.
            let released = unsafe { self.medium.release_memory(start_of(segment), BYTES) };
            if let Err(error) = released {
                self.lock_pool().far.push(segment);
                return Err(error);
            }
            self.give_memory(segment);
            self.is_without_memory(segment);
        }
    }
}

/// Of segments that were freed, those with near memory, and those with far memory.
pub(super) fn by_home(segments: Vec<u32>, rows: &[Segment]) -> (Vec<u32>, Vec<u32>) {
    let is_near = |segment: &u32| rows[*segment as usize].place.residence().home == Home::Near;
    segments.into_iter().partition(is_near)
}
