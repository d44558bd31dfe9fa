//! What a crash leaves of a tree that is persistent, and how it is reopened.
//!
//! First the logs are replayed: every change that was logged is done. Then the list of leaves is followed,
//! and many threads look at a part of it each: almost every leaf is as it should be, and its ends give the
//! separators, from which inner nodes are built. The few that a crash left otherwise are put right by one
//! thread ([`Leaf::mend`]). Leaves that the list does not lead to are free: a split had not linked them
//! yet, or a merge no longer.
//!
//! What is there may be damaged, and [`Keys`] knows nothing yet of what entries name. So nothing is changed
//! that no crash explains, and nothing once a key could not be told ([`Keys::could_tell`]): whoever rebuilds
//! the tree instead finds at the next attempt what made it do so.

use super::{COMMITTED_AT, FIRST_AT, FORMAT_AT, Form, Tree, TreeOptions};
use crate::Reserved;
use crate::keys::{Entry, Keys, Separator, compare};
use crate::nodes::Child;
use crate::shares::{shares, spread};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_durable::checked_word;
use terrace_memory::{Budget, Memory};

fn damaged(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("at offset {at}: {what}"))
}

/// What a leaf is that is in order, as is the one behind it.
struct Looked {
    entries: u64,
    first: Entry,
    /// Between it and the one behind it, if there is one.
    behind: Option<Separator>,
}

/// The leaves from left to right, and where their region begins: for the places in errors.
struct List {
    leaves: Vec<u64>,
    start: u64,
}

impl<L: Memory, N: Memory> Tree<L, N> {
    /// Reopens the tree that [`Tree::over`] made with the same options on the same region for leaves,
    /// after a crash or not, with so many threads; the region for inner nodes may hold anything.
    /// O(entries).
    ///
    /// # Errors
    /// Those of the regions; [`io::ErrorKind::InvalidInput`] for a form that is not persistent, and
    /// [`io::ErrorKind::InvalidData`], with the place, where there is no such tree, or no crash could have
    /// left what is there.
    pub fn recover<K: Keys + Sync>(
        options: &TreeOptions,
        leaves: Reserved<L>,
        inner: Reserved<N>,
        keys: &K,
        threads: usize,
        budget: &Arc<Budget>,
    ) -> io::Result<Tree<L, N>> {
        if !options.form.is_persistent() {
            let what = format!("a tree of form {} is not found after a crash", options.form);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let start = leaves.start;
        (leaves.commit)(0, super::LINE)?;
        // SAFETY: the first line, committed.
        let [format, first, committed] =
            [FORMAT_AT, FIRST_AT, COMMITTED_AT].map(|at| unsafe { leaves.memory.load(at) });
        if format != options.format() {
            let what = format!(
                "no tree of form {} with nodes of {} bytes is there",
                options.form, options.node_bytes
            );
            return Err(damaged(start + FORMAT_AT, &what));
        }
        if committed > leaves.memory.len() {
            return Err(damaged(start + COMMITTED_AT, "more bytes are in use than there are"));
        }
        if !checked_word::is_intact(first, FIRST_AT) {
            return Err(damaged(start + FIRST_AT, "the word of the first leaf is not whole"));
        }
        let tree = Tree::bare(options, leaves, inner, committed, budget)?;
        tree.leaves.logs.replay(&tree.leaves.arena.memory, start, committed)?;
        let list = List { leaves: tree.list(start, checked_word::low(first))?, start };
        let looked = tree.look_at_all(&list, keys, threads)?;
        let children = tree.mend_all(&list, looked, keys)?;
        let used = children.iter().map(|(_, leaf)| *leaf);
        let grown = |committed| tree.note(COMMITTED_AT, committed);
        tree.leaves.arena.keep_only(tree.leaves.reserved, used, grown)?;
        let root = tree.build_inner(children, threads)?;
        tree.root.store(root, Ordering::Release);
        Ok(tree)
    }

    /// The leaves from left to right.
    fn list(&self, start: u64, first: u64) -> io::Result<Vec<u64>> {
        let arena = &self.leaves.arena;
        let most = arena.committed() / arena.node_bytes;
        let mut list: Vec<u64> = Vec::new();
        let mut at = first;
        loop {
            let is_node = at >= self.leaves.reserved && at.is_multiple_of(arena.node_bytes);
            let is_there =
                at.checked_add(arena.node_bytes).is_some_and(|end| end <= arena.committed());
            if !is_node || !is_there || list.len() as u64 > most {
                let from = list.last().map_or(FIRST_AT, |leaf| leaf + super::RIGHT);
                return Err(damaged(start + from, "leaves are linked as no tree links them"));
            }
            list.push(at);
            let leaf = self.leaves.leaf(at);
            if !leaf.has_link() {
                let what = "the word of a leaf's neighbour is not whole";
                return Err(damaged(start + at + super::RIGHT, what));
            }
            at = leaf.right();
            if at == 0 {
                return Ok(list);
            }
            self.leaves.prefetch_header(at);
        }
    }

    /// Looks at every leaf and counts its entries; none for one that has to be put right, or stands before
    /// one, or is empty. Nothing is changed but what is for readers alone.
    fn look_at_all<K: Keys + Sync>(
        &self,
        list: &List,
        keys: &K,
        threads: usize,
    ) -> io::Result<Vec<Option<Looked>>> {
        let parts =
            shares(list.leaves.len(), threads, &spread, |part| self.look_at_part(list, part, keys));
        let mut looked = Vec::with_capacity(list.leaves.len());
        for part in parts {
            looked.extend(part?);
        }
        match keys.could_tell() {
            true => Ok(looked),
            false => Err(unnamed(list.start)),
        }
    }

    fn look_at_part<K: Keys>(
        &self,
        list: &List,
        part: Range<usize>,
        keys: &K,
    ) -> io::Result<Vec<Option<Looked>>> {
        let mut looked = Vec::with_capacity(part.len());
        let mut next = list.leaves.get(part.end).map(|at| self.leaves.leaf(*at).ends(keys));
        for at in list.leaves[part].iter().rev() {
            let leaf = self.leaves.leaf(*at);
            leaf.let_go();
            if let Some(what) = leaf.damage() {
                return Err(damaged(list.start + at, what));
            }
            let ends = leaf.ends(keys);
            looked.push(match (ends, next) {
                (Some((first, _)), None) => {
                    Some(Looked { entries: leaf.len(), first, behind: None })
                }
                (Some((first, last)), Some(Some((right, _))))
                    if compare(last, right, keys).is_lt() =>
                {
                    let behind = Some(Separator::between(last, right, keys));
                    Some(Looked { entries: leaf.len(), first, behind })
                }
                _ => None,
            });
            next = Some(ends);
        }
        looked.reverse();
        Ok(looked)
    }

    /// Puts right what has to be, and counts entries; returns the leaves with what stands before each. An
    /// empty one goes, but for the first.
    fn mend_all<K: Keys>(
        &self,
        list: &List,
        looked: Vec<Option<Looked>>,
        keys: &K,
    ) -> io::Result<Vec<Child>> {
        let mut count = 0;
        let mut children: Vec<Child> = Vec::with_capacity(looked.len());
        let mut first: Option<Entry> = None;
        // Whether the leaf that the list leads to from here begins as it did when it was looked at.
        let mut is_as_looked = true;
        // From right to left: what is a copy shows by what stands behind.
        for (number, (at, looked)) in list.leaves.iter().zip(looked).enumerate().rev() {
            if let Some(looked) = looked.filter(|_| is_as_looked) {
                if let Some((before, _)) = children.last_mut() {
                    *before = looked.behind;
                }
                count += looked.entries;
                first = Some(looked.first);
                children.push((None, *at));
                continue;
            }
            let leaf = self.leaves.leaf(*at);
            let ends = leaf.ends(keys);
            let entries = self.mend(list, number, keys)?;
            is_as_looked = ends.is_some_and(|(first, _)| entries.first() == Some(&first));
            if entries.is_empty() && number > 0 {
                continue;
            }
            let right = children.last().map_or(0, |(_, at)| *at);
            if leaf.right() != right {
                leaf.link(right);
            }
            if let (Some(first), Some((before, _))) = (first, children.last_mut()) {
                let between = between(entries.last(), first, keys);
                let what = "keys of a leaf are above those of the next";
                *before = Some(between.ok_or_else(|| damaged(list.start + at, what))?);
            }
            if !keys.could_tell() {
                return Err(unnamed(list.start + at));
            }
            count += leaf.len();
            first = entries.first().copied().or(first);
            children.push((None, *at));
        }
        children.reverse();
        self.entries.store(count, Ordering::Relaxed);
        Ok(children)
    }

    /// Puts a leaf of the list right, where the one behind it is; returns its entries in order.
    fn mend<K: Keys>(&self, list: &List, number: usize, keys: &K) -> io::Result<Vec<Entry>> {
        let leaf = self.leaves.leaf(list.leaves[number]);
        let mut behind = Vec::new();
        if let Some(right) = list.leaves.get(number + 1) {
            self.leaves.leaf(*right).copy(&mut behind);
        }
        if self.leaves.form == Form::FastFair && !leaf.mend(&behind, keys) {
            return Err(damaged(list.start + leaf.at, "a leaf is as no crash leaves it"));
        }
        Ok(leaf.sorted(keys).into_iter().map(|(entry, _)| entry).collect())
    }
}

/// What stands between the last entry of a leaf, if it has one, and the first behind it; none if that is
/// not behind it.
fn between(last: Option<&Entry>, right: Entry, keys: &impl Keys) -> Option<Separator> {
    match last {
        Some(last) if last.head > right.head => None,
        Some(last) => Some(Separator::between(*last, right, keys)),
        None => Some(Separator { head: right.head, tie: None }),
    }
}

fn unnamed(at: u64) -> io::Error {
    damaged(at, "an entry of the tree names nothing that has a key")
}
