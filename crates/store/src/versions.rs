//! What keys were before they were written, for as long as a snapshot needs it.
//!
//! # The protocol
//! A writer that replaces what a key has, or adds a key, notes under the key's lock what it was, then has the index
//! changed, and at the end *decides* the moment of its write: the clock's. All writes of a batch have one moment,
//! decided when the last of them is in the index: so a snapshot sees all of them or none.
//!
//! A snapshot of moment `s` reads a key as anybody does, and then looks here: the first note that was made after `s`
//! says what the key was. There is none: what was read is right. For a write that is not decided yet is of a later
//! moment than `s`, because the clock was moved when the snapshot was opened; so that it stays so whatever its writer
//! has read of the clock by then, whoever meets it undecided forbids it all moments up to its own.
//!
//! Nobody waits: neither readers for writers nor writers for snapshots.
//!
//! # What is kept
//! Copies of what was replaced, on the map's budget. One note of a key for each moment at the most, and none that all
//! open snapshots are later than; of a key that is written again and again, about as many as there are snapshots. When
//! they take more than their share of the budget, the snapshots of the map end
//! ([`Error::SnapshotEnded`](crate::Error::SnapshotEnded)), as they do where keys are evicted, or the map is cleared.
//! A batch that replaces more than that share goes on without copies; whoever would need one ends.

mod notes;

use self::notes::Notes;
use crate::error::{Error, Result};
use crate::moments::{Commit, Moments};
use crate::range::Range;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use terrace_durable::lock;
use terrace_durable::values::Ticket;
use terrace_memory::{Budget, Memory};

const SHARDS: usize = 64;
/// One in so many bytes of the budget may be for older versions,
const SHARE: u64 = 4;
/// and so many at least.
const LEAST_BYTES: u64 = 4 << 20;
/// What a note takes beside key and value, about.
const NOTE_BYTES: usize = 192;
/// Notes of a key, at this number and twice as many each time, of which those that lie between snapshots go.
const CROWDED: usize = 8;

const TOO_MUCH: &str = "older versions of its keys took more than a quarter of the memory budget";

/// What a key was.
#[derive(Debug)]
pub(crate) struct Older {
    /// Nothing: it was deleted, which is not durable yet.
    pub bytes: Option<Box<[u8]>>,
    pub version: u64,
    pub expires_at_ms: Option<u64>,
    /// To be committed before it is told.
    pub ticket: Option<Ticket>,
}

/// What is noted of a key that is written.
pub(crate) enum Was {
    Absent,
    There(Arc<Older>),
    /// Something of which there was no room for a copy.
    Forgotten,
}

/// That a key was written, and what it was before.
struct Note {
    number: u64,
    commit: Arc<Commit>,
    was: Was,
}

impl Note {
    fn bytes(&self, key: &[u8]) -> u64 {
        let bytes = match &self.was {
            Was::There(older) => older.bytes.as_ref().map_or(0, |bytes| bytes.len()),
            Was::Absent | Was::Forgotten => 0,
        };
        (NOTE_BYTES + key.len() + bytes) as u64
    }
}

/// What the keys of a map were.
pub(crate) struct Versions {
    moments: Arc<Moments>,
    budget: Arc<Budget>,
    shards: Box<[CachePadded<Mutex<Notes>>]>,
    notes: AtomicUsize,
    bytes: AtomicU64,
    numbers: AtomicU64,
    /// What [`Versions::oldest`] was when all notes were looked at last.
    swept_to: AtomicU64,
    /// Snapshots of a moment below this have ended.
    ended_below: AtomicU64,
    why: Mutex<&'static str>,
}

impl Versions {
    pub fn new(moments: &Arc<Moments>, budget: &Arc<Budget>, is_ordered: bool) -> Versions {
        let shard = |_| CachePadded::new(Mutex::new(Notes::new(is_ordered)));
        Versions {
            moments: Arc::clone(moments),
            budget: Arc::clone(budget),
            shards: (0..SHARDS).map(shard).collect(),
            notes: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            swept_to: AtomicU64::new(0),
            ended_below: AtomicU64::new(0),
            why: Mutex::new(""),
        }
    }

    pub fn moments(&self) -> &Arc<Moments> {
        &self.moments
    }

    /// Bytes of what is kept.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: u64) -> &Mutex<Notes> {
        &self.shards[hash as usize % SHARDS]
    }

    /// Bytes that older versions may take.
    fn most_bytes(&self) -> u64 {
        (self.budget.limit() / SHARE).max(LEAST_BYTES)
    }

    /// Whether there is room for a copy of so many bytes. If none is left once what no snapshot needs is gone, the
    /// snapshots end that are open.
    pub fn has_room(&self, memory: &impl Memory, bytes: u64) -> bool {
        let fits = || self.bytes() + bytes <= self.most_bytes();
        if fits() {
            return true;
        }
        self.sweep(memory);
        if !fits() {
            self.end(TOO_MUCH);
            self.sweep(memory);
        }
        fits()
    }

    /// Notes what a key is, whose lock the caller holds, before it is written; the number of the note.
    pub fn note(
        &self,
        memory: &impl Memory,
        (hash, key): (u64, &[u8]),
        was: Was,
        batch: Option<&Arc<Commit>>,
    ) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let commit = batch.map_or_else(Arc::default, Arc::clone);
        let note = Note { number, commit, was };
        let bytes = note.bytes(key);
        self.budget.take_anyway(bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut shard = lock(memory, self.shard(hash));
        match shard.get_mut(key) {
            None => shard.insert(key, note),
            Some(notes) => {
                // Whoever wrote before has let the key's lock go, so its write is in the index, and is of an earlier
                // moment.
                if let Some(last) = notes.last().filter(|last| !last.commit.is_batch) {
                    last.commit.decide(&self.moments);
                }
                notes.push(note);
                if notes.len() >= CROWDED && notes.len().is_power_of_two() {
                    self.thin_out_between(key, notes);
                }
            }
        }
        self.notes.fetch_add(1, Ordering::SeqCst);
        if shard.is_due() {
            shard.retain(|key, notes| !self.thin_out(key, notes));
        }
        drop(shard);
        self.has_room(memory, 0);
        number
    }

    /// The write with this note is in the index. What no snapshot needs of the key goes.
    pub fn written(&self, memory: &impl Memory, (hash, key): (u64, &[u8]), number: u64) {
        let mut shard = lock(memory, self.shard(hash));
        let Some(notes) = shard.get_mut(key) else { return };
        if let Some(note) = notes.iter().find(|note| note.number == number && !note.commit.is_batch)
        {
            note.commit.decide(&self.moments);
        }
        if self.thin_out(key, notes) {
            shard.remove(key);
        }
    }

    /// A batch that wrote the key has its moment: what no snapshot needs of the key goes.
    pub fn thin(&self, memory: &impl Memory, (hash, key): (u64, &[u8])) {
        let mut shard = lock(memory, self.shard(hash));
        if shard.get_mut(key).is_some_and(|notes| self.thin_out(key, notes)) {
            shard.remove(key);
        }
    }

    /// Takes out what no snapshot needs; whether nothing is left. A snapshot needs the first note after its moment: so
    /// of those of one moment the first, and none of a moment that all snapshots are at or beyond.
    fn thin_out(&self, key: &[u8], notes: &mut Vec<Note>) -> bool {
        let oldest = self.oldest();
        let (mut before, mut gone, mut count) = (None, 0, 0);
        notes.retain(|note| {
            let decided = note.commit.decided();
            let stays = decided.is_none_or(|at| at > oldest && before != Some(at));
            before = decided;
            if !stays {
                gone += note.bytes(key);
                count += 1;
            }
            stays
        });
        self.forget(count, gone);
        notes.is_empty()
    }

    /// Takes out what lies between two snapshots: who writes a key again and again while an old one is open leaves a
    /// note for each of the transactions that came and went since.
    fn thin_out_between(&self, key: &[u8], notes: &mut Vec<Note>) {
        let (mut before, mut gone, mut count) = (0, 0, 0);
        let ended = self.ended_below.load(Ordering::SeqCst);
        self.moments.with_open(|open| {
            notes.retain(|note| {
                let Some(at) = note.commit.decided() else { return true };
                let stays = open.need(before.max(ended), at);
                before = at;
                if !stays {
                    gone += note.bytes(key);
                    count += 1;
                }
                stays
            });
        });
        self.forget(count, gone);
    }

    /// What was replaced at this moment or before is needed by nobody. A snapshot that has ended needs nothing.
    fn oldest(&self) -> u64 {
        self.moments.oldest().max(self.ended_below.load(Ordering::SeqCst))
    }

    fn forget(&self, count: usize, bytes: u64) {
        if count > 0 {
            self.notes.fetch_sub(count, Ordering::SeqCst);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.budget.give(bytes);
        }
    }

    /// Takes out what no snapshot needs of any key. Now and then.
    pub fn sweep(&self, memory: &impl Memory) {
        let oldest = self.oldest();
        let is_news = self.swept_to.swap(oldest, Ordering::Relaxed) < oldest;
        if is_news && self.notes.load(Ordering::Relaxed) > 0 {
            for shard in &self.shards {
                lock(memory, &**shard).retain(|key, notes| !self.thin_out(key, notes));
            }
        }
    }

    /// What the key was at this moment, if it was written since; to be asked after it was read.
    pub fn at(
        &self,
        memory: &impl Memory,
        (hash, key): (u64, &[u8]),
        moment: u64,
    ) -> Option<Option<Arc<Older>>> {
        if self.notes.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let shard = lock(memory, self.shard(hash));
        shard
            .get(key)
            .and_then(|notes| first_after(notes, moment))
            .map(|was| self.told(was, moment))
    }

    /// Whether the key was written after this moment.
    pub fn is_written(&self, memory: &impl Memory, (hash, key): (u64, &[u8]), moment: u64) -> bool {
        self.notes.load(Ordering::SeqCst) > 0 && {
            let shard = lock(memory, self.shard(hash));
            shard.get(key).is_some_and(|notes| first_after(notes, moment).is_some())
        }
    }

    /// A key of a range that was written after this moment.
    pub fn written_in(
        &self,
        memory: &impl Memory,
        range: Range<'_>,
        moment: u64,
    ) -> Option<Box<[u8]>> {
        let mut found = None;
        if self.notes.load(Ordering::SeqCst) == 0 || is_empty(range.from, range.to) {
            return found;
        }
        for shard in &self.shards {
            let shard = lock(memory, &**shard);
            shard.each((range.from, range.to), |key, notes| {
                if found.is_none() && first_after(notes, moment).is_some() {
                    found = Some(Box::from(key));
                }
            });
        }
        found
    }

    /// What is told of it to a snapshot of this moment; where no copy is left, nothing, and that has ended.
    fn told(&self, was: &Was, moment: u64) -> Option<Arc<Older>> {
        match was {
            Was::Absent => None,
            Was::There(older) => Some(Arc::clone(older)),
            Was::Forgotten => {
                *self.why.lock() = TOO_MUCH;
                self.ended_below.fetch_max(moment + 1, Ordering::SeqCst);
                None
            }
        }
    }

    /// The same of all keys of a range that were written since, in the order of keys; to be asked after it was read. Of
    /// a map that is not ordered, of all keys.
    pub fn range_at(
        &self,
        memory: &impl Memory,
        range: Range<'_>,
        moment: u64,
    ) -> BTreeMap<Box<[u8]>, Option<Arc<Older>>> {
        let mut found = BTreeMap::new();
        if self.notes.load(Ordering::SeqCst) == 0 || is_empty(range.from, range.to) {
            return found;
        }
        for shard in &self.shards {
            let shard = lock(memory, &**shard);
            shard.each((range.from, range.to), |key, notes| {
                let was = first_after(notes, moment);
                found.extend(was.map(|was| (key.into(), self.told(was, moment))));
            });
        }
        found
    }

    /// The snapshots that are open have no more of this map.
    pub fn end(&self, why: &'static str) {
        *self.why.lock() = why;
        self.ended_below.fetch_max(self.moments.now(), Ordering::SeqCst);
    }

    /// # Errors
    /// [`Error::SnapshotEnded`], if a snapshot of this moment has no more of this map; to be asked after it was read.
    pub fn check(&self, moment: u64) -> Result<()> {
        match moment < self.ended_below.load(Ordering::SeqCst) {
            true => Err(Error::SnapshotEnded { why: *self.why.lock() }),
            false => Ok(()),
        }
    }

    /// Forgets everything: no snapshot is open.
    pub fn clear(&self, memory: &impl Memory) {
        for shard in &self.shards {
            lock(memory, &**shard).retain(|key, notes| {
                self.forget(notes.len(), notes.iter().map(|note| note.bytes(key)).sum());
                false
            });
        }
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.budget.give(self.bytes());
    }
}

fn first_after(notes: &[Note], moment: u64) -> Option<&Was> {
    notes.iter().find(|note| note.commit.is_after(moment)).map(|note| &note.was)
}

/// Whether no key can lie between them: the standard library's maps do not take such bounds.
/// Whether no key can be between these.
pub(crate) fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
    }
}
