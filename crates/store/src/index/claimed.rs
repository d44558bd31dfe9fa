//! Entries of a persistent index in the order of keys, before anything of them is verified.
//!
//! [`Tree::recover`](terrace_index::tree::Tree::recover), or
//! [`Deltas::recover`](terrace_index::deltas::Deltas::recover), builds inner nodes, and where keys tie in their
//! first 16 bytes it asks items that nobody has verified yet: [`Claimed`] tells their keys if they are legible, and
//! once one is not, nothing is changed any more. Then each entry's item is verified, and that the entry stands for
//! its key, and comes behind the one before ([`InOrder`]): so a lookup finds it. If anything of that fails, the
//! index is rebuilt from the values. Words that no walk could verify, since an older state of them would pass as
//! well, have a check: links, bitmaps, locations ([`checked_word`]); in logs all records have one.

use crate::engine::Stored;
use crate::located::{first_16, location, value};
use std::cmp::Ordering;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use terrace_durable::checked_word;
use terrace_index::keys::{Entry, Keys};
use terrace_memory::Memory;

/// The keys of items that nobody has verified yet. What has no key has the empty one: every entry has one
/// place in the order.
pub(crate) struct Claimed<'v, M: Memory> {
    values: &'v Stored<M>,
    file_bytes: u64,
    could_tell: AtomicBool,
}

impl<'v, M: Memory> Claimed<'v, M> {
    pub fn of(values: &'v Stored<M>) -> Claimed<'v, M> {
        let file_bytes = values.medium().file_bytes().unwrap_or(0);
        Claimed { values, file_bytes, could_tell: AtomicBool::new(true) }
    }

    /// What `f` returns of the key; of the empty one if it cannot be told.
    fn told<R>(&self, value: [u64; 2], mut f: impl FnMut(&[u8]) -> R) -> R {
        let is_whole = checked_word::is_intact(value[0], 0);
        let location = is_whole.then(|| location(value));
        let told = location.and_then(|at| self.values.claimed_key(at, self.file_bytes, &mut f));
        told.unwrap_or_else(|| {
            self.could_tell.store(false, Relaxed);
            f(&[])
        })
    }
}

impl<M: Memory> Keys for Claimed<'_, M> {
    fn head(&self, key: &[u8]) -> u128 {
        first_16(key)
    }

    fn is_whole(&self, _: u128) -> bool {
        false
    }

    fn compare(&self, value: [u64; 2], key: &[u8]) -> Ordering {
        self.told(value, |found| found.cmp(key))
    }

    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        self.told(value, |found| into.extend_from_slice(found));
    }

    fn could_tell(&self) -> bool {
        self.could_tell.load(Relaxed)
    }
}

/// Entries of a tree as a walk comes to them, each behind the one before.
#[derive(Default)]
pub(crate) struct InOrder {
    entry: Entry,
    leaf: u64,
    last: Option<Vec<u8>>,
    /// Where the first leaf lies that has an entry which no lookup would find.
    pub damaged: Option<u64>,
}

impl InOrder {
    /// The walk comes to an entry of a leaf; returns where its item lies: nowhere, if its location is not
    /// whole. What it names instead may be a deleted item, whose entry would be taken for one to remove.
    pub fn come_to(&mut self, entry: Entry, leaf: u64) -> u64 {
        (self.entry, self.leaf) = (entry, leaf);
        if checked_word::is_intact(entry.value[0], 0) {
            return location(entry.value);
        }
        self.damaged.get_or_insert(leaf);
        0
    }

    /// Whether the entry stands for the item of this key, and where it is looked for.
    pub fn is_of(&mut self, at: u64, key: &[u8]) -> bool {
        let is_its = self.entry == Entry { head: first_16(key), value: value(at, key) };
        let is_behind = self.last.as_deref().is_none_or(|last| last < key);
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if !(is_its && is_behind) {
            self.damaged.get_or_insert(self.leaf);
        }
        is_its && is_behind
    }
}
