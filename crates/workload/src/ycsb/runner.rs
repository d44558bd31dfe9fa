//! Loads a store and runs workloads on it, thread by thread.

use super::distribution::Choices;
use super::insertion::Insertions;
use super::keys::{Values, write_key};
use super::latency::Latencies;
use super::report::{LoadReport, PhaseReport};
use super::settings::{Settings, SettingsError, Workload};
use super::target::{Handle, Target};
use super::worker::{KINDS, Limits, Shared, Tally, Worker};
use crate::Failure;
use crate::random::{Rng, mix};
use crate::system::{Io, Memory, Processors};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest stream of choices a thread walks round (16 MiB).
const MAX_CHOICES: u64 = 1 << 22;
/// Records of one batch of a batched load.
const LOAD_BATCH: u64 = 1000;
/// Records a loading thread claims at a time.
const LOAD_CLAIM: u64 = 64;

/// How records get into the store before the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBy {
    /// One put a record, from every thread: the load is itself a measurement.
    Puts,
    /// Batches of 1000 from one thread, where single durable puts would take hours.
    Batches,
}

/// One store's series of runs: remembers which records there are from one run to the next.
#[derive(Debug)]
pub struct Bench {
    settings: Settings,
    values: Values,
    insertions: Insertions,
    runs: u64,
}

impl Bench {
    /// A series on a store of `settings.records` records.
    ///
    /// # Errors
    /// A setting is out of its range.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(Self {
            values: Values::new(settings.value_bytes),
            insertions: Insertions::after(settings.records, settings.threads),
            settings,
            runs: 0,
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Bytes of keys and values the store should hold now.
    pub fn live_bytes(&self) -> u64 {
        self.insertions.records() * self.record_bytes()
    }

    fn record_bytes(&self) -> u64 {
        (self.settings.key_bytes + self.settings.value_bytes) as u64
    }

    /// Writes all records and flushes. `progress` hears now and then how many are written.
    ///
    /// # Errors
    /// The store's first failure.
    pub fn load<T: Target>(
        &self,
        target: &T,
        by: LoadBy,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<LoadReport, Failure> {
        let memory_before = Memory::now();
        let (io, processors, start) = (Io::now(), Processors::now(), Instant::now());
        let latency = match by {
            LoadBy::Puts => Some(self.load_by_puts(target, progress)?),
            LoadBy::Batches => {
                self.load_by_batches(target, progress)?;
                None
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let start_flush = Instant::now();
        target.flush()?;
        Ok(LoadReport {
            records: self.settings.records,
            threads: if by == LoadBy::Puts { self.settings.threads } else { 1 },
            seconds,
            ops_per_s: self.settings.records as f64 / seconds.max(1e-9),
            flush_seconds: start_flush.elapsed().as_secs_f64(),
            user_bytes_written: self.settings.records * self.record_bytes(),
            latency: latency.map(|latencies| latencies.summary()),
            memory_before,
            memory_after: Memory::now(),
            io: Io::now().since(&io),
            processors: processors.elapsed(),
        })
    }

    fn load_by_puts<T: Target>(
        &self,
        target: &T,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Latencies, Failure> {
        let next = AtomicU64::new(0);
        let mut all = Latencies::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.settings.threads)
                .map(|thread| {
                    let next = &next;
                    scope.spawn(move || self.load_some(target, thread, next, progress))
                })
                .collect();
            for thread in threads {
                all.add(&joined(thread)?);
            }
            Ok(all)
        })
    }

    /// One thread's share of a load: claims records until there are none left.
    fn load_some<T: Target>(
        &self,
        target: &T,
        thread: usize,
        next: &AtomicU64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Latencies, Failure> {
        let mut handle = target.handle()?;
        let mut rng = Rng::new(77 + thread as u64);
        let mut key = vec![0; self.settings.key_bytes];
        let mut value = vec![0; self.settings.value_bytes];
        let mut latencies = Latencies::new();
        let records = self.settings.records;
        loop {
            let first = next.fetch_add(LOAD_CLAIM, Ordering::Relaxed);
            if first >= records {
                return Ok(latencies);
            }
            if first.is_multiple_of(LOAD_CLAIM * 256) {
                progress(first);
            }
            for record in first..(first + LOAD_CLAIM).min(records) {
                write_key(self.settings.insert_order, record, &mut key);
                self.values.write(record, &mut rng, &mut value);
                let timed = record % self.settings.sample_every == 0;
                let start = timed.then(Instant::now);
                handle.put(&key, &value)?;
                if let Some(start) = start {
                    latencies.record(start.elapsed());
                }
            }
        }
    }

    fn load_by_batches<T: Target>(
        &self,
        target: &T,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Failure> {
        let mut handle = target.handle()?;
        let mut rng = Rng::new(5);
        let pair = (vec![0; self.settings.key_bytes], vec![0; self.settings.value_bytes]);
        let mut batch = vec![pair; LOAD_BATCH as usize];
        for first in (0..self.settings.records).step_by(LOAD_BATCH as usize) {
            let end = (first + LOAD_BATCH).min(self.settings.records);
            for (record, (key, value)) in (first..end).zip(&mut batch) {
                write_key(self.settings.insert_order, record, key);
                self.values.write(record, &mut rng, value);
            }
            handle.put_batch(&batch[..(end - first) as usize])?;
            progress(end);
        }
        Ok(())
    }

    /// Warms up, then runs one workload.
    ///
    /// # Errors
    /// The store's first failure, or a store without order asked for workload E.
    pub fn run<T: Target>(
        &mut self,
        target: &T,
        workload: Workload,
    ) -> Result<PhaseReport, Failure> {
        if workload.needs_order() && !target.is_ordered() {
            return Err(format!("workload {workload} needs a store that scans in order").into());
        }
        self.runs += 1;
        let seed = mix(self.settings.seed) ^ mix(self.runs << 8 | workload as u64);
        // Without a bound of operations one thread's share is all there are.
        let length = (self.settings.operations / self.settings.threads as u64)
            .saturating_add(64)
            .clamp(1 << 12, MAX_CHOICES) as usize;
        let distribution = self.settings.distribution_of(workload);
        let choices: Vec<Choices> = (0..self.settings.threads as u64)
            .map(|thread| distribution.choices(self.settings.records, length, seed ^ (thread + 1)))
            .collect();
        if !self.settings.warm_up.is_zero() {
            let operations = (self.settings.operations / 10).max(1);
            self.phase(target, workload, &choices, (self.settings.warm_up, operations), seed ^ 1)?;
        }
        let limits = (self.settings.duration, self.settings.operations);
        let (io, processors) = (Io::now(), Processors::now());
        let (tally, seconds) = self.phase(target, workload, &choices, limits, seed)?;
        Ok(PhaseReport {
            workload,
            distribution: distribution.to_string(),
            threads: self.settings.threads,
            operations: tally.operations,
            seconds,
            ops_per_s: tally.operations as f64 / seconds.max(1e-9),
            misses: tally.misses,
            bad: tally.bad,
            scanned_records: tally.scanned_records,
            user_bytes_written: tally.user_bytes_written,
            latency: summaries(&tally),
            memory: Memory::now(),
            io: Io::now().since(&io),
            processors: processors.elapsed(),
        })
    }

    /// All threads, started together; what they counted and how long the slowest took, in seconds.
    fn phase<T: Target>(
        &self,
        target: &T,
        workload: Workload,
        choices: &[Choices],
        (duration, operations): (Duration, u64),
        seed: u64,
    ) -> Result<(Tally, f64), Failure> {
        let shared = Shared {
            settings: &self.settings,
            mix: workload.mix(),
            values: &self.values,
            insertions: &self.insertions,
        };
        let stop = AtomicBool::new(false);
        let barrier = Barrier::new(choices.len());
        let share = operations.div_ceil(choices.len() as u64);
        let work = |thread: usize| {
            let handle = target.handle();
            barrier.wait();
            let start = Instant::now();
            let end = start + duration.min(Duration::from_secs(1 << 30));
            let limits = Limits { stop: &stop, end, operations: share };
            let tally = handle.and_then(|handle| {
                Worker::new(&shared, handle, thread, &choices[thread], seed).run(&limits)
            });
            // The others stop too, so that no thread ever runs alone.
            stop.store(true, Ordering::Relaxed);
            tally.map(|tally| (tally, start.elapsed().as_secs_f64()))
        };
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                (0..choices.len()).map(|thread| scope.spawn(move || work(thread))).collect();
            let (mut all, mut slowest_s) = (Tally::new(), 0.0f64);
            for thread in threads {
                let (tally, seconds) = joined(thread)?;
                all.add(&tally);
                slowest_s = slowest_s.max(seconds);
            }
            Ok((all, slowest_s))
        })
    }
}

/// A thread's result; its panic becomes a failure of the run.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().map_err(|_| Failure::from("a worker thread panicked"))?
}

fn summaries(tally: &Tally) -> std::collections::BTreeMap<String, super::Latency> {
    let mut all = Latencies::new();
    let mut summaries = std::collections::BTreeMap::new();
    for (name, latencies) in KINDS.iter().zip(&tally.latencies) {
        if !latencies.is_empty() {
            summaries.insert((*name).to_string(), latencies.summary());
            all.add(latencies);
        }
    }
    summaries.insert("all".to_string(), all.summary());
    summaries
}
