//! A writer's place in a redo log.

use super::{RECORD_HEAD_BYTES, RedoLog, check_of};
#[cfg(any(test, feature = "faults"))]
use crate::logs::Fault;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};
use terrace_memory::{Memory, lab};

/// Chunks in which room for a record is looked for.
const TRIED: usize = 2;

/// A note, and the zero behind it.
const NOTE_BYTES: u64 = RECORD_HEAD_BYTES + 8;

/// A writer's place in a redo log; used under that writer's lock. The laboratory memory `lab` of its methods hears of
/// every word and part that they store, before it is stored; not of the file's length and blocks.
#[derive(Debug)]
pub(crate) struct Pen {
    log: Arc<RedoLog>,
    writer: u64,
    /// None before the first record.
    chunk: Option<u32>,
    life: u64,
    /// Where the next record goes, and where the bytes end that are allocated.
    at: u64,
    ready: u64,
    /// Chunks that were filled since the last checkpoint.
    full: Vec<u32>,
    /// Whether there are records behind the last note.
    has_records: bool,
    /// A record was left out: there are to be no more before a checkpoint has it.
    is_broken: bool,
}

impl Pen {
    pub fn new(log: &Arc<RedoLog>, writer: usize) -> Pen {
        Pen {
            log: Arc::clone(log),
            writer: writer as u64,
            chunk: None,
            life: 0,
            at: 0,
            ready: 0,
            full: Vec::new(),
            has_records: false,
            is_broken: false,
        }
    }

    /// Puts down the item, or end of a batch, that consists of these parts and is checksummed under `salt`; `key` is
    /// its key, whose lock is held. Others must not see the item before.
    #[inline(always)]
    pub fn record(&mut self, lab: &impl Memory, key: Option<&[u8]>, salt: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = (RECORD_HEAD_BYTES + length as u64).next_multiple_of(8);
        // There is always room for a note.
        if self.at + bytes + NOTE_BYTES > self.ready && !self.make_room(lab, bytes) {
            return;
        }
        let stamp = key.map_or(0, |key| self.log.stamp(key));
        let salt_and_length = u64::from(salt) | (length as u64) << 32;
        #[cfg(any(test, feature = "faults"))]
        if self.log.faults.has(Fault::WordEarly) {
            let check = check_of(self.life, self.at, stamp, salt_and_length);
            self.store_words(lab, stamp, salt_and_length, bytes);
            self.log.store_outliving(lab, self.at, check);
        }
        let mut to = self.at + RECORD_HEAD_BYTES;
        for part in parts {
            lab::outlives(lab, to, part);
            // SAFETY: in this writer's chunk, up to where it is allocated; nobody reads it while the process lives.
            unsafe { self.log.memory.write(to, part) };
            to += part.len() as u64;
        }
        self.finish(lab, stamp, salt_and_length, bytes);
        self.has_records = true;
    }

    #[inline(always)]
    fn finish(&mut self, lab: &impl Memory, stamp: u64, salt_and_length: u64, bytes: u64) {
        self.store_words(lab, stamp, salt_and_length, bytes);
        // What a thread stored outlives it in this order; the compiler keeps it too.
        compiler_fence(Ordering::SeqCst);
        let check = check_of(self.life, self.at, stamp, salt_and_length);
        self.log.store_outliving(lab, self.at, check);
        compiler_fence(Ordering::SeqCst);
        self.at += bytes;
    }

    /// All words of a record, or note, but the first.
    #[inline(always)]
    fn store_words(&self, lab: &impl Memory, stamp: u64, salt_and_length: u64, bytes: u64) {
        self.log.store_outliving(lab, self.at + 8, stamp);
        self.log.store_outliving(lab, self.at + 16, salt_and_length);
        // No record follows: what else is found there is damage.
        self.log.store_outliving(lab, self.at + bytes, 0);
    }

    #[cold]
    fn make_room(&mut self, lab: &impl Memory, bytes: u64) -> bool {
        let log = &self.log;
        let needed = bytes + NOTE_BYTES;
        if self.is_broken {
            return false;
        }
        let fits = |chunk: u32, at: u64| at + needed <= log.start_of(chunk) + log.chunk_bytes;
        if !fits(0, log.records_of(0)) {
            return self.leave_out();
        }
        let mut is_used_up = !self.chunk.is_some_and(|chunk| fits(chunk, self.at));
        for _ in 0..TRIED {
            if is_used_up {
                let Some(taken) = log.take(lab, self.writer) else { return self.leave_out() };
                self.full.extend(self.chunk.replace(taken.chunk));
                self.life = taken.life;
                self.at = log.records_of(taken.chunk);
            }
            let Some(chunk) = self.chunk else { return false };
            let start = log.start_of(chunk);
            self.ready = start + log.grow(lab, chunk, self.at + needed - start);
            if self.at + needed <= self.ready {
                return true;
            }
            // It cannot grow now; one that a checkpoint has freed may be longer.
            is_used_up = true;
        }
        self.leave_out()
    }

    /// What is behind a record that is missing must not count either.
    fn leave_out(&mut self) -> bool {
        self.is_broken = true;
        self.ready = 0;
        self.log.count_left_out();
        false
    }

    /// Everything so far is part of checkpoint `number`, taken while all writers are locked out. Chunks that are
    /// free once it is durable go to `full`; whether there was anything.
    pub fn note(&mut self, lab: &impl Memory, number: u64, full: &mut Vec<u32>) -> bool {
        let had_records = std::mem::take(&mut self.has_records);
        if had_records {
            self.finish(lab, number, 0, RECORD_HEAD_BYTES);
        }
        full.append(&mut self.full);
        let was_broken = std::mem::take(&mut self.is_broken);
        if was_broken {
            // The rest of its chunk was too short, and would be again.
            full.extend(self.chunk.take());
            (self.at, self.ready) = (0, 0);
        }
        was_broken || had_records
    }
}
