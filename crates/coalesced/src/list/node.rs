//! What is in a node of a list: a word about it, a link, and keys in order.

use crate::backend::Context;
use crate::object::CObject;

/// Element of the word about the node.
pub(super) const ABOUT: usize = 0;
/// Element of the link to the next node.
pub(super) const NEXT: usize = 1;
/// First element of the keys.
pub(super) const KEYS: usize = 2;

/// Stolen from a link: its node belongs to whoever set it. Of a link that is `LOCKED` for good, the node was replaced.
pub(super) const LOCKED: u64 = 1 << 63;

/// Most keys of a node.
pub(super) const MOST_KEYS: u64 = COUNT;
const COUNT: u64 = (1 << 10) - 1;
const ABOUT_LOCKED: u64 = 1 << 10;
const ABOUT_DEAD: u64 = 1 << 11;
/// The version stands above the rest, and only grows.
const ABOUT_VERSION: u64 = 1 << 12;

/// The word about a node: how many keys it has; in the fully atomic regime also who holds it, whether it is still in
/// the list, and its version, by which a lock is taken only on the node as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About(pub u64);

impl About {
    pub fn keys(self) -> usize {
        (self.0 & COUNT) as usize
    }

    pub fn is_locked(self) -> bool {
        self.0 & ABOUT_LOCKED != 0
    }

    /// Whether the node is no longer in the list. It stays locked then.
    pub fn is_dead(self) -> bool {
        self.0 & ABOUT_DEAD != 0
    }

    pub fn locked(self) -> About {
        About(self.0 | ABOUT_LOCKED)
    }

    pub fn dead(self) -> About {
        About(self.0 | ABOUT_DEAD | ABOUT_LOCKED)
    }

    /// After a change, free again.
    pub fn changed(self) -> About {
        About((self.0 & !ABOUT_LOCKED).wrapping_add(ABOUT_VERSION))
    }

    pub fn with_keys(self, keys: usize) -> About {
        About(self.0 & !COUNT | keys as u64)
    }
}

/// Where a key is, or would be, among the keys of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There.
    Found(usize),
    /// Not there; it would be here.
    Before(usize),
    /// Behind all keys of the node.
    Behind,
}

/// Looks for `key` among the keys of a node. The last one is looked at first: mostly a search goes on.
#[inline]
pub(super) fn place<C: Context>(node: &CObject, context: &mut C, keys: usize, key: u64) -> Place {
    if keys == 0 || node.load(context, KEYS + keys - 1) < key {
        return Place::Behind;
    }
    for i in 0..keys {
        let found = node.load(context, KEYS + i);
        if found >= key {
            return if found == key { Place::Found(i) } else { Place::Before(i) };
        }
    }
    Place::Behind
}

/// Puts `key` at `i`; there is room.
pub(super) fn insert(node: &mut CObject, i: usize, key: u64) {
    let near = node.near();
    let about = About(near[ABOUT]);
    let keys = about.keys();
    near.copy_within(KEYS + i..KEYS + keys, KEYS + i + 1);
    near[KEYS + i] = key;
    near[ABOUT] = about.with_keys(keys + 1).0;
}

/// Takes the key at `i` out.
pub(super) fn remove(node: &mut CObject, i: usize) {
    let near = node.near();
    let about = About(near[ABOUT]);
    let keys = about.keys();
    near.copy_within(KEYS + i + 1..KEYS + keys, KEYS + i);
    near[ABOUT] = about.with_keys(keys - 1).0;
}

/// Makes `node` a node of one key.
pub(super) fn only(node: &mut CObject, key: u64, next: u64) {
    let near = node.near();
    near[ABOUT] = 1;
    near[NEXT] = next;
    near[KEYS] = key;
}

/// Moves the upper part of a full node, with its link, to `upper`, and puts `key` at `i` of what was. The lower part
/// keeps its own link, which the caller sets.
pub(super) fn split(node: &mut CObject, upper: &mut CObject, i: usize, key: u64) {
    let keys = About(node.near()[ABOUT]).keys();
    // Of the keys + 1 that there will be, the lower half stays.
    let stay = keys.div_ceil(2);
    let is_lower = i < stay || keys == 1;
    let stay = if is_lower { stay - 1 } else { stay };
    let (from, to) = (node.near(), upper.near());
    to[NEXT] = from[NEXT] & !LOCKED;
    to[KEYS..KEYS + keys - stay].copy_from_slice(&from[KEYS + stay..KEYS + keys]);
    to[ABOUT] = (keys - stay) as u64;
    from[ABOUT] = About(from[ABOUT]).with_keys(stay).0;
    if is_lower { insert(node, i, key) } else { insert(upper, i - stay, key) }
}

/// What a link leads to.
#[inline]
pub(super) fn target(link: u64) -> u64 {
    link & !LOCKED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(keys: &[u64], size: usize) -> CObject {
        let mut node = CObject::new(KEYS + size);
        keys.iter().enumerate().for_each(|(i, key)| insert(&mut node, i, *key));
        node
    }

    fn keys(node: &mut CObject) -> Vec<u64> {
        let near = node.near();
        near[KEYS..KEYS + About(near[ABOUT]).keys()].to_vec()
    }

    #[test]
    fn a_split_keeps_all_keys_in_order_and_neither_half_is_empty() {
        for size in 1..20 {
            for i in 0..size {
                let even: Vec<u64> = (1..=size as u64).map(|k| 2 * k).collect();
                let (mut lower, mut upper) = (node(&even, size), node(&[], size));
                lower.near()[NEXT] = 77 | LOCKED;
                let key = 2 * i as u64 + 1;
                split(&mut lower, &mut upper, i, key);
                let (low, high) = (keys(&mut lower), keys(&mut upper));
                assert!(
                    !low.is_empty() && !high.is_empty() && low.len() <= size && high.len() <= size
                );
                let mut expected = even.clone();
                expected.insert(i, key);
                assert_eq!([low, high].concat(), expected, "size {size}, at {i}");
                assert_eq!(upper.near()[NEXT], 77);
            }
        }
    }

    #[test]
    fn keys_are_found_where_they_are() {
        let (node, mut none) = (node(&[2, 4, 6], 5), &crate::Native::new(8));
        let at = |key, none: &mut &crate::Native| place(&node, none, 3, key);
        assert_eq!(at(1, &mut none), Place::Before(0));
        assert_eq!(at(4, &mut none), Place::Found(1));
        assert_eq!(at(5, &mut none), Place::Before(2));
        assert_eq!(at(7, &mut none), Place::Behind);
        assert_eq!(place(&node, &mut none, 0, 0), Place::Behind);
    }
}
