//! Sizes and counts of a map.

use crate::map::Map;
use std::sync::atomic::Ordering;
use terrace_durable::logs::SEGMENT_BYTES;

/// Sizes and counts of a map at one moment.
#[derive(Clone, Debug, Default)]
pub struct MapStats {
    /// Keys.
    pub keys: u64,
    /// Bytes of items that are pointed to, tombstones included; open logs count as full.
    pub live_bytes: u64,
    /// Bytes of items nobody points to any more, waiting for collection.
    pub dead_bytes: u64,
    /// Bytes of memory in use: images of the logs and the index.
    pub memory_used_bytes: u64,
    /// Bytes of memory allowed.
    pub memory_budget_bytes: u64,
    /// Bytes of memory the index takes.
    pub index_bytes: u64,
    /// Bytes of the value file.
    pub disk_bytes: u64,
    /// Bytes written to the medium since the map was opened.
    pub bytes_written: u64,
    /// Syncs since the map was opened.
    pub syncs: u64,
    /// Logs collected since the map was opened.
    pub collections: u64,
    /// Bytes the collector moved.
    pub moved_bytes: u64,
    /// Keys evicted to make room.
    pub evicted: u64,
    /// Expired keys swept.
    pub expired: u64,
    /// Why the map takes no more writes, if it does not.
    pub stopped: Option<String>,
    /// The value design.
    pub design: String,
    /// The persistence domain.
    pub domain: String,
}

pub(crate) fn of(map: &Map) -> MapStats {
    let engine = &map.inner.engine;
    let values = &engine.values;
    let survey = values.survey();
    let segment_bytes = u64::from(SEGMENT_BYTES);
    let dead_bytes: u64 = survey.iter().map(|v| v.dead_bytes).sum();
    let used: u64 = survey.iter().map(|v| if v.used_bytes == 0 { segment_bytes } else { v.used_bytes }).sum();
    let (bytes_written, syncs) = values.medium().traffic();
    MapStats {
        keys: engine.len(),
        live_bytes: used.saturating_sub(dead_bytes),
        dead_bytes,
        memory_used_bytes: engine.budget.used(),
        memory_budget_bytes: engine.budget.limit(),
        index_bytes: engine.index.stats().bytes,
        disk_bytes: values.total_segments() as u64 * segment_bytes,
        bytes_written,
        syncs,
        collections: engine.counters.collected.load(Ordering::Relaxed),
        moved_bytes: engine.counters.moved_bytes.load(Ordering::Relaxed),
        evicted: engine.counters.evicted.load(Ordering::Relaxed),
        expired: engine.counters.expired.load(Ordering::Relaxed),
        stopped: values.stopped().map(str::to_string),
        design: "log".into(),
        domain: engine.options.domain.to_string(),
    }
}
