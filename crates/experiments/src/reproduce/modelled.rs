//! Maps on the modelled Optane server: index and values as they are, in virtual time.
//!
//! Values lie on `pmem0`, the index on `dram0`, or on `pmem0` too if it is kept; every access to them is
//! charged to the logical thread that made it. Threads run on the cores of one socket, that of both
//! memories, each with a writer of its own. What else a map keeps in DRAM is small and charged for
//! nothing: free slots as bits, dead bytes of logs as counters, locks of writers.
//!
//! # Work that is no access
//! On the model no instruction takes time but what it is told of. Each operation is charged
//! [`WORK_NS`], the same for all designs: what an update of 64 bytes took this project's machine in a
//! map that its first caches held.

use super::error::{Error, Result};
use crate::structures::Random;
use std::time::Duration;
use terrace_machine::model::{NodeCounts, ThreadCounts};
use terrace_machine::{Machine, Modelled, Preset};
use terrace_memory::Domain;
use terrace_store::{Durability, Map, MapOptions, Persist, Session, ValueDesign};

/// The paper's machine.
pub(super) const PRESET: &str = "optane-000";
/// Processor time of an operation, beside its accesses.
pub(super) const WORK_NS: f64 = 150.0;
/// What is random in its caches is so by this seed.
const SEED: u64 = 1;
/// Bytes of a log and of a superblock.
const SEGMENT_BYTES: u64 = 4 << 20;
/// Key, header, and what a slot may leave unused.
const BESIDE_VALUE_BYTES: u64 = 48;
/// Of an index in DRAM and of one that is kept.
const INDEX_BYTES_PER_KEY: [u64; 2] = [24, 48];
/// Bytes of values for which books have one.
const VALUES_PER_BOOKS: u64 = 256;

/// One logical thread's handle.
pub(super) type Worker = Session<Modelled, Modelled>;

/// A map on a machine of its own.
pub(super) struct ModelledMap {
    pub machine: Machine,
    pub map: Map<Modelled, Modelled>,
    workers: Vec<Worker>,
    randoms: Vec<Random>,
    pub keys: u64,
    value_bytes: usize,
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// Operations of all threads.
    pub operations: u64,
    /// Virtual time, all threads together from the first operation to the last.
    pub time: Duration,
    /// What went in and out of the persistent memory.
    pub pmem: NodeCounts,
    /// What all threads did and waited for.
    pub threads: ThreadCounts,
}

impl Ran {
    /// Million operations a second.
    pub fn million_s(&self) -> f64 {
        self.operations as f64 / 1e6 / self.time.as_secs_f64()
    }
}

/// Options of a map of this design whose every write is durable when it is acknowledged.
pub(super) fn options(values: ValueDesign, threads: usize) -> MapOptions {
    MapOptions {
        durability: Durability::Sync,
        domain: Domain::Adr,
        values,
        memory_budget_bytes: 1 << 40,
        writers: threads,
        ..MapOptions::default()
    }
}

impl ModelledMap {
    /// An empty map for `items` values of `value_bytes`, used by as many threads as it has writers.
    pub fn new(
        preset: &Preset,
        items: u64,
        value_bytes: usize,
        options: MapOptions,
    ) -> Result<ModelledMap> {
        let threads = options.writers;
        let machine = Machine::new(preset, threads, SEED);
        // What open logs, size classes and the collector keep for themselves.
        let aside = (threads as u64 + 24) * SEGMENT_BYTES;
        let bytes = items * (value_bytes as u64 + BESIDE_VALUE_BYTES) * 9 / 8;
        let bytes = bytes.next_multiple_of(SEGMENT_BYTES) + aside;
        let is_kept = matches!(options.persist, Persist::Index | Persist::Full);
        let index_bytes = items * INDEX_BYTES_PER_KEY[usize::from(is_kept)] + (1 << 20);
        let memory = |node: &str, bytes: u64| {
            machine
                .memory(node, bytes, options.domain)
                .map_err(Error::system("reserve memory for the modelled machine"))
        };
        let values = memory("pmem0", bytes)?;
        let map = match is_kept {
            true => {
                let index = memory("pmem0", index_bytes + bytes / VALUES_PER_BOOKS)?;
                Map::over_with_index(values, index, true, 1, options)?
            }
            false => Map::over_with_dram(values, &memory("dram0", index_bytes)?, true, 1, options)?,
        };
        let workers = (0..threads).map(|_| map.session()).collect();
        let randoms = (0..threads as u64).map(|thread| Random(SEED + thread)).collect();
        Ok(ModelledMap { machine, map, workers, randoms, keys: 0, value_bytes })
    }

    /// Writes `keys` keys, the threads a share each.
    pub fn fill(&mut self, keys: u64) -> Result<()> {
        self.keys = keys;
        let value = vec![1; self.value_bytes];
        let threads = self.workers.len() as u64;
        self.run(keys.div_ceil(threads), 0.0, |worker, thread, number, _| {
            let key = number * threads + thread;
            if key < keys { worker.put(&key.to_be_bytes(), &value, None) } else { Ok(()) }
        })?;
        Ok(())
    }

    /// Updates `count` keys, each chosen alike.
    pub fn update(&mut self, count: u64) -> Result<Ran> {
        let (value, keys) = (vec![2; self.value_bytes], self.keys);
        let each = count / self.workers.len() as u64;
        self.run(each, WORK_NS, |worker, _, _, random| {
            worker.put(&random.below(keys).to_be_bytes(), &value, None)
        })
    }

    /// Deletes `count` keys in no order.
    pub fn delete(&mut self, count: u64) -> Result<Ran> {
        let (keys, threads) = (self.keys, self.workers.len() as u64);
        self.run(count / threads, WORK_NS, |worker, thread, number, _| {
            // A large prime: every key comes once.
            let key = (number * threads + thread).wrapping_mul(2_654_435_761) % keys;
            worker.delete(&key.to_be_bytes()).map(|_| ())
        })
    }

    /// Has each thread do `each` operations, told its session, its number, the operation's number and a
    /// random source; each takes so many nanoseconds beside its accesses. They run to their end one by one,
    /// the thread furthest behind first: nobody waits for a lock.
    pub fn run(
        &mut self,
        each: u64,
        work_ns: f64,
        operation: impl Fn(&mut Worker, u64, u64, &mut Random) -> terrace_store::Result<()>,
    ) -> Result<Ran> {
        let before = self.counts();
        let mut failed = None;
        let time = {
            let machine = &self.machine;
            let failed = std::cell::RefCell::new(&mut failed);
            let threads = self.workers.iter_mut().zip(&mut self.randoms).zip(0..);
            let (operation, failed) = (&operation, &failed);
            let mut steps: Vec<_> = threads
                .map(|((worker, random), thread)| {
                    let mut number = 0;
                    move || {
                        if number == each {
                            return false;
                        }
                        let done = operation(worker, thread, number, random)
                            .and_then(|()| worker.commit());
                        machine.compute_ns(work_ns);
                        number += 1;
                        done.map_err(|error| **failed.borrow_mut() = Some(error)).is_ok()
                    }
                })
                .collect();
            machine.run_steps(&mut steps)
        };
        if let Some(error) = failed {
            return Err(Error::Map(error));
        }
        let operations = each * self.workers.len() as u64;
        let (pmem, threads) = self.counts();
        Ok(Ran { operations, time, pmem: pmem - before.0, threads: threads - before.1 })
    }

    fn counts(&self) -> (NodeCounts, ThreadCounts) {
        let pmem = self.machine.node_counts("pmem0").expect("the memory of the values");
        let threads = (0..self.machine.threads()).map(|thread| self.machine.thread_counts(thread));
        (pmem, threads.fold(ThreadCounts::default(), add))
    }
}

/// The sum.
fn add(sum: ThreadCounts, more: ThreadCounts) -> ThreadCounts {
    ThreadCounts {
        accesses: sum.accesses + more.accesses,
        misses: sum.misses + more.misses,
        fence_wait_ps: sum.fence_wait_ps + more.fence_wait_ps,
        store_wait_ps: sum.store_wait_ps + more.store_wait_ps,
        buffer_wait_ps: sum.buffer_wait_ps + more.buffer_wait_ps,
        memory_wait_ps: sum.memory_wait_ps + more.memory_wait_ps,
        eviction_wait_ps: sum.eviction_wait_ps + more.eviction_wait_ps,
        ..sum
    }
}
