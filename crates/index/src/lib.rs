//! Concurrent indexes from keys to the locations of their items.
//!
//! An index stores no keys: it holds a location and a few bits of the key's hash, and asks
//! [`Items`] for the rest. That keeps an entry at eight bytes and lets the same index serve
//! values in logs, in slabs, or anywhere else that can be named by 48 bits.
//!
//! A [`tree`] has its keys in order: it holds 16 bytes of each, and asks [`tree::Keys`] for the rest
//! where they do not tell keys apart.
//!
//! This room does not know who uses it.

pub mod deltas;
pub mod hash;
pub mod keys;
mod latch;
mod nodes;
mod reserved;
mod shares;
pub mod table;
pub mod tree;

pub use hash::hash_key;
pub(crate) use reserved::{COMMIT_BYTES, FIRST_COMMIT_BYTES, grow_to};
pub use reserved::{Commit, Reserved};
pub use table::{Change, Cursor, HashIndex, Items, Layout, Line, Loaded, Watch};
pub use tree::{Tree, TreeOptions};
