//! The laboratory: choices that papers compare and that no table of ours favours over what the product
//! does by itself. Experiments and crash tests make them; the facade, its file and its flags do not know
//! them, and every form stays complete and tested behind this one door.
//!
//! `Laboratory::default()` is the product. Which form an ordered index has, and in leaves of how many
//! bytes, the product decides by what was measured of the memory ([`advised`](crate::advised)); when
//! lines are written back, [`Flush::Auto`] decides.

use crate::error::{Error, Result};
pub use crate::form::TreeForm;
use crate::options::{Kind, Persist};
pub use terrace_durable::Flush;
pub use terrace_index::tree::Form as LeafForm;
use terrace_memory::Domain;

/// What an experiment asks of a map beyond what the product offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Laboratory {
    /// Of an ordered map, the form of its index. None: rows in DRAM; where the index is persistent, the form it
    /// has if the product makes such ones, else what [`advised`](crate::advised) puts first. With
    /// [`Persist::Auto`](crate::Persist) a persistent form stands for [`Persist::Index`](crate::Persist), another
    /// for [`Persist::Values`](crate::Persist).
    pub tree: Option<TreeForm>,
    /// Of an ordered map, bytes of a leaf: a power of two from 128 to 4096, to 2048 where leaves have a
    /// bitmap. None: 1024 in DRAM; where the index is persistent as advised, 512 without a profile.
    pub node_bytes: Option<u64>,
    /// Of an ordered map whose index is persistent, where inner nodes lie.
    pub inner_tier: InnerTier,
    /// When the lines of an item are written back.
    pub flush: Flush,
    /// In slabs, how many superseded slots each writer may leave to be freed later, many behind one
    /// fence: bursts of updates become cheaper, and slots come back later. 0 frees each at once.
    /// What survives a crash is the same.
    pub deferred_frees: usize,
}

/// Where the inner nodes of a persistent index lie (Ni, chapter 5). They are rebuilt from the leaves, or
/// logs, at each opening, wherever they lie: what recovery verifies is more than what they would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InnerTier {
    /// In DRAM: selective persistence.
    #[default]
    Dram,
    /// In the memory of the index, in a file beside it: the index takes no DRAM, and a lookup reads every level there.
    Index,
}

/// For whoever reads statistics.
pub(crate) fn inner_words(inner_tier: InnerTier) -> &'static str {
    match inner_tier {
        InnerTier::Dram => "in DRAM",
        InnerTier::Index => "in the index's memory",
    }
}

impl TreeForm {
    /// Whether the product makes indexes of this form. A persistent one of another form is rebuilt from the values when
    /// its map is opened without asking for it.
    pub fn is_product(self) -> bool {
        match self {
            TreeForm::Leaves(form) => matches!(form, LeafForm::Rows | LeafForm::FastFair),
            TreeForm::Logs => true,
        }
    }
}

impl Laboratory {
    /// Refuses what no map can be, and says what is persistent: a form that was asked for decides where nothing else
    /// does.
    ///
    /// # Errors
    /// [`Error::Option`] names the field.
    pub(crate) fn check(&self, kind: Kind, persist: Persist) -> Result<Persist> {
        match kind {
            Kind::Hash => self.check_hash().map(|()| persist),
            Kind::Ordered => self.check_ordered(persist),
        }
    }

    /// Refuses items that stay in the caches where these do not survive.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub(crate) fn check_domain(&self, domain: Domain) -> Result<()> {
        if self.flush != Flush::Keep || domain == Domain::Eadr {
            return Ok(());
        }
        let why = format!(
            "\"keep\" leaves items in the processor's caches, which survive a power cut under eADR alone; the \
             directory is on: {domain}"
        );
        Err(Error::Option { field: "flush", why })
    }

    fn check_hash(&self) -> Result<()> {
        let refused = |field, why: String| Err(Error::Option { field, why });
        match (self.tree, self.node_bytes, self.inner_tier) {
            (None, None, InnerTier::Dram) => Ok(()),
            (Some(form), ..) => {
                let why = format!("\"{form}\" is a tree, for kind = \"ordered\"; leave it out");
                refused("index", why)
            }
            (None, Some(_), _) => {
                refused("node_bytes", "only kind = \"ordered\" has nodes; leave it out".into())
            }
            (None, None, InnerTier::Index) => {
                let why = "only kind = \"ordered\" has inner nodes; leave it out";
                refused("inner_tier", why.into())
            }
        }
    }

    fn check_ordered(&self, persist: Persist) -> Result<Persist> {
        let refused = |field, why: String| Err(Error::Option { field, why });
        let persist = match (persist, self.tree) {
            (Persist::Index, Some(form)) if !form.is_kept() => {
                let why = format!(
                    "\"{form}\" is gone after a crash; with persist = \"index\" there are {}, and auto",
                    names(TreeForm::is_kept)
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
            (Persist::Auto, None) if self.inner_tier == InnerTier::Index => Persist::Index,
            (Persist::Auto, Some(_)) => Persist::Values,
            (persist, _) => persist,
        };
        if self.inner_tier == InnerTier::Index && persist == Persist::Values {
            let why = "inner nodes of an index that is not persistent lie where it does, in DRAM or in index_tier; \
                       \"index\" is for persist = \"index\"";
            return refused("inner_tier", why.into());
        }
        Ok(persist)
    }
}

fn names(which: impl Fn(TreeForm) -> bool) -> String {
    let names = TreeForm::ALL.into_iter().filter(|form| which(*form)).map(TreeForm::name);
    names.collect::<Vec<_>>().join(", ")
}
