//! Which slots are free: the volatile side of superblocks, rebuilt by recovery.
//!
//! A superblock has one bit for each slot and, above them, one bit for each word that has any, so
//! that a free slot is found in two steps however few there are: 0.4 % of the smallest slots'
//! bytes, less of larger ones'. Each class lists the superblocks that have free slots.
//!
//! A slot's bit is set only while nobody has it: not an item, not a writer's cache, not a reader
//! that may still hold its location. *Lives* keep what is late from doing harm: a superblock begins
//! a new one whenever it is put to use, and a slot that comes back from a former life is ignored.
//!
//! Locks, in the order they may be taken: the pool, a class, a superblock.

pub(crate) use crate::values::place::{segment_of as superblock_of, start_of};

use super::classes::{self, CLASSES};
use super::header::HEADER_BYTES;
use crate::values::place::{Place, Residents, offset_of};
use crate::values::rows::Zeroed;
use parking_lot::{Mutex, RawMutex, lock_api};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// One bit for each free slot.
#[derive(Debug)]
struct Bits {
    words: Box<[u64]>,
    /// One bit for each word that is not zero.
    summary: Box<[u64]>,
}

/// The free slots of one superblock.
#[derive(Debug, Default)]
pub(crate) struct Free {
    /// None before it has ever belonged to a class.
    bits: Option<Box<Bits>>,
    class: usize,
    /// All slots; 0 while the superblock belongs to no class.
    pub slots: u32,
    /// Those that are free.
    pub available: u32,
    /// Whether its class lists it.
    listed: bool,
    /// Whether it is being emptied: its free slots serve nobody meanwhile.
    emptied: bool,
}

impl Free {
    /// A superblock of `class` none of whose slots is free yet.
    pub fn none(class: usize) -> Free {
        let slots = classes::slots(class);
        let words = slots.div_ceil(64);
        let bits = Bits {
            words: vec![0; words as usize].into(),
            summary: vec![0; words.div_ceil(64) as usize].into(),
        };
        Free {
            bits: Some(Box::new(bits)),
            class,
            slots,
            available: 0,
            listed: false,
            emptied: false,
        }
    }

    /// A superblock of `class` all of whose slots are free.
    pub fn all(class: usize) -> Free {
        let mut free = Free::none(class);
        free.put_run(0..free.slots);
        free
    }

    /// The class, while it has one.
    pub fn class(&self) -> Option<usize> {
        (self.slots > 0).then_some(self.class)
    }

    /// Bytes of memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = |bits: &Bits| size_of::<Bits>() + 8 * (bits.words.len() + bits.summary.len());
        self.bits.as_deref().map_or(0, bytes) as u64
    }

    fn words(&self) -> &[u64] {
        self.bits.as_ref().map_or(&[], |bits| &bits.words)
    }

    fn bits(&mut self) -> &mut Bits {
        self.bits.as_mut().expect("a superblock that belongs to a class has bits")
    }

    fn slot_at(&self, location: u64) -> u32 {
        let offset = offset_of(location) - HEADER_BYTES;
        offset / classes::slot_bytes(self.class)
    }

    /// Location of `slot` of superblock `number`.
    pub fn location(&self, number: u32, slot: u32) -> u64 {
        start_of(number)
            + u64::from(HEADER_BYTES)
            + u64::from(slot) * u64::from(classes::slot_bytes(self.class))
    }

    /// Whether a slot begins at this location of the superblock, and is not free.
    pub fn is_taken(&self, location: u64) -> bool {
        let Some(offset) = offset_of(location).checked_sub(HEADER_BYTES) else { return false };
        let slot_bytes = classes::slot_bytes(self.class);
        let slot = (offset / slot_bytes) as usize;
        let begins = offset.is_multiple_of(slot_bytes) && slot < self.slots as usize;
        begins && self.words()[slot / 64] >> (slot % 64) & 1 == 0
    }

    /// Makes `slot` free.
    pub fn put(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        debug_assert!(slot < self.slots, "slot {slot} is one of the superblock");
        let bits = self.bits();
        debug_assert!(bits.words[word] & bit == 0, "slot {slot} is freed once");
        bits.words[word] |= bit;
        bits.summary[word / 64] |= 1 << (word % 64);
        self.available += 1;
    }

    /// Makes every slot of `run` free.
    pub fn put_run(&mut self, run: Range<u32>) {
        let mut slot = run.start;
        while slot < run.end {
            let (word, first) = (slot as usize / 64, slot % 64);
            let count = (run.end - slot).min(64 - first);
            let mask = u64::MAX >> (64 - count) << first;
            let bits = self.bits();
            debug_assert!(bits.words[word] & mask == 0, "slots from {slot} on are freed once");
            bits.words[word] |= mask;
            bits.summary[word / 64] |= 1 << (word % 64);
            self.available += count;
            slot += count;
        }
    }

    /// Takes one free slot: the first.
    fn take(&mut self) -> Option<u32> {
        let bits = self.bits.as_mut()?;
        let group = bits.summary.iter().position(|words| *words != 0)?;
        let word = group * 64 + bits.summary[group].trailing_zeros() as usize;
        let bit = bits.words[word].trailing_zeros();
        bits.words[word] &= bits.words[word] - 1;
        if bits.words[word] == 0 {
            bits.summary[group] &= !(1 << (word % 64));
        }
        self.available -= 1;
        Some(word as u32 * 64 + bit)
    }

    /// Every slot that is not free.
    pub fn each_taken(&self, f: &mut impl FnMut(u32)) {
        // One that belongs to no class any more keeps the bits of the class it had.
        for (word, before) in self.words().iter().zip((0..self.slots).step_by(64)) {
            let of_slots = u64::MAX >> (64 - (self.slots - before).min(64));
            each_bit(before, !word & of_slots, f);
        }
    }

    /// Every free slot.
    pub fn each(&self, mut f: impl FnMut(u32)) {
        for (n, word) in self.words().iter().enumerate() {
            each_bit(n as u32 * 64, *word, &mut f);
        }
    }
}

/// The number of every bit that is set, the first one's being `before`.
fn each_bit(before: u32, mut left: u64, f: &mut impl FnMut(u32)) {
    while left != 0 {
        f(before + left.trailing_zeros());
        left &= left - 1;
    }
}

/// The volatile side of a superblock.
#[derive(Debug, Default)]
pub(crate) struct Superblock {
    /// Its salt: fixed for as long as anyone has a slot of it.
    pub salt: AtomicU32,
    /// Where it is.
    pub place: Place,
    /// Which of its lives this is.
    pub life: AtomicU64,
    /// Sequence number, or a later one since it was last emptied by eviction: orders superblocks
    /// by the age of what is in them.
    pub age: AtomicU64,
    pub free: Mutex<Free>,
}

/// A lock of [`Superblock`] that nobody holds is zero.
const _: () = {
    // SAFETY: a lock is a byte, as its size says, and any byte can be read as a number.
    let unlocked: u8 = unsafe { std::mem::transmute(<RawMutex as lock_api::RawMutex>::INIT) };
    assert!(unlocked == 0);
};

// SAFETY: it consists of atomic numbers, and of a lock with numbers and an optional box: nobody holds the lock, as was
// looked at above, and no box is a null pointer.
unsafe impl Zeroed for Superblock {}

/// Superblocks nobody uses.
#[derive(Debug)]
pub(crate) struct Pool {
    pub free: Vec<u32>,
    /// Free, and their memory and blocks given back to the system.
    pub released: Vec<u32>,
    /// The first superblock that was never used.
    pub fresh: u32,
}

/// All superblocks and the lists of those with free slots. Apart from the file, since slots come
/// back from readers after the file may have been closed.
#[derive(Debug)]
pub(crate) struct Shared {
    pub superblocks: Box<[Superblock]>,
    pub residents: Residents,
    pub pool: Mutex<Pool>,
    listed: Box<[Mutex<Vec<u32>>]>,
    /// By class, how many superblocks it has.
    counts: Box<[AtomicU32]>,
    /// By class, how many of its items were written to slots of the class that serves several.
    sharing: Box<[AtomicU32]>,
    /// Retired slots that wait for readers to leave.
    pub waiting: AtomicUsize,
    /// Whether an eviction has not made its room yet.
    pub evicting: AtomicBool,
    /// Whether some superblock may have become empty.
    some_empty: AtomicBool,
}

impl Shared {
    pub fn new(superblocks: usize) -> Shared {
        Shared {
            superblocks: Superblock::rows(superblocks),
            residents: Residents::default(),
            pool: Mutex::new(Pool { free: Vec::new(), released: Vec::new(), fresh: 1 }),
            listed: (0..CLASSES).map(|_| Mutex::default()).collect(),
            counts: (0..CLASSES).map(|_| AtomicU32::new(0)).collect(),
            sharing: (0..CLASSES).map(|_| AtomicU32::new(0)).collect(),
            waiting: AtomicUsize::new(0),
            evicting: AtomicBool::new(false),
            some_empty: AtomicBool::new(false),
        }
    }

    /// The places of superblocks from `first` on that were ever used, of which there are as many as the pool says.
    pub fn places(&self, pool: &Pool, first: usize) -> impl Iterator<Item = &Place> {
        self.superblocks[first..pool.fresh as usize].iter().map(|superblock| &superblock.place)
    }

    /// Whether a class has any superblock.
    #[inline]
    pub fn has_any(&self, class: usize) -> bool {
        self.counts[class].load(Ordering::Relaxed) > 0
    }

    /// How many items of a class were written to slots that it shares.
    pub fn sharing(&self, class: usize) -> u32 {
        self.sharing[class].load(Ordering::Relaxed)
    }

    /// Counts one.
    pub fn shares(&self, class: usize) {
        self.sharing[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a life of a superblock with these slots, and lists it. `step` comes before each lock that is not taken
    /// within another, here and below: other threads may run then. Returns by how much the memory it takes has grown.
    pub fn begin(&self, number: u32, free: Free, step: impl Fn()) -> i64 {
        let superblock = &self.superblocks[number as usize];
        superblock.life.fetch_add(1, Ordering::AcqRel);
        self.counts[free.class].fetch_add(1, Ordering::Relaxed);
        let grown = free.memory_bytes() as i64;
        step();
        let old = std::mem::replace(&mut *superblock.free.lock(), free);
        self.list(number, step);
        grown - old.memory_bytes() as i64
    }

    /// Ends the life of an unused superblock that is given back to the system; returns by how much the memory it takes
    /// has grown: less than nothing.
    pub fn end(&self, number: u32) -> i64 {
        let superblock = &self.superblocks[number as usize];
        superblock.life.fetch_add(1, Ordering::AcqRel);
        let old = std::mem::take(&mut *superblock.free.lock());
        -(old.memory_bytes() as i64)
    }

    /// Puts a superblock on the list of its class, if it has free slots and is not there.
    fn list(&self, number: u32, step: impl Fn()) {
        let superblock = &self.superblocks[number as usize];
        step();
        let Some(class) = superblock.free.lock().class() else { return };
        step();
        let mut list = self.listed[class].lock();
        let mut free = superblock.free.lock();
        // Looked at again: it may have changed between the locks.
        if free.class() == Some(class) && free.available > 0 && !free.listed && !free.emptied {
            free.listed = true;
            list.push(number);
        }
    }

    /// Moves up to `most` free slots of `class` to `cache`; how many.
    pub fn take(&self, class: usize, most: usize, cache: &mut Vec<u64>) -> usize {
        let mut list = self.listed[class].lock();
        let mut taken = 0;
        while taken < most
            && let Some(number) = list.last().copied()
        {
            let mut free = self.superblocks[number as usize].free.lock();
            while taken < most
                && let Some(slot) = free.take()
            {
                cache.push(free.location(number, slot));
                taken += 1;
            }
            if free.available == 0 {
                free.listed = false;
                list.pop();
            }
        }
        taken
    }

    /// A slot comes back. Ignored if it is of a former life of its superblock.
    pub fn give_back(&self, location: u64, life: u64, step: impl Fn()) {
        let number = superblock_of(location) as u32;
        let superblock = &self.superblocks[number as usize];
        step();
        let mut free = superblock.free.lock();
        if superblock.life.load(Ordering::Acquire) != life || free.slots == 0 {
            return;
        }
        // One that came back twice would be filled under its readers.
        assert!(free.is_taken(location), "a slot at {location} comes back once");
        let slot = free.slot_at(location);
        free.put(slot);
        if free.available == free.slots {
            self.some_empty.store(true, Ordering::Release);
        }
        if !free.listed {
            drop(free);
            self.list(number, step);
        }
    }

    /// Takes a superblock all of whose slots are free away from its class. It belongs to none
    /// then.
    pub fn take_empty(&self, fresh: u32, step: impl Fn()) -> Option<u32> {
        if !self.some_empty.swap(false, Ordering::AcqRel) {
            return None;
        }
        (1..fresh).find(|number| {
            let superblock = &self.superblocks[*number as usize];
            step();
            let is_empty =
                |free: &Free| free.slots > 0 && free.available == free.slots && !free.emptied;
            let class = Some(superblock.free.lock())
                .filter(|free| is_empty(free))
                .and_then(|free| free.class());
            let Some(class) = class else { return false };
            step();
            let mut list = self.listed[class].lock();
            let mut free = superblock.free.lock();
            if free.class() != Some(class) || !is_empty(&free) {
                return false;
            }
            list.retain(|listed| listed != number);
            (free.slots, free.listed) = (0, false);
            self.counts[class].fetch_sub(1, Ordering::Relaxed);
            self.some_empty.store(true, Ordering::Release);
            true
        })
    }

    /// Holds the free slots of a superblock back, and those that come back to it.
    pub fn begin_emptying(&self, number: u32, step: impl Fn()) {
        let superblock = &self.superblocks[number as usize];
        step();
        let Some(class) = superblock.free.lock().class() else { return };
        step();
        let mut list = self.listed[class].lock();
        let mut free = superblock.free.lock();
        if free.class() == Some(class) {
            list.retain(|listed| *listed != number);
            (free.listed, free.emptied) = (false, true);
        }
    }

    /// Lets go of the slots again.
    pub fn end_emptying(&self, number: u32) {
        self.superblocks[number as usize].free.lock().emptied = false;
        self.some_empty.store(true, Ordering::Release);
        self.list(number, || ());
    }

    /// Takes every superblock away from its class; their numbers.
    pub fn take_all(&self) -> Vec<u32> {
        let pool = self.pool.lock();
        let mut taken = Vec::new();
        for number in 1..pool.fresh {
            let superblock = &self.superblocks[number as usize];
            let mut free = superblock.free.lock();
            if free.slots > 0 {
                superblock.life.fetch_add(1, Ordering::AcqRel);
                self.counts[free.class].fetch_sub(1, Ordering::Relaxed);
                (free.slots, free.listed) = (0, false);
                taken.push(number);
            }
        }
        // Afterwards: nothing that belongs to no class is listed any more.
        self.listed.iter().for_each(|list| list.lock().clear());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_of_every_class_is_taken_once_and_comes_back() {
        for class in (0..CLASSES).step_by(5).chain([CLASSES - 1]) {
            let mut free = Free::all(class);
            let all = free.slots;
            let taken: Vec<u32> = std::iter::from_fn(|| free.take()).collect();
            assert!(taken.iter().copied().eq(0..all));
            assert_eq!(free.available, 0);
            for slot in taken.iter().rev().step_by(3) {
                assert_eq!(free.slot_at(free.location(9, *slot)), *slot);
                free.put(*slot);
            }
            let mut listed = Vec::new();
            free.each(|slot| listed.push(slot));
            assert!(std::iter::from_fn(|| free.take()).eq(listed));
        }
    }

    #[test]
    fn a_run_of_slots_is_as_many_single_ones() {
        for run in [0..1, 0..64, 3..67, 63..65, 64..4096, 100..9000, 5..5] {
            let (mut at_once, mut one_by_one) = (Free::none(3), Free::none(3));
            at_once.put_run(run.clone());
            run.clone().for_each(|slot| one_by_one.put(slot));
            let of = |free: &mut Free| (free.bits().words.clone(), free.bits().summary.clone());
            assert_eq!(of(&mut at_once), of(&mut one_by_one));
            assert_eq!(at_once.available, run.end - run.start);
        }
    }

    #[test]
    fn a_superblock_changes_class_only_when_it_is_empty_and_late_slots_are_ignored() {
        let shared = Shared::new(3);
        shared.pool.lock().fresh = 2;
        shared.begin(1, Free::all(40), || ());
        let mut cache = Vec::new();
        assert_eq!(shared.take(40, 2, &mut cache), 2);
        let life = shared.superblocks[1].life.load(Ordering::Relaxed);
        shared.give_back(cache[0], life, || ());
        assert_eq!(shared.take_empty(2, || ()), None);
        shared.give_back(cache[1], life, || ());
        assert_eq!(shared.take_empty(2, || ()), Some(1));
        assert_eq!(shared.take(40, 1, &mut cache), 0);
        shared.begin(1, Free::all(3), || ());
        shared.give_back(cache[0], life, || ());
        let mut mine = Vec::new();
        assert_eq!(shared.take(3, usize::MAX, &mut mine), classes::slots(3) as usize);
        mine.sort_unstable();
        mine.dedup();
        assert_eq!(mine.len(), classes::slots(3) as usize, "no slot twice");
    }
}
