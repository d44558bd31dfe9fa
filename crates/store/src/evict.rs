//! Room in slabs: retired slots come back by themselves; when that is not enough, a map that evicts
//! drops what was written longest ago.
//!
//! Free slots of another size are of no use, so whole superblocks are emptied: those filled the
//! longest ago, a few of all, found by one walk over the index, which tells what lives in them
//! without touching it. Their slots are held back until the walk is over and readers have left, so
//! that it does not meet what was just written; then they serve writes of any size.

use crate::collect::Round;
use crate::engine::{Engine, is_live};
use crate::index::{KeyIndex, Position};
use crate::pressure::Reading;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use terrace_durable::slabs::{self, Slabs};
use terrace_index::{Change as Entry, hash_key};
use terrace_memory::Memory;

/// One superblock in so many is evicted at a time: a walk over the index costs little for each item
/// evicted, and little of what is worth keeping goes. More where more are missing, as after the budget was lowered.
const SHARE: usize = 64;
const LARGEST_SHARE: usize = 4;
/// Entries looked at under one guard.
const STEP: usize = 1_000;
/// Rounds in which slots that readers held came back, and the writers that press found none of
/// their size among them, before the map counts as full.
const PATIENCE: u32 = 100;

impl<M: Memory, I: Memory> Engine<M, I> {
    /// One round under pressure, under the collector's lock: slots that others keep for later, then those that readers
    /// held, and at last, if the map evicts, the oldest items.
    pub(crate) fn make_room_in(&self, slabs: &Slabs<M>) -> Round {
        let pressed = self.pressure.take();
        let index_pressed = self.index_room.as_ref().filter(|room| room.pressure.take());
        // Growth of the index is paid for by values; of a map that refuses, by what it has not filled again.
        let was_evicting = slabs.is_evicting();
        let overdrawn = slabs.is_overdrawn();
        if overdrawn {
            // An index that holds less than it did.
            self.shrink_index();
        }
        if overdrawn && !was_evicting {
            // What cannot be released now is tried again.
            let _kept = slabs.release_overdrawn();
        }
        let overdrawn = overdrawn
            && self.evicts()
            && slabs.is_overdrawn()
            && self.evicts_for_others(slabs.total_superblocks());
        if !pressed && index_pressed.is_none() && !overdrawn {
            self.counters.patient_rounds.store(0, Ordering::Relaxed);
            return Round::default();
        }
        let this_round = self.rounds.fetch_add(1, Ordering::AcqRel) + 1;
        slabs.give_back_cached();
        let waiting = slabs.waiting_slots() > 0;
        // Slots come back when the epoch moves on, which takes someone to ask.
        crossbeam_epoch::pin().flush();
        let is_index_full = index_pressed.is_some() && self.is_index_full();
        let reading = self.readers.look(waiting || slabs.is_evicting());
        if reading == Reading::On {
            if pressed {
                self.pressure.give_up(this_round);
            }
            // Room in the index waits for nobody.
            if !is_index_full || !self.evicts() {
                index_pressed.iter().for_each(|room| room.pressure.give_up(this_round));
                return Round::default();
            }
        }
        // What was evicted may serve by now: that is seen in the next round, before more goes. There may be room in the
        // index again, and nobody misses any else.
        if was_evicting || slabs.is_evicting() || !pressed && !is_index_full && !overdrawn {
            return Round::default();
        }
        let is_patient = self.counters.patient_rounds.fetch_add(1, Ordering::Relaxed) < PATIENCE;
        if waiting && (is_patient || reading == Reading::Slowly) && !is_index_full {
            return Round::default();
        }
        let most = if is_index_full { self.index_share() } else { usize::MAX };
        let evicted = if self.evicts() { self.evict_oldest(slabs, most) } else { 0 };
        if evicted == 0 && is_index_full && is_patient && self.evicts() {
            // The superblock may have been of slots that writers keep for later.
            return Round::default();
        }
        match evicted {
            0 if pressed => self.pressure.give_up(this_round),
            0 => {}
            _ => self.pressure.relieve(),
        }
        if evicted == 0
            && let Some(room) = index_pressed
        {
            room.pressure.give_up(this_round);
        }
        self.counters.patient_rounds.store(0, Ordering::Relaxed);
        Round { freed_segments: usize::from(evicted > 0) }
    }

    fn evict_oldest(&self, slabs: &Slabs<M>, most: usize) -> usize {
        let missing = slabs.overdrawn_superblocks().max(1);
        let share = (slabs.total_superblocks() / missing).clamp(LARGEST_SHARE, SHARE);
        let superblocks = slabs.begin_eviction(share);
        let evicted = self.evict_from(slabs, &superblocks.iter().copied().collect(), most);
        slabs.end_eviction(superblocks);
        evicted
    }

    /// Evicts what lives in these superblocks, `most` or a few more.
    fn evict_from(&self, slabs: &Slabs<M>, oldest: &HashSet<u32>, most: usize) -> usize {
        let mut evicted = 0;
        let mut reached = Position::Start;
        loop {
            let guard = crossbeam_epoch::pin();
            let mut found = Vec::new();
            let located = self.located(&guard);
            reached = self.index.scan(&reached, STEP, &located, |location| {
                if oldest.contains(&slabs::superblock_number(location)) {
                    found.push(location);
                }
            });
            if located.check().is_err() {
                // Where an ordered index goes on behind a key that nobody can tell is not known.
                reached = Position::End;
            }
            for location in found {
                // A damaged one stays, and is told of whoever asks for it.
                let Ok(item) = slabs.item(location, &guard) else { continue };
                let hash = hash_key(self.seed, item.key);
                let located = self.located(&guard);
                let mut noted = 0;
                let gone =
                    self.index.update_at(hash, item.key, location, &located, |_, changes| {
                        // As for a delete: gone from storage, then from the index.
                        noted = self.evicting(hash, location, &item);
                        slabs.retire(location, changes);
                        self.written[0].keys.fetch_sub(1, Ordering::Relaxed);
                        self.record_keys(0, -1, changes);
                        Entry::Remove
                    });
                self.is_written((hash, item.key), noted);
                // An index in logs that has no room to forget it keeps it.
                let gone = gone.unwrap_or(false);
                if gone {
                    slabs.release(location);
                }
                evicted += usize::from(gone);
                self.counters
                    .evicted
                    .fetch_add(u64::from(gone && is_live(&item)), Ordering::Relaxed);
            }
            guard.flush();
            if reached == Position::End || evicted >= most {
                return evicted;
            }
        }
    }
}
