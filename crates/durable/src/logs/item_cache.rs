//! Copies of items whose logs are away, as many as memory allows.
//!
//! Readers take no lock: they look in one line for a location and find a copy, which stays for as long as they hold an
//! epoch guard. Whoever fetched an item from the disk adds it under a lock. Where there is no room, the copies that
//! were asked for least go (CLOCK with a small count instead of a bit: each turn of the hand takes one from the count).
//!
//! A copy says of which log it is, by its sequence number: once the log was freed nobody finds it any more, whatever
//! lies at its location then.

use crate::values::rows::Zeroed;
use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use parking_lot::Mutex;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_memory::Budget;

/// Copies in a set: their locations and where they are take as much as a line.
const WAYS: usize = 4;
/// A location has fewer bits.
const COUNT_SHIFT: u32 = 56;
const COUNT_UNIT: u64 = 1 << COUNT_SHIFT;
const LOCATION: u64 = COUNT_UNIT - 1;
/// How often a copy is known to have been asked for, at the most. Whoever had it fetched asks once.
const COUNT_MOST: u64 = 7;
/// A copy with no more goes when the hand comes.
const COUNT_LEAST: u64 = 1;
/// Words before the bytes: location, sequence number, length in bytes.
const HEAD_WORDS: usize = 3;
/// What the allocator and the epochs take beside, about.
const BESIDE_BYTES: u64 = 32;

/// Not aligned to a line: what is gets all its memory from the start.
struct Set {
    /// Location and count; 0: nothing.
    keys: [AtomicU64; WAYS],
    copies: [Atomic<[MaybeUninit<u64>]>; WAYS],
}

// SAFETY: atomic numbers, and atomic pointers of which one of zeros is null.
unsafe impl Zeroed for Set {}

impl Set {
    /// The way to give up, of a set that is full. Where all were asked for often, what stays counts as asked for once
    /// less.
    fn least_asked_for(&self) -> usize {
        let counts = self.keys.each_ref().map(|key| key.load(Ordering::Relaxed) >> COUNT_SHIFT);
        let are_all_hot = counts.iter().all(|count| *count > COUNT_LEAST);
        for key in self.keys.iter().filter(|_| are_all_hot) {
            let found = key.load(Ordering::Relaxed);
            if found >> COUNT_SHIFT > 0 {
                let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
                let _asked = key.compare_exchange(found, found - COUNT_UNIT, success, failure);
            }
        }
        (0..WAYS).min_by_key(|way| counts[*way]).expect("a set has ways")
    }
}

pub(super) struct ItemCache {
    sets: Box<[Set]>,
    budget: Arc<Budget>,
    /// Bytes of the copies.
    bytes: AtomicU64,
    /// Bytes that they may have.
    most: AtomicU64,
    /// Bytes of those that were let go, and that readers may still look at.
    dropped: Arc<AtomicU64>,
    /// Where the hand is. Held by whoever adds a copy or lets one go.
    hand: Mutex<usize>,
}

/// What a copy is of, and its bytes.
fn parts(words: &[MaybeUninit<u64>]) -> (u64, u64, &[u8]) {
    // SAFETY: `filled` has written all words of each.
    let [location, sequence, length] =
        [0, 1, 2].map(|word: usize| unsafe { words[word].assume_init() });
    let at = words[HEAD_WORDS..].as_ptr().cast::<u8>();
    // SAFETY: as above; `filled` made room for so many bytes.
    (location, sequence, unsafe { std::slice::from_raw_parts(at, length as usize) })
}

fn words_of(bytes: usize) -> usize {
    HEAD_WORDS + bytes.div_ceil(8)
}

fn filled(location: u64, sequence: u64, bytes: &[u8]) -> Owned<[MaybeUninit<u64>]> {
    let mut words = Owned::<[MaybeUninit<u64>]>::init(words_of(bytes.len()));
    for (word, value) in words.iter_mut().zip([location, sequence, bytes.len() as u64]) {
        word.write(value);
    }
    for (word, chunk) in words[HEAD_WORDS..].iter_mut().zip(bytes.chunks(8)) {
        let mut value = [0; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        word.write(u64::from_ne_bytes(value));
    }
    words
}

/// The copies of a map: none while no log is away.
#[derive(Debug)]
pub(super) struct Copies {
    cache: Atomic<ItemCache>,
    /// Held while others take their place.
    replacing: Mutex<()>,
    /// Whether there is room for few alone, since all logs are about to come back.
    are_few: AtomicBool,
}

impl Default for Copies {
    fn default() -> Copies {
        let (cache, replacing) = (Atomic::null(), Mutex::default());
        Copies { cache, replacing, are_few: AtomicBool::new(false) }
    }
}

impl Copies {
    #[inline(always)]
    pub fn get<'g>(&self, guard: &'g Guard) -> Option<&'g ItemCache> {
        // SAFETY: one is dropped when no guard from before it was replaced is held.
        unsafe { self.cache.load(Ordering::Acquire, guard).as_ref() }
    }

    /// What `f` says of them, if there are any.
    pub fn ask<R>(&self, f: impl FnOnce(&ItemCache) -> R) -> Option<R> {
        self.get(&crossbeam_epoch::pin()).map(f)
    }

    /// Makes room for as many as there may be, if there is none, or for few alone.
    pub fn make(&self, make: impl FnOnce() -> ItemCache) {
        let guard = crossbeam_epoch::pin();
        if self.get(&guard).is_some() && !self.are_few.load(Ordering::Acquire) {
            return;
        }
        let _alone = self.replacing.lock();
        if self.get(&guard).is_none() || self.are_few.load(Ordering::Acquire) {
            self.replace(Some(make()), false, &guard);
        }
    }

    /// Makes room for few.
    pub fn make_few(&self, few: ItemCache) {
        let _alone = self.replacing.lock();
        self.replace(Some(few), true, &crossbeam_epoch::pin());
    }

    /// No log is away.
    pub fn forget(&self) {
        let _alone = self.replacing.lock();
        self.replace(None, false, &crossbeam_epoch::pin());
    }

    fn replace(&self, cache: Option<ItemCache>, are_few: bool, guard: &Guard) {
        let cache = cache.map_or(Shared::null(), |cache| Owned::new(cache).into_shared(guard));
        let before = self.cache.swap(cache, Ordering::AcqRel, guard);
        self.are_few.store(are_few, Ordering::Release);
        if !before.is_null() {
            // SAFETY: nobody finds it any more, and whoever has found it, or a copy in it, holds a guard.
            unsafe { guard.defer_destroy(before) };
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // SAFETY: whoever drops it is alone with it.
        drop(unsafe { std::mem::replace(&mut self.cache, Atomic::null()).try_into_owned() });
    }
}

impl ItemCache {
    /// For at most so many bytes of copies of about `item_bytes`.
    pub fn new(budget: &Arc<Budget>, most: u64, item_bytes: u64) -> ItemCache {
        let copies = most / (item_bytes + BESIDE_BYTES + 8 * HEAD_WORDS as u64);
        // A quarter more, since sets fill unevenly.
        let sets = (copies + copies / 4).div_ceil(WAYS as u64).max(16);
        budget.take_anyway(sets * size_of::<Set>() as u64);
        ItemCache {
            sets: Set::rows(sets as usize),
            budget: Arc::clone(budget),
            bytes: AtomicU64::new(0),
            most: AtomicU64::new(most),
            dropped: Arc::default(),
            hand: Mutex::new(0),
        }
    }

    /// Bytes that they may have.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that come back when readers have left.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// From here on so many bytes are kept.
    pub fn limit(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
        if self.bytes() > most {
            let guard = crossbeam_epoch::pin();
            self.make_room(0, &mut self.hand.lock(), &guard);
        }
    }

    #[inline(always)]
    fn set(&self, location: u64) -> &Set {
        let mixed = location.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (u128::from(mixed) * self.sets.len() as u128) >> 64;
        &self.sets[set as usize]
    }

    /// The bytes of the item at `location` of the log with this sequence number.
    pub fn get<'g>(&self, location: u64, sequence: u64, guard: &'g Guard) -> Option<&'g [u8]> {
        let set = self.set(location);
        for (key, copy) in set.keys.iter().zip(&set.copies) {
            let found = key.load(Ordering::Acquire);
            if found & LOCATION != location {
                continue;
            }
            let copy = copy.load(Ordering::Acquire, guard);
            // SAFETY: a copy is dropped when no guard from before it was taken out is held.
            let Some(words) = (unsafe { copy.as_ref() }) else { continue };
            let (at, of, bytes) = parts(words);
            if (at, of) == (location, sequence) {
                if found >> COUNT_SHIFT < COUNT_MOST {
                    // Lost where another comes in between: it is an estimate.
                    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
                    let _other = key.compare_exchange(found, found + COUNT_UNIT, success, failure);
                }
                return Some(bytes);
            }
        }
        None
    }

    /// Keeps a copy.
    pub fn add(&self, location: u64, sequence: u64, bytes: &[u8], guard: &Guard) {
        let taken = taken(words_of(bytes.len()));
        let copy = filled(location, sequence, bytes);
        // What went before is given back as soon as nobody looks at it: little compared with the read of an item.
        guard.flush();
        let mut hand = self.hand.lock();
        self.make_room(taken, &mut hand, guard);
        let set = self.set(location);
        let keys = || set.keys.iter().map(|key| key.load(Ordering::Relaxed));
        // The one of this location, which may be an older log's; an empty one; the least asked for.
        let way = keys().position(|key| key & LOCATION == location);
        let way = way.or_else(|| keys().position(|key| key == 0));
        let way = way.unwrap_or_else(|| set.least_asked_for());
        self.remove(set, way, guard);
        self.budget.take_anyway(taken);
        self.bytes.fetch_add(taken, Ordering::Relaxed);
        set.copies[way].store(copy, Ordering::Release);
        set.keys[way].store(location, Ordering::Release);
    }

    /// Lets copies go until there is room for so many bytes, or there are none.
    fn make_room(&self, taken: u64, hand: &mut usize, guard: &Guard) {
        let most = self.most();
        let mut turns = self.sets.len() * (COUNT_MOST as usize + 1);
        while self.bytes() > 0 && self.bytes() + taken > most && turns > 0 {
            let set = &self.sets[*hand];
            for way in 0..WAYS {
                let key = set.keys[way].load(Ordering::Relaxed);
                match key >> COUNT_SHIFT {
                    0..=COUNT_LEAST if key != 0 => self.remove(set, way, guard),
                    0 => {}
                    _ => _ = set.keys[way].fetch_sub(COUNT_UNIT, Ordering::Relaxed),
                }
            }
            *hand = (*hand + 1) % self.sets.len();
            turns -= 1;
        }
    }

    /// Under the lock of the hand.
    fn remove(&self, set: &Set, way: usize, guard: &Guard) {
        set.keys[way].store(0, Ordering::Release);
        let copy = set.copies[way].swap(Shared::null(), Ordering::AcqRel, guard);
        // SAFETY: it was in its place until now, and only the lock of the hand takes it out.
        let Some(words) = (unsafe { copy.as_ref() }) else { return };
        let taken = taken(words.len());
        self.bytes.fetch_sub(taken, Ordering::Relaxed);
        self.dropped.fetch_add(taken, Ordering::Relaxed);
        let (budget, dropped) = (Arc::clone(&self.budget), Arc::clone(&self.dropped));
        // SAFETY: nobody finds it any more, and whoever has found it holds a guard.
        unsafe {
            guard.defer_unchecked(move || {
                drop(copy.into_owned());
                budget.give(taken);
                dropped.fetch_sub(taken, Ordering::Relaxed);
            });
        }
    }
}

/// What a copy of so many words takes.
fn taken(words: usize) -> u64 {
    8 * words as u64 + BESIDE_BYTES
}

impl Drop for ItemCache {
    fn drop(&mut self) {
        self.budget.give(self.bytes() + self.sets.len() as u64 * size_of::<Set>() as u64);
        for copy in self.sets.iter_mut().flat_map(|set| &mut set.copies) {
            // SAFETY: whoever drops the cache is alone with it.
            drop(unsafe { std::mem::take(copy).try_into_owned() });
        }
    }
}

impl std::fmt::Debug for ItemCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemCache").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: [u8; 100] = [7; 100];

    fn cache(most: u64) -> (Arc<Budget>, ItemCache) {
        let budget = Arc::new(Budget::new(1 << 30));
        let cache = ItemCache::new(&budget, most, 100);
        (budget, cache)
    }

    #[test]
    fn a_copy_is_of_one_location_in_one_log() {
        let (_, cache) = cache(1 << 20);
        let guard = crossbeam_epoch::pin();
        assert_eq!(cache.get(64, 1, &guard), None);
        cache.add(64, 1, b"an odd length", &guard);
        assert_eq!(cache.get(64, 1, &guard), Some(&b"an odd length"[..]));
        assert_eq!(cache.get(64, 2, &guard), None, "of a log that has the place now");
        assert_eq!(cache.get(72, 1, &guard), None);
        cache.add(64, 2, b"another", &guard);
        assert_eq!(cache.get(64, 2, &guard), Some(&b"another"[..]));
        assert_eq!(cache.get(64, 1, &guard), None);
    }

    #[test]
    fn what_is_asked_for_stays_and_the_limit_holds() {
        let (budget, cache) = cache(64 << 10);
        let before = budget.used();
        let hot = || (1..=100).map(|n| n * 8);
        let mut kept = 0;
        for round in 0..40u64 {
            let guard = crossbeam_epoch::pin();
            for location in hot() {
                match cache.get(location, 1, &guard) {
                    Some(found) => {
                        assert_eq!(found, ITEM);
                        kept += u64::from(round == 39);
                    }
                    None => {
                        cache.add(location, 1, &ITEM, &guard);
                        // Whoever had it fetched looks at it.
                        assert!(cache.get(location, 1, &guard).is_some());
                    }
                }
            }
            for cold in 0..200 {
                let location = (round + 1) * 100_000 + cold * 8;
                cache.add(location, 1, &ITEM, &guard);
                assert!(cache.get(location, 1, &guard).is_some());
            }
            assert!(cache.bytes() <= 64 << 10);
        }
        assert!(kept >= 95, "{kept} of 100 that are asked for in each round");
        cache.limit(0);
        assert_eq!(cache.bytes(), 0);
        drop(cache);
        for _ in 0..1000 {
            crossbeam_epoch::pin().flush();
            if budget.used() == 0 {
                break;
            }
        }
        assert!(budget.used() == 0 && before > 0, "{} of {before}", budget.used());
    }
}
