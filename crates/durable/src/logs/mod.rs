//! Log-structured values (Wu, section 2.3): every write is appended to its writer's current log.
//!
//! A log is a segment of 4 MB. Each writer has one open log; a full one is sealed and the next
//! opened. Bytes that no index entry points to any more are counted per segment; a collector
//! (above this room, since it needs the index) moves what lives out of segments that are mostly
//! dead and frees them here.
//!
//! # What is durable when
//! * On a byte-addressable medium an item is durable when [`Appender::append`] returns: written
//!   back and fenced before its location is known to anyone. Those of a batch count only with its end:
//!   who reads one before has a ticket, and [`Logs::commit`] waits for the end.
//! * On a mirrored medium an item is durable when [`Logs::commit`] with its ticket, or
//!   [`Logs::flush_all`] after it, has returned. `commit` is a group commit: one leader writes
//!   everything its writer's log has, the others wait for it.
//! * A freed segment's header is zeroed durably before anything it shadowed may go and before it
//!   is used again ([`Logs::free`]).
//!
//! Locks, in the order they may be taken: the checkpoint, the lead of a commit queue, a writer, the logs that leave
//! memory, the pool. The index's bucket lock is taken by callers inside a writer and is innermost of all.

mod allocation;
mod appender;
mod away;
mod commit;
mod commit_queue;
mod disk_room;
mod expiry;
mod far;
#[cfg(any(test, feature = "faults"))]
mod fault;
mod fetch;
mod headers;
mod item_cache;
mod marks;
mod older;
mod overwrite;
mod pool;
mod reach;
mod read;
mod recover;
mod redo;
mod rows;
mod saved;
mod scrub;
mod segment;
mod survey;
mod together;
mod turns;

pub use allocation::PAGE_BYTES;
pub use appender::Appender;
pub use away::AwayStats;
pub use far::{FarMemory, FarStats};
#[cfg(any(test, feature = "faults"))]
pub use fault::Fault;
#[cfg(any(test, feature = "faults"))]
pub(crate) use fault::Faults;
pub use fetch::Wanted;
pub use item_cache::ItemCache;
pub use overwrite::MOST_OVERWRITTEN_BYTES;
pub use saved::{PARAMETERS, Part, SavedIndex, SavedStats, Saving};
pub use scrub::OnDisk;
pub use segment::{SEGMENT_HEADER_BYTES, State};
use survey::Backlog;
pub use survey::{InRound, SegmentView, short};
use together::Ties;
pub use together::checkpoint_together;

use crate::allocation::AllocationPages;
use crate::commits::Does;
use crate::disk_budget::DiskBudget;
use crate::error::{Error, Result};
use crate::flush::{Flush, Flusher};
use crate::item::{self, BATCH_END_BYTES};
use crate::medium::Medium;
use crate::redo_log::{Left, Owed, RedoLog};
use crate::superblock::{self, Checkpoint, MAX_OPEN, Rule, SavedAt, Shape};
use crate::values::SEGMENT_BYTES;
use crate::values::place::{Residents, segment_of, start_of};
use crate::values::rows::Zeroed;
use appender::Writer;
use away::Away;
use commit_queue::CommitQueue;
use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, ReentrantMutex};
use pool::Pool;
use rows::Frozen;
use saved::Saved;
use segment::RECOVERED;
pub(crate) use segment::Segment;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_memory::profile::Keeping;
use terrace_memory::{Budget, Claim, Memory, Native, lab};

/// The collector's writer.
pub const COLLECTOR: usize = 0;
/// Most writers, the collector included.
pub const MAX_WRITERS: usize = MAX_OPEN;
const DESIGN: u32 = 1;

/// Longest item in bytes that fits a log.
pub const MAX_ITEM_BYTES: usize = (SEGMENT_BYTES - SEGMENT_HEADER_BYTES) as usize - BATCH_END_BYTES;

/// All logs of one map.
#[derive(Debug)]
pub struct Logs<M: Memory = Native> {
    medium: Medium<M>,
    _claim: Claim,
    segments: Box<[Segment]>,
    residents: Residents,
    away: Box<Away>,
    saved: Box<Mutex<Saved>>,
    /// Segments of the saved index, and of one that is being saved.
    saved_segments: AtomicUsize,
    writers: Box<[CachePadded<ReentrantMutex<RefCell<Writer>>>]>,
    commit_queues: Box<[CachePadded<CommitQueue>]>,
    pool: Arc<Mutex<Pool>>,
    waiting: Arc<AtomicUsize>,
    /// Free segments that a writer under `sync` is to find, see [`Logs::prepare`].
    prepared: AtomicUsize,
    next_sequence: AtomicU64,
    /// Logs below this sequence number hold items that nobody has verified since they were opened.
    unverified_below: AtomicU64,
    /// How much there is to collect, as counted last: a [`Backlog`].
    backlog: AtomicU8,
    /// How many segments the file may have before writers wait for the collector, as counted last.
    segments_most: AtomicUsize,
    /// Whether the collector is in a round.
    is_in_round: AtomicBool,
    /// Whether short logs are to be made one, when they were counted last.
    has_short: AtomicBool,
    /// Whether logs that are away are half expired, when they were counted last.
    has_expired: AtomicBool,
    /// Whether the disk had no room for a segment when one was last asked for.
    is_disk_full: AtomicBool,
    /// How much of the disk they may take.
    disk: OnceLock<Arc<DiskBudget>>,
    /// Logs opened since they were counted.
    uncounted: AtomicUsize,
    /// By writer and segment, bytes of items nobody points to any more. Each writer counts in a
    /// row of its own, under its lock: a counter that all share would pass from core to core. The last row is of those
    /// who have no such lock.
    dead: Box<[Box<[AtomicU32]>]>,
    /// By segment, the offset below which nothing is overwritten any more.
    frozen: Box<[Frozen]>,
    checkpoint: Mutex<Checkpoint>,
    /// The recovery policy that writers follow: that of `checkpoint`, or of the checkpoint that is being taken. Changed
    /// under all locks; nothing reaches the medium until that checkpoint is durable.
    is_bounded: AtomicBool,
    generation: AtomicU64,
    stopped: OnceLock<String>,
    /// Whether it was a failure of the medium that stopped them.
    has_failed: AtomicBool,
    /// Whether writers are refused: the logs stopped, or are about to be closed.
    refuses: AtomicBool,
    /// Drawn at every opening: makes salts differ although a crash may make sequence numbers
    /// repeat.
    lifetime: u32,
    /// What was wrong with the head of the file, under [`Access::Salvage`](crate::Access).
    head_damage: Option<String>,
    /// Where the allocation metadata is, if it is kept by sections.
    allocation: OnceLock<AllocationPages>,
    budget: Arc<Budget>,
    /// What keeps writes that no checkpoint has from the death of the process.
    redo: Mutex<Option<Arc<RedoLog>>>,
    /// Writes that it had no room for.
    owed: Arc<Owed>,
    /// What a process that died left of it.
    left: Mutex<Option<Left>>,
    /// Whether the next checkpoint is taken together with other maps', and how.
    ties: Ties,
    /// Whether more is written after the recovery, though the medium is only read.
    expects_more: AtomicBool,
    /// What is done wrong on purpose.
    #[cfg(any(test, feature = "faults"))]
    faults: Arc<Faults>,
}

impl<M: Memory> Logs<M> {
    /// Opens the head of `medium` (made if new) for `writers` concurrent writers beside the
    /// collector. [`Logs::recover`] must run before anything else.
    ///
    /// # Errors
    /// Those of [`superblock::open_head`].
    pub fn open(medium: Medium<M>, writers: usize, budget: &Arc<Budget>) -> Result<Logs<M>> {
        Logs::open_with(medium, writers, budget, &[])
    }

    /// The same where `left` is to be done ([`commits`](crate::commits)): a checkpoint that was in force before its
    /// record was stored.
    ///
    /// # Errors
    /// As [`Logs::open`].
    pub fn open_with(
        medium: Medium<M>,
        writers: usize,
        budget: &Arc<Budget>,
        left: &[Does],
    ) -> Result<Logs<M>> {
        assert!((1..MAX_WRITERS).contains(&writers), "1 to {} writers", MAX_WRITERS - 1);
        let claim = medium.claim();
        let shape = Shape { segment_bytes: SEGMENT_BYTES, design: DESIGN };
        let (checkpoint, head_damage) = superblock::open_head(&medium, shape, left)?;
        let (left, redo_damage) = redo::left(&medium, &checkpoint, budget)?;
        let count = (medium.capacity_bytes() / u64::from(SEGMENT_BYTES)) as usize;
        let pool = Pool { fresh: 1, ..Pool::default() };
        let queue = if medium.is_byte_addressable() {
            CommitQueue::of_durable_items
        } else {
            CommitQueue::default
        };
        Ok(Logs {
            _claim: claim,
            segments: Segment::rows(count),
            residents: Residents::default(),
            away: Box::default(),
            saved: Box::default(),
            saved_segments: AtomicUsize::new(0),
            writers: (0..=writers).map(|_| CachePadded::default()).collect(),
            commit_queues: (0..=writers).map(|_| CachePadded::new(queue())).collect(),
            pool: Arc::new(Mutex::new(pool)),
            waiting: Arc::default(),
            prepared: AtomicUsize::new(0),
            next_sequence: AtomicU64::new(checkpoint.next_sequence),
            unverified_below: AtomicU64::new(0),
            frozen: Frozen::rows(count),
            backlog: AtomicU8::new(Backlog::None as u8),
            segments_most: AtomicUsize::new(usize::MAX),
            is_in_round: AtomicBool::new(false),
            has_short: AtomicBool::new(false),
            has_expired: AtomicBool::new(false),
            is_disk_full: AtomicBool::new(false),
            disk: OnceLock::new(),
            uncounted: AtomicUsize::new(0),
            dead: (0..=writers + 1).map(|_| AtomicU32::rows(count)).collect(),
            is_bounded: AtomicBool::new(checkpoint.rule == Rule::Bounded),
            generation: AtomicU64::new(checkpoint.generation),
            checkpoint: Mutex::new(checkpoint),
            stopped: OnceLock::new(),
            has_failed: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            lifetime: medium.lifetime(),
            head_damage: head_damage.or(redo_damage),
            allocation: OnceLock::new(),
            budget: Arc::clone(budget),
            redo: Mutex::new(left.as_ref().map(|left| Arc::clone(&left.log))),
            owed: Arc::default(),
            left: Mutex::new(left),
            ties: Ties::default(),
            expects_more: AtomicBool::new(false),
            #[cfg(any(test, feature = "faults"))]
            faults: Arc::default(),
            medium,
        })
    }

    /// Items are written back as `flush` says. To be called before the first write.
    #[must_use]
    pub fn flushing(mut self, flush: Flush) -> Logs<M> {
        for writer in &mut self.writers {
            writer.get_mut().get_mut().flusher = Flusher::of_log(flush);
        }
        self
    }

    /// [`Flush::Auto`] follows what was measured of the memory. To be called after [`Logs::flushing`].
    #[must_use]
    pub fn by_measured(mut self, keeping: Option<&Arc<Keeping>>) -> Logs<M> {
        for writer in &mut self.writers {
            writer.get_mut().get_mut().flusher.by(keeping.cloned());
        }
        self
    }

    /// The medium below.
    pub fn medium(&self) -> &Medium<M> {
        &self.medium
    }

    /// Number of writers, without the collector's. Their numbers are 1 and up.
    pub fn writers(&self) -> usize {
        self.writers.len() - 1
    }

    /// Asks for `lines` cache lines from `location` on to be brought near, for one of many items. Always as many: how
    /// many lines an item really touches cannot be predicted, and a line too many costs less.
    #[inline(always)]
    pub fn prefetch(&self, location: u64, lines: u64) {
        for line in 0..lines {
            self.medium.memory().prefetch_of_many(location + 64 * line);
        }
    }

    /// The bytes of what claims to be an item at `at`, if it ends at or before `end`; all of them are
    /// looked at.
    ///
    /// # Safety
    /// The range is committed, and not written while borrowed but for what readers do not look at.
    #[inline(always)]
    unsafe fn item_bytes(&self, at: u64, end: u64) -> Option<&[u8]> {
        let memory = self.medium.memory();
        // SAFETY: by contract.
        let bytes = unsafe { item::borrow(memory, at, end) }?;
        lab::looked_at(memory, at, bytes.len() as u64);
        Some(bytes)
    }

    /// During recovery: counts `bytes` of the item at `location` as dead, since a newer one of the
    /// key was found.
    pub fn supersede(&self, location: u64, bytes: usize) {
        let dead = &self.dead[COLLECTOR][segment_of(location)];
        dead.fetch_add(bytes as u32, Ordering::Relaxed);
    }

    /// The same while others write: in a row of its own, for the collector holds no lock that keeps others from its.
    pub fn supersede_late(&self, location: u64, bytes: usize) {
        let late = self.dead.last().expect("a row beside those of the writers");
        late[segment_of(location)].fetch_add(bytes as u32, Ordering::Relaxed);
    }

    /// Bytes of `segment` that nothing points to any more.
    fn dead_bytes(&self, segment: u32) -> u64 {
        let of = |dead: &[AtomicU32]| u64::from(dead[segment as usize].load(Ordering::Relaxed));
        self.dead.iter().map(|dead| of(dead)).sum()
    }

    /// Whether there is enough to collect, as counted last.
    pub fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) >= Backlog::Due as u8
    }

    /// Whether there are [`short`] logs to be made one, as counted last. No writer waits for that.
    pub fn has_short(&self) -> bool {
        self.has_short.load(Ordering::Relaxed)
    }

    /// Recounts what is due for collection, and the short logs.
    pub fn recount_backlog(&self) {
        self.uncounted.store(0, Ordering::Relaxed);
        let views = self.survey();
        self.segments_most.store(self.segments_most(&views), Ordering::Relaxed);
        self.backlog.store(self.backlog_of(&views) as u8, Ordering::Relaxed);
        self.has_short.store(!short(&views).is_empty(), Ordering::Relaxed);
        let has_expired = views.iter().any(|v| v.state == State::Sealed && v.has_expired);
        self.has_expired.store(has_expired, Ordering::Relaxed);
    }

    /// Sequence number of the next log: the stamp of a tombstone written now.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Acquire)
    }

    /// Smallest sequence number of a log that may still hold items, `except` aside.
    pub fn oldest_sequence(&self, except: u32) -> u64 {
        #[cfg(any(test, feature = "faults"))]
        if self.faults.has(Fault::TombstonesEarly) {
            return u64::MAX;
        }
        let fresh = self.lock_pool().fresh;
        (1..fresh)
            .filter(|s| *s != except && self.segments[*s as usize].state().is_of_log())
            .map(|s| self.segments[s as usize].sequence.load(Ordering::Relaxed))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Segments that could be opened without growing the file.
    pub fn free_segments(&self) -> usize {
        self.lock_pool().free.len()
    }

    /// Claims a sealed segment for collection. `false` if it is not sealed (any more).
    pub fn claim(&self, segment: u32) -> bool {
        self.segments[segment as usize].goes(State::Sealed, State::Collecting)
    }

    /// Gives a claimed segment back unfreed.
    pub fn unclaim(&self, segment: u32) {
        let _other = self.segments[segment as usize].goes(State::Collecting, State::Sealed);
    }

    /// Frees claimed segments: durably marked free on return, but not reusable before the caller
    /// says so ([`Freed::reuse_after_readers`]).
    ///
    /// Before the call everything that supersedes or copies their items must be durable
    /// ([`Logs::flush_all`]): from here on a crash finds neither.
    ///
    /// # Errors
    /// As [`Medium::write_out`]; the logs stop then.
    ///
    /// # Panics
    /// If one is not claimed, or not [frozen](Logs::freeze).
    pub fn free(&self, segments: &[u32]) -> Result<Freed<'_, M>> {
        self.check_writable()?;
        for segment in segments.iter().map(|segment| *segment as usize) {
            assert_eq!(self.segments[segment].state(), State::Collecting, "it is claimed");
            assert_eq!(self.frozen[segment].load(Ordering::Acquire), overwrite::ALL, "frozen");
        }
        for segment in segments {
            self.clear_header(*segment);
            let block = start_of(*segment);
            self.stop_on_error(self.medium.write_out(
                block,
                u64::from(SEGMENT_HEADER_BYTES),
                false,
            ))?;
        }
        self.stop_on_error(self.medium.sync())?;
        self.check_unfailed()?;
        // None was cleared away meanwhile: who clears holds the collector off.
        let is_freed = |s: &u32| self.segments[*s as usize].goes(State::Collecting, State::Free);
        let segments = segments.iter().copied().filter(is_freed).collect();
        Ok(Freed { logs: self, segments })
    }

    /// Forgets everything: durable on return. The caller holds off all writers through `f`, which
    /// runs while they are locked out, after the old contents stopped counting.
    ///
    /// # Errors
    /// As [`Medium::write_out`]; the logs stop, and the next opening finds everything or nothing.
    pub fn clear(&self, guard: &Guard, f: impl FnOnce()) -> Result<()> {
        let _alone = self.alone();
        let (mut checkpoint, leads, locks) = loop {
            let checkpoint = self.lock_checkpoint();
            let leads = self.lead_all();
            let locks = self.lock_writers();
            if !self.is_tied() {
                break (checkpoint, leads, locks);
            }
            drop((locks, leads, checkpoint));
            // Others would be as of before what they share with it.
            self.flush_together()?;
        };
        if self.refuses.load(Ordering::Relaxed) {
            return Err(self.refusal());
        }
        let mut writers: Vec<_> = locks.iter().map(|w| w.borrow_mut()).collect();
        let mut next = checkpoint.clone();
        next.number += 1;
        next.generation += 1;
        next.open.clear();
        next.index = 0;
        next.saved = SavedAt::default();
        next.next_sequence = self.next_sequence();
        let redone = self.note_checkpoint(&mut writers, next.number);
        self.stop_on_error(self.store_checkpoint(&next))?;
        self.check_unfailed()?;
        self.checkpoint_is_durable(redone);
        self.generation.store(next.generation, Ordering::Release);
        *checkpoint = next;
        for writer in &mut writers {
            // The position goes on growing, so that tickets already given out are met.
            writer.origin = writer.position();
            writer.segment = 0;
            writer.tail = 0;
            writer.pending.clear();
            writer.seals.clear();
        }
        for (lead, writer) in leads.iter().zip(&writers) {
            self.reached(lead, writer.position());
        }
        f();
        let mut used: Vec<u32> = self.survey().iter().map(|v| v.number).collect();
        used.retain(|s| self.segments[*s as usize].frees());
        self.backlog.store(Backlog::None as u8, Ordering::Relaxed);
        self.away.deleted.lock().clear();
        // Whatever is saved next, nothing goes on from here.
        self.saved.lock().forget();
        let (gone, segments) = self.cleared_away(used);
        Freed { logs: self, segments }.reuse_after_readers(guard);
        let pool = Arc::clone(&self.pool);
        guard.defer(move || pool.lock().gone.extend(gone));
        Ok(())
    }

    /// The error that stopped the logs, if one did.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Refuses all further writes, for `reason`.
    pub fn stop(&self, reason: String) {
        // The first reason stays.
        let _later = self.stopped.set(reason);
        self.refuses.store(true, Ordering::Release);
    }

    /// Says that more is written when the recovery is over, also where the medium is only read.
    pub fn expects_more(&self) {
        self.expects_more.store(true, Ordering::Relaxed);
    }

    /// Refuses writers from here on: what was written before is there for a last flush, and nothing comes after it.
    pub fn refuse_writers(&self) {
        // Set while nobody writes, and asked by whoever has become a writer.
        let _nobody_writes = self.lock_writers();
        self.refuses.store(true, Ordering::Release);
    }

    /// Refuses after a failure of the medium; whoever waited behind an orderly end has not failed.
    fn check_unfailed(&self) -> Result<()> {
        match self.has_failed.load(Ordering::Acquire) {
            true => self.check_writable(),
            false => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<()> {
        self.stopped().map_or(Ok(()), |reason| Err(Error::Stopped(reason.into())))
    }

    pub(super) fn stop_on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| {
            self.stop(e.to_string());
            self.has_failed.store(true, Ordering::Release);
        })
    }
}

impl<M: Memory> Drop for Logs<M> {
    fn drop(&mut self) {
        self.leave_disk();
        let rows = self.row_bytes(self.lock_pool().fresh - 1);
        self.budget.give(rows + self.segments_in_memory() as u64 * u64::from(SEGMENT_BYTES));
    }
}

/// Segments that are free, and that nobody writes to yet: readers may hold locations in them.
#[derive(Debug)]
#[must_use = "they serve nobody else"]
pub struct Freed<'a, M: Memory = Native> {
    logs: &'a Logs<M>,
    segments: Vec<u32>,
}

impl<M: Memory> Freed<'_, M> {
    /// Makes them available once no reader can hold a location in them.
    pub fn reuse_after_readers(self, guard: &Guard) {
        let Freed { logs, segments } = self;
        let (pool, waiting) = (Arc::clone(&logs.pool), Arc::clone(&logs.waiting));
        let (near, far) = far::by_home(segments, &logs.segments);
        let waiting_far = Arc::clone(&logs.away.waiting_far);
        waiting.fetch_add(near.len(), Ordering::AcqRel);
        waiting_far.fetch_add(far.len(), Ordering::AcqRel);
        guard.defer(move || {
            let count = near.len();
            let mut pool = pool.lock();
            pool.free.extend(near);
            waiting_far.fetch_sub(far.len(), Ordering::AcqRel);
            pool.far.extend(far);
            pool.has_freed = true;
            waiting.fetch_sub(count, Ordering::AcqRel);
        });
        guard.flush();
    }
}
