//! Redo, the shadow copy of Wu, section 2.4: new values wait in memory, go to a log, then to their places.
//!
//! ```text
//! write   into a buffer; reads of the section look there first
//! commit  new words and mark into the log | write back | FENCE | apply | write back | FENCE
//! abort   forget the buffer
//! open    if the mark matches the log: apply | write back | FENCE, the one of the pool's state
//! ```
//! The log is one record (`record.rs`), whose mark is the commit mark. It need not be retired: the next
//! section's record is written over it only after the apply was fenced, and applying it twice is the
//! same as once.

use super::EngineKind;
use super::buffer::Buffer;
use super::engine::{Engine, Grain, Recovery};
use super::error::{Error, Result};
use super::header::Geometry;
use super::media::{LINE, Media};
use super::record::{self, HEAD};
use super::step::Step;
use terrace_memory::Memory;

pub(super) struct Redo {
    data_at: u64,
    log_at: u64,
    log_bytes: u64,
    /// Of the last section that committed.
    generation: u64,
    buffer: Buffer,
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
        let buffer = Buffer::new(data_at, grain);
        let mut redo = Redo { data_at, log_at, log_bytes, generation: 0, buffer };
        let (generation, mark) = (media.load(log_at), media.load(log_at + 8));
        report.bytes_read += HEAD as u64;
        let Some(bytes) = record::promised(mark, log_bytes) else {
            report.torn += u64::from(mark != 0 || generation != 0);
            return Ok(redo);
        };
        let mut runs = vec![0; bytes as usize];
        media.read(log_at + HEAD as u64, &mut runs);
        report.bytes_read += bytes;
        if !record::is_whole(generation, mark, &runs) && media.has(Step::RedoChecksum) {
            report.torn += 1;
            // Else the next record, torn in its turn, could supply the words that this one lacks.
            media.store(log_at + 8, 0);
            media.write_back(Step::RedoReplayWriteBack, log_at + 8, 8);
            return Ok(redo);
        }
        redo.generation = generation;
        report.rolled_forward = 1;
        redo.replay(media, &runs, report);
        Ok(redo)
    }

    fn replay<M: Memory>(&self, media: &Media<M>, runs: &[u8], report: &mut Recovery) {
        for (at, new) in record::parse(runs) {
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

    fn apply<M: Memory>(&self, media: &Media<M>, runs: &[u8]) {
        for (at, new) in record::parse(runs) {
            media.write(self.data_at + at, new);
        }
        for (first, count) in self.buffer.runs() {
            let at = self.data_at + first * LINE;
            media.write_back(Step::RedoApplyWriteBack, at, count * LINE);
        }
        media.fence(Step::RedoApplyFence);
    }
}

impl<M: Memory> Engine<M> for Redo {
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        self.buffer.read(media, at, target);
    }

    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()> {
        self.buffer.write(media, at, source);
        Ok(())
    }

    fn commit(&mut self, media: &Media<M>) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut record = self.buffer.encode();
        let needs_bytes = record.len();
        if needs_bytes > self.log_bytes {
            let (engine, has_bytes) = (EngineKind::Redo, self.log_bytes);
            return Err(Error::SectionTooLarge { engine, needs_bytes, has_bytes });
        }
        let generation = self.generation + 1;
        let log = record.mark(generation);
        if media.has(Step::RedoMark) {
            media.write(self.log_at, log);
        } else {
            media.write(self.log_at + HEAD as u64, &log[HEAD..]);
        }
        media.write_back(Step::RedoLogWriteBack, self.log_at, needs_bytes);
        media.fence(Step::RedoLogFence);
        self.apply(media, record.runs());
        self.generation = generation;
        self.buffer.clear();
        Ok(())
    }

    fn abort(&mut self, _media: &Media<M>) {
        self.buffer.clear();
    }

    fn progress(&self) -> u64 {
        self.generation
    }
}
