//! Superblocks put to use: for a writer that found no free slot of the class it needs.
//!
//! A superblock comes from those nobody uses, or from another class that has emptied one, or the
//! file grows. It is put to use in steps, each durable before the next: its header's first word is
//! zero, so that it counts as free; every slot's checksum is zero; the rest of the header stands;
//! the first word stands. A crash leaves it free or in use and empty.

use super::classes::{self, CLASSES};
use super::free::{Free, Pool, start_of};
use super::header::{HEADER_BYTES, Header};
use super::{SEGMENT_BYTES, Slabs, Writer};
use crate::error::{Error, Result};
use crate::logs::Room;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Slots a writer takes at a time: this many, or this many bytes of larger ones, at least one.
const CACHED_SLOTS: u32 = 32;
const CACHED_BYTES: u32 = 8 << 10;

/// How often a writer pauses before it sleeps: more than a superblock's making takes stores, and a few
/// microseconds where a pause is an instruction.
const PAUSES: u32 = 256;

fn cached_slots(class: usize) -> usize {
    (CACHED_BYTES / classes::slot_bytes(class)).clamp(1, CACHED_SLOTS) as usize
}

impl<M: Memory> Slabs<M> {
    /// Moves free slots of `class` to the writer's cache; whether there were any.
    pub(super) fn refill(&self, writer: &mut Writer, class: usize) -> bool {
        self.shared.take(class, cached_slots(class), &mut writer.caches[class]) > 0
    }

    /// Sees to it that the writer has a slot for an item of `bytes`, with a superblock more if need
    /// be.
    #[cold]
    pub(super) fn make_room(&self, writer: &mut Writer, bytes: usize, room: Room) -> Result<()> {
        let class = classes::class_of(bytes);
        while writer.caches[class].is_empty() && !self.refill(writer, class) {
            match self.add_superblock(writer, class, room) {
                Err(Error::NoRoom { .. } | Error::DiskFull { .. }) if self.give_back(writer) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn add_superblock(&self, writer: &mut Writer, class: usize, room: Room) -> Result<()> {
        let mut pool = self.lock_pool();
        if self.refill(writer, class) {
            // Another writer was here first.
            return Ok(());
        }
        let (number, is_new) = if let Some(number) = pool.free.pop() {
            (number, false)
        } else if let Some(number) = self.shared.take_empty(pool.fresh) {
            (number, false)
        } else {
            let number = pool.fresh;
            if let Some(books) = self.books.get() {
                books.grow(number..number + 1)?;
            }
            self.grow_to(number, room)?;
            pool.fresh += 1;
            (number, true)
        };
        let header = Header {
            class,
            sequence: self.next_sequence.fetch_add(1, Ordering::AcqRel),
            generation: self.generation.load(Ordering::Acquire),
            salt: self.salt(number),
        };
        self.write_header(number, &header, is_new);
        let superblock = &self.shared.superblocks[number as usize];
        superblock.salt.store(header.salt, Ordering::Relaxed);
        superblock.age.store(header.sequence, Ordering::Relaxed);
        self.account(self.shared.begin(number, Free::all(class)));
        if is_new {
            // Only now may the cut promise the file's new length.
            let mut cut = self.cut.lock();
            let mut next = cut.clone();
            next.number += 1;
            next.segments = pool.fresh;
            next.next_sequence = self.next_sequence.load(Ordering::Acquire);
            self.stop_on_error(next.store(&self.medium))?;
            *cut = next;
        }
        Ok(())
    }

    /// The pool, waited for through the memory at first: its holder stores to the memory meanwhile, and
    /// one that says whose turn it is must hear that this writer waits.
    fn lock_pool(&self) -> MutexGuard<'_, Pool> {
        for _ in 0..PAUSES {
            if let Some(pool) = self.shared.pool.try_lock() {
                return pool;
            }
            self.medium.memory().pause();
        }
        self.shared.pool.lock()
    }

    /// Differs between the lives of a superblock, so that nothing left over from one passes for an
    /// item of the next, should a slot's checksum ever be missed.
    fn salt(&self, number: u32) -> u32 {
        let generation = self.generation.load(Ordering::Acquire);
        let sequence = self.next_sequence.load(Ordering::Acquire);
        (sequence as u32).wrapping_mul(0x9e37_79b1) ^ (generation as u32).rotate_left(16) ^ number
    }

    fn grow_to(&self, number: u32, room: Room) -> Result<()> {
        let bytes = u64::from(SEGMENT_BYTES);
        let no_room = || Error::NoRoom { used: self.budget.used(), limit: self.budget.limit() };
        if number as usize >= self.shared.superblocks.len() {
            return Err(no_room());
        }
        match room {
            Room::Urgent => self.budget.take_anyway(bytes),
            Room::Ordinary => self.budget.take(bytes).map_err(|_| no_room())?,
        }
        self.medium.grow(start_of(number), bytes).inspect_err(|_| self.budget.give(bytes))?;
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn write_header(&self, number: u32, header: &Header, is_new: bool) {
        let (memory, start) = (self.medium.memory(), start_of(number));
        let bytes = header.encode();
        let (first, rest) = bytes.split_at(8);
        let first = u64::from_le_bytes(first.try_into().expect("eight bytes"));
        let mut written = u64::from(HEADER_BYTES);
        // SAFETY: the superblock was grown and belongs to the caller, under the pool's lock: no slot
        // of it is in use, and no reader holds a location in it. Words are 8-byte aligned.
        unsafe {
            if !is_new {
                memory.store(start, 0);
                memory.persist(start, 8);
                written = self.clear_slots(number, header.class);
            }
            memory.write(start + 8, rest);
            memory.persist(start, written);
            memory.store(start, first);
            memory.persist(start, 8);
        }
    }

    /// Clears the checksum of every slot that was ever written; returns how far they reach, from the
    /// superblock's start.
    ///
    /// # Safety
    /// The superblock was grown and is the caller's alone.
    unsafe fn clear_slots(&self, number: u32, class: usize) -> u64 {
        let (memory, start) = (self.medium.memory(), start_of(number) + u64::from(HEADER_BYTES));
        let slot_bytes = u64::from(classes::slot_bytes(class));
        let bytes = slot_bytes * u64::from(classes::slots(class));
        let (mut at, mut written) = (0, u64::from(HEADER_BYTES));
        while at < bytes {
            let zeros = memory.zeros(start + at, bytes - at) / slot_bytes * slot_bytes;
            if zeros == 0 {
                // SAFETY: inside, by contract; slots are 8-byte aligned.
                unsafe { memory.store(start + at, 0) };
                written = u64::from(HEADER_BYTES) + at + 8;
            }
            at += zeros.max(slot_bytes);
        }
        written
    }

    /// Gives a writer's free slots back, so that others find them and superblocks can become empty.
    /// Whether there were any.
    pub(super) fn give_back(&self, writer: &mut Writer) -> bool {
        let mut any = false;
        for class in 0..CLASSES {
            for location in writer.caches[class].drain(..) {
                let life = self.shared.superblocks[super::superblock_of(location)]
                    .life
                    .load(Ordering::Acquire);
                self.shared.give_back(location, life);
                any = true;
            }
        }
        any
    }

    /// Gives the free slots of all writers that are not at work back, and frees what they deferred.
    pub fn give_back_cached(&self) {
        for (id, writer) in self.writers.iter().enumerate() {
            if let Some(lock) = writer.try_lock()
                && let Ok(mut writer) = lock.try_borrow_mut()
            {
                self.give_back(&mut writer);
                self.let_go(&mut writer, id);
            }
        }
    }

    /// The superblocks in use whose items are the oldest, one in `share` of all and at least one,
    /// for eviction. Nothing new is written there, but for what writers at work have in their
    /// caches, until [`Slabs::end_eviction`] lets go of their slots.
    pub fn begin_eviction(&self, share: usize) -> Vec<u32> {
        let superblocks = &self.shared.superblocks;
        let in_use = |number: &u32| {
            let free = superblocks[*number as usize].free.lock();
            free.slots > 0 && free.available < free.slots
        };
        let mut oldest: Vec<u32> = (1..=self.shared.total()).filter(in_use).collect();
        oldest.sort_by_key(|number| superblocks[*number as usize].age.load(Ordering::Relaxed));
        oldest.truncate(oldest.len().div_ceil(share));
        oldest.iter().for_each(|number| self.shared.begin_emptying(*number));
        self.shared.evicting.store(true, Ordering::Release);
        oldest
    }

    /// Lets go of the slots [`Slabs::begin_eviction`] held back, once readers have left those that
    /// were retired meanwhile. The superblocks count as the youngest then.
    pub fn end_eviction(&self, superblocks: Vec<u32>) {
        let now = self.next_sequence.fetch_add(1, Ordering::AcqRel);
        let shared = Arc::clone(&self.shared);
        crossbeam_epoch::pin().defer(move || {
            for number in superblocks {
                shared.superblocks[number as usize].age.store(now, Ordering::Relaxed);
                shared.end_emptying(number);
            }
            shared.evicting.store(false, Ordering::Release);
        });
    }

    /// Whether an eviction has not made its room yet.
    pub fn is_evicting(&self) -> bool {
        self.shared.evicting.load(Ordering::Acquire)
    }
}
