//! Persistent structures written against sections alone: the workloads of 004 table 3.2, shared by
//! tests and measurements. They know no engine, no memory, and nothing of crashes.

#![allow(dead_code, unused_imports, reason = "each user takes what it needs")]

mod b_tree;
mod hash_table;
mod keys;
mod red_black;
mod swaps;

pub use b_tree::BTree;
pub use hash_table::HashTable;
pub use keys::{Keys, Random};
pub use red_black::RedBlackTree;
pub use swaps::Swaps;

use std::collections::BTreeMap;
use terrace_durable::sections::{Result, Tx};
use terrace_memory::Memory;

/// A structure under a root, with the operation of the paper: look the key up, delete it if found,
/// insert it if absent; one section each.
pub trait Structure {
    const NAME: &'static str;

    /// Makes an empty one.
    fn create<M: Memory>(tx: &mut Tx<'_, M>) -> Result<()>;
    /// The operation.
    fn toggle<M: Memory>(tx: &mut Tx<'_, M>, key: u64, value: u64) -> Result<()>;
    /// Its contents. Panics if its own invariants do not hold.
    fn contents<M: Memory>(tx: &Tx<'_, M>) -> Result<BTreeMap<u64, u64>>;
    /// Every object it is made of.
    fn objects<M: Memory>(tx: &Tx<'_, M>) -> Result<Vec<u64>>;

    /// What `create` means for its contents.
    fn model_created() -> BTreeMap<u64, u64> {
        BTreeMap::new()
    }
    /// What `toggle` means for its contents.
    fn model_toggle(model: &mut BTreeMap<u64, u64>, key: u64, value: u64) {
        if model.remove(&key).is_none() {
            model.insert(key, value);
        }
    }
}
