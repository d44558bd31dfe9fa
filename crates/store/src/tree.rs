//! The index of an ordered map: its form, in DRAM or kept, and what is made of one that a crash left.
//!
//! # What is durable when
//! A change of a kept index is durable before its leaf is let go (each form says how), and readers wait for
//! that. So the order of a write is that of the hash index: the new item, its entry, the end of the old
//! item; for a deletion in slabs the item, then its entry. An entry that is given another location changes
//! by one word, since the rest of it follows from the key.
//!
//! # What a crash, or damage, leaves
//! [`Tree::recover`], or [`Deltas::recover`], builds inner nodes, and where keys tie in their first 16 bytes it asks
//! items that nobody has verified yet: [`Claimed`] tells their keys if there is anything to tell, and nothing is
//! changed any more once there is not. Then each entry's item is verified, and that it is the key's which
//! the entry stands for, and comes behind the one before ([`InOrder`]): so a lookup finds it. If anything
//! of that fails the index is made anew from the values. Words that no walk could verify, since an older
//! state of them would do as well, have a sum: links, bitmaps, locations ([`checked_word`]); in logs all
//! records have one.

use crate::advice::{Advised, advised};
use crate::engine::Stored;
use crate::error::{Error, Result};
use crate::form::TreeForm;
use crate::index::{InLogs, InTree, Index, Ordered};
use crate::kept::{IndexPlace, leaves};
use crate::laboratory::{InnerTier, Laboratory};
use crate::located::{first_16, location, value};
use crate::open::Opening;
use crate::options::{Kind, MapOptions, Persist};
use crate::plan::{InDram, Mapped, PersistentTree, Place, Plan};
use std::cmp::Ordering;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use terrace_durable::IndexFile;
use terrace_durable::checked_word;
use terrace_index::Ground;
use terrace_index::deltas::{self, Deltas, Grounds, found_logs};
use terrace_index::keys::{Entry, Keys, Sixteen};
use terrace_index::tree::{Form, GroupFlush, Tree, TreeOptions, found_leaves};
use terrace_memory::{Backing, Divide, Memory, Native};

/// Bytes of a leaf, and of every inner node in DRAM.
const NODE_BYTES: u64 = 1024;
const KEPT_NODE_BYTES: u64 = 512;
/// Inner nodes, 1 KiB for dozens of leaves that are a third full at the least, take less than their leaves; so do
/// those of logs, and a mapping table of entries of 128 bytes, since the items of a leaf's keys are more.
const INNER_STEP: u64 = 2 << 20;
/// Bytes of a segment of logs; in a small memory less, so that it has some hundreds.
const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS_LEAST: u64 = 512;

impl InDram {
    /// The index of such a map where it is not persistent.
    pub fn of(options: &MapOptions) -> InDram {
        let Laboratory { tree, node_bytes, .. } = options.laboratory;
        let form = match tree {
            Some(TreeForm::Leaves(form)) if !form.is_kept() => form,
            _ => Form::Rows,
        };
        let node_bytes = node_bytes.unwrap_or(NODE_BYTES);
        let group_flush = options.group_flush(form, node_bytes);
        InDram { form, node_bytes, group_flush, tier: options.index_tier.clone() }
    }
}

impl PersistentTree {
    /// What was asked for, or else what is best by what was measured of the memory.
    pub fn of(options: &MapOptions) -> PersistentTree {
        let Laboratory { tree, node_bytes, inner_tier, .. } = options.laboratory;
        let asked = tree.filter(|form| form.is_kept());
        let best = advice(options, asked).first().map(|best| (best.form, best.node_bytes));
        let (form, bytes) = best.unwrap_or((TreeForm::Leaves(Form::FastFair), KEPT_NODE_BYTES));
        PersistentTree {
            form: asked.unwrap_or(form),
            node_bytes: node_bytes.unwrap_or(bytes),
            inner_tier,
            asked: (tree, node_bytes),
        }
    }
}

/// Refuses leaves of bytes that their form cannot have, wherever the index may come to be.
///
/// # Errors
/// [`Error::Option`].
pub(crate) fn check_nodes(plan: &Plan) -> Result<()> {
    let InDram { form, node_bytes, .. } = plan.in_dram;
    let in_dram = || leaf_options(form, node_bytes).check();
    let persistent = |PersistentTree { form, node_bytes, .. }| match form {
        TreeForm::Leaves(form) => leaf_options(form, node_bytes).check(),
        TreeForm::Logs => logs_options(1, node_bytes, u64::MAX).check(),
    };
    let checked = match &plan.place {
        Place::Mapped(Mapped { persist: Persist::Index | Persist::Full, tree, .. }) => {
            persistent(*tree)
        }
        Place::Mapped(Mapped { persist: Persist::Auto, tree, .. }) => {
            in_dram().and_then(|()| persistent(*tree))
        }
        Place::Mapped(_) | Place::Mirrored { .. } | Place::Copied => in_dram(),
    };
    checked.map_err(|error| Error::Option { field: "node_bytes", why: error.to_string() })
}

/// What may be persistent, the best first; nothing where the memory was not measured.
fn advice(options: &MapOptions, form: Option<TreeForm>) -> Vec<Advised> {
    let mut advice = options.accesses().map_or_else(Vec::new, advised);
    let may_be = |found: u64| options.laboratory.node_bytes.is_none_or(|asked| asked == found);
    advice.retain(|a| form.is_none_or(|form| form == a.form) && may_be(a.node_bytes));
    advice
}

impl MapOptions {
    /// When a tree in a tier of its own writes the lines of a change back together: while the memory is busy, if one
    /// was measured that is the faster for it. A change moves half of a sorted leaf; in others it moves nothing.
    fn group_flush(&self, form: Form, node_bytes: u64) -> GroupFlush {
        let costs = self.index_tier.as_ref().and_then(|tier| tier.costs.as_ref());
        match costs.and_then(|costs| Some((costs.accesses.as_ref()?, &costs.keeping))) {
            Some((accesses, keeping))
                if form == Form::Sorted && keeping.gain(node_bytes / 2) > 1.0 =>
            {
                GroupFlush::Above(accesses.busy_above())
            }
            _ => GroupFlush::Never,
        }
    }

    /// Which index of an ordered map would be kept, and what decides it, as a sentence; none where there is nothing
    /// to decide.
    ///
    /// ```
    /// assert_eq!(terrace_store::MapOptions::default().index_rule(), None);
    /// ```
    pub fn index_rule(&self) -> Option<String> {
        if self.kind == Kind::Hash || self.persist == Persist::Values {
            return None;
        }
        let PersistentTree { form, node_bytes, asked, .. } = PersistentTree::of(self);
        if asked.0.is_some() && asked.1.is_some() {
            return Some(format!("{form} in leaves of {node_bytes} B, as asked"));
        }
        let (Some(accesses), [best, others @ ..]) = (self.accesses(), &advice(self, asked.0)[..])
        else {
            return Some(format!("{form} in leaves of {node_bytes} B: no profile decides"));
        };
        let other = others.iter().find(|other| other.form != best.form).or(others.first());
        let beside = other.map_or_else(String::new, |other| format!(", before {other}"));
        Some(format!(
            "{best}{beside}: a lookup and an insert, by what was measured of {} with {} threads",
            accesses.memory(),
            accesses.threads()
        ))
    }
}

fn leaf_options(form: Form, node_bytes: u64) -> TreeOptions {
    TreeOptions { inner_bytes: NODE_BYTES, ..TreeOptions::of(form, node_bytes) }
}

/// Of so many logs in so many bytes of memory.
fn logs_options(logs: u32, node_bytes: u64, memory_bytes: u64) -> deltas::Options {
    let node_bytes = node_bytes.try_into().unwrap_or(u32::MAX);
    let most = SEGMENT_BYTES.min(memory_bytes / SEGMENTS_LEAST).next_multiple_of(64) as u32;
    let segment_bytes = deltas::Options::least_segment_bytes(node_bytes).max(most);
    deltas::Options { logs, segment_bytes, node_bytes, bounds_garbage: true, ..Default::default() }
}

/// What a kept index of an ordered map says of itself.
struct Found {
    /// Its form, and bytes of a leaf, if that is legible.
    form: Option<(TreeForm, u64)>,
    /// Bytes in use of its ground, which may be anything; none of what is not legible.
    bytes: u64,
}

fn found<I: Memory>(ground: &Ground<I>) -> io::Result<Found> {
    if let Some(logs) = found_logs(ground)? {
        return Ok(Found { form: Some((TreeForm::Logs, logs.node_bytes)), bytes: logs.bytes });
    }
    let leaves = found_leaves(ground)?;
    let form = leaves.form.map(|(form, bytes)| (TreeForm::Leaves(form), bytes));
    Ok(Found { form, bytes: if form.is_some() { leaves.bytes } else { 0 } })
}

/// The form and bytes of a leaf of the tree in the file, if that is legible.
pub(crate) fn made_as<I: Divide>(file: &IndexFile<I>) -> Option<(TreeForm, u64)> {
    found(&leaves(file)).ok()?.form
}

/// What of the file is in use for leaves: beginning and length.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if it cannot be told.
pub(crate) fn in_use<I: Divide>(file: &IndexFile<I>) -> io::Result<(u64, u64)> {
    let kept = leaves(file);
    let (start, bytes) = (kept.start, found(&kept)?.bytes);
    let in_file = file.file_bytes().map_err(io::Error::other)?.saturating_sub(start);
    if bytes > in_file {
        let what = format!("at offset {start}: leaves end behind the file");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok((start, bytes))
}

impl Opening<'_> {
    pub fn is_ordered(&self) -> bool {
        self.plan.is_ordered()
    }

    /// An empty tree in DRAM.
    pub fn tree_in_dram(&self, capacity: u64) -> io::Result<Index<Native>> {
        let InDram { form, node_bytes, group_flush, .. } = self.plan.in_dram;
        let options = TreeOptions { group_flush, ..leaf_options(form, node_bytes) };
        let tree = Tree::on_node(&options, capacity, self.index_node(), self.index_budget())?;
        Ok(Index::Ordered(Box::new(Ordered::Tree(InTree::new(tree, InnerTier::Dram)))))
    }

    /// An empty tree whose leaves, or logs, are kept in the file.
    pub fn tree_kept<I: Divide>(
        &self,
        file: &IndexFile<I>,
        place: &impl IndexPlace<I>,
    ) -> io::Result<Index<I>> {
        let kept = leaves(file);
        let above = self.above(&kept, place)?;
        let PersistentTree { form, node_bytes, .. } = self.plan.mapped().tree;
        let ordered = match form {
            TreeForm::Leaves(form) => {
                let options = leaf_options(form, node_bytes);
                let tree = Tree::over(&options, kept, above, self.budget)?;
                Ordered::Tree(InTree::new(tree, self.inner_tier()))
            }
            TreeForm::Logs => {
                let options = logs_options(self.logs(), node_bytes, kept.memory.len());
                let grounds = grounds(kept, above)?;
                let logs = Deltas::create(grounds, &options, &Sixteen, self.budget)?;
                Ordered::Logs(InLogs::new(logs, self.inner_tier()))
            }
        };
        Ok(Index::Ordered(Box::new(ordered)))
    }

    fn inner_tier(&self) -> InnerTier {
        self.plan.mapped().tree.inner_tier
    }

    /// Room for inner nodes above such leaves, or logs, where they are to lie.
    fn above<I: Divide>(
        &self,
        kept: &Ground<I>,
        place: &impl IndexPlace<I>,
    ) -> io::Result<Ground<Native>> {
        let bytes = inner_bytes(kept);
        match self.inner_tier() {
            InnerTier::Dram => Ground::reserve(bytes, Backing::HugePages, None),
            InnerTier::Index => place.inner(bytes),
        }
    }

    /// Logs of an index: about as many as threads write at once.
    fn logs(&self) -> u32 {
        self.tables().max(2) as u32
    }

    /// Refuses a form or a size of nodes that was asked for where the file has another, and says why the tree is to be
    /// rebuilt if the product does not make such ones.
    ///
    /// # Errors
    /// [`Error::Option`]; those of the medium.
    pub fn check_form<I: Divide>(
        &self,
        file: &IndexFile<I>,
        path: &Path,
    ) -> Result<Option<String>> {
        let found = found(&leaves(file)).map_err(|source| Error::Io {
            path: path.into(),
            doing: "read the leaves of",
            source,
        })?;
        // An illegible one is damage, and made anew as was asked for.
        let Some((form, node_bytes)) = found.form else { return Ok(None) };
        let refused = |field, asked: String, has: String| {
            let why = format!(
                "{asked} was asked for, and the tree in {} has {has}; ask for that or for auto, or open the map \
                 once with persist = \"values\", and the tree is made anew",
                path.display()
            );
            Err(Error::Option { field, why })
        };
        match self.plan.mapped().tree.asked {
            (Some(asked), _) if asked != form => {
                refused("index", format!("\"{asked}\""), format!("\"{form}\""))
            }
            (_, Some(asked)) if asked != node_bytes => {
                refused("node_bytes", asked.to_string(), node_bytes.to_string())
            }
            (None, _) if !form.is_product() => {
                let now = self.plan.mapped().tree.form;
                Ok(Some(format!(
                    "{form} is of the laboratory alone; rebuilt as {now} from the values"
                )))
            }
            _ => Ok(None),
        }
    }

    /// The tree whose leaves, or logs, are in the file, if `is_intact` says so of what is in use of that.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is not, or there is none that a crash could have left; nothing was
    /// changed that no crash explains.
    pub fn tree_found<M: Memory, I: Divide>(
        &self,
        values: &Stored<M>,
        (file, place): (&IndexFile<I>, &impl IndexPlace<I>),
        is_intact: impl FnOnce(&[(u64, u64)]) -> io::Result<bool>,
    ) -> io::Result<Index<I>> {
        let damaged = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        let kept = leaves(file);
        let form = found(&kept)?.form;
        let (start, bytes) = in_use(file)?;
        if !is_intact(&[(start, bytes)])? {
            return Err(damaged("the index is not as it was closed".into()));
        }
        let (form, node_bytes) = form.ok_or_else(|| {
            damaged(format!("at offset {start}: the line before the leaves is no tree's"))
        })?;
        let claimed = Claimed::of(values);
        let above = self.above(&kept, place)?;
        let (threads, budget) = (self.threads, self.budget);
        let ordered = match form {
            TreeForm::Leaves(form) => {
                let options = leaf_options(form, node_bytes);
                let tree = Tree::recover(&options, kept, above, &claimed, threads, budget)?;
                Ordered::Tree(InTree::new(tree, self.inner_tier()))
            }
            TreeForm::Logs => {
                let options = logs_options(self.logs(), node_bytes, kept.memory.len());
                let grounds = grounds(kept, above)?;
                let logs = Deltas::recover(grounds, &options, threads, &claimed, budget)?;
                Ordered::Logs(InLogs::new(logs, self.inner_tier()))
            }
        };
        Ok(Index::Ordered(Box::new(ordered)))
    }
}

/// Logs in the file, inner nodes above them, and room in DRAM for the mapping table.
fn grounds<I: Memory>(logs: Ground<I>, inner: Ground<Native>) -> io::Result<Grounds<I, Native>> {
    let table = Ground::reserve(inner_bytes(&logs), Backing::HugePages, None)?;
    Ok(Grounds { logs, table, inner })
}

/// Address space for what leads to such leaves.
fn inner_bytes<I: Memory>(leaves: &Ground<I>) -> u64 {
    leaves.memory.len().next_multiple_of(INNER_STEP)
}

/// The keys of items that nobody has verified yet. What has no key has the empty one: every entry has one
/// place in the order.
pub(crate) struct Claimed<'v, M: Memory> {
    values: &'v Stored<M>,
    file_bytes: u64,
    could_tell: AtomicBool,
}

impl<'v, M: Memory> Claimed<'v, M> {
    pub fn of(values: &'v Stored<M>) -> Claimed<'v, M> {
        let file_bytes = values.medium().file_bytes().unwrap_or(0);
        Claimed { values, file_bytes, could_tell: AtomicBool::new(true) }
    }

    fn told<R>(&self, value: [u64; 2], mut f: impl FnMut(&[u8]) -> R) -> R {
        let is_whole = checked_word::is_intact(value[0], 0);
        let location = is_whole.then(|| location(value));
        let told = location.and_then(|at| self.values.claimed_key(at, self.file_bytes, &mut f));
        told.unwrap_or_else(|| {
            self.could_tell.store(false, Relaxed);
            f(&[])
        })
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
        self.told(value, |found| found.cmp(key))
    }

    fn key(&self, value: [u64; 2], into: &mut Vec<u8>) {
        self.told(value, |found| into.extend_from_slice(found));
    }

    fn could_tell(&self) -> bool {
        self.could_tell.load(Relaxed)
    }
}

/// Entries of a tree as a walk comes to them, each behind the one before.
#[derive(Default)]
pub(crate) struct InOrder {
    entry: Entry,
    leaf: u64,
    last: Option<Vec<u8>>,
    /// Where the first leaf lies that has an entry which no lookup would find.
    pub damaged: Option<u64>,
}

impl InOrder {
    /// The walk comes to an entry of a leaf; returns where its item lies: nowhere, if its location is not
    /// whole. What it names instead may be a deleted item, whose entry would be taken for one to remove.
    pub fn come_to(&mut self, entry: Entry, leaf: u64) -> u64 {
        (self.entry, self.leaf) = (entry, leaf);
        if checked_word::is_intact(entry.value[0], 0) {
            return location(entry.value);
        }
        self.damaged.get_or_insert(leaf);
        0
    }

    /// Whether the entry stands for the item of this key, and where it is looked for.
    pub fn is_of(&mut self, at: u64, key: &[u8]) -> bool {
        let is_its = self.entry == Entry { head: first_16(key), value: value(at, key) };
        let is_behind = self.last.as_deref().is_none_or(|last| last < key);
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if !(is_its && is_behind) {
            self.damaged.get_or_insert(self.leaf);
        }
        is_its && is_behind
    }
}
