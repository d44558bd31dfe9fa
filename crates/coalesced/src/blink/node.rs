//! What is in a node of the tree: a word about it, the link to its right neighbour, its largest key, and keys in order
//! with what belongs to them.
//!
//! A node stands for the keys above the largest of its left neighbour, up to its own. A leaf has a value for each key.
//! An inner node has *separators* for keys and a child more than those: child i stands for the keys above separator
//! i - 1, up to separator i. So nodes of N keys have up to N + 1 children: with two keys three, which two halves of
//! two can be made of, and a tree of n keys has at most about log2 n levels.

use crate::backend::Context;
use crate::object::CObject;

/// Element of the word about the node.
pub(super) const ABOUT: usize = 0;
/// Element of the link to the right neighbour; of a node that is dead, to the left one, which took its part over.
pub(super) const RIGHT: usize = 1;
/// Element of the largest key that the node stands for.
pub(super) const HIGH: usize = 2;
/// First element of the keys. Behind their places lie the values, one more than keys.
pub(super) const KEYS: usize = 3;

/// Largest key of the last node of a level.
pub(super) const NO_BOUND: u64 = u64::MAX;

/// Most keys of a node.
pub(super) const MOST_KEYS: usize = COUNT as usize;
const COUNT: u64 = (1 << 10) - 1;
const LOCKED: u64 = 1 << 10;
const LEVEL_SHIFT: u32 = 11;
/// Most levels: inner nodes have two children at least, but for the last of a level and what removals left, so that 64
/// levels have more leaves than there are keys.
pub(super) const MOST_LEVELS: usize = 1 << 7;
const LEVELS: u64 = (MOST_LEVELS as u64 - 1) << LEVEL_SHIFT;
const DEAD: u64 = 1 << 18;
const VERSION: u64 = 1 << 19;

/// Words of a node of so many keys.
pub(super) const fn words(elements: usize) -> usize {
    KEYS + 2 * elements + 1
}

/// The word about a node: its keys, its level (0 for leaves), whether somebody holds it, whether it is still in the
/// tree, and a version that each change raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About(pub u64);

impl About {
    pub fn of(level: usize, keys: usize) -> About {
        About((level as u64) << LEVEL_SHIFT | keys as u64)
    }

    pub fn keys(self) -> usize {
        (self.0 & COUNT) as usize
    }

    pub fn level(self) -> usize {
        ((self.0 & LEVELS) >> LEVEL_SHIFT) as usize
    }

    pub fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Whether the node is no longer in the tree. It stays locked then.
    pub fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }

    pub fn locked(self) -> About {
        About(self.0 | LOCKED)
    }

    /// While it is being written, for the last time perhaps.
    pub fn held(self) -> About {
        About(self.0 & !DEAD | LOCKED)
    }

    pub fn dead(self) -> About {
        About(self.0 | LOCKED | DEAD)
    }

    /// After a change, free, with this level and so many keys.
    pub fn changed(self, level: usize, keys: usize) -> About {
        let version = (self.0 & !(VERSION - 1)).wrapping_add(VERSION);
        About(version | About::of(level, keys).0)
    }
}

/// The first of `keys` keys that is not smaller, or their number.
#[inline]
pub(super) fn position<C: Context>(
    node: &CObject,
    context: &mut C,
    keys: usize,
    key: u64,
) -> usize {
    let (mut low, mut high) = (0, keys);
    while low < high {
        let middle = (low + high) / 2;
        if node.load(context, KEYS + middle) < key { low = middle + 1 } else { high = middle }
    }
    low
}

/// How nodes of a tree are laid out: places for so many keys, in a leaf or in an inner node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    elements: usize,
    /// 1 in an inner node, whose first child has no separator before it.
    first: usize,
}

/// What a split came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halves {
    /// Keys that stayed.
    pub left: usize,
    /// Keys of the new right neighbour.
    pub right: usize,
    /// The largest key that the left part stands for.
    pub bound: u64,
}

impl Layout {
    pub fn of(elements: usize, level: usize) -> Layout {
        Layout { elements, first: usize::from(level > 0) }
    }

    /// Element of value or child `i`.
    pub fn value(self, i: usize) -> usize {
        KEYS + self.elements + i
    }

    /// Puts a key at `i` of `keys`, and its value or the child behind it; there is room.
    pub fn insert(self, node: &mut CObject, keys: usize, i: usize, (key, value): (u64, u64)) {
        let near = node.near();
        near.copy_within(KEYS + i..KEYS + keys, KEYS + i + 1);
        near[KEYS + i] = key;
        let at = self.value(i + self.first);
        near.copy_within(at..self.value(keys + self.first), at + 1);
        near[at] = value;
    }

    /// Takes the key at `i` of `keys` out, and its value or the child behind it.
    pub fn remove(self, node: &mut CObject, keys: usize, i: usize) {
        let near = node.near();
        near.copy_within(KEYS + i + 1..KEYS + keys, KEYS + i);
        let at = self.value(i + self.first);
        near.copy_within(at + 1..self.value(keys + self.first), at);
    }

    /// Splits a full node around a key that comes to `i`. `right` gets the upper part, the link and the bound; the
    /// caller links the two. A separator between the two halves of an inner node is in neither: it is their bound.
    ///
    /// At the end of a level the left node stays full: keys that come in order fill it.
    pub fn split(
        self,
        left: &mut CObject,
        right: &mut CObject,
        i: usize,
        pair: (u64, u64),
    ) -> Halves {
        let (elements, first) = (self.elements, self.first);
        let (from, to) = (left.near(), right.near());
        let mut keys = from[KEYS..KEYS + elements].to_vec();
        let mut values = from[self.value(0)..self.value(elements + first)].to_vec();
        keys.insert(i, pair.0);
        values.insert(i + first, pair.1);
        let is_end = i == elements && from[HIGH] == NO_BOUND;
        let stay = if is_end { elements } else { (elements + 1 - first).div_ceil(2) };
        let halves = Halves {
            left: stay,
            right: elements + 1 - first - stay,
            bound: if first > 0 { keys[stay] } else { keys[stay - 1] },
        };
        for (near, keys, values) in [
            (&mut *from, &keys[..stay], &values[..stay + first]),
            (&mut *to, &keys[stay + first..], &values[stay + first..]),
        ] {
            near[KEYS..KEYS + keys.len()].copy_from_slice(keys);
            near[self.value(0)..self.value(values.len())].copy_from_slice(values);
        }
        (to[RIGHT], to[HIGH]) = (from[RIGHT], from[HIGH]);
        halves
    }

    /// Keys of a node that takes over those of its right neighbour, if they fit. Between children comes a separator.
    pub fn merged(self, left: usize, right: usize) -> Option<usize> {
        Some(left + right + self.first).filter(|keys| *keys <= self.elements)
    }

    /// Has a node of `keys.0` keys take over what its right neighbour has, of `keys.1`: they fit.
    pub fn merge(self, left: &mut CObject, right: &mut CObject, keys: (usize, usize)) {
        let (to, from) = (left.near(), right.near());
        if self.first > 0 {
            to[KEYS + keys.0] = to[HIGH];
        }
        let at = keys.0 + self.first;
        to[KEYS + at..KEYS + at + keys.1].copy_from_slice(&from[KEYS..KEYS + keys.1]);
        to[self.value(at)..self.value(at + keys.1 + self.first)]
            .copy_from_slice(&from[self.value(0)..self.value(keys.1 + self.first)]);
        (to[RIGHT], to[HIGH]) = (from[RIGHT], from[HIGH]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of full keys 2, 4, ... with values 102, 104, ...; the first child of an inner node is 100.
    fn full(layout: Layout, bound: u64) -> CObject {
        let mut node = CObject::new(words(layout.elements));
        let near = node.near();
        (near[HIGH], near[RIGHT]) = (bound, 77);
        near[layout.value(0)] = 100;
        for i in 0..layout.elements {
            layout.insert(&mut node, i, i, (2 * i as u64 + 2, 2 * i as u64 + 102));
        }
        node
    }

    fn keys(node: &mut CObject, count: usize) -> Vec<u64> {
        node.near()[KEYS..KEYS + count].to_vec()
    }

    fn values(layout: Layout, node: &mut CObject, count: usize) -> Vec<u64> {
        node.near()[layout.value(0)..layout.value(count)].to_vec()
    }

    #[test]
    fn halves_keep_everything_in_order_and_merge_to_what_was() {
        let all = (2..20).flat_map(|n| [(n, NO_BOUND), (n, 1_000)]);
        for (elements, bound, level) in all.flat_map(|(n, bound)| [(n, bound, 0), (n, bound, 3)]) {
            let layout = Layout::of(elements, level);
            let first = layout.first;
            for i in 0..=elements {
                let (mut left, mut right) = (full(layout, bound), CObject::new(words(elements)));
                let new = 2 * i as u64 + 1;
                let halves = layout.split(&mut left, &mut right, i, (new, new + 100));
                let is_end = i == elements && bound == NO_BOUND;
                let least = [halves.left, halves.right].map(|keys| keys + first);
                let wanted = if is_end { 1 } else { 1 + first };
                assert!(least.iter().all(|n| *n >= wanted && *n <= elements + first), "{halves:?}");
                let mut between = vec![halves.bound];
                between.truncate(first);
                let all = [keys(&mut left, halves.left), between, keys(&mut right, halves.right)]
                    .concat();
                assert_eq!(all.len(), elements + 1);
                assert!(all.is_sorted() && all.contains(&new), "{all:?}");
                assert!(keys(&mut left, halves.left).iter().all(|key| *key <= halves.bound));
                assert!(keys(&mut right, halves.right).iter().all(|key| *key > halves.bound));
                let values = [
                    values(layout, &mut left, halves.left + first),
                    values(layout, &mut right, halves.right + first),
                ];
                let mut expected: Vec<u64> = all.iter().map(|key| key + 100).collect();
                if first > 0 {
                    expected.insert(0, 100);
                }
                assert_eq!(values.concat(), expected);
                assert_eq!((right.near()[HIGH], right.near()[RIGHT]), (bound, 77));

                (left.near()[HIGH], left.near()[RIGHT]) = (halves.bound, 88);
                assert_eq!(layout.merged(halves.left, halves.right), None, "one too many");
                let Some(last) = halves.right.checked_sub(1) else { continue };
                layout.remove(&mut right, halves.right, last);
                let total = layout.merged(halves.left, last).expect("one fewer fits");
                layout.merge(&mut left, &mut right, (halves.left, last));
                assert_eq!(keys(&mut left, total), all[..elements]);
                assert_eq!((left.near()[HIGH], left.near()[RIGHT]), (bound, 77));
            }
        }
    }

    #[test]
    fn a_change_raises_the_version_and_frees() {
        let about = About::of(3, 7).locked();
        let changed = about.changed(4, 2);
        assert!(!changed.is_locked() && !changed.is_dead() && changed.0 > about.0);
        assert_eq!((changed.level(), changed.keys()), (4, 2));
        let dead = changed.dead();
        assert!(dead.is_dead() && dead.is_locked());
        assert!(dead.held().is_locked() && !dead.held().is_dead(), "readers wait for its link");
    }
}
