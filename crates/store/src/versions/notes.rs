//! The notes of each key: found by the key alone, or in the order of keys where there are ranges.

use super::Note;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// The notes of a key, the oldest first.
type OfKey = Vec<Note>;

/// Keys that are found in a table that is not made smaller.
const LEAST_ROOM: usize = 256;
/// First notes of keys before it is looked for those that are not needed any more, and as many as half of all.
const LEAST_NEW: usize = 64;

/// The notes of many keys.
pub(super) struct Notes {
    of_keys: OfKeys,
    /// First notes since all were looked at.
    new: usize,
}

enum OfKeys {
    Hashed(HashMap<Box<[u8]>, OfKey>),
    Ordered(BTreeMap<Box<[u8]>, OfKey>),
}

impl Notes {
    pub fn new(is_ordered: bool) -> Notes {
        let of_keys = match is_ordered {
            true => OfKeys::Ordered(BTreeMap::new()),
            false => OfKeys::Hashed(HashMap::new()),
        };
        Notes { of_keys, new: 0 }
    }

    /// Whether so many are new that looking at all of them costs each of them little.
    pub fn is_due(&self) -> bool {
        let all = match &self.of_keys {
            OfKeys::Hashed(notes) => notes.len(),
            OfKeys::Ordered(notes) => notes.len(),
        };
        self.new >= LEAST_NEW.max(all / 2)
    }

    pub fn get(&self, key: &[u8]) -> Option<&OfKey> {
        match &self.of_keys {
            OfKeys::Hashed(notes) => notes.get(key),
            OfKeys::Ordered(notes) => notes.get(key),
        }
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut OfKey> {
        match &mut self.of_keys {
            OfKeys::Hashed(notes) => notes.get_mut(key),
            OfKeys::Ordered(notes) => notes.get_mut(key),
        }
    }

    /// The first note of a key.
    pub fn insert(&mut self, key: &[u8], note: Note) {
        let of_key = vec![note];
        self.new += 1;
        match &mut self.of_keys {
            OfKeys::Hashed(notes) => drop(notes.insert(key.into(), of_key)),
            OfKeys::Ordered(notes) => drop(notes.insert(key.into(), of_key)),
        }
    }

    pub fn remove(&mut self, key: &[u8]) {
        match &mut self.of_keys {
            OfKeys::Hashed(notes) => drop(notes.remove(key)),
            OfKeys::Ordered(notes) => drop(notes.remove(key)),
        }
    }

    pub fn retain(&mut self, mut stays: impl FnMut(&[u8], &mut OfKey) -> bool) {
        self.new = 0;
        match &mut self.of_keys {
            OfKeys::Hashed(notes) => {
                notes.retain(|key, of_key| stays(key, of_key));
                if notes.capacity() > LEAST_ROOM && notes.len() < notes.capacity() / 8 {
                    notes.shrink_to(LEAST_ROOM);
                }
            }
            OfKeys::Ordered(notes) => notes.retain(|key, of_key| stays(key, of_key)),
        }
    }

    /// Visits keys between two bounds, in no order; of those found by the key alone, all.
    pub fn each(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>), mut visit: impl FnMut(&[u8], &OfKey)) {
        match &self.of_keys {
            OfKeys::Hashed(notes) => notes.iter().for_each(|(key, of_key)| visit(key, of_key)),
            OfKeys::Ordered(notes) => {
                notes.range::<[u8], _>(bounds).for_each(|(key, of_key)| visit(key, of_key));
            }
        }
    }
}
