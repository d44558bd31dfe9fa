//! Sets of operations, written short, and the memory of those a search has come through.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Operations taken: of the completed ones a full beginning and a window, of the open ones all.
pub(super) struct DoneSet {
    completed: usize,
    words: Vec<u64>,
    /// All completed operations below this one are in the set.
    full_below: usize,
    /// First word of the open ones.
    open_from: usize,
}

impl DoneSet {
    /// The empty set of operations of which the first `completed` returned.
    pub(super) fn new(completed: usize, operations: usize) -> Self {
        let open_from = completed.div_ceil(64);
        let words = vec![0; open_from + (operations - completed).div_ceil(64)];
        Self { completed, words, full_below: 0, open_from }
    }

    fn bit(&self, number: usize) -> (usize, u64) {
        if number < self.completed {
            (number / 64, 1 << (number % 64))
        } else {
            let open = number - self.completed;
            (self.open_from + open / 64, 1 << (open % 64))
        }
    }

    pub(super) fn insert(&mut self, number: usize) {
        let (word, bit) = self.bit(number);
        self.words[word] |= bit;
        while self.full_below < self.completed && self.contains(self.full_below) {
            self.full_below += 1;
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        let (word, bit) = self.bit(number);
        self.words[word] &= !bit;
        if number < self.completed {
            self.full_below = self.full_below.min(number);
        }
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        let (word, bit) = self.bit(number);
        self.words[word] & bit != 0
    }

    /// The completed operations of this set, as a key: equal for equal sets and different for
    /// different ones.
    fn key(&self) -> Box<[u64]> {
        let first = self.full_below / 64;
        let window = &self.words[first.min(self.open_from)..self.open_from];
        let window_words = window.iter().rposition(|word| *word != 0).map_or(0, |i| i + 1);
        let mut key = Vec::with_capacity(1 + window_words);
        key.push(self.full_below as u64);
        key.extend_from_slice(&window[..window_words]);
        key.into_boxed_slice()
    }

    fn open(&self) -> &[u64] {
        &self.words[self.open_from..]
    }
}

/// Where a search has been: sets of operations done and the states they left.
///
/// To have come to the same place with more open operations spent is to be worse off, so it counts
/// as having been there.
pub(super) struct Visited<S> {
    /// By completed operations and state: the sets of open ones, none within another.
    places: HashMap<(Box<[u64]>, S), Spent>,
}

impl<S> Default for Visited<S> {
    fn default() -> Self {
        Visited { places: HashMap::new() }
    }
}

/// Sets of open operations; the first is kept apart as there is seldom a second.
struct Spent {
    first: Box<[u64]>,
    others: Vec<Box<[u64]>>,
}

impl<S: Hash + Eq> Visited<S> {
    /// Notes a place; false if the search has been there or somewhere better.
    pub(super) fn insert(&mut self, done: &DoneSet, state: S) -> bool {
        let open = done.open();
        match self.places.entry((done.key(), state)) {
            Entry::Vacant(place) => {
                place.insert(Spent { first: open.into(), others: Vec::new() });
                true
            }
            Entry::Occupied(mut place) => {
                let Spent { first, others } = place.get_mut();
                if is_within(first, open) || others.iter().any(|other| is_within(other, open)) {
                    return false;
                }
                others.retain(|other| !is_within(open, other));
                others.push(open.into());
                true
            }
        }
    }
}

/// Whether every operation of `inner` is in `outer`.
fn is_within(inner: &[u64], outer: &[u64]) -> bool {
    inner.iter().zip(outer).all(|(inner, outer)| inner & !outer == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn short_keys_are_equal_only_for_equal_sets() {
        let mut rng = Rng::new(5);
        let (mut set, mut model) = (DoneSet::new(150, 170), BTreeSet::new());
        let mut keys: HashMap<Vec<u64>, BTreeSet<usize>> = HashMap::new();
        for _ in 0..50_000 {
            // Mostly a full beginning, as in a search.
            let number = match rng.below(4) {
                0 => rng.below(170) as usize,
                _ => set.full_below.min(169),
            };
            if model.remove(&number) {
                set.remove(number);
            } else {
                model.insert(number);
                set.insert(number);
            }
            if rng.one_in(500) {
                (set, model) = (DoneSet::new(150, 170), BTreeSet::new());
            }
            let key = [&set.key()[..], &[u64::MAX], set.open()].concat();
            assert_eq!(keys.entry(key).or_insert_with(|| model.clone()), &model);
        }
        assert!(keys.len() > 1000);
    }

    #[test]
    fn a_place_is_new_unless_reached_with_less() {
        let mut visited = Visited::default();
        let mut insert = |open: &[usize], state| {
            let mut done = DoneSet::new(10, 20);
            open.iter().for_each(|number| done.insert(*number));
            visited.insert(&done, state)
        };
        assert!(insert(&[3, 12], None));
        assert!(!insert(&[3, 12, 15], None));
        assert!(insert(&[3, 12], Some(0)));
        assert!(insert(&[3, 14, 15], None));
        assert!(insert(&[3, 14], None));
        assert!(!insert(&[3, 14, 15], None));
        assert!(insert(&[4, 12], None));
        assert!(insert(&[3], None) && !insert(&[3, 19], None));
    }
}
