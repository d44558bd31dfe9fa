//! The way down: from the root to the node of a level that is in charge of a key.

use super::Tree;
use super::leaf::Found;
use crate::keys::{Keys, Probe, Side};
use crate::latch::{Latch, Seen};
use crate::nodes::{Inner, root_of};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// A node, and how it was come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The node above and the number of the child there; none above the root.
    pub(super) parent: Option<(Seen, u64)>,
    pub(super) node: Seen,
    /// Levels below it: fewer than asked for if the tree is not as high.
    pub(super) level: u64,
}

/// A look at a key's leaf, to tell later whether a writer came.
pub struct Watch<'a, L: Memory> {
    memory: &'a L,
    seen: Seen,
}

impl<L: Memory> Watch<'_, L> {
    /// Whether nothing of the key was overwritten since the look. `false` also for other changes of the
    /// leaf, and while a writer has it.
    #[inline(always)]
    pub fn saw_no_overwrite(&self) -> bool {
        self.seen.holds(self.memory)
    }
}

impl<L: Memory, N: Memory> Tree<L, N> {
    #[inline(always)]
    pub(super) fn inner(&self, at: u64) -> Inner<'_, N> {
        Inner::new(&self.inner.memory, at, &self.rows)
    }

    #[inline(always)]
    pub(super) fn look_at(&self, level: u64, at: u64, keys: &impl Keys) -> Seen {
        match level {
            0 => Seen::look(&self.leaves.arena.memory, at, keys),
            _ => Seen::look(&self.inner.memory, at, keys),
        }
    }

    /// Asks for what a search of the node looks at.
    #[inline(always)]
    fn prefetch(&self, level: u64, at: u64) {
        match level {
            0 => self.leaves.prefetch(at, L::prefetch),
            _ => Inner::prefetch(&self.inner.memory, at, &self.rows, N::prefetch),
        }
    }

    /// The child of the node that leads to the probe, and its number. None if the node changed.
    #[inline(always)]
    pub(super) fn step<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        side: Side,
        node: &Seen,
    ) -> Option<(u64, u64)> {
        let inner = self.inner(node.at);
        let number = inner.find(probe, side, node)?;
        let child = inner.child(number);
        node.holds(&self.inner.memory).then_some((child, number))
    }

    /// The node of `level` in charge of the probe; `passing` sees every inner node above it, with the
    /// number of the child taken. None if something changed on the way.
    #[inline(always)]
    pub(super) fn try_reach<K: Keys>(
        &self,
        probe: &Probe<'_, K>,
        level: u64,
        side: Side,
        mut passing: impl FnMut(&Inner<'_, N>, &Seen, u64) -> Option<()>,
    ) -> Option<Way> {
        let root = self.root.load(Ordering::Acquire);
        let (at, height) = root_of(root);
        let mut node = self.look_at(height, at, probe.keys);
        // Behind the version: with that one it was the root.
        if self.root.load(Ordering::Acquire) != root {
            return None;
        }
        let level = level.min(height);
        let mut parent = None;
        for below in (level..height).rev() {
            let (child, number) = self.step(probe, side, &node)?;
            self.prefetch(below, child);
            passing(&self.inner(node.at), &node, number)?;
            let next = self.look_at(below, child, probe.keys);
            if !node.holds(&self.inner.memory) {
                return None;
            }
            parent = Some((node, number));
            node = next;
        }
        Some(Way { parent, node, level })
    }

    #[inline(always)]
    pub(super) fn reach<K: Keys>(&self, probe: &Probe<'_, K>, level: u64) -> Way {
        loop {
            if let Some(way) = self.try_reach(probe, level, Side::At, |_, _, _| Some(())) {
                return way;
            }
        }
    }

    #[inline(always)]
    pub(super) fn find<K: Keys>(&self, probe: &Probe<'_, K>) -> Option<[u64; 2]> {
        loop {
            let seen = self.reach(probe, 0).node;
            if let Some(found) = self.find_in(probe, &seen) {
                return found.value;
            }
        }
    }

    /// Looks for the key in a leaf. None if that changed.
    #[inline(always)]
    pub(super) fn find_in<K: Keys>(&self, probe: &Probe<'_, K>, seen: &Seen) -> Option<Found> {
        let holds = || seen.holds(&self.leaves.arena.memory);
        let found = self.leaves.leaf(seen.at).find(probe, holds)?;
        holds().then_some(found)
    }

    /// The leaf in charge of the probe, latched, and where the key is there.
    #[inline(always)]
    pub(super) fn latch_leaf<K: Keys>(&self, probe: &Probe<'_, K>) -> (Latch<'_, L>, Found) {
        loop {
            let seen = self.reach(probe, 0).node;
            let Some(latch) = seen.latch(&self.leaves.arena.memory) else { continue };
            let found = self.leaves.leaf(seen.at).find(probe, || true);
            return (latch, found.expect("a latched leaf does not change"));
        }
    }

    /// A look at the leaf of `key`: what its entry names, if it is copied between the look and
    /// [`Watch::saw_no_overwrite`], was not overwritten meanwhile if that says so.
    #[inline]
    pub fn watch<K: Keys>(&self, key: &[u8], keys: &K) -> Watch<'_, L> {
        let seen = self.reach(&Probe::of(key, keys), 0).node;
        Watch { memory: &self.leaves.arena.memory, seen }
    }
}
