//! Undo: the old value is durable before each write in place (Ni, sections 3.2 and 3.3.1).
//!
//! ```text
//! write   log the old words | write back | FENCE | write in place
//! commit  write the data back | FENCE | raise the generation | write back | FENCE
//! abort   put the old words back | write back | FENCE | raise the generation | write back | FENCE
//! open    the same as abort, if the log has entries of the current generation
//! ```
//! A section is durable when the raised generation is: until then recovery takes it back. Reads are
//! plain. The price is a fence for every write of words not yet logged.

use super::EngineKind;
use super::engine::{Engine, Grain, Recovery};
use super::error::Result;
use super::header::Geometry;
use super::media::Media;
use super::step::Step;
use super::undo_log::InPlace;
use crate::checksum::Crc;
use terrace_memory::Memory;

const SEED: u32 = 0x4745_4e53;
const GENERATION_BITS: u32 = 48;

pub(super) struct Undo {
    data_at: u64,
    cell_at: u64,
    generation: u64,
    writes: InPlace,
}

/// The word of a generation: 16 bits of checksum above it, so that a flipped bit is not a commit.
fn encode(generation: u64) -> u64 {
    let crc = Crc::new(SEED).update(&generation.to_le_bytes()).finish();
    generation | u64::from(crc) << GENERATION_BITS
}

/// Writes the first generation; the caller makes it durable.
pub(super) fn create<M: Memory>(media: &Media<M>, geometry: &Geometry) {
    media.zero(geometry.log_at, geometry.log_bytes);
    media.store(geometry.cell_at, encode(1));
}

impl Undo {
    /// Opens and recovers.
    pub(super) fn open<M: Memory>(
        media: &Media<M>,
        geometry: &Geometry,
        grain: Grain,
        report: &mut Recovery,
    ) -> Result<Undo> {
        let word = media.load(geometry.cell_at);
        let generation = word & ((1 << GENERATION_BITS) - 1);
        report.bytes_read += 8;
        if word != encode(generation) {
            let what = "the commit mark of the undo log does not match its checksum".into();
            report.damaged(media.is_read_only(), geometry.cell_at, what)?;
        }
        let writes = InPlace::new(EngineKind::Undo, grain, geometry.log_at, geometry.log_bytes);
        let mut undo =
            Undo { data_at: geometry.data_at, cell_at: geometry.cell_at, generation, writes };
        if undo.writes.recover(media, generation, report)? {
            report.rolled_back = 1;
            undo.mark(media);
        }
        Ok(undo)
    }

    /// Voids the log: the commit of what is in place.
    fn mark<M: Memory>(&mut self, media: &Media<M>) {
        self.generation += 1;
        if media.has(Step::UndoMark) {
            media.store(self.cell_at, encode(self.generation));
        }
        media.write_back(Step::UndoMarkWriteBack, self.cell_at, 8);
        media.fence(Step::UndoMarkFence);
        self.writes.settle();
    }
}

impl<M: Memory> Engine<M> for Undo {
    #[inline]
    fn read(&self, media: &Media<M>, at: u64, target: &mut [u8]) {
        media.read(self.data_at + at, target);
    }

    fn write(&mut self, media: &Media<M>, at: u64, source: &[u8]) -> Result<()> {
        self.writes.write(media, self.generation, self.data_at + at, source)
    }

    fn commit(&mut self, media: &Media<M>) -> Result<()> {
        if !self.writes.is_empty() {
            self.writes.write_back(media, Step::UndoDataWriteBack);
            media.fence(Step::UndoDataFence);
            self.mark(media);
        }
        Ok(())
    }

    fn abort(&mut self, media: &Media<M>) {
        if !self.writes.is_empty() {
            self.writes.roll_back(media);
            self.mark(media);
        }
    }

    fn progress(&self) -> u64 {
        self.generation
    }
}
