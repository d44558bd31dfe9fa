//! A concurrent B+-tree whose nodes lie in memories: one tree, five forms of leaves (Ni, chapter 5).
//!
//! A leaf holds entries of 32 bytes: the *head* of a key, 16 bytes that order most keys, and a value of
//! 16 bytes, say the location of an item; where heads tie the tree asks [`Keys`] for the rest. Inner
//! nodes hold separators, which do not depend on entries that may go. Leaves are a list from left to
//! right. Leaves lie in one memory and inner nodes in another, or another part of it: what is to be found
//! after a crash is the leaves alone, and inner nodes are rebuilt from them ([`Tree::recover`]).
//!
//! # Why a reader without a latch is right
//! Every node has a version, odd while a writer has the node, and greater after each change; it never
//! goes back, even when the node is freed and used again. A reader
//! * reads the version of a node, if it is even, *then* makes sure that the node above, or the one to
//!   the left, still is as it was when it led here: at that moment this was the node in charge of the
//!   key, with this version;
//! * reads what it needs, then makes sure of the version: all of it was there at that moment.
//!
//! If either fails, it begins again. So a reader needs no epoch for nodes: what it reads of a node that
//! was used again is thrown away, and so is what it reads where the memory of nodes was given back. Values are
//! shown to [`Keys`] only behind the second look; that what they name can be read until the caller
//! is done is the caller's business.
//!
//! # Writers
//! A writer goes down like a reader and latches the leaf if its version is still the one it saw. A split
//! or merge latches the node above first, in the same way, then the node, then its right neighbour under
//! the same one; nobody who has a node waits for one above it or to the left. Room for an entry is made
//! before the caller is asked what to do, so what it does is never in vain.
//!
//! # Durability
//! Of the forms that are persistent ([`Form::is_persistent`]) a change is durable when the leaf is let go, and readers
//! wait for that: what one was told survives. How, and what a crash may leave, is said where the forms
//! differ, in `change.rs` and `log.rs`.
//!
//! # Cost
//! A lookup reads a line or two of each inner node and up to all of one leaf, whose lines are asked for
//! together. Long keys that share their first 15 bytes cost a look at an item for each comparison.

mod batch;
mod build;
mod change;
mod descend;
mod grouping;
mod leaf;
mod log;
mod pack;
mod range;
mod recover;
mod structure;

use crate::keys::Probe;
pub use crate::keys::{Change, Direction, Entry, Keys, Sixteen, head_of};
use crate::latch::Latch;
use crate::nodes::{Arena, Rows, root_of};
use crate::{COMMIT_BYTES, FIRST_COMMIT_BYTES, Reserved};
use crossbeam_utils::CachePadded;
pub use descend::Watch;
pub use grouping::GroupFlush;
use grouping::Grouping;
use leaf::{Leaf, Leaves};
use log::Logs;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_durable::BucketLock;
use terrace_durable::checked_word;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Backing, Budget, Memory, Native};

/// Words of a leaf.
const WHICH: u64 = 8;
const RIGHT: u64 = 16;
/// Words of the first line of the memory of leaves: what they are, the leftmost, bytes committed.
const FORMAT_AT: u64 = 8;
const FIRST_AT: u64 = 16;
const COMMITTED_AT: u64 = 24;

/// What leaves look like, and how they are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Sorted; gone after a crash.
    Sorted,
    /// The same with the first words of all heads in a row, which is all that a search reads of a leaf but
    /// for one entry: for memory that is read a line at a time. Not for group flushing.
    #[default]
    Rows,
    /// A bitmap of valid slots: inserts move nothing, ranges sort. Gone after a crash.
    Unsorted,
    /// Sorted and persistent; every change goes to a log first.
    WriteAhead,
    /// Sorted and persistent without a log, by ordered stores (FAST/FAIR).
    FastFair,
    /// Unsorted and persistent: the bitmap is changed as one word; splits and merges go to a log first.
    PersistentUnsorted,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 6] = [
        Form::Sorted,
        Form::Unsorted,
        Form::WriteAhead,
        Form::FastFair,
        Form::PersistentUnsorted,
        Form::Rows,
    ];

    /// What it is called in settings.
    pub fn name(self) -> &'static str {
        match self {
            Form::Sorted => "btree",
            Form::Rows => "btree-rows",
            Form::Unsorted => "unsorted",
            Form::WriteAhead => "btree-wal",
            Form::FastFair => "fast-fair",
            Form::PersistentUnsorted => "persistent-unsorted",
        }
    }

    /// Whether entries of a leaf lie in order.
    #[inline(always)]
    pub fn is_sorted(self) -> bool {
        !matches!(self, Form::Unsorted | Form::PersistentUnsorted)
    }

    /// Whether its leaves are to be found after a crash.
    #[inline(always)]
    pub fn is_persistent(self) -> bool {
        !matches!(self, Form::Sorted | Form::Rows | Form::Unsorted)
    }

    fn has_logs(self) -> bool {
        matches!(self, Form::WriteAhead | Form::PersistentUnsorted)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = String;
    fn from_str(name: &str) -> Result<Form, String> {
        let names = Form::ALL.map(Form::name).join(", ");
        let known = Form::ALL.into_iter().find(|form| form.name() == name);
        known.ok_or_else(|| format!("\"{name}\" is no form of tree; there are {names}"))
    }
}

/// How a tree is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// Of its leaves.
    pub form: Form,
    /// Bytes of a leaf: a power of two from 128 to 4096, to 2048 where leaves have a bitmap.
    pub node_bytes: u64,
    /// Bytes of an inner node: a power of two from 128 to 4096.
    pub inner_bytes: u64,
    /// Whether the lines that a change dirtied are asked to be written back together, where they need not be:
    /// of forms whose entries move and are not persistent.
    pub group_flush: GroupFlush,
}

impl Default for TreeOptions {
    fn default() -> TreeOptions {
        TreeOptions::of(Form::Rows, 1024)
    }
}

impl TreeOptions {
    /// Of this form, with all nodes of this size: the trees of Ni.
    pub fn of(form: Form, node_bytes: u64) -> TreeOptions {
        TreeOptions { form, node_bytes, inner_bytes: node_bytes, group_flush: GroupFlush::Never }
    }

    /// Whether a tree can be like this.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`], naming what cannot be and what can.
    pub fn check(&self) -> io::Result<()> {
        let most = if self.form.is_sorted() { 4096 } else { 2048 };
        let sizes =
            [("node_bytes", self.node_bytes, most), ("inner_bytes", self.inner_bytes, 4096)];
        let is_fine = |bytes: u64, most| bytes.is_power_of_two() && (128..=most).contains(&bytes);
        match sizes.into_iter().find(|(_, bytes, most)| !is_fine(*bytes, *most)) {
            None => Ok(()),
            Some((name, bytes, most)) => {
                let what = format!(
                    "{name} = {bytes}: a tree of form {} has 128 to {most}, a power of two",
                    self.form
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// What the first line says of leaves like this: "tree", the number of the form, that of the bytes.
    fn format(&self) -> u64 {
        let form = Form::ALL.iter().position(|form| *form == self.form).expect("a form of all");
        let form = (form as u64) << 32 | u64::from(self.node_bytes.ilog2()) << 40;
        checked_word::with_check(u64::from_le_bytes(*b"tree\0\0\0\0") | form, FORMAT_AT)
    }

    /// Form and bytes of a node of leaves with such a word in their first line, if it is one.
    fn of_format(word: u64) -> Option<(Form, u64)> {
        let form = *Form::ALL.get((word >> 32) as u8 as usize)?;
        let node_bytes = 1u64.checked_shl(((word >> 40) as u8).into())?;
        let options = TreeOptions::of(form, node_bytes);
        (options.check().is_ok() && options.format() == word).then_some((form, node_bytes))
    }
}

/// Sizes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries.
    pub entries: u64,
    /// Leaves in use.
    pub leaves: u64,
    /// Inner nodes in use.
    pub inner: u64,
    /// Levels of inner nodes.
    pub height: u64,
    /// Bytes of memory committed.
    pub bytes: u64,
}

/// The tree: leaves in `L`, inner nodes in `N`.
pub struct Tree<L: Memory = Native, N: Memory = L> {
    /// The node at the top and how many levels are below it (`root_word`). Changed only by
    /// whoever has that node.
    root: CachePadded<AtomicU64>,
    leaves: Leaves<L>,
    inner: Arena<N>,
    rows: Rows,
    entries: CachePadded<AtomicU64>,
    /// Held while memory is given back.
    packing: Mutex<()>,
}

impl<L: Memory, N: Memory> fmt::Debug for Tree<L, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("form", &self.leaves.form).finish_non_exhaustive()
    }
}

impl Tree {
    /// An empty tree in DRAM that may hold about `capacity` entries. Memory is taken from `budget` as it
    /// grows.
    ///
    /// # Errors
    /// The kernel's, when it has no address space or memory for it; [`io::ErrorKind::InvalidInput`] for
    /// options no tree can have.
    pub fn new(options: &TreeOptions, capacity: u64, budget: &Arc<Budget>) -> io::Result<Tree> {
        Tree::on_node(options, capacity, None, budget)
    }

    /// As [`Tree::new`], with its memory from one NUMA node.
    ///
    /// # Errors
    /// The errors of [`Tree::new`]; the kernel's, when it does not bind memory to the node.
    pub fn on_node(
        options: &TreeOptions,
        capacity: u64,
        node: Option<u32>,
        budget: &Arc<Budget>,
    ) -> io::Result<Tree> {
        // Address space alone: leaves that can neither be merged nor are full are a third full.
        let bytes = (capacity.max(1 << 16) * leaf::ENTRY * 4).next_multiple_of(COMMIT_BYTES);
        let region = || Reserved::reserve_to_release(bytes, Backing::HugePages, node);
        let ((leaves, release_leaves), (inner, release_inner)) = (region()?, region()?);
        let mut tree = Tree::over(options, leaves, inner, budget)?;
        if !options.form.is_persistent() {
            tree.leaves.arena.releasing_by(release_leaves);
        }
        tree.inner.releasing_by(release_inner);
        Ok(tree)
    }
}

/// What leaves that are persistent say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLeaves {
    /// Their form and the bytes of each, if that is legible.
    pub form: Option<(Form, u64)>,
    /// Bytes in use of their region; as they say, which may be anything.
    pub bytes: u64,
}

/// Reads what leaves that are persistent on this region say of themselves.
///
/// # Errors
/// Those of the region.
pub fn found_leaves<L: Memory>(leaves: &Reserved<L>) -> io::Result<FoundLeaves> {
    (leaves.commit)(0, LINE)?;
    // SAFETY: words of the first line, committed.
    let [format, bytes] = [FORMAT_AT, COMMITTED_AT].map(|at| unsafe { leaves.memory.load(at) });
    Ok(FoundLeaves { form: TreeOptions::of_format(format), bytes })
}

impl<L: Memory, N: Memory> Tree<L, N> {
    /// An empty tree on given regions for its leaves and inner nodes, both of them zero. The bytes it
    /// takes there are counted in `budget`. A tree of a form that is persistent is found there again
    /// ([`Tree::recover`]).
    ///
    /// # Errors
    /// Those of the regions; [`io::ErrorKind::InvalidInput`] for options no tree can have.
    pub fn over(
        options: &TreeOptions,
        leaves: Reserved<L>,
        inner: Reserved<N>,
        budget: &Arc<Budget>,
    ) -> io::Result<Tree<L, N>> {
        let tree = Tree::bare(options, leaves, inner, FIRST_COMMIT_BYTES, budget)?;
        let first = tree.take_leaf()?;
        tree.leaves.leaf(first).begin([].iter(), 0);
        tree.note(COMMITTED_AT, tree.leaves.arena.committed());
        tree.note_first(first);
        // Last: from here on there is a tree.
        tree.note(FORMAT_AT, options.format());
        tree.root.store(first, Ordering::Release);
        Ok(tree)
    }

    /// A tree without a root yet.
    fn bare(
        options: &TreeOptions,
        leaves: Reserved<L>,
        inner: Reserved<N>,
        committed: u64,
        budget: &Arc<Budget>,
    ) -> io::Result<Tree<L, N>> {
        options.check()?;
        let TreeOptions { form, node_bytes, inner_bytes, group_flush } = *options;
        let is_grouped = !form.is_persistent() && form != Form::Rows;
        let logs = if form.has_logs() { Logs::new(LINE, node_bytes) } else { Logs::none() };
        let reserved = logs.end().max(LINE);
        let arena = Arena::new(leaves, node_bytes, reserved, committed, budget)?;
        Ok(Tree {
            root: CachePadded::new(AtomicU64::new(0)),
            leaves: Leaves {
                arena,
                form,
                grouping: Grouping::new(if is_grouped { group_flush } else { GroupFlush::Never }),
                reserved,
                logs,
            },
            rows: Rows::of(inner_bytes),
            inner: Arena::new(inner, inner_bytes, LINE, FIRST_COMMIT_BYTES, budget)?,
            entries: CachePadded::new(AtomicU64::new(0)),
            packing: Mutex::new(()),
        })
    }

    /// This leaf is the leftmost.
    fn note_first(&self, leaf: u64) {
        self.note(FIRST_AT, checked_word::with_check(leaf, FIRST_AT));
    }

    fn take_leaf(&self) -> io::Result<u64> {
        self.leaves.arena.take(|committed| self.note(COMMITTED_AT, committed))
    }

    /// Stores a word of the first line of the memory of leaves; durably, if they are persistent.
    fn note(&self, at: u64, word: u64) {
        if self.leaves.form.is_persistent() {
            // SAFETY: the first line, committed; of each word one caller at a time.
            unsafe {
                self.leaves.arena.memory.store(at, word);
                self.leaves.arena.memory.persist(at, 8);
            }
        }
    }

    /// The value of `key`. Takes no latch.
    #[inline]
    pub fn get<K: Keys>(&self, key: &[u8], keys: &K) -> Option<[u64; 2]> {
        self.find(&Probe::of(key, keys))
    }

    /// Whether `value` is the key's. Takes no latch.
    pub fn holds<K: Keys>(&self, key: &[u8], value: [u64; 2], keys: &K) -> bool {
        self.get(key, keys) == Some(value)
    }

    /// Runs `f` on the current value of `key` while no other writer can change it, and does what `f` says,
    /// durably if the tree is persistent. Returns the value before. `f` must not touch this tree.
    ///
    /// # Errors
    /// Those of the memory, when the tree needs a node more; `f` has not run then.
    pub fn update<K: Keys>(
        &self,
        key: &[u8],
        keys: &K,
        f: impl FnOnce(Option<[u64; 2]>) -> Change,
    ) -> io::Result<Option<[u64; 2]>> {
        self.update_then(key, keys, |value, _| (f(value), ()), |()| ())
    }

    /// As [`Tree::update`]; passes on to `then` what `f` gave beside, once the change is done and still
    /// alone.
    ///
    /// # Errors
    /// The errors of [`Tree::update`].
    pub fn update_then<K: Keys, T>(
        &self,
        key: &[u8],
        keys: &K,
        f: impl FnOnce(Option<[u64; 2]>, &BucketLock) -> (Change, T),
        then: impl FnOnce(T),
    ) -> io::Result<Option<[u64; 2]>> {
        let probe = Probe::of(key, keys);
        loop {
            let (latch, found) = self.latch_leaf(&probe);
            let leaf = self.leaves.leaf(latch.at);
            if found.value.is_none() && leaf.len() >= self.leaves.room() {
                // Before anything is changed: what `f` does cannot be taken back.
                drop(latch);
                self.make_room(&probe, 0)?;
                continue;
            }
            // SAFETY: the leaf is latched.
            let (change, rest) = f(found.value, &unsafe { BucketLock::held() });
            match (change, found.value) {
                (Change::Set(value), None) => {
                    debug_assert!(value[0] != 0, "a value's first word is not zero");
                    latch.change();
                    leaf.insert(found.slot, Entry { head: probe.head, value });
                    self.entries.fetch_add(1, Ordering::Relaxed);
                }
                (change, Some(_)) => self.change(&latch, found.slot, change),
                (_, None) => {}
            }
            then(rest);
            let is_thin = change == Change::Remove && self.is_thin_leaf(&leaf);
            drop(latch);
            if is_thin {
                self.merge_up(&probe);
            }
            return Ok(found.value);
        }
    }

    /// As [`Tree::update_then`], for a key whose value is exactly `value`; `f` runs only if it still is.
    /// Returns whether it was: the compare-and-swap redirect of a collector. Needs no memory.
    pub fn update_at<K: Keys>(
        &self,
        key: &[u8],
        value: [u64; 2],
        keys: &K,
        f: impl FnOnce(&BucketLock) -> Change,
    ) -> bool {
        let probe = Probe::of(key, keys);
        let (latch, found) = self.latch_leaf(&probe);
        if found.value != Some(value) {
            return false;
        }
        // SAFETY: the leaf is latched.
        let change = f(&unsafe { BucketLock::held() });
        self.change(&latch, found.slot, change);
        let is_thin = change == Change::Remove && self.is_thin_leaf(&self.leaves.leaf(latch.at));
        drop(latch);
        if is_thin {
            self.merge_up(&probe);
        }
        true
    }

    /// Runs `f` on the current value of `key`, if it has one, while no writer can change it.
    pub fn look<K: Keys, R>(
        &self,
        key: &[u8],
        keys: &K,
        f: impl FnOnce([u64; 2]) -> R,
    ) -> Option<R> {
        let (_latch, found) = self.latch_leaf(&Probe::of(key, keys));
        found.value.map(f)
    }

    /// Does to the entry in `slot` of the latched leaf what `change` says.
    fn change(&self, latch: &Latch<'_, L>, slot: u64, change: Change) {
        let leaf = Leaf { leaves: &self.leaves, at: latch.at };
        if change != Change::Keep {
            latch.change();
        }
        match change {
            Change::Keep | Change::Overwritten => {}
            Change::Set(value) => leaf.replace(slot, value),
            Change::Remove => {
                leaf.remove(slot);
                self.entries.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Visits all entries, leaf by leaf from the left, without a look at what they name where their form is
    /// sorted; `visit` also hears where the leaf lies. Nobody writes meanwhile.
    pub fn walk<K: Keys>(&self, keys: &K, mut visit: impl FnMut(&Entry, u64)) {
        let (mut at, height) = root_of(self.root.load(Ordering::Acquire));
        for _ in 0..height {
            at = self.inner(at).child(0);
        }
        while at != 0 {
            let leaf = self.leaves.leaf(at);
            self.leaves.prefetch(leaf.right(), L::prefetch);
            leaf.sorted(keys).iter().for_each(|(entry, _)| visit(entry, at));
            at = leaf.right();
        }
    }

    /// The form of its leaves, and bytes of each.
    pub fn form(&self) -> (Form, u64) {
        (self.leaves.form, self.leaves.arena.node_bytes)
    }

    /// Tells the tree that so much time went by since this was told before: [`GroupFlush::Above`] follows it.
    /// Returns whether the lines of a change are written back together from here on.
    pub fn went_by(&self, time: Duration) -> bool {
        self.leaves.grouping.went_by(time)
    }

    /// When the lines of a change are written back together, and whether they are now.
    pub fn group_flush(&self) -> (GroupFlush, bool) {
        self.leaves.grouping.state()
    }

    /// Bytes of the leaves' region in use.
    pub fn leaf_bytes(&self) -> u64 {
        self.leaves.arena.committed()
    }

    /// Entries in the tree.
    pub fn len(&self) -> u64 {
        // An entry may be removed by whoever found it before the tree was cleared.
        (self.entries.load(Ordering::Relaxed) as i64).max(0) as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sizes.
    pub fn stats(&self) -> Stats {
        Stats {
            entries: self.len(),
            leaves: self.leaves.arena.used(self.leaves.reserved),
            inner: self.inner.used(LINE),
            height: root_of(self.root.load(Ordering::Relaxed)).1,
            bytes: self.leaves.arena.committed() + self.inner.committed(),
        }
    }
}

#[cfg(test)]
mod tests;
