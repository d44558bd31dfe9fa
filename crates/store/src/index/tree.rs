//! A B+-tree as a map's index: leaves where the index lies, inner nodes in DRAM or beside them.

use super::in_order::{of_value, operations_in_order, whole_key};
use super::{Found, KeyIndex, Position, Site, Unordered, Watches, found_in};
use crate::engine::BATCH;
use crate::form::TreeForm;
use crate::kept::leaves;
use crate::laboratory::{InnerTier, inner_words};
use crate::located::{location, value};
use crate::open::Opening;
use crate::plan::InDram;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::time::Duration;
use terrace_durable::sections::Changes;
use terrace_durable::{BucketLock, IndexFile};
use terrace_index::keys::{Direction, Entry, Keys};
use terrace_index::tree::{self, GroupFlush, Tree, TreeOptions, found_leaves};
use terrace_index::{Change, Items};
use terrace_memory::{Divide, Memory, Native, prestore};

/// Bytes of an inner node.
pub(crate) const INNER_NODE_BYTES: u64 = 1024;

/// A tree. Of a persistent one the leaves alone are; inner nodes are rebuilt.
pub(crate) struct InTree<I: Memory> {
    entries: Tree<I, Native>,
    inner_tier: InnerTier,
}

fn options(form: tree::Form, node_bytes: u64) -> TreeOptions {
    TreeOptions { inner_bytes: INNER_NODE_BYTES, ..TreeOptions::of(form, node_bytes) }
}

fn options_of(form: Option<TreeForm>, node_bytes: u64) -> Option<TreeOptions> {
    match form {
        Some(TreeForm::Leaves(form)) => Some(options(form, node_bytes)),
        _ => None,
    }
}

impl<I: Memory> Watches for tree::Watch<'_, I> {
    #[inline(always)]
    fn saw_no_overwrite(&self) -> bool {
        tree::Watch::saw_no_overwrite(self)
    }
}

impl<I: Memory> KeyIndex for InTree<I> {
    type Memory = I;
    type InDram = InTree<Native>;
    type Watch<'a>
        = tree::Watch<'a, I>
    where
        Self: 'a;

    operations_in_order!();

    fn makes(form: Option<TreeForm>) -> bool {
        matches!(form, Some(TreeForm::Leaves(_)))
    }

    fn check(form: Option<TreeForm>, node_bytes: u64) -> io::Result<()> {
        options_of(form, node_bytes).map_or(Ok(()), |options| options.check())
    }

    fn in_dram(opening: &Opening<'_>, capacity: u64) -> io::Result<InTree<Native>> {
        let InDram { form, node_bytes, group_flush, .. } = opening.plan.in_dram;
        let options = TreeOptions { group_flush, ..options(form, node_bytes) };
        let (node, budget) = (opening.index_node(), opening.index_budget());
        let entries = Tree::on_node(&options, capacity, node, budget)?;
        Ok(InTree { entries, inner_tier: InnerTier::Dram })
    }

    fn create(site: &Site<'_, I>) -> io::Result<InTree<I>>
    where
        I: Divide,
    {
        let plan = site.plan();
        let options =
            options_of(Some(plan.form), plan.node_bytes).ok_or(io::ErrorKind::Unsupported)?;
        let leaves = site.leaves();
        let inner = site.inner_above(&leaves)?;
        let entries = Tree::over(&options, leaves, inner, site.opening.budget)?;
        Ok(InTree { entries, inner_tier: plan.inner_tier })
    }

    fn found(file: &IndexFile<I>) -> io::Result<Option<Found>>
    where
        I: Divide,
    {
        let Some(leaves) = leaves(file) else { return Ok(None) };
        let found = found_leaves(&leaves)?;
        Ok(found.form.map(|(form, node_bytes)| Found {
            form: TreeForm::Leaves(form),
            node_bytes,
            used: (leaves.start, found.bytes),
        }))
    }

    fn repair(site: &Site<'_, I>, claimed: &(impl Keys + Sync)) -> io::Result<InTree<I>>
    where
        I: Divide,
    {
        let Found { form, node_bytes, .. } = found_in::<InTree<I>>(site.file)?;
        let options = options_of(Some(form), node_bytes).ok_or(io::ErrorKind::Unsupported)?;
        let leaves = site.leaves();
        let inner = site.inner_above(&leaves)?;
        let Opening { threads, budget, .. } = *site.opening;
        let entries = Tree::recover(&options, leaves, inner, claimed, threads, budget)?;
        Ok(InTree { entries, inner_tier: site.plan().inner_tier })
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, bytes) = self.entries.form();
        if form.is_persistent() {
            let inner = inner_words(self.inner_tier);
            return write!(f, "{form}: leaves of {bytes} B, inner nodes {inner}");
        }
        write!(f, "{form}: nodes of {bytes} B in DRAM")?;
        let (GroupFlush::Above(most), is_on) = self.entries.group_flush() else {
            return Ok(());
        };
        let now = if is_on && prestore::is_enabled() { "now" } else { "not now" };
        write!(f, " and changes written back together above {most} lines a second: {now}")
    }

    fn looked_at(&self) -> [u64; 2] {
        let (form, bytes) = self.entries.form();
        let leaf_alone = form.is_persistent() && self.inner_tier == InnerTier::Dram;
        [if leaf_alone { 1 } else { 1 + self.entries.stats().height }, bytes]
    }

    fn update_at(
        &self,
        _hash: u64,
        key: &[u8],
        at: u64,
        items: &(impl Items + Keys),
        f: impl FnOnce(&BucketLock, &mut Changes) -> Change,
    ) -> io::Result<bool> {
        let f = |lock: &BucketLock| of_value(f(lock, &mut Changes::new()), key);
        Ok(self.entries.update_at(key, value(at, key), items, f))
    }

    fn clear(&self, _items: &impl Keys) -> io::Result<()> {
        self.entries.clear();
        Ok(())
    }

    fn went_by(&self, time: Duration) {
        self.entries.went_by(time);
    }

    fn shrink(&self, items: &impl Keys) -> u64 {
        self.entries.shrink(items)
    }

    fn free_bytes(&self) -> u64 {
        self.entries.free_bytes()
    }

    fn bytes(&self) -> u64 {
        self.entries.stats().bytes
    }

    fn used(&self, start: u64) -> Vec<(u64, u64)> {
        vec![(start, self.entries.leaf_bytes())]
    }
}
