//! The persistent memory as segments, each of which a log uses for a while.
//!
//! The first line of the memory says what it is. Behind the first page lie segments of one size; the first
//! line of each says which log uses it, if one does, and as which of all uses: uses are numbered through, so
//! the segments of a log have an order. A log takes a segment when its last one is full; the collector gives
//! back its first one.
//!
//! # What is durable when
//! A segment's head is durable before the first record is stored in it: no number of a use that a record
//! bears is ever forgotten, and given to another use. A segment is free when word 0 of its
//! head is zero; that is durable before the segment is taken again, and segments of a log are freed in their
//! order: what recovery finds of a log has an end at the front and an end at the back, and no gap.

use super::step::{Step, Steps};
use crate::{Commit, Ground};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_durable::checksum::Crc;
use terrace_memory::{Budget, Domain, Memory};

/// Where the first segment begins.
pub(super) const FIRST_AT: u64 = PAGE;
const PAGE: u64 = 4096;
/// In the word of the era: what is being loaded is not all there, and no segment's use counts.
const LOADING: u64 = 1 << 63;
/// "terracLS" and the version of the format.
const MAGIC: u64 = 0x0001_534c_6361_7274;
const LOG_BITS: u32 = 16;

/// What the first line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) logs: u32,
    pub(super) segment_bytes: u32,
    /// Uses of segments before this number do not count: the index was cleared then.
    pub(super) era: u64,
    /// Nor do later ones: a load was cut off.
    pub(super) is_loading: bool,
}

impl Shape {
    fn words(&self) -> [u64; 3] {
        let sizes = u64::from(self.logs) << 32 | u64::from(self.segment_bytes);
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(sizes.to_le_bytes());
        [MAGIC, sizes, u64::from(Crc::new(0).update(&bytes).finish())]
    }
}

/// The head of a segment that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) log: u32,
    /// Number of this use.
    pub(super) stamp: u64,
    /// Where the records of the log's segment before this one end, bytes from its beginning; 0 if there was
    /// none.
    pub(super) before_end: u64,
}

impl Head {
    fn words(&self) -> [u64; 3] {
        let name = self.stamp << LOG_BITS | u64::from(self.log);
        let mut bytes = name.to_le_bytes().to_vec();
        bytes.extend(self.before_end.to_le_bytes());
        [name, u64::from(Crc::new(1).update(&bytes).finish()), self.before_end]
    }
}

/// The segments of a memory.
pub(super) struct Segments<P: Memory> {
    pub(super) memory: P,
    pub(super) bytes: u64,
    pub(super) steps: Steps,
    commit: Commit,
    budget: Arc<Budget>,
    total: u32,
    /// Left to the collector, so that it can always copy.
    reserved: u32,
    books: Mutex<Books>,
    stamp: AtomicU64,
    /// Bytes from 0 on that may be read.
    committed: AtomicU64,
}

struct Books {
    free: Vec<u32>,
    /// The first segment that was never used.
    next: u32,
}

impl<P: Memory> Drop for Segments<P> {
    fn drop(&mut self) {
        self.budget.give(self.committed());
    }
}

impl<P: Memory> Segments<P> {
    /// Of a memory of zeros that is made an empty one of `shape`, durably.
    pub(super) fn create(
        ground: Ground<P>,
        shape: Shape,
        budget: &Arc<Budget>,
        steps: Steps,
    ) -> io::Result<Self> {
        let segments = Segments::over(ground, shape, budget, steps)?;
        segments.commit_to(FIRST_AT)?;
        let [magic, sizes, check] = shape.words();
        segments.store_line(8, &[sizes, check, shape.era]);
        // The name last: a memory that says what it is says so rightly.
        segments.store_line(0, &[magic]);
        Ok(segments)
    }

    /// Of a memory that holds one.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it does not.
    pub(super) fn open(
        ground: Ground<P>,
        budget: &Arc<Budget>,
        steps: Steps,
    ) -> io::Result<(Self, Shape)> {
        (ground.commit)(0, FIRST_AT)?;
        // SAFETY: the first words of the memory, which were just committed.
        let words: [u64; 4] =
            std::array::from_fn(|word| unsafe { ground.memory.load(8 * word as u64) });
        let shape = Shape {
            logs: (words[1] >> 32) as u32,
            segment_bytes: words[1] as u32,
            era: words[3] & !LOADING,
            is_loading: words[3] & LOADING != 0,
        };
        if words[..3] != shape.words() {
            let what = match words[0] {
                0 => "the memory holds no delta logs: it was never made, or not to the end",
                MAGIC => "the first line of the delta logs is damaged: its checksum does not match",
                _ => "the memory holds something else than delta logs of this version",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        (ground.commit)(0, ground.memory.len())?;
        Ok((Segments::over(ground, shape, budget, steps)?, shape))
    }

    fn over(
        ground: Ground<P>,
        shape: Shape,
        budget: &Arc<Budget>,
        steps: Steps,
    ) -> io::Result<Self> {
        let bytes = u64::from(shape.segment_bytes);
        let total = ground.memory.len().saturating_sub(FIRST_AT) / bytes;
        // A log each that is being written, one to copy to, and one to go on with.
        if total < u64::from(shape.logs) + 2 {
            let what = format!(
                "{} bytes of memory hold {total} segments of {bytes} bytes: {} logs need {} at least",
                ground.memory.len(),
                shape.logs,
                shape.logs + 2
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Segments {
            memory: ground.memory,
            bytes,
            steps,
            commit: ground.commit,
            budget: Arc::clone(budget),
            total: total.min(u64::from(u32::MAX)) as u32,
            reserved: shape.logs.min(total as u32 / 8).max(1),
            books: Mutex::new(Books { free: Vec::new(), next: 0 }),
            stamp: AtomicU64::new(1),
            committed: AtomicU64::new(0),
        })
    }

    pub(super) fn at(&self, segment: u32) -> u64 {
        FIRST_AT + u64::from(segment) * self.bytes
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Bytes that may be read, from 0 on: what leads beyond is no part of anything.
    #[inline(always)]
    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    fn commit_to(&self, end: u64) -> io::Result<()> {
        let committed = self.committed();
        let end = end.next_multiple_of(PAGE).min(self.memory.len());
        if end > committed {
            (self.commit)(committed, end - committed)?;
            self.count_to(end);
        }
        Ok(())
    }

    fn count_to(&self, end: u64) {
        self.budget.take_anyway(end - self.committed());
        self.committed.store(end, Relaxed);
    }

    /// A free segment. `spare`: for whoever makes room for others, to the last.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is none, and those of the ground.
    pub(super) fn take(&self, spare: bool) -> io::Result<u32> {
        let mut books = self.books.lock();
        let left = books.free.len() as u32 + self.total - books.next;
        if left == 0 || !spare && left <= self.reserved {
            let what = format!(
                "the delta logs are full: {} segments of {} bytes; collect, or give them more memory",
                self.total, self.bytes
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        if let Some(segment) = books.free.pop() {
            return Ok(segment);
        }
        self.commit_to(self.at(books.next + 1))?;
        books.next += 1;
        Ok(books.next - 1)
    }

    /// Takes back a segment that no head says to be in use.
    pub(super) fn give(&self, segment: u32) {
        self.books.lock().free.push(segment);
    }

    /// Whether a writer finds a free segment.
    pub(super) fn has_room(&self) -> bool {
        self.left() > self.reserved
    }

    /// Free segments.
    pub(super) fn left(&self) -> u32 {
        let books = self.books.lock();
        books.free.len() as u32 + self.total - books.next
    }

    /// Says in a taken segment's head that a log uses it from now on, durably on return; the number of that use.
    pub(super) fn begin(&self, segment: u32, log: u32, before_end: u64) -> u64 {
        let stamp = self.stamp.fetch_add(1, Relaxed);
        let [name, check, before_end] = Head { log, stamp, before_end }.words();
        let at = self.at(segment);
        // The name last: words of a line become durable in their order.
        // SAFETY: the head of a committed segment that this thread alone has.
        unsafe {
            self.memory.store(at + 16, before_end);
            self.memory.store(at + 8, check);
            self.memory.store(at, name);
        }
        self.persist(at, 24, Step::HeadWriteBack, Step::HeadFence);
        stamp
    }

    /// Says that no log uses the segment any more; durable on return.
    pub(super) fn end(&self, segment: u32) {
        let at = self.at(segment);
        // SAFETY: the head of a committed segment, whose log has let go of it.
        unsafe { self.memory.store(at, 0) };
        self.persist(at, 8, Step::FreeWriteBack, Step::FreeFence);
    }

    /// What a segment's head says; none if it is free.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if that is nothing a crash leaves.
    pub(super) fn head(&self, segment: u32) -> io::Result<Option<Head>> {
        let at = self.at(segment);
        // SAFETY: the head of a committed segment.
        let words: [u64; 3] =
            std::array::from_fn(|word| unsafe { self.memory.load(at + 8 * word as u64) });
        if words[0] == 0 {
            return Ok(None);
        }
        let log = (words[0] & ((1 << LOG_BITS) - 1)) as u32;
        let head = Head { log, stamp: words[0] >> LOG_BITS, before_end: words[2] };
        if head.words() != words {
            let what = format!(
                "the head of segment {segment} at {at:#x} is damaged: its checksum does not match"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(head))
    }

    /// The next use of a segment gets this number.
    pub(super) fn number_from(&self, stamp: u64) {
        self.stamp.store(stamp, Relaxed);
    }

    /// From here on these segments are in use.
    pub(super) fn resume(&self, used: &[u32]) {
        let next = used.iter().max().map_or(0, |last| last + 1);
        let mut is_used = vec![false; next as usize];
        used.iter().for_each(|segment| is_used[*segment as usize] = true);
        let free = (0..next).filter(|segment| !is_used[*segment as usize]).collect();
        self.count_to(self.at(next).next_multiple_of(PAGE).min(self.memory.len()));
        *self.books.lock() = Books { free, next };
    }

    /// From here on no segment's use up to now counts; durable on return. Returns the number of that.
    pub(super) fn begin_era(&self) -> u64 {
        let era = self.stamp.fetch_add(1, Relaxed) + 1;
        self.set_era(era, false);
        era
    }

    /// Segments count whose use has this number or a later one, and none while something is loaded; durable
    /// on return.
    pub(super) fn set_era(&self, era: u64, is_loading: bool) {
        self.store_line(24, &[if is_loading { era | LOADING } else { era }]);
    }

    /// Stores words of one line, durable on return.
    fn store_line(&self, at: u64, words: &[u64]) {
        for (word, offset) in words.iter().zip((at..).step_by(8)) {
            // SAFETY: callers pass committed words of the first line or of a segment's head.
            unsafe { self.memory.store(offset, *word) };
        }
        // SAFETY: as above.
        unsafe { self.memory.persist(at, 8 * words.len() as u64) };
    }

    #[inline(always)]
    fn write_back(&self, at: u64, bytes: u64, step: Step) {
        if self.memory.domain() == Domain::Adr && self.steps.has(step) {
            // SAFETY: callers pass what they have just stored.
            unsafe { self.memory.write_back(at, bytes) };
        }
    }

    /// As [`Memory::persist`], of a step with two names.
    #[inline(always)]
    pub(super) fn persist(&self, at: u64, bytes: u64, write_back: Step, fence: Step) {
        self.write_back(at, bytes, write_back);
        if self.memory.domain().is_byte_addressable() && self.steps.has(fence) {
            self.memory.fence();
        }
    }
}
