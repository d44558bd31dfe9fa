//! What is in a node of the tree: a word about it, the link to its right neighbour, its largest key, and pairs in
//! order.
//!
//! A node stands for the keys above the largest of its left neighbour, up to its own. In a leaf a pair is a key and
//! its value. In an inner node it is a lower bound (keys *above* it) and the child for them; the first child also
//! stands for whatever is smaller.

use crate::backend::Context;
use crate::object::CObject;

/// Element of the word about the node.
pub(super) const ABOUT: usize = 0;
/// Element of the link to the right neighbour.
pub(super) const RIGHT: usize = 1;
/// Element of the largest key that the node stands for.
pub(super) const HIGH: usize = 2;
/// First element of the keys; their values follow behind all of them.
pub(super) const KEYS: usize = 3;

/// Largest key of the last node of a level.
pub(super) const NO_BOUND: u64 = u64::MAX;

/// Most pairs of a node.
pub(super) const MOST_PAIRS: usize = PAIRS as usize;
const PAIRS: u64 = (1 << 10) - 1;
const LOCKED: u64 = 1 << 10;
const LEVEL_SHIFT: u32 = 11;
/// Most levels: with two children of each inner node, more than keys.
pub(super) const MOST_LEVELS: usize = 1 << 7;
const LEVELS: u64 = (MOST_LEVELS as u64 - 1) << LEVEL_SHIFT;
const VERSION: u64 = 1 << 18;

/// The word about a node: its pairs, its level (0 for leaves), whether somebody holds it, and a version that each
/// change raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About(pub u64);

impl About {
    pub fn of(level: usize, pairs: usize) -> About {
        About((level as u64) << LEVEL_SHIFT | pairs as u64)
    }

    pub fn pairs(self) -> usize {
        (self.0 & PAIRS) as usize
    }

    pub fn level(self) -> usize {
        ((self.0 & LEVELS) >> LEVEL_SHIFT) as usize
    }

    pub fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    pub fn locked(self) -> About {
        About(self.0 | LOCKED)
    }

    /// After a change, free, with this level and so many pairs.
    pub fn changed(self, level: usize, pairs: usize) -> About {
        let version = (self.0 & !(VERSION - 1)).wrapping_add(VERSION);
        About(version | About::of(level, pairs).0)
    }
}

/// The first of `pairs` pairs whose key is not smaller, or their number.
#[inline]
pub(super) fn position<C: Context>(
    node: &CObject,
    context: &mut C,
    pairs: usize,
    key: u64,
) -> usize {
    let (mut low, mut high) = (0, pairs);
    while low < high {
        let middle = (low + high) / 2;
        if node.load(context, KEYS + middle) < key { low = middle + 1 } else { high = middle }
    }
    low
}

/// Puts a pair at `i` of `pairs`, in nodes of `elements`; there is room.
pub(super) fn insert(
    node: &mut CObject,
    elements: usize,
    pairs: usize,
    i: usize,
    pair: (u64, u64),
) {
    let near = node.near();
    for (from, new) in [(KEYS, pair.0), (KEYS + elements, pair.1)] {
        near.copy_within(from + i..from + pairs, from + i + 1);
        near[from + i] = new;
    }
}

/// Takes the pair at `i` of `pairs` out.
pub(super) fn remove(node: &mut CObject, elements: usize, pairs: usize, i: usize) {
    for from in [KEYS, KEYS + elements] {
        node.near().copy_within(from + i + 1..from + pairs, from + i);
    }
}

/// Splits a full node around a pair that comes to `i`. `right` gets the upper pairs, the link and the bound; how many
/// pairs each has then. The caller links the two.
///
/// At the end of a level the left node stays full: keys that come in order fill it.
pub(super) fn split(
    left: &mut CObject,
    right: &mut CObject,
    elements: usize,
    i: usize,
    pair: (u64, u64),
) -> (usize, usize) {
    let is_end = i == elements && left.near()[HIGH] == NO_BOUND;
    let stay = if is_end { elements } else { elements.div_ceil(2) };
    // Of the pairs that are there, the new one aside.
    let is_left = i < stay;
    let kept = if is_left { stay - 1 } else { stay };
    let (from, to) = (left.near(), right.near());
    for first in [KEYS, KEYS + elements] {
        to[first..first + elements - kept].copy_from_slice(&from[first + kept..first + elements]);
    }
    (to[RIGHT], to[HIGH]) = (from[RIGHT], from[HIGH]);
    if is_left {
        insert(left, elements, kept, i, pair);
    } else {
        insert(right, elements, elements - kept, i - kept, pair);
    }
    (stay, elements + 1 - stay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_all_pairs_in_order_and_neither_half_is_empty() {
        for (elements, bound) in (2..20).flat_map(|n| [(n, NO_BOUND), (n, 1_000)]) {
            for i in 0..=elements {
                let (mut left, mut right) =
                    (CObject::new(KEYS + 2 * elements), CObject::new(KEYS + 2 * elements));
                (0..elements)
                    .for_each(|j| insert(&mut left, elements, j, j, (2 * j as u64 + 2, j as u64)));
                left.near()[HIGH] = bound;
                let (l, r) = split(&mut left, &mut right, elements, i, (2 * i as u64 + 1, 99));
                assert!(l > 0 && r > 0 && l <= elements && r <= elements && l + r == elements + 1);
                let half = |node: &mut CObject, n: usize| node.near()[KEYS..KEYS + n].to_vec();
                let all = [half(&mut left, l), half(&mut right, r)].concat();
                assert!(all.is_sorted() && all.contains(&(2 * i as u64 + 1)), "{all:?}");
                assert_eq!(right.near()[HIGH], bound);
            }
        }
    }

    #[test]
    fn a_change_raises_the_version_and_frees() {
        let about = About::of(3, 7).locked();
        let changed = about.changed(4, 2);
        assert!(!changed.is_locked() && changed.0 > about.0);
        assert_eq!((changed.level(), changed.pairs()), (4, 2));
    }
}
