//! Watched keys and reservations: the protocol between watchers, batches and writers.
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
//!
//! # Held ranges
//! A serializable transaction that read ranges *holds* them until it is committed: nobody else writes into one
//! meanwhile, also a key that was not there. It says so here, and then has each writer's lock for a moment: whoever had
//! one before and did not know is done then. So it may not have one itself, and whoever waits for a range may not
//! either.

#[path = "registry/ranges.rs"]
mod ranges;

pub(crate) use ranges::{HeldRanges, Span};

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, fence};
use crossbeam_utils::CachePadded;
use ranges::Ranges;
use std::collections::HashMap;
use std::sync::Arc;

/// Tables of watched keys; a power of two.
const SHARDS: usize = 64;
/// Of a watched key's state: a batch has it reserved. The rest counts writes.
pub(super) const RESERVED: u64 = 1;
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
    /// Watchers of all keys, and one for snapshots.
    watchers: CachePadded<AtomicUsize>,
    /// Whether what keys were is kept for snapshots.
    keeps_versions: AtomicBool,
    shards: Box<[Mutex<Shard>]>,
    /// How often the map was cleared, times two; odd while it is. That writes no key by itself.
    clears: AtomicU64,
    ranges: Ranges,
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
        Registry {
            watchers: CachePadded::default(),
            keeps_versions: AtomicBool::new(false),
            shards,
            clears: AtomicU64::new(0),
            ranges: Ranges::default(),
        }
    }
}

impl Registry {
    /// Whether any key is watched. A writer asks while it holds its key's lock.
    #[inline(always)]
    pub fn has_watchers(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) != 0
    }

    /// From here on what keys were is kept, or not any more. One caller at a time.
    pub fn keep_versions(&self, are_kept: bool) {
        if self.are_versions_kept() != are_kept {
            self.keeps_versions.store(are_kept, Ordering::SeqCst);
            match are_kept {
                true => self.watchers.fetch_add(1, Ordering::SeqCst),
                false => self.watchers.fetch_sub(1, Ordering::SeqCst),
            };
        }
    }

    /// Whether what keys were is kept. A writer asks while it holds its key's lock.
    pub fn are_versions_kept(&self) -> bool {
        self.keeps_versions.load(Ordering::SeqCst)
    }

    /// Whether the map is being cleared.
    pub fn is_clearing(&self) -> bool {
        !self.clears.load(Ordering::SeqCst).is_multiple_of(2)
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
    pub(super) fn join(&self, hash: u64, key: &[u8]) -> State {
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

    pub(super) fn leave(&self, hash: u64, key: &[u8]) {
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

    /// Holds ranges until what is returned is dropped. The caller then has each writer's lock for a moment.
    pub fn hold_ranges(&self, spans: Vec<Span>) -> HeldRanges<'_> {
        self.ranges.hold(spans)
    }

    /// Whether somebody holds a range with `key`, `own` ranges aside.
    pub fn is_in_held_range(&self, key: &[u8], own: Option<&HeldRanges<'_>>) -> bool {
        self.ranges.are_held_with(key, own)
    }

    /// Counts a write of `key`, whose lock the caller holds. False: a batch has the key reserved, or holds a range with
    /// it, and it is not the caller's; nothing may be written then.
    #[cold]
    pub fn may_write(&self, hash: u64, key: &[u8], is_mine: bool) -> bool {
        if !is_mine && self.ranges.are_held_with(key, None) {
            return false;
        }
        let state = self.shard(hash).lock().get(key).map(|watched| Arc::clone(&watched.state));
        let counted = |state: &State| {
            let count = |state: u64| {
                (is_mine || state & RESERVED == 0).then(|| state.wrapping_add(ONE_WRITE))
            };
            state.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).is_ok()
        };
        state.is_none_or(|state| counted(&state))
    }

    /// Notes that a batch is about to read `key`. `settle` locks the key's bucket and lets go of it: from then on no
    /// write of it is missed.
    pub(super) fn read(&self, reads: &mut Reads, hash: u64, key: &[u8], settle: impl FnOnce()) {
        if reads.is_empty() {
            reads.clears = self.clears.load(Ordering::Acquire);
        }
        let state = self.join(hash, key);
        let seen = state.load(Ordering::Acquire);
        settle();
        reads.keys.insert(key.into(), Seen { hash, state, seen });
    }

    /// Forgets what a batch read.
    pub fn forget(&self, reads: &mut Reads) {
        for (key, Seen { hash, .. }) in reads.keys.drain() {
            self.leave(hash, &key);
        }
    }

    /// Whether none of the keys was written since it was read, or is about to be, nor was when it was read: of two keys
    /// of one batch the first may have been read as it is after it, and the second as before.
    pub fn holds(&self, reads: &Reads) -> bool {
        let is_unwritten = |read: &Seen| {
            read.seen & RESERVED == 0 && read.state.load(Ordering::Acquire) == read.seen
        };
        let are_unwritten = || reads.keys.values().all(is_unwritten);
        reads.is_empty() || (are_unwritten() && reads.are_uncleared(self))
    }

    /// Reserves what was read, if it is as it was, and the keys to be written. The caller holds a writer, so that
    /// the map is not being cleared, nor will be before they are written.
    pub(super) fn reserve<'a>(
        &'a self,
        reads: &'a Reads,
        written: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Option<Reservation<'a>> {
        // What is reserved so far is let go of if something is not to be had.
        let mut reservation = Reservation { registry: self, read: Vec::new(), written: Vec::new() };
        if !reads.are_uncleared(self) {
            return None;
        }
        for read in reads.keys.values() {
            // One that another batch has reserved is about to be written.
            if read.seen & RESERVED != 0 || !reserved(&read.state, read.seen) {
                return None;
            }
            reservation.read.push(&read.state);
        }
        for (hash, key) in written {
            let was_read = reads.keys.contains_key(key);
            if self.ranges.are_held_with(key, None) || !was_read && !reservation.add(hash, key) {
                return None;
            }
        }
        Some(reservation)
    }

    /// Reserves keys for who has read none of them under watch, in an order that all callers have in common; `own`
    /// ranges are no hindrance. The caller has a writer of the map if any of them is to be written.
    ///
    /// # Errors
    /// Which is not to be had, and why. Nothing is reserved then.
    pub(super) fn reserve_keys<'a>(
        &'a self,
        keys: impl Iterator<Item = (u64, &'a [u8], Use)>,
        own: Option<&HeldRanges<'_>>,
    ) -> Result<Reservation<'a>, Taken<'a>> {
        let mut reservation = Reservation { registry: self, read: Vec::new(), written: Vec::new() };
        for (hash, key, used) in keys {
            if used == Use::Written && self.ranges.are_held_with(key, own) {
                return Err(Taken { key, is_in_range: true });
            }
            if !reservation.add(hash, key) {
                return Err(Taken { key, is_in_range: false });
            }
        }
        Ok(reservation)
    }
}

/// What a key is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Written,
}

/// A key that cannot be reserved: another batch has it, or holds a range that it is in.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    pub key: &'a [u8],
    pub is_in_range: bool,
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

    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
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
    /// Those that are not watched beside that.
    written: Vec<(u64, &'a [u8], State)>,
}

/// Reserves a key that was written no more than `seen` says.
fn reserved(state: &State, seen: u64) -> bool {
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    state.compare_exchange(seen, seen | RESERVED, success, failure).is_ok()
}

impl<'a> Reservation<'a> {
    /// False: another batch has it reserved.
    fn add(&mut self, hash: u64, key: &'a [u8]) -> bool {
        let state = self.registry.join(hash, key);
        let unreserved = state.load(Ordering::Acquire) & !RESERVED;
        if !reserved(&state, unreserved) {
            self.registry.leave(hash, key);
            return false;
        }
        self.written.push((hash, key, state));
        true
    }
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
