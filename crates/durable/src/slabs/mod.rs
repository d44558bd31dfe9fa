//! Values in slabs (Wu, section 2.3): every item in a slot of its size, freed and used again in
//! place.
//!
//! A *superblock* is a segment of 4 MB whose slots are all of one size (`classes.rs`). A write takes a
//! free slot; the slot of the version before is marked free in storage by clearing its checksum. No
//! log, no tombstones, no collector; in return writes land wherever there is room, single lines
//! must become durable in place, and so slabs need a byte-addressable medium.
//!
//! # What is durable when
//! * An item is durable when [`Slots::write`] returns, before anyone knows its location: header,
//!   key and value are stored, then its checksum, and all of it is written back and fenced. Until then the slot is
//!   free or, where lines survive in any order, its checksum does not match whichever of its words are safe, and
//!   recovery clears the slot (`torn.rs`: what else may be wrong with one is damage).
//! * A deleted item is gone for good when [`Slabs::retire`] returns: one 8-byte store, written back
//!   and fenced, leaves its checksum 0. So is one that was superseded, unless frees are deferred
//!   (`deferred.rs`). The slot itself waits until no reader can hold its
//!   location, and is used again after that.
//! * A superblock's header is safe before any of its slots is handed out.
//!
//! # Why no version comes back, and none is lost
//! The writers of a key take turns under the lock of its bucket in the index. Each writes the new
//! version, durably, then retires the one before, durably, then lets go. So of the versions of one
//! key storage holds the newest, or for the length of a retire the newest two, and recovery keeps
//! the newer. Whatever a third writer does comes after both: when it retires version `n`, `n - 1`
//! has been cleared for good, and no crash can show it again. The paper frees the old version
//! first; a crash between the two would then lose the key. With deferred frees storage may hold
//! older versions too, until the key is deleted (`deferred.rs`).
//!
//! Batches are not atomic in slabs: each item is durable by itself.
//!
//! Locks, in the order they may be taken: a writer, the pool, a class, a superblock; the checkpoint is taken
//! last and alone. The index's bucket lock is taken by callers inside a writer; inside it only a
//! class, a superblock and, innermost, a queue of deferred frees are.

mod allocation;
mod assign;
mod check;
pub(crate) mod classes;
mod deferred;
mod free;
mod header;
mod reach;
mod recover;
mod summary;
mod torn;
mod write;

pub use allocation::PAGE_BYTES;
pub use check::Census;
pub use write::Slots;

use crate::allocation::AllocationPages;
use crate::error::{Error, Result};
use crate::flush::{Flush, Flusher};
use crate::item::{self, Item, Record};
use crate::medium::{BLOCK_BYTES, Medium};
use crate::sections::Changes;
use crate::superblock::{self, Checkpoint, HEAD_BYTES, MAX_OPEN, Shape};
use crate::sync::lock;
use crate::values::Room;
use crate::values::place::Resolved;
use crate::values::{BucketLock, Found, Keeps, NoItem, SEGMENT_BYTES, Seen};
use classes::CLASSES;
use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;
use deferred::Deferred;
pub(crate) use free::Superblock;
use free::{Shared, superblock_of};
use parking_lot::{Mutex, ReentrantMutex};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_memory::profile::Keeping;
use terrace_memory::{Budget, Claim, Memory, Native, lab};

/// Most writers: those that can be writing at a crash, one torn slot each.
pub const MAX_WRITERS: usize = MAX_OPEN;
const DESIGN: u32 = 2;
/// Offset in the file of the word that says whether it is open, from recovery to the orderly end, and what a crash
/// may leave then. After an orderly end no slot can be torn, and what does not verify is damage.
const IN_USE_AT: u64 = HEAD_BYTES;
/// The low half of a slot's first word, its item's checksum.
const CHECKSUM_MASK: u64 = 0xffff_ffff;
/// That of a slot that is free.
const NO_CHECKSUM: [u8; 4] = [0; 4];

/// All superblocks of one map.
#[derive(Debug)]
pub struct Slabs<M: Memory = Native> {
    medium: Medium<M>,
    _claim: Claim,
    shared: Arc<Shared>,
    writers: Box<[CachePadded<ReentrantMutex<RefCell<Writer>>>]>,
    deferred: Deferred,
    checkpoint: Mutex<Checkpoint>,
    /// Number of the checkpoint that was found.
    found_number: u64,
    generation: AtomicU64,
    next_sequence: AtomicU64,
    /// `Some` while recovery scans: what it retires is cleared at its end.
    superseded: Mutex<Option<Vec<u64>>>,
    /// Whether the file says that it is in use.
    marked: AtomicBool,
    /// Whether stores survive in their order.
    is_ordered: bool,
    /// Whether there are items that nobody has verified since the file was opened.
    is_unverified: AtomicBool,
    stopped: OnceLock<String>,
    /// Whether more is written after the recovery, though the medium is only read.
    expects_more: AtomicBool,
    /// What is wrong with the head of the file, under [`Access::Salvage`](crate::Access).
    head_damage: Option<String>,
    /// Where the allocation metadata is, if it is kept by sections.
    allocation: OnceLock<AllocationPages>,
    budget: Arc<Budget>,
    /// Bytes taken from the budget.
    taken: AtomicU64,
}

/// One writer's free slots, so that writers rarely meet.
#[derive(Debug, Default)]
struct Writer {
    /// Locations, for each class.
    caches: Box<[Vec<u64>]>,
    /// Bytes of the last item that found no free slot; 0: none. Asked again for exactly so many,
    /// room is made.
    refused: usize,
    /// Slots deferred since it last let go of any: at least as many as are in its queue.
    deferred: usize,
    flusher: Flusher,
}

impl Writer {
    fn new() -> Writer {
        Writer { caches: vec![Vec::new(); CLASSES].into(), ..Writer::default() }
    }
}

/// Longest item in bytes that fits a slot.
pub const LARGEST_ITEM_BYTES: usize = classes::LARGEST;

/// The superblock of a location, as [`Slabs::begin_eviction`] numbers them.
#[inline]
pub fn superblock_number(location: u64) -> u32 {
    superblock_of(location) as u32
}

/// Bytes of the slot that an item of `bytes` takes.
pub fn slot_bytes(bytes: usize) -> usize {
    classes::slot_bytes(classes::class_of(bytes)) as usize
}

impl<M: Memory> Slabs<M> {
    /// Opens the head of `medium` (made if new) for `writers` concurrent writers.
    /// [`Slabs::recover`] must run before anything else.
    ///
    /// # Errors
    /// Those of [`superblock::open_head`].
    ///
    /// # Panics
    /// If the medium is not byte-addressable.
    pub fn open(medium: Medium<M>, writers: usize, budget: &Arc<Budget>) -> Result<Slabs<M>> {
        assert!((1..MAX_WRITERS).contains(&writers), "1 to {} writers", MAX_WRITERS - 1);
        assert!(medium.is_byte_addressable(), "slabs are on a byte-addressable medium");
        let claim = medium.claim();
        let shape = Shape { segment_bytes: SEGMENT_BYTES, design: DESIGN };
        let (checkpoint, head_damage) = superblock::open_head(&medium, shape, &[])?;
        if medium.access().writes() {
            medium.grow(IN_USE_AT, BLOCK_BYTES)?;
        }
        let count = (medium.capacity_bytes() / u64::from(SEGMENT_BYTES)) as usize;
        Ok(Slabs {
            _claim: claim,
            shared: Arc::new(Shared::new(count)),
            // Number 0 is nobody's: writers are counted from 1, as in logs.
            writers: (0..=writers)
                .map(|_| CachePadded::new(ReentrantMutex::new(RefCell::new(Writer::new()))))
                .collect(),
            deferred: Deferred::none(writers),
            generation: AtomicU64::new(checkpoint.generation),
            next_sequence: AtomicU64::new(checkpoint.next_sequence),
            found_number: checkpoint.number,
            checkpoint: Mutex::new(checkpoint),
            superseded: Mutex::new(None),
            marked: AtomicBool::new(false),
            is_ordered: false,
            is_unverified: AtomicBool::new(false),
            stopped: OnceLock::new(),
            expects_more: AtomicBool::new(false),
            head_damage,
            allocation: OnceLock::new(),
            budget: Arc::clone(budget),
            taken: AtomicU64::new(0),
            medium,
        })
    }

    /// Items are written back as `flush` says. To be called before the first write.
    #[must_use]
    pub fn flushing(mut self, flush: Flush) -> Slabs<M> {
        let domain = self.medium.memory().domain();
        let flushers = Flusher::of_slabs(flush, domain, self.writers.len());
        for (writer, flusher) in self.writers.iter_mut().zip(flushers) {
            self.is_ordered = flusher.is_ordered(domain);
            writer.get_mut().get_mut().flusher = flusher;
        }
        self
    }

    /// [`Flush::Auto`] follows what was measured of the memory. To be called after [`Slabs::flushing`].
    #[must_use]
    pub fn by_measured(mut self, keeping: Option<&Arc<Keeping>>) -> Slabs<M> {
        for writer in &mut self.writers {
            writer.get_mut().get_mut().flusher.by(keeping.cloned());
        }
        self
    }

    /// The medium below.
    pub fn medium(&self) -> &Medium<M> {
        &self.medium
    }

    /// Number of writers. Their numbers are 1 and up.
    pub fn writers(&self) -> usize {
        self.writers.len() - 1
    }

    /// Superblocks of the file, used or not.
    pub fn total_superblocks(&self) -> usize {
        self.total() as usize
    }

    /// Bytes of slots that are taken, by items or readers, and of the superblocks in use. Free slots that a writer
    /// has set aside count as taken while it is at work.
    pub fn taken_bytes(&self) -> (u64, u64) {
        let cached: u64 = self.writers.iter().map(Self::cached_bytes).sum();
        let (taken, used) = (1..=self.total_superblocks()).fold((0, 0), |(taken, used), number| {
            let free = self.shared.superblocks[number].free.lock();
            let Some(class) = free.class() else { return (taken, used) };
            let slots = u64::from(free.slots - free.available);
            (taken + slots * u64::from(classes::slot_bytes(class)), used + u64::from(SEGMENT_BYTES))
        });
        (taken.saturating_sub(cached), used)
    }

    fn cached_bytes(writer: &CachePadded<ReentrantMutex<RefCell<Writer>>>) -> u64 {
        let Some(lock) = writer.try_lock() else { return 0 };
        let Ok(writer) = lock.try_borrow() else { return 0 };
        let bytes = |(class, cache): (usize, &Vec<u64>)| {
            cache.len() as u64 * u64::from(classes::slot_bytes(class))
        };
        writer.caches.iter().enumerate().map(bytes).sum()
    }

    /// Retired slots that wait for readers to leave.
    pub fn waiting_slots(&self) -> usize {
        self.shared.waiting.load(Ordering::Acquire)
    }

    /// Asks for `lines` cache lines from `location` on to be brought near, for an item that is one of many.
    #[inline(always)]
    pub fn prefetch(&self, location: u64, lines: u64) {
        for line in 0..lines {
            self.medium.memory().prefetch_of_many(location + 64 * line);
        }
    }

    /// The item at `location`, which came from [`Slots::write`], recovery or an index that is kept, and was learnt
    /// while `kept` was held; verified, if nobody has since the slabs were opened.
    ///
    /// # Errors
    /// [`NoItem`]; also of one that was just retired, if it is verified.
    #[inline(always)]
    pub fn item<'g>(&'g self, location: u64, kept: &'g impl Keeps) -> Found<Item<'g>> {
        Item::of_rest(self.verified(location, kept)?).ok_or(NoItem::Invalid(location))
    }

    /// The same without its checksum.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn item_again<'g>(&'g self, location: u64, kept: &'g impl Keeps) -> Found<Item<'g>> {
        Item::of_rest(self.rest_of(location, kept)?).ok_or(NoItem::Invalid(location))
    }

    /// Items are verified whenever they are read.
    pub fn verify_on_read(&self) {
        self.is_unverified.store(true, Ordering::Relaxed);
    }

    pub(crate) fn verifies_on_read(&self) -> bool {
        self.is_unverified.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn verified<'g>(&'g self, location: u64, kept: &'g impl Keeps) -> Found<&'g [u8]> {
        let rest = self.rest_of(location, kept)?;
        if self.is_unverified.load(Ordering::Relaxed) && !self.is_item(location, rest) {
            return Err(NoItem::Invalid(location));
        }
        Ok(rest)
    }

    #[inline(never)]
    fn is_item(&self, location: u64, rest: &[u8]) -> bool {
        let memory = self.medium.memory();
        lab::looked_at(memory, location, item::FLAGS_AT + rest.len() as u64);
        let salt = self.shared.superblocks[superblock_of(location)].salt.load(Ordering::Relaxed);
        // SAFETY: the first word of a place that lies in the medium, aligned (`rest_of`).
        let checksum = unsafe { memory.load(location) } as u32;
        matches!(item::verify_rest(checksum, rest, salt), Record::Item(..))
    }

    /// The item at `location`, as for [`Slabs::item`], if its key is `key`.
    ///
    /// # Errors
    /// The errors of [`Slabs::item`].
    #[inline(always)]
    pub fn seen_if_key<'g>(
        &'g self,
        location: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Found<Option<Seen<'g>>> {
        let item = Item::of_rest(self.verified(location, guard)?);
        Ok(item.and_then(|item| item.if_key(key)).map(Seen::AtRest))
    }

    /// As [`Slabs::item`]: items of slabs are at rest as soon as anybody can find them.
    ///
    /// # Errors
    /// The errors of [`Slabs::item`].
    #[inline(always)]
    pub fn seen<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        self.item(location, guard).map(Seen::AtRest)
    }

    /// The same without its checksum.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn seen_again<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        self.item_again(location, guard).map(Seen::AtRest)
    }

    /// Whether the item at `location`, as for [`Slabs::item`], has this key.
    ///
    /// # Errors
    /// The errors of [`Slabs::item`].
    #[inline(always)]
    pub fn has_key(&self, location: u64, key: &[u8], lock: &BucketLock) -> Found<bool> {
        let item = Item::of_rest(self.verified(location, lock)?);
        Ok(item.and_then(|item| item.if_key(key)).is_some())
    }

    /// Where what lies at `location` is read: the one way from there to memory.
    ///
    /// # Errors
    /// [`NoItem`] if that is not in memory.
    #[inline(always)]
    fn resolve(&self, location: u64) -> Found<Resolved> {
        let place =
            |number| self.shared.superblocks.get(number).map(|found: &Superblock| &found.place);
        self.shared.residents.resolve(location, || self.medium.capacity_bytes(), place)
    }

    /// What follows the checksum of the item at `location`, and nothing behind it: its head says how much. The
    /// checksum is never lent, since who retires the item clears it while readers look at the rest.
    #[inline(always)]
    fn rest_of<'g>(&'g self, location: u64, _kept: &'g impl Keeps) -> Found<&'g [u8]> {
        let end = self.resolve(location)?.end;
        if !location.is_multiple_of(8) {
            return Err(NoItem::Invalid(location));
        }
        let memory = self.medium.memory();
        // SAFETY: inside the medium, which is mapped: what is behind its file can be read too. The item's
        // bytes are not written again before every guard under which its location
        // could be learnt is gone, but for its checksum (`clear_checksum`, sections).
        let rest = unsafe { item::borrow_rest(memory, location, end) };
        rest.ok_or(NoItem::Invalid(location))
    }

    /// Writer `id`'s slots.
    ///
    /// Nothing is set aside for `bytes`, which is a caller's upper bound: the exact slot is taken
    /// when the item is known ([`Slots::fits`]). Only if that failed for an item of exactly `bytes`
    /// is room made here, outside of the index's locks.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when there is no free slot and no superblock to be had, [`Error::DiskFull`],
    /// [`Error::Stopped`]. Nothing was changed then.
    #[inline]
    pub fn slots(&self, id: usize, bytes: usize, room: Room) -> Result<Slots<'_, M>> {
        let lock = lock(self.medium.memory(), &*self.writers[id]);
        // Asked by whoever has become a writer: after a stop nobody is, once each has been waited for.
        self.check_writable()?;
        if lock.borrow().deferred >= self.deferred.most.max(1) {
            self.let_go(&mut lock.borrow_mut(), id);
        }
        if lock.borrow().refused == bytes && bytes > 0 {
            let mut writer = lock.borrow_mut();
            self.make_room(&mut writer, bytes, room)?;
            writer.refused = 0;
        }
        Ok(Slots::new(self, lock, id))
    }

    /// During recovery: a newer item of the key was found than the one at `location`. Its slot is
    /// freed once everything was found.
    pub fn supersede(&self, location: u64) {
        if let Some(superseded) = &mut *self.superseded.lock() {
            superseded.push(location);
        }
    }

    /// Marks the slot of the item at `location` free, durably on return, and with it every older version
    /// of its key. Called under the key's lock, for a deletion or after what supersedes the item was
    /// written; [`Slabs::release`] must follow. With allocation metadata it is free once `changes` are committed.
    #[inline]
    pub fn retire(&self, location: u64, changes: &mut Changes) {
        if let Some(allocation) = self.allocation.get() {
            return self.retire_in_section(allocation, location, changes);
        }
        self.clear_deferred();
        self.clear_checksum(location);
    }

    /// The retired slot at `location` may be used again as soon as no reader holds the location:
    /// nobody can learn it any more.
    pub fn release(&self, location: u64) {
        let life = self.shared.superblocks[superblock_of(location)].life.load(Ordering::Acquire);
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let shared = Arc::clone(&self.shared);
        crossbeam_epoch::pin().defer(move || {
            shared.give_back(location, life, || ());
            shared.waiting.fetch_sub(1, Ordering::AcqRel);
        });
    }

    /// Marks a slot free in storage, durably. The checksum is stored whole, so a crash leaves it as it
    /// was or cleared.
    fn clear_checksum(&self, location: u64) {
        self.check_place(location);
        let memory = self.medium.memory();
        // SAFETY: the checksum of a slot of a grown superblock, 8-byte aligned (checked), which nobody borrows; only
        // whoever supersedes the item, under the key's lock, writes it.
        unsafe {
            memory.write_changing(location, &NO_CHECKSUM);
            memory.persist(location, 8);
        }
    }

    /// # Panics
    /// If no slot can begin at `location`.
    #[inline(always)]
    fn check_place(&self, location: u64) {
        let is_inside = location < self.medium.usable_bytes() && location.is_multiple_of(8);
        assert!(is_inside && superblock_of(location) > 0, "a slot begins at {location}");
    }

    /// Forgets everything: durable on return. The caller holds off readers' new locations through
    /// `f`, which runs while writers are locked out, after the old contents stopped counting.
    ///
    /// # Errors
    /// As [`Medium::write_out`]; then nothing was forgotten, and the slabs stop.
    pub fn clear(&self, guard: &Guard, f: impl FnOnce()) -> Result<()> {
        let memory = self.medium.memory();
        let locks: Vec<_> = self.writers.iter().map(|writer| lock(memory, &**writer)).collect();
        self.check_writable()?;
        let segments = self.total() + 1;
        {
            let mut checkpoint = lock(memory, &self.checkpoint);
            let mut next = checkpoint.clone();
            next.number += 1;
            next.generation += 1;
            next.next_sequence = self.next_sequence.load(Ordering::Acquire);
            next.segments = segments;
            next.index = 0;
            self.stop_on_error(next.store(&self.medium))?;
            // From here on every superblock in the file is of an earlier generation: free.
            self.generation.store(next.generation, Ordering::Release);
            *checkpoint = next;
        }
        for writer in &locks {
            let mut writer = writer.borrow_mut();
            let flusher = std::mem::take(&mut writer.flusher);
            *writer = Writer { flusher, ..Writer::new() };
        }
        self.forget_deferred();
        f();
        let superblocks = self.shared.take_all();
        let shared = Arc::clone(&self.shared);
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        guard.defer(move || {
            shared.pool.lock().free.extend(superblocks);
            shared.waiting.fetch_sub(1, Ordering::AcqRel);
        });
        guard.flush();
        Ok(())
    }

    /// Mark of the persistent index that goes with the values, 0 if none does.
    pub fn index_mark(&self) -> u64 {
        lock(self.medium.memory(), &self.checkpoint).index
    }

    /// Says, durably on return, which persistent index goes with the values; 0: none.
    ///
    /// # Errors
    /// As [`Medium::write_out`](crate::Medium::write_out).
    pub fn set_index_mark(&self, index: u64) -> Result<()> {
        let mut checkpoint = lock(self.medium.memory(), &self.checkpoint);
        self.stop_on_error(checkpoint.set_index(index, &self.medium))
    }

    /// The error that stopped the slabs, if one did.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Refuses all further writes, for `reason`.
    pub fn stop(&self, reason: String) {
        // The first reason stays.
        let _later = self.stopped.set(reason);
    }

    /// Says that more is written when the recovery is over, also where the medium is only read.
    pub fn expects_more(&self) {
        self.expects_more.store(true, Ordering::Relaxed);
    }

    /// Refuses if the slabs were stopped.
    ///
    /// # Errors
    /// [`Error::Stopped`] with the reason.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.stopped().map_or(Ok(()), |reason| Err(Error::Stopped(reason.into())))
    }

    fn stop_on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| self.stop(e.to_string()))
    }

    /// Counts the memory of a superblock's bits, which has changed by so many bytes.
    fn account(&self, grown: i64) {
        if grown >= 0 {
            self.budget.take_anyway(grown as u64);
        } else {
            self.budget.give(grown.unsigned_abs());
        }
        self.taken.fetch_add(grown as u64, Ordering::Relaxed);
    }
}

impl<M: Memory> Drop for Slabs<M> {
    fn drop(&mut self) {
        // Nobody is writing any more: every item in the file is whole.
        if self.marked.load(Ordering::Relaxed) {
            self.clear_deferred();
            self.write_summary();
            self.set_in_use(None);
        }
        self.budget.give(self.taken.load(Ordering::Relaxed));
    }
}
