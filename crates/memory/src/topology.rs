//! What this machine's memory consists of, as the kernel tells it.
//!
//! Read once at start (and by `terrace doctor`), from sysfs and procfs below given roots, so that a
//! tree copied from another machine reads like that machine. Nothing here is measured and nothing
//! is guessed: what the kernel does not tell is listed as [`Unknown`], with the file that would
//! have told it; a file that is there and makes no sense is an error, because every later choice
//! would rest on it.
//!
//! Layers: `source` reads files and lists, the other submodules know one corner of sysfs each,
//! `print` makes the table for people. Serialising a [`Topology`] gives the same for programs;
//! fields end with their unit.

mod cache;
mod mounts;
mod node;
mod pages;
mod persistent;
mod print;
mod processor;
mod source;

use std::path::PathBuf;

use serde::Serialize;

pub use cache::{Cache, CacheKind};
pub use mounts::{DaxOption, Mount};
pub use node::{HmatAccess, KernelTier, MemorySideCache, NumaNode, node_name};
pub use pages::{HugePagePool, TransparentHugePages};
pub use persistent::{DaxMount, DeviceDax, PersistentBlock, PersistentMemory, PersistentRegion};
pub use processor::Processor;
pub use source::{TopologyError, Unknown};

use source::Source;

/// Where the kernel's file trees are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// Where procfs is mounted.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { sys: PathBuf::from("/sys"), proc: PathBuf::from("/proc") }
    }
}

/// The memory of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The processor and its instructions.
    pub processor: Processor,
    /// NUMA nodes, rising; never empty.
    pub nodes: Vec<NumaNode>,
    /// The kernel's own tiers of nodes, fastest first.
    pub kernel_tiers: Vec<KernelTier>,
    /// Processor caches.
    pub caches: Vec<Cache>,
    /// Huge-page pools of the machine, smallest page first.
    pub huge_pages: Vec<HugePagePool>,
    /// Transparent huge pages.
    pub transparent_huge_pages: TransparentHugePages,
    /// Persistent memory.
    pub persistent: PersistentMemory,
    /// What the system did not tell.
    pub unknown: Vec<Unknown>,
}

impl Topology {
    /// This machine's topology.
    ///
    /// # Errors
    /// [`TopologyError::Malformed`] when a file of the kernel makes no sense. Absent and unreadable
    /// files are no errors.
    pub fn read() -> Result<Self, TopologyError> {
        Self::read_from(&Roots::default())
    }

    /// The topology told by the trees below `roots`.
    ///
    /// # Errors
    /// As for [`Topology::read`].
    pub fn read_from(roots: &Roots) -> Result<Self, TopologyError> {
        let source = Source::default();
        let (sys, proc) = (roots.sys.as_path(), roots.proc.as_path());
        let mounts = mounts::read_mounts(&source, proc)?;
        Ok(Topology {
            processor: processor::read_processor(&source, proc)?,
            nodes: node::read_nodes(&source, sys, proc)?,
            kernel_tiers: node::read_kernel_tiers(&source, sys)?,
            caches: cache::read_caches(&source, sys)?,
            huge_pages: pages::read_pools(&source, sys)?,
            transparent_huge_pages: pages::read_transparent(&source, sys)?,
            persistent: persistent::read_persistent(&source, sys, mounts)?,
            unknown: source.into_unknown(),
        })
    }

    /// The node numbered `node`, if there is one.
    pub fn node(&self, node: u32) -> Option<&NumaNode> {
        self.nodes.iter().find(|found| found.node == node)
    }

    /// The size of the largest cache, bytes; `None` where no cache tells one. Data must be larger
    /// to measure memory.
    pub fn last_level_cache_bytes(&self) -> Option<u64> {
        self.caches
            .iter()
            .filter(|cache| cache.kind != CacheKind::Instruction)
            .filter_map(|cache| cache.size_bytes)
            .max()
    }
}
