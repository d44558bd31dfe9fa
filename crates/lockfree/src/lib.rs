//! Lock-free structures of words: persistent [`list`]s, which tables of 64-bit keys are made of, persistent [`ring`]s,
//! which queues are made of, and the [`lookup`] table, an ordered map in memory with ranges at one moment.
//!
//! What is persistent is written once against `trait Memory`, orders its own write-backs, and says what a crash leaves
//! of it. This room does not know who uses it.

pub mod list;
pub mod lookup;
pub mod ring;
mod sync;

pub use ring::{Form, Popped, Ring, RingOptions};
