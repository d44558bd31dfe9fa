//! A map's index: it finds a key's item, by hash or in the order of keys.
//!
//! A kind of index is a type that implements [`KeyIndex`]: what it does, how it is made, and how it is found again
//! after a crash. [`Index`] is one of the kinds; the store knows no other type of index. Another kind needs
//! that type, a line of `kinds!` (`kinds.rs`), and a row of [`TreeForm`] if settings name it. `tests.rs` is
//! what every kind passes.

mod claimed;
mod hash;
mod in_order;
mod kinds;
mod logs;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use claimed::{Claimed, InOrder};
pub(crate) use kinds::Index;
pub(crate) use logs::InLogs;
pub(crate) use tree::InTree;

use crate::engine::BATCH;
use crate::form::TreeForm;
use crate::kept::leaves;
use crate::laboratory::InnerTier;
use crate::open::Opening;
use crate::plan::PersistentTree;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::time::Duration;
use terrace_durable::sections::Changes;
use terrace_durable::{BucketLock, IndexFile};
use terrace_index::keys::{Direction, Entry, Keys};
use terrace_index::{Change, Cursor, Items, Line, Reserved};
use terrace_memory::{Backing, Divide, Memory, Native};

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

/// Whether a watched key was overwritten.
pub(crate) trait Watches {
    /// See [`HashIndex::watch`](terrace_index::HashIndex::watch).
    fn saw_no_overwrite(&self) -> bool;
}

/// An index without an order of keys was asked for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unordered;

/// Where a persistent index is, or is to be.
pub(crate) struct Site<'a, I: Memory> {
    pub opening: &'a Opening<'a>,
    pub file: &'a IndexFile<I>,
    /// Reserves so many bytes for inner nodes in the memory of the index.
    pub inner: &'a dyn Fn(u64) -> io::Result<Reserved<Native>>,
}

impl<I: Memory> Site<'_, I> {
    pub fn plan(&self) -> &PersistentTree {
        &self.opening.plan.mapped().tree
    }

    /// Address space for the inner nodes above such leaves, or logs, where they are to lie.
    fn inner_above(&self, leaves: &Reserved<I>) -> io::Result<Reserved<Native>> {
        match self.plan().inner_tier {
            InnerTier::Dram => self.dram_above(leaves),
            InnerTier::Index => (self.inner)(inner_bytes(leaves)),
        }
    }

    /// As much address space in DRAM.
    fn dram_above(&self, leaves: &Reserved<I>) -> io::Result<Reserved<Native>> {
        Reserved::reserve(inner_bytes(leaves), Backing::HugePages, None)
    }
}

impl<I: Divide> Site<'_, I> {
    /// Where leaves, or logs, lie.
    fn leaves(&self) -> Reserved<I> {
        leaves(self.file).expect("a file without tables is for leaves")
    }
}

/// Address space for what leads to such leaves. Inner nodes, 1 KiB for dozens of leaves that are a third full at the
/// least, take less than their leaves; so do those of logs, and a mapping table of entries of 128 bytes, since the
/// items of a leaf's keys are more.
fn inner_bytes<I: Memory>(leaves: &Reserved<I>) -> u64 {
    leaves.memory.len().next_multiple_of(INNER_STEP)
}

const INNER_STEP: u64 = 2 << 20;

/// What a persistent index in the order of keys says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub form: TreeForm,
    pub node_bytes: u64,
    /// The bytes in use: offset in the file, and how many.
    pub used: (u64, u64),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: leaves of {} B", self.form, self.node_bytes)
    }
}

/// A kind of index. A `hash` is the key's under the map's seed; an index in the order of keys ignores it.
///
/// Every change of a persistent index is durable before its bucket or leaf is released, and readers wait for that.
pub(crate) trait KeyIndex: Sized {
    /// Where it lies.
    type Memory: Memory;
    /// The same kind in DRAM.
    type InDram: KeyIndex<Memory = Native>;
    type Watch<'a>: Watches
    where
        Self: 'a;

    /// Whether indexes of this form, [`None`] of a hash map, are of this kind.
    fn makes(form: Option<TreeForm>) -> bool;

    /// Refuses nodes of so many bytes if no index of the form can have them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] says which it can have.
    fn check(_form: Option<TreeForm>, _node_bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// An empty index that is rebuilt at each opening, for so many entries at most.
    ///
    /// # Errors
    /// Those of memory; [`ErrorKind::Unsupported`] if the kind is only made to be persistent.
    fn in_dram(_opening: &Opening<'_>, _capacity: u64) -> io::Result<Self::InDram> {
        Err(ErrorKind::Unsupported.into())
    }

    /// An empty persistent index in a new file.
    ///
    /// # Errors
    /// Those of memory.
    fn create(site: &Site<'_, Self::Memory>) -> io::Result<Self>
    where
        Self::Memory: Divide;

    /// What the persistent index in a file says of itself, if it is one of this kind, in the order of keys.
    ///
    /// # Errors
    /// Those of memory.
    fn found(_file: &IndexFile<Self::Memory>) -> io::Result<Option<Found>>
    where
        Self::Memory: Divide,
    {
        Ok(None)
    }

    /// The index as it was closed, or as the last section left it. Before anything is changed it asks `is_intact`, with
    /// the ranges of the file that are in use. `claimed` tells the keys of items that nobody has verified yet.
    ///
    /// # Errors
    /// As [`KeyIndex::repair`]; [`ErrorKind::InvalidData`] also if it is not intact.
    fn reopen(
        site: &Site<'_, Self::Memory>,
        claimed: &(impl Keys + Sync),
        is_intact: impl FnOnce(&[(u64, u64)]) -> io::Result<bool>,
    ) -> io::Result<Self>
    where
        Self::Memory: Divide,
    {
        if !is_intact(&[found_in::<Self>(site.file)?.used])? {
            return Err(changed_at_rest());
        }
        Self::repair(site, claimed)
    }

    /// The index as a crash left it.
    ///
    /// # Errors
    /// Those of memory; [`ErrorKind::InvalidData`] if no crash could have left what is there, and nothing was changed
    /// then.
    fn repair(site: &Site<'_, Self::Memory>, claimed: &(impl Keys + Sync)) -> io::Result<Self>
    where
        Self::Memory: Divide;

    /// What it is, for whoever reads statistics.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Whether it has an order of keys: a range can be asked for, and an entry holds enough of most keys to find one
    /// without reading its item.
    fn is_ordered(&self) -> bool {
        false
    }

    /// From here on each operation is a section. No index in the order of keys has them.
    fn use_sections(&mut self) {}

    /// Writes down what [`KeyIndex::reopen`] would have to find. Nobody writes meanwhile.
    fn note_allocation(&self) {}

    /// Nodes that a lookup reads one after the other where the index lies, and bytes of each.
    fn looked_at(&self) -> [u64; 2];

    /// Whether an entry of a key with one hash could name an item of a key with the other, as far as entries say.
    fn have_one_tag(&self, _one: u64, _other: u64) -> bool {
        true
    }

    /// The line of a hash table where `hash` is looked for, to prefetch it long before it is read.
    #[inline(always)]
    fn line(&self, _hash: u64) -> Option<Line<'_, Self::Memory>> {
        None
    }

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

    /// See [`HashIndex::watch`](terrace_index::HashIndex::watch).
    fn watch(&self, hash: u64, key: &[u8], items: &impl Keys) -> Self::Watch<'_>;

    /// See [`HashIndex::update_then`](terrace_index::HashIndex::update_then).
    fn update_then<T>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(Option<u64>, &BucketLock, &mut Changes) -> (Change, T),
        then: impl FnOnce(T, &mut Changes),
    ) -> io::Result<Option<u64>>;

    /// See [`HashIndex::look`](terrace_index::HashIndex::look).
    fn look<R>(
        &self,
        hash: u64,
        key: &[u8],
        items: &(impl Items + Keys),
        f: impl FnOnce(u64) -> R,
    ) -> Option<R>;

    /// See [`HashIndex::update_at`](terrace_index::HashIndex::update_at).
    ///
    /// # Errors
    /// Those of memory, of an index in logs; `f` has not run then.
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

    /// Visits locations from `from` until at least `count` were seen; returns where to go on. The guarantee is that of
    /// [`HashIndex::scan`](terrace_index::HashIndex::scan), and in the order of keys also that of a range.
    fn scan(
        &self,
        from: &Position,
        count: usize,
        items: &(impl Items + Keys),
        visit: impl FnMut(u64),
    ) -> Position;

    /// Visits locations in the order of keys, or against it, until at least `count` were seen; returns the last if
    /// there may be more. See [`Tree::range`](terrace_index::tree::Tree::range).
    ///
    /// # Errors
    /// [`Unordered`].
    fn range(
        &self,
        _from: Bound<&[u8]>,
        _direction: Direction,
        _count: usize,
        _items: &impl Keys,
        _visit: impl FnMut(u64),
    ) -> Result<Option<u64>, Unordered> {
        Err(Unordered)
    }

    /// Visits every entry in the order of keys, with the offset of its leaf, for [`InOrder`] to verify. Nobody writes
    /// meanwhile.
    ///
    /// # Errors
    /// [`Unordered`]; nothing was visited then.
    fn walk(&self, items: &impl Keys, visit: impl FnMut(&Entry, u64)) -> Result<(), Unordered>;

    /// A place that `random` chooses: a bucket, or some key.
    fn position_near(&self, random: u64, items: &impl Keys) -> Position;

    /// Removes every entry. The caller holds writers off.
    ///
    /// # Errors
    /// Those of memory, of an index in logs; nothing is removed then.
    fn clear(&self, items: &impl Keys) -> io::Result<()>;

    /// So much time went by since this was called before: whether changes are written back together follows from it.
    fn went_by(&self, _time: Duration) {}

    /// Gives up some garbage, if there is much; whether there may be more to do.
    ///
    /// # Errors
    /// Those of memory, and damage that is in the way.
    fn tidy(&self, _items: &impl Keys) -> io::Result<bool> {
        Ok(false)
    }

    /// Gives unused memory back; how many bytes. A kind that cannot keeps the size that it had at its largest.
    fn shrink(&self, _items: &impl Keys) -> u64 {
        0
    }

    /// Unused bytes, as far as they may be given back.
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

/// What the index in the order of keys in a file says of itself, if that can be true.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if it cannot; those of memory.
pub(crate) fn found_in<K: KeyIndex<Memory: Divide>>(
    file: &IndexFile<K::Memory>,
) -> io::Result<Found> {
    let found = K::found(file)?.ok_or_else(|| illegible(file.areas_at()))?;
    let (start, bytes) = found.used;
    let in_file = file.file_bytes().map_err(io::Error::other)?.saturating_sub(start);
    match bytes > in_file {
        true => Err(damaged(format!("at offset {start}: leaves end behind the file"))),
        false => Ok(found),
    }
}

fn illegible(start: u64) -> io::Error {
    damaged(format!("at offset {start}: the line before the leaves is no tree's"))
}

fn changed_at_rest() -> io::Error {
    damaged("the index is not as it was closed".into())
}

fn damaged(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
