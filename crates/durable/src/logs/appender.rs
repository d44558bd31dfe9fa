//! Appending: a writer's open log, and how one log follows another.

use super::overwrite;
use super::segment::{self, SEGMENT_HEADER_BYTES, SegmentHeader, State};
use super::{COLLECTOR, Logs, MAX_ITEM_BYTES, SEGMENT_BYTES, segment_of, start_of};
use crate::error::{Error, Result};
use crate::flush::Flusher;
use crate::item::{BATCH_END_BYTES, MAX_HEADER_BYTES, NewItem, encode_batch_end};
use crate::redo_log::Pen;
use crate::sections::Changes;
use crate::values::{Room, Ticket};
use parking_lot::ReentrantMutexGuard;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, Native};

/// How far ahead of the tail lines are asked for.
const AHEAD_LINES: u64 = 4;

/// One writer's open log.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// 0: none open.
    pub(super) segment: u32,
    pub(super) tail: u32,
    pub(super) salt: u32,
    /// Log position of the segment's offset 0.
    pub(super) origin: u64,
    /// Offset up to which the segment was handed to the medium.
    pub(super) handed: u32,
    /// Sealed ranges not handed to the medium yet: offset in the file and length.
    pub(super) pending: Vec<(u64, u64)>,
    /// Seals to be written once those ranges are durable: segment and seal word. A seal says that
    /// everything before it is there; it may not reach the medium first.
    pub(super) seals: Vec<(u32, u64)>,
    pub(super) in_batch: bool,
    /// Whether the log says what was committed of it ([`marks`](super::marks)).
    pub(super) has_marks: bool,
    /// Log position up to which it says so.
    pub(super) marked: u64,
    /// Items appended or overwritten.
    pub(super) writes: u64,
    pub(super) flusher: Flusher,
    /// Where writes are put down that no checkpoint has.
    pub(super) redo: Option<Pen>,
}

impl Writer {
    pub(super) fn position(&self) -> u64 {
        self.origin + u64::from(self.tail)
    }

    /// Puts an item, or the end of a batch, into the redo log, if there is one.
    #[inline(always)]
    pub(super) fn redo(
        &mut self,
        lab: &impl Memory,
        key: Option<&[u8]>,
        salt: u32,
        parts: &[&[u8]],
    ) {
        if let Some(pen) = &mut self.redo {
            pen.record(lab, key, salt, parts);
        }
    }

    /// Whether `bytes` of items and a batch end fit behind the tail.
    #[inline(always)]
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.segment != 0 && self.tail as usize + bytes + BATCH_END_BYTES <= SEGMENT_BYTES as usize
    }
}

/// A writer's log, held. Reentrant: the holder's thread may ask for it again.
#[derive(Debug)]
pub struct Appender<'a, M: Memory = Native> {
    pub(super) logs: &'a Logs<M>,
    pub(super) lock: ReentrantMutexGuard<'a, RefCell<Writer>>,
    id: usize,
}

impl<M: Memory> Appender<'_, M> {
    /// Whether an item of `bytes` can be appended.
    #[inline(always)]
    pub fn fits(&self, bytes: usize) -> bool {
        self.lock.borrow().fits(bytes)
    }

    /// Writes an item; returns its location. Durable now on a byte-addressable medium, after a
    /// commit of [`Appender::ticket`] on a mirrored one. With allocation metadata it counts once `changes` are
    /// committed.
    #[inline]
    pub fn append(&mut self, new: &NewItem<'_>, changes: &mut Changes) -> u64 {
        let mut header = [0; MAX_HEADER_BYTES];
        let mut writer = self.lock.borrow_mut();
        let header_bytes = new.encode_header(writer.salt, writer.in_batch, &mut header);
        let parts = [&header[..header_bytes], new.key, new.value];
        let location = self.logs.write(&mut writer, &parts);
        if new.tombstone {
            self.logs.segments[writer.segment as usize].deleted.fetch_add(1, Ordering::Relaxed);
        }
        let salt = writer.salt;
        writer.redo(self.logs.medium.memory(), Some(new.key), salt, &parts);
        self.logs.record_tail(&writer, changes);
        #[cfg(any(test, feature = "faults"))]
        {
            let in_batch = writer.in_batch;
            drop(writer);
            self.logs.checkpoint_in_batch(in_batch);
        }
        location
    }

    /// From here to [`Appender::end_batch`], items count only together after a crash.
    pub fn begin_batch(&mut self, changes: &mut Changes) {
        let mut writer = self.lock.borrow_mut();
        if !std::mem::replace(&mut writer.in_batch, true) {
            if self.logs.medium.is_byte_addressable() {
                self.logs.commit_queues[self.id].batch_begins(writer.position());
            }
            self.logs.record_batch(self.id, true, changes);
        }
    }

    /// The batch has ended, and what it added to a section was committed: others may be told of it.
    pub fn batch_ended(&mut self) {
        if self.logs.medium.is_byte_addressable() {
            self.logs.commit_queues[self.id].batch_ended();
        }
    }

    /// Ends the batch. Durability as for its items. [`Appender::batch_ended`] must follow.
    pub fn end_batch(&mut self, changes: &mut Changes) {
        let mut writer = self.lock.borrow_mut();
        if std::mem::take(&mut writer.in_batch) {
            let end = encode_batch_end(writer.salt);
            self.logs.write(&mut writer, &[&end]);
            let salt = writer.salt;
            writer.redo(self.logs.medium.memory(), None, salt, &[&end]);
            self.logs.record_tail(&writer, changes);
            self.logs.record_batch(self.id, false, changes);
        }
    }

    /// Counts the item of `bytes` at `location` as dead: nothing points to it any more, or will as
    /// soon as the key's lock is released.
    #[inline(always)]
    pub fn retire(&mut self, location: u64, bytes: usize, changes: &mut Changes) {
        let dead = &self.logs.dead[self.id][segment_of(location)];
        // Only the holder of this writer's lock changes the counter.
        dead.store(dead.load(Ordering::Relaxed) + bytes as u32, Ordering::Relaxed);
        self.logs.record_dead(location, bytes, changes);
    }

    /// What to commit for everything appended so far.
    #[inline(always)]
    pub fn ticket(&self) -> Ticket {
        Ticket { writer: self.id as u8, position: self.lock.borrow().position() }
    }
}

impl<M: Memory> Logs<M> {
    /// A writer's log, with room for `bytes` more (items with their headers; see
    /// [`NewItem::item_bytes`]) and a batch end, so that `append` cannot fail.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when no segment is free and the budget is spent, or the collector is far
    /// behind: wait for it, or refuse. [`Error::BatchTooLong`] inside a batch that was opened with
    /// too little room. [`Error::DiskFull`], [`Error::Stopped`]. Nothing was changed then.
    #[inline]
    pub fn appender(&self, id: usize, bytes: usize, room: Room) -> Result<Appender<'_, M>> {
        let lock = self.lock_writer(id);
        // What is saved at the end may have to be copied before.
        if self.refuses.load(Ordering::Relaxed) && (id != COLLECTOR || self.stopped().is_some()) {
            return Err(self.refusal());
        }
        let mut writer = lock.borrow_mut();
        if !writer.fits(bytes) {
            debug_assert!(bytes <= MAX_ITEM_BYTES);
            if writer.in_batch {
                return Err(Error::BatchTooLong);
            }
            self.rotate(&mut writer, id, room)?;
        }
        if writer.has_marks {
            self.mark_commit(&mut writer, id, bytes);
        }
        drop(writer);
        Ok(Appender { logs: self, lock, id })
    }

    #[cold]
    pub(super) fn refusal(&self) -> Error {
        let reason = self.stopped().unwrap_or("closed");
        Error::Stopped(reason.into())
    }

    #[cold]
    pub(super) fn rotate(&self, writer: &mut Writer, id: usize, room: Room) -> Result<()> {
        self.check_writable()?;
        let (segment, sequence) = self.take_segment(room)?;
        self.seal(writer);
        if let Some(allocation) = self.allocation.get() {
            let grown = allocation.grow(segment..segment + 1);
            grown.inspect_err(|_| self.lock_pool().free.push(segment))?;
        }
        let generation = self.generation.load(Ordering::Acquire);
        // Differs from every earlier life of this segment, so that an item left over from one never
        // verifies in another.
        let salt =
            (sequence as u32).wrapping_mul(0x9e37_79b1) ^ segment.rotate_left(16) ^ self.lifetime;
        writer.origin = writer.position();
        writer.segment = segment;
        writer.tail = SEGMENT_HEADER_BYTES;
        writer.handed = 0;
        writer.salt = salt;
        writer.has_marks = self.has_marks();
        writer.marked = writer.position();
        let state = &self.segments[segment as usize];
        self.dead.iter().for_each(|dead| dead[segment as usize].store(0, Ordering::Relaxed));
        state.end.store(0, Ordering::Relaxed);
        state.closed.store(0, Ordering::Relaxed);
        state.deleted.store(0, Ordering::Relaxed);
        state.half_expires_at_ms.store(0, Ordering::Relaxed);
        state.sequence.store(sequence, Ordering::Relaxed);
        state.salt.store(salt, Ordering::Relaxed);
        let frozen = if self.overwrites() { 0 } else { overwrite::ALL };
        self.freeze_to(segment as usize, frozen);
        state.origin.store(writer.origin << 8 | id as u64, Ordering::Relaxed);
        state.set_state(State::Open);
        let header = SegmentHeader {
            writer: id as u32,
            sequence,
            salt,
            sealed_bytes: 0,
            generation,
            format: segment::FORMAT,
            is_in_order: self.medium.is_byte_addressable(),
            is_saved: false,
        };
        self.write_header(segment, &header.encode());
        // Counting looks at every segment; a 64th of them filled can make few more due.
        let uncounted = self.uncounted.fetch_add(1, Ordering::Relaxed) + 1;
        if uncounted * 64 >= self.total_segments() {
            self.recount_backlog();
        }
        Ok(())
    }

    /// Closes the open log. Under the writer's lock.
    pub(super) fn seal(&self, writer: &mut Writer) {
        if writer.segment == 0 {
            return;
        }
        let start = start_of(writer.segment);
        let word = segment::seal_word(writer.salt, writer.tail);
        if self.medium.is_byte_addressable() {
            self.write_seal(writer.segment, word);
        } else {
            writer
                .pending
                .push((start + u64::from(writer.handed), u64::from(writer.tail - writer.handed)));
            writer.seals.push((writer.segment, word));
        }
        let segment = &self.segments[writer.segment as usize];
        segment.end.store(writer.tail, Ordering::Relaxed);
        segment.closed.store(self.next_sequence(), Ordering::Relaxed);
        segment.set_state(State::Sealed);
        writer.origin = writer.position();
        writer.segment = 0;
        writer.tail = 0;
    }

    /// Writes a header, its first word last.
    pub(super) fn write_header(&self, segment: u32, bytes: &[u8; SEGMENT_HEADER_BYTES as usize]) {
        let (at, memory) = (start_of(segment), self.medium.memory());
        let (first, rest) = bytes.split_at(8);
        // SAFETY: the segment is committed; headers are written by the segment's only owner and
        // read by nobody else while the process runs.
        unsafe {
            memory.write(at + 8, rest);
            memory.persist(at + 8, rest.len() as u64);
            memory.store(at, u64::from_le_bytes(first.try_into().expect("eight bytes")));
            memory.persist(at, 8);
        }
    }

    /// Clears a header, its first word first. Durable now only on a byte-addressable medium.
    pub(super) fn clear_header(&self, segment: u32) {
        let (at, memory) = (start_of(segment), self.medium.memory());
        // SAFETY: as for `write_header`.
        unsafe {
            memory.store(at, 0);
            memory.persist(at, 8);
            memory.write(at + 8, &[0; SEGMENT_HEADER_BYTES as usize - 8]);
        }
    }

    pub(super) fn write_seal(&self, segment: u32, word: u64) {
        let (at, memory) = (start_of(segment) + segment::SEAL_AT, self.medium.memory());
        // SAFETY: as for `write_header`; one aligned word.
        unsafe {
            memory.store(at, word);
            memory.persist(at, 8);
        }
    }

    #[inline(always)]
    fn write(&self, writer: &mut Writer, parts: &[&[u8]]) -> u64 {
        let location = start_of(writer.segment) + u64::from(writer.tail);
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(
            writer.tail as usize + bytes <= SEGMENT_BYTES as usize,
            "append within the room asked for"
        );
        let memory = self.medium.memory();
        let end = location + bytes as u64;
        // SAFETY, for both: there is room (asserted); everything behind the tail belongs to the holder
        // of the writer's lock, and nobody reads there before a location is published.
        if self.medium.is_byte_addressable() {
            // SAFETY: above.
            unsafe { writer.flusher.write(memory, location, parts) };
        } else {
            let mut at = location;
            for part in parts {
                // SAFETY: above.
                unsafe { memory.write(at, part) };
                at += part.len() as u64;
            }
        }
        writer.tail += bytes as u32;
        writer.writes += 1;
        // The lines the next items go to are asked for now: stores that miss would hold up the
        // locked instructions that follow them.
        for line in 1..=AHEAD_LINES {
            memory.prefetch_to_write(end + line * 64);
        }
        location
    }
}
