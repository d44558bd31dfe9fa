//! What a crash leaves of a tree that is kept, and how it is taken up.
//!
//! First the logs are replayed: every change that was logged is done. Then the list of leaves is walked:
//! each is let go, and where its form has no log it is put right ([`Leaf::mend`]); the first entries give
//! the separators, from which inner nodes are built. Leaves that the list does not lead to are free: a
//! split had not linked them yet, or a merge no longer.

use super::{COMMITTED_AT, FIRST_AT, FORMAT_AT, Form, Tree, TreeOptions, build::Child};
use crate::Ground;
use crate::keys::{Entry, Keys, Separator};
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
        tree.leaves.logs.replay(&tree.leaves.arena.memory, committed)?;
        let list = tree.list(first)?;
        let children = tree.mend_all(&list, keys)?;
        let used = children.iter().map(|(_, leaf)| *leaf);
        let grown = |committed| tree.note(COMMITTED_AT, committed);
        tree.leaves.arena.keep_only(tree.leaves.reserved, used, grown)?;
        let root = tree.build_inner(children)?;
        tree.root.store(root, Ordering::Release);
        Ok(tree)
    }

    /// The leaves from left to right.
    fn list(&self, first: u64) -> io::Result<Vec<u64>> {
        let arena = &self.leaves.arena;
        let most = arena.committed() / arena.node_bytes;
        let mut list = Vec::new();
        let mut at = first;
        while at != 0 {
            let is_node = at >= self.leaves.reserved && at.is_multiple_of(arena.node_bytes);
            let is_there =
                at.checked_add(arena.node_bytes).is_some_and(|end| end <= arena.committed());
            if !is_node || !is_there || list.len() as u64 > most {
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
        let mut behind: Option<Entry> = None;
        // From right to left: what is a copy shows by what stands behind.
        for at in list.iter().rev() {
            let leaf = self.leaves.leaf(*at);
            leaf.let_go();
            match self.leaves.form {
                Form::FastFair => leaf.mend(behind, keys),
                Form::WriteAhead if !leaf.count() => {
                    return Err(damaged("a leaf has a gap between its entries"));
                }
                _ => {}
            }
            if leaf.len() == 0 && *at != list[0] {
                continue;
            }
            let next = children.last().map_or(0, |(_, at)| *at);
            if leaf.right() != next {
                leaf.link(next);
            }
            let ends = leaf.ends(keys);
            if let (Some(right), Some((before, _))) = (behind, children.last_mut()) {
                *before = Some(between(ends.map(|(_, last)| last), right, keys)?);
            }
            count += leaf.len();
            behind = ends.map(|(first, _)| first).or(behind);
            children.push((None, *at));
        }
        children.reverse();
        self.entries.store(count, Ordering::Relaxed);
        Ok(children)
    }
}

/// What stands between the last entry of a leaf, if it has one, and the first behind it.
fn between(left: Option<Entry>, right: Entry, keys: &impl Keys) -> io::Result<Separator> {
    match left {
        Some(left) if left.head > right.head => {
            Err(damaged("keys of a leaf are above those of the next"))
        }
        Some(left) => Ok(Separator::between(left, right, keys)),
        None => Ok(Separator { head: right.head, tie: None }),
    }
}
