//! What a run found, ready to be written as JSON.

use super::latency::Latency;
use super::settings::Workload;
use crate::system::{Io, Memory, NOISY_CORES, ProcessorUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One workload, run once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Which.
    pub workload: Workload,
    /// Choice of records, e.g. `zipfian(0.99)`.
    pub distribution: String,
    /// Threads, each with a handle of its own.
    pub threads: usize,
    /// Operations done; G counts keys, E scans, F a read-modify-write as one.
    pub operations: u64,
    /// Wall-clock time from the start of the first thread to the end of the last.
    pub seconds: f64,
    /// Their ratio.
    pub ops_per_s: f64,
    /// Reads that found nothing where a value had been written; 0 for a sound store.
    pub misses: u64,
    /// Reads whose value was not one written to that key; 0 for a sound store.
    pub bad: u64,
    /// Records seen by scans.
    pub scanned_records: u64,
    /// Keys and values handed to the store.
    pub user_bytes_written: u64,
    /// Latencies by kind of operation (`read`, `update`, `insert`, `scan`, `read_modify_write`,
    /// `batch_read`) and over `all`.
    pub latency: BTreeMap<String, Latency>,
    /// This process's memory at the end.
    pub memory: Memory,
    /// This process's I/O during the run.
    pub io: Io,
    /// Who used the processors during the run.
    pub processors: ProcessorUse,
}

impl PhaseReport {
    /// Latency over all kinds of operation.
    pub fn overall_latency(&self) -> Latency {
        self.latency.get("all").copied().unwrap_or_default()
    }

    /// Whether every read found what had been written.
    pub fn is_sound(&self) -> bool {
        self.misses == 0 && self.bad == 0
    }

    /// Whether other processes used so much of the machine that the figures are in doubt.
    pub fn is_noisy(&self) -> bool {
        self.processors.foreign_cores >= NOISY_CORES
    }
}

/// The loading of the records, before any workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Records written.
    pub records: u64,
    /// Threads that wrote them.
    pub threads: usize,
    /// Wall-clock time without the flush.
    pub seconds: f64,
    /// Records a second without the flush.
    pub ops_per_s: f64,
    /// Time the flush after it took.
    pub flush_seconds: f64,
    /// Keys and values handed to the store.
    pub user_bytes_written: u64,
    /// Latency of single puts; absent for a load in batches.
    pub latency: Option<Latency>,
    /// This process's memory before the load.
    pub memory_before: Memory,
    /// This process's memory after the load and its flush.
    pub memory_after: Memory,
    /// This process's I/O during the load and its flush.
    pub io: Io,
    /// Who used the processors during the load.
    pub processors: ProcessorUse,
}

impl LoadReport {
    /// Memory the store took for each record beyond its key and value, in bytes: growth of the
    /// resident set, mapped files included. Negative for a store that leaves its records on disk.
    pub fn overhead_bytes_per_record(&self) -> f64 {
        let grown = self.memory_after.resident_bytes as f64
            - self.memory_before.resident_bytes as f64
            - self.user_bytes_written as f64;
        grown / self.records.max(1) as f64
    }
}
