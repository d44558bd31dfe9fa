//! Blind writes: a key whose older item is on the disk alone is written without reading that first.
//!
//! The new item goes to the writer's log like any other, with a version above all that the map has given, so whatever
//! is found after a crash, it is the newest of its key. What is put off is the index: its entry says where an item of
//! this key *or of one with the same tag* lies, and only that item can tell. Until it was read, by a thread of the map
//! and together with others, the write stands in a table beside the index, where readers look first.
//!
//! # What is durable when
//! As for any write: the item is in the log, and in the redo log, before the key's lock is released, and its ticket is
//! committed before it is told. Nothing that recovery needs is in the table.
//!
//! # What must not pass by the table
//! * Readers look there before they look in the index; an entry is taken out after the index has it.
//! * Another write of the key, under the key's lock, finds it there: a blind one takes its place, any other has it
//!   taken into the index first. So there is one for a key at the most.
//! * A scan, a collection, and a saved index take all into the index first: by what the index names a scan would tell
//!   of the old value, and a log would seem to hold nothing but garbage.
//! * What the disk does not give back may be the key's older item for ever. Such a write stays in the table; it is
//!   copied to another log before its own is collected, and when the index is saved, to one that the next opening
//!   reads. That puts it into the table again.

use crate::engine::{Change, Engine, Held, Value, bytes_of};
use crate::error::{Error, Result};
use crate::index::KeyIndex;
use crate::located::OfWriter;
use crate::pressure::Wait;
use crate::recovered::Found;
use crate::spill::FETCHES;
use crate::wanted::{Allowed, Outcome};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use terrace_durable::item::{Item, NewItem};
#[cfg(feature = "faults")]
use terrace_durable::logs::Fault;
use terrace_durable::logs::{COLLECTOR, Logs};
use terrace_durable::sections::Changes;
use terrace_durable::values::{Room, SEGMENT_BYTES};
use terrace_durable::{BucketLock, NoItem, Values, Writing, lock};
use terrace_index::Change as Entry;
use terrace_memory::Memory;

const SHARDS: usize = 64;
/// So many at the most; a writer that finds more waits for the disk.
const MOST: usize = 2048;
/// A thread of the map is told when so many more have come.
const TOLD_EACH: usize = 64;
/// Longer keys are not kept twice.
const KEY_BYTES_MOST: usize = 1024;
/// How often a pass over all begins anew, since some had to be compared with another item, too.
const PASSES: usize = 8;
/// How soon those are tried again that could not be taken in.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long none is added for somebody who waits until all are in: until they ask again.
const PAUSE: Duration = Duration::from_secs(1);

/// A write that the index does not know yet.
#[derive(Debug)]
struct Blind {
    hash: u64,
    key: Box<[u8]>,
    location: u64,
    bytes: usize,
    version: u64,
    tombstone: bool,
    /// An item that may be the key's older one.
    other: u64,
    /// The item that could not be read when that was tried last; 0: none.
    in_the_way: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct BlindWrites {
    /// Whether the highest version that the map has given is known; an index that an earlier program saved does not
    /// say.
    pub knows_versions: AtomicBool,
    count: AtomicUsize,
    /// When one of them could not be taken in that was tried last.
    stuck_at: Mutex<Option<Instant>>,
    paused_at: Mutex<Option<Instant>>,
    /// All that there ever were.
    written: AtomicU64,
    shards: Box<[CachePadded<Shard>]>,
}

type Shard = Mutex<Vec<Arc<Blind>>>;

impl Default for BlindWrites {
    fn default() -> BlindWrites {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        BlindWrites {
            knows_versions: AtomicBool::new(true),
            count: AtomicUsize::new(0),
            stuck_at: Mutex::new(None),
            paused_at: Mutex::new(None),
            written: AtomicU64::new(0),
            shards,
        }
    }
}

impl BlindWrites {
    /// Whether there are any.
    #[inline(always)]
    pub fn are_some(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// How many there were since the map was opened.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether one could not be taken in a moment ago.
    pub fn is_stuck(&self) -> bool {
        self.stuck_at.lock().is_some_and(|at| at.elapsed() < PATIENCE)
    }

    /// Whether somebody waits until all are in.
    pub fn is_paused(&self) -> bool {
        self.paused_at.lock().is_some_and(|at| at.elapsed() < PAUSE)
    }

    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[hash as usize % SHARDS]
    }

    fn find(&self, memory: &impl Memory, hash: u64, key: &[u8]) -> Option<Arc<Blind>> {
        let shard = lock(memory, self.shard(hash));
        shard.iter().find(|one| one.hash == hash && *one.key == *key).cloned()
    }

    fn all(&self, memory: &impl Memory) -> Vec<Arc<Blind>> {
        self.shards.iter().flat_map(|shard| lock(memory, &**shard).clone()).collect()
    }

    /// Adds one, in the place of that of its key if there is one. How many there were before.
    fn add(&self, memory: &impl Memory, one: Blind, before: Option<&Arc<Blind>>) -> usize {
        let mut shard = lock(memory, self.shard(one.hash));
        self.written.fetch_add(1, Ordering::Relaxed);
        let is_before = |other: &Arc<Blind>| before.is_some_and(|one| Arc::ptr_eq(one, other));
        match shard.iter().position(is_before) {
            Some(at) => {
                shard[at] = Arc::new(one);
                self.count.load(Ordering::Relaxed)
            }
            None => {
                shard.push(Arc::new(one));
                self.count.fetch_add(1, Ordering::Release)
            }
        }
    }

    fn has(&self, memory: &impl Memory, one: &Arc<Blind>) -> bool {
        lock(memory, self.shard(one.hash)).iter().any(|other| Arc::ptr_eq(one, other))
    }

    fn remove(&self, memory: &impl Memory, one: &Arc<Blind>) {
        let mut shard = lock(memory, self.shard(one.hash));
        if let Some(at) = shard.iter().position(|other| Arc::ptr_eq(one, other)) {
            shard.swap_remove(at);
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Forgets all, while nobody writes: the map is cleared.
    pub fn clear(&self, memory: &impl Memory) {
        for shard in &self.shards {
            let mut shard = lock(memory, &**shard);
            self.count.fetch_sub(shard.len(), Ordering::Release);
            shard.clear();
        }
    }
}

/// What became of one that was to be taken in.
enum Taken {
    /// The index has it, or another took it in.
    In,
    /// This item is to be read first.
    After(u64),
}

impl<M: Memory, I: Memory> Engine<M, I> {
    fn lab(&self) -> &M {
        self.values.medium().memory()
    }

    /// Where the newest item of `key` lies, if the index does not know it yet.
    #[cold]
    pub(crate) fn written_blind(&self, hash: u64, key: &[u8]) -> Option<u64> {
        self.blind.find(self.lab(), hash, key).map(|one| one.location)
    }

    /// Writes what `f` says, which does not ask what there was, for a key of which the index says that its item may be
    /// `other`, on the disk alone; over what was written blind before, if that is in the table. Under the key's lock.
    #[cold]
    pub(crate) fn write_blind<'c>(
        &self,
        held: &mut Held<'_, M>,
        writer: usize,
        (hash, key): (u64, &[u8]),
        other: Option<u64>,
        f: &mut impl FnMut(Option<Value<'_>>) -> Change<'c>,
        changes: &mut Changes,
    ) -> Result<Outcome> {
        let before = self.blind.find(self.lab(), hash, key);
        let not_now = if before.is_some() { Outcome::Blind } else { Outcome::Away };
        let may_be_more = || !self.are_blind_many() && !self.blind.is_paused();
        let may = (before.is_some() || key.len() <= KEY_BYTES_MOST && may_be_more())
            && !self.watches.has_watchers()
            && self.index_room.is_none()
            && self.spills();
        let newest = self.newest_version().filter(|_| may);
        let other = before.as_ref().map(|before| before.other).or(other);
        let (Some(newest), Some(other)) = (newest, other) else { return Ok(not_now) };
        let Change::Put { value, expires_at_ms } = f(None) else { return Ok(not_now) };
        self.check_sizes(key, value.len())?;
        let version = self.version_above(newest);
        let new = NewItem { key, value, version, expires_at_ms, tombstone: false };
        let bytes = new.item_bytes();
        let allowed = Allowed { add: true, reserved: false, blind: true, commit: None };
        if let Some(why) = self.no_room(held, allowed, false, bytes) {
            return Ok(why);
        }
        let location = held.write(&new, changes);
        self.written[writer].wrote(bytes, version);
        self.note(&new, bytes);
        let key = key.into();
        // What is in the way stays so: the same items are to be compared.
        let in_the_way = before.as_ref().map_or(0, |one| one.in_the_way.load(Ordering::Relaxed));
        let in_the_way = AtomicU64::new(in_the_way);
        let one =
            Blind { hash, key, location, bytes, version, tombstone: false, other, in_the_way };
        if self.blind.add(self.lab(), one, before.as_ref()) % TOLD_EACH == TOLD_EACH - 1 {
            self.fetches.nudge();
        }
        if let Some(before) = before {
            held.retire(before.location, before.bytes, changes);
        }
        Ok(Outcome::Done([Some(held.ticket()), None]))
    }

    /// A version that is above all, and above what the collector may give the older item meanwhile, as to one that has
    /// expired: one more than it had.
    fn version_above(&self, newest: u64) -> u64 {
        #[cfg(feature = "faults")]
        if self.makes(Fault::BlindVersion) {
            return 1;
        }
        newest + 2
    }

    #[cfg(feature = "faults")]
    fn makes(&self, fault: Fault) -> bool {
        self.values.logs().is_some_and(|logs| logs.has_fault(fault))
    }

    /// Whether there are so many that whoever writes more waits for the disk.
    fn are_blind_many(&self) -> bool {
        self.blind.count.load(Ordering::Relaxed) >= MOST
    }

    /// Takes all in, if there are so many that whoever writes more waits for the disk, and none was stuck a moment ago.
    pub(crate) fn catch_up(&self) -> bool {
        self.are_blind_many() && self.take_in_again()
    }

    /// Has all taken into the index that there are at the moment of the call, for whoever asks it for more than a key.
    /// What the disk does not give back may stay out.
    ///
    /// # Errors
    /// [`Error::Fetching`] where `wait` says so: no more are added for a while, so that there is an end to it.
    #[inline(always)]
    pub(crate) fn have_all_in(&self, wait: Wait) -> Result<()> {
        if self.blind.are_some() { self.wait_for_all(wait) } else { Ok(()) }
    }

    #[cold]
    fn wait_for_all(&self, wait: Wait) -> Result<()> {
        let is_known_stuck = || {
            let all = self.blind.all(self.lab());
            self.blind.is_stuck()
                && all.iter().all(|one| one.in_the_way.load(Ordering::Relaxed) > 0)
        };
        if wait == Wait::ForRoom || !self.has_threads {
            self.take_in_all();
        } else if !is_known_stuck() {
            *self.blind.paused_at.lock() = Some(Instant::now());
            self.fetches.nudge();
            return Err(Error::Fetching);
        }
        Ok(())
    }

    /// The items that are in the way of those that could not be taken in: a scan that tells of one, which can be read
    /// by now, might tell what was written over, or pass by a key of the same tag.
    pub(crate) fn in_the_way(&self) -> Vec<u64> {
        if !self.blind.are_some() {
            return Vec::new();
        }
        let all = self.blind.all(self.lab()).into_iter();
        all.map(|one| one.in_the_way.load(Ordering::Relaxed)).filter(|at| *at > 0).collect()
    }

    /// Has the blind write of `key` taken into the index, before the key is written again.
    ///
    /// # Errors
    /// Those of the disk; [`Error::Fetching`] where `wait` says so.
    #[cold]
    pub(crate) fn take_in_key(&self, hash: u64, key: &[u8], wait: Wait) -> Result<()> {
        let Some(one) = self.blind.find(self.lab(), hash, key) else { return Ok(()) };
        for _ in 0..FETCHES {
            let guard = crossbeam_epoch::pin();
            match self.take_in(&one)? {
                Taken::In => return Ok(()),
                Taken::After(other) => self.bring_near(NoItem::Away(other), &guard, wait)?,
            }
        }
        Err(self.damaged(NoItem::Away(one.other)))
    }

    /// As [`Engine::take_in_all`], but what could not be taken in a moment ago is not tried again.
    pub(crate) fn take_in_again(&self) -> bool {
        !self.blind.is_stuck() && self.take_in_all()
    }

    /// Takes all that there are at the moment of the call into the index, reading together what they are compared
    /// with; whether that was possible for all.
    pub(crate) fn take_in_all(&self) -> bool {
        #[cfg(feature = "faults")]
        if self.makes(Fault::BlindForgotten) {
            return true;
        }
        self.take_in_while(|| true)
    }

    /// The same, as long as `goes_on`.
    pub(crate) fn take_in_while(&self, goes_on: impl Fn() -> bool) -> bool {
        if !self.blind.are_some() {
            return true;
        }
        let all = self.blind.all(self.lab()).into_iter();
        let mut left: Vec<(Arc<Blind>, u64)> = all.map(|one| (one.clone(), one.other)).collect();
        for _ in 0..PASSES {
            let mut rest = Vec::new();
            for some in left.chunks(self.copies_at_once(MOST)) {
                if !goes_on() {
                    return false;
                }
                self.fetch_others(some);
                for (one, other) in some {
                    match self.take_in(one) {
                        Ok(Taken::In) => {}
                        Ok(Taken::After(next)) => rest.push((Arc::clone(one), next)),
                        Err(_) => rest.push((Arc::clone(one), *other)),
                    }
                }
            }
            let is_stuck =
                rest.len() == left.len() && rest.iter().zip(&left).all(|(a, b)| a.1 == b.1);
            left = rest;
            if left.is_empty() || is_stuck {
                break;
            }
        }
        left.iter().for_each(|(one, other)| one.in_the_way.store(*other, Ordering::Relaxed));
        *self.blind.stuck_at.lock() = (!left.is_empty()).then(Instant::now);
        left.is_empty()
    }

    /// Reads what these are compared with. Whoever waits for one of them without blocking is told of what failed.
    fn fetch_others(&self, some: &[(Arc<Blind>, u64)]) {
        let guard = crossbeam_epoch::pin();
        let wanted = some.iter().filter_map(|(_, other)| self.values.wanted(*other)).collect();
        drop(guard);
        self.values.fetch_all(wanted, |wanted, error| self.fetches.failed(wanted, error));
    }

    /// Copies what could not be taken in, and lies in logs that `are_of`, to the collector's log; whether that was
    /// possible for all of them.
    pub(crate) fn copy_blind(&self, logs: &Logs<M>, are_of: impl Fn(u32) -> bool) -> Result<bool> {
        let mut all_copied = true;
        for one in self.blind.all(self.lab()) {
            if are_of((one.location / u64::from(SEGMENT_BYTES)) as u32) {
                all_copied &= self.copy_one(logs, &one)?;
            }
        }
        Ok(all_copied)
    }

    /// The same of the one at `location`, if it is in the table.
    ///
    /// # Errors
    /// Damage that is in the way, and those of the logs.
    pub(crate) fn copy_blind_at(
        &self,
        logs: &Logs<M>,
        (hash, key): (u64, &[u8]),
        location: u64,
    ) -> Result<()> {
        #[cfg(feature = "faults")]
        if self.makes(Fault::BlindForgotten) {
            return Ok(());
        }
        match self.blind.find(self.lab(), hash, key) {
            Some(one) if one.location == location && !self.copy_one(logs, &one)? => {
                Err(self.damaged(NoItem::Invalid(location)))
            }
            _ => Ok(()),
        }
    }

    /// As the collector moves an item, durable with the log that it is copied to; the first stays as it is until then.
    /// The copy has a version of its own, above all: recovery takes it for newer than what a saved index knows.
    fn copy_one(&self, logs: &Logs<M>, one: &Arc<Blind>) -> Result<bool> {
        let guard = crossbeam_epoch::pin();
        if !self.blind.has(self.lab(), one) {
            return Ok(true);
        }
        // Read from the disk, if its log has left memory.
        let near = self.here(&guard, || self.values.seen(one.location, &guard).map(drop));
        let mut held = logs.appender(COLLECTOR, one.bytes + 16, Room::Anyway)?;
        let (located, mut is_copied) = (self.located(&guard), near.is_ok());
        let copy = |_: Option<u64>, held_key: &BucketLock, changes: &mut Changes| {
            if !is_copied || !self.blind.has(self.lab(), one) {
                return (Entry::Keep, ());
            }
            let newest = self.newest_version();
            let (Ok(item), Some(newest)) = (self.values.item(one.location, held_key), newest)
            else {
                is_copied = false;
                return (Entry::Keep, ());
            };
            let Item { key, value, expires_at_ms, tombstone, .. } = item;
            let version = self.version_above(newest);
            let new = NewItem { key, value, version, expires_at_ms, tombstone };
            let bytes = new.item_bytes();
            self.written[0].note_version(version);
            let location = held.append(&new, changes);
            held.retire(one.location, one.bytes, changes);
            let in_the_way = AtomicU64::new(one.in_the_way.load(Ordering::Relaxed));
            let key = one.key.clone();
            let copy = Blind { location, key, bytes, version, in_the_way, ..**one };
            self.blind.add(self.lab(), copy, Some(one));
            (Entry::Keep, ())
        };
        let updated = self.index.update_then(one.hash, &one.key, &located, copy, |(), _| ());
        updated.map_err(|source| self.index_refused(source))?;
        Ok(is_copied)
    }

    /// During recovery: an item was found whose key's older item, if that is at `other`, the disk does not give back,
    /// or whose key is in the table. The newest stays there. `false` if neither is so. Under the key's lock.
    pub(crate) fn recovered_blind(&self, hash: u64, found: &Found<'_>, other: Option<u64>) -> bool {
        let Found { location, key, version, tombstone, bytes } = *found;
        let before = self.blind.find(self.lab(), hash, key);
        let Some(other) = before.as_ref().map(|before| before.other).or(other) else {
            return false;
        };
        match &before {
            Some(before) if before.version >= version => {
                self.values.supersede(location, bytes);
                return true;
            }
            Some(before) => self.values.supersede(before.location, before.bytes),
            None => {}
        }
        let (key, in_the_way) = (key.into(), AtomicU64::new(0));
        let one = Blind { hash, key, location, bytes, version, tombstone, other, in_the_way };
        self.blind.add(self.lab(), one, before.as_ref());
        true
    }

    /// Makes the index name a blind write, if all that might be its key's older item can be looked at.
    fn take_in(&self, one: &Arc<Blind>) -> Result<Taken> {
        let guard = OfWriter::of(self);
        let located = self.located(guard.get());
        let logs = self.values.logs().expect("only logs leave memory");
        let mut met = None;
        let newer = |at: Option<u64>, held: &BucketLock, _: &mut Changes| {
            if !self.blind.has(self.lab(), one) {
                return (Entry::Keep, false);
            }
            let old = match self.current(&one.key, at, &located, held) {
                Ok(old) => old,
                Err(why) => {
                    met = Some(why);
                    return (Entry::Keep, false);
                }
            };
            // Whoever else writes the key takes this one in before, so what there is is older; of what recovery has
            // put here that is checked.
            if let Some((location, item)) = old {
                if item.version >= one.version {
                    logs.supersede_late(one.location, one.bytes);
                    return (Entry::Keep, true);
                }
                logs.supersede_late(location, bytes_of(&item));
            }
            // Before the lock is released: whoever clears the map sets the count anew behind that.
            let was_there = old.is_some_and(|(_, item)| !item.tombstone);
            let grown = i64::from(!one.tombstone) - i64::from(was_there);
            self.written[0].keys.fetch_add(grown, Ordering::Relaxed);
            (Entry::Set(one.location), true)
        };
        // Once the index names it, still under the key's lock.
        let then = |is_in: bool, _: &mut Changes| {
            if is_in {
                self.blind.remove(self.lab(), one);
            }
        };
        let updated = self.index.update_then(one.hash, &one.key, &located, newer, then);
        updated.map_err(|source| self.index_refused(source))?;
        match met {
            Some(NoItem::Away(other)) => Ok(Taken::After(other)),
            Some(damaged) => Err(self.damaged(damaged)),
            None => Ok(Taken::In),
        }
    }

    /// The highest version that the map has given, if that is known.
    fn newest_version(&self) -> Option<u64> {
        let newest = self.written.iter().map(|written| written.version.load(Ordering::Relaxed));
        newest.max().filter(|_| self.blind.knows_versions.load(Ordering::Relaxed))
    }

    /// The same for a saved index; 0 if it is not known.
    pub(crate) fn newest_version_or_0(&self) -> u64 {
        self.newest_version().unwrap_or(0)
    }
}
