//! Redo, the shadow copy of 000 A7: new values wait in memory, go to a log, then to their places.
//!
//! ```text
//! write   into a buffer; reads of the section look there first
//! commit  new words and mark into the log | write back | FENCE | apply | write back | FENCE
//! abort   forget the buffer
//! open    if the mark matches the log: apply | write back | FENCE, the one of the pool's state
//! ```
//! ```text
//! log:    | generation | bytes, 32 bits; CRC-32C, 32 bits | runs .. |
//! run:    | offset / 8, 40 bits; words, 24 bits | new words .. |
//! ```
//! The first two words are the commit mark. A section is durable when mark and log are, which takes
//! one fence since the checksum covers both. The log need not be retired: the next section's mark is
//! written over it only after the apply was fenced, and applying it twice is the same as once.

use super::EngineKind;
use super::engine::{Engine, Grain, Recovery};
use super::error::{Error, Result};
use super::header::Geometry;
use super::media::{LINE, Media, pieces};
use super::step::Step;
use super::words;
use crate::checksum::Crc;
use std::collections::BTreeMap;
use terrace_memory::Memory;

const HEAD: usize = 16;
const SEED: u32 = 0x5245_444f;
/// Words of a run at most: what its head can say.
const RUN_WORDS: u64 = (1 << 24) - 1;

/// A line as the open section sees it.
struct Line {
    bytes: [u8; LINE as usize],
    /// A bit for each word to be logged.
    written: u8,
}

pub(super) struct Redo {
    data_at: u64,
    log_at: u64,
    log_bytes: u64,
    grain: Grain,
    /// Of the last section that committed.
    generation: u64,
    lines: BTreeMap<u64, Line>,
}

fn checksum(generation: u64, runs: &[u8]) -> u32 {
    Crc::new(SEED).update(&generation.to_le_bytes()).update(runs).finish()
}

/// Empties the log; the caller makes it durable.
pub(super) fn create<M: Memory>(media: &Media<M>, geometry: &Geometry) {
    media.zero(geometry.log_at, geometry.log_bytes);
}

impl Redo {
    /// Opens and recovers.
    pub(super) fn open<M: Memory>(
        media: &Media<M>,
        geometry: &Geometry,
        grain: Grain,
        report: &mut Recovery,
    ) -> Result<Redo> {
        let (log_at, log_bytes) = (geometry.log_at, geometry.log_bytes);
        let data_at = geometry.data_at;
        let mut redo =
            Redo { data_at, log_at, log_bytes, grain, generation: 0, lines: BTreeMap::new() };
        let (generation, mark) = (media.load(log_at), media.load(log_at + 8));
        report.bytes_read += HEAD as u64;
        let bytes = mark & 0xffff_ffff;
        if mark == 0 || bytes + HEAD as u64 > log_bytes {
            report.torn += u64::from(mark != 0 || generation != 0);
            return Ok(redo);
        }
        let mut runs = vec![0; bytes as usize];
        media.read(log_at + HEAD as u64, &mut runs);
        report.bytes_read += bytes;
        let matches = mark >> 32 == u64::from(checksum(generation, &runs));
        if !matches && media.has(Step::RedoChecksum) {
            report.torn += 1;
            return Ok(redo);
        }
        redo.generation = generation;
        report.rolled_forward = 1;
        redo.replay(media, &runs, report);
        Ok(redo)
    }

    fn replay<M: Memory>(&self, media: &Media<M>, runs: &[u8], report: &mut Recovery) {
        for (at, new) in parse(runs) {
            // A log that was not checked may point anywhere.
            if self.data_at + at + new.len() as u64 > media.len() {
                break;
            }
            media.write(self.data_at + at, new);
            media.write_back(Step::RedoReplayWriteBack, self.data_at + at, new.len() as u64);
            report.entries += 1;
            report.bytes_written += new.len() as u64;
        }
        // Opening goes on to store the pool's state and fence it: that orders this too, and nobody
        // writes to the log before.
    }

    /// The buffered words as runs, after room for the mark.
    fn encode(&self) -> Vec<u8> {
        let mut log = vec![0; HEAD];
        // The open run: where its head is in the log, its words, and where it ends in the heap.
        let (mut head, mut count, mut end) = (0, 0, u64::MAX);
        for (number, line) in &self.lines {
            for word in (0..8).filter(|word| line.written >> word & 1 == 1) {
                let at = number * LINE + 8 * word as u64;
                if at != end || count == RUN_WORDS {
                    (head, count) = (log.len(), 0);
                    log.extend_from_slice(&[0; 8]);
                }
                (count, end) = (count + 1, at + 8);
                let start = end / 8 - count;
                log[head..head + 8].copy_from_slice(&(start | (count << 40)).to_le_bytes());
                log.extend_from_slice(&line.bytes[8 * word..8 * word + 8]);
            }
        }
        log
    }

    fn apply<M: Memory>(&self, media: &Media<M>, runs: &[u8]) {
        for (at, new) in parse(runs) {
            media.write(self.data_at + at, new);
        }
        for (first, count) in words::runs(self.lines.keys().copied()) {
            let at = self.data_at + first * LINE;
            media.write_back(Step::RedoApplyWriteBack, at, count * LINE);
        }
        media.fence(Step::RedoApplyFence);
    }
}

/// Offsets in the heap and new words.
fn parse(mut runs: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = runs.split_first_chunk::<8>()?;
        let head = u64::from_le_bytes(*head);
        let (new, rest) = rest.split_at_checked(8 * (head >> 40) as usize)?;
        runs = rest;
        Some((8 * (head & ((1 << 40) - 1)), new))
    })
}

impl<M: Memory> Engine<M> for Redo {
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        media.read(self.data_at + at, target);
        if self.lines.is_empty() {
            return;
        }
        for (line, within, part) in pieces(at, target.len()) {
            if let Some(line) = self.lines.get(&line) {
                let length = part.len();
                target[part].copy_from_slice(&line.bytes[within..within + length]);
            }
        }
    }

    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()> {
        for (number, within, part) in pieces(at, source.len()) {
            let line = self.lines.entry(number).or_insert_with(|| {
                let mut bytes = [0; LINE as usize];
                media.read(self.data_at + number * LINE, &mut bytes);
                Line { bytes, written: 0 }
            });
            let end = within + part.len();
            line.bytes[within..end].copy_from_slice(&source[part]);
            line.written |= match self.grain {
                Grain::Word => (0xffu16 << (within / 8) & !(0xffff << end.div_ceil(8))) as u8,
                Grain::Line => 0xff,
            };
        }
        Ok(())
    }

    fn commit(&mut self, media: &Media<M>) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut log = self.encode();
        let needs_bytes = log.len() as u64;
        if needs_bytes > self.log_bytes {
            let (engine, has_bytes) = (EngineKind::Redo, self.log_bytes);
            return Err(Error::SectionTooLarge { engine, needs_bytes, has_bytes });
        }
        let generation = self.generation + 1;
        let crc = checksum(generation, &log[HEAD..]);
        let mark = (log.len() - HEAD) as u64 | u64::from(crc) << 32;
        log[..8].copy_from_slice(&generation.to_le_bytes());
        log[8..HEAD].copy_from_slice(&mark.to_le_bytes());
        if media.has(Step::RedoMark) {
            media.write(self.log_at, &log);
        } else {
            media.write(self.log_at + HEAD as u64, &log[HEAD..]);
        }
        media.write_back(Step::RedoLogWriteBack, self.log_at, needs_bytes);
        media.fence(Step::RedoLogFence);
        self.apply(media, &log[HEAD..]);
        self.generation = generation;
        self.lines.clear();
        Ok(())
    }

    fn abort(&mut self, _media: &Media<M>) {
        self.lines.clear();
    }

    fn progress(&self) -> u64 {
        self.generation
    }
}
