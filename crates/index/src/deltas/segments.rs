//! The persistent memory as segments, each of which a log uses for a while.
//!
//! The first line of the memory says what it is ([`Shape`]). Behind the first page lie segments of one size; the
//! first line of each says which log uses it, and as which of all uses, or that it is free: uses are numbered
//! through, so the segments of a log have an order. A log takes a segment when its last one is full; the collector
//! gives back its first one.
//!
//! | word of the first line | |
//! |---|---|
//! | 0 | "tracLS" and the version of the format: written last |
//! | 1 | bytes of a segment (32), binary logarithm of the bytes of a leaf (8), 0 (8), logs (16) |
//! | 2 | checksum of the two |
//! | 3 | where the segments that were ever used end, with a sum |
//! | 4 | the era, with a sum; bit 47: while something is loaded |
//!
//! | word of a segment's head | in use | free |
//! |---|---|---|
//! | 0 | number of the use (48), log (16) | "FREE" above `0xffff`, with a sum |
//! | 1 | checksum of words 0 and 2 | - |
//! | 2 | where the log's segment before it ends | - |
//!
//! # What is durable when
//! A segment's head is durable before the first record is stored in it: no number of a use that a record
//! bears is ever forgotten, and given to another use. That it is free is durable before the segment is taken
//! again, and segments of a log are freed in their order: what recovery finds of a log has an end at the front and
//! an end at the back, and no gap.
//!
//! The memory in use grows in this order: the region gives more; the new segments say that they are free, durably;
//! word 3 says so, durably; then they are taken. So what lies behind that word's end is never read, and before it every
//! head says something: one that says nothing, zeros among them, is damage.

use super::Options;
use super::step::{Step, Steps};
use crate::{Commit, Reserved};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_durable::checked_word;
use terrace_durable::checksum::Crc;
use terrace_durable::lock;
use terrace_memory::{Budget, Claim, Domain, Memory};

/// Where the first segment begins.
pub(super) const FIRST_AT: u64 = PAGE;
const PAGE: u64 = 4096;
/// "tracLS" and the version of the format.
const MAGIC: u64 = 0x0002_534c_6361_7274;
/// Words of the first line.
const SIZES_AT: u64 = 8;
const END_AT: u64 = 24;
const ERA_AT: u64 = 32;
/// In the word of the era: what is being loaded is not all there, and no segment's use counts.
const LOADING: u64 = 1 << 47;
const LOG_BITS: u32 = 16;
/// Word 0 of the head of a free segment, but for its sum: no log has this number.
const FREE: u64 = 0x4545_5246 << LOG_BITS | 0xffff;
/// Segments that the memory in use grows by at once, at most; and an eighth of what is there.
const GROWN_MOST: u32 = 32;

/// What the first line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) logs: u32,
    pub(super) segment_bytes: u32,
    pub(super) node_bytes: u32,
    /// Uses of segments before this number do not count: the index was cleared then.
    pub(super) era: u64,
    /// Nor do later ones: a load was cut off.
    pub(super) is_loading: bool,
}

impl Shape {
    pub(super) fn of(options: &Options) -> Shape {
        let Options { logs, segment_bytes, node_bytes, .. } = *options;
        Shape { logs, segment_bytes, node_bytes, era: 0, is_loading: false }
    }

    fn words(&self) -> [u64; 3] {
        let node = u64::from(self.node_bytes.max(1).ilog2());
        let sizes = u64::from(self.segment_bytes) | node << 32 | u64::from(self.logs) << 48;
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(sizes.to_le_bytes());
        [MAGIC, sizes, u64::from(Crc::new(0).update(&bytes).finish())]
    }

    /// What the words of a first line say, and where the segments in use end.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for what is no first line.
    fn of_words(words: [u64; 5]) -> io::Result<(Shape, u64)> {
        let [magic, sizes, _, end, era] = words;
        let shape = Shape {
            logs: (sizes >> 48) as u32,
            segment_bytes: sizes as u32,
            node_bytes: 1u32.checked_shl((sizes >> 32) as u8 as u32).unwrap_or(0),
            era: checked_word::low(era) & !LOADING,
            is_loading: era & LOADING != 0,
        };
        let is_whole = words[..3] == shape.words()
            && shape.segment_bytes > 0
            && checked_word::is_intact(end, END_AT)
            && checked_word::is_intact(era, ERA_AT);
        if is_whole {
            return Ok((shape, checked_word::low(end)));
        }
        Err(damaged(match magic {
            0 => "the memory holds no delta logs: it was never made, or not to the end".into(),
            MAGIC => {
                "the first line of the delta logs is damaged: its checksum does not match".into()
            }
            _ => "the memory holds something else than delta logs of this version".into(),
        }))
    }
}

fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What delta logs say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLogs {
    /// Bytes of a leaf.
    pub node_bytes: u64,
    /// Bytes in use of their region.
    pub bytes: u64,
}

/// Reads what delta logs on this region say of themselves; none if there are none, or they are not legible.
///
/// # Errors
/// Those of the region.
pub fn found_logs<P: Memory>(logs: &Reserved<P>) -> io::Result<Option<FoundLogs>> {
    (logs.commit)(0, super::record::LINE)?;
    let found = Shape::of_words(first_line(&logs.memory));
    Ok(found
        .ok()
        .map(|(shape, bytes)| FoundLogs { node_bytes: u64::from(shape.node_bytes), bytes }))
}

fn first_line<P: Memory>(memory: &P) -> [u64; 5] {
    // SAFETY: words of the first line, which the callers have committed.
    std::array::from_fn(|word| unsafe { memory.load(8 * word as u64) })
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

/// Word 0 of the head of a segment that no log uses.
fn free_word(segment: u32) -> u64 {
    checked_word::with_check(FREE, u64::from(segment) + 1)
}

/// The segments of a memory.
pub(super) struct Segments<P: Memory> {
    pub(super) memory: P,
    _claim: Claim,
    pub(super) bytes: u64,
    pub(super) steps: Steps,
    commit: Commit,
    budget: Arc<Budget>,
    total: u32,
    /// Free segments that are left to the collector, so that it can always copy.
    reserved: usize,
    allocation: Mutex<Allocation>,
    stamp: AtomicU64,
    /// Bytes from 0 on that may be read.
    committed: AtomicU64,
}

struct Allocation {
    free: Vec<u32>,
    /// The first segment behind the memory in use.
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
        region: Reserved<P>,
        shape: Shape,
        budget: &Arc<Budget>,
        steps: Steps,
    ) -> io::Result<Self> {
        let segments = Segments::over(region, shape, budget, steps)?;
        segments.commit_to(FIRST_AT)?;
        let [magic, sizes, check] = shape.words();
        let [end, era] = [(FIRST_AT, END_AT), (shape.era, ERA_AT)];
        let sums = [end, era].map(|(low, owner)| checked_word::with_check(low, owner));
        segments.store_line(SIZES_AT, &[sizes, check, sums[0], sums[1]]);
        // The name last: a memory that says what it is says so rightly.
        segments.store_line(0, &[magic]);
        Ok(segments)
    }

    /// Of a memory that holds one.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it does not.
    pub(super) fn open(
        region: Reserved<P>,
        budget: &Arc<Budget>,
        steps: Steps,
    ) -> io::Result<(Self, Shape)> {
        (region.commit)(0, FIRST_AT)?;
        let (shape, end) = Shape::of_words(first_line(&region.memory))?;
        let segments = Segments::over(region, shape, budget, steps)?;
        let used = (end.wrapping_sub(FIRST_AT)) / segments.bytes;
        if used > u64::from(segments.total) || end != FIRST_AT + used * segments.bytes {
            return Err(damaged(format!("the segments of the delta logs cannot end at {end:#x}")));
        }
        segments.commit_to(end)?;
        segments.allocation().next = used as u32;
        Ok((segments, shape))
    }

    fn over(
        region: Reserved<P>,
        shape: Shape,
        budget: &Arc<Budget>,
        steps: Steps,
    ) -> io::Result<Self> {
        let bytes = u64::from(shape.segment_bytes);
        let total = region.memory.len().saturating_sub(FIRST_AT) / bytes;
        // A log each that is being written, one to copy to, and one to go on with.
        if total < u64::from(shape.logs) + 2 {
            let what = format!(
                "{} bytes of memory hold {total} segments of {bytes} bytes: {} logs need {} at least",
                region.memory.len(),
                shape.logs,
                shape.logs + 2
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Segments {
            _claim: region.claim(),
            memory: region.memory,
            bytes,
            steps,
            commit: region.commit,
            budget: Arc::clone(budget),
            total: total.min(u64::from(u32::MAX)) as u32,
            reserved: shape.logs.min(total as u32 / 8).max(1) as usize,
            allocation: Mutex::new(Allocation { free: Vec::new(), next: 0 }),
            stamp: AtomicU64::new(1),
            committed: AtomicU64::new(0),
        })
    }

    pub(super) fn at(&self, segment: u32) -> u64 {
        FIRST_AT + u64::from(segment) * self.bytes
    }

    /// Segments of the memory in use.
    pub(super) fn in_use(&self) -> u32 {
        self.allocation().next
    }

    /// Where the memory in use ends.
    pub(super) fn end_of_use(&self) -> u64 {
        self.at(self.in_use())
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
            self.budget.take_anyway(end - committed);
            self.committed.store(end, Relaxed);
        }
        Ok(())
    }

    /// Another thread that has them may be waiting for its turn at the memory.
    fn allocation(&self) -> MutexGuard<'_, Allocation> {
        lock(&self.memory, &self.allocation)
    }

    /// A free segment. `spare`: for whoever makes room for others, to the last. `grows`: whether more memory
    /// may be taken for it.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is none, and those of the region.
    pub(super) fn take(&self, spare: bool, grows: bool) -> io::Result<u32> {
        let mut allocation = self.allocation();
        let left = if spare { 0 } else { self.reserved };
        while allocation.free.len() <= left {
            if !(spare || grows) || !self.grow(&mut allocation)? {
                let what = format!(
                    "the delta logs are full: {} segments of {} bytes; collect, or give them more memory",
                    allocation.next, self.bytes
                );
                return Err(io::Error::new(io::ErrorKind::StorageFull, what));
            }
        }
        Ok(allocation.free.pop().expect("more than none"))
    }

    /// Takes more memory into use, durably on return; whether there was any.
    fn grow(&self, allocation: &mut Allocation) -> io::Result<bool> {
        let more = (allocation.next / 8).clamp(1, GROWN_MOST).min(self.total - allocation.next);
        if more == 0 {
            return Ok(false);
        }
        let end = allocation.next + more;
        self.commit_to(self.at(end))?;
        for segment in allocation.next..end {
            // SAFETY: the head of a segment that was just committed, and is nobody's yet.
            unsafe { self.memory.store(self.at(segment), free_word(segment)) };
            self.write_back(self.at(segment), 8, Step::GrownWriteBack);
        }
        self.fence(Step::GrownFence);
        self.note(END_AT, self.at(end));
        allocation.free.extend((allocation.next..end).rev());
        allocation.next = end;
        Ok(true)
    }

    /// Takes more memory into use, for whoever found nothing to collect; whether there was any.
    ///
    /// # Errors
    /// Those of the region.
    pub(super) fn provide(&self) -> io::Result<bool> {
        self.grow(&mut self.allocation())
    }

    /// Takes back a segment that no head says to be in use.
    pub(super) fn give(&self, segment: u32) {
        self.allocation().free.push(segment);
    }

    /// Whether a writer finds a free segment.
    pub(super) fn has_room(&self) -> bool {
        self.allocation().free.len() > self.reserved
    }

    /// Segments that no log uses.
    pub(super) fn left(&self) -> u32 {
        let allocation = self.allocation();
        allocation.free.len() as u32 + self.total - allocation.next
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
        unsafe { self.memory.store(at, free_word(segment)) };
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
        if words[0] == free_word(segment) {
            return Ok(None);
        }
        let log = (words[0] & ((1 << LOG_BITS) - 1)) as u32;
        let head = Head { log, stamp: words[0] >> LOG_BITS, before_end: words[2] };
        if head.words() != words {
            return Err(damaged(format!(
                "the head of segment {segment} at {at:#x} is damaged: its checksum does not match"
            )));
        }
        Ok(Some(head))
    }

    /// The next use of a segment gets this number.
    pub(super) fn number_from(&self, stamp: u64) {
        self.stamp.store(stamp, Relaxed);
    }

    /// From here on these segments are taken, and the others of the memory in use free.
    pub(super) fn resume(&self, taken: &[u32]) {
        let mut allocation = self.allocation();
        let mut is_taken = vec![false; allocation.next as usize];
        taken.iter().for_each(|segment| is_taken[*segment as usize] = true);
        allocation.free =
            (0..allocation.next).filter(|segment| !is_taken[*segment as usize]).collect();
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
        self.note(ERA_AT, if is_loading { era | LOADING } else { era });
    }

    /// Stores a word of the first line with its sum, durable on return.
    fn note(&self, at: u64, low: u64) {
        self.store_line(at, &[checked_word::with_check(low, at)]);
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
        self.fence(fence);
    }

    #[inline(always)]
    fn fence(&self, step: Step) {
        if self.memory.domain().is_byte_addressable() && self.steps.has(step) {
            self.memory.fence();
        }
    }
}
