//! Chunks of a redo log: made as they are needed, used again once a checkpoint has what they hold.

use super::{CHUNK_HEAD_BYTES, CONTROL_BYTES, Head, MADE_AT, RedoLog, STEP_BYTES, sealed};
use crate::sync::lock;
use rustix::fs::FallocateFlags;
use std::sync::atomic::{Ordering, compiler_fence};
use terrace_memory::Memory;

/// What stays of a chunk that is not in use.
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct Chunks {
    /// The one used last comes last, and is used first: its pages are there.
    free: Vec<u32>,
    /// Bytes allocated of each that was made.
    allocated: Vec<u64>,
    most: u32,
    next_life: u64,
    /// Bytes that the budget knows of: what was set aside at the first use, or what is allocated if that is more.
    counted: u64,
    /// Whether there was no room for more when it was last asked for.
    is_short: bool,
}

impl Chunks {
    pub fn new(most: u32) -> Chunks {
        Chunks {
            free: Vec::new(),
            allocated: Vec::new(),
            most,
            next_life: 1,
            counted: 0,
            is_short: false,
        }
    }

    pub fn counted_bytes(&self) -> u64 {
        self.counted
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated.iter().sum()
    }

    fn in_use(&self) -> usize {
        self.allocated.len() - self.free.len()
    }
}

/// A chunk of a writer's own.
pub(super) struct Taken {
    pub chunk: u32,
    pub life: u64,
}

impl RedoLog {
    pub(super) fn start_of(&self, chunk: u32) -> u64 {
        CONTROL_BYTES + u64::from(chunk) * self.chunk_bytes
    }

    /// A chunk for writer `writer`, its head written; none if there are to be no more, or the disk is full.
    pub(super) fn take(&self, lab: &impl Memory, writer: u64) -> Option<Taken> {
        let mut chunks = lock(lab, &self.chunks);
        let is_there = |chunk: &u32| chunks.allocated[*chunk as usize] > 0;
        let place = chunks.free.iter().rposition(is_there).or(chunks.free.len().checked_sub(1));
        let chunk = match place.map(|place| chunks.free.remove(place)) {
            Some(chunk) => chunk,
            None if chunks.allocated.len() < chunks.most as usize => {
                let chunk = chunks.allocated.len() as u32;
                self.file.set_len(self.start_of(chunk + 1)).ok()?;
                // SAFETY: the file that is mapped; the directory's lock keeps other processes that write from it, and
                // here it only grows.
                unsafe { self.region.follow(&self.file) }.ok()?;
                chunks.allocated.push(0);
                let made = chunks.allocated.len() as u64;
                self.store_outliving(lab, MADE_AT, sealed(MADE_AT, made));
                chunk
            }
            None => return None,
        };
        let life = chunks.next_life;
        chunks.next_life += 1;
        if chunks.allocated[chunk as usize] == 0 && !self.allocate(&mut chunks, chunk, STEP_BYTES) {
            chunks.free.push(chunk);
            return None;
        }
        // No record yet, said before the head counts, which is one store. All under the lock: another chunk is made
        // once this one has a head, so that only the last may have none.
        self.store_outliving(lab, self.records_of(chunk), 0);
        compiler_fence(Ordering::SeqCst);
        let (at, head) = (self.start_of(chunk), Head { life, writer, is_used: true });
        self.store_outliving(lab, at, sealed(at, head.word()));
        compiler_fence(Ordering::SeqCst);
        drop(chunks);
        Some(Taken { chunk, life })
    }

    /// Makes `bytes` of a chunk usable; how many are.
    pub(super) fn grow(&self, lab: &impl Memory, chunk: u32, bytes: u64) -> u64 {
        let mut chunks = lock(lab, &self.chunks);
        if bytes > chunks.allocated[chunk as usize] {
            self.allocate(&mut chunks, chunk, bytes);
        }
        chunks.allocated[chunk as usize]
    }

    /// Allocates blocks first: a store to a page that finds none would end the process.
    fn allocate(&self, chunks: &mut Chunks, chunk: u32, bytes: u64) -> bool {
        let from = chunks.allocated[chunk as usize];
        let to = bytes.next_multiple_of(STEP_BYTES).min(self.chunk_bytes);
        let at = self.start_of(chunk) + from;
        if to <= from {
            return true;
        }
        let none = FallocateFlags::empty();
        chunks.is_short = !self.count(chunks, chunks.allocated_bytes() + to - from)
            || rustix::fs::fallocate(&self.file, none, at, to - from).is_err();
        if chunks.is_short {
            return false;
        }
        // Pages that do not come now come when they are stored to.
        let _later = self.region.populate(at, to - from);
        chunks.allocated[chunk as usize] = to;
        true
    }

    /// Counts `bytes` in all against the budget, if it has room to spare. A little is set aside at the first use.
    fn count(&self, chunks: &mut Chunks, bytes: u64) -> bool {
        if chunks.counted == 0 {
            chunks.counted = self.set_aside();
            self.budget.take_anyway(chunks.counted);
        }
        let more = bytes.saturating_sub(chunks.counted);
        let (used, limit) = (self.budget.used(), self.budget.limit());
        let has_room =
            more == 0 || used + more + limit / 16 <= limit && self.budget.take(more).is_ok();
        chunks.counted += if has_room { more } else { 0 };
        has_room
    }

    fn set_aside(&self) -> u64 {
        (self.budget.limit() / 32).clamp(4 * STEP_BYTES, 16 << 20)
    }

    /// Whether half of the chunks are in use that there may be.
    pub(crate) fn is_half_full(&self) -> bool {
        let chunks = self.chunks.lock();
        let most = if chunks.is_short { chunks.allocated.len() } else { chunks.most as usize };
        chunks.in_use() * 2 > most
    }

    /// Nothing of these chunks counts any more.
    pub(super) fn free(&self, lab: &impl Memory, freed: Vec<u32>) {
        // All of them before any is used again: the note that says so of one may lie in another.
        for chunk in &freed {
            let start = self.start_of(*chunk);
            if let Some(word) = self.load_sealed(start) {
                let head = Head { is_used: false, ..Head::of(word) };
                self.store_outliving(lab, start, sealed(start, head.word()));
            }
        }
        lock(lab, &self.chunks).free.extend(freed);
    }

    /// Gives memory and blocks of the chunk back that was free for longest, unless they are few.
    pub(crate) fn release_unused(&self) {
        let mut chunks = self.chunks.lock();
        let is_allocated = |chunk: &&u32| chunks.allocated[**chunk as usize] > 0;
        if chunks.free.iter().filter(is_allocated).count() <= chunks.in_use() + 1 {
            return;
        }
        let Some(place) = chunks.free.iter().position(|c| chunks.allocated[*c as usize] > 0) else {
            return;
        };
        let chunk = chunks.free.remove(place);
        let bytes = std::mem::take(&mut chunks.allocated[chunk as usize]);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The head stays: one of zeros would be damage.
        let (at, bytes_behind) = (self.start_of(chunk) + PAGE_BYTES, bytes - PAGE_BYTES);
        if rustix::fs::fallocate(&self.file, hole, at, bytes_behind).is_ok() {
            let counted = chunks.allocated_bytes().max(self.set_aside()).min(chunks.counted);
            self.budget.give(chunks.counted - counted);
            chunks.counted = counted;
        } else {
            chunks.allocated[chunk as usize] = bytes;
        }
        chunks.free.insert(0, chunk);
    }

    pub(super) fn count_left_out(&self) {
        self.owed.left_out.fetch_add(1, Ordering::AcqRel);
    }

    /// First byte of a chunk for records.
    pub(super) fn records_of(&self, chunk: u32) -> u64 {
        self.start_of(chunk) + CHUNK_HEAD_BYTES
    }
}
