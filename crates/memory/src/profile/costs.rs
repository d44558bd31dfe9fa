//! The figures of a measured memory that an engine decides by.

use super::{Accesses, Keeping, NodeProfile};
use std::sync::Arc;

/// What a memory's profile says, reduced to what a choice hangs on.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryCosts {
    /// Of written lines that are left to the caches, or not.
    pub keeping: Arc<Keeping>,
    /// Of single accesses; none where not all of it was measured.
    pub accesses: Option<Accesses>,
}

impl MemoryCosts {
    /// What a profile says; `None` where its bandwidth was not measured, or not all of it.
    pub fn of(node: &NodeProfile) -> Option<MemoryCosts> {
        let keeping = Arc::new(Keeping::of(node)?);
        Some(MemoryCosts { keeping, accesses: Accesses::of(node) })
    }
}
