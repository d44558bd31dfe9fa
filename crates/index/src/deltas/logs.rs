//! The logs: records are appended to the last segment of one, and given up from its first.
//!
//! What an appender needs is a line in DRAM for each log: a latch, and where the next record goes. A record
//! is made durable under the latch, so that of two records of a log the later is never there without the
//! earlier: replay ends at the first that is not whole. Several logs are what lets several threads append
//! at once (Ni, section 5.4.3, "Supporting multiple logs").
//!
//! Whoever must not fail later claims a line before: there is room for every claimed one.

use super::record::{Delta, LINE, Record};
use super::segments::Segments;
use super::step::Step;
use super::table::Table;
use crate::keys::Keys;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use terrace_memory::{Memory, Spin};

/// Of what counts, so much garbage is let be before the logs take more memory.
const MOST_GARBAGE: f64 = 1.0;

/// Words of a log's line.
const LATCH: u64 = 0;
const TAIL: u64 = 8;
const END: u64 = 16;
const CLAIMED: u64 = 24;
const SPARES: u64 = 32;
const STAMP: u64 = 40;

/// A log's segments and sums.
#[derive(Default)]
pub(super) struct Log {
    pub(super) held: Mutex<Held>,
    /// Bytes of records in its segments, and of those that count.
    pub(super) used: AtomicU64,
    pub(super) live: AtomicI64,
    /// Entries of the leaves whose log it is.
    pub(super) entries: AtomicI64,
    /// Taken by whoever collects it.
    pub(super) collecting: Mutex<()>,
    /// Where it ended when it was last asked whether it rests, and behind its last mark.
    pub(super) seen: AtomicU64,
    pub(super) marked: AtomicU64,
}

/// Segments of a log.
#[derive(Default)]
pub(super) struct Held {
    /// In the order of their use, each with its number: the first is collected next, the last written.
    pub(super) segments: VecDeque<(u32, u64)>,
    /// Taken, and in no use yet.
    spares: Vec<u32>,
}

impl Log {
    /// Bytes of records that do not count any more.
    pub(super) fn garbage(&self) -> u64 {
        (self.used.load(Relaxed) as i64 - self.live.load(Relaxed)).max(0) as u64
    }
}

/// All logs.
pub(super) struct Logs<P: Memory> {
    pub(super) segments: Segments<P>,
    pub(super) all: Box<[CachePadded<Log>]>,
    /// Whether garbage is collected before more memory is taken, once there is too much of it.
    bounds_garbage: bool,
}

/// Where a record was put, and in which use of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) stamp: u64,
}

/// A log's line, latched; let go on drop.
struct Line<'a, D: Memory> {
    memory: &'a D,
    at: u64,
}

impl<D: Memory> Line<'_, D> {
    #[inline(always)]
    fn get(&self, word: u64) -> u64 {
        // SAFETY: a word of a committed line.
        unsafe { self.memory.load(self.at + word) }
    }

    #[inline(always)]
    fn set(&self, word: u64, value: u64) {
        // SAFETY: as above; only the holder of the latch writes it.
        unsafe { self.memory.store(self.at + word, value) };
    }

    fn room(&self) -> u64 {
        self.get(END) - self.get(TAIL)
    }
}

impl<D: Memory> Drop for Line<'_, D> {
    #[inline(always)]
    fn drop(&mut self) {
        self.set(LATCH, 0);
    }
}

impl<P: Memory> Logs<P> {
    pub(super) fn new(segments: Segments<P>, logs: u32, bounds_garbage: bool) -> Logs<P> {
        let all = (0..logs).map(|_| CachePadded::default()).collect();
        Logs { segments, all, bounds_garbage }
    }

    /// Whether there is more garbage than so many parts of what counts, and two segments of each log.
    pub(super) fn has_garbage(&self, parts: f64) -> bool {
        let garbage: u64 = self.all.iter().map(|log| log.garbage()).sum();
        let live: i64 = self.all.iter().map(|log| log.live.load(Relaxed)).sum();
        let slack = 2 * self.segments.bytes * self.all.len() as u64;
        garbage > (live.max(0) as f64 * parts) as u64 + slack
    }

    /// Whether more memory may be taken for a writer.
    fn grows(&self) -> bool {
        !(self.bounds_garbage && self.has_garbage(MOST_GARBAGE))
    }

    /// Whose log a leaf's is: neighbours in number are apart.
    #[inline(always)]
    pub(super) fn of(&self, leaf: u32) -> u32 {
        let hash = u64::from(leaf).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((hash >> 32) * self.all.len() as u64) >> 32) as u32
    }

    pub(super) fn log(&self, log: u32) -> &Log {
        &self.all[log as usize]
    }

    #[inline]
    fn latch<'a, D: Memory>(&self, log: u32, table: &'a Table<D>, keys: &impl Keys) -> Line<'a, D> {
        let at = table.log_line(log);
        let spin = Spin::on(&table.memory);
        // SAFETY: the first word of a committed line.
        while unsafe { table.memory.compare_exchange(at + LATCH, 0, 1) }.is_err() {
            keys.pause();
            spin.wait();
        }
        Line { memory: &table.memory, at }
    }

    /// Keeps a line of a log for an append to come, by [`Logs::append_claimed`] or [`Logs::disclaim`]ed.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if no segment is free.
    #[inline]
    pub(super) fn claim<D: Memory>(
        &self,
        log: u32,
        table: &Table<D>,
        keys: &impl Keys,
    ) -> io::Result<()> {
        let line = self.latch(log, table, keys);
        let claimed = line.get(CLAIMED) + 1;
        while line.room() + line.get(SPARES) * self.capacity() < claimed * LINE {
            self.add_spare(log, &line, false)?;
        }
        line.set(CLAIMED, claimed);
        Ok(())
    }

    /// Gives a claim back.
    pub(super) fn disclaim<D: Memory>(&self, log: u32, table: &Table<D>, keys: &impl Keys) {
        let line = self.latch(log, table, keys);
        line.set(CLAIMED, line.get(CLAIMED) - 1);
    }

    /// Appends a delta whose line was claimed; durable on return.
    #[inline]
    pub(super) fn append_claimed<D: Memory>(
        &self,
        log: u32,
        delta: &mut Delta,
        entries: i64,
        table: &Table<D>,
        keys: &impl Keys,
    ) -> Place {
        let line = self.latch(log, table, keys);
        line.set(CLAIMED, line.get(CLAIMED) - 1);
        if line.room() < LINE {
            self.open_next(log, &line);
        }
        let own = self.log(log);
        own.entries.store(own.entries.load(Relaxed) + entries, Relaxed);
        self.put(log, delta.stamped(line.get(STAMP)), &line)
    }

    /// Appends a record; durable on return. `spare`: to the last segment.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if no segment is free; nothing is appended then.
    pub(super) fn append<D: Memory>(
        &self,
        log: u32,
        record: &mut Record,
        spare: bool,
        table: &Table<D>,
        keys: &impl Keys,
    ) -> io::Result<Place> {
        let line = self.latch(log, table, keys);
        let bytes = record.bytes();
        let fits = bytes <= line.room();
        loop {
            // What is left for claimed lines when the record is there.
            let (spares, room) = (line.get(SPARES), line.room());
            let left = match fits {
                true => Some(room - bytes + spares * self.capacity()),
                false => (spares * self.capacity()).checked_sub(bytes),
            };
            if left.is_some_and(|left| left >= line.get(CLAIMED) * LINE) {
                break;
            }
            self.add_spare(log, &line, spare)?;
        }
        if !fits {
            self.open_next(log, &line);
        }
        Ok(self.put(log, record.stamped(line.get(STAMP)), &line))
    }

    /// Where the next record goes; it may be changing.
    pub(super) fn tail<D: Memory>(&self, log: u32, table: &Table<D>) -> u64 {
        // SAFETY: a word of a committed line.
        unsafe { table.memory.load(table.log_line(log) + TAIL) }
    }

    /// Bytes of a segment for records.
    fn capacity(&self) -> u64 {
        self.segments.bytes - LINE
    }

    fn add_spare<D: Memory>(&self, log: u32, line: &Line<'_, D>, spare: bool) -> io::Result<()> {
        let segment = self.segments.take(spare, self.grows())?;
        self.log(log).held.lock().spares.push(segment);
        line.set(SPARES, line.get(SPARES) + 1);
        Ok(())
    }

    /// Goes on in a spare segment, whose head will be durable with the first record in it.
    #[cold]
    fn open_next<D: Memory>(&self, log: u32, line: &Line<'_, D>) {
        let (segment, last) = {
            let mut held = self.log(log).held.lock();
            let segment = held.spares.pop().expect("claims and appends have seen to a spare");
            (segment, held.segments.back().copied())
        };
        let before_end = last.map_or(0, |(last, _)| line.get(TAIL) - self.segments.at(last));
        let stamp = self.segments.begin(segment, log, before_end);
        self.log(log).held.lock().segments.push_back((segment, stamp));
        let at = self.segments.at(segment);
        line.set(SPARES, line.get(SPARES) - 1);
        line.set(STAMP, stamp);
        line.set(TAIL, at + LINE);
        line.set(END, at + self.segments.bytes);
    }

    /// Puts a record's words where the next one goes.
    #[inline]
    fn put<D: Memory>(&self, log: u32, words: &[u64], line: &Line<'_, D>) -> Place {
        let own = self.log(log);
        let at = line.get(TAIL);
        let bytes = (words.len() as u64 * 8).next_multiple_of(LINE);
        for (word, offset) in words.iter().zip((at..).step_by(8)) {
            // SAFETY: inside a segment of the log, behind its records; a late reader of an earlier use loads
            // words too, and finds out.
            unsafe { self.segments.memory.store(offset, *word) };
        }
        self.segments.persist(at, bytes, Step::RecordWriteBack, Step::RecordFence);
        line.set(TAIL, at + bytes);
        own.used.fetch_add(bytes, Relaxed);
        own.live.fetch_add(bytes as i64, Relaxed);
        Place { at, stamp: line.get(STAMP) }
    }

    /// From here on the log goes on at `tail`, behind the records of its last segment.
    pub(super) fn resume<D: Memory>(
        &self,
        log: u32,
        held: VecDeque<(u32, u64)>,
        tail: u64,
        table: &Table<D>,
    ) {
        let line = Line { memory: &table.memory, at: table.log_line(log) };
        let last = held.back();
        line.set(TAIL, tail);
        line.set(END, last.map_or(0, |(last, _)| self.segments.at(*last) + self.segments.bytes));
        line.set(STAMP, last.map_or(0, |(_, stamp)| *stamp));
        line.set(CLAIMED, 0);
        line.set(SPARES, 0);
        *self.log(log).held.lock() = Held { segments: held, spares: Vec::new() };
    }

    /// Frees all segments of a log, none of which counts any more. Nobody else uses it.
    pub(super) fn clear<D: Memory>(&self, log: u32, table: &Table<D>) {
        while !self.log(log).held.lock().segments.is_empty() {
            self.free_first(log);
        }
        let spares = std::mem::take(&mut self.log(log).held.lock().spares);
        spares.into_iter().for_each(|spare| self.segments.give(spare));
        self.resume(log, VecDeque::new(), 0, table);
        let own = self.log(log);
        own.used.store(0, Relaxed);
        own.live.store(0, Relaxed);
        own.entries.store(0, Relaxed);
    }

    /// Takes the first segment of a log for good, durably: nothing in it counts any more.
    pub(super) fn free_first(&self, log: u32) {
        let first = self.log(log).held.lock().segments.front().copied();
        if let Some((segment, _)) = first {
            self.segments.end(segment);
            self.log(log).held.lock().segments.pop_front();
            self.segments.give(segment);
        }
    }

    /// Whether a log has a segment of this use yet.
    pub(super) fn has(&self, log: u32, stamp: u64) -> bool {
        self.log(log).held.lock().segments.front().is_some_and(|(_, first)| *first <= stamp)
    }
}
