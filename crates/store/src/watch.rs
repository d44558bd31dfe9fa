//! Watched keys: who reads a key and acts on it later learns whether it was written meanwhile.
//!
//! A version alone cannot tell: a deleted key's next life counts from 1 again and may get the same
//! place, and absence has no version. So writers count writes of the keys that somebody watches.
//! While nobody watches any, that costs a writer one load of a word that nobody changes.
//!
//! # Why no write is missed
//! A watcher joins the registry first, then locks and unlocks the key's bucket. A writer asks the
//! registry while it holds that lock, before its write is published. So a writer either left the
//! lock before the watcher took it, and the write came before the watch began; or it takes the lock
//! after the watcher, sees the registry as the watcher left it, and counts.
//!
//! # Reservations
//! A batch that read keys is applied only if none of them was written since. It *reserves* the keys
//! that it read and those it writes, each by one compare-and-swap that fails if the key was written or
//! another batch has it reserved; whoever writes a reserved key waits, holding nothing. A batch waits
//! for no other while it has reservations, so none waits for ever.

use crate::engine::{Engine, Value};
use crate::index::KeyIndex;
use crate::located::OfWriter;
use crate::map::Map;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use terrace_index::hash_key;
use terrace_memory::{Memory, Native};

/// Tables of watched keys; a power of two.
const SHARDS: usize = 64;
/// Of a watched key's state: a batch has it reserved. The rest counts writes.
const RESERVED: u64 = 1;
const ONE_WRITE: u64 = 2;

/// What became of a watched key.
pub(crate) type State = Arc<AtomicU64>;

#[derive(Default)]
struct Watched {
    state: State,
    watchers: usize,
}

/// Watched keys, by key.
type Shard = HashMap<Box<[u8]>, Watched>;

/// The watched keys of a map.
pub(crate) struct Registry {
    /// Watchers of all keys.
    watchers: CachePadded<AtomicUsize>,
    shards: Box<[Mutex<Shard>]>,
    /// How often the map was cleared, times two; odd while it is. That writes no key by itself.
    clears: AtomicU64,
}

/// A map that is being cleared, until this is dropped.
pub(crate) struct Clearing<'a>(&'a AtomicU64);

impl Drop for Clearing<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Default for Registry {
    fn default() -> Registry {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Registry { watchers: CachePadded::default(), shards, clears: AtomicU64::new(0) }
    }
}

impl Registry {
    /// Whether any key is watched. A writer asks while it holds its key's lock.
    #[inline(always)]
    pub fn has_watchers(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) != 0
    }

    /// Says that the map is being cleared, before the first of its keys is gone. No writer is held by anybody else.
    pub fn clear(&self) -> Clearing<'_> {
        self.clears.fetch_add(1, Ordering::Relaxed);
        // Whoever misses a key sees the count.
        fence(Ordering::Release);
        Clearing(&self.clears)
    }

    fn shard(&self, hash: u64) -> &Mutex<HashMap<Box<[u8]>, Watched>> {
        &self.shards[hash as usize % SHARDS]
    }

    /// Watches `key`, until [`Registry::leave`].
    fn join(&self, hash: u64, key: &[u8]) -> State {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        let mut shard = self.shard(hash).lock();
        if let Some(watched) = shard.get_mut(key) {
            watched.watchers += 1;
            return Arc::clone(&watched.state);
        }
        let watched = shard.entry(key.into()).or_default();
        watched.watchers = 1;
        Arc::clone(&watched.state)
    }

    fn leave(&self, hash: u64, key: &[u8]) {
        let mut shard = self.shard(hash).lock();
        if let Some(watched) = shard.get_mut(key) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                shard.remove(key);
            }
        }
        drop(shard);
        self.watchers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts that `key`, whose lock the caller holds, was evicted; also if a batch has it reserved, which then wrote
    /// before.
    #[cold]
    pub fn evicted(&self, hash: u64, key: &[u8]) {
        if let Some(watched) = self.shard(hash).lock().get(key) {
            watched.state.fetch_add(ONE_WRITE, Ordering::AcqRel);
        }
    }

    /// Counts a write of `key`, whose lock the caller holds. False: a batch has the key reserved, and
    /// it is not the caller's; nothing may be written then.
    #[cold]
    pub fn may_write(&self, hash: u64, key: &[u8], is_mine: bool) -> bool {
        let state = self.shard(hash).lock().get(key).map(|watched| Arc::clone(&watched.state));
        let counted = |state: &State| {
            let count = |state: u64| {
                (is_mine || state & RESERVED == 0).then(|| state.wrapping_add(ONE_WRITE))
            };
            state.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).is_ok()
        };
        state.is_none_or(|state| counted(&state))
    }
}

/// The keys that a batch read, and what they were then.
#[derive(Default)]
pub(crate) struct Reads {
    keys: HashMap<Box<[u8]>, Seen>,
    /// Clears of the map before the first was read.
    clears: u64,
}

struct Seen {
    hash: u64,
    state: State,
    seen: u64,
}

impl Reads {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the map was not cleared since they were read, nor is it now.
    fn are_uncleared(&self, registry: &Registry) -> bool {
        fence(Ordering::Acquire);
        let clears = registry.clears.load(Ordering::Relaxed);
        clears == self.clears && clears.is_multiple_of(2)
    }
}

/// Keys reserved for a batch, until this is dropped.
pub(crate) struct Reservation<'a> {
    registry: &'a Registry,
    /// Those that it read.
    read: Vec<&'a State>,
    /// Those that it only writes.
    written: Vec<(u64, &'a [u8], State)>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        for state in &self.read {
            state.fetch_and(!RESERVED, Ordering::AcqRel);
        }
        for (hash, key, state) in &self.written {
            state.fetch_and(!RESERVED, Ordering::AcqRel);
            self.registry.leave(*hash, key);
        }
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Locks and unlocks the bucket of a key just joined: from here on no write of it is missed.
    fn settle_watch(&self, hash: u64, key: &[u8]) {
        let guard = OfWriter::of(&self.index);
        self.index.look(hash, key, &self.located(guard.get()), |_| ());
    }

    /// Notes that a batch is about to read `key`.
    pub fn watch_read(&self, reads: &mut Reads, key: &[u8]) {
        if reads.keys.contains_key(key) {
            return;
        }
        if reads.is_empty() {
            reads.clears = self.watches.clears.load(Ordering::Acquire);
        }
        let hash = hash_key(self.seed, key);
        let state = self.watches.join(hash, key);
        let seen = state.load(Ordering::Acquire);
        self.settle_watch(hash, key);
        reads.keys.insert(key.into(), Seen { hash, state, seen });
    }

    /// Forgets what a batch read.
    pub fn forget_reads(&self, reads: &mut Reads) {
        for (key, Seen { hash, .. }) in reads.keys.drain() {
            self.watches.leave(hash, &key);
        }
    }

    /// Whether none of the keys was written since it was read, or is about to be.
    pub fn holds(&self, reads: &Reads) -> bool {
        let are_unwritten =
            || reads.keys.values().all(|read| read.state.load(Ordering::Acquire) == read.seen);
        reads.is_empty() || (are_unwritten() && reads.are_uncleared(&self.watches))
    }

    /// Reserves what was read, if it is as it was, and the keys to be written. The caller holds a writer, so that
    /// the map is not being cleared, nor will be before they are written.
    pub fn reserve<'a>(
        &'a self,
        reads: &'a Reads,
        written: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Reservation<'a>> {
        // What is reserved so far is let go of if something is not to be had.
        let registry = &self.watches;
        let mut reservation = Reservation { registry, read: Vec::new(), written: Vec::new() };
        let reserved = |state: &State, seen: u64| {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            state.compare_exchange(seen, seen | RESERVED, success, failure).is_ok()
        };
        if !reads.are_uncleared(registry) {
            return None;
        }
        for read in reads.keys.values() {
            // One that another batch has reserved is about to be written.
            if read.seen & RESERVED != 0 || !reserved(&read.state, read.seen) {
                return None;
            }
            reservation.read.push(&read.state);
        }
        for key in written.filter(|key| !reads.keys.contains_key(*key)) {
            let hash = hash_key(self.seed, key);
            let state = registry.join(hash, key);
            let unreserved = state.load(Ordering::Acquire) & !RESERVED;
            let is_reserved = reserved(&state, unreserved);
            if !is_reserved {
                registry.leave(hash, key);
                return None;
            }
            reservation.written.push((hash, key, state));
        }
        Some(reservation)
    }
}

/// Watches a key from [`Map::watch`] until it is dropped.
///
/// # Guarantees
/// [`Watch::is_unchanged`] says yes only if the key was not written, deleted or made anew since, nor
/// has it expired or been evicted. A value written again, the same bytes included, is a change, and
/// so is a key that was absent, was written and deleted again. A value that the map only moved is none.
pub struct Watch<M: Memory = Native, I: Memory = Native> {
    map: Map<M, I>,
    key: Box<[u8]>,
    hash: u64,
    state: State,
    seen: u64,
    was_there: bool,
}

impl<M: Memory, I: Memory> Watch<M, I> {
    pub(crate) fn new(map: &Map<M, I>, key: &[u8]) -> Watch<M, I> {
        let engine = &map.inner.engine;
        let hash = hash_key(engine.seed, key);
        let state = engine.watches.join(hash, key);
        let seen = state.load(Ordering::Acquire) & !RESERVED;
        engine.settle_watch(hash, key);
        let mut watch =
            Watch { map: map.clone(), key: key.into(), hash, state, seen, was_there: false };
        watch.was_there = watch.is_there();
        watch
    }

    /// The key.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// assert_eq!(map.watch(b"ada").key(), b"ada");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether the key is as it was when the watch began.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let map = terrace_store::Map::open(dir.path(), Default::default())?;
    /// let watch = map.watch(b"ada");
    /// assert!(watch.is_unchanged());
    /// map.put(b"ada", b"lovelace")?;
    /// assert!(!watch.is_unchanged());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_unchanged(&self) -> bool {
        // Of writes that are over by now none is missed, whichever is asked first.
        let is_there = !self.was_there || self.is_there();
        is_there && self.state.load(Ordering::Acquire) & !RESERVED == self.seen
    }

    /// Nobody is told the value: what may be lost of it does not matter.
    fn is_there(&self) -> bool {
        // A key whose value is damaged is there.
        self.map
            .inner
            .engine
            .get(&self.key, |_: Value<'_>| ())
            .map_or(true, |found| found.0.is_some())
    }
}

impl<M: Memory, I: Memory> Drop for Watch<M, I> {
    fn drop(&mut self) {
        self.map.inner.engine.watches.leave(self.hash, &self.key);
    }
}
