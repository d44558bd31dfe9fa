//! What the index must be told about the items that its entries name.

use crate::engine::Engine;
use crate::error::Error;
use crate::index::KeyIndex;
use crossbeam_epoch::Guard;
use std::cell::Cell;
use std::cmp::Ordering as Order;
use terrace_durable::checked_word;
use terrace_durable::item::Item;
use terrace_durable::sections::Changes;
use terrace_durable::{BucketLock, NoItem, Seen, Values};
use terrace_index::tree::Keys;
use terrace_index::{Items, hash_key};
use terrace_memory::{Memory, lab};

/// What a writer needs beside locks: in an ordered index keys are compared before the latch is taken, and items that
/// are away are looked at as copies. Other writers need nothing, and pay for no more than the question.
pub(crate) struct OfWriter(Option<Guard>);

impl OfWriter {
    #[inline(always)]
    pub fn of<M: Memory, I: Memory>(engine: &Engine<M, I>) -> OfWriter {
        OfWriter(engine.writers_hold_guards.then(pinned))
    }

    #[inline(always)]
    pub fn get(&self) -> Option<&Guard> {
        self.0.as_ref()
    }
}

impl Drop for OfWriter {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            unpinned(guard);
        }
    }
}

#[inline(never)]
fn pinned() -> Guard {
    crossbeam_epoch::pin()
}

#[inline(never)]
fn unpinned(guard: Guard) {
    drop(guard);
}

/// The index's view of the items.
pub(crate) struct Located<'g, M: Memory, I: Memory> {
    pub engine: &'g Engine<M, I>,
    /// Held by readers; whoever changes a hash index looks at items under the locks of their buckets alone.
    pub guard: Option<&'g Guard>,
    /// What a reader's key was found to be, so that nobody looks at it again.
    pub found: Cell<Option<Seen<'g>>>,
    /// Where an entry was met whose item is damaged, if one was: what the index answers then is nothing to go by.
    pub damaged: Cell<Option<NoItem>>,
}

impl<'g, M: Memory, I: Memory> Located<'g, M, I> {
    /// Refuses what an index that met a damaged item has answered.
    ///
    /// # Errors
    /// [`NoItem`].
    #[inline(always)]
    pub fn check(&self) -> Result<(), NoItem> {
        self.damaged.get().map_or(Ok(()), Err)
    }

    #[inline(always)]
    fn noted<T>(&self, found: Result<T, NoItem>) -> Option<T> {
        found.inspect_err(|damaged| self.damaged.set(Some(*damaged))).ok()
    }

    #[inline(always)]
    fn guard(&self) -> &'g Guard {
        self.guard.expect("who takes no lock has a guard")
    }

    /// False, since the item of an entry with the tag of `key` is another key's. See [`Located::check_tag`].
    #[cold]
    fn is_of_another(&self, location: u64, key: &[u8]) -> bool {
        let seen = self.engine.values.seen_again(location, self.guard());
        self.check_tag(location, key, seen.ok().map(|seen| seen.key()))
    }

    /// False. An entry with the tag of `key` names an item of the key `found`: if the tags of the two differ, the entry
    /// is not of that item, and blocks of the file were exchanged.
    #[cold]
    fn check_tag(&self, location: u64, key: &[u8], found: Option<&[u8]>) -> bool {
        let hash = |key| hash_key(self.engine.seed, key);
        if found.is_some_and(|found| !self.engine.index.have_one_tag(hash(found), hash(key))) {
            self.damaged.set(Some(NoItem::Invalid(location)));
        }
        false
    }

    /// The key of an item whose lock nobody needs to have.
    #[inline(always)]
    fn key_at(&self, location: u64) -> Option<&[u8]> {
        let seen = self.engine.values.seen(location, self.guard());
        self.noted(seen).map(|seen| seen.key())
    }
}

impl<M: Memory, I: Memory> Items for Located<'_, M, I> {
    #[inline(always)]
    fn has_key(&self, location: u64, key: &[u8]) -> bool {
        // All its lines at once: compared and copied, they would be waited for one after another.
        self.engine.values.prefetch(location, self.engine.lines_ahead());
        let seen = self.engine.values.seen_if_key(location, key, self.guard());
        let Some(Some(seen)) = self.noted(seen) else { return self.is_of_another(location, key) };
        self.found.set(Some(seen));
        true
    }

    #[inline(always)]
    fn has_key_locked(&self, location: u64, key: &[u8], lock: &BucketLock) -> bool {
        match self.noted(self.engine.values.has_key(location, key, lock)) {
            Some(false) => {
                let item = self.engine.values.item_again(location, lock);
                self.check_tag(location, key, item.ok().map(|item| item.key))
            }
            found => found.unwrap_or(false),
        }
    }

    fn hash(&self, location: u64) -> Option<u64> {
        self.key_at(location).map(|key| hash_key(self.engine.seed, key))
    }

    fn hash_locked(&self, location: u64, lock: &BucketLock) -> Option<u64> {
        let item = self.noted(self.engine.values.item(location, lock));
        item.map(|item| hash_key(self.engine.seed, item.key))
    }

    #[inline(always)]
    fn prefetch(&self, location: u64) {
        self.engine.values.prefetch_head(location);
    }

    #[inline(always)]
    fn pause(&self) {
        lab::pause(self.engine.values.medium().memory());
    }

    fn commit(&self, changes: &mut Changes, publish: impl FnOnce()) {
        self.engine.commit(changes, publish);
    }
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// That no whole item lies where an entry says.
    #[cold]
    pub fn damaged(&self, damaged: NoItem) -> Error {
        self.values.damaged(damaged).into()
    }

    /// The current item of a key whose bucket is locked, where the index found it.
    #[inline(always)]
    pub fn current<'a>(
        &'a self,
        key: &[u8],
        at: Option<u64>,
        located: &Located<'_, M, I>,
        lock: &'a BucketLock,
    ) -> Result<Option<(u64, Item<'a>)>, NoItem> {
        let Some(location) = at else { return located.check().map(|()| None) };
        let item = match self.index.is_ordered() {
            // Found by its key, so it was read.
            false => self.values.item_again(location, lock),
            // Blocks that were exchanged hold whole items of other keys.
            true => self.values.item(location, lock).and_then(|item| {
                (item.key == key).then_some(item).ok_or(NoItem::Invalid(location))
            }),
        };
        item.map(|item| Some((location, item)))
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
    checked_word::low(value[0])
}

/// The value that names an item of `key`. A location that flips a bit shows at the next opening, though it
/// may name an older item of the same key.
#[inline(always)]
pub(crate) fn value(location: u64, key: &[u8]) -> [u64; 2] {
    [checked_word::with_check(location, 0), behind_head(key)]
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

impl<M: Memory, I: Memory> Keys for Located<'_, M, I> {
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
            // A damaged one passes for the key's, so that whoever looks for that is told of it.
            Order::Equal if behind as u8 == BEYOND => match self.key_at(location(value)) {
                Some(found) if behind_head(found) == value[1] => found.cmp(key),
                Some(_) => {
                    self.damaged.set(Some(NoItem::Invalid(location(value))));
                    Order::Equal
                }
                None => Order::Equal,
            },
            order => order,
        }
    }

    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend_from_slice(self.key_at(location(value)).unwrap_or_default());
    }

    fn could_tell(&self) -> bool {
        self.damaged.get().is_none()
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
        fn the_prefix_in_an_entry_orders_keys(
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
