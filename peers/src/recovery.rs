//! Time from the start of opening a killed engine's files to the first answer.

use crate::engine::Engine;
use crate::job::Subject;
use crate::process::READY;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_workload::Failure;
use terrace_workload::system::{Io, Memory};
use terrace_workload::ycsb::keys::{Values, write_key};
use terrace_workload::ycsb::{Bench, Handle, LoadBy};

/// What opening found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Records loaded and flushed before the kill.
    pub records: u64,
    /// Seconds until the engine was open.
    pub open_s: f64,
    /// Seconds until it had answered a first lookup.
    pub first_get_s: f64,
    /// Records lost; 0 for a sound engine.
    pub missing: u64,
    /// Records with a wrong value; 0 for a sound engine.
    pub bad: u64,
    /// Bytes fetched from storage until the first answer.
    pub storage_read_bytes: u64,
    /// Resident memory after the first answer.
    pub resident_bytes: u64,
}

/// Loads and flushes, then waits to be killed.
pub fn fill<E: Engine>(subject: &Subject) -> Result<String, Failure> {
    let bench = Bench::new(subject.settings.clone())?;
    let engine = E::open(&subject.directory, &subject.load_options())?;
    bench.load(&engine, LoadBy::Batches, &|_| ())?;
    println!("{READY}");
    std::thread::sleep(Duration::from_secs(600));
    Err("nobody came to kill this process".into())
}

/// Opens what is there, then reads all of it.
pub fn recover<E: Engine>(subject: &Subject) -> Result<RecoveryReport, Failure> {
    let settings = &subject.settings;
    let values = Values::new(settings.value_bytes);
    let (mut key, mut value) = (vec![0; settings.key_bytes], Vec::new());
    let (io, start) = (Io::now(), Instant::now());
    let engine = E::open(&subject.directory, &subject.load_options())?;
    let open_s = start.elapsed().as_secs_f64();
    let mut report = RecoveryReport {
        records: settings.records,
        open_s,
        first_get_s: open_s,
        missing: 0,
        bad: 0,
        storage_read_bytes: 0,
        resident_bytes: 0,
    };
    {
        let mut handle = engine.handle()?;
        for record in 0..settings.records {
            write_key(settings.insert_order, record, &mut key);
            if !handle.get(&key, &mut value)? {
                report.missing += 1;
            } else if !values.is_whole(record, &value) {
                report.bad += 1;
            }
            if record == 0 {
                report.first_get_s = start.elapsed().as_secs_f64();
                report.storage_read_bytes = Io::now().since(&io).storage_read_bytes;
                report.resident_bytes = Memory::now().resident_bytes;
            }
        }
    }
    engine.close()?;
    Ok(report)
}

/// Writes back and drops a folder's pages from the page cache, and no others.
pub fn evict(directory: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            evict(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}
