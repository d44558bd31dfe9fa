//! A map's index: what finds a key's item, by hash or in the order of keys.

use crate::located::{location, value};
use crate::ordered::{self, Ordered};
use std::fmt;
use std::io;
use std::ops::Bound;
use terrace_durable::sections::Changes;
use terrace_index::keys::{self, Direction, Entry, Keys};
use terrace_index::{Change, Cursor, HashIndex, Items, Watch as TableWatch};
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

/// What finds the location of a key's item. A `hash` is the key's under the map's seed; where keys are in
/// order it is not looked at.
pub(crate) enum Index<I: Memory> {
    /// By hash, in no order.
    Hash(HashIndex<I>),
    /// In the order of keys; the words of an entry's value are the item's location, with a sum, and
    /// [`behind_head`](crate::located::behind_head).
    Ordered(Box<Ordered<I>>),
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

/// See [`HashIndex::watch`].
pub(crate) enum Watch<'a, I: Memory> {
    Table(TableWatch<'a, I>),
    Ordered(ordered::Watch<'a, I>),
}

impl<I: Memory> Watch<'_, I> {
    #[inline(always)]
    pub fn saw_no_overwrite(&self) -> bool {
        match self {
            Watch::Table(watch) => watch.saw_no_overwrite(),
            Watch::Ordered(watch) => watch.saw_no_overwrite(),
        }
    }
}

impl<I: Memory> Index<I> {
    /// The table, where keys are in no order.
    #[inline(always)]
    pub fn table(&self) -> Option<&HashIndex<I>> {
        match self {
            Index::Hash(table) => Some(table),
            Index::Ordered(_) => None,
        }
    }

    /// Nodes that a lookup reads one after the other where the index lies, and bytes of each.
    pub fn looked_at(&self) -> [u64; 2] {
        match self {
            // But for chains, which are rare: a bucket is a line.
            Index::Hash(_) => [1, 64],
            Index::Ordered(tree) => tree.looked_at(),
        }
    }

    /// The location of `key`. Lock-free.
    #[inline(always)]
    pub fn get(&self, hash: u64, key: &[u8], items: &(impl Items + Keys)) -> Option<u64> {
        match self {
            Index::Hash(table) => table.get(hash, key, items),
            Index::Ordered(tree) => tree.get(key, items).map(location),
        }
    }

    /// See [`HashIndex::watch`].
    #[inline(always)]
    pub fn watch(&self, hash: u64, key: &[u8], items: &impl Keys) -> Watch<'_, I> {
        match self {
            Index::Hash(table) => Watch::Table(table.watch(hash)),
            Index::Ordered(tree) => Watch::Ordered(tree.watch(key, items)),
        }
    }

    /// See [`HashIndex::update_then`].
    #[inline(always)]
    pub fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>> {
        match self {
            Index::Hash(table) => table.update_then(hash, key, items, f, then),
            Index::Ordered(tree) => {
                // There are no sections of an ordered index.
                let f = |value: Option<[u64; 2]>| {
                    let (change, rest) = f(value.map(location), &mut Changes::new());
                    (changed(change, key), rest)
                };
                let before =
                    tree.update_then(key, items, f, |rest| then(rest, &mut Changes::new()));
                Ok(before?.map(location))
            }
        }
    }

    /// See [`HashIndex::look`].
    pub fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R> {
        match self {
            Index::Hash(table) => table.look(hash, key, items, f),
            Index::Ordered(tree) => tree.look(key, items, |value| f(location(value))),
        }
    }

    /// See [`HashIndex::update_at`].
    ///
    /// # Errors
    /// Those of memory, of an ordered map whose index is in logs; `f` has not run then.
    pub fn update_at(
        &self,
        hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&mut Changes) -> Change,
    ) -> io::Result<bool> {
        match self {
            Index::Hash(table) => Ok(table.update_at(hash, at, items, f)),
            Index::Ordered(tree) => {
                tree.update_at(key, value(at, key), items, || changed(f(&mut Changes::new()), key))
            }
        }
    }

    /// Whether the key's entry is exactly `at`. Lock-free.
    #[inline(always)]
    pub fn holds(&self, hash: u64, key: &[u8], at: u64, items: &(impl Items + Keys)) -> bool {
        match self {
            Index::Hash(table) => table.holds(hash, at),
            Index::Ordered(tree) => tree.holds(key, value(at, key), items),
        }
    }

    /// Visits locations from `from` until at least `count` were seen; returns where to go on. What
    /// [`HashIndex::scan`] says of entries, and in order also [`Ordered::range`], holds.
    pub fn scan(
        &self,
        from: &Position,
        count: usize,
        items: &(impl Items + Keys),
        mut visit: impl FnMut(u64),
    ) -> Position {
        let count = count.max(1);
        match (self, from) {
            (_, Position::End) => Position::End,
            (Index::Hash(table), from) => {
                let cursor = if let Position::Bucket(cursor) = from { *cursor } else { 0 };
                match table.scan(cursor, count, visit) {
                    0 => Position::End,
                    cursor => Position::Bucket(cursor),
                }
            }
            (Index::Ordered(tree), from) => {
                let from = match from {
                    Position::At(key) => Bound::Included(&key[..]),
                    Position::Key(key) => Bound::Excluded(&key[..]),
                    _ => Bound::Unbounded,
                };
                let visit =
                    |entries: &[Entry]| entries.iter().for_each(|e| visit(location(e.value)));
                let Some(last) = tree.range(from, Direction::Up, count, items, visit) else {
                    return Position::End;
                };
                let mut key = Vec::new();
                items.key(last.value, &mut key);
                Position::Key(key.into())
            }
        }
    }

    /// See [`HashIndex::clear`].
    ///
    /// # Errors
    /// Those of memory, of an ordered map whose index is in logs.
    pub fn clear(&self, items: &impl Keys) -> io::Result<()> {
        match self {
            Index::Hash(table) => {
                table.clear();
                Ok(())
            }
            Index::Ordered(tree) => tree.clear(items),
        }
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        match self {
            Index::Hash(table) => table.len(),
            Index::Ordered(tree) => tree.len(),
        }
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Index::Hash(table) => table.stats().bytes,
            Index::Ordered(tree) => tree.bytes(),
        }
    }
}

#[inline(always)]
fn changed(change: Change, key: &[u8]) -> keys::Change {
    match change {
        Change::Keep => keys::Change::Keep,
        Change::Set(at) => keys::Change::Set(value(at, key)),
        Change::Overwritten => keys::Change::Overwritten,
        Change::Remove => keys::Change::Remove,
    }
}
