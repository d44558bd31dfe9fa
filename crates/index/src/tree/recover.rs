//! What a crash leaves of a tree that is kept, and how it is taken up.
//!
//! First the logs are replayed: every change that was logged is done. Then the list of leaves is walked:
//! each is let go, and where its form has no log it is put right ([`Leaf::mend`]); the first entries give
//! the separators, from which inner nodes are built. Leaves that the list does not lead to are free: a
//! split had not linked them yet, or a merge no longer.
//!
//! What is there may be damaged, and [`Keys`] knows nothing yet of what entries name. So nothing is changed
//! that no crash explains, and nothing once a key could not be told ([`Keys::could_tell`]): whoever makes
//! the tree anew instead finds at the next attempt what made it do so.

use super::head::{Entry, Keys, Separator};
use super::{COMMITTED_AT, FIRST_AT, FORMAT_AT, Form, Tree, TreeOptions, build::Child};
use crate::Ground;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_memory::{Budget, Memory};

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<L: Memory, N: Memory> Tree<L, N> {
    /// Takes up the tree that [`Tree::over`] made with the same options on the same ground for leaves,
    /// after a crash or not; the one for inner nodes may hold anything. O(leaves).
    ///
    /// # Errors
    /// Those of the grounds; [`io::ErrorKind::InvalidInput`] for a form that is not kept, and
    /// [`io::ErrorKind::InvalidData`] where there is no such tree, or no crash could have left what is
    /// there.
    pub fn recover<K: Keys>(
        options: &TreeOptions,
        leaves: Ground<L>,
        inner: Ground<N>,
        keys: &K,
        budget: &Arc<Budget>,
    ) -> io::Result<Tree<L, N>> {
        if !options.form.is_kept() {
            let what = format!("a tree of form {} is not found after a crash", options.form);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        (leaves.commit)(0, super::LINE)?;
        // SAFETY: the first line, committed.
        let [format, first, committed] =
            [FORMAT_AT, FIRST_AT, COMMITTED_AT].map(|at| unsafe { leaves.memory.load(at) });
        if format != options.format() {
            let what = format!(
                "no tree of form {} with nodes of {} bytes is there",
                options.form, options.node_bytes
            );
            return Err(damaged(&what));
        }
        if committed > leaves.memory.len() {
            return Err(damaged("more bytes are in use than there are"));
        }
        let tree = Tree::bare(options, leaves, inner, committed, budget)?;
        if !tree.leaves.logs.replay(&tree.leaves.arena.memory) {
            return Err(damaged("a log of the tree begins nowhere"));
        }
        let list = tree.list(first)?;
        let children = tree.mend_all(&list, keys)?;
        let used = children.iter().map(|(_, leaf)| *leaf).collect();
        let grown = |committed| tree.note(COMMITTED_AT, committed);
        tree.leaves.arena.keep_only(tree.leaves.reserved, &used, grown)?;
        let root = tree.build_inner(children)?;
        tree.root.store(root, Ordering::Release);
        Ok(tree)
    }

    /// The leaves from left to right.
    fn list(&self, first: u64) -> io::Result<Vec<u64>> {
        let arena = &self.leaves.arena;
        let mut met = BTreeSet::new();
        let mut list = Vec::new();
        let mut at = first;
        while at != 0 {
            let is_node = at >= self.leaves.reserved && at.is_multiple_of(arena.node_bytes);
            let is_there =
                at.checked_add(arena.node_bytes).is_some_and(|end| end <= arena.committed());
            if !is_node || !is_there || !met.insert(at) {
                return Err(damaged("leaves are linked as no tree links them"));
            }
            list.push(at);
            at = self.leaves.leaf(at).right();
        }
        match list.is_empty() {
            true => Err(damaged("a tree without a leaf")),
            false => Ok(list),
        }
    }

    /// Puts every leaf right and counts entries; returns the leaves with what stands before each. An empty
    /// one goes, but for the first.
    fn mend_all<K: Keys>(&self, list: &[u64], keys: &K) -> io::Result<Vec<Child>> {
        let mut count = 0;
        let mut children: Vec<Child> = Vec::with_capacity(list.len());
        let mut behind: Vec<(Entry, u64)> = Vec::new();
        // Of the leaf that the list leads to from here, which may be empty.
        let mut next_leaf = Vec::new();
        // From right to left: what is a copy shows by what stands behind.
        for at in list.iter().rev() {
            let leaf = self.leaves.leaf(*at);
            leaf.let_go();
            match self.leaves.form {
                Form::FastFair if !leaf.mend(&next_leaf, keys) => {
                    return Err(damaged("a leaf is as no crash leaves it"));
                }
                Form::WriteAhead if !leaf.count() => {
                    return Err(damaged("a leaf has a gap between its entries"));
                }
                Form::PersistentUnsorted if !leaf.has_slots() => {
                    return Err(damaged("a leaf has entries where it has no slots"));
                }
                _ => {}
            }
            let entries = leaf.sorted(keys);
            next_leaf.clear();
            next_leaf.extend(entries.iter().map(|(entry, _)| *entry));
            if entries.is_empty() && *at != list[0] {
                continue;
            }
            let next = children.last().map_or(0, |(_, at)| *at);
            if leaf.right() != next {
                leaf.link(next);
            }
            if let (Some((right, _)), Some((before, _))) = (behind.first(), children.last_mut()) {
                *before = Some(between(entries.last(), *right, keys)?);
            }
            if !keys.could_tell() {
                return Err(damaged("an entry names nothing that has a key"));
            }
            count += leaf.len();
            if !entries.is_empty() {
                behind = entries;
            }
            children.push((None, *at));
        }
        children.reverse();
        self.entries.store(count, Ordering::Relaxed);
        Ok(children)
    }
}

/// What stands between the last entry of a leaf, if it has one, and the first behind it.
fn between(last: Option<&(Entry, u64)>, right: Entry, keys: &impl Keys) -> io::Result<Separator> {
    match last {
        Some((last, _)) if last.head > right.head => {
            Err(damaged("keys of a leaf are above those of the next"))
        }
        Some((last, _)) => Ok(Separator::between(*last, right, keys)),
        None => Ok(Separator { head: right.head, tie: None }),
    }
}
