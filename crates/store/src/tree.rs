//! Which index an ordered map has: what was asked for, or what was measured of its memory decides.

use crate::advice::{Advised, advised};
use crate::error::{Error, Result};
use crate::form::TreeForm;
use crate::index::{Index, KeyIndex};
use crate::laboratory::Laboratory;
use crate::options::{Kind, MapOptions, Persist};
use crate::plan::{InDram, Mapped, PersistentTree, Place, Plan};
use terrace_index::tree::{Form, GroupFlush};
use terrace_memory::Native;

/// Bytes of a leaf in DRAM, and of a persistent one.
const NODE_BYTES: u64 = 1024;
const KEPT_NODE_BYTES: u64 = 512;

impl InDram {
    /// The index of such a map where it is not persistent.
    pub fn of(options: &MapOptions) -> InDram {
        let Laboratory { tree, node_bytes, .. } = options.laboratory;
        let form = match tree {
            Some(TreeForm::Leaves(form)) if !form.is_persistent() => form,
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
        let asked = tree.filter(|form| form.is_persistent());
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
    let check = |form, node_bytes| Index::<Native>::check(form, node_bytes);
    let in_dram = || check(plan.form_in_dram(), plan.in_dram.node_bytes);
    let persistent = |tree: &PersistentTree| check(Some(tree.form), tree.node_bytes);
    let checked = match &plan.place {
        Place::Mapped(Mapped { persist: Persist::Index | Persist::Full, tree, .. }) => {
            persistent(tree)
        }
        Place::Mapped(Mapped { persist: Persist::Auto, tree, .. }) => {
            in_dram().and_then(|()| persistent(tree))
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
