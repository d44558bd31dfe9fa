//! Space on disk while all of an engine's data is written over, several times.

use crate::engine::Engine;
use crate::job::Subject;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_workload::Failure;
use terrace_workload::system::{Io, disk_use};
use terrace_workload::ycsb::{Bench, Distribution, LoadBy, Settings, Workload};

/// Times each record is written over, on average.
const ROUNDS: u64 = 5;
/// Longest run of updates; slow engines do fewer rounds in it.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the files are measured.
const SAMPLE: Duration = Duration::from_millis(50);

/// Space taken, in bytes of allocated blocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpaceReport {
    /// Keys and values the engine holds, all along.
    pub live_bytes: u64,
    /// Taken after the load and its flush.
    pub after_load_bytes: u64,
    /// Median during the second half of the updates.
    pub sustained_bytes: u64,
    /// Most during the updates.
    pub peak_bytes: u64,
    /// Taken after the engine was closed.
    pub after_close_bytes: u64,
    /// Keys and values handed to it, load and updates.
    pub user_bytes_written: u64,
    /// What the storage layer was sent for it, until after the close.
    pub storage_written_bytes: u64,
    /// Updates a second.
    pub updates_per_s: f64,
}

/// Loads an engine, updates records evenly, and watches its folder.
pub fn measure<E: Engine>(subject: &Subject) -> Result<SpaceReport, Failure> {
    let records = subject.settings.records;
    let mut bench = Bench::new(Settings {
        distribution: Some(Distribution::Uniform),
        operations: records * ROUNDS,
        duration: LIMIT.min(subject.settings.duration * 12),
        warm_up: Duration::ZERO,
        ..subject.settings.clone()
    })?;
    let io = Io::now();
    let directory = &subject.directory;
    let engine = E::open(directory, &subject.open_options())?;
    let load = bench.load(&engine, LoadBy::Batches, &|_| ())?;
    let after_load_bytes = disk_use(directory).allocated_bytes;
    let stop = AtomicBool::new(false);
    let (phase, samples) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut samples = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                samples.push(disk_use(directory).allocated_bytes);
                std::thread::sleep(SAMPLE);
            }
            samples
        });
        let phase = bench.run(&engine, Workload::U);
        stop.store(true, Ordering::Relaxed);
        (phase, sampler.join().unwrap_or_default())
    });
    let phase = phase?;
    let mut late = samples[samples.len() / 2..].to_vec();
    late.sort_unstable();
    let live_bytes = bench.live_bytes();
    engine.close()?;
    Ok(SpaceReport {
        live_bytes,
        after_load_bytes,
        sustained_bytes: late.get(late.len() / 2).copied().unwrap_or(after_load_bytes),
        peak_bytes: samples.iter().copied().max().unwrap_or(after_load_bytes),
        after_close_bytes: disk_use(directory).allocated_bytes,
        user_bytes_written: load.user_bytes_written + phase.user_bytes_written,
        storage_written_bytes: Io::now().since(&io).storage_written_bytes,
        updates_per_s: phase.ops_per_s,
    })
}
