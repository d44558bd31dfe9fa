//! Splits and merges: the changes that take more than one node.
//!
//! Each takes the node above first, then the one in question; both only if they are as they were seen,
//! so what led to one still does. Only then the right neighbour under the same node, which nobody can
//! remove meanwhile.

use super::Tree;
use super::descend::Way;
use super::leaf::Leaf;
use crate::keys::{Entry, Keys, Probe, Separator, UNTOLD};
use crate::latch::{Latch, Seen};
use crate::nodes::{root_of, root_word};
use std::io;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// A latched node, which is a leaf or an inner one.
pub(super) enum Latched<'a, L: Memory, N: Memory> {
    Leaf(Latch<'a, L>),
    Inner(Latch<'a, N>),
}

impl<L: Memory, N: Memory> Latched<'_, L, N> {
    pub(super) fn at(&self) -> u64 {
        match self {
            Latched::Leaf(latch) => latch.at,
            Latched::Inner(latch) => latch.at,
        }
    }

    pub(super) fn change(&self) {
        match self {
            Latched::Leaf(latch) => latch.change(),
            Latched::Inner(latch) => latch.change(),
        }
    }
}

impl<L: Memory, N: Memory> Tree<L, N> {
    fn latch(&self, level: u64, seen: &Seen) -> Option<Latched<'_, L, N>> {
        match level {
            0 => seen.latch(&self.leaves.arena.memory).map(Latched::Leaf),
            _ => seen.latch(&self.inner.memory).map(Latched::Inner),
        }
    }

    fn wait_for(&self, level: u64, at: u64, keys: &impl Keys) -> Latched<'_, L, N> {
        match level {
            0 => Latched::Leaf(Latch::wait(&self.leaves.arena.memory, at, keys)),
            _ => Latched::Inner(Latch::wait(&self.inner.memory, at, keys)),
        }
    }

    fn is_full(&self, level: u64, at: u64) -> bool {
        match level {
            0 => self.leaves.leaf(at).len() >= self.leaves.room(),
            _ => self.inner(at).is_full(),
        }
    }

    /// Splits the node of `level` in charge of the probe, if it is full.
    ///
    /// # Errors
    /// Those of the memory; the tree holds what it held.
    pub(super) fn make_room<K: Keys>(&self, probe: &Probe<'_, K>, level: u64) -> io::Result<()> {
        loop {
            let way = self.reach(probe, level);
            if way.level < level || !self.is_full(level, way.node.at) {
                return Ok(());
            }
            let done = match way.parent {
                Some((parent, _)) if self.inner(parent.at).is_full() => {
                    self.make_room(probe, level + 1)?;
                    false
                }
                Some((parent, number)) => self.split_below(probe, &way, &parent, number)?,
                None => self.split_root(probe, &way)?,
            };
            if done {
                return Ok(());
            }
        }
    }

    /// Splits the node under one that has room. Not, if either changed meanwhile.
    fn split_below<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        way: &Way,
        parent: &Seen,
        number: u64,
    ) -> io::Result<bool> {
        let Some(above) = parent.latch(&self.inner.memory) else { return Ok(false) };
        let Some(node) = self.latch(way.level, &way.node) else { return Ok(false) };
        let (separator, right) = self.split(probe, way.level, &node)?;
        above.change();
        self.inner(above.at).insert(number, separator, right);
        Ok(true)
    }

    /// Splits the root, under a new one.
    fn split_root<K: Keys>(&self, probe: &Probe<'_, K>, way: &Way) -> io::Result<bool> {
        let Some(node) = self.latch(way.level, &way.node) else { return Ok(false) };
        let top = self.inner.take(|_| ())?;
        let (separator, right) = match self.split(probe, way.level, &node) {
            Ok(split) => split,
            Err(error) => {
                self.inner.give(top);
                return Err(error);
            }
        };
        let inner = self.inner(top);
        inner.begin(node.at());
        inner.insert(0, separator, right);
        self.root.store(root_word(top, way.level + 1), Ordering::Release);
        Ok(true)
    }

    /// Moves the upper part of a latched node to a new one on the right.
    fn split<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        level: u64,
        node: &Latched<'_, L, N>,
    ) -> io::Result<(Separator, u64)> {
        if level > 0 {
            let right = self.inner.take(|_| ())?;
            node.change();
            return Ok((self.inner(node.at()).split(&self.inner(right)), right));
        }
        let leaf = self.leaves.leaf(node.at());
        let entries = leaf.sorted(probe.keys);
        let from = self.cut(&leaf, &entries, probe);
        let _separator = Separator::between(entries[from - 1].0, entries[from].0, probe.keys);
        if !probe.keys.could_tell() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, UNTOLD));
        }
        let right = self.take_leaf()?;
        node.change();
        Ok((leaf.split(&self.leaves.leaf(right), &entries, from, probe.keys), right))
    }

    /// How many entries stay: half of them or, at the right end of the tree, where keys that come in
    /// order are added, nearly all; and rather a few more or less than a separator that ties.
    fn cut<K: Keys>(
        &self,
        leaf: &Leaf<'_, L>,
        entries: &[(Entry, u64)],
        probe: &Probe<'_, K>,
    ) -> usize {
        let (count, half) = (entries.len(), entries.len() / 2);
        if leaf.right() == 0 && entries[count - 1].0.head < probe.head {
            return count - 1;
        }
        let differ = |at: &usize| entries[at - 1].0.head != entries[*at].0.head;
        let near = (0..=count / 4).flat_map(|away| [half - away, half + away]);
        near.filter(|at| (1..count).contains(at)).find(differ).unwrap_or(half)
    }

    /// Whether a leaf should be merged with a neighbour.
    pub(super) fn is_thin_leaf(&self, leaf: &Leaf<'_, L>) -> bool {
        leaf.len() * 3 <= self.leaves.room()
    }

    fn is_thin(&self, level: u64, at: u64) -> bool {
        match level {
            0 => self.is_thin_leaf(&self.leaves.leaf(at)),
            _ => self.inner(at).count() * 3 <= self.rows.room,
        }
    }

    /// Merges thin nodes in charge of the probe, from the leaf up.
    #[cold]
    pub(super) fn merge_up<K: Keys>(&self, probe: &Probe<'_, K>) {
        let mut level = 0;
        loop {
            let way = self.reach(probe, level);
            if way.level < level {
                return;
            }
            let goes_on = match way.parent {
                None => return self.lower_root(&way),
                Some((parent, number)) => self.merge(probe, &way, &parent, number),
            };
            match goes_on {
                Some(true) => level += 1,
                Some(false) => return,
                // Something changed; whoever did it, or the next to remove a key, merges.
                None => return,
            }
        }
    }

    /// Merges a thin node with a neighbour under the same node, if both fit in one. Returns whether it
    /// did; none if something changed meanwhile.
    fn merge<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        way: &Way,
        parent: &Seen,
        number: u64,
    ) -> Option<bool> {
        let above = parent.latch(&self.inner.memory)?;
        let inner = self.inner(above.at);
        if inner.count() == 0 || !self.is_thin(way.level, way.node.at) {
            // An only child has no neighbour until its parent is merged.
            return Some(inner.count() == 0);
        }
        // With the neighbour on the right, or, of the last child, on the left.
        let slot = number.min(inner.count() - 1);
        let left = self.wait_for(way.level, inner.child(slot), probe.keys);
        let right = self.wait_for(way.level, inner.child(slot + 1), probe.keys);
        if !self.fits(way.level, left.at(), right.at()) {
            return Some(false);
        }
        self.join(way.level, &above, slot, (&left, right)).map(|()| true)
    }

    /// Makes one node of the two around separator `slot` of the node above, all of them latched. None, and nothing is
    /// changed, if the separator cannot be read.
    pub(super) fn join(
        &self,
        level: u64,
        above: &Latch<'_, N>,
        slot: u64,
        (left, right): (&Latched<'_, L, N>, Latched<'_, L, N>),
    ) -> Option<()> {
        let inner = self.inner(above.at);
        let between = inner.separator(slot, &above.seen())?;
        above.change();
        left.change();
        right.change();
        inner.remove(slot);
        if level == 0 {
            self.leaves.leaf(left.at()).join(&self.leaves.leaf(right.at()));
        } else {
            self.inner(left.at()).join(between, &self.inner(right.at()));
        }
        let gone = right.at();
        drop(right);
        // Behind the latch: its version was raised before somebody else can have it.
        self.give(level, gone);
        Some(())
    }

    /// Takes a node back that nothing leads to any more, and whose version was raised since.
    pub(super) fn give(&self, level: u64, node: u64) {
        match level {
            0 => self.leaves.arena.give(node),
            _ => self.inner.give(node),
        }
    }

    /// Whether two neighbours fit in one node and leave it some room.
    pub(super) fn fits(&self, level: u64, left: u64, right: u64) -> bool {
        let (sum, room) = match level {
            0 => (self.leaves.leaf(left).len() + self.leaves.leaf(right).len(), self.leaves.room()),
            _ => (self.inner(left).count() + 1 + self.inner(right).count(), self.rows.room),
        };
        sum * 4 <= room * 3
    }

    /// A root with one child gives way to it.
    pub(super) fn lower_root(&self, way: &Way) {
        if way.level == 0 || self.inner(way.node.at).count() > 0 {
            return;
        }
        let Some(latch) = way.node.latch(&self.inner.memory) else { return };
        let inner = self.inner(latch.at);
        latch.change();
        let word = root_word(inner.child(0), way.level - 1);
        self.root.store(word, Ordering::Release);
        drop(latch);
        self.inner.give(way.node.at);
    }

    /// Removes every entry. The caller holds off writers; readers see what was there, or nothing. A tree
    /// that is persistent is empty durably on return, and before it holds all. Needs no memory.
    pub fn clear(&self) {
        let first = self.leaves.arena.take_last();
        self.leaves.leaf(first).begin([].iter(), 0);
        self.note_first(first);
        let before = self.root.swap(first, Ordering::AcqRel);
        self.entries.store(0, Ordering::Relaxed);
        let (at, height) = root_of(before);
        self.give_back(height, at);
    }

    /// Gives back a node and all below it.
    pub(super) fn give_back(&self, level: u64, at: u64) {
        let latched = self.wait_for(level, at, &super::Sixteen);
        latched.change();
        if level > 0 {
            let inner = self.inner(at);
            (0..=inner.count()).for_each(|number| self.give_back(level - 1, inner.child(number)));
            inner.forget();
            drop(latched);
            self.inner.give(at);
        } else {
            drop(latched);
            self.leaves.arena.give(at);
        }
    }

    /// Frees what inner nodes own beside their bytes. Nobody uses the tree any more.
    fn forget_ties(&self, level: u64, at: u64) {
        if level > 0 {
            let inner = self.inner(at);
            (0..=inner.count()).for_each(|number| self.forget_ties(level - 1, inner.child(number)));
            inner.forget();
        }
    }
}

impl<L: Memory, N: Memory> Drop for Tree<L, N> {
    fn drop(&mut self) {
        let (at, height) = root_of(*self.root.get_mut());
        self.forget_ties(height, at);
    }
}
