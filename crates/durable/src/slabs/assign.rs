//! Superblocks put to use: for a writer that found no free slot of the class it needs.
//!
//! A superblock comes from those nobody uses, or from another class that has emptied one, or the
//! file grows. It is put to use in steps, each durable before the next: its header's first word is
//! zero, so that it counts as free; every slot's checksum is zero; the rest of the header stands;
//! the first word stands. A crash leaves it free or in use and empty.

use super::classes::{self, CLASSES};
use super::free::{Free, Pool, start_of};
use super::header::{HEADER_BYTES, Header};
use super::{SEGMENT_BYTES, Slabs, Superblock, Writer};
use crate::error::{Error, Result};
use crate::sync::lock;
use crate::values::Room;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::{Memory, lab};

/// Slots a writer takes at a time: this many, or this many bytes of larger ones, at least one.
const CACHED_SLOTS: u32 = 32;
const CACHED_BYTES: u32 = 8 << 10;

fn cached_slots(class: usize) -> usize {
    (CACHED_BYTES / classes::slot_bytes(class)).clamp(1, CACHED_SLOTS) as usize
}

impl<M: Memory> Slabs<M> {
    /// Moves free slots of `class` to the writer's cache; whether there were any.
    pub(super) fn refill(&self, writer: &mut Writer, class: usize) -> bool {
        self.step();
        self.shared.take(class, cached_slots(class), &mut writer.caches[class]) > 0
    }

    /// The class of a slot that the writer has for an item of `bytes`: of its own class, or, while that has no
    /// superblock, of the one that serves several.
    #[inline(always)]
    pub(super) fn class_at_hand(&self, writer: &mut Writer, bytes: usize) -> Option<usize> {
        let class = classes::class_of(bytes);
        if !writer.caches[class].is_empty() || self.refill(writer, class) {
            return Some(class);
        }
        let may_share = !self.shared.has_any(class);
        self.shared_at_hand(writer, class, bytes, may_share)
    }

    /// The same of the class that serves several: of slots that the writer has, and others if it may take them.
    #[cold]
    fn shared_at_hand(
        &self,
        writer: &mut Writer,
        class: usize,
        bytes: usize,
        may_take: bool,
    ) -> Option<usize> {
        let shared = classes::shared_class_of(bytes);
        let has = shared != class
            && (!writer.caches[shared].is_empty() || may_take && self.refill(writer, shared));
        has.then_some(shared)
    }

    /// The class that another superblock for items of `bytes` is to have: their own, once it has one or so many of
    /// them shared others' that half of one would be full.
    fn class_to_add(&self, bytes: usize) -> usize {
        let class = classes::class_of(bytes);
        let is_worth_one = self.shared.has_any(class)
            || self.shared.sharing(class) >= classes::slots(class).div_ceil(2);
        if is_worth_one { class } else { classes::shared_class_of(bytes) }
    }

    /// Sees to it that the writer has a slot for an item of `bytes`, with a superblock more if need
    /// be.
    #[cold]
    pub(super) fn make_room(&self, writer: &mut Writer, bytes: usize, room: Room) -> Result<()> {
        while self.class_at_hand(writer, bytes).is_none() {
            let class = self.class_to_add(bytes);
            match self.add_superblock(writer, class, room) {
                Err(Error::NoRoom { .. } | Error::DiskFull { .. }) if self.give_back(writer) => {}
                Err(refused @ (Error::NoRoom { .. } | Error::DiskFull { .. })) => {
                    // A slot that is too large is better than none.
                    let exact = classes::class_of(bytes);
                    let shared = self.shared_at_hand(writer, exact, bytes, true);
                    return shared.map(drop).ok_or(refused);
                }
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
        if room == Room::Ordinary && self.budget.excess() > 0 {
            // What is empty is given back first.
            return Err(self.no_room());
        }
        let (number, is_new) = match self.take_unused(&mut pool) {
            Some(number) => (number, false),
            None => (self.grow_pool(&mut pool, room)?, true),
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
        self.account(self.shared.begin(number, Free::all(class), || self.step()));
        if is_new {
            // Only now may the checkpoint promise the file's new length.
            let mut checkpoint = lock(self.medium.memory(), &self.checkpoint);
            let mut next = checkpoint.clone();
            next.number += 1;
            next.segments = pool.fresh;
            next.next_sequence = self.next_sequence.load(Ordering::Acquire);
            self.stop_on_error(next.store(&self.medium))?;
            *checkpoint = next;
        }
        Ok(())
    }

    /// The pool. Its holder stores to the memory meanwhile.
    fn lock_pool(&self) -> MutexGuard<'_, Pool> {
        lock(self.medium.memory(), &self.shared.pool)
    }

    /// Superblocks of the file, used or not.
    pub(super) fn total(&self) -> u32 {
        self.lock_pool().fresh - 1
    }

    /// A scheduling point before a free list, or a superblock's bitmap, is read or changed. No access to the memory
    /// comes while one of their locks is held, so nobody waits for one for long.
    #[inline(always)]
    pub(super) fn step(&self) {
        lab::step(self.medium.memory());
    }

    /// Differs between the lives of a superblock, so that nothing left over from one passes for an
    /// item of the next, should a slot's checksum ever be missed.
    fn salt(&self, number: u32) -> u32 {
        let generation = self.generation.load(Ordering::Acquire);
        let sequence = self.next_sequence.load(Ordering::Acquire);
        (sequence as u32).wrapping_mul(0x9e37_79b1) ^ (generation as u32).rotate_left(16) ^ number
    }

    /// A superblock in memory that nobody uses.
    fn take_unused(&self, pool: &mut Pool) -> Option<u32> {
        pool.free.pop().or_else(|| self.shared.take_empty(pool.fresh, || self.step()))
    }

    /// A superblock more than there are in memory.
    fn grow_pool(&self, pool: &mut Pool, room: Room) -> Result<u32> {
        if let Some(number) = pool.released.pop() {
            self.grow_to(number, room).inspect_err(|_| pool.released.push(number))?;
            self.add_resident(number, pool);
            return Ok(number);
        }
        let number = pool.fresh;
        if let Some(allocation) = self.allocation.get() {
            allocation.grow(number..number + 1)?;
        }
        self.grow_to(number, room)?;
        pool.fresh += 1;
        self.account(size_of::<Superblock>() as i64);
        self.add_resident(number, pool);
        Ok(number)
    }

    fn add_resident(&self, number: u32, pool: &Pool) {
        let place = &self.shared.superblocks[number as usize].place;
        self.shared.residents.add(place, |first| self.shared.places(pool, first));
    }

    fn no_room(&self) -> Error {
        Error::NoRoom { used: self.budget.used(), limit: self.budget.limit() }
    }

    /// How many superblocks must go where the headroom of the budget was spent, by an index perhaps.
    pub fn overdrawn_superblocks(&self) -> usize {
        let left = self.budget.limit().saturating_sub(self.margin_bytes());
        self.budget.used().saturating_sub(left).div_ceil(u64::from(SEGMENT_BYTES)) as usize
    }

    /// Whether any must.
    pub fn is_overdrawn(&self) -> bool {
        self.is_beyond(0)
    }

    fn is_beyond(&self, bytes: u64) -> bool {
        self.budget.used() + self.margin_bytes() + bytes > self.budget.limit()
    }

    /// What superblocks leave to the index: nothing is copied here, so it is a part of the headroom.
    fn margin_bytes(&self) -> u64 {
        self.budget.headroom() / 4
    }

    /// Gives empty superblocks back to the system while the headroom of the budget is not there; returns how many.
    ///
    /// # Errors
    /// Those of the medium; the superblock stays unused.
    pub fn release_overdrawn(&self) -> Result<usize> {
        let mut released = 0;
        while self.is_overdrawn() {
            let mut pool = self.lock_pool();
            let Some(number) = self.take_unused(&mut pool) else { break };
            let (memory, start) = (self.medium.memory(), start_of(number));
            // SAFETY: nobody uses the superblock, and it is this caller's alone under the pool's lock; the word is
            // its first, aligned.
            unsafe {
                memory.store(start, 0);
                memory.persist(start, 8);
            }
            let bytes = u64::from(SEGMENT_BYTES);
            let place = &self.shared.superblocks[number as usize].place;
            self.shared.residents.remove(number, place);
            // SAFETY: as above; nobody has a location in it, since none of its slots is in use or waits for readers.
            let is_back = unsafe { self.medium.release(start, bytes) };
            is_back.inspect_err(|_| {
                self.add_resident(number, &pool);
                pool.free.push(number);
            })?;
            self.account(self.shared.end(number));
            self.budget.give(bytes);
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            pool.released.push(number);
            released += 1;
        }
        Ok(released)
    }

    fn grow_to(&self, number: u32, room: Room) -> Result<()> {
        let bytes = u64::from(SEGMENT_BYTES);
        if number as usize >= self.shared.superblocks.len() {
            return Err(self.no_room());
        }
        match room {
            Room::Urgent | Room::Anyway => self.budget.take_anyway(bytes),
            Room::Ordinary if self.is_beyond(bytes) => return Err(self.no_room()),
            Room::Ordinary => self.budget.take(bytes).map_err(|_| self.no_room())?,
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
            let zeros = lab::zeros(memory, start + at, bytes - at) / slot_bytes * slot_bytes;
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
                self.shared.give_back(location, life, || self.step());
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
        let mut oldest: Vec<u32> = (1..=self.total()).filter(in_use).collect();
        oldest.sort_by_key(|number| superblocks[*number as usize].age.load(Ordering::Relaxed));
        oldest.truncate(oldest.len().div_ceil(share));
        oldest.iter().for_each(|number| self.shared.begin_emptying(*number, || self.step()));
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
