//! Memory given back: neighbours with little in them become one node, nodes at the end of the memory move to free
//! places before them, and what is behind the last one goes back to the system.
//!
//! A tree that shrinks, as by eviction, leaves free nodes everywhere. Nodes are moved as a merge changes them: the node
//! above latched, then the neighbour on the left, whose link leads here, then the node itself. Readers that were in it
//! find its version raised, and begin again; so does who finds zeros where memory was given back (`nodes/arena.rs`).
//! Nobody waits here: a node that a writer has is left where it is, for the next time.
//!
//! Leaves that are persistent stay where they are: what a crash leaves of them is found by their places.

use super::descend::Way;
use super::structure::Latched;
use super::{LINE, Tree};
use crate::keys::{Keys, Probe, Separator, Side};
use crate::latch::{Latch, Seen};
use crate::nodes::{root_of, root_word};
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// A part of the memory that is emptied: where it begins, of leaves and of inner nodes.
#[derive(Clone, Copy)]
struct Cutoffs {
    leaves: u64,
    inner: u64,
}

impl<L: Memory, N: Memory> Tree<L, N> {
    /// Gives memory of free nodes back to the system, and to the budget, where it can be; returns how many bytes.
    /// Others may use the tree meanwhile. O(leaves).
    pub fn shrink<K: Keys>(&self, keys: &K) -> u64 {
        let Some(_one) = self.packing.try_lock() else { return 0 };
        let height = root_of(self.root.load(Ordering::Acquire)).1;
        for level in 1..=height {
            self.each_parent(level, keys, |_, way| self.merge_children(way));
        }
        self.lower_root(&self.reach(&Probe::end(keys), u64::MAX));
        let leaves = self.leaves.arena.begin_emptying(self.leaves.reserved);
        let inner = self.inner.begin_emptying(LINE);
        let cutoffs =
            Cutoffs { leaves: leaves.unwrap_or(u64::MAX), inner: inner.unwrap_or(u64::MAX) };
        if inner.is_some() {
            for level in 2..=height {
                self.each_parent(level, keys, |_, way| self.move_inner(way, cutoffs));
            }
            self.move_root(cutoffs, keys);
        }
        if leaves.is_some() {
            self.each_parent(1, keys, |probe, way| {
                self.move_leaves(probe, way, cutoffs);
            });
        }
        let of_leaves = leaves.map_or(0, |_| self.leaves.arena.end_emptying());
        of_leaves + inner.map_or(0, |_| self.inner.end_emptying())
    }

    /// Bytes of nodes that nothing is in.
    pub fn free_bytes(&self) -> u64 {
        let leaves = self.leaves.arena.used(self.leaves.reserved) * self.leaves.arena.node_bytes;
        let inner = self.inner.used(LINE) * self.inner.node_bytes;
        (self.leaves.arena.committed() + self.inner.committed()).saturating_sub(leaves + inner)
    }

    /// Visits the inner nodes of a level from left to right, each but the first with a probe of what stands before it.
    fn each_parent<K: Keys>(
        &self,
        level: u64,
        keys: &K,
        mut visit: impl FnMut(Option<&Probe<'_, K>>, &Way),
    ) {
        let mut place: Option<Separator> = None;
        loop {
            let (head, key) = match &place {
                None => (0, None),
                Some(separator) => (separator.head, separator.tie.as_deref()),
            };
            let probe = Probe { head, key, is_end: false, keys };
            // The last separator that is passed on the left stands behind the node.
            let mut fence = None;
            let way = self.try_reach(&probe, level, Side::At, |inner, seen, number| {
                if number < inner.count() {
                    fence = Some(inner.separator(number, seen)?);
                }
                Some(())
            });
            let Some(way) = way else { continue };
            if way.level < level {
                return;
            }
            visit(place.is_some().then_some(&probe), &way);
            match fence {
                None => return,
                next => place = next,
            }
        }
    }

    fn try_latch(&self, level: u64, at: u64) -> Option<Latched<'_, L, N>> {
        match level {
            0 => Latch::try_at(&self.leaves.arena.memory, at).map(Latched::Leaf),
            _ => Latch::try_at(&self.inner.memory, at).map(Latched::Inner),
        }
    }

    /// Merges children that fit in one node, as far as nobody has them.
    fn merge_children(&self, way: &Way) {
        let level = way.level - 1;
        if level == 0 && self.leaves.form.is_persistent() {
            return;
        }
        let inner = self.inner(way.node.at);
        // A look without a latch: most have nothing to do.
        let fit = |slot| {
            let (left, right) = (inner.child(slot), inner.child(slot + 1));
            // What is no node of this one may lie anywhere.
            way.node.holds(&self.inner.memory) && self.fits(level, left, right)
        };
        if !(0..inner.count()).any(fit) {
            return;
        }
        let Some(above) = way.node.latch(&self.inner.memory) else { return };
        let mut slot = 0;
        while slot < inner.count() {
            let Some(left) = self.try_latch(level, inner.child(slot)) else { return };
            let Some(right) = self.try_latch(level, inner.child(slot + 1)) else { return };
            if !self.fits(level, left.at(), right.at()) {
                slot += 1;
            } else if self.join(level, &above, slot, (&left, right)).is_none() {
                return;
            }
        }
    }

    /// Moves children of an inner node that are inner nodes.
    fn move_inner(&self, way: &Way, cutoffs: Cutoffs) {
        let inner = self.inner(way.node.at);
        if (0..=inner.count()).all(|number| inner.child(number) < cutoffs.inner) {
            return;
        }
        let Some(above) = way.node.latch(&self.inner.memory) else { return };
        for number in 0..=inner.count() {
            let at = inner.child(number);
            if at < cutoffs.inner {
                continue;
            }
            let Some(node) = Latch::try_at(&self.inner.memory, at) else { return };
            let Some(to) = self.inner.take_lower() else { return };
            above.change();
            node.change();
            self.inner(to).take_over(&self.inner(at));
            inner.set_child(number, to);
            drop(node);
            self.inner.give(at);
        }
    }

    fn move_root(&self, cutoffs: Cutoffs, keys: &impl Keys) {
        let root = self.root.load(Ordering::Acquire);
        let (at, height) = root_of(root);
        if height == 0 || at < cutoffs.inner {
            return;
        }
        let seen = Seen::look(&self.inner.memory, at, keys);
        if self.root.load(Ordering::Acquire) != root {
            return;
        }
        let Some(node) = seen.latch(&self.inner.memory) else { return };
        let Some(to) = self.inner.take_lower() else { return };
        node.change();
        self.inner(to).take_over(&self.inner(at));
        self.root.store(root_word(to, height), Ordering::Release);
        drop(node);
        self.inner.give(at);
    }

    /// Moves children of an inner node that are leaves. None: something changed, or a writer has one of them.
    fn move_leaves<K: Keys>(
        &self,
        probe: Option<&Probe<'_, K>>,
        way: &Way,
        cutoffs: Cutoffs,
    ) -> Option<()> {
        let memory = &self.leaves.arena.memory;
        let inner = self.inner(way.node.at);
        if (0..=inner.count()).all(|number| inner.child(number) < cutoffs.leaves) {
            return Some(());
        }
        // The leaf that leads to the first, under another node, if there is one.
        let mut left = match probe {
            None => None,
            Some(probe) => {
                let way = self.try_reach(probe, 0, Side::Before, |_, _, _| Some(()))?;
                Some(way.node.latch(memory)?)
            }
        };
        let above = way.node.latch(&self.inner.memory)?;
        if let Some(left) = &left
            && self.leaves.leaf(left.at).right() != inner.child(0)
        {
            return None;
        }
        for number in 0..=inner.count() {
            let at = inner.child(number);
            let node = Latch::try_at(memory, at)?;
            if at < cutoffs.leaves {
                left = Some(node);
                continue;
            }
            let to = self.leaves.arena.take_lower()?;
            // Nobody can have it: nothing leads there.
            let Some(new) = Latch::try_at(memory, to) else {
                self.leaves.arena.give(to);
                return None;
            };
            above.change();
            node.change();
            new.change();
            self.leaves.leaf(to).take_over(&self.leaves.leaf(at));
            if let Some(left) = &left {
                left.change();
                self.leaves.leaf(left.at).link(to);
            }
            inner.set_child(number, to);
            drop(node);
            self.leaves.arena.give(at);
            left = Some(new);
        }
        Some(())
    }
}
