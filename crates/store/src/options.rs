//! What a map is asked to be.

use crate::laboratory::Laboratory;
use crate::moments::Moments;
use crate::together::InDatabase;
use std::sync::Arc;
use std::time::Duration;
use terrace_durable::logs::FarMemory;
use terrace_durable::{Access, DiskBudget, Flush};
use terrace_memory::profile::{Accesses, Keeping, MemoryCosts};
use terrace_memory::{Budget, Domain};

/// When a write survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once acknowledged, it survives a power cut. Callers share syncs.
    Sync,
    /// Once acknowledged, it survives the death of the process. A power cut, or a crash of the kernel, takes at most
    /// what was acknowledged during so long a time: the map is then exactly as it was at some instant not longer ago.
    Interval(Duration),
    /// No promise how much survives a crash, but what does is a consistent earlier state; all of
    /// it survives an orderly close.
    None,
}

/// Which of the two value designs a map uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueDesign {
    /// The design the map was made with; for a new one, logs.
    Auto,
    /// Log-structured.
    Log,
    /// Slots of superblocks; needs a byte-addressable medium.
    Slab,
}

/// What of a map is kept in persistent memory, and so need not be rebuilt after a crash (Wu,
/// section 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// What the map was opened with last; for a new one, values.
    Auto,
    /// Keys and values: index and free space are found by reading them.
    Values,
    /// The index too: only free space is found, by what the index names, and after an orderly end
    /// not even that. Needs a byte-addressable medium. Every write is durable at once, whatever the
    /// durability.
    Index,
    /// Free space and counts too: every operation is a failure-atomic section over all it changes, and
    /// after a crash there is nothing to find. Otherwise as `Index`. Not of ordered maps.
    Full,
}

/// How a map finds its keys. The values are the same: it may change from opening to opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By their hashes, in no order.
    Hash,
    /// In their order: ranges, and about twice the time and memory for a lookup.
    Ordered,
}

/// What happens to a write when the memory budget is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused with [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    Refuse,
    /// The longest unwritten keys make room.
    Evict,
    /// The longest unwritten values leave memory, and are read from the disk; those that are read often stay near as
    /// copies. Of hash maps on a disk that are opened so; other maps refuse writes
    /// ([`Map::when_full`](crate::Map::when_full)). Writes are refused as well when the index alone takes more than the
    /// budget, or the disk is full.
    #[default]
    Spill,
}

/// A tier of memory that an index lies in while its map is open. When its bytes are spent, writes of new keys are
/// refused, or keys evicted, as if the memory budget were.
#[derive(Clone, Debug)]
pub struct IndexTier {
    /// What it is called.
    pub name: String,
    /// Its NUMA node; every one if none.
    pub node: Option<u32>,
    /// Its bytes, which it may share with others. An index may exceed them by about a quarter, where deleted keys wait
    /// to be collected or nodes are less full than they were.
    pub budget: Arc<Budget>,
    /// What was measured of its memory: whether the lines that a change of a tree dirtied are written back together
    /// follows it ([`GroupFlush::Above`](terrace_index::tree::GroupFlush)). Nothing is where nothing was.
    pub costs: Option<Arc<MemoryCosts>>,
}

/// How a map is opened.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// When a write survives a crash.
    pub durability: Durability,
    /// How keys are found.
    pub kind: Kind,
    /// The value design.
    pub values: ValueDesign,
    /// What is kept; may change from opening to opening.
    pub persist: Persist,
    /// The tier that the index lies in, with a budget of its own; none: anywhere, on the budget of the values. Not
    /// of an index that is kept.
    pub index_tier: Option<IndexTier>,
    /// Memory of another node, which maps may share: logs that were not written for long are moved there when the
    /// memory is spent, and from there to the disk, if they may leave memory at all. Not where the directory's file is
    /// the memory.
    pub far: Option<Arc<FarMemory>>,
    /// Bytes of memory the map may take, buffers counted in, and an index in no tier of its own.
    pub memory_budget_bytes: u64,
    /// Bytes of the disk that logs may take, which maps may share, or what the file system has but for a reserve, the
    /// default. When they are spent, writes are refused ([`Error::DiskFull`](crate::Error::DiskFull)); deletes, expiry
    /// and collection have the reserve. It may be changed at any time. Not of slabs.
    pub disk_budget: Arc<DiskBudget>,
    /// What happens when the memory is spent.
    pub when_full: WhenFull,
    /// Current logs: writers that do not wait for one another. 0: one per processor.
    pub writers: usize,
    /// What was measured of the memory: when items are written back, and the form of a persistent ordered index, follow
    /// from it; assumptions where nothing was.
    pub costs: Option<Arc<MemoryCosts>>,
    /// What it is opened for. Unless that is writing, the map must be there, nothing in its directory changes, and
    /// others may read it too.
    pub access: Access,
    /// The persistence domain of the directory: found by the caller, or declared.
    pub domain: Domain,
    /// Whether the directory is on a DAX mount.
    pub dax: bool,
    /// The NUMA node that the memory of the values comes from; every node if none. Not where the
    /// directory's file is the memory.
    pub node: Option<u32>,
    /// The clock of its snapshots. Maps that share one are seen at the same moment.
    pub moments: Arc<Moments>,
    /// Its place in a database; none: transactions write to it alone.
    pub database: Option<InDatabase>,
    /// What experiments ask for beyond that; the product by default.
    pub laboratory: Laboratory,
}

impl Default for MapOptions {
    fn default() -> Self {
        MapOptions {
            durability: Durability::Interval(Duration::from_secs(1)),
            kind: Kind::Hash,
            values: ValueDesign::Auto,
            persist: Persist::Auto,
            index_tier: None,
            far: None,
            memory_budget_bytes: 8 << 30,
            disk_budget: Arc::default(),
            moments: Arc::default(),
            database: None,
            when_full: WhenFull::default(),
            writers: 0,
            costs: None,
            access: Access::Write,
            domain: Domain::PageCache,
            dax: false,
            node: None,
            laboratory: Laboratory::default(),
        }
    }
}

impl MapOptions {
    pub(crate) fn keeping(&self) -> Option<&Arc<Keeping>> {
        self.costs.as_ref().map(|costs| &costs.keeping)
    }

    pub(crate) fn accesses(&self) -> Option<&Accesses> {
        self.costs.as_ref()?.accesses.as_ref()
    }

    /// When the lines of items are written back, and what decides it, as a sentence.
    ///
    /// ```
    /// println!("{}", terrace_store::MapOptions::default().flush_rule());
    /// ```
    pub fn flush_rule(&self) -> String {
        let auto = match self.keeping() {
            Some(keeping) => keeping.to_string(),
            None => {
                "no profile is given: assumed is a medium of lines larger than the caches'".into()
            }
        };
        match (self.domain, self.laboratory.flush) {
            (Domain::PageCache | Domain::None, _) => "none: the file is written instead".into(),
            (_, Flush::Skip) => "at once, large values past the caches: flush = \"skip\"".into(),
            (Domain::Adr, _) => "at once: what is not written back is lost under ADR".into(),
            (Domain::Eadr, Flush::Eager) => "at once: flush = \"eager\"".into(),
            (Domain::Eadr, Flush::Keep) => "when caches give them up: flush = \"keep\"".into(),
            (Domain::Eadr, Flush::Auto) => format!(
                "at once where that is faster, but for what supersedes an item of slabs that was written a \
                 short while ago; {auto}"
            ),
        }
    }
}
