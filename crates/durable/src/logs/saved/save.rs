//! Saving an index, while others write.

use super::frames::{HEAD_FRAMES, Writing};
use super::{HEAD_BYTES, MAGIC, PARAMETERS, PART_BYTES, ROW_BYTES, Row, Saved, VERSION};
use crate::error::Result;
use crate::logs::commit::Taken;
use crate::logs::overwrite::ALL;
use crate::logs::{Logs, SEGMENT_BYTES, State, start_of};
use crate::medium::{BLOCK_BYTES, Blocks};
use crate::superblock::{Checkpoint, SavedAt, put_u32, put_u64};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// An index that is being saved. Dropped before it is published, its segments are free again.
pub struct Saving<'a, M: Memory> {
    logs: &'a Logs<M>,
    frames: Writing<'a, M>,
    salt: u32,
    generation: u64,
    next_sequence: u64,
    /// Logs that are closed: segment, end, sequence number, salt.
    closed: Vec<(u32, u32, u64, u32)>,
    /// Of each part, the first frame and the bytes.
    parts: Vec<(u64, u64)>,
    bytes: u64,
    is_published: bool,
}

impl<M: Memory> Logs<M> {
    /// Begins to save an index that nobody else saves. It may be passed on from now on.
    pub fn begin_saving(&self) -> Saving<'_, M> {
        // At this moment no item is in a log whose entry is not in the index, but for blind writes.
        let _nobody_writes = self.lock_writers();
        let closed = self.closed_logs();
        // They are looked through while others write.
        closed.iter().for_each(|(segment, ..)| self.freeze_to(*segment as usize, ALL));
        let next_sequence = self.next_sequence();
        let salt = (next_sequence as u32).wrapping_mul(0x85eb_ca6b) ^ self.lifetime ^ 0x5a5a_5a5a;
        Saving {
            logs: self,
            frames: Writing::new(self, salt, 0),
            salt,
            generation: self.generation.load(Ordering::Acquire),
            next_sequence,
            closed,
            parts: Vec::new(),
            bytes: 0,
            is_published: false,
        }
    }

    fn closed_logs(&self) -> Vec<(u32, u32, u64, u32)> {
        let fresh = self.lock_pool().fresh;
        let closed = |segment: &u32| {
            let state = self.segments[*segment as usize].state();
            matches!(state, State::Sealed | State::Collecting)
        };
        let row = |segment| {
            let row = &self.segments[segment as usize];
            let (end, salt) = (row.end.load(Ordering::Relaxed), row.salt.load(Ordering::Relaxed));
            (segment, end, row.sequence.load(Ordering::Relaxed), salt)
        };
        (1..fresh).filter(closed).map(row).collect()
    }

    /// Takes a segment for a saved index, of which no memory is used. Returns its sequence number, too.
    pub(super) fn take_for_saving(&self) -> Result<(u32, u64)> {
        let segment = self.grow_for_saving(&mut self.lock_pool())?;
        let sequence = self.next_sequence.fetch_add(1, Ordering::AcqRel);
        self.saved_segments.fetch_add(1, Ordering::Relaxed);
        let row = &self.segments[segment as usize];
        row.sequence.store(sequence, Ordering::Relaxed);
        row.end.store(0, Ordering::Relaxed);
        row.set_state(State::Saved);
        Ok((segment, sequence))
    }

    /// Frees segments of a saved index that no checkpoint record names.
    ///
    /// # Errors
    /// Those of the medium; the segments stay as they are, and the next opening frees them.
    pub(super) fn free_saved(&self, segments: &[u32]) -> Result<()> {
        let mut zeros = Blocks::default();
        let zeros = zeros.of(BLOCK_BYTES as usize);
        for segment in segments {
            self.medium.write_apart(start_of(*segment), zeros)?;
        }
        self.stop_on_error(self.medium.sync())?;
        for segment in segments {
            self.segments[*segment as usize].set_state(State::Free);
            self.saved_segments.fetch_sub(1, Ordering::Relaxed);
            {
                let _pool = self.lock_pool();
                self.residents.remove(*segment, &self.segments[*segment as usize].place);
            }
            // SAFETY: nobody uses what is neither a log's nor in the pool.
            let released = unsafe { self.medium.release(start_of(*segment), SEGMENT_BYTES.into()) };
            // What keeps its blocks is tried again when it is needed.
            let _kept = released;
            self.lock_pool().released.push(*segment);
            self.give_disk();
        }
        Ok(())
    }
}

impl<'a, M: Memory> Saving<'a, M> {
    /// Whether the saved index is to know all of this log.
    pub fn knows(&self, segment: u32) -> bool {
        self.closed.iter().any(|(closed, ..)| *closed == segment)
    }

    /// Passes words of the present part on.
    ///
    /// # Errors
    /// Those of the medium; the index is not saved then.
    pub fn put(&mut self, words: &[u64]) -> Result<()> {
        let mut bytes = [0; 1024];
        for some in words.chunks(bytes.len() / 8) {
            for (place, word) in bytes.chunks_exact_mut(8).zip(some) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            self.put_bytes(&bytes[..some.len() * 8])?;
        }
        Ok(())
    }

    fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if self.bytes == 0 {
            self.parts.push((self.frames.written as u64, 0));
        }
        self.bytes += bytes.len() as u64;
        self.frames.put(bytes)
    }

    /// Ends the present part.
    ///
    /// # Errors
    /// As [`Saving::put`].
    pub fn end_part(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.parts.last_mut().expect("a part has words").1 = bytes;
        self.frames.end_frame()
    }

    /// Names the index in the checkpoint record: the next opening finds it. `false` if the map was cleared meanwhile.
    /// `has_expiries`: whether some items expire.
    ///
    /// # Errors
    /// Those of the medium, and of a map that takes no writes.
    pub fn publish(mut self, parameters: [u64; PARAMETERS], has_expiries: bool) -> Result<bool> {
        let logs = self.logs;
        let rows = self.rows(has_expiries);
        rows.iter().try_for_each(|row| self.put_bytes(&row.encode()))?;
        let has_rows = !rows.is_empty();
        if has_rows {
            self.end_part()?;
        }
        let head = self.head(&parameters, has_rows);
        let mut frames = Writing::new(logs, self.salt, HEAD_FRAMES);
        let written = frames.put(&head).and_then(|()| frames.end_frame());
        let [segment] = frames.segments[..] else {
            // Too long for a segment: it would be the index of a petabyte.
            self.frames.segments.append(&mut frames.segments);
            return written.map(|()| false);
        };
        self.frames.segments.push(segment);
        written?;
        let Some(mut checkpoint) = self.checkpoint_with_logs()? else { return Ok(false) };
        // A batch that was written in part has stopped the map before it let go of its writer: what it took the place
        // of may be left out of what was passed on.
        logs.check_writable()?;
        let saved = SavedAt { segment, salt: self.salt, bytes: head.len() as u32 };
        let next = Checkpoint { number: checkpoint.number + 1, saved, ..checkpoint.clone() };
        logs.stop_on_error(logs.store_checkpoint(&next))?;
        *checkpoint = next;
        self.is_published = true;
        let segments = std::mem::take(&mut self.frames.segments);
        let mut known: Vec<u64> = rows.iter().map(|row| row.sequence).collect();
        known.sort_unstable();
        let saved = Saved { segments, known, next_sequence: self.next_sequence };
        let before = std::mem::replace(&mut *logs.saved.lock(), saved);
        drop(checkpoint);
        // They cost space until the next opening otherwise.
        let _stay = logs.free_saved(&before.segments);
        Ok(true)
    }

    /// The checkpoint, of which all that is named in the index is a part; none if the map was cleared meanwhile.
    fn checkpoint_with_logs(&self) -> Result<Option<MutexGuard<'a, Checkpoint>>> {
        let logs = self.logs;
        let _alone = logs.alone();
        loop {
            let mut checkpoint = logs.lock_checkpoint();
            if checkpoint.generation != self.generation {
                return Ok(None);
            }
            logs.stop_on_error(logs.medium.sync())?;
            logs.check_writable()?;
            #[cfg(any(test, feature = "faults"))]
            if logs.faults.has(crate::logs::Fault::SavedUnflushed) {
                return Ok(Some(checkpoint));
            }
            match logs.stop_on_error(logs.take_checkpoint_under(&mut checkpoint, None))? {
                Taken::Alone => return Ok(Some(checkpoint)),
                Taken::Tied => {
                    drop(checkpoint);
                    logs.flush_together()?;
                }
            }
        }
    }

    /// Rows of the logs that were closed at the beginning, as far as they still are there.
    fn rows(&self, has_expiries: bool) -> Vec<Row> {
        let logs = self.logs;
        let closed = &self.closed;
        #[cfg(any(test, feature = "faults"))]
        let late = logs.faults.has(crate::logs::Fault::SavedLate).then(|| logs.closed_logs());
        #[cfg(any(test, feature = "faults"))]
        let closed = late.as_ref().unwrap_or(closed);
        if has_expiries {
            closed.iter().for_each(|(segment, ..)| logs.notes_expiry(*segment));
        }
        let row = |&(segment, end, sequence, salt): &(u32, u32, u64, u32)| {
            let row = &logs.segments[segment as usize];
            let dead = logs.dead_bytes(segment).min(end.into()) as u32;
            let deleted = row.deleted.load(Ordering::Relaxed);
            // One that somebody else looked through meanwhile is due at once.
            let half_expires_at_ms = match has_expiries {
                true => row.half_expires_at_ms.load(Ordering::Relaxed),
                false => u64::MAX,
            };
            let row = Row { segment, end, sequence, salt, dead, deleted, half_expires_at_ms };
            // Whoever took the segment since has stored its sequence number before.
            let is_the_same =
                logs.segments[segment as usize].sequence.load(Ordering::Acquire) == sequence;
            is_the_same.then_some(row)
        };
        closed.iter().filter_map(row).collect()
    }

    fn head(&self, parameters: &[u64; PARAMETERS], has_rows: bool) -> Vec<u8> {
        let (parts, segments) = (&self.parts, &self.frames.segments);
        let mut head = vec![0; HEAD_BYTES + parts.len() * PART_BYTES + segments.len() * 4];
        put_u64(&mut head, 0, MAGIC);
        let numbers = [VERSION, u32::from(has_rows), parts.len() as u32, segments.len() as u32];
        for (at, number) in numbers.into_iter().enumerate() {
            put_u32(&mut head, 8 + 4 * at, number);
        }
        let words = [self.next_sequence, self.generation].into_iter().chain(*parameters);
        words.enumerate().for_each(|(at, word)| put_u64(&mut head, 24 + 8 * at, word));
        for (number, (first, bytes)) in parts.iter().enumerate() {
            put_u64(&mut head, HEAD_BYTES + PART_BYTES * number, *first);
            put_u64(&mut head, HEAD_BYTES + PART_BYTES * number + 8, *bytes);
        }
        let at = HEAD_BYTES + PART_BYTES * parts.len();
        for (number, segment) in segments.iter().enumerate() {
            put_u32(&mut head, at + 4 * number, *segment);
        }
        head
    }
}

impl<M: Memory> Drop for Saving<'_, M> {
    fn drop(&mut self) {
        if !self.is_published {
            let segments = std::mem::take(&mut self.frames.segments);
            // They cost space until the next opening otherwise.
            let _stay = self.logs.free_saved(&segments);
        }
    }
}

impl Row {
    fn encode(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        let numbers = [self.segment, self.end, self.salt, self.dead, self.deleted];
        for (at, number) in numbers.into_iter().enumerate() {
            put_u32(&mut bytes, 4 * at, number);
        }
        put_u64(&mut bytes, 24, self.sequence);
        put_u64(&mut bytes, 32, self.half_expires_at_ms);
        bytes
    }
}
