//! The laboratory: choices that papers compare and that no table of ours favours over what the product
//! does by itself. Experiments and crash tests make them; the facade, its file and its flags do not know
//! them, and every form stays complete and tested behind this one door.
//!
//! `Laboratory::default()` is the product. Which form an ordered index has, and in leaves of how many
//! bytes, the product decides by what was measured of the memory ([`advised`](crate::advised)); when
//! lines are written back, [`Flush::Auto`] decides.

pub use crate::form::TreeForm;
pub use terrace_durable::Flush;
pub use terrace_index::tree::Form as LeafForm;

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
