//! The nodes of a tree as an ordered index: leaves where the index lies, inner nodes in DRAM or beside them.

use super::ordered::{Form, Watches};
use crate::laboratory::{InnerTier, inner_words};
use std::fmt;
use std::io;
use std::ops::Bound;
use std::time::Duration;
use terrace_durable::BucketLock;
use terrace_index::keys::{Change, Direction, Entry, Keys};
use terrace_index::tree::{self, GroupFlush, Tree};
use terrace_memory::{Memory, Native, prestore};

/// A tree. Of a persistent one the leaves alone are; inner nodes are rebuilt.
pub(crate) struct InTree<I: Memory> {
    tree: Tree<I, Native>,
    inner_tier: InnerTier,
}

impl<I: Memory> InTree<I> {
    pub fn new(tree: Tree<I, Native>, inner_tier: InnerTier) -> InTree<I> {
        InTree { tree, inner_tier }
    }
}

impl<I: Memory> Watches for tree::Watch<'_, I> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        tree::Watch::saw_no_overwrite(self)
    }
}

impl<I: Memory> fmt::Display for InTree<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, bytes) = self.tree.form();
        if form.is_kept() {
            let inner = inner_words(self.inner_tier);
            return write!(f, "{form}: leaves of {bytes} B, inner nodes {inner}");
        }
        write!(f, "{form}: nodes of {bytes} B in DRAM")?;
        let (GroupFlush::Above(most), is_on) = self.tree.group_flush() else {
            return Ok(());
        };
        let now = if is_on && prestore::is_enabled() { "now" } else { "not now" };
        write!(f, " and changes written back together above {most} lines a second: {now}")
    }
}

impl<I: Memory> Form for InTree<I> {
    type Watch<'a>
        = tree::Watch<'a, I>
    where
        Self: 'a;

    fn looked_at(&self) -> [u64; 2] {
        let (form, bytes) = self.tree.form();
        let leaf_alone = form.is_kept() && self.inner_tier == InnerTier::Dram;
        [if leaf_alone { 1 } else { 1 + self.tree.stats().height }, bytes]
    }

    #[inline(always)]
    fn get(&self, key: &[u8], keys: &impl Keys) -> Option<[u64; 2]> {
        self.tree.get(key, keys)
    }

    #[inline(always)]
    fn multi_get(&self, wanted: &[&[u8]], keys: &impl Keys, values: &mut [Option<[u64; 2]>]) {
        self.tree.multi_get(wanted, keys, values);
    }

    #[inline(always)]
    fn watch(&self, key: &[u8], keys: &impl Keys) -> tree::Watch<'_, I> {
        self.tree.watch(key, keys)
    }

    #[inline(always)]
    fn update_then<T>(
        &self,
        key: &[u8],
        keys: &impl Keys,
        f: impl FnOnce(Option<[u64; 2]>, &BucketLock) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>> {
        self.tree.update_then(key, keys, f, then)
    }

    fn update_at(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &impl Keys,
        f: impl FnOnce(&BucketLock) -> Change,
    ) -> io::Result<bool> {
        Ok(self.tree.update_at(key, value, keys, f))
    }

    fn look<R>(&self, key: &[u8], keys: &impl Keys, f: impl FnOnce([u64; 2]) -> R) -> Option<R> {
        self.tree.look(key, keys, f)
    }

    #[inline(always)]
    fn holds(&self, key: &[u8], value: [u64; 2], keys: &impl Keys) -> bool {
        self.tree.holds(key, value, keys)
    }

    #[inline(always)]
    fn range(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        count: usize,
        keys: &impl Keys,
        visit: impl FnMut(&[Entry]),
    ) -> Option<Entry> {
        self.tree.range(from, direction, count, keys, visit)
    }

    fn some(&self, random: u64, keys: &impl Keys) -> Option<Entry> {
        self.tree.some(random, keys)
    }

    fn walk(&self, keys: &impl Keys, visit: impl FnMut(&Entry, u64)) {
        self.tree.walk(keys, visit);
    }

    fn clear(&self, _keys: &impl Keys) -> io::Result<()> {
        self.tree.clear();
        Ok(())
    }

    fn went_by(&self, time: Duration) {
        self.tree.went_by(time);
    }

    fn shrink(&self, keys: &impl Keys) -> u64 {
        self.tree.shrink(keys)
    }

    fn free_bytes(&self) -> u64 {
        self.tree.free_bytes()
    }

    fn len(&self) -> u64 {
        self.tree.len()
    }

    fn bytes(&self) -> u64 {
        self.tree.stats().bytes
    }

    fn kept_bytes(&self) -> u64 {
        self.tree.leaf_bytes()
    }
}
