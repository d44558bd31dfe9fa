//! Trees made from what is in order already: leaves from entries, inner nodes from leaves.

use super::Tree;
use crate::keys::{Entry, Keys, Separator, compare};
use crate::nodes::{Child, build, root_of, root_word};
use crate::shares::spread;
use std::io;
use std::sync::atomic::Ordering;
use terrace_memory::Memory;

/// Of ten places of a new node so many are filled: the next inserts find room.
const FILLED_TENTHS: u64 = 9;

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
    pub(super) fn build_inner(&self, children: Vec<Child>, threads: usize) -> io::Result<u64> {
        let (root, height) = build((&self.inner, &self.rows), children, 0, threads, &spread)?;
        Ok(root_word(root, height))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
