//! Items that recovery finds, on their way into the index.
//!
//! Of two items of one key the newer version stays, whichever is found first. Where the other one has left memory by
//! then, the one just found is put aside until there are many such: what they are compared with is read together.

use crate::engine::{Engine, bytes_of};
use crate::error::Result;
use crate::index::KeyIndex;
use crate::located::OfWriter;
use crate::spill::FETCHES;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use terrace_durable::item::Item;
use terrace_durable::logs::{SavedIndex, Wanted};
use terrace_durable::sections::Changes;
use terrace_durable::{BucketLock, NoItem, Values};
use terrace_index::{Change as Entry, hash_key};
use terrace_memory::Memory;

/// Items put aside: so many at the most, and one in so many bytes of the memory.
const ASIDE: usize = 2048;
const ASIDE_SHARE: u64 = 16;

/// What the index has to know of an item that was found.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub location: u64,
    pub key: &'a [u8],
    pub version: u64,
    pub tombstone: bool,
    pub bytes: usize,
}

/// One that waits for the item of its key, or of one that may be the same, to be read from the disk.
struct Aside {
    key: Box<[u8]>,
    found: Found<'static>,
    other: Wanted,
}

impl Aside {
    fn found(&self) -> Found<'_> {
        Found { key: &self.key, ..self.found }
    }
}

/// Those that wait, and what the map is opened by.
#[derive(Default)]
pub(crate) struct PutAside<'a> {
    all: Mutex<Vec<Aside>>,
    /// A saved index, and a version that no item of its logs is above.
    saved: Option<(&'a SavedIndex, u64)>,
}

impl<'a> PutAside<'a> {
    /// Of an opening by a saved index that was begun when `newest` was the highest version; an earlier program does not
    /// say which (0).
    pub fn behind(saved: &'a SavedIndex, newest: u64) -> PutAside<'a> {
        PutAside { saved: Some((saved, newest)).filter(|_| newest > 0), ..PutAside::default() }
    }

    /// Whether an item of this version is newer than the one at `location`, whatever that is.
    fn is_newer(&self, version: u64, location: u64) -> bool {
        let is_above = |(saved, most): (&SavedIndex, u64)| saved.knows(location) && version > most;
        self.saved.is_some_and(is_above)
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Takes an item found by recovery into the index, or puts it aside.
    ///
    /// # Errors
    /// The index found no memory for it; those of the disk.
    pub fn recovered(
        &self,
        location: u64,
        item: &Item<'_>,
        bytes: usize,
        aside: &PutAside<'_>,
    ) -> Result<()> {
        let Item { key, version, tombstone, .. } = *item;
        self.note_recovered(item, bytes);
        let found = Found { location, key, version, tombstone, bytes };
        let Some(other) = self.take_recovered(&found, true, aside)? else {
            return self.check_index_fits();
        };
        let many = {
            let mut all = aside.all.lock();
            all.push(Aside { key: key.into(), found: Found { key: &[], ..found }, other });
            if all.len() >= self.aside_most() { std::mem::take(&mut *all) } else { Vec::new() }
        };
        self.take_put_aside(many, aside)
    }

    /// What they are compared with is in memory at once.
    fn aside_most(&self) -> usize {
        let share = self.budget.limit() / ASIDE_SHARE / self.values.usual_item_bytes() as u64;
        share.clamp(8, ASIDE as u64) as usize
    }

    /// Takes in what was put aside.
    ///
    /// # Errors
    /// As [`Engine::recovered`].
    pub fn recovered_all(&self, aside: &PutAside<'_>) -> Result<()> {
        let all = std::mem::take(&mut *aside.all.lock());
        self.take_put_aside(all, aside)
    }

    fn take_put_aside(&self, all: Vec<Aside>, aside: &PutAside<'_>) -> Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        self.values.fetch_all(all.iter().map(|one| one.other).collect(), |_, _| ());
        for one in &all {
            self.take_recovered(&one.found(), false, aside)?;
        }
        self.check_index_fits()
    }

    /// Takes an item into the index if it is newer than that of its key. Nothing is done where that is on the disk
    /// alone and `may_wait`: it is to be read first.
    fn take_recovered(
        &self,
        found: &Found<'_>,
        may_wait: bool,
        aside: &PutAside<'_>,
    ) -> Result<Option<Wanted>> {
        let guard = OfWriter::of(self);
        let mut taken = self.compare_recovered(found, &guard, None)?;
        if let (Err(NoItem::Away(_)), Some(guarded)) = (taken, guard.get()) {
            for _ in 0..FETCHES {
                let Err(NoItem::Away(away)) = taken else { break };
                if may_wait && let Some(wanted) = self.values.wanted(away) {
                    return Ok(Some(wanted));
                }
                // What the disk does not give back may be the key's. If it is older, the table keeps the newer one.
                let unreadable = match self.values.fetch(away, guarded) {
                    Err(_) if aside.is_newer(found.version, away) => Some(away),
                    fetched => fetched.map(|()| None)?,
                };
                taken = self.compare_recovered(found, &guard, unreadable)?;
            }
        }
        let grown = taken.map_err(|damaged| self.damaged(damaged))?;
        self.written[0].keys.fetch_add(grown, Ordering::Relaxed);
        Ok(None)
    }

    /// Takes the item into the index if it is newer; by how many the live keys grow. Where what it is to be compared
    /// with is `unreadable`, it goes to the table of blind writes.
    fn compare_recovered(
        &self,
        found: &Found<'_>,
        guard: &OfWriter,
        unreadable: Option<u64>,
    ) -> Result<std::result::Result<i64, NoItem>> {
        let hash = hash_key(self.seed, found.key);
        let (mut grown, mut failed) = (0, None);
        let located = self.located(guard.get());
        let mut newer = |at: Option<u64>, lock: &BucketLock| {
            if self.blind.are_some() && self.recovered_blind(hash, found, None) {
                return Entry::Keep;
            }
            let old = match self.current(found.key, at, &located, lock) {
                Ok(old) => old,
                Err(NoItem::Away(at)) if unreadable == Some(at) => {
                    self.recovered_blind(hash, found, unreadable);
                    return Entry::Keep;
                }
                Err(damaged) => {
                    failed = Some(damaged);
                    return Entry::Keep;
                }
            };
            match old {
                Some((_, item)) if item.version >= found.version => {
                    self.values.supersede(found.location, found.bytes);
                    Entry::Keep
                }
                _ => {
                    if let Some((location, item)) = old {
                        self.values.supersede(location, bytes_of(&item));
                    }
                    grown = i64::from(!found.tombstone)
                        - i64::from(old.is_some_and(|(_, item)| !item.tombstone));
                    Entry::Set(found.location)
                }
            }
        };
        let newer = |at: Option<u64>, lock: &BucketLock, _: &mut Changes| (newer(at, lock), ());
        self.index
            .update_then(hash, found.key, &located, newer, |(), _| ())
            .map_err(|source| self.index_refused(source))?;
        Ok(failed.map_or(Ok(grown), Err))
    }

    /// Counts an item that an entry of a persistent index names.
    pub fn reached(&self, found: &Item<'_>, bytes: usize) {
        self.written[0].keys.fetch_add(i64::from(!found.tombstone), Ordering::Relaxed);
        self.note_recovered(found, bytes);
    }

    /// Forgets the entry of an item that is deleted, but for its entry; whether there was one.
    ///
    /// # Errors
    /// The index found no memory for it.
    pub fn forget(&self, hash: u64, location: u64, key: &[u8]) -> Result<bool> {
        let guard = OfWriter::of(self);
        let located = self.located(guard.get());
        let forgotten = self.index.update_at(hash, key, location, &located, |_, _| Entry::Remove);
        forgotten.map_err(|source| self.index_refused(source))
    }

    fn note_recovered(&self, found: &Item<'_>, bytes: usize) {
        if found.expires_at_ms.is_some() {
            self.counters.expiries.store(true, Ordering::Relaxed);
        }
        self.written[0].note_version(found.version);
        self.item_bytes_hint.store(bytes.min(256) as u32, Ordering::Relaxed);
    }
}
