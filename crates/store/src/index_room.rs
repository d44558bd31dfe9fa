//! Room in the tier that an index lies in, where that is not the values'.
//!
//! An index that could not grow in the middle of a change would leave it half done, so growth never fails: it is
//! taken from the tier's budget even beyond the limit, and whoever would add a key after that is refused, or has
//! keys evicted, before anything is written. Keys that are there already are written all the same; batches
//! that add any have room as a whole before they begin, or none.
//!
//! The bytes of a hash table never shrink, and a tree gives back what nothing is in ([`Engine::shrink_index`]), so
//! "spent" cannot be undone by deleting a few keys. What can be told instead: an index that had so many keys in its
//! bytes has room for as many again. Deleted keys of a map in logs keep their entries until they are collected,
//! which happens earlier while the tier is spent, and nodes of a tree are filled otherwise than they were: that lets
//! an index exceed its tier by about a quarter. Should it come to be more, fewer keys have room. A batch adds what
//! it adds, however small the tier is beside it.

use crate::engine::{Allowed, Change, Engine, Outcome, Value};
use crate::error::{Error, Result};
use crate::index::KeyIndex;
use crate::options::IndexTier;
use crate::pressure::{Pressure, Wait};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use terrace_durable::Values;
use terrace_durable::item::MAX_HEADER_BYTES;
use terrace_durable::logs::{COLLECTOR, Logs, State};
use terrace_durable::values::Room;
use terrace_index::hash_key;
use terrace_memory::Memory;

/// Of the bytes of its tier, what an index may come to be.
const EXCEEDED: (u64, u64) = (5, 4);

/// An opening is refused where indexes take half as much again as their tier has: more than one could have grown to
/// in it, unless by batches that are large beside it. A kernel that has no memory of a node left ends the process.
const OPENED_MOST: (u64, u64) = (3, 2);

/// One key in so many is evicted in one round at most: a log, or superblock, may have all keys of a small index.
const EVICTED_SHARE: usize = 8;

/// Free bytes of an index for which it is walked through: a share of its bytes, and so many at the least.
const SHRUNK_LEAST: u64 = 2 << 20;
const SHRUNK_SHARE: u64 = 8;

/// Entries of deleted keys that a spent index has at most: one for so many keys. They are collected from then on.
pub(crate) const DELETED_SHARE: u64 = 4;

pub(crate) struct IndexRoom {
    tier: IndexTier,
    full: Mutex<Full>,
    /// Writers who wait for room.
    pub pressure: Pressure,
}

/// What was found when the tier was spent.
#[derive(Default)]
struct Full {
    /// Bytes of the tier in use.
    used: u64,
    /// Bytes of the index.
    bytes: u64,
    /// Live keys that there is room for.
    keys: u64,
}

/// What there is in a tier for another key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Room,
    /// What entries of deleted keys take until they are collected.
    OfDeleted,
    Full,
}

impl IndexRoom {
    pub fn new(tier: IndexTier) -> IndexRoom {
        IndexRoom { tier, full: Mutex::default(), pressure: Pressure::default() }
    }

    pub fn is_spent(&self) -> bool {
        self.tier.budget.used() >= self.tier.budget.limit()
    }

    /// Whether a map of so many live keys, and as many entries, may have one more.
    fn asked(&self, keys: u64, entries: u64, bytes: impl Fn() -> u64) -> Answer {
        if !self.is_spent() {
            return Answer::Room;
        }
        let used = self.tier.budget.used();
        let mut full = self.full.lock();
        if full.used != used {
            full.used = used;
            let bytes = bytes();
            if full.bytes != bytes {
                let is_first = full.bytes == 0;
                let most = self.tier.budget.limit() / EXCEEDED.1 * EXCEEDED.0;
                // Entries of deleted keys are room too.
                let held = keys.max(entries - entries / (DELETED_SHARE + 1));
                full.bytes = bytes;
                full.keys = match used > most && !is_first {
                    true => full.keys.min(held),
                    false => full.keys.max(held),
                };
            }
        }
        match keys < full.keys {
            true if entries <= full.keys + full.keys / DELETED_SHARE => Answer::Room,
            true => Answer::OfDeleted,
            false => Answer::Full,
        }
    }

    fn refusal(&self) -> Error {
        let IndexTier { name, budget, .. } = &self.tier;
        Error::IndexFull { tier: name.clone(), used: budget.used(), budget: budget.limit() }
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Has the index give memory back that nothing is in, if there is much of it; returns whether any came. For whoever
    /// would evict keys otherwise.
    pub fn shrink_index(&self) -> bool {
        let left = &self.counters.index_free_bytes;
        let worth = SHRUNK_LEAST.max(self.index.bytes() / SHRUNK_SHARE);
        if self.index.free_bytes() < left.load(Ordering::Relaxed) + worth {
            return false;
        }
        let bytes = self.index.shrink(&self.located(&crossbeam_epoch::pin()));
        left.store(self.index.free_bytes(), Ordering::Relaxed);
        bytes > 0
    }

    /// Whether the tier of the index is spent.
    pub fn is_index_spent(&self) -> bool {
        self.index_room.as_ref().is_some_and(IndexRoom::is_spent)
    }

    /// Whether deleted keys are among so many entries of an index that has room for no more keys.
    pub fn is_index_crowded(&self, entries: u64) -> bool {
        let limit = self.index_room.as_ref().filter(|limit| limit.is_spent());
        limit.is_some_and(|limit| (1..entries).contains(&limit.full.lock().keys))
    }

    /// How many keys are evicted at a time to make room in the index.
    pub fn index_share(&self) -> usize {
        self.len() as usize / EVICTED_SHARE + 1
    }

    /// Whether the index has as many keys as it has room for.
    pub fn is_index_full(&self) -> bool {
        self.index_room.as_ref().is_some_and(|limit| self.ask_for_one(limit) == Answer::Full)
    }

    /// Whether others could be added but for entries of deleted keys.
    pub fn are_deleted_in_the_way(&self) -> bool {
        let answer = self.index_room.as_ref().map(|limit| self.ask_for_one(limit));
        answer == Some(Answer::OfDeleted)
    }

    fn ask_for_one(&self, limit: &IndexRoom) -> Answer {
        limit.asked(self.len(), self.index.len(), || self.index.bytes())
    }

    /// Makes room in the index for those who wait, if that is not so already; `freed`: the collector made some, of
    /// deleted keys perhaps. Under the collector's lock.
    ///
    /// # Errors
    /// Those of a deletion.
    pub fn relieve_index(&self, logs: &Logs<M>, round: u64, freed: bool) -> Result<()> {
        let Some(limit) = &self.index_room else { return Ok(()) };
        let relieved = match self.ask_for_one(limit) {
            Answer::Room => Ok(true),
            Answer::OfDeleted => Ok(freed),
            Answer::Full if self.evicts() => self.evict_oldest_keys(logs),
            Answer::Full => Ok(false),
        };
        if !relieved.as_ref().is_ok_and(|made_room| *made_room) {
            limit.pressure.give_up(round);
        }
        relieved.map(drop)
    }

    /// Deletes the keys of the log that was begun longest ago, as many as are evicted at a time: a log may have most
    /// keys of a small index. It is freed by the collector once it is mostly dead. Returns whether any went.
    fn evict_oldest_keys(&self, logs: &Logs<M>) -> Result<bool> {
        let mut gone = self.evict_from_sealed(logs)?;
        if gone == 0 {
            // What lives is in logs that are not full: there is room for values.
            logs.seal_open();
            gone = self.evict_from_sealed(logs)?;
        }
        Ok(gone > 0)
    }

    fn evict_from_sealed(&self, logs: &Logs<M>) -> Result<usize> {
        let mut sealed = logs.survey();
        sealed.retain(|view| view.state == State::Sealed);
        sealed.sort_by_key(|view| view.sequence);
        let most = self.index_share();
        let mut gone = 0;
        for view in sealed {
            if gone < most && logs.claim(view.number) {
                let of_log = self.evict_from_log(logs, view.number, most - gone);
                logs.unclaim(view.number);
                gone += of_log?;
            }
        }
        Ok(gone)
    }

    /// Deletes at most so many keys whose current item lies in a claimed log, the first first; returns how many.
    fn evict_from_log(&self, logs: &Logs<M>, log: u32, most: usize) -> Result<usize> {
        // Nobody overwrites an item there while its key is read.
        logs.freeze(&[log]);
        // No lock is held: an ordered index compares with items of other keys on the way.
        let guard = crossbeam_epoch::pin();
        let mut current = Vec::new();
        let all = logs.each_item(log, &guard, |location, item, _| {
            let hash = hash_key(self.seed, item.key);
            let is_current = || self.index.holds(hash, item.key, location, &self.located(&guard));
            if !item.tombstone && current.len() < most && is_current() {
                current.push((location, item.key.to_vec()));
            }
        });
        drop(guard);
        // Of a damaged log what was found goes; the rest of it stays as it is.
        let _damaged = all;
        let mut gone = 0;
        for (location, key) in current {
            let mut was_live = false;
            let mut is_gone = true;
            let mut delete = |live: Option<Value<'_>>| {
                was_live = live.is_some();
                // Else it was written again meanwhile. What has expired goes as well.
                is_gone = live.is_none_or(|value| value.location == location);
                if is_gone { Change::Delete } else { Change::Keep }
            };
            // A collector that waited for room would wait for itself.
            let mut held =
                self.values.room(COLLECTOR, MAX_HEADER_BYTES + key.len() + 8, Room::Anyway)?;
            let (hash, allowed) = (
                hash_key(self.seed, &key),
                Allowed { add: true, reserved: false, blind: false, commit: None },
            );
            let outcome = self.update_in(&mut held, COLLECTOR, hash, &key, allowed, &mut delete)?;
            is_gone &= !matches!(outcome, Outcome::Reserved);
            gone += usize::from(is_gone);
            self.counters.evicted.fetch_add(u64::from(is_gone && was_live), Ordering::Relaxed);
        }
        Ok(gone)
    }

    /// Room for a batch of writes that adds keys: it is not refused half done, and may add as many entries as it
    /// writes.
    ///
    /// # Errors
    /// As [`Engine::room_in_index`].
    pub fn room_in_index_for_batch(&self, wait: Wait) -> Result<()> {
        if self.is_index_spent() { self.room_in_index(wait) } else { Ok(()) }
    }

    /// Room for one entry more; waits for eviction, or for entries of deleted keys to be collected, when that can
    /// help.
    ///
    /// # Errors
    /// [`Error::IndexFull`], [`Error::Busy`]; those of a map that takes no writes.
    #[cold]
    pub fn room_in_index(&self, wait: Wait) -> Result<()> {
        let Some(limit) = &self.index_room else { return Ok(()) };
        let ask = || {
            // Nobody collects any more then.
            match self.values.stopped() {
                Some(reason) => Err(Error::ReadOnly(reason.into())),
                None => Ok(self.ask_for_one(limit)),
            }
        };
        let found = match ask()? {
            Answer::Room => Some(()),
            Answer::Full if !self.evicts() => None,
            _ => self.after_collection(&limit.pressure, wait, || {
                Ok((ask()? == Answer::Room).then_some(()))
            })?,
        };
        found.ok_or_else(|| limit.refusal())
    }

    /// Whether the index that an opening makes is one for its tier.
    ///
    /// # Errors
    /// [`Error::Option`] if it is much larger.
    #[inline]
    pub fn check_index_fits(&self) -> Result<()> {
        let Some(IndexTier { name, budget, .. }) = self.index_room.as_ref().map(|room| &room.tier)
        else {
            return Ok(());
        };
        let (used, most) = (budget.used(), budget.limit());
        if used <= most.saturating_mul(OPENED_MOST.0) / OPENED_MOST.1 {
            return Ok(());
        }
        let path = self.values.medium().path().display();
        let why = format!(
            "with the index of {path} tier `{name}`, which has {most} bytes, would hold {used} and more; give it more, or \
             another tier"
        );
        Err(Error::Option { field: "index_tier", why })
    }
}
