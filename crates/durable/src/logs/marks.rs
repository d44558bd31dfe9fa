//! What tells damage from the torn end of an open log, where every intact item counts (`Rule::All`).
//!
//! Nothing but the order of writing says where an open log ends, and a write that a crash cut off looks like
//! damage. So what was once durable is said to have been:
//! * On a mirrored medium the first record behind a commit that has returned is a *commit mark*
//!   ([`control`](crate::control)): what lies before it and was durable then must be whole. It goes out with what
//!   follows it, in the same write.
//! * On a byte-addressable medium every record is durable before the next is begun: any intact record vouches for all
//!   before it, and no mark is written.
//! * The checkpointer notes the durable ends of open logs in the checkpoint ([`Logs::note_tails`]), for the last commit
//!   of a log has no mark behind it.
//!
//! What remains in doubt after a crash is the last commit of each log if it is younger than the last note.
//!
//! A mark may never say more than is durable: recovery would take a torn write for damage. It may say less, or be
//! left out: where there is no room, and within a batch, which nothing may part.

use super::appender::Writer;
use super::{Logs, SEGMENT_HEADER_BYTES, start_of};
use crate::control::{COMMIT_MARK_BYTES, encode_commit_mark};
use crate::error::Result;
use crate::superblock::{Checkpoint, MAX_OPEN, OpenLog, Rule};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

impl<M: Memory> Logs<M> {
    /// Whether open logs have marks: where items count before a checkpoint says so, and are not durable one by one.
    pub(super) fn has_marks(&self) -> bool {
        !self.medium.is_byte_addressable() && !self.overwrites()
    }

    /// Marks what was committed of the log since its last mark, if anything was and an item of `bytes` fits behind.
    #[inline(always)]
    pub(super) fn mark_commit(&self, writer: &mut Writer, id: usize, bytes: usize) {
        let durable = self.durable(id);
        #[cfg(any(test, feature = "faults"))]
        let durable =
            if self.faults.has(super::Fault::MarksEarly) { writer.position() } else { durable };
        if durable > writer.marked && !writer.in_batch && writer.fits(bytes + COMMIT_MARK_BYTES) {
            self.write_mark(writer, id, durable);
        }
    }

    #[inline(never)]
    fn write_mark(&self, writer: &mut Writer, id: usize, durable: u64) {
        let mark = encode_commit_mark((durable - writer.origin) as u32, writer.salt);
        let at = start_of(writer.segment) + u64::from(writer.tail);
        // SAFETY: there is room (asked before); everything behind the tail belongs to the holder of the writer's lock.
        unsafe { self.medium.memory().write(at, &mark) };
        writer.tail += COMMIT_MARK_BYTES as u32;
        writer.marked = durable;
        // Nothing points to it: it goes with the log.
        let dead = &self.dead[id][writer.segment as usize];
        dead.store(dead.load(Ordering::Relaxed) + COMMIT_MARK_BYTES as u32, Ordering::Relaxed);
    }

    /// Notes in the checkpoint how long the file is by now, so that a file cut short is noticed. The checkpointer
    /// calls it; under `Rule::Bounded` every checkpoint does it anyway.
    ///
    /// # Errors
    /// As [`Logs::commit`].
    pub fn note_growth(&self) -> Result<()> {
        self.note(false)
    }

    /// The same, and under `Rule::All` how far open logs are durable: damage before that is known for what it is,
    /// whatever is behind it. Nobody waits for it, and it waits for nobody.
    ///
    /// # Errors
    /// As [`Logs::commit`].
    pub fn note_tails(&self) -> Result<()> {
        self.note(true)
    }

    fn note(&self, with_tails: bool) -> Result<()> {
        let mut checkpoint = self.lock_checkpoint();
        if self.stopped().is_some() {
            return Ok(());
        }
        let mut next = Checkpoint { segments: self.lock_pool().fresh, ..checkpoint.clone() };
        if with_tails && checkpoint.rule == Rule::All {
            next.open = self.durable_tails(&checkpoint.open);
        }
        if next == *checkpoint {
            return Ok(());
        }
        next.number += 1;
        // The seals of logs that the checkpoint does not name any more are durable before.
        self.stop_on_error(self.medium.sync())?;
        self.check_unfailed()?;
        self.stop_on_error(self.store_checkpoint(&next))?;
        *checkpoint = next;
        Ok(())
    }

    /// How far logs are durable that are open on the medium; of writers at work for long, what was `noted` before.
    fn durable_tails(&self, noted: &[OpenLog]) -> Vec<OpenLog> {
        let mut open = Vec::new();
        for (id, writer) in self.writers.iter().enumerate() {
            // Whoever leads may be about to write seals.
            let lead = self.lead_within_patience(id);
            let lock = writer.try_lock();
            let held = lead.as_ref().and(lock.as_ref()).and_then(|lock| lock.try_borrow().ok());
            let Some(writer) = held else {
                open.extend(noted.iter().filter(|log| self.writer_of(log.segment) == id));
                continue;
            };
            let unsealed = writer.seals.iter().map(|(segment, _)| *segment);
            for segment in unsealed.chain((writer.segment != 0).then_some(writer.segment)) {
                let state = &self.segments[segment as usize];
                let end = match state.end.load(Ordering::Relaxed) {
                    0 => writer.tail,
                    end => end,
                };
                let origin = state.origin.load(Ordering::Relaxed) >> 8;
                let tail = self.durable(id).saturating_sub(origin).min(end.into()) as u32;
                if tail > SEGMENT_HEADER_BYTES {
                    let sequence = state.sequence.load(Ordering::Relaxed);
                    open.push(OpenLog { segment, tail, sequence });
                }
            }
        }
        // A log that is left out is judged by its marks.
        open.truncate(MAX_OPEN);
        open
    }

    fn writer_of(&self, segment: u32) -> usize {
        usize::from(self.segments[segment as usize].origin.load(Ordering::Relaxed) as u8)
    }
}
