//! The inner nodes: which leaf a key is in. In DRAM, and rebuilt at each opening.
//!
//! They are the nodes of the tree ([`crate::nodes`]), with numbers of leaves as the children of the lowest.
//!
//! # Threads
//! A reader goes down as in the tree: it reads a node's version, chooses the child, reads the child's version, and goes
//! on if the node's is still the same. A writer is another than the tree's: a split is durable in a log, under the
//! latch of the leaf, before the nodes above know of it. So it goes from below: it latches the lowest node and
//! changes it; who must split or drop a node takes the lock of the structure, and keeps what it changes latched
//! until the node above knows. Whoever has a node latched waits only for one above it, and only with that lock.

use super::table::Latch as LeafLatch;
use crate::Reserved;
use crate::keys::{Keys, Probe, Separator, Side, Sixteen};
use crate::latch::{Latch, Seen};
use crate::nodes::{Arena, Child, Inner as Node, Promised, Rows, build, root_of, root_word};
use crate::shares::Pass;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use terrace_durable::lock;
use terrace_memory::instructions::LINE_BYTES;
use terrace_memory::{Budget, Memory};

const NODE_BYTES: u64 = 512;
/// Nodes that are there for whoever splits a leaf: more than a path from the root has.
const AHEAD: u64 = 16;

/// A node on the way down, and the levels of nodes below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    seen: Seen,
    level: u64,
}

/// One step down.
#[derive(Clone, Copy, Debug)]
pub(super) enum Down {
    Node(At),
    /// A leaf, and the node that leads to it.
    Leaf(u32, Seen),
}

/// The inner nodes.
pub(super) struct Inner<D: Memory> {
    nodes: Arena<D>,
    rows: Rows,
    root: AtomicU64,
    /// Held by whoever changes more than a lowest node.
    structure: Mutex<()>,
}

impl<D: Memory> Drop for Inner<D> {
    fn drop(&mut self) {
        let root = *self.root.get_mut();
        self.forget(root);
    }
}

impl<D: Memory> Inner<D> {
    /// Those of an index whose only leaf is `leaf`. The region is zero.
    pub(super) fn new(
        region: Reserved<D>,
        leaf: u32,
        budget: &Arc<Budget>,
    ) -> io::Result<Inner<D>> {
        let committed = AHEAD * NODE_BYTES;
        let nodes = Arena::new(region, NODE_BYTES, LINE_BYTES, committed, budget)?;
        let rows = Rows::of(NODE_BYTES);
        let inner = Inner { nodes, rows, root: AtomicU64::new(0), structure: Mutex::new(()) };
        let prepared = inner.prepare()?;
        inner.restart(leaf, &Sixteen);
        drop(prepared);
        Ok(inner)
    }

    /// From here on `leaf` is the only one. Readers that are on their way find out. The caller has
    /// [prepared](Inner::prepare), and holds writers off.
    pub(super) fn restart(&self, leaf: u32, keys: &impl Keys) {
        let root = self.nodes.take_last();
        self.node(root).begin(leaf.into());
        self.give_back(self.root.swap(root, AcqRel), keys);
    }

    /// Builds all nodes anew for these leaves, in order, each with what stands before it. The caller holds others off.
    ///
    /// # Errors
    /// As [`Inner::prepare`]; the nodes are what they were then.
    pub(super) fn build(
        &self,
        leaves: Vec<Child>,
        threads: usize,
        pass: Pass<'_>,
    ) -> io::Result<()> {
        let (root, height) = build((&self.nodes, &self.rows), leaves, 1, threads, pass)?;
        self.give_back(self.root.swap(root_word(root, height - 1), AcqRel), &Sixteen);
        Ok(())
    }

    /// Gives back the nodes below a root that nothing leads to any more; 0 is none.
    fn give_back(&self, root: u64, keys: &impl Keys) {
        if root == 0 {
            return;
        }
        let (at, level) = root_of(root);
        let latch = self.latch(at, keys);
        latch.change();
        let node = self.node(at);
        if level > 0 {
            let children = (0..=node.count()).map(|number| node.child(number));
            children.for_each(|child| self.give_back(root_word(child, level - 1), keys));
        }
        node.forget();
        drop(latch);
        self.nodes.give(at);
    }

    /// Frees what nodes own beside their bytes. Nobody uses them any more.
    fn forget(&self, root: u64) {
        let (at, level) = root_of(root);
        if at == 0 {
            return;
        }
        let node = self.node(at);
        if level > 0 {
            let children = (0..=node.count()).map(|number| node.child(number));
            children.for_each(|child| self.forget(root_word(child, level - 1)));
        }
        node.forget();
    }

    /// Sees to it that a leaf more finds its place, as long as what is returned is held.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] if the region is full, and those of the region.
    pub(super) fn prepare(&self) -> io::Result<Promised<'_, D>> {
        self.nodes.promise(AHEAD)
    }

    /// Nodes, and bytes.
    pub(super) fn sizes(&self) -> (u64, u64) {
        (self.nodes.used(LINE_BYTES), self.nodes.committed())
    }

    #[inline(always)]
    fn node(&self, at: u64) -> Node<'_, D> {
        Node::new(&self.nodes.memory, at, &self.rows)
    }

    /// Whether the node is as it was when it led to the leaf.
    #[inline(always)]
    pub(super) fn still_leads(&self, seen: Seen) -> bool {
        seen.holds(&self.nodes.memory)
    }

    fn latch(&self, at: u64, keys: &impl Keys) -> Latch<'_, D> {
        Latch::wait(&self.nodes.memory, at, keys)
    }

    fn structure(&self) -> MutexGuard<'_, ()> {
        lock(&self.nodes.memory, &self.structure)
    }

    /// Where every search begins; none if that is just changing.
    #[inline(always)]
    pub(super) fn top(&self, keys: &impl Keys) -> Option<At> {
        let root = self.root.load(Acquire);
        let (at, level) = root_of(root);
        let seen = Seen::look(&self.nodes.memory, at, keys);
        (self.root.load(Acquire) == root).then_some(At { seen, level })
    }

    /// One step down; none if something changed. `hear` is told the node and the child's number.
    #[inline(always)]
    fn down(
        &self,
        here: At,
        probe: &Probe<'_, impl Keys>,
        side: Side,
        hear: &mut impl FnMut(&Node<'_, D>, &Seen, u64),
    ) -> Option<Down> {
        let (node, seen) = (self.node(here.seen.at), here.seen);
        let number = node.find(probe, side, &seen)?;
        let child = node.child(number);
        hear(&node, &seen, number);
        if !self.still_leads(seen) {
            return None;
        }
        if here.level == 0 {
            return Some(Down::Leaf(child as u32, seen));
        }
        let next = Seen::look(&self.nodes.memory, child, probe.keys);
        let next = At { seen: next, level: here.level - 1 };
        self.still_leads(seen).then_some(Down::Node(next))
    }

    /// One step down, as a batch of searches takes it: the child is asked for and not looked at yet.
    #[inline(always)]
    pub(super) fn step(&self, here: At, probe: &Probe<'_, impl Keys>) -> Option<Down> {
        self.down(here, probe, Side::At, &mut |node, _, number| {
            if here.level > 0 {
                let (memory, child) = (&self.nodes.memory, node.child(number));
                Node::prefetch_heads(memory, child, &self.rows, D::prefetch_of_many);
            }
        })
    }

    /// The leaf of a place, and the node that leads there.
    #[inline]
    pub(super) fn find(&self, probe: &Probe<'_, impl Keys>, side: Side) -> (u32, Seen) {
        loop {
            let mut here = self.top(probe.keys);
            while let Some(at) = here {
                here = match self.down(at, probe, side, &mut |_, _, _| ()) {
                    Some(Down::Leaf(leaf, node)) => return (leaf, node),
                    Some(Down::Node(next)) => Some(next),
                    None => None,
                };
            }
        }
    }

    /// The leaf of a place, the node that leads there, and what stands at its two ends; none where there is
    /// nothing before or behind. An end may be nearer than it is by now.
    pub(super) fn find_between(
        &self,
        probe: &Probe<'_, impl Keys>,
        side: Side,
    ) -> (u32, Seen, [Option<Separator>; 2]) {
        loop {
            let mut ends = [None, None];
            let Some(mut at) = self.top(probe.keys) else { continue };
            loop {
                let mut here = [None, None];
                let mut hear = |node: &Node<'_, D>, seen: &Seen, number: u64| {
                    let before = number.checked_sub(1);
                    here[0] = before.and_then(|before| node.separator(before, seen));
                    let behind = (number < node.count()).then_some(number);
                    here[1] = behind.and_then(|behind| node.separator(behind, seen));
                };
                // An end that could not be read is of a node that changed.
                let Some(down) = self.down(at, probe, side, &mut hear) else { break };
                for (end, here) in ends.iter_mut().zip(here) {
                    *end = here.or(end.take());
                }
                match down {
                    Down::Leaf(leaf, node) => return (leaf, node, ends),
                    Down::Node(next) => at = next,
                }
            }
        }
    }

    /// The lowest node of a place, latched.
    fn latch_lowest(&self, probe: &Probe<'_, impl Keys>) -> Latch<'_, D> {
        loop {
            let (_, node) = self.find(probe, Side::At);
            if let Some(latch) = node.latch(&self.nodes.memory) {
                return latch;
            }
        }
    }

    /// The number of the child of a latched node that leads to a place.
    fn number(&self, latch: &Latch<'_, D>, probe: &Probe<'_, impl Keys>) -> u64 {
        let number = self.node(latch.at).find(probe, Side::At, &latch.seen());
        number.expect("a latched node does not change")
    }

    /// Adds a leaf that begins at `separator`. The caller has the leaf's left neighbour, of which it was a
    /// part, and has [prepared](Inner::prepare).
    pub(super) fn insert(&self, separator: &Separator, leaf: u32, keys: &impl Keys) {
        let probe = Probe::at(separator, keys);
        let latch = self.latch_lowest(&probe);
        let node = self.node(latch.at);
        if node.is_full() {
            drop(latch);
            return self.insert_splitting(separator.clone(), leaf, &probe);
        }
        latch.change();
        node.insert(self.number(&latch, &probe), separator.clone(), leaf.into());
    }

    /// The nodes from the root down to the lowest that leads to a place. Under the lock of the structure, so that those
    /// above the lowest stay as they are.
    fn path(&self, probe: &Probe<'_, impl Keys>) -> Vec<u64> {
        let (mut at, height) = root_of(self.root.load(Acquire));
        let mut path = vec![at];
        for _ in 0..height {
            let seen = Seen::look(&self.nodes.memory, at, probe.keys);
            let number = self.node(at).find(probe, Side::At, &seen);
            at = self.node(at).child(number.expect("it stays as it is"));
            path.push(at);
        }
        path
    }

    #[cold]
    fn insert_splitting(&self, separator: Separator, leaf: u32, probe: &Probe<'_, impl Keys>) {
        let _structure = self.structure();
        let (mut separator, mut child) = (separator, u64::from(leaf));
        // Kept until all are done: whoever comes down meanwhile waits, and then sees that it came too early.
        let mut latches = Vec::new();
        for (level, at) in (0..).zip(self.path(probe).into_iter().rev()) {
            let latch = self.latch(at, probe.keys);
            latch.change();
            let (node, number) = (self.node(at), self.number(&latch, probe));
            latches.push(latch);
            if !node.is_full() {
                return node.insert(number, separator, child);
            }
            let right_at = self.nodes.take_last();
            let right = self.node(right_at);
            let between = node.split(&right);
            match number.checked_sub(node.count() + 1) {
                Some(number) => right.insert(number, separator, child),
                None => node.insert(number, separator, child),
            }
            (separator, child) = (between, right_at);
            if at == root_of(self.root.load(Acquire)).0 {
                let top = self.nodes.take_last();
                self.node(top).fill(&[(None, at), (Some(separator), child)]);
                return self.root.store(root_word(top, level + 1), Release);
            }
        }
    }

    /// Removes the leaf of a place, which the caller has latched; its neighbour takes over. Whether there is
    /// one: the last leaf stays.
    pub(super) fn remove(&self, probe: &Probe<'_, impl Keys>, held: &LeafLatch<'_, D>) -> bool {
        let latch = self.latch_lowest(probe);
        let node = self.node(latch.at);
        if node.count() == 0 {
            drop(latch);
            return self.remove_node(probe);
        }
        let number = self.number(&latch, probe);
        debug_assert_eq!(node.child(number) as u32, held.leaf, "a latched leaf stays where it is");
        latch.change();
        node.remove_child(number);
        true
    }

    /// Removes the leaf of a place with the nodes that lead to nothing else.
    #[cold]
    fn remove_node(&self, probe: &Probe<'_, impl Keys>) -> bool {
        let _structure = self.structure();
        let path = self.path(probe);
        // A lowest node with one child stays so: whoever would add another has the leaf.
        for (place, at) in path.iter().enumerate().rev() {
            let latch = self.latch(*at, probe.keys);
            let node = self.node(*at);
            if node.count() == 0 {
                continue;
            }
            latch.change();
            node.remove_child(self.number(&latch, probe));
            drop(latch);
            for at in &path[place + 1..] {
                let latch = self.latch(*at, probe.keys);
                latch.change();
                self.node(*at).forget();
                drop(latch);
                self.nodes.give(*at);
            }
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::{LEAST, spread};
    use crate::{Commit, Reserved};
    use terrace_memory::{Backing, Native, Region};

    fn inner(bytes: u64) -> (Arc<Region>, io::Result<Inner<Native>>) {
        let region = Arc::new(Region::reserve(bytes, Backing::Anonymous).expect("memory"));
        let held = Arc::clone(&region);
        let commit: Commit = Box::new(move |at, bytes| held.commit(at, bytes));
        let reserved = Reserved { memory: region.native(), commit, start: 0 };
        (region, Inner::new(reserved, 0, &Arc::new(Budget::new(1 << 40))))
    }

    fn separator(leaf: u32) -> Separator {
        let tied = leaf % 40 < 3;
        let head = u128::from(if tied { leaf - leaf % 40 } else { leaf }) << 100 | 1 << 90;
        Separator { head, tie: tied.then(|| Arc::from(leaf.to_be_bytes().as_slice())) }
    }

    /// Some share a head, and then a key stands beside it.
    fn leaves(count: u32) -> Vec<Child> {
        let leaf = |leaf: u32| ((leaf > 0).then(|| separator(leaf)), u64::from(leaf * 3 + 7));
        (0..count).map(leaf).collect()
    }

    /// The leaves below a node, each with what stands before it, and before each node its place and number of children.
    fn below(
        inner: &Inner<Native>,
        root: u64,
        before: Option<Separator>,
    ) -> (Vec<Child>, Vec<u64>) {
        let (at, level) = root_of(root);
        let (node, seen) = (inner.node(at), Seen::look(&inner.nodes.memory, at, &Sixteen));
        let (mut found, mut places) = (Vec::new(), vec![at, node.count()]);
        for number in 0..=node.count() {
            let separator = match number {
                0 => before.clone(),
                number => node.separator(number - 1, &seen),
            };
            if level == 0 {
                found.push((separator, node.child(number)));
                continue;
            }
            let more = below(inner, root_word(node.child(number), level - 1), separator);
            found.extend(more.0);
            places.extend(more.1);
        }
        (found, places)
    }

    fn all(inner: &Inner<Native>) -> (Vec<Child>, Vec<u64>) {
        below(inner, inner.root.load(Acquire), None)
    }

    #[test]
    fn any_number_of_threads_builds_the_same_nodes() {
        let most = Rows::of(NODE_BYTES).room as u32 * 9 / 10 + 1;
        let large = most * LEAST as u32;
        let boundaries = [1, most, most * most, 2 * large, 3 * large].map(|n| [n - 1, n, n + 1]);
        for count in boundaries.into_iter().flatten().chain([2, 20, 70_001]) {
            let leaves = leaves(count.max(1));
            let built = |threads| {
                let (_region, inner) = inner(16 << 20);
                let inner = inner.expect("room");
                let parts = std::sync::atomic::AtomicU32::new(1);
                let pass: Pass<'_> = &|count, does| {
                    parts.fetch_max(count, AcqRel);
                    spread(count, does);
                };
                inner.build(leaves.clone(), threads, pass).expect("room");
                let (found, places) = all(&inner);
                assert!(found == leaves, "{count} leaves, {threads} threads");
                for (separator, leaf) in leaves.iter().step_by(97) {
                    let Some(separator) = separator else { continue };
                    let (found, _) = inner.find(&Probe::at(separator, &Sixteen), Side::At);
                    assert_eq!(u64::from(found), *leaf, "{count} leaves, {threads} threads");
                }
                (places, inner.sizes(), parts.into_inner())
            };
            let (alone, sizes, _) = built(1);
            for threads in [2, 3, 8] {
                let (places, found, parts) = built(threads);
                assert!(places == alone && found == sizes, "{count} leaves, {threads} threads");
                // It was built by as many as it is worth.
                let worth = (count.div_ceil(most) / LEAST as u32).clamp(1, threads as u32);
                assert_eq!(parts, worth, "{count} leaves, {threads} threads");
            }
        }
    }

    #[test]
    fn nodes_for_which_there_is_no_room_are_not_taken() {
        let (_region, inner) = inner(64 << 10);
        let inner = inner.expect("room for a few");
        let before = inner.sizes().0;
        let refused = inner.build(leaves(100_000), 8, &spread).expect_err("no room");
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(inner.sizes().0, before);
        inner.build(leaves(500), 8, &spread).expect("room for these");
        assert!(all(&inner).0 == leaves(500));
    }

    #[test]
    fn leaves_come_and_go_in_any_order() {
        const LEAVES: u32 = 3_000;
        let (_region, inner) = inner(16 << 20);
        let inner = inner.expect("room");
        let mut present = vec![false; LEAVES as usize];
        let order = |step: u32| (step * 1_237) % (LEAVES - 1) + 1;
        for leaf in (0..LEAVES - 1).map(order) {
            let _prepared = inner.prepare().expect("room");
            inner.insert(&separator(leaf), leaf, &Sixteen);
            present[leaf as usize] = true;
        }
        let listed = |present: &[bool]| -> Vec<Child> {
            let leaves = (1..LEAVES).filter(|leaf| present[*leaf as usize]);
            let all = leaves.map(|leaf| (Some(separator(leaf)), u64::from(leaf)));
            std::iter::once((None, 0)).chain(all).collect()
        };
        assert!(all(&inner).0 == listed(&present));
        let nodes = inner.sizes().0;
        inner.restart(0, &Sixteen);
        assert!(all(&inner).0 == listed(&vec![false; LEAVES as usize]));
        assert!(inner.sizes().0 == 1 && nodes > 100, "{nodes} nodes were given back");
    }
}
