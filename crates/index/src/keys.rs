//! Keys as ordered indexes compare them: by their heads, and whole where heads tie.

use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of a key that its head holds.
const HEAD_BYTES: usize = 15;

/// Why a node is not split: what would stand between its halves would lead astray.
pub(crate) const UNTOLD: &str = "a key of the node that is to be split cannot be told";

/// What an ordered index must be told about the keys its entries stand for.
pub trait Keys {
    /// The head of `key`. Heads order keys as the keys themselves, but for ties.
    #[inline(always)]
    fn head(&self, key: &[u8]) -> u128 {
        head_of(key)
    }

    /// Whether no two keys have this head.
    #[inline(always)]
    fn is_whole(&self, head: u128) -> bool {
        (head as u8) as usize <= HEAD_BYTES
    }

    /// How the whole key of the entry with this value compares with `key`; asked only where heads tie.
    /// The value was the entry's a moment ago.
    fn compare(&self, value: [u64; 2], key: &[u8]) -> Ordering;

    /// Appends the whole key of the entry with this value to `into`: for a separator that must outlive
    /// the entry. Asked only where heads tie.
    fn key(&self, value: [u64; 2], into: &mut Vec<u8>);

    /// Asks for what stands behind a value to be brought near.
    fn prefetch(&self, _value: [u64; 2]) {}

    /// Whether every value that was shown so far names something whose key could be told. What a crash left
    /// is looked at before anything of it is known: recovery changes nothing once one could not be, and no node
    /// is split.
    fn could_tell(&self) -> bool {
        true
    }

    /// Called between two looks at a node that another thread has: where the threads are scheduled by
    /// the memory below, it is the other's turn.
    #[inline(always)]
    fn pause(&self) {}
}

/// The first 15 bytes of `key`, zeros behind a shorter one, and a byte that is its length, 16 at most: as
/// one big number, which orders keys of up to 15 bytes exactly. Two longer ones with the same first 15
/// bytes tie.
#[inline(always)]
pub fn head_of(key: &[u8]) -> u128 {
    let length = key.len().min(HEAD_BYTES + 1) as u128;
    if key.len() >= 16 {
        let first: [u8; 16] = key[..16].try_into().expect("16 bytes");
        return u128::from_be_bytes(first) & !0xff | length;
    }
    let mut bytes = [0; 16];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes) | length
}

/// Keys of 16 bytes, each of which is its own head: the form of Ni, section 5.1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sixteen;

impl Keys for Sixteen {
    /// # Panics
    /// If the key has not 16 bytes.
    #[inline(always)]
    fn head(&self, key: &[u8]) -> u128 {
        u128::from_be_bytes(key.try_into().expect("a key of 16 bytes"))
    }
    #[inline(always)]
    fn is_whole(&self, _head: u128) -> bool {
        true
    }
    fn compare(&self, _: [u64; 2], _: &[u8]) -> Ordering {
        Ordering::Equal
    }
    fn key(&self, _: [u64; 2], _: &mut Vec<u8>) {}
}

/// What an index holds of a key: 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The key's head ([`Keys::head`]).
    pub head: u128,
    /// What the caller gave for it; the first word is not zero.
    pub value: [u64; 2],
}

impl Entry {
    /// Its four words, as they lie in a leaf.
    #[inline(always)]
    pub(crate) fn words(self) -> [u64; 4] {
        [high(self.head), low(self.head), self.value[0], self.value[1]]
    }

    #[inline(always)]
    pub(crate) fn of(words: [u64; 4]) -> Entry {
        let [high, low, first, second] = words;
        Entry { head: joined(high, low), value: [first, second] }
    }
}

#[inline(always)]
pub(crate) fn high(head: u128) -> u64 {
    (head >> 64) as u64
}

#[inline(always)]
pub(crate) fn low(head: u128) -> u64 {
    head as u64
}

#[inline(always)]
pub(crate) fn joined(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// What a writer does to a key's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leaves it as it is.
    Keep,
    /// Gives the key this value; the first word is not zero.
    Set([u64; 2]),
    /// Leaves the entry as it is, but what it names was overwritten where it lies: whoever copied it
    /// meanwhile copies it again.
    Overwritten,
    /// Removes the key.
    Remove,
}

/// Which way a range goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From small keys to large ones.
    Up,
    /// From large keys to small ones.
    Down,
}

/// Which child of an inner node is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// That of the place itself.
    At,
    /// That of what stands right before it.
    Before,
}

/// A place between keys: what is searched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'a, K> {
    pub(crate) head: u128,
    /// The whole key where its head may tie; none stands before all keys of the head.
    pub(crate) key: Option<&'a [u8]>,
    /// Whether it is the place behind all keys.
    pub(crate) is_end: bool,
    pub(crate) keys: &'a K,
}

impl<'a, K: Keys> Probe<'a, K> {
    #[inline(always)]
    pub(crate) fn of(key: &'a [u8], keys: &'a K) -> Probe<'a, K> {
        let head = keys.head(key);
        Probe { head, key: (!keys.is_whole(head)).then_some(key), is_end: false, keys }
    }

    /// The place behind all keys.
    pub(crate) fn end(keys: &'a K) -> Probe<'a, K> {
        Probe { head: u128::MAX, key: None, is_end: true, keys }
    }

    /// Where `separator` stands.
    pub(crate) fn at(separator: &'a Separator, keys: &'a K) -> Probe<'a, K> {
        Probe { head: separator.head, key: separator.tie.as_deref(), is_end: false, keys }
    }

    /// How an entry compares with it.
    #[inline(always)]
    pub(crate) fn entry(&self, entry: Entry) -> Ordering {
        entry.head.cmp(&self.head).then_with(|| match self.key {
            Some(key) => self.keys.compare(entry.value, key),
            // Of a head that is whole, the key itself; else the place before all keys of the head.
            None if self.keys.is_whole(self.head) => Ordering::Equal,
            None => Ordering::Greater,
        })
    }

    /// How a separator of the same head, with this tie, compares with it.
    #[inline]
    pub(crate) fn separator(&self, tie: Option<&[u8]>) -> Ordering {
        // None, which stands before all keys of the head, is less than any.
        if self.is_end { Ordering::Less } else { tie.cmp(&self.key) }
    }
}

/// What stands between two nodes: the first place of the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) head: u128,
    /// The whole key, where the left node ends with the same head. A copy: the entry may go.
    pub(crate) tie: Option<Arc<[u8]>>,
}

impl Separator {
    /// Between two neighbours of a sorted sequence.
    pub(crate) fn between(left: Entry, right: Entry, keys: &impl Keys) -> Separator {
        let tie = (left.head == right.head).then(|| whole_key(right, keys).into());
        Separator { head: right.head, tie }
    }
}

/// The whole key of an entry whose head ties.
pub(crate) fn whole_key(entry: Entry, keys: &impl Keys) -> Vec<u8> {
    let mut key = Vec::new();
    keys.key(entry.value, &mut key);
    key
}

/// How two entries compare.
pub(crate) fn compare(left: Entry, right: Entry, keys: &impl Keys) -> Ordering {
    left.head.cmp(&right.head).then_with(|| match keys.is_whole(left.head) {
        true => Ordering::Equal,
        false => keys.compare(left.value, &whole_key(right, keys)),
    })
}

#[cfg(test)]
mod tests {
    use super::head_of;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn heads_order_keys_as_the_keys_do_but_for_ties(
            a in prop::collection::vec(0u8..3, 0..20),
            b in prop::collection::vec(0u8..3, 0..20),
        ) {
            let (x, y) = (head_of(&a), head_of(&b));
            if x == y {
                prop_assert!(a == b || (a.len() > 15 && b.len() > 15 && a[..15] == b[..15]));
            } else {
                prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            }
        }
    }
}
