//! Eviction in logs: the keys of the logs that were begun longest ago go, and the logs with them.
//!
//! An evicted key may be lost, but an older version of it may not come back. A tombstone would see to that, and take
//! nearly as much room as a small item did; so it is written only for a key that has an older version in another log
//! (`holding_older`). The others go without a trace: their logs are freed, durably, and only then does the index
//! forget them. Whoever writes one of them before that carries on from its version.

use crate::collect::Moving;
use crate::engine::{BATCH, Engine};
use crate::error::Result;
use crate::index::KeyIndex;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use terrace_durable::item::Item;
use terrace_durable::logs::{Logs, SegmentView, State};
use terrace_index::{Change as Entry, Line, hash_key};
use terrace_memory::Memory;

/// Logs evicted in one round at the most: what is noted of their items is not in the budget.
const EVICTED_MOST: usize = 8;

/// A hash of a key is one already.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Hashes = HashSet<u64, BuildHasherDefault<Hashed>>;

/// Where a hash was met: in one log, or in several.
type Owners = HashMap<u64, u32, BuildHasherDefault<Hashed>>;

/// An item that an entry of the index names.
struct Current {
    hash: u64,
    location: u64,
    bytes: usize,
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// The logs to evict where so many are missing: those begun longest ago.
    pub(crate) fn oldest_logs(&self, logs: &Logs<M>, missing: usize) -> Vec<SegmentView> {
        let sealed = || {
            let mut sealed = logs.survey();
            sealed.retain(|view| view.state == State::Sealed);
            sealed
        };
        let mut oldest = sealed();
        if oldest.is_empty() {
            // All there is lies in logs that are not full.
            logs.seal_open();
            oldest = sealed();
        }
        oldest.sort_by_key(|view| view.sequence);
        oldest.truncate(missing.clamp(1, EVICTED_MOST));
        oldest
    }

    /// Has the index forget the items at `locations`, whose logs are free: tombstones that no older version needs any
    /// more, and evicted keys.
    ///
    /// # Errors
    /// The index found no memory for it.
    pub(crate) fn forget_freed(
        &self,
        logs: &Logs<M>,
        gone: &[(u64, u64)],
        guard: &crossbeam_epoch::Guard,
    ) -> Result<()> {
        let located = self.located(guard);
        for batch in gone.chunks(BATCH) {
            for (hash, _) in batch {
                let line = self.index.line(*hash);
                line.iter().for_each(Line::prefetch_to_write);
            }
            for (hash, location) in batch {
                let item = logs.frozen(*location, guard).map_err(|damage| self.damaged(damage))?;
                let mut noted = 0;
                let forgotten =
                    self.index.update_at(*hash, item.key, *location, &located, |_, changes| {
                        if !item.tombstone {
                            noted = self.evicting(*hash, *location, &item);
                            self.written[0].keys.fetch_sub(1, Ordering::Relaxed);
                            self.record_keys(0, -1, changes);
                            self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                        }
                        Entry::Remove
                    });
                self.is_written((*hash, item.key), noted);
                forgotten.map_err(|source| self.index_refused(source))?;
            }
        }
        Ok(())
    }
}

impl<M: Memory, I: Memory> Moving<'_, M, I> {
    /// Readies the claimed `segments` to be freed: what can go without a trace is noted, the rest is moved, as
    /// tombstones. Returns those that may be freed, as [`Moving::segments`] does.
    pub(crate) fn evict(&mut self, claimed: Vec<u32>) -> (Vec<u32>, Result<()>) {
        let mut whole = Vec::with_capacity(claimed.len());
        let mut current = Vec::new();
        for segment in &claimed {
            if self.logs.bring_back(*segment).is_err() {
                continue;
            }
            let before = current.len();
            match self.current_of(*segment, |item| current.push((*segment, item))) {
                Ok(()) => whole.push(*segment),
                Err(error) if error.is_damage() => current.truncate(before),
                Err(error) => return (claimed, Err(error)),
            }
        }
        let is_all = whole.len() == claimed.len();
        let moved = self.evict_whole(&whole, current, is_all);
        (whole, moved)
    }

    /// What a log that stays has of a key may be older: then nothing goes without a trace.
    fn evict_whole(
        &mut self,
        segments: &[u32],
        current: Vec<(u32, Current)>,
        is_all: bool,
    ) -> Result<()> {
        let mut owners = Owners::default();
        let mut shadowing = Hashes::default();
        let holding_older = self.logs.holding_older(segments).filter(|_| is_all);
        let none_is_older = holding_older.as_ref().is_some_and(Vec::is_empty);
        for (segment, item) in current.iter().filter(|_| !none_is_older) {
            match owners.entry(item.hash) {
                Slot::Occupied(_) => drop(shadowing.insert(item.hash)),
                Slot::Vacant(slot) => drop(slot.insert(*segment)),
            }
        }
        let mut is_told = holding_older.is_some();
        for older in holding_older.iter().flatten() {
            is_told &= self.logs.each_key(*older, self.guard, |key| {
                let hash = hash_key(self.engine.seed, key);
                if owners.get(&hash).is_some_and(|owner| owner != older) {
                    shadowing.insert(hash);
                }
            });
        }
        for (_, Current { hash, location, bytes }) in current {
            match is_told && !shadowing.contains(&hash) {
                true => self.dropped.push((hash, location)),
                false => {
                    let item = self.logs.frozen(location, self.guard);
                    let item = item.map_err(|damage| self.engine.damaged(damage))?;
                    self.move_item(location, &item, bytes, hash)?;
                }
            }
        }
        Ok(())
    }

    /// Visits the items of a claimed log that the index names.
    fn current_of(&self, segment: u32, mut visit: impl FnMut(Current)) -> Result<()> {
        let mut batch: Vec<(Current, Item<'_>)> = Vec::with_capacity(BATCH);
        let mut drain = |batch: &mut Vec<(Current, Item<'_>)>| {
            for (current, item) in batch.drain(..) {
                let located = self.engine.located(self.guard);
                let Current { hash, location, .. } = current;
                if self.engine.index.holds(hash, item.key, location, &located) {
                    visit(current);
                }
            }
        };
        let all = self.logs.each_item(segment, self.guard, |location, item, bytes| {
            let hash = hash_key(self.engine.seed, item.key);
            self.engine.index.line(hash).iter().for_each(Line::prefetch);
            batch.push((Current { hash, location, bytes }, item));
            if batch.len() == BATCH {
                drain(&mut batch);
            }
        });
        drain(&mut batch);
        all.map_err(|damage| self.engine.damaged(damage))
    }
}
