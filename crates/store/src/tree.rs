//! The tree of an ordered map: its form, in DRAM or kept, and what is made of one that a crash left.
//!
//! # What is durable when
//! A change of a kept tree is durable before its leaf is let go (each form says how), and readers wait for
//! that. So the order of a write is that of the hash index: the new item, its entry, the end of the old
//! item; for a deletion in slabs the item, then its entry. An entry that is given another location changes
//! by one word, since the rest of it follows from the key.
//!
//! # What a crash, or damage, leaves
//! [`Tree::recover`] builds inner nodes, and where keys tie in their first 16 bytes it asks items that
//! nobody has verified yet: [`Claimed`] tells their keys if there is anything to tell, and nothing is
//! changed any more once there is not. Then each entry's item is verified, and that it is the key's which
//! the entry stands for, and comes behind the one before ([`InOrder`]): so a lookup finds it. If anything
//! of that fails the tree is made anew from the values.

use crate::engine::{Stored, behind_head, first_16};
use crate::error::{Error, Result};
use crate::index::Index;
use crate::kept::leaves;
use crate::open::Opening;
use crate::options::{Kind, MapOptions, Persist};
use std::cell::Cell;
use std::cmp::Ordering;
use std::io::{self, ErrorKind};
use terrace_durable::IndexFile;
use terrace_index::Ground;
use terrace_index::tree::{Entry, Form, Keys, Tree, TreeOptions, bytes_of_leaves};
use terrace_memory::{Divide, Memory, Native};

/// Bytes of a leaf, and of every inner node in DRAM.
const NODE_BYTES: u64 = 1024;
const KEPT_NODE_BYTES: u64 = 512;
/// Inner nodes, 1 KiB for dozens of leaves that are a third full at the least, take less than their leaves.
const INNER_STEP: u64 = 2 << 20;

/// The options with what follows from the form of tree that was asked for.
///
/// # Errors
/// [`Error::Option`] if there is no map like this.
pub(crate) fn settled(options: MapOptions) -> Result<MapOptions> {
    let refused = |field, why: String| Err(Error::Option { field, why });
    let MapOptions { kind, persist, tree, node_bytes, .. } = options;
    if kind == Kind::Hash {
        return match (tree, node_bytes) {
            (None, None) => Ok(options),
            (Some(form), _) => refused(
                "index",
                format!("\"{form}\" is a tree, for kind = \"ordered\"; leave it out, or \"auto\""),
            ),
            (None, Some(_)) => {
                refused("node_bytes", "only kind = \"ordered\" has nodes; leave it out".into())
            }
        };
    }
    let persist = match (persist, tree) {
        (Persist::Full, _) => {
            let why = "an ordered map keeps its index word by word, and has no sections over it; use \
                       persist = \"index\" or \"values\", or kind = \"hash\"";
            return refused("persist", why.into());
        }
        (Persist::Index, Some(form)) if !form.is_kept() => {
            let why = format!(
                "\"{form}\" is gone after a crash; with persist = \"index\" there are {}, and auto",
                names(Form::is_kept)
            );
            return refused("index", why);
        }
        (Persist::Values, Some(form)) if form.is_kept() => {
            let why = format!(
                "\"{form}\" is for persist = \"index\"; with persist = \"values\" there are {}, and auto",
                names(|form| !form.is_kept())
            );
            return refused("index", why);
        }
        (Persist::Auto, Some(form)) if form.is_kept() => Persist::Index,
        (Persist::Auto, Some(_)) => Persist::Values,
        (persist, _) => persist,
    };
    for is_kept in [false, true] {
        let possible = tree.is_none_or(|form| form.is_kept() == is_kept);
        if possible && let Err(error) = tree_options(tree, node_bytes, is_kept).check() {
            return refused("node_bytes", error.to_string());
        }
    }
    Ok(MapOptions { persist, ..options })
}

fn names(which: impl Fn(Form) -> bool) -> String {
    let names = Form::ALL.into_iter().filter(|form| which(*form)).map(Form::name);
    names.collect::<Vec<_>>().join(", ")
}

fn tree_options(tree: Option<Form>, node_bytes: Option<u64>, is_kept: bool) -> TreeOptions {
    let (form, usual) = match is_kept {
        true => (Form::FastFair, KEPT_NODE_BYTES),
        false => (Form::Rows, NODE_BYTES),
    };
    // With salvage the index is in DRAM whatever was asked for.
    let form = tree.filter(|form| form.is_kept() == is_kept).unwrap_or(form);
    let options = TreeOptions::of(form, node_bytes.unwrap_or(usual));
    TreeOptions { inner_bytes: NODE_BYTES, ..options }
}

impl Opening<'_> {
    pub fn is_ordered(&self) -> bool {
        self.options.kind == Kind::Ordered
    }

    fn tree_options(&self, is_kept: bool) -> TreeOptions {
        tree_options(self.options.tree, self.options.node_bytes, is_kept)
    }

    /// An empty tree in DRAM.
    pub fn tree_in_dram(&self, capacity: u64) -> io::Result<Index<Native>> {
        Tree::new(&self.tree_options(false), capacity, self.budget).map(Index::Ordered)
    }

    /// An empty tree whose leaves are kept in the file.
    pub fn tree_kept<I: Divide>(&self, file: &IndexFile<I>) -> io::Result<Index<I>> {
        let leaves = leaves(file);
        let inner = inner(&leaves)?;
        Tree::over(&self.tree_options(true), leaves, inner, self.budget).map(Index::Ordered)
    }

    /// The tree whose leaves are in the file, if `is_intact` says so of what is in use of that.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is not, or there is none that a crash could have left; nothing was
    /// changed that no crash explains.
    pub fn tree_found<M: Memory, I: Divide>(
        &self,
        values: &Stored<M>,
        file: &IndexFile<I>,
        is_intact: impl FnOnce(&[(u64, u64)]) -> io::Result<bool>,
    ) -> io::Result<Index<I>> {
        let leaves = leaves(file);
        let bytes = bytes_of_leaves(&leaves)?;
        let in_file = file.file_bytes().map_err(io::Error::other)?.saturating_sub(leaves.start);
        if bytes > in_file {
            return Err(io::Error::new(ErrorKind::InvalidData, "leaves end behind the file"));
        }
        if !is_intact(&[(leaves.start, bytes)])? {
            let what = "the index is not as it was closed";
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let inner = inner(&leaves)?;
        let options = self.tree_options(true);
        Tree::recover(&options, leaves, inner, &Claimed::of(values), self.budget)
            .map(Index::Ordered)
    }
}

/// Room in DRAM for inner nodes above such leaves.
fn inner<I: Memory>(leaves: &Ground<I>) -> io::Result<Ground<Native>> {
    Ground::in_dram(leaves.memory.len().next_multiple_of(INNER_STEP))
}

/// The keys of items that nobody has verified yet. What has no key has the empty one: every entry has one
/// place in the order.
pub(crate) struct Claimed<'v, M: Memory> {
    values: &'v Stored<M>,
    file_bytes: u64,
    could_tell: Cell<bool>,
}

impl<'v, M: Memory> Claimed<'v, M> {
    pub fn of(values: &'v Stored<M>) -> Claimed<'v, M> {
        let file_bytes = values.medium().file_bytes().unwrap_or(0);
        Claimed { values, file_bytes, could_tell: Cell::new(true) }
    }

    fn key_at(&self, location: u64) -> &'v [u8] {
        match self.values.claimed_item(location, self.file_bytes) {
            Some(item) => item.key,
            None => {
                self.could_tell.set(false);
                &[]
            }
        }
    }
}

impl<M: Memory> Keys for Claimed<'_, M> {
    fn head(&self, key: &[u8]) -> u128 {
        first_16(key)
    }

    fn is_whole(&self, _: u128) -> bool {
        false
    }

    fn compare(&self, value: [u64; 2], key: &[u8]) -> Ordering {
        self.key_at(value[0]).cmp(key)
    }

    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        into.extend_from_slice(self.key_at(value[0]));
    }

    fn could_tell(&self) -> bool {
        self.could_tell.get()
    }
}

/// Entries of a tree as a walk comes to them, each behind the one before.
#[derive(Default)]
pub(crate) struct InOrder {
    entry: Entry,
    last: Option<Vec<u8>>,
}

impl InOrder {
    pub fn come_to(&mut self, entry: Entry) {
        self.entry = entry;
    }

    /// Whether the entry stands for this key, and where it is looked for.
    pub fn is_of(&mut self, key: &[u8]) -> bool {
        let is_its = self.entry.head == first_16(key) && self.entry.value[1] == behind_head(key);
        let is_behind = self.last.as_deref().is_none_or(|last| last < key);
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        is_its && is_behind
    }
}
