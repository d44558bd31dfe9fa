//! Trees made from what is in order already: leaves from entries, inner nodes from leaves.

use super::descend::root_of;
use super::{HEIGHT_SHIFT, Tree};
use crate::keys::{Entry, Keys, Separator, compare};
use crate::shares;
use std::io;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Of ten places of a new node so many are filled: the next inserts find room.
const FILLED_TENTHS: u64 = 9;

/// A node and what stands before it, but before the first.
pub(super) type Child = (Option<Separator>, u64);

impl<L: Memory, N: Memory> Tree<L, N> {
    /// Fills an empty tree with entries in the order of their keys. The caller holds off others. A tree
    /// that is persistent holds all of them durably on return, and before it none. O(entries).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the tree is not empty, or entries are not in order; those of the
    /// memory. The tree is empty then.
    pub fn bulk_load<K: Keys>(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        keys: &K,
    ) -> io::Result<()> {
        if !self.is_empty() {
            return Err(invalid("a tree that is filled in order is empty before"));
        }
        let mut children = Vec::new();
        let loaded = self.load_leaves(entries, keys, &mut children);
        let built = loaded.and_then(|count| Ok((count, self.build_inner(children.clone(), 1)?)));
        let (count, root) = match built {
            Ok(built) => built,
            Err(error) => {
                children.iter().for_each(|(_, leaf)| self.leaves.arena.give(*leaf));
                return Err(error);
            }
        };
        self.note_first(children[0].1);
        let (at, height) = root_of(self.root.swap(root, Ordering::AcqRel));
        self.give_back(height, at);
        self.entries.store(count, Ordering::Relaxed);
        Ok(())
    }

    /// Makes leaves of the entries, from left to right; returns how many entries there are.
    fn load_leaves<K: Keys>(
        &self,
        entries: impl IntoIterator<Item = Entry>,
        keys: &K,
        children: &mut Vec<Child>,
    ) -> io::Result<u64> {
        let each = (self.leaves.room() * FILLED_TENTHS / 10).max(1) as usize;
        let mut waiting = Vec::with_capacity(each);
        let mut count = 0;
        let mut last = None;
        children.push((None, self.take_leaf()?));
        for entry in entries {
            if last.is_some_and(|last| compare(last, entry, keys).is_ge()) {
                return Err(invalid("entries are in the order of their keys, each once"));
            }
            if waiting.len() == each {
                let separator = Separator::between(waiting[each - 1], entry, keys);
                let next = self.take_leaf()?;
                let (_, leaf) = children.last().expect("the first leaf");
                self.leaves.leaf(*leaf).begin(waiting.iter(), next);
                children.push((Some(separator), next));
                waiting.clear();
            }
            waiting.push(entry);
            last = Some(entry);
            count += 1;
        }
        let (_, leaf) = children.last().expect("the first leaf");
        self.leaves.leaf(*leaf).begin(waiting.iter(), 0);
        Ok(count)
    }

    /// Builds inner nodes above these leaves, with so many threads; returns the word of the root.
    ///
    /// # Errors
    /// Those of the memory; nothing is taken then.
    pub(super) fn build_inner(&self, mut children: Vec<Child>, threads: usize) -> io::Result<u64> {
        let most = self.rows.room * FILLED_TENTHS / 10 + 1;
        let mut taken = Vec::new();
        let mut height = 0;
        while children.len() > 1 {
            let nodes = children.len().div_ceil(most as usize);
            let below = taken.len();
            for _ in 0..nodes {
                let node = self.inner.take(|_| ()).inspect_err(|_| {
                    taken.iter().for_each(|node| {
                        self.inner(*node).forget();
                        self.inner.give(*node);
                    });
                })?;
                taken.push(node);
            }
            let level = &taken[below..];
            // As even as can be: no node is left with one child.
            let part = |number| children.len() * number / nodes;
            let above = shares(nodes, threads, |numbers| {
                let fill = |number: usize| {
                    let group = &children[part(number)..part(number + 1)];
                    self.fill(level[number], group);
                    (group[0].0.clone(), level[number])
                };
                numbers.map(fill).collect::<Vec<Child>>()
            });
            children = above.into_iter().flatten().collect();
            height += 1;
        }
        Ok(children[0].1 | height << HEIGHT_SHIFT)
    }

    /// Makes this free inner node one with these children.
    fn fill(&self, node: u64, group: &[Child]) {
        let inner = self.inner(node);
        inner.begin(group[0].1);
        for (slot, (separator, child)) in (0..).zip(&group[1..]) {
            let separator = separator.clone().expect("all but the first have one");
            inner.insert(slot, separator, *child);
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
