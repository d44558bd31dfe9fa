//! The heart of a map: index, values, and the operations on them, without waiting for the medium.
//!
//! # A write, and what is durable when
//! Room in the writer's log is taken first; then, under the lock of the key's bucket, the current
//! item is read, the new one written behind it with the next version, the old one counted dead,
//! and the index entry replaced by one store. The write is visible from that store on and durable
//! after a commit of its ticket.
//!
//! # What a read may tell
//! Under [`Durability::Sync`](crate::Durability::Sync) a read can see a write that is not durable
//! yet. It then has a ticket too, and whoever tells the result to anyone commits it first: nothing
//! that was ever told is lost.

use crate::blind::BlindWrites;
use crate::durability::InForce;
use crate::error::{Error, Result};
use crate::fetches::Fetches;
use crate::index::{Index, KeyIndex};
use crate::index_room::IndexRoom;
use crate::kept::Kept;
use crate::located::{Located, OfWriter};
use crate::options::WhenFull;
use crate::plan::Plan;
use crate::pressure::{By, Pressure, Readers, Wait};
use crate::scrub::Scrub;
use crate::together::{InDatabase, Tied};
use crate::versions::Versions;
pub(crate) use crate::wanted::{Allowed, Hint, Outcome};
use crate::wanted::{NoOld, Wanted};
use crate::watch::Registry;
use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use terrace_durable::item::{Item, MAX_HEADER_BYTES, MAX_KEY_BYTES, NewItem, now_ms};
use terrace_durable::sections::Changes;
use terrace_durable::values::{Room, Ticket};
use terrace_durable::{BucketLock, Error as Below, NoItem, Values, Writing};
use terrace_index::{Change as Entry, Line, hash_key};
use terrace_memory::{Budget, Memory, Spin, lab};

/// One value as it stands in its tier; borrowed while the closure runs.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Grows with every write of the key, and counts from 1 again once a deleted key has left no trace: to
    /// learn whether a key was written since, watch it ([`Map::watch`](crate::Map::watch)). 0 for a value that
    /// its batch has yet to write.
    pub version: u64,
    /// Where the item lies in the value file; it may be moved there, or overwritten with the next version, and
    /// another item may get the place. 0 for a value that its batch has yet to write.
    pub location: u64,
    /// Wall-clock milliseconds since 1970 after which the key is gone.
    pub expires_at_ms: Option<u64>,
}

/// What a read-modify-write does to its key.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Leaves it.
    Keep,
    /// Writes this value.
    Put {
        /// The value.
        value: &'a [u8],
        /// Wall-clock milliseconds since 1970 after which the key is gone.
        expires_at_ms: Option<u64>,
    },
    /// Removes the key.
    Delete,
}

/// The values of a map, and room among them.
pub(crate) type Stored<M> = terrace_durable::LogsOrSlabs<M>;
pub(crate) type Held<'a, M> = <Stored<M> as Values>::Room<'a>;

/// What an update took the place of, and its bytes, to be given up by its writer.
type Superseded<'h, 'a, M> = Option<(&'h mut Held<'a, M>, u64, usize)>;

/// Keys looked up together: enough to cover the latency of memory, few enough to stay in L1.
pub(crate) const BATCH: usize = 64;

pub(crate) struct Engine<M: Memory, I: Memory> {
    pub index: Index<I>,
    /// Of an index in a tier of its own.
    pub index_room: Option<IndexRoom>,
    pub values: Stored<M>,
    pub seed: u64,
    /// Of an index that is kept.
    pub kept: Option<Kept<I>>,
    pub budget: Arc<Budget>,
    pub plan: Plan,
    pub durability: InForce,
    /// Held while the durability changes.
    pub switching: Mutex<()>,
    /// What each writer counted.
    pub written: Box<[CachePadded<Written>]>,
    pub when_full: AtomicU8,
    /// Whether writers hold an epoch guard beside their locks.
    pub writers_hold_guards: bool,
    /// What threads that do not wait for the disk have asked for.
    pub fetches: Fetches,
    /// Writes that the index does not know yet.
    pub blind: BlindWrites,
    /// Bytes the last item written took: how far a batched read prefetches.
    pub item_bytes_hint: AtomicU32,
    /// Writers who found no room for values: the collector should go further than it would.
    pub pressure: Pressure,
    /// Those who delete and found none.
    pub deletes_pressure: Pressure,
    /// Those who read what was freed.
    pub readers: Readers,
    /// Collector rounds begun.
    pub rounds: AtomicU64,
    /// Whether the map has threads of its own; without them whoever needs room collects.
    pub has_threads: bool,
    pub collecting: Mutex<()>,
    /// Held while the index is saved.
    pub saving: Mutex<()>,
    /// Logs of this sequence number and above are in memory again, or were not when an opening by a saved index tried
    /// to bring them back; 0: nothing is left to do.
    pub warmed_below: AtomicU64,
    /// How far its logs were read again, and verified.
    pub scrub: Scrub,
    /// Held while the map is cleared: the index goes with the values again at the end of it.
    pub clearing: Mutex<()>,
    pub counters: Counters,
    /// Keys of which somebody wants to know whether they are written.
    pub watches: Registry,
    /// What keys were, for snapshots.
    pub versions: Versions,
    /// Its place in the order in which whoever locks several maps goes: that of their openings.
    pub number: u64,
    /// Of a map that may be written to together with others.
    pub database: Option<InDatabase>,
    /// Which others share its next checkpoint.
    pub tied: Tied<M, I>,
}

/// What a writer counts of its own writes, and its sessions' reads.
#[derive(Default)]
pub(crate) struct Written {
    /// Live keys, as changes.
    pub keys: AtomicI64,
    /// Bytes of items that were written, to a new place or over the older version.
    pub item_bytes: AtomicU64,
    /// Values that the sessions of this writer found, a few dozen at a time.
    pub reads: AtomicU64,
    /// The highest version of an item.
    pub version: AtomicU64,
}

impl Written {
    /// Counts an item of so many bytes. Whoever writes has the writer for itself, so nothing is lost
    /// between the two halves.
    #[inline(always)]
    pub fn count(&self, bytes: usize) {
        let before = self.item_bytes.load(Ordering::Relaxed);
        self.item_bytes.store(before + bytes as u64, Ordering::Relaxed);
    }

    /// Counts an item of so many bytes and notes its version.
    #[inline(always)]
    pub fn wrote(&self, bytes: usize, version: u64) {
        self.count(bytes);
        self.note_version(version);
    }

    /// Notes the version that an item was given, or has.
    #[inline(always)]
    pub fn note_version(&self, version: u64) {
        if version > self.version.load(Ordering::Relaxed) {
            self.version.fetch_max(version, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub collected: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub evicted: AtomicU64,
    pub expired: AtomicU64,
    /// Whether any item ever had an expiry.
    pub expiries: AtomicBool,
    /// Rounds under pressure in a row that left it to readers to make room (slabs).
    pub patient_rounds: AtomicU32,
    /// Free bytes that the index was left with when it last gave memory back: before there are more it is not asked.
    pub index_free_bytes: AtomicU64,
}

#[inline(always)]
pub(crate) fn is_live(item: &Item<'_>) -> bool {
    !item.tombstone && item.expires_at_ms.is_none_or(|at| at > now_ms())
}

#[inline(always)]
pub(crate) fn value_of<'a>(item: &Item<'a>, location: u64) -> Value<'a> {
    Value { bytes: item.value, version: item.version, location, expires_at_ms: item.expires_at_ms }
}

pub(crate) fn bytes_of(item: &Item<'_>) -> usize {
    NewItem {
        key: item.key,
        value: item.value,
        version: item.version,
        expires_at_ms: item.expires_at_ms,
        tombstone: item.tombstone,
    }
    .item_bytes()
}

/// Ends the item of a deleted key; returns the location to release once the index has forgotten it.
fn retire(
    held: &mut impl Writing,
    (location, item): (u64, Item<'_>),
    changes: &mut Changes,
) -> u64 {
    held.retire(location, bytes_of(&item), changes);
    location
}

/// Writes what takes the place of `old`, if there is one; returns its location.
#[inline(always)]
fn write_over(
    held: &mut impl Writing,
    old: Option<(u64, Item<'_>)>,
    new: &NewItem<'_>,
    changes: &mut Changes,
) -> u64 {
    if let Some((location, item)) = old {
        held.supersedes(location, bytes_of(&item));
    }
    held.write(new, changes)
}

/// By how many the live keys grow.
#[inline(always)]
fn growth(new: &NewItem<'_>, old: Option<(u64, Item<'_>)>) -> i64 {
    i64::from(!new.tombstone) - i64::from(old.is_some_and(|(_, item)| !item.tombstone))
}

impl<M: Memory, I: Memory> Engine<M, I> {
    #[inline(always)]
    pub fn located<'g>(&'g self, guard: impl Into<Option<&'g Guard>>) -> Located<'g, M, I> {
        Located {
            engine: self,
            guard: guard.into(),
            found: Cell::new(None),
            damaged: Cell::new(None),
        }
    }

    /// Live keys.
    pub fn len(&self) -> u64 {
        let keys = self.written.iter().map(|written| written.keys.load(Ordering::Relaxed));
        keys.sum::<i64>().max(0) as u64
    }

    /// Bytes of a key, counted twice, and its value, at the most: a log takes so many under another key as long,
    /// together with the deletion of the first. What can be stored can be renamed.
    pub fn item_bytes_max(&self) -> usize {
        self.values.max_item_bytes() - 2 * MAX_HEADER_BYTES - size_of::<u64>()
    }

    pub fn check_sizes(&self, key: &[u8], value_bytes: usize) -> Result<()> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::KeySize(key.len(), MAX_KEY_BYTES));
        }
        let most = self.item_bytes_max() - key.len();
        if key.len() + value_bytes > most {
            return Err(Error::ItemSize(key.len() + value_bytes, most));
        }
        Ok(())
    }

    /// Runs `f` on the current value of `key` under the key's lock and does what it says; `f` may
    /// run again when room had to be made first. Returns what to commit: what was written, and what
    /// was seen of a batch that could still be lost.
    pub fn update<'c>(
        &self,
        by: By,
        key: &[u8],
        hint: Hint<'_>,
        room: Room,
        mut f: impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<[Option<Ticket>; 2]> {
        let hint_bytes = match hint {
            Hint::Bytes(bytes) | Hint::Blind(bytes) => bytes,
            Hint::InBatch { .. } => 0,
        };
        self.check_sizes(key, hint_bytes)?;
        let hash = hash_key(self.seed, key);
        // The two cache misses of a write, bucket and old item, begin before the locks are taken.
        let line = self.index.line(hash);
        line.iter().for_each(Line::prefetch_to_write);
        let mut bytes = match hint {
            Hint::Bytes(value_bytes) | Hint::Blind(value_bytes) => {
                MAX_HEADER_BYTES + key.len() + value_bytes.max(8)
            }
            Hint::InBatch { .. } => 0,
        };
        let in_batch = matches!(hint, Hint::InBatch { .. });
        let add = self.index_room.is_none() || in_batch || room != Room::Ordinary;
        let mut allowed = Allowed { add, ..Allowed::by(hint, self.spills()) };
        let spin = Spin::on(self.values.medium().memory());
        loop {
            let held = match in_batch {
                // It was given its room, and keeps its writer while it asks.
                true => self.await_room(by.wait, room, || self.values.room(by.writer, bytes, room)),
                false => self.room(by, bytes, room),
            };
            let mut held = match held {
                Ok(held) => held,
                Err(refused) if in_batch || room != Room::Ordinary => return Err(refused),
                Err(refused) => return self.delete_at_least(by, key, refused, &mut f),
            };
            if let Some(candidate) = line.and_then(|line| line.candidate(hash)) {
                self.values.prefetch_to_update(candidate, self.lines_ahead());
            }
            match self.update_in(&mut held, by.writer, hash, key, allowed, &mut f)? {
                Outcome::Done(tickets) => return Ok(tickets),
                Outcome::TooSmall(needed) => bytes = needed,
                Outcome::OneMore => {
                    // Nothing is held while others make room.
                    drop(held);
                    self.room_in_index(by.wait)?;
                    allowed.add = true;
                }
                Outcome::Reserved => {
                    // A batch is being applied, which waits for nobody.
                    drop(held);
                    // Half of a batch in logs would stop the map.
                    let may_end = !in_batch || self.values.logs().is_none();
                    match by.wait {
                        Wait::Never { since } if may_end => return Err(self.busy(since)),
                        _ => spin.wait(),
                    }
                }
                met @ (Outcome::Away | Outcome::Blind) => {
                    drop(held);
                    self.fetch_old(&met, (hash, key), allowed, (by.wait, in_batch))?;
                }
            }
        }
    }

    /// The same with room that there is already, whose owner waits for nobody.
    pub fn update_in<'c>(
        &self,
        held: &mut Held<'_, M>,
        writer: usize,
        hash: u64,
        key: &[u8],
        allowed: Allowed<'_>,
        f: &mut impl FnMut(Option<Value<'_>>) -> Change<'c>,
    ) -> Result<Outcome> {
        let (mut outcome, mut grown, noted) = (Ok(Outcome::Done([None; 2])), 0, Cell::new(0));
        let guard = OfWriter::of(self);
        let (released, located) = (Cell::new(None), self.located(guard.get()));
        let change = |at: Option<u64>, lock: &BucketLock, changes: &mut Changes| {
            let old = match self.old((hash, key), at, &located, lock, allowed) {
                Ok(old) => old,
                Err(none) => {
                    outcome = self.update_without(none, held, writer, (hash, key), f, changes);
                    return (Entry::Keep, None);
                }
            };
            let seen = |(location, _)| self.values.undurable(location);
            let seen_in_batch = old.filter(|(_, item)| item.in_batch).and_then(seen);
            let stamp = &mut [0; 8];
            let wanted = self.wanted(key, old, f, stamp);
            if let Some(why) = self.withheld(held, (hash, key), allowed, old, &wanted, &noted) {
                outcome = Ok(why);
                return (Entry::Keep, None);
            }
            // Not moved out: it would be copied.
            let Wanted::Written(new) = &wanted else {
                if !matches!(wanted, Wanted::Removed) {
                    outcome = wanted.outcome(|| old.and_then(seen));
                    return (Entry::Keep, None);
                }
                grown = -1;
                self.record_keys(writer, grown, changes);
                // Gone from storage before anyone can be told that it is gone.
                released.set(old.map(|old| retire(held, old, changes)));
                return (Entry::Remove, None);
            };
            let bytes = new.item_bytes();
            if old.is_some_and(|(location, item)| held.overwrite(location, &item, new)) {
                outcome = Ok(Outcome::Done([Some(held.ticket()), None]));
                self.written[writer].wrote(bytes, new.version);
                return (Entry::Overwritten, None);
            }
            if let Some(why) = self.no_room(held, allowed, old.is_none(), bytes) {
                outcome = Ok(why);
                return (Entry::Keep, None);
            }
            let location = write_over(held, old, new, changes);
            self.written[writer].wrote(bytes, new.version);
            outcome = Ok(Outcome::Done([Some(held.ticket()), seen_in_batch]));
            grown = growth(new, old);
            self.record_keys(writer, grown, changes);
            self.note(new, bytes);
            (Entry::Set(location), old.map(|(at, item)| (held, at, bytes_of(&item))))
        };
        // Once the index names the new item, durably if it is kept: the old one is needed until then.
        let then = |superseded: Superseded<'_, '_, M>, changes: &mut Changes| {
            if let Some((held, location, bytes)) = superseded {
                released.set(held.supersede(location, bytes, changes));
            }
        };
        let updated = self.index.update_then(hash, key, &located, change, then);
        self.is_written((hash, key), noted.get());
        updated.map_err(|source| self.update_refused(&located, source))?;
        self.updated(writer, released.get(), grown);
        outcome
    }

    /// The item that an update changes, or why it is not looked at.
    #[inline(always)]
    fn old<'l>(
        &'l self,
        (hash, key): (u64, &[u8]),
        at: Option<u64>,
        located: &Located<'_, M, I>,
        lock: &'l BucketLock,
        allowed: Allowed<'_>,
    ) -> std::result::Result<Option<(u64, Item<'l>)>, NoOld> {
        if self.blind.are_some() && self.written_blind(hash, key).is_some() {
            return Err(if allowed.blind { NoOld::Blind(None) } else { NoOld::InTable });
        }
        self.current(key, at, located, lock).map_err(|why| match why {
            NoItem::Away(other) if allowed.blind => NoOld::Blind(Some(other)),
            why => NoOld::NotFound(why),
        })
    }

    /// Has what an update met seen to before it is tried again. Nothing is held while the disk is waited for, but by a
    /// batch, which has its writer for itself.
    #[cold]
    fn fetch_old(
        &self,
        met: &Outcome,
        key: (u64, &[u8]),
        allowed: Allowed<'_>,
        (wait, in_batch): (Wait, bool),
    ) -> Result<()> {
        let wait = if in_batch { Wait::ForRoom } else { wait };
        match met {
            Outcome::Blind => self.take_in_key(key.0, key.1, wait),
            _ if allowed.blind && wait == Wait::ForRoom && self.catch_up() => Ok(()),
            _ => self.get(key.1, wait, |_| ()).map(drop),
        }
    }

    /// Why the index did not change: it met damage, or found no memory.
    #[cold]
    fn update_refused(&self, located: &Located<'_, M, I>, source: std::io::Error) -> Error {
        let met = located.check().map_err(|damaged| self.damaged(damaged));
        met.err().unwrap_or_else(|| self.index_refused(source))
    }

    /// The index names `released` no more, and there are so many keys more.
    #[inline(always)]
    fn updated(&self, writer: usize, released: Option<u64>, grown: i64) {
        if let Some(location) = released {
            self.values.release(location);
        }
        if grown != 0 {
            self.written[writer].keys.fetch_add(grown, Ordering::Relaxed);
        }
        // A slot that was superseded serves others by itself; a log is collected for those who wait.
        if grown < 0 || grown == 0 && self.values.logs().is_some() {
            self.relieve();
        }
    }

    /// What is to become of a key whose current item is `old`, as `f` says.
    #[inline(always)]
    fn wanted<'k, 'c: 'k>(
        &self,
        key: &'k [u8],
        old: Option<(u64, Item<'_>)>,
        f: &mut impl FnMut(Option<Value<'_>>) -> Change<'c>,
        stamp: &'k mut [u8; 8],
    ) -> Wanted<'k> {
        let live = old.filter(|(_, item)| is_live(item));
        let version = old.map_or(1, |(_, item)| item.version + 1);
        match f(live.map(|(location, item)| value_of(&item, location))) {
            Change::Put { value, expires_at_ms } => match self.check_sizes(key, value.len()) {
                Ok(()) => Wanted::Written(NewItem {
                    key,
                    value,
                    version,
                    expires_at_ms,
                    tombstone: false,
                }),
                Err(error) => Wanted::Nothing(Err(error)),
            },
            Change::Delete if old.is_some_and(|(_, item)| !item.tombstone) => {
                let Some(next) = self.values.tombstone_stamp() else { return Wanted::Removed };
                *stamp = next.to_le_bytes();
                let value = &*stamp;
                Wanted::Written(NewItem {
                    key,
                    value,
                    version,
                    expires_at_ms: None,
                    tombstone: true,
                })
            }
            Change::Keep | Change::Delete => Wanted::Kept,
        }
    }

    /// Says that the value of an item is looked at, where that has a price in time.
    #[inline(always)]
    pub fn look(&self, location: u64, item: &Item<'_>) {
        lab::looked_at(self.values.medium().memory(), location, bytes_of(item) as u64);
    }

    #[inline(always)]
    pub(crate) fn note(&self, new: &NewItem<'_>, bytes: usize) {
        if new.tombstone {
            return;
        }
        let hint = bytes.min(256) as u32;
        if self.item_bytes_hint.load(Ordering::Relaxed) != hint {
            self.item_bytes_hint.store(hint, Ordering::Relaxed);
        }
        if new.expires_at_ms.is_some() && !self.counters.expiries.load(Ordering::Relaxed) {
            if let Some(Kept { allocation, sections: Some(_), .. }) = &self.kept {
                // Before the item counts. It is never taken back, so it needs no section.
                allocation.store_now(allocation.expiries(), 1);
            }
            self.counters.expiries.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    pub fn index_refused(&self, source: std::io::Error) -> Error {
        // Of a persistent index, what its file says.
        match source.downcast::<Below>() {
            Ok(below) => below.into(),
            Err(source) => {
                let path = self.values.medium().path().to_path_buf();
                Error::Io { path, doing: "make room in the index of", source }
            }
        }
    }

    /// The key of the item at `location` if it has expired at `now` and is no tombstone.
    pub fn expired_key(&self, location: u64, now: u64, guard: &Guard) -> Option<Vec<u8>> {
        // A damaged one stays: who asks for it is told.
        let item = self.values.seen(location, guard).ok()?.at_rest()?;
        (!item.tombstone && item.expires_at_ms.is_some_and(|at| at <= now))
            .then(|| item.key.to_vec())
    }

    /// Whether what is not durable by now may never be: nothing of it is told to anyone.
    #[inline(always)]
    pub fn tells_durable_only(&self) -> bool {
        self.values.stopped().is_some() && (self.durability.is_sync() || self.owes_checkpoint())
    }

    /// Why something is not told.
    #[cold]
    pub fn untold(&self) -> Error {
        Error::Untold(self.values.stopped().unwrap_or_default().into())
    }

    pub fn evicts(&self) -> bool {
        self.when_full.load(Ordering::Relaxed) == WhenFull::Evict as u8
    }
}
