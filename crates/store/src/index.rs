//! A map's index: what finds a key's item.

use std::io;
use terrace_durable::sections::Changes;
use terrace_index::{Change, Cursor, HashIndex, Items, Stats, Watch};
use terrace_memory::Memory;

/// How far a visit of all entries has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Position {
    /// Nowhere yet.
    #[default]
    Start,
    /// To a bucket of the hash table.
    Bucket(Cursor),
    /// To the end.
    End,
}

/// What every kind of index does; `hash` is the key's under the map's seed.
pub(crate) enum Index<I: Memory> {
    /// By hash, in no order.
    Hash(HashIndex<I>),
}

impl<I: Memory> Index<I> {
    /// The table, where keys are in no order.
    #[inline(always)]
    pub fn table(&self) -> Option<&HashIndex<I>> {
        match self {
            Index::Hash(table) => Some(table),
        }
    }

    /// The location of `key`. Lock-free.
    #[inline(always)]
    pub fn get(&self, hash: u64, key: &[u8], items: &impl Items) -> Option<u64> {
        match self {
            Index::Hash(table) => table.get(hash, key, items),
        }
    }

    /// See [`HashIndex::watch`].
    #[inline(always)]
    pub fn watch(&self, hash: u64, _key: &[u8]) -> Watch<'_, I> {
        match self {
            Index::Hash(table) => table.watch(hash),
        }
    }

    /// Brings near what a change of the key's entry will touch, and a candidate for its item.
    #[inline(always)]
    pub fn prefetch_to_write(&self, hash: u64) {
        match self {
            Index::Hash(table) => table.line(hash).prefetch_to_write(),
        }
    }

    /// See [`HashIndex::update_then`].
    #[inline(always)]
    pub fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &impl Items,
        f: impl FnOnce(Option<u64>, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        match self {
            Index::Hash(table) => table.update_then(hash, key, items, f, then),
        }
    }

    /// See [`HashIndex::look`].
    pub fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &impl Items,
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        match self {
            Index::Hash(table) => table.look(hash, key, items, f),
        }
    }
}
