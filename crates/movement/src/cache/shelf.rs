//! A shelf: the entries of one node, under one lock, with the front that readers use instead.

use super::entry::{Datum, Entry, version};
use super::front::{Front, Hazards};
use crate::range::Source;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) struct Shelf {
    pub front: Front<Entry>,
    held: Mutex<Held>,
}

/// What the lock protects.
#[derive(Default)]
struct Held {
    /// Entries, each with the number of its insertion.
    map: HashMap<Datum, (Arc<Entry>, u64)>,
    inserted: u64,
    /// The order of eviction, by datum and number: oldest first, those with a second chance behind. Names every entry
    /// of the map once, and some that are no longer there.
    order: VecDeque<(Datum, u64)>,
    /// Out of the map, and freed once no reader has them.
    retired: Vec<Arc<Entry>>,
}

/// What an access found under the lock.
pub(crate) enum Found {
    Entry(Arc<Entry>),
    /// The entry is of a later version than the access.
    Later,
    /// None: this one was inserted, and its copy is for the caller to submit.
    New(Arc<Entry>),
    None,
}

/// Entries to drop when no lock is held: that may free memory of the user's.
pub(crate) type Dropped = Vec<Arc<Entry>>;

fn address(entry: &Arc<Entry>) -> *mut Entry {
    Arc::as_ptr(entry).cast_mut()
}

impl Held {
    fn insert(&mut self, datum: Datum, entry: Arc<Entry>) {
        self.inserted += 1;
        if self.order.len() >= 2 * self.map.len() + 64 {
            let map = &self.map;
            self.order.retain(|(datum, number)| map.get(datum).is_some_and(|(_, of)| of == number));
        }
        self.order.push_back((datum, self.inserted));
        self.map.insert(datum, (entry, self.inserted));
    }
}

impl Shelf {
    pub fn new(entries: usize) -> Shelf {
        Shelf { front: Front::new(entries), held: Mutex::default() }
    }

    /// Finds an entry, and inserts `new` if there is none; a stale one is replaced. Returns whether one was.
    pub fn find(&self, source: &Source, new: Option<&Arc<Entry>>) -> (Found, bool) {
        let datum = Datum::of(source);
        let mut held = self.held.lock();
        let mut is_stale = false;
        if let Some((entry, _)) = held.map.get(&datum) {
            if entry.version > version(source) {
                return (Found::Later, false);
            }
            if entry.version == version(source) && entry.bytes >= source.bytes().len() {
                entry.touch();
                // Another entry may have taken its hint.
                self.front.install(datum.hash(), address(entry));
                return (Found::Entry(Arc::clone(entry)), false);
            }
            is_stale = true;
        }
        let Some(new) = new else { return (Found::None, false) };
        if is_stale {
            self.retire(&mut held, datum);
        }
        held.insert(datum, Arc::clone(new));
        self.front.install(datum.hash(), address(new));
        (Found::New(Arc::clone(new)), is_stale)
    }

    /// Takes an entry out of the map; it is freed by a later [`Shelf::sweep`].
    fn retire(&self, held: &mut MutexGuard<'_, Held>, datum: Datum) {
        if let Some((entry, _)) = held.map.remove(&datum) {
            self.front.remove(datum.hash(), address(&entry));
            entry.is_retired.store(true, Relaxed);
            held.retired.push(entry);
        }
    }

    pub fn len(&self) -> usize {
        self.held.lock().map.len()
    }

    /// Takes the entry of a datum out, or exactly `only`.
    pub fn remove(&self, datum: Datum, only: Option<&Entry>) -> bool {
        let mut held = self.held.lock();
        let entry = held.map.get(&datum);
        let is_it = entry.is_some_and(|(entry, _)| {
            only.is_none_or(|only| std::ptr::eq(only, Arc::as_ptr(entry)))
        });
        if is_it {
            self.retire(&mut held, datum);
        }
        is_it
    }

    /// Takes everything out.
    pub fn clear(&self) {
        let mut held = self.held.lock();
        let all: Vec<Datum> = held.map.keys().copied().collect();
        all.into_iter().for_each(|datum| self.retire(&mut held, datum));
        held.order.clear();
    }

    /// What was taken out and no reader has any more; and besides, what stays because its copy has not been seen to
    /// end.
    pub fn sweep(&self, hazards: &Hazards<Entry>) -> (Dropped, Dropped) {
        let mut held = self.held.lock();
        if held.retired.is_empty() {
            return Default::default();
        }
        let protected = hazards.snapshot();
        let (kept, free): (Dropped, Dropped) = std::mem::take(&mut held.retired)
            .into_iter()
            .partition(|entry| !entry.has_ended() || protected.contains(&address(entry)));
        let running = kept.iter().filter(|entry| !entry.has_ended()).map(Arc::clone).collect();
        held.retired = kept;
        (free, running)
    }

    /// Takes entries out that nobody uses, oldest first, until they have `bytes` bytes; entries that were hit since the
    /// last search come last. Returns besides those that stay because nobody has seen their copies end yet: taking
    /// them out might free nothing.
    pub fn evict(&self, hazards: &Hazards<Entry>, bytes: usize) -> (Dropped, Dropped) {
        let mut held = self.held.lock();
        let (mut out, mut running) = (Dropped::new(), Dropped::new());
        let (mut freed, mut looks) = (0, 2 * held.order.len());
        while freed < bytes && looks > 0 {
            looks -= 1;
            let Some((datum, number)) = held.order.pop_front() else { break };
            let Some((entry, _)) = held.map.get(&datum).filter(|(_, of)| *of == number) else {
                continue;
            };
            let entry = Arc::clone(entry);
            if entry.take_chance() {
                held.order.push_back((datum, number));
            } else if !entry.has_ended() {
                held.order.push_back((datum, number));
                running.push(entry);
            } else if self.is_unused(hazards, &entry) {
                freed += entry.bytes;
                held.map.remove(&datum);
                out.push(entry);
            } else {
                held.order.push_back((datum, number));
            }
        }
        (out, running)
    }

    /// Whether nobody but the map has an entry (and the caller). If so its hints are gone, and it stays unused while
    /// the lock is held; otherwise they stand as before.
    fn is_unused(&self, hazards: &Hazards<Entry>, entry: &Arc<Entry>) -> bool {
        let (hash, at) = (entry.datum.hash(), address(entry));
        self.front.remove(hash, at);
        // Hazards first: whoever turns one into a count does so before the hazard goes.
        let is_unused = !hazards.snapshot().contains(&at) && Arc::strong_count(entry) == 2;
        if !is_unused {
            self.front.install(hash, at);
        }
        is_unused
    }
}
