//! Removal of empty nodes from the tree.
//!
//! A leaf without keys, or an inner node with one child, merges with a neighbour that has the same parent, if both fit
//! into one node: the left one takes over what the right one has. The parent and then both, from left to right, are
//! locked, each by one try; if anything is not as expected, nothing happens, and the tree is as right as before. So
//! nobody waits while holding a lock.
//!
//! The right node stays readable until it is marked dead, and nobody changes the left one before that. From then on the
//! dead node leads to the left one, which stands for its keys: whoever still finds it goes on from there. Its separator
//! leaves the parent in the same merge, so no new operation finds it, and after those under way it is used again.
//!
//! Merging on empty instead of on half full keeps far more keys in place, and wastes little (Johnson and Shasha, 1993).
//! The root keeps its level.

use super::node::{ABOUT, About, HIGH, KEYS, Layout, RIGHT};
use super::{BlinkSession, Read};
use crate::backend::Backend;
use crate::list::Step;
use crate::object::CPointer;

/// What a merge came to.
struct Merged {
    /// The largest key that the left node stood for.
    bound: u64,
    /// Whether the parent has one child now, and is not the root.
    is_parent_empty: bool,
}

impl<B: Backend> BlinkSession<'_, B> {
    /// The leaf for `key` has become empty: it merges with a neighbour. So do nodes above it that become empty by that,
    /// and empty nodes that come to have the same parent.
    pub(super) fn merge_empty(&mut self, key: u64) {
        let left_out = self.tree.left_out;
        // Without a lock two nodes may come to lead to each other.
        if left_out.is(Step::Lock) || left_out.is(Step::VersionCheck) {
            return;
        }
        let mut nodes = vec![(key, 0)];
        // It ends: every merge takes a node away.
        while let Some((key, level)) = nodes.pop() {
            let Some(merged) = self.merge(key, level) else { continue };
            if merged.is_parent_empty {
                nodes.push((key, level + 1));
            }
            if level > 0 {
                nodes.push((merged.bound, level - 1));
            }
        }
    }

    /// Merges the node of `level` for `key`, which is not the root, with a neighbour.
    fn merge(&mut self, key: u64, level: usize) -> Option<Merged> {
        let parent = self.find(self.tree.root, key, level + 1);
        let keys = parent.about.keys();
        if keys == 0 || !self.try_lock(&parent) {
            return None;
        }
        std::mem::swap(&mut self.here, &mut self.parent);
        // Separators beside the child: with its right neighbour, or else with its left one.
        let beside = [Some(parent.i), parent.i.checked_sub(1)].into_iter().flatten();
        let mut beside = beside.filter(|at| *at < keys);
        let Some(at) = beside.find(|at| self.merge_children(&parent, *at, level)) else {
            CPointer::new(parent.at).store(&mut self.context, ABOUT, parent.about.0);
            return None;
        };
        let bound = self.parent.near()[KEYS + at];
        Layout::of(self.tree.elements, level + 1).remove(&mut self.parent, keys, at);
        let about = parent.about.changed(level + 1, keys - 1);
        Self::publish(&mut self.context, self.tree.access, parent.at, &mut self.parent, about);
        Some(Merged { bound, is_parent_empty: keys == 1 && parent.at != self.tree.root })
    }

    /// Merges the children around separator `at` of the parent, which is locked and near.
    fn merge_children(&mut self, parent: &Read, at: usize, level: usize) -> bool {
        let layout = Layout::of(self.tree.elements, level);
        let child = |i| Layout::of(self.tree.elements, level + 1).value(i);
        let near = self.parent.near();
        let (separator, left, right) = (near[KEYS + at], near[child(at)], near[child(at + 1)]);
        debug_assert!(parent.about.level() == level + 1 && left != right);
        let (far_left, far_right) = (CPointer::new(left), CPointer::new(right));

        let Some(about_left) = self.lock_child(left) else { return false };
        far_left.get(&mut self.context, &mut self.here, self.tree.access);
        self.here.fill(&mut self.context);
        // A node that was split, and whose right half the parent does not know yet, has another neighbour.
        let near = self.here.near();
        let are_neighbours = near[RIGHT] == right && near[HIGH] == separator;
        let locked = are_neighbours.then(|| self.lock_child(right)).flatten();
        let Some(about_right) = locked else {
            far_left.store(&mut self.context, ABOUT, about_left.0);
            return false;
        };
        let keys = (about_left.keys(), about_right.keys());
        let merged = layout.merged(keys.0, keys.1).filter(|_| keys.0 == 0 || keys.1 == 0);
        let Some(merged) = merged else {
            far_right.store(&mut self.context, ABOUT, about_right.0);
            far_left.store(&mut self.context, ABOUT, about_left.0);
            return false;
        };
        far_right.get(&mut self.context, &mut self.spare, self.tree.access);
        self.spare.fill(&mut self.context);
        layout.merge(&mut self.here, &mut self.spare, keys);
        let (context, access) = (&mut self.context, self.tree.access);
        let about = about_left.changed(level, merged);
        Self::write(context, access, left, &mut self.here, about.locked());
        if self.tree.left_out.is(Step::Mark) {
            far_right.store(context, ABOUT, about_right.0);
        } else {
            self.spare.near()[RIGHT] = left;
            Self::publish(context, access, right, &mut self.spare, about_right.dead());
        }
        // Only now may it change.
        far_left.store(context, ABOUT, about.0);
        if !self.tree.left_out.any() {
            self.nodes.unlinked(right);
        }
        true
    }

    /// Locks a node that is free, by one try.
    fn lock_child(&mut self, at: u64) -> Option<About> {
        let far = CPointer::new(at);
        let about = About(far.load(&mut self.context, ABOUT));
        let is_free = !about.is_locked();
        let locked = is_free
            && far.compare_and_swap(&mut self.context, ABOUT, about.0, about.locked().0).is_ok();
        locked.then_some(about)
    }
}
