//! The index of an ordered map, whatever its form: leaves of a tree, or delta chains in logs.
//!
//! # What is durable when
//! Of both a change is durable before its leaf is let go, and readers wait for that. Where a tree needs memory only
//! for a node more, logs need a line for every change: so any change may be refused for want of it, before it is
//! begun.
//!
//! # Garbage
//! Of logs a writer makes as much garbage as it changes. The map's collector gives it up as it comes; writers let
//! there be as much as counts, and then collect a segment before the logs take more memory.

use crate::form::TreeForm;
use crate::options::InnerTier;
use parking_lot::{RwLock, RwLockReadGuard};
use std::fmt;
use std::io;
use std::ops::Bound;
use std::time::Duration;
use terrace_index::deltas::{self, Deltas};
use terrace_index::keys::{Change, Direction, Entry, Keys};
use terrace_index::tree::{self, GroupFlush, Tree};
use terrace_memory::{Memory, Native, prestore};

/// Where it is kept, its leaves, or logs, alone are; inner nodes are built anew, in DRAM or where the leaves lie,
/// and the mapping table of logs is in DRAM.
pub(crate) enum Ordered<I: Memory> {
    Tree(Tree<I, Native>, InnerTier),
    Logs(InLogs<I>),
}

/// Delta chains in logs. Writers are held off while they are cleared, and whoever moves items by this.
pub(crate) struct InLogs<I: Memory> {
    deltas: Deltas<I, Native>,
    inner_tier: InnerTier,
    moving: RwLock<()>,
}

impl<I: Memory> InLogs<I> {
    pub fn new(deltas: Deltas<I, Native>, inner_tier: InnerTier) -> InLogs<I> {
        InLogs { deltas, inner_tier, moving: RwLock::new(()) }
    }

    fn moves(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read()
    }
}

/// See [`Tree::watch`].
pub(crate) enum Watch<'a, I: Memory> {
    Leaf(tree::Watch<'a, I>),
    Chain(deltas::Watch<'a, Native>),
}

impl<I: Memory> Watch<'_, I> {
    #[inline(always)]
    pub fn saw_no_overwrite(&self) -> bool {
        match self {
            Watch::Leaf(watch) => watch.saw_no_overwrite(),
            Watch::Chain(watch) => watch.saw_no_overwrite(),
        }
    }
}

/// For whoever reads statistics.
impl<I: Memory> fmt::Display for Ordered<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ordered::Tree(tree, inner_tier) => match tree.form() {
                (form, bytes) if form.is_kept() => {
                    let inner = inner_words(*inner_tier);
                    write!(f, "{form}: leaves of {bytes} B kept and inner nodes {inner}")
                }
                (form, bytes) => {
                    write!(f, "{form}: nodes of {bytes} B in DRAM")?;
                    let (GroupFlush::Above(most), is_on) = tree.group_flush() else {
                        return Ok(());
                    };
                    let now = if is_on && prestore::is_enabled() { "now" } else { "not now" };
                    write!(
                        f,
                        " and changes written back together above {most} lines a second: {now}"
                    )
                }
            },
            Ordered::Logs(InLogs { deltas, inner_tier, .. }) => {
                let (form, bytes, logs) = (TreeForm::Logs, deltas.node_bytes(), deltas.logs());
                let inner = inner_words(*inner_tier);
                write!(
                    f,
                    "{form}: leaves of {bytes} B kept as deltas in {logs} logs and inner nodes {inner}"
                )
            }
        }
    }
}

fn inner_words(inner_tier: InnerTier) -> &'static str {
    match inner_tier {
        InnerTier::Dram => "in DRAM",
        InnerTier::Index => "in the index's memory",
    }
}

impl<I: Memory> Ordered<I> {
    /// See [`Index::looked_at`](crate::index::Index::looked_at).
    pub fn looked_at(&self) -> [u64; 2] {
        match self {
            Ordered::Tree(tree, inner_tier) => {
                let (form, bytes) = tree.form();
                let leaf_alone = form.is_kept() && *inner_tier == InnerTier::Dram;
                [if leaf_alone { 1 } else { 1 + tree.stats().height }, bytes]
            }
            Ordered::Logs(InLogs { deltas, .. }) => [1, deltas.node_bytes()],
        }
    }

    #[inline(always)]
    pub fn get(&self, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]> {
        match self {
            Ordered::Tree(tree, _) => tree.get(key, keys),
            Ordered::Logs(logs) => logs.deltas.get(key, keys),
        }
    }

    /// The values of many keys, each as by [`Ordered::get`].
    #[inline(always)]
    pub fn multi_get(&self, wanted: &[&[u8]], keys: &impl Keys, values: &mut [Option<[u64; 2]>]) {
        match self {
            Ordered::Tree(tree, _) => tree.multi_get(wanted, keys, values),
            Ordered::Logs(logs) => logs.deltas.multi_get(wanted, keys, values),
        }
    }

    #[inline(always)]
    pub fn watch(&self, key: &[u8], keys: &impl Keys) -> Watch<'_, I> {
        match self {
            Ordered::Tree(tree, _) => Watch::Leaf(tree.watch(key, keys)),
            Ordered::Logs(logs) => Watch::Chain(logs.deltas.watch(key, keys)),
        }
    }

    /// See [`Tree::update_then`].
    #[inline(always)]
    pub fn update_then<T>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>> {
        match self {
            Ordered::Tree(tree, _) => tree.update_then(key, keys, f, then),
            Ordered::Logs(logs) => logs.deltas.update_then(key, keys, f, then),
        }
    }

    /// See [`Tree::update_at`].
    ///
    /// # Errors
    /// Those of memory; `f` has not run then.
    pub fn update_at(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &impl Keys,
        f: impl FnOnce() -> Change,
    ) -> io::Result<bool> {
        match self {
            Ordered::Tree(tree, _) => Ok(tree.update_at(key, value, keys, f)),
            Ordered::Logs(logs) => {
                let _not_cleared = logs.moves();
                logs.deltas.update_at(key, value, keys, f)
            }
        }
    }

    pub fn look<R>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce([u64; 2]) -> R,
    ) -> Option<R> {
        match self {
            Ordered::Tree(tree, _) => tree.look(key, keys, f),
            Ordered::Logs(logs) => logs.deltas.look(key, keys, f),
        }
    }

    /// Whether `value` is the key's. Takes no latch.
    #[inline(always)]
    pub fn holds(&self, key: &[u8], value: [u64; 2], keys: &impl Keys) -> bool {
        match self {
            Ordered::Tree(tree, _) => tree.holds(key, value, keys),
            Ordered::Logs(logs) => logs.deltas.holds(key, value, keys),
        }
    }

    /// See [`Tree::range`].
    #[inline(always)]
    pub fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        visit: impl FnMut(&[Entry]),
    ) -> Option<Entry> {
        match self {
            Ordered::Tree(tree, _) => tree.range(from, direction, count, keys, visit),
            Ordered::Logs(logs) => logs.deltas.range(from, direction, count, keys, visit),
        }
    }

    /// See [`Tree::some`].
    pub fn some(&self, random: u64, keys: &impl Keys) -> Option<Entry> {
        match self {
            Ordered::Tree(tree, _) => tree.some(random, keys),
            Ordered::Logs(logs) => logs.deltas.some(random, keys),
        }
    }

    /// See [`Tree::walk`].
    pub fn walk(&self, keys: &impl Keys, visit: impl FnMut(&Entry, u64)) {
        match self {
            Ordered::Tree(tree, _) => tree.walk(keys, visit),
            Ordered::Logs(logs) => logs.deltas.walk(keys, visit),
        }
    }

    /// Removes every entry. The caller holds writers off.
    ///
    /// # Errors
    /// Those of memory; nothing is removed then.
    pub fn clear(&self, keys: &impl Keys) -> io::Result<()> {
        match self {
            Ordered::Tree(tree, _) => {
                tree.clear();
                Ok(())
            }
            Ordered::Logs(logs) => {
                let _alone = logs.moving.write();
                logs.deltas.clear(keys)
            }
        }
    }

    /// So much time went by since this was told before: whether changes are written back together goes by it.
    pub fn went_by(&self, time: Duration) {
        if let Ordered::Tree(tree, _) = self {
            tree.went_by(time);
        }
    }

    /// Gives up some garbage, if there is much; whether there may be more to do.
    ///
    /// # Errors
    /// [`Deltas::tidy`].
    pub fn tidy(&self, keys: &impl Keys) -> io::Result<bool> {
        match self {
            Ordered::Tree(..) => Ok(false),
            Ordered::Logs(logs) => {
                let _not_cleared = logs.moves();
                logs.deltas.tidy(keys)
            }
        }
    }

    pub fn len(&self) -> u64 {
        match self {
            Ordered::Tree(tree, _) => tree.len(),
            Ordered::Logs(logs) => logs.deltas.len(),
        }
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Ordered::Tree(tree, _) => tree.stats().bytes,
            Ordered::Logs(logs) => logs.deltas.bytes() + logs.deltas.stats().dram_bytes,
        }
    }

    /// Bytes of the ground where it is kept that are in use.
    pub fn kept_bytes(&self) -> u64 {
        match self {
            Ordered::Tree(tree, _) => tree.leaf_bytes(),
            Ordered::Logs(logs) => logs.deltas.bytes(),
        }
    }
}
