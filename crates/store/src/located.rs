//! What the index must be told about the items that its entries name.

use crate::engine::Engine;
use std::cmp::Ordering as Order;
use terrace_durable::sections::Changes;
use terrace_durable::{Keeps, Values};
use terrace_index::tree::Keys;
use terrace_index::{Items, hash_key, whole};
use terrace_memory::Memory;

/// The index's view of the items.
pub(crate) struct Located<'g, M: Memory, I: Memory, K> {
    pub engine: &'g Engine<M, I>,
    pub kept: &'g K,
}

impl<M: Memory, I: Memory, K: Keeps> Items for Located<'_, M, I, K> {
    #[inline(always)]
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        self.engine.values.item_if_key(location, key, self.kept).is_some()
    }

    fn hash(&self, location: u64) -> u64 {
        hash_key(self.engine.seed, self.engine.values.item(location, self.kept).key)
    }

    #[inline(always)]
    fn prefetch(&self, location: u64) {
        self.engine.values.prefetch_head(location);
    }

    #[inline(always)]
    fn pause(&self) {
        self.engine.values.medium().memory().pause();
    }

    fn commit(&self, changes: &mut Changes, publish: impl FnOnce()) {
        self.engine.commit(changes, publish);
    }
}

/// The first 16 bytes of a key, zeros behind a shorter one: its head in an ordered index.
#[inline(always)]
pub(crate) fn first_16(key: &[u8]) -> u128 {
    if let Some(first) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*first);
    }
    let mut bytes = [0; 16];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

/// Where the item lies that a value in an ordered index names: its first word, which has a sum.
#[inline(always)]
pub(crate) fn location(value: [u64; 2]) -> u64 {
    whole::low(value[0])
}

/// The value that names an item of `key`. A location that flips a bit shows at the next opening, though it
/// may name an older item of the same key.
#[inline(always)]
pub(crate) fn value(location: u64, key: &[u8]) -> [u64; 2] {
    [whole::summed(location, 0), behind_head(key)]
}

/// Beside its head and the item's location the entry of a key in an ordered index has this: the seven
/// bytes behind those and how long the key is, 24 at most. So keys that differ in their first 23 bytes, or
/// are no longer, are told apart without a look at items.
pub(crate) fn behind_head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let rest = &key[key.len().min(16)..key.len().min(23)];
    bytes[..rest.len()].copy_from_slice(rest);
    bytes[7] = key.len().min(BEYOND as usize) as u8;
    u64::from_be_bytes(bytes)
}

/// What [`behind_head`] says of the length of a key of which it does not have all.
const BEYOND: u8 = 24;

impl<M: Memory, I: Memory, K: Keeps> Keys for Located<'_, M, I, K> {
    #[inline(always)]
    fn head(&self, key: &[u8]) -> u128 {
        first_16(key)
    }

    #[inline(always)]
    fn is_whole(&self, _: u128) -> bool {
        false
    }

    #[inline(always)]
    fn compare(&self, value: [u64; 2], key: &[u8]) -> Order {
        let behind = behind_head(key);
        match value[1].cmp(&behind) {
            Order::Equal if behind as u8 == BEYOND => {
                self.engine.values.item(location(value), self.kept).key.cmp(key)
            }
            order => order,
        }
    }

    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend_from_slice(self.engine.values.item(location(value), self.kept).key);
    }

    #[inline(always)]
    fn prefetch(&self, value: [u64; 2]) {
        Items::prefetch(self, location(value));
    }

    #[inline(always)]
    fn pause(&self) {
        Items::pause(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Head and what is behind it order keys as the keys do, but for two that go on beyond both.
        #[test]
        fn what_an_entry_holds_of_a_key_orders_it(
            a in prop::collection::vec(0u8..3, 0..30),
            b in prop::collection::vec(0u8..3, 0..30),
        ) {
            let words = |key: &[u8]| {
                let mut head = [0; 16];
                head[..key.len().min(16)].copy_from_slice(&key[..key.len().min(16)]);
                (head, behind_head(key))
            };
            match words(&a).cmp(&words(&b)) {
                Order::Equal => prop_assert!(a == b || a.len().min(b.len()) > 23 && a[..23] == b[..23]),
                order => prop_assert_eq!(order, a.cmp(&b)),
            }
        }
    }
}
