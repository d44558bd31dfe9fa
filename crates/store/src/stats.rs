//! Sizes and counts of a map.

use crate::engine::Stored;
use crate::index::KeyIndex;
use crate::map::Map;
use crate::scrub::ScrubStats;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use terrace_durable::logs::{AwayStats, FarStats, Logs, SEGMENT_HEADER_BYTES, SavedStats, State};
use terrace_durable::values::SEGMENT_BYTES;
use terrace_memory::Memory;

/// Sizes and counts of a map at one moment.
#[derive(Clone, Debug, Default)]
pub struct MapStats {
    /// Keys, but for what blind writes of the last moment added.
    pub keys: u64,
    /// Bytes of items that are pointed to, tombstones included. In slabs, bytes of the slots taken.
    pub live_bytes: u64,
    /// Bytes of items nobody points to any more, waiting for collection. None in slabs, which are freed at once.
    pub dead_bytes: u64,
    /// Bytes of open logs, or of superblocks in use, that nothing is in yet.
    pub free_bytes: u64,
    /// Bytes of memory in use: images of the logs, or superblocks, and the index.
    pub memory_used_bytes: u64,
    /// Bytes of memory allowed.
    pub memory_budget_bytes: u64,
    /// Bytes of memory the index takes.
    pub index_bytes: u64,
    /// Bytes of the value file.
    pub disk_bytes: u64,
    /// What of the logs is on the disk alone; nothing but with [`WhenFull::Spill`](crate::WhenFull::Spill).
    pub away: AwayStats,
    /// What of the logs is in far memory.
    pub far: FarStats,
    /// That memory, where there is one.
    pub far_tier: Option<String>,
    /// The saved index, and what the next opening would read beside it.
    pub saved_index: SavedStats,
    /// What reading the logs again, in the background, has found.
    pub scrub: ScrubStats,
    /// The file of the redo log, where there is one.
    pub redo_log: Option<PathBuf>,
    /// Bytes that it takes on the disk.
    pub redo_log_bytes: u64,
    /// Bytes written to the medium since the map was opened.
    pub bytes_written: u64,
    /// Bytes of the items that operations wrote since the map was opened, deletions in logs among them,
    /// whether to a new place or over the older version. What the collector moves is not in it.
    pub item_bytes_written: u64,
    /// Values that sessions found since the map was opened, one by one, in batches and in ranges; up to 63 a
    /// session behind. What a [`Map`] finds without a session is not in it.
    pub item_reads: u64,
    /// Writes of keys whose older value was on the disk alone, and was not read first.
    pub blind_writes: u64,
    /// Syncs since the map was opened.
    pub syncs: u64,
    /// Logs collected since the map was opened.
    pub collections: u64,
    /// Bytes the collector moved.
    pub moved_bytes: u64,
    /// Keys evicted to make room.
    pub evicted: u64,
    /// Bytes of older versions that are kept for snapshots.
    pub snapshot_bytes: u64,
    /// Expired keys swept.
    pub expired: u64,
    /// Why the map takes no more writes, if it does not.
    pub stopped: Option<String>,
    /// The value design.
    pub design: String,
    /// The persistence domain.
    pub domain: String,
    /// The tier that the index lies in, if that is not the values'.
    pub index_tier: Option<String>,
    /// Nodes that a lookup reads where the index lies, one after the other: one of a hash index; of a tree its
    /// levels, or the leaf alone where inner nodes are in DRAM.
    pub index_nodes: u64,
    /// Bytes of each.
    pub index_node_bytes: u64,
    /// Lookups of a batch that go down the index together.
    pub lookups_together: usize,
    /// What finds keys: "hash", or a tree, the bytes of its nodes and where they lie.
    pub index: String,
}

/// Bytes of the values.
struct Sizes {
    live: u64,
    dead: u64,
    free: u64,
    disk: u64,
}

fn sizes<M: Memory>(values: &Stored<M>) -> Sizes {
    match values {
        Stored::Logs(logs) => {
            let segment_bytes = u64::from(SEGMENT_BYTES);
            let survey = logs.survey_exactly();
            let dead: u64 = survey.iter().map(|v| v.dead_bytes).sum();
            let head = u64::from(SEGMENT_HEADER_BYTES);
            let used: u64 = survey.iter().map(|v| v.used_bytes.saturating_sub(head)).sum();
            let open = survey.iter().filter(|v| v.state == State::Open);
            Sizes {
                live: used.saturating_sub(dead),
                dead,
                free: open.map(|v| segment_bytes - v.used_bytes).sum(),
                disk: logs.total_segments() as u64 * segment_bytes,
            }
        }
        Stored::Slabs(slabs) => {
            let (taken, used) = slabs.taken_bytes();
            let all = slabs.total_superblocks() as u64;
            let disk = all * u64::from(SEGMENT_BYTES);
            Sizes { live: taken, dead: 0, free: used - taken, disk }
        }
    }
}

pub(crate) fn of<M: Memory, I: Memory>(map: &Map<M, I>) -> MapStats {
    let engine = &map.inner.engine;
    let values = &engine.values;
    let Sizes { live, dead, free, disk } = sizes(values);
    let (bytes_written, syncs) = values.medium().traffic();
    let [index_nodes, index_node_bytes] = engine.index.looked_at();
    let written = engine.written.iter();
    let (redo_log, redo_log_bytes) = values.logs().and_then(Logs::redo_log).unzip();
    MapStats {
        keys: engine.len(),
        live_bytes: live,
        dead_bytes: dead,
        free_bytes: free,
        memory_used_bytes: engine.budget.used(),
        memory_budget_bytes: engine.budget.limit(),
        index_bytes: engine.index.bytes(),
        disk_bytes: disk,
        away: values.logs().map(Logs::away_stats).unwrap_or_default(),
        far: values.logs().map(Logs::far_stats).unwrap_or_default(),
        far_tier: engine.plan.far.as_ref().map(|far| far.name().into()),
        saved_index: match engine.plan.may_spill {
            true => values.logs().map(Logs::saved_stats).unwrap_or_default(),
            false => SavedStats::default(),
        },
        scrub: engine.scrub_stats(),
        redo_log,
        redo_log_bytes: redo_log_bytes.unwrap_or(0),
        bytes_written,
        item_bytes_written: written.map(|of| of.item_bytes.load(Ordering::Relaxed)).sum(),
        item_reads: engine.written.iter().map(|of| of.reads.load(Ordering::Relaxed)).sum(),
        blind_writes: engine.blind.written(),
        syncs,
        collections: engine.counters.collected.load(Ordering::Relaxed),
        moved_bytes: engine.counters.moved_bytes.load(Ordering::Relaxed),
        evicted: engine.counters.evicted.load(Ordering::Relaxed),
        snapshot_bytes: engine.versions.bytes(),
        expired: engine.counters.expired.load(Ordering::Relaxed),
        stopped: values.stopped().map(str::to_string),
        design: if values.logs().is_some() { "log".into() } else { "slab".into() },
        domain: engine.plan.domain.to_string(),
        index_tier: engine.plan.in_dram.tier.as_ref().map(|tier| tier.name.clone()),
        index_nodes,
        index_node_bytes,
        lookups_together: engine.plan.lookups_together,
        index: engine.index.to_string(),
    }
}
