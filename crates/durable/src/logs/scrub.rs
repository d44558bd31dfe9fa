//! A scrub: what the disk has of logs that nobody writes any more is read and verified. So damage is known before
//! somebody asks for what was damaged, and while memory perhaps still has what the disk has lost.

use super::{Logs, SEGMENT_HEADER_BYTES, SegmentView, State, start_of};
use crate::error::{Error, Result};
use crate::item;
use crate::logs::segment::{FoundHeader, SegmentHeader};
use crate::medium::{BLOCK_BYTES, Blocks};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Bytes that are asked of the disk at a time: who waits for an item waits for no more.
const PIECE_BYTES: usize = 256 << 10;

/// What the disk has of a log.
#[derive(Debug)]
pub enum OnDisk {
    /// All of it: so many bytes were read.
    Intact(u64),
    /// Nothing that could be judged: not all of it is durable yet, or it was collected meanwhile.
    InUse,
    /// Not all of it, and what is wrong.
    Damaged(Error),
}

impl<M: Memory> Logs<M> {
    /// Reads what the disk has of a log, into memory of its own, and verifies each item. Others read, write and collect
    /// meanwhile. It takes the budget's bytes for as long as that lasts.
    ///
    /// # Complexity
    /// One pass over the bytes of the log, at most 4 MiB.
    pub fn check_on_disk(&self, log: &SegmentView) -> OnDisk {
        let bytes = log.used_bytes.next_multiple_of(BLOCK_BYTES);
        if !self.is_at_rest(log) {
            return OnDisk::InUse;
        }
        self.budget.take_anyway(bytes);
        let mut blocks = Blocks::default();
        let found = self.read_and_verify(log, blocks.of(bytes as usize));
        drop(blocks);
        self.budget.give(bytes);
        match found {
            // A log that was freed has another state, or another number, before its bytes change.
            Err(_) if !self.is_at_rest(log) => OnDisk::InUse,
            Err(error) => OnDisk::Damaged(error),
            Ok(()) => OnDisk::Intact(bytes),
        }
    }

    /// Whether it is the log that was surveyed, closed, all of it durable and claimed by nobody.
    fn is_at_rest(&self, log: &SegmentView) -> bool {
        let row = &self.segments[log.number as usize];
        let last = start_of(log.number) + log.used_bytes.saturating_sub(1);
        row.state() == State::Sealed
            && row.sequence.load(Ordering::Acquire) == log.sequence
            && u64::from(row.end.load(Ordering::Acquire)) == log.used_bytes
            && self.undurable(last).is_none()
    }

    fn read_and_verify(&self, log: &SegmentView, into: &mut [u8]) -> Result<()> {
        let start = start_of(log.number);
        for (number, piece) in into.chunks_mut(PIECE_BYTES).enumerate() {
            let at = start + (number * PIECE_BYTES) as u64;
            self.medium.read_apart(at, piece).or_else(|_| self.find_unreadable(at, piece))?;
        }
        let salt = self.segments[log.number as usize].salt.load(Ordering::Relaxed);
        let is_its_own = |header: SegmentHeader| {
            header.sequence == log.sequence && header.salt == salt && !header.is_saved
        };
        match SegmentHeader::decode(into) {
            FoundHeader::Intact(header) if is_its_own(header) => {}
            _ => return Err(self.damaged_on_disk(start)),
        }
        let (mut at, end) = (SEGMENT_HEADER_BYTES as usize, log.used_bytes as usize);
        while at < end {
            let length = item::verify(&into[at..end], salt).length();
            at += length.ok_or_else(|| self.damaged_on_disk(start + at as u64))?;
        }
        Ok(())
    }

    /// Reads block by block, to the first that the disk does not give.
    fn find_unreadable(&self, at: u64, piece: &mut [u8]) -> Result<()> {
        for (number, block) in piece.chunks_mut(BLOCK_BYTES as usize).enumerate() {
            let at = at + number as u64 * BLOCK_BYTES;
            self.medium
                .read_apart(at, block)
                .map_err(|error| super::fetch::at_offset(error, at))?;
        }
        Ok(())
    }
}
