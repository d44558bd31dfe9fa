//! What an engine must offer beyond [`Target`]: to be opened and closed.

use serde::{Deserialize, Serialize};
use std::path::Path;
use terrace_workload::Failure;
use terrace_workload::ycsb::{NullTarget, Target};

/// When a write returns.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// At the engine's own pace: no sync on commit.
    None,
    /// Once it would survive a power cut.
    Sync,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(if *self == Durability::Sync { "sync" } else { "none" })
    }
}

/// How an engine is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// When its writes return.
    pub durability: Durability,
    /// Memory for its own cache of the data, or for the data, where it takes such a bound.
    pub cache_bytes: u64,
    /// Whether the data is larger than that: write buffers count too, and files are read past the system's page cache.
    pub is_larger: bool,
    /// Records that will be loaded; a hint that no engine but the floor uses.
    pub records: u64,
}

/// An engine under test.
pub trait Engine: Target + Sized + 'static {
    /// Whether it keeps anything past the process.
    const DURABLE: bool;

    /// Opens `directory`, which exists and is empty the first time; in-memory engines ignore it.
    fn open(directory: &Path, options: &OpenOptions) -> Result<Self, Failure>;

    /// Closes in order: everything acknowledged is durable after it.
    fn close(self) -> Result<(), Failure>;
}

impl Engine for NullTarget {
    const DURABLE: bool = false;

    fn open(_directory: &Path, _options: &OpenOptions) -> Result<Self, Failure> {
        Ok(NullTarget)
    }

    fn close(self) -> Result<(), Failure> {
        Ok(())
    }
}
