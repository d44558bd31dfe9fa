//! Copies of items whose logs are away, as many as memory allows.
//!
//! Readers take no lock: they find a copy in a table by its location, and it stays for as long as they hold an epoch
//! guard. Whoever fetched an item from the disk adds it under a lock, and copies that are in the way go
//! ([`queues`]: which). A copy says of which log it is, by its sequence number: once the log was freed nobody finds it
//! any more, whatever lies at its location then.

mod copy;
mod queues;
mod remembered;

use self::copy::{CopiedItem, Link};
use self::queues::Queues;
use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use parking_lot::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_memory::Budget;

/// The copies of a map: none while no log is away.
#[derive(Debug)]
pub(super) struct Copies {
    cache: Atomic<ItemCache>,
    /// Held while others take their place.
    replacing: Mutex<()>,
    /// Whether there is room for few alone, since all logs are about to come back.
    are_few: AtomicBool,
    /// Copies that those before this cache had in vain.
    unused_before: AtomicU64,
}

impl Default for Copies {
    fn default() -> Copies {
        let (cache, replacing) = (Atomic::null(), Mutex::default());
        let unused_before = AtomicU64::new(0);
        Copies { cache, replacing, are_few: AtomicBool::new(false), unused_before }
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

    /// See [`ItemCache::unused`], of all caches so far.
    pub fn unused(&self) -> u64 {
        self.unused_before.load(Ordering::Relaxed) + self.ask(ItemCache::unused).unwrap_or(0)
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
        // SAFETY: as in `get`.
        if let Some(former) = unsafe { before.as_ref() } {
            self.unused_before.fetch_add(former.unused(), Ordering::Relaxed);
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

/// Copies, at most so many bytes of them.
pub struct ItemCache {
    /// The first copy of each chain.
    chains: Box<[Link]>,
    /// Bytes that they may have.
    most: AtomicU64,
    /// Held by whoever adds a copy or lets one go.
    queues: Mutex<Queues>,
    counts: Arc<Counts>,
}

/// What copies take, and what became of them.
struct Counts {
    budget: Arc<Budget>,
    /// Bytes of the copies.
    bytes: AtomicU64,
    /// Bytes of those that were let go, and that readers may still look at.
    dropped: AtomicU64,
    /// Copies that went without having been asked for again.
    unused: AtomicU64,
}

impl ItemCache {
    /// For at most so many bytes of copies of about `item_bytes`.
    pub fn new(budget: &Arc<Budget>, most: u64, item_bytes: u64) -> ItemCache {
        let copies = (most / copy::taken(item_bytes as usize)).max(16) as usize;
        let chains: Box<[Link]> = (0..copies).map(|_| Link::default()).collect();
        let queues = Queues::new(copies);
        budget.take_anyway(queues.bytes() + size_of_val(&*chains) as u64);
        let counts = Counts {
            budget: Arc::clone(budget),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unused: AtomicU64::new(0),
        };
        let (queues, counts) = (Mutex::new(queues), Arc::new(counts));
        ItemCache { chains, most: AtomicU64::new(most), queues, counts }
    }

    /// What a copy of an item of so many bytes takes.
    pub fn copy_bytes(item_bytes: usize) -> u64 {
        copy::taken(item_bytes)
    }

    /// Bytes that they may have.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Bytes of the copies.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that come back when readers have left.
    pub fn dropped_bytes(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Copies that went without having been asked for again: each was made in vain.
    pub fn unused(&self) -> u64 {
        self.counts.unused.load(Ordering::Relaxed)
    }

    /// From here on so many bytes are kept.
    pub fn limit(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
        if self.bytes() > most {
            let guard = crossbeam_epoch::pin();
            self.make_room(0, &mut self.queues.lock(), &guard);
        }
    }

    #[inline(always)]
    fn chain(&self, location: u64) -> &Link {
        let mixed = location.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let chain = (u128::from(mixed) * self.chains.len() as u128) >> 64;
        &self.chains[chain as usize]
    }

    /// The bytes of the item at `location` of the log with this sequence number.
    ///
    /// # Complexity
    /// O(1): about one copy a chain.
    pub(super) fn get<'g>(
        &self,
        location: u64,
        sequence: u64,
        _guard: &'g Guard,
    ) -> Option<&'g [u8]> {
        // SAFETY: a copy is dropped when no guard from before it was taken out is held.
        let copy = unsafe { self.chain(location).find(location, sequence) }?;
        // SAFETY: as above, and nobody writes to its bytes.
        let (copy, bytes) = unsafe { (copy.as_ref(), CopiedItem::bytes(copy)) };
        copy.was_asked_for();
        Some(bytes)
    }

    /// Keeps a copy. What goes for it is given back when nobody looks at it any more, and the caller flushes the guard.
    ///
    /// # Complexity
    /// O(1): each copy in the way is passed a few times at the most.
    pub(super) fn add(&self, location: u64, sequence: u64, bytes: &[u8], guard: &Guard) {
        let copy = CopiedItem::new(location, sequence, bytes);
        let taken = copy::taken(bytes.len());
        let mut queues = self.queues.lock();
        let chain = self.chain(location);
        // SAFETY: only the holder of the lock takes copies out.
        if unsafe { chain.find(location, sequence) }.is_some() {
            // Somebody else had it fetched at the same time.
            // SAFETY: nobody else knows of the new one.
            unsafe { CopiedItem::drop(copy) };
            return;
        }
        self.make_room(taken, &mut queues, guard);
        self.counts.budget.take_anyway(taken);
        self.counts.bytes.fetch_add(taken, Ordering::Relaxed);
        // SAFETY: a new copy, in neither a chain nor a queue.
        unsafe {
            queues.push(copy);
            chain.push(copy);
        }
    }

    /// Whether there is a copy, which counts as asked for; else keeps one, as a reader does who has the item fetched
    /// and looks again.
    ///
    /// # Complexity
    /// O(1).
    pub fn ask(&self, location: u64, sequence: u64, bytes: &[u8]) -> bool {
        let guard = crossbeam_epoch::pin();
        let was_there = self.get(location, sequence, &guard).is_some();
        if !was_there {
            self.add(location, sequence, bytes, &guard);
            self.get(location, sequence, &guard);
            guard.flush();
        }
        was_there
    }

    /// Lets copies go until there is room for so many bytes, or there are none.
    fn make_room(&self, taken: u64, queues: &mut Queues, guard: &Guard) {
        let most = self.most();
        while self.bytes() + taken > most {
            let Some((copy, was_used)) = queues.pop(most) else { return };
            self.counts.unused.fetch_add(u64::from(!was_used), Ordering::Relaxed);
            self.take_out(copy, guard);
        }
    }

    /// Under the lock of the queues: one that has left them.
    fn take_out(&self, copy: NonNull<CopiedItem>, guard: &Guard) {
        // SAFETY: it is in its chain until here, since only the holder of the lock takes it out.
        let found = unsafe { copy.as_ref() };
        let (location, taken) = (found.location, found.taken());
        // SAFETY: as above.
        unsafe { self.chain(location).take_out(copy) };
        self.counts.bytes.fetch_sub(taken, Ordering::Relaxed);
        self.counts.dropped.fetch_add(taken, Ordering::Relaxed);
        let counts = Arc::clone(&self.counts);
        // SAFETY: nobody finds it any more, and whoever has found it holds a guard.
        unsafe {
            guard.defer_unchecked(move || {
                CopiedItem::drop(copy);
                counts.budget.give(taken);
                counts.dropped.fetch_sub(taken, Ordering::Relaxed);
            });
        }
    }
}

impl Drop for ItemCache {
    fn drop(&mut self) {
        let queues = self.queues.get_mut();
        let own = queues.bytes() + size_of_val(&*self.chains) as u64;
        while let Some(copy) = queues.pop_any() {
            // SAFETY: whoever drops the cache is alone with it, and each copy is in one queue.
            unsafe { CopiedItem::drop(copy) };
        }
        self.counts.budget.give(self.counts.bytes.load(Ordering::Relaxed) + own);
    }
}

impl std::fmt::Debug for ItemCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemCache").field("bytes", &self.bytes()).finish_non_exhaustive()
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
        let before = cache.bytes();
        cache.add(64, 2, b"another", &guard);
        assert_eq!(cache.bytes(), before, "fetched twice at a time");
    }

    #[test]
    fn what_is_asked_for_stays_and_the_limit_holds() {
        let (budget, cache) = cache(64 << 10);
        let before = budget.used();
        let mut kept = 0;
        for round in 0..40u64 {
            kept = (1..=100).filter(|n| cache.ask(n * 8, 1, &ITEM)).count();
            for cold in 0..200 {
                cache.ask((round + 1) * 100_000 + cold * 8, 1, &ITEM);
            }
            assert!(cache.bytes() <= 64 << 10);
        }
        assert!(kept >= 95, "{kept} of 100 that are asked for in each round");
        let (unused, others) = (cache.unused(), 40 * 200);
        assert!((others - 600..=others + 300).contains(&unused), "{unused} went unused");
        cache.limit(0);
        assert_eq!(cache.bytes(), 0);
        drop(cache);
        // Other tests of this program hold guards too.
        let start = std::time::Instant::now();
        while budget.used() > 0 && start.elapsed().as_secs() < 20 {
            crossbeam_epoch::pin().flush();
            std::thread::yield_now();
        }
        assert!(budget.used() == 0 && before > 0, "{} of {before}", budget.used());
    }

    /// What a reader has found does not change before it lets its guard go, whatever others do.
    #[test]
    fn readers_find_what_was_added_while_others_take_it_out() {
        const THREADS: u64 = 4;
        let (_, cache) = cache(32 << 10);
        let bytes = |n: u64| n.to_le_bytes().repeat(n as usize % 20 + 1);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let cache = &cache;
                scope.spawn(move || {
                    let mut random = thread + 1;
                    for _ in 0..30_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let n = (random >> 40) % 400;
                        let guard = crossbeam_epoch::pin();
                        match cache.get(n * 8, 1, &guard) {
                            Some(found) => assert_eq!(found, bytes(n)),
                            None => cache.add(n * 8, 1, &bytes(n), &guard),
                        }
                    }
                });
            }
        });
        assert!(cache.bytes() <= 32 << 10);
    }
}
