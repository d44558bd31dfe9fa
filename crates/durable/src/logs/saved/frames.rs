//! A saved index as a row of frames, in segments of the value file.
//!
//! Behind the first block of a segment, which has its header, are eleven frames of 93 blocks.
//!
//! ```text
//! 0  4  checksum of the rest, seeded with the salt and the frame's number
//! 4  4  bytes of the payload
//! 8  .. payload
//! ```

use crate::checksum::Crc;
use crate::error::Result;
use crate::logs::segment::{FORMAT, SegmentHeader};
use crate::logs::{Logs, start_of};
use crate::medium::{BLOCK_BYTES, Blocks, Medium};
use crate::superblock::{get_u32, put_u32};
use terrace_memory::Memory;

pub(super) const FRAMES: usize = 11;
pub(super) const FRAME_BYTES: usize = 93 * BLOCK_BYTES as usize;
const FRAME_HEAD: usize = 8;
/// Bytes that a frame holds.
pub(super) const PAYLOAD_BYTES: usize = FRAME_BYTES - FRAME_HEAD;
/// The frames of a head have numbers from here on.
pub(super) const HEAD_FRAMES: u32 = 1 << 31;

/// Where frame `number` of a row of segments begins; none behind the last segment.
fn place(segments: &[u32], number: usize) -> Option<u64> {
    let segment = segments.get(number / FRAMES)?;
    Some(start_of(*segment) + BLOCK_BYTES + (number % FRAMES * FRAME_BYTES) as u64)
}

fn checksum(salt: u32, number: u32, frame: &[u8]) -> u32 {
    Crc::new(salt ^ number.wrapping_mul(0x9e37_79b1)).update(frame).finish()
}

/// Frames that are being written.
pub(super) struct Writing<'a, M: Memory> {
    logs: &'a Logs<M>,
    salt: u32,
    first: u32,
    pub segments: Vec<u32>,
    frame: Blocks,
    filled: usize,
    /// Frames that were written.
    pub written: usize,
}

impl<'a, M: Memory> Writing<'a, M> {
    pub fn new(logs: &'a Logs<M>, salt: u32, first: u32) -> Writing<'a, M> {
        let frame = Blocks::default();
        Writing { logs, salt, first, segments: Vec::new(), frame, filled: 0, written: 0 }
    }

    pub fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (some, rest) = bytes.split_at(bytes.len().min(PAYLOAD_BYTES - self.filled));
            let at = FRAME_HEAD + self.filled;
            self.frame.of(FRAME_BYTES)[at..at + some.len()].copy_from_slice(some);
            self.filled += some.len();
            if self.filled == PAYLOAD_BYTES {
                self.end_frame()?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Writes the frame that is being filled, if there is anything in it.
    pub fn end_frame(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        if self.written == self.segments.len() * FRAMES {
            self.begin_segment()?;
        }
        let at = place(&self.segments, self.written).expect("it was begun");
        let end = FRAME_HEAD + self.filled;
        let frame = self.frame.of(FRAME_BYTES);
        put_u32(frame, 4, self.filled as u32);
        let number = self.first + self.written as u32;
        let sum = checksum(self.salt, number, &frame[4..end]);
        put_u32(frame, 0, sum);
        let blocks = end.next_multiple_of(BLOCK_BYTES as usize);
        frame[end..blocks].fill(0);
        self.logs.medium.write_apart(at, &frame[..blocks])?;
        self.written += 1;
        self.filled = 0;
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<()> {
        let (segment, sequence) = self.logs.take_for_saving()?;
        self.segments.push(segment);
        let header = SegmentHeader {
            writer: 0,
            sequence,
            salt: self.salt,
            sealed_bytes: 0,
            generation: self.logs.generation.load(std::sync::atomic::Ordering::Acquire),
            format: FORMAT,
            is_in_order: false,
            is_saved: true,
        };
        let mut block = Blocks::default();
        let block = block.of(BLOCK_BYTES as usize);
        let bytes = header.encode();
        block[..bytes.len()].copy_from_slice(&bytes);
        self.logs.medium.write_apart(start_of(segment), block)
    }
}

/// Frames that are read one after the other.
pub(super) struct Reading<'a, M: Memory> {
    medium: &'a Medium<M>,
    segments: &'a [u32],
    salt: u32,
    first: u32,
    next: usize,
    frame: Blocks,
    /// What of the frame was not taken yet.
    from: usize,
    to: usize,
    /// Bytes behind that.
    left: u64,
}

impl<'a, M: Memory> Reading<'a, M> {
    /// Reads `bytes` from frame `next` of these segments on.
    pub fn new(
        medium: &'a Medium<M>,
        segments: &'a [u32],
        (salt, first): (u32, u32),
        next: usize,
        bytes: u64,
    ) -> Reading<'a, M> {
        let frame = Blocks::default();
        Reading { medium, segments, salt, first, next, frame, from: 0, to: 0, left: bytes }
    }

    /// Bytes that were not read yet.
    pub fn left(&self) -> u64 {
        self.left + (self.to - self.from) as u64
    }

    /// The next bytes. `false` if a frame does not verify, or there are no more.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn next(&mut self, mut into: &mut [u8]) -> Result<bool> {
        while !into.is_empty() {
            if self.from == self.to && !self.read_frame()? {
                return Ok(false);
            }
            let bytes = into.len().min(self.to - self.from);
            let (some, rest) = into.split_at_mut(bytes);
            some.copy_from_slice(&self.frame.of(FRAME_BYTES)[self.from..self.from + bytes]);
            self.from += bytes;
            into = rest;
        }
        Ok(true)
    }

    fn read_frame(&mut self) -> Result<bool> {
        let payload = self.left.min(PAYLOAD_BYTES as u64) as usize;
        let Some(at) = place(self.segments, self.next).filter(|_| payload > 0) else {
            return Ok(false);
        };
        let end = FRAME_HEAD + payload;
        let blocks = end.next_multiple_of(BLOCK_BYTES as usize);
        let frame = &mut self.frame.of(FRAME_BYTES)[..blocks];
        self.medium.read_apart(at, frame)?;
        let number = self.first.wrapping_add(self.next as u32);
        let is_intact = get_u32(frame, 4) as usize == payload
            && get_u32(frame, 0) == checksum(self.salt, number, &frame[4..end]);
        self.next += 1;
        self.left -= payload as u64;
        (self.from, self.to) = (FRAME_HEAD, end);
        Ok(is_intact)
    }
}
