//! Persistent lock-free structures of words: [`list`]s, which tables of 64-bit keys are made of, and [`ring`]s,
//! which queues are made of.
//!
//! Each is written once against `trait Memory`, orders its own write-backs, and says what a crash leaves of it.
//! This room does not know who uses it.

pub mod list;
pub mod ring;
mod sync;

pub use ring::{Form, Popped, Ring, RingOptions};
