//! A map's index: what finds a key's item, by hash or in the order of keys.
//!
//! A kind of index is a type that does what [`KeyIndex`] says: [`HashIndex`], and [`Ordered`] in several forms. The
//! rest of the store asks [`Index`], which is one of them; what only ordered ones can do it asks [`Index::ordered`].

mod by_order;
mod deltas;
mod hash;
mod ordered;
mod tree;

pub(crate) use deltas::InLogs;
pub(crate) use ordered::{Form, Ordered, Watches};
pub(crate) use tree::InTree;

use crate::engine::BATCH;
use std::fmt;
use std::io;
use std::time::Duration;
use terrace_durable::BucketLock;
use terrace_durable::sections::Changes;
use terrace_index::keys::Keys;
use terrace_index::{Change, Cursor, HashIndex, Items};
use terrace_memory::Memory;

/// How far a visit of all entries has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Position {
    /// Nowhere yet.
    #[default]
    Start,
    /// To a bucket of the hash table.
    Bucket(Cursor),
    /// Right before a key.
    At(Box<[u8]>),
    /// Behind a key.
    Key(Box<[u8]>),
    /// To the end.
    End,
}

/// What a kind of index does. A `hash` is the key's under the map's seed; where keys are in order it is not looked at.
pub(crate) trait KeyIndex {
    type Watch<'a>: Watches
    where
        Self: 'a;

    /// Nodes that a lookup reads one after the other where the index lies, and bytes of each.
    fn looked_at(&self) -> [u64; 2];

    /// The location of `key`. Lock-free.
    fn get(&self, hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64>;

    /// A location for each of `keys`, at most [`BATCH`], where one of its item may be, `together` at a time: so that
    /// their cache misses overlap. `near` is called with each as soon as it is known. A hint: it may be another
    /// key's, and the key may be there though none is found.
    fn candidates(
        &self,
        hashes: &[u64],
        keys: &[&[u8]],
        together: usize,
        items: &impl Keys,
        near: impl Fn(u64),
        found: &mut [Option<u64>; BATCH],
    );

    /// See [`HashIndex::watch`].
    fn watch(&self, hash: u64, key: &[u8], items: &impl Keys) -> Self::Watch<'_>;

    /// See [`HashIndex::update_then`].
    fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>>;

    /// See [`HashIndex::look`].
    fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R>;

    /// See [`HashIndex::update_at`].
    ///
    /// # Errors
    /// Those of memory, of an ordered map whose index is in logs; `f` has not run then.
    fn update_at(
        &self,
        hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool>;

    /// Whether the key's entry is exactly `at`. Lock-free.
    fn holds(&self, hash: u64, key: &[u8], at: u64, items: &(impl Items + Keys)) -> bool;

    /// Visits locations from `from` until at least `count` were seen; returns where to go on. What
    /// [`HashIndex::scan`] says of entries, and in order also [`Form::range`], holds.
    fn scan(
        &self,
        from: &Position,
        count: usize,
        items: &(impl Items + Keys),
        visit: impl FnMut(u64),
    ) -> Position;

    /// A place that `random` chooses: a bucket, or some key.
    fn position_near(&self, random: u64, items: &impl Keys) -> Position;

    /// See [`HashIndex::clear`].
    ///
    /// # Errors
    /// Those of memory, of an ordered map whose index is in logs.
    fn clear(&self, items: &impl Keys) -> io::Result<()>;

    /// So much time went by since this was called before.
    fn went_by(&self, _time: Duration) {}

    /// Gives up some garbage, if there is much; whether there may be more to do.
    ///
    /// # Errors
    /// Those of memory, and damage that is in the way.
    fn tidy(&self, _items: &impl Keys) -> io::Result<bool> {
        Ok(false)
    }

    /// Gives memory back that nothing is in; how many bytes. One that cannot keeps the size that it had at its largest.
    fn shrink(&self, _items: &impl Keys) -> u64 {
        0
    }

    /// Bytes that nothing is in, as far as they may be given back.
    fn free_bytes(&self) -> u64 {
        0
    }

    /// Entries.
    fn len(&self) -> u64;

    /// Bytes of memory it takes.
    fn bytes(&self) -> u64;

    /// The ranges of its memory that are in use where it is persistent; `start` is that of the first.
    fn used(&self, start: u64) -> Vec<(u64, u64)>;
}

/// What finds the location of a key's item.
pub(crate) enum Index<I: Memory> {
    /// By hash, in no order.
    Hash(HashIndex<I>),
    /// In the order of keys; the words of an entry's value are the item's location, with a sum, and
    /// [`behind_head`](crate::located::behind_head).
    Ordered(Box<Ordered<I>>),
}

macro_rules! each {
    ($index:expr, $kind:ident => $what:expr) => {
        match $index {
            Index::Hash($kind) => $what,
            Index::Ordered(ordered) => {
                let $kind = &**ordered;
                $what
            }
        }
    };
}

/// For whoever reads statistics.
impl<I: Memory> fmt::Display for Index<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Index::Hash(_) => write!(f, "hash"),
            Index::Ordered(ordered) => ordered.fmt(f),
        }
    }
}

/// What [`KeyIndex::watch`] gives.
pub(crate) enum Watch<'a, I: Memory + 'a> {
    Hash(<HashIndex<I> as KeyIndex>::Watch<'a>),
    Ordered(<Ordered<I> as KeyIndex>::Watch<'a>),
}

impl<I: Memory> Watches for Watch<'_, I> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        match self {
            Watch::Hash(watch) => watch.saw_no_overwrite(),
            Watch::Ordered(watch) => watch.saw_no_overwrite(),
        }
    }
}

impl<I: Memory> Index<I> {
    /// The table, where keys are in no order: for who fetches a bucket long before it is read.
    #[inline(always)]
    pub fn table(&self) -> Option<&HashIndex<I>> {
        match self {
            Index::Hash(table) => Some(table),
            Index::Ordered(_) => None,
        }
    }

    /// What knows the order of keys, if anything does.
    #[inline(always)]
    pub fn ordered(&self) -> Option<&Ordered<I>> {
        match self {
            Index::Hash(_) => None,
            Index::Ordered(ordered) => Some(ordered),
        }
    }
}

impl<I: Memory> KeyIndex for Index<I> {
    type Watch<'a>
        = Watch<'a, I>
    where
        Self: 'a;

    fn looked_at(&self) -> [u64; 2] {
        each!(self, kind => KeyIndex::looked_at(kind))
    }

    #[inline(always)]
    fn get(&self, hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64> {
        each!(self, kind => KeyIndex::get(kind, hash, key, items))
    }

    #[inline(always)]
    fn candidates(
        &self,
        hashes: &[u64],
        keys: &[&[u8]],
        together: usize,
        items: &impl Keys,
        near: impl Fn(u64),
        found: &mut [Option<u64>; BATCH],
    ) {
        each!(self, kind => KeyIndex::candidates(kind, hashes, keys, together, items, near, found));
    }

    #[inline(always)]
    fn watch(&self, hash: u64, key: &[u8], items: &impl Keys) -> Watch<'_, I> {
        match self {
            Index::Hash(kind) => Watch::Hash(KeyIndex::watch(kind, hash, key, items)),
            Index::Ordered(kind) => Watch::Ordered(KeyIndex::watch(&**kind, hash, key, items)),
        }
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        each!(self, kind => KeyIndex::update_then(kind, hash, key, items, f, then))
    }

    fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        each!(self, kind => KeyIndex::look(kind, hash, key, items, f))
    }

    fn update_at(
        &self,
        hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        each!(self, kind => KeyIndex::update_at(kind, hash, key, at, items, f))
    }

    #[inline(always)]
    fn holds(&self, hash: u64, key: &[u8], at: u64, items: &(impl Items + Keys)) -> bool {
        each!(self, kind => KeyIndex::holds(kind, hash, key, at, items))
    }

    fn scan(
        &self,
        from: &Position,
        count: usize,
        items: &(impl Items + Keys),
        visit: impl FnMut(u64),
    ) -> Position {
        each!(self, kind => KeyIndex::scan(kind, from, count, items, visit))
    }

    fn position_near(&self, random: u64, items: &impl Keys) -> Position {
        each!(self, kind => KeyIndex::position_near(kind, random, items))
    }

    fn clear(&self, items: &impl Keys) -> io::Result<()> {
        each!(self, kind => KeyIndex::clear(kind, items))
    }

    fn went_by(&self, time: Duration) {
        each!(self, kind => KeyIndex::went_by(kind, time));
    }

    fn tidy(&self, items: &impl Keys) -> io::Result<bool> {
        each!(self, kind => KeyIndex::tidy(kind, items))
    }

    fn shrink(&self, items: &impl Keys) -> u64 {
        each!(self, kind => KeyIndex::shrink(kind, items))
    }

    fn free_bytes(&self) -> u64 {
        each!(self, kind => KeyIndex::free_bytes(kind))
    }

    fn len(&self) -> u64 {
        each!(self, kind => KeyIndex::len(kind))
    }

    fn bytes(&self) -> u64 {
        each!(self, kind => KeyIndex::bytes(kind))
    }

    fn used(&self, start: u64) -> Vec<(u64, u64)> {
        each!(self, kind => KeyIndex::used(kind, start))
    }
}
