//! Log-structured values (paper 000, A3): every write is appended to its writer's current log.
//!
//! A log is a segment of 4 MB. Each writer has one open log; a full one is sealed and the next
//! opened. Bytes that no index entry points to any more are counted per segment; a collector
//! (above this room, since it needs the index) moves what lives out of segments that are mostly
//! dead and frees them here.
//!
//! # What is durable when
//! * On a byte-addressable medium an item is durable when [`Appender::append`] returns: written
//!   back and fenced before its location is known to anyone.
//! * On a mirrored medium an item is durable when [`Logs::commit`] with its ticket, or
//!   [`Logs::flush_all`] after it, has returned. `commit` is a group commit: one leader writes
//!   everything its writer's log has, the others wait for it.
//! * A freed segment's header is zeroed durably before anything it shadowed may go and before it
//!   is used again ([`Logs::free`]).
//!
//! Locks, in the order they may be taken: a lane's leadership, a writer, the pool. The index's
//! bucket lock is taken by callers inside a writer and is innermost of all.

mod commit;
mod recover;
mod segment;

pub use commit::Ticket;
pub use recover::{Damage, Recovered, TornTail};
pub use segment::{SEGMENT_HEADER_BYTES, State};

use crate::error::{Error, Result};
use crate::item::{BATCH_END_BYTES, Header, Item, MAX_HEADER_BYTES, NewItem, encode_batch_end};
use crate::medium::Medium;
use crate::superblock::{self, Cut, MAX_OPEN, Rule, Shape};
use commit::Lane;
use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};
use std::cell::RefCell;
use segment::{RECOVERED, Segment, SegmentHeader};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_memory::{Budget, Memory};

/// Bytes of a log, as in the paper.
pub const SEGMENT_BYTES: u32 = 4 << 20;
/// The collector's writer.
pub const COLLECTOR: usize = 0;
/// Most writers, the collector included.
pub const MAX_WRITERS: usize = MAX_OPEN;
const DESIGN: u32 = 1;
/// Free segments that only the collector and deletes may take.
const COLLECTOR_SPARE: usize = 2;

/// All logs of one map.
#[derive(Debug)]
pub struct Logs {
    medium: Medium,
    segments: Box<[Segment]>,
    writers: Box<[CachePadded<ReentrantMutex<RefCell<Writer>>>]>,
    lanes: Box<[CachePadded<Lane>]>,
    pool: Arc<Mutex<Pool>>,
    waiting: Arc<AtomicUsize>,
    next_sequence: AtomicU64,
    /// Sealed segments that are at least half dead.
    backlog: AtomicI64,
    cut: Mutex<Cut>,
    bounded: AtomicBool,
    generation: AtomicU64,
    stopped: OnceLock<String>,
    /// Drawn at every opening: makes salts differ although a crash may make sequence numbers
    /// repeat.
    lifetime: u32,
    /// What was wrong with the head of the file, under salvage.
    head_damage: Option<String>,
    budget: Arc<Budget>,
}

/// Segments nobody uses, and the numbers the next one gets.
#[derive(Debug)]
struct Pool {
    free: Vec<u32>,
    /// Free, and their memory and blocks given back to the system.
    released: Vec<u32>,
    /// The first segment that was never used.
    fresh: u32,
}

/// How badly room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Refused when the budget is spent or the collector is behind.
    Ordinary,
    /// For what frees room in the end, deletes and the collector itself: may exceed the budget.
    Urgent,
}

/// One writer's open log.
#[derive(Debug, Default)]
struct Writer {
    /// 0: none open.
    segment: u32,
    tail: u32,
    salt: u32,
    /// Log position of the segment's offset 0.
    origin: u64,
    /// Offset up to which the segment was handed to the medium.
    handed: u32,
    /// Sealed ranges not handed to the medium yet: offset in the file and length.
    pending: Vec<(u64, u64)>,
    /// Seals to be written once those ranges are durable: segment and seal word. A seal says that
    /// everything before it is there; it may not reach the medium first.
    seals: Vec<(u32, u64)>,
    in_batch: bool,
}

impl Writer {
    fn position(&self) -> u64 {
        self.origin + u64::from(self.tail)
    }

    /// Whether `bytes` of items and a batch end fit behind the tail.
    #[inline(always)]
    fn fits(&self, bytes: usize) -> bool {
        self.segment != 0 && self.tail as usize + bytes + BATCH_END_BYTES <= SEGMENT_BYTES as usize
    }
}

impl Logs {
    /// Opens the head of `medium` (made if new) for `writers` concurrent writers beside the
    /// collector. [`Logs::recover`] must run before anything else.
    ///
    /// # Errors
    /// Those of [`superblock::open_head`].
    pub fn open(medium: Medium, writers: usize, salvage: bool, budget: &Arc<Budget>) -> Result<Logs> {
        assert!((1..MAX_WRITERS).contains(&writers), "1 to {} writers", MAX_WRITERS - 1);
        let shape = Shape { segment_bytes: SEGMENT_BYTES, design: DESIGN };
        let (cut, head_damage) = superblock::open_head(&medium, shape, salvage)?;
        let count = (medium.capacity_bytes() / u64::from(SEGMENT_BYTES)) as usize;
        let pool = Pool { free: Vec::new(), released: Vec::new(), fresh: 1 };
        Ok(Logs {
            segments: (0..count).map(|_| Segment::default()).collect(),
            writers: (0..=writers).map(|_| CachePadded::default()).collect(),
            lanes: (0..=writers).map(|_| CachePadded::default()).collect(),
            pool: Arc::new(Mutex::new(pool)),
            waiting: Arc::default(),
            next_sequence: AtomicU64::new(cut.next_sequence),
            backlog: AtomicI64::new(0),
            bounded: AtomicBool::new(cut.rule == Rule::Bounded),
            generation: AtomicU64::new(cut.generation),
            cut: Mutex::new(cut),
            stopped: OnceLock::new(),
            lifetime: RandomState::new().hash_one(0) as u32,
            head_damage,
            budget: Arc::clone(budget),
            medium,
        })
    }

    /// The medium below.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Number of writers, without the collector's. Their numbers are 1 and up.
    pub fn writers(&self) -> usize {
        self.writers.len() - 1
    }

    /// Longest item in bytes that fits a log.
    pub const fn max_item_bytes() -> usize {
        (SEGMENT_BYTES - SEGMENT_HEADER_BYTES) as usize - BATCH_END_BYTES
    }

    #[inline(always)]
    fn segment_of(location: u64) -> usize {
        (location / u64::from(SEGMENT_BYTES)) as usize
    }

    #[inline(always)]
    fn start_of(segment: u32) -> u64 {
        u64::from(segment) * u64::from(SEGMENT_BYTES)
    }

    /// Asks for `lines` cache lines from `location` on to be brought near. Always as many: how many
    /// lines an item really touches cannot be predicted, and a line too many costs less.
    #[inline(always)]
    pub fn prefetch(&self, location: u64, lines: u64) {
        for line in 0..lines {
            self.medium.memory().prefetch(location + 64 * line);
        }
    }

    /// The item at `location`, which came from [`Appender::append`] or recovery and was learnt
    /// under `guard`, or under a lock that keeps the item current.
    ///
    /// # Panics
    /// For a number that is no location of these logs.
    #[inline(always)]
    pub fn item<'g>(&'g self, location: u64, guard: &'g Guard) -> Item<'g> {
        let bytes = self.bytes_from(location, guard);
        Item::read(bytes).expect("a location names an item that was written whole")
    }

    /// The item at `location`, as for [`Logs::item`], if its key is `key`.
    #[inline(always)]
    pub fn item_if_key<'g>(&'g self, location: u64, key: &[u8], guard: &'g Guard) -> Option<Item<'g>> {
        Item::read_if_key(self.bytes_from(location, guard), key)
    }

    #[inline(always)]
    fn bytes_from<'g>(&'g self, location: u64, _guard: &'g Guard) -> &'g [u8] {
        let end = (location | u64::from(SEGMENT_BYTES - 1)) + 1;
        assert!(end <= self.medium.capacity_bytes(), "a location is in the medium");
        // SAFETY: inside the medium (asserted) and, being a location, in a committed segment. Items
        // are never overwritten in place, and a freed segment is reused only after every guard
        // under which its locations could be learnt is gone.
        unsafe { self.medium.memory().bytes(location, end - location) }
    }

    /// A writer's log, with room for `bytes` more (items with their headers; see
    /// [`NewItem::item_bytes`]) and a batch end, so that `append` cannot fail.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when no segment is free and the budget is spent, or the collector is far
    /// behind: wait for it, or refuse. [`Error::BatchTooLong`] inside a batch that was opened with
    /// too little room. [`Error::DiskFull`], [`Error::Stopped`]. Nothing was changed then.
    #[inline]
    pub fn appender(&self, id: usize, bytes: usize, room: Room) -> Result<Appender<'_>> {
        if self.stopped.get().is_some() {
            self.check_writable()?;
        }
        let lock = self.writers[id].lock();
        let mut writer = lock.borrow_mut();
        if !writer.fits(bytes) {
            debug_assert!(bytes <= Self::max_item_bytes());
            if writer.in_batch {
                return Err(Error::BatchTooLong);
            }
            self.rotate(&mut writer, id, room)?;
        }
        drop(writer);
        Ok(Appender { logs: self, lock, id })
    }

    #[cold]
    fn rotate(&self, writer: &mut Writer, id: usize, room: Room) -> Result<()> {
        self.check_writable()?;
        let (segment, sequence) = self.take_segment(room)?;
        self.seal(writer);
        let generation = self.generation.load(Ordering::Acquire);
        // Differs from every earlier life of this segment, so that an item left over from one never
        // verifies in another.
        let salt = (sequence as u32).wrapping_mul(0x9e37_79b1) ^ segment.rotate_left(16) ^ self.lifetime;
        writer.origin = writer.position();
        writer.segment = segment;
        writer.tail = SEGMENT_HEADER_BYTES;
        writer.handed = 0;
        writer.salt = salt;
        let state = &self.segments[segment as usize];
        state.dead.store(0, Ordering::Relaxed);
        state.end.store(0, Ordering::Relaxed);
        state.sequence.store(sequence, Ordering::Relaxed);
        state.origin.store(writer.origin << 8 | id as u64, Ordering::Relaxed);
        state.set_state(State::Open);
        let header = SegmentHeader { writer: id as u32, sequence, salt, sealed_bytes: 0, generation };
        self.write_header(segment, &header.encode());
        Ok(())
    }

    /// Closes the open log. Under the writer's lock.
    fn seal(&self, writer: &mut Writer) {
        if writer.segment == 0 {
            return;
        }
        let start = Self::start_of(writer.segment);
        let word = segment::seal_word(writer.salt, writer.tail);
        if self.medium.is_byte_addressable() {
            self.write_seal(writer.segment, word);
        } else {
            writer.pending.push((start + u64::from(writer.handed), u64::from(writer.tail - writer.handed)));
            writer.seals.push((writer.segment, word));
        }
        let segment = &self.segments[writer.segment as usize];
        segment.end.store(writer.tail, Ordering::Relaxed);
        segment.set_state(State::Sealed);
        if segment.dead.load(Ordering::Relaxed) * 2 >= u64::from(writer.tail) {
            self.backlog.fetch_add(1, Ordering::Relaxed);
        }
        writer.origin = writer.position();
        writer.segment = 0;
        writer.tail = 0;
    }

    /// Writes a header, its first word last.
    fn write_header(&self, segment: u32, bytes: &[u8; SEGMENT_HEADER_BYTES as usize]) {
        let (at, memory) = (Self::start_of(segment), self.medium.memory());
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
    fn clear_header(&self, segment: u32) {
        let (at, memory) = (Self::start_of(segment), self.medium.memory());
        // SAFETY: as for `write_header`.
        unsafe {
            memory.store(at, 0);
            memory.persist(at, 8);
            memory.write(at + 8, &[0; SEGMENT_HEADER_BYTES as usize - 8]);
        }
    }

    fn write_seal(&self, segment: u32, word: u64) {
        let (at, memory) = (Self::start_of(segment) + segment::SEAL_AT, self.medium.memory());
        // SAFETY: as for `write_header`; one aligned word.
        unsafe {
            memory.store(at, word);
            memory.persist(at, 8);
        }
    }

    fn take_segment(&self, room: Room) -> Result<(u32, u64)> {
        if room == Room::Ordinary && self.backlog.load(Ordering::Relaxed) > self.backlog_limit() {
            return Err(self.no_room());
        }
        let mut pool = self.pool.lock();
        // The last free segments are the collector's: without them a full disk could never be
        // collected.
        let spare = if room == Room::Urgent { 0 } else { COLLECTOR_SPARE };
        let segment = if pool.free.len() > spare {
            pool.free.pop().expect("just counted")
        } else if let Some(segment) = pool.released.pop() {
            self.grow_to(segment, room).inspect_err(|_| pool.released.push(segment))?;
            segment
        } else {
            let segment = pool.fresh;
            self.grow_to(segment, room)?;
            pool.fresh += 1;
            segment
        };
        // Under the pool's lock, so that whoever sees the segment in use sees the number raised.
        Ok((segment, self.next_sequence.fetch_add(1, Ordering::AcqRel)))
    }

    fn no_room(&self) -> Error {
        Error::NoRoom { used: self.budget.used(), limit: self.budget.limit() }
    }

    /// Segments that may wait for the collector before writers wait too: what bounds the space
    /// that dead items take.
    fn backlog_limit(&self) -> i64 {
        (self.total_segments() / 16).max(2) as i64
    }

    fn grow_to(&self, segment: u32, room: Room) -> Result<()> {
        let bytes = u64::from(SEGMENT_BYTES);
        if segment as usize >= self.segments.len() {
            return Err(self.no_room());
        }
        match room {
            Room::Urgent => self.budget.take_anyway(bytes),
            Room::Ordinary => self.budget.take(bytes).map_err(|_| self.no_room())?,
        }
        self.medium.grow(Self::start_of(segment), bytes).inspect_err(|_| self.budget.give(bytes))
    }

    /// Makes up to `count` fresh segments ready ahead of need: memory committed, and the file's
    /// blocks written once, which makes their syncs cheaper. For durability `sync`.
    ///
    /// # Errors
    /// As [`Logs::appender`]; harmless, the segment is made when it is needed.
    pub fn prepare(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            let segment = {
                let mut pool = self.pool.lock();
                if pool.free.len() >= count {
                    return Ok(());
                }
                let segment = pool.fresh;
                self.grow_to(segment, Room::Ordinary)?;
                pool.fresh += 1;
                segment
            };
            // Not in the list yet: nobody uses it while it is zeroed.
            let zeroed = self.medium.write_zeros(Self::start_of(segment), u64::from(SEGMENT_BYTES));
            let zeroed = zeroed.and_then(|()| self.medium.sync());
            self.pool.lock().free.push(segment);
            zeroed?;
        }
        Ok(())
    }

    /// Counts `bytes` of the item at `location` as dead: nothing points to it any more.
    #[inline(always)]
    pub fn retire(&self, location: u64, bytes: usize) {
        let segment = &self.segments[Self::segment_of(location)];
        let before = segment.dead.fetch_add(bytes as u64, Ordering::Relaxed);
        let half = u64::from(segment.end.load(Ordering::Relaxed)).div_ceil(2);
        if before < half && before + bytes as u64 >= half && segment.state() == State::Sealed {
            self.backlog.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether any segment is due for collection.
    pub fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) > 0
    }

    /// Recounts the segments due for collection.
    pub fn recount_backlog(&self) {
        let due = self.survey().iter().filter(|v| v.is_due()).count();
        self.backlog.store(due as i64, Ordering::Relaxed);
    }

    /// Sequence number of the next log: the stamp of a tombstone written now.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Acquire)
    }

    /// Smallest sequence number of a log that may still hold items, `except` aside.
    pub fn oldest_sequence(&self, except: u32) -> u64 {
        let fresh = self.pool.lock().fresh;
        (1..fresh)
            .filter(|s| *s != except && self.segments[*s as usize].state() != State::Free)
            .map(|s| self.segments[s as usize].sequence.load(Ordering::Relaxed))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Every segment that is in use: number, state, bytes in use, dead bytes, sequence number.
    pub fn survey(&self) -> Vec<SegmentView> {
        let fresh = self.pool.lock().fresh;
        let view = |number: u32| {
            let segment = &self.segments[number as usize];
            SegmentView {
                number,
                state: segment.state(),
                used_bytes: segment.end.load(Ordering::Relaxed).into(),
                dead_bytes: segment.dead.load(Ordering::Relaxed),
                sequence: segment.sequence.load(Ordering::Relaxed),
            }
        };
        (1..fresh).map(view).filter(|v| v.state != State::Free).collect()
    }

    /// Segments that could be opened without growing the file.
    pub fn free_segments(&self) -> usize {
        self.pool.lock().free.len()
    }

    /// Gives memory and disk blocks of free segments beyond `keep` back to the system.
    ///
    /// # Errors
    /// Those of the medium; the segments stay free.
    pub fn release_free(&self, keep: usize) -> Result<()> {
        loop {
            let segment = {
                let mut pool = self.pool.lock();
                if pool.free.len() <= keep.max(COLLECTOR_SPARE) {
                    return Ok(());
                }
                // The highest first: what is used gathers at the front of the file.
                let highest = (0..pool.free.len()).max_by_key(|at| pool.free[*at]).expect("not empty");
                pool.free.swap_remove(highest)
            };
            let bytes = u64::from(SEGMENT_BYTES);
            if let Err(error) = self.medium.release(Self::start_of(segment), bytes) {
                self.pool.lock().free.push(segment);
                return Err(error);
            }
            self.budget.give(bytes);
            self.pool.lock().released.push(segment);
        }
    }

    /// Segments that are free but wait for readers to leave.
    pub fn waiting_segments(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Segments that take memory and disk, used or free.
    pub fn total_segments(&self) -> usize {
        let pool = self.pool.lock();
        pool.fresh as usize - 1 - pool.released.len()
    }

    /// Claims a sealed segment for collection. `false` if it is not sealed (any more).
    pub fn claim(&self, segment: u32) -> bool {
        self.segments[segment as usize].claim()
    }

    /// Gives a claimed segment back unfreed.
    pub fn unclaim(&self, segment: u32) {
        self.segments[segment as usize].set_state(State::Sealed);
    }

    /// Visits the items of a claimed segment in order: location, item, bytes.
    pub fn each_item<'a>(&'a self, segment: u32, mut visit: impl FnMut(u64, Item<'a>, usize)) {
        debug_assert_eq!(self.segments[segment as usize].state(), State::Collecting);
        let start = Self::start_of(segment);
        let end = self.segments[segment as usize].end.load(Ordering::Acquire);
        // SAFETY: a claimed segment is sealed: nobody writes it until it is freed.
        let bytes = unsafe { self.medium.memory().bytes(start, u64::from(end)) };
        let mut at = SEGMENT_HEADER_BYTES as usize;
        while let Some(header) = Header::decode(&bytes[at..]) {
            let length = header.item_bytes();
            match Item::read(&bytes[at..]) {
                Some(item) if length > BATCH_END_BYTES => visit(start + at as u64, item, length),
                _ => {}
            }
            at += length;
        }
    }

    /// Frees claimed segments: durably marked free on return, but not reusable before the caller
    /// hands them to [`Logs::reuse_after_readers`].
    ///
    /// Before the call everything that supersedes or copies their items must be durable
    /// ([`Logs::flush_all`]): from here on a crash finds neither.
    ///
    /// # Errors
    /// As [`Medium::write_out`]; the logs stop then.
    pub fn free(&self, segments: &[u32]) -> Result<()> {
        self.check_writable()?;
        for segment in segments {
            self.clear_header(*segment);
            let block = Self::start_of(*segment);
            self.stop_on_error(self.medium.write_out(block, u64::from(SEGMENT_HEADER_BYTES), false))?;
        }
        self.stop_on_error(self.medium.sync())?;
        segments.iter().for_each(|s| self.segments[*s as usize].set_state(State::Free));
        Ok(())
    }

    /// Makes freed segments available once no reader can hold a location in them.
    pub fn reuse_after_readers(&self, segments: Vec<u32>, guard: &Guard) {
        let (pool, waiting) = (Arc::clone(&self.pool), Arc::clone(&self.waiting));
        waiting.fetch_add(segments.len(), Ordering::AcqRel);
        guard.defer(move || {
            let count = segments.len();
            pool.lock().free.extend(segments);
            waiting.fetch_sub(count, Ordering::AcqRel);
        });
        guard.flush();
    }

    /// Forgets everything: durable on return. The caller holds off all writers through `f`, which
    /// runs while they are locked out, after the old contents stopped counting.
    ///
    /// # Errors
    /// As [`Medium::write_out`]; then nothing was forgotten, and the logs stop.
    pub fn clear(&self, guard: &Guard, f: impl FnOnce()) -> Result<()> {
        self.check_writable()?;
        let mut cut = self.cut.lock();
        let leads: Vec<_> = self.lanes.iter().map(|lane| lane.lead()).collect();
        let locks: Vec<_> = self.writers.iter().map(|w| w.lock()).collect();
        let mut writers: Vec<_> = locks.iter().map(|w| w.borrow_mut()).collect();
        let mut next = cut.clone();
        next.number += 1;
        next.generation += 1;
        next.open.clear();
        next.next_sequence = self.next_sequence();
        self.stop_on_error(next.store(&self.medium))?;
        self.generation.store(next.generation, Ordering::Release);
        *cut = next;
        for writer in &mut writers {
            // The position goes on growing, so that tickets already given out are met.
            writer.origin = writer.position();
            writer.segment = 0;
            writer.tail = 0;
            writer.pending.clear();
            writer.seals.clear();
        }
        for (lead, writer) in leads.iter().zip(&writers) {
            lead.reached(writer.position());
        }
        f();
        let used: Vec<u32> = self.survey().iter().map(|v| v.number).collect();
        used.iter().for_each(|s| self.segments[*s as usize].set_state(State::Free));
        self.backlog.store(0, Ordering::Relaxed);
        self.reuse_after_readers(used, guard);
        Ok(())
    }

    #[inline(always)]
    fn write(&self, writer: &mut Writer, parts: &[&[u8]]) -> u64 {
        let location = Self::start_of(writer.segment) + u64::from(writer.tail);
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        assert!(writer.tail as usize + bytes <= SEGMENT_BYTES as usize, "append within the room asked for");
        let memory = self.medium.memory();
        let mut at = location;
        for part in parts {
            // SAFETY: there is room (asserted); everything behind the tail belongs to the holder
            // of the writer's lock, and nobody reads there before a location is published.
            unsafe { memory.write(at, part) };
            at += part.len() as u64;
        }
        if self.medium.is_byte_addressable() {
            // SAFETY: the range just written.
            unsafe { memory.persist(location, bytes as u64) };
        }
        writer.tail += bytes as u32;
        location
    }

    /// The error that stopped the logs, if one did.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Refuses all further writes, for `reason`.
    pub fn stop(&self, reason: String) {
        // The first reason stays.
        let _later = self.stopped.set(reason);
    }

    fn check_writable(&self) -> Result<()> {
        self.stopped().map_or(Ok(()), |reason| Err(Error::Stopped(reason.into())))
    }

    fn stop_on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| self.stop(e.to_string()))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.budget.give(self.total_segments() as u64 * u64::from(SEGMENT_BYTES));
    }
}

/// A segment as [`Logs::survey`] saw it.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView {
    /// Its number in the file.
    pub number: u32,
    /// What it is.
    pub state: State,
    /// Bytes in use; of an open one, unknown (0).
    pub used_bytes: u64,
    /// Bytes nobody points to.
    pub dead_bytes: u64,
    /// Its place in the order of opening.
    pub sequence: u64,
}

impl SegmentView {
    /// Whether it is sealed and at least half dead.
    pub fn is_due(&self) -> bool {
        self.state == State::Sealed && self.dead_bytes * 2 >= self.used_bytes
    }
}

/// A writer's log, held. Reentrant: the holder's thread may ask for it again.
#[derive(Debug)]
pub struct Appender<'a> {
    logs: &'a Logs,
    lock: ReentrantMutexGuard<'a, RefCell<Writer>>,
    id: usize,
}

impl Appender<'_> {
    /// Whether an item of `bytes` can be appended.
    #[inline(always)]
    pub fn fits(&self, bytes: usize) -> bool {
        self.lock.borrow().fits(bytes)
    }

    /// Writes an item; returns its location. Durable now on a byte-addressable medium, after a
    /// commit of [`Appender::ticket`] on a mirrored one.
    #[inline]
    pub fn append(&mut self, new: &NewItem<'_>) -> u64 {
        let mut header = [0; MAX_HEADER_BYTES];
        let mut writer = self.lock.borrow_mut();
        let header_bytes = new.encode_header(writer.salt, writer.in_batch, &mut header);
        self.logs.write(&mut writer, &[&header[..header_bytes], new.key, new.value])
    }

    /// From here to [`Appender::end_batch`], items count only together after a crash.
    pub fn begin_batch(&mut self) {
        self.lock.borrow_mut().in_batch = true;
    }

    /// Ends the batch. Durability as for its items.
    pub fn end_batch(&mut self) {
        let mut writer = self.lock.borrow_mut();
        if std::mem::take(&mut writer.in_batch) {
            let end = encode_batch_end(writer.salt);
            self.logs.write(&mut writer, &[&end]);
        }
    }

    /// What to commit for everything appended so far.
    #[inline(always)]
    pub fn ticket(&self) -> Ticket {
        Ticket { writer: self.id as u8, position: self.lock.borrow().position() }
    }
}

#[cfg(test)]
mod tests;
