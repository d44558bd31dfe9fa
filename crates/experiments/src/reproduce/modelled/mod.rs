//! Maps on the modelled Optane server: index and values as they are, in virtual time.
//!
//! Values lie on `pmem0`, unless a row puts them elsewhere, the index on `dram0`, or beside the values if it is
//! kept; every access to them is charged to the logical thread that made it. Threads run on the cores of one
//! socket, that of both memories, each with a writer of its own. What else a map keeps in DRAM is small and charged
//! for nothing: free slots as bits, places written last, dead bytes of logs as counters, writers. What instructions
//! take is charged beside it: see [`work`].

mod collector;
mod work;
mod ycsb;

pub(super) use collector::Collector;
pub(super) use work::{Work, label, label_of_ordered};
pub(super) use ycsb::{Mix, Ycsb};

use super::error::{Error, Result};
use crate::structures::Random;
use std::cell::RefCell;
use std::sync::Mutex;
use std::time::Duration;
use terrace_machine::model::{NodeCounts, ThreadCounts};
use terrace_machine::{Machine, Modelled, Preset};
use terrace_memory::Domain;
use terrace_store::{Durability, Kind, Map, MapOptions, Persist, Session, ValueDesign};
use work::Costs;

/// The paper's machine.
const PRESET: &str = "optane-000";
/// Its persistent memory.
pub(super) const PMEM: &str = "pmem0";
/// Its DRAM, of the same socket.
pub(super) const DRAM: &str = "dram0";
/// Seed of the modelled caches.
const SEED: u64 = 1;
/// Bytes of a log and of a superblock.
const SEGMENT_BYTES: u64 = 4 << 20;
/// Key, header, and what a slot may leave unused.
const BESIDE_VALUE_BYTES: u64 = 48;
/// Of a hash table in DRAM, and of any other index.
const INDEX_BYTES_PER_KEY: [u64; 2] = [24, 48];
/// Operations between two looks whether the collector's queue is full.
const COLLECT_EVERY: u64 = 64;
/// Bytes of values for each byte of allocation metadata.
const VALUES_PER_METADATA: u64 = 256;

/// The paper's machine.
pub(super) fn preset() -> Preset {
    Preset::named(PRESET).expect("a preset that is compiled in")
}

/// Threads of a measurement: a core of the socket each.
pub(super) fn all_threads(preset: &Preset) -> usize {
    preset.processor.cores_per_socket
}

/// So many keys that items with values of this many bytes fill twice the caches that so many threads use.
pub(super) fn keys_beyond_caches(preset: &Preset, threads: usize, value_bytes: usize) -> u64 {
    let own = preset.cache.iter().rev().skip(1).map(|level| level.bytes).max().unwrap_or(0);
    let shared = preset.cache.last().map_or(0, |level| level.bytes);
    2 * (shared + own * threads as u64) / (value_bytes as u64 + 16)
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

/// One logical thread's handle.
pub(super) type Worker = Session<Modelled, Modelled>;

/// What a thread does again and again: with its session, its number, the operation's number and a source
/// of randomness. Tells what it did.
pub(super) trait Operation:
    Fn(&mut Worker, u64, u64, &mut Random) -> terrace_store::Result<Work> + Sync
{
}

impl<F> Operation for F where
    F: Fn(&mut Worker, u64, u64, &mut Random) -> terrace_store::Result<Work> + Sync
{
}

/// A map on a machine of its own.
pub(super) struct ModelledMap {
    pub machine: Machine,
    pub map: Map<Modelled, Modelled>,
    options: MapOptions,
    /// The memory of the values, and of an index that is kept.
    node: &'static str,
    values: Modelled,
    /// Of an index that is kept, or ordered.
    index: Option<Modelled>,
    /// Of a hash table in DRAM.
    index_bytes: u64,
    workers: Vec<(Worker, Random)>,
    keys: u64,
    value_bytes: usize,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ran {
    /// Operations of all threads.
    pub operations: u64,
    /// Threads.
    pub threads: usize,
    /// Virtual time, from the first operation to the last.
    pub time: Duration,
    /// What went in and out of the memory of the values.
    pub pmem: NodeCounts,
    /// Waited by all threads for others, at locks, ns.
    pub paused_ns: f64,
}

impl Ran {
    /// Million operations a second.
    pub fn million_s(&self) -> f64 {
        self.operations as f64 / 1e6 / self.time.as_secs_f64()
    }

    /// Nanoseconds of a thread for an operation.
    pub fn ns(&self) -> f64 {
        self.time.as_nanos() as f64 * self.threads as f64 / self.operations as f64
    }

    /// Part of the threads' time that they wait at locks.
    pub fn at_locks(&self) -> f64 {
        self.paused_ns / (self.time.as_nanos() as f64 * self.threads as f64)
    }

    /// Bytes read of persistent memory for an operation.
    pub fn read_bytes(&self) -> f64 {
        self.pmem.read_bytes as f64 / self.operations as f64
    }

    /// Bytes written to the medium for an operation.
    pub fn media_bytes(&self) -> f64 {
        self.pmem.media_written_bytes as f64 / self.operations as f64
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
        ModelledMap::on(preset, PMEM, items, value_bytes, options)
    }

    /// The same with its values on another memory of the machine.
    pub fn on(
        preset: &Preset,
        node: &'static str,
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
        let is_ordered = options.kind == Kind::Ordered;
        let index_bytes =
            items * INDEX_BYTES_PER_KEY[usize::from(is_kept || is_ordered)] + (1 << 20);
        let values = memory(&machine, node, bytes, options.domain)?;
        let kept_bytes = index_bytes + bytes / VALUES_PER_METADATA;
        // A tree needs a memory of its own in DRAM too, where nothing is written back for it.
        let place = match is_kept {
            true => Some((node, options.domain)),
            false => is_ordered.then_some((DRAM, Domain::None)),
        };
        let index =
            place.map(|(node, domain)| memory(&machine, node, kept_bytes, domain)).transpose()?;
        let map = machine
            .free_of_charge(|| open(&machine, &values, index.as_ref(), index_bytes, &options, 0))?;
        let worker = |thread| (map.session(), Random(SEED + thread));
        let workers = (0..threads as u64).map(worker).collect();
        let (keys, machine) = (0, machine);
        Ok(ModelledMap {
            machine,
            map,
            options,
            node,
            values,
            index,
            index_bytes,
            workers,
            keys,
            value_bytes,
        })
    }

    /// Leaves the map as a crash would, with cold caches, and opens it again; by one thread.
    pub fn crash_and_open(self, lifetime: u32) -> Result<(ModelledMap, Duration)> {
        let ModelledMap { machine, map, workers, .. } = self;
        drop((map, workers));
        machine.clear_caches();
        let start = machine.elapsed();
        let ModelledMap { values, index, index_bytes, ref options, .. } = self;
        let map = open(&machine, &values, index.as_ref(), index_bytes, options, lifetime)?;
        let time = machine.elapsed() - start;
        Ok((ModelledMap { machine, map, values, index, workers: Vec::new(), ..self }, time))
    }

    /// Writes `keys` keys, the threads in turn; in no time, and past all caches.
    pub fn fill(&mut self, keys: u64) -> Result<()> {
        self.keys = keys;
        let value = vec![1; self.value_bytes];
        let ModelledMap { machine, workers, .. } = self;
        let threads = workers.len() as u64;
        machine.free_of_charge(|| {
            (0..keys).try_for_each(|key| {
                let (worker, _) = &mut workers[(key % threads) as usize];
                worker.put(&key.to_be_bytes(), &value, None)?;
                Ok(worker.commit()?)
            })
        })
    }

    /// An update of a key, each chosen alike.
    pub fn update(&self) -> impl Operation + use<> {
        let (value, keys) = (vec![2; self.value_bytes], self.keys);
        move |worker, _, _, random| {
            worker.put(&random.below(keys).to_be_bytes(), &value, None)?;
            Ok(Work::WRITE)
        }
    }

    /// The deletion of a key, each once in no order.
    pub fn delete(&self) -> impl Operation + use<> {
        let (keys, threads) = (self.keys, self.workers.len() as u64);
        move |worker, thread, number, _| {
            // A large prime: every key comes once.
            let key = (number * threads + thread).wrapping_mul(2_654_435_761) % keys;
            worker.delete(&key.to_be_bytes())?;
            Ok(Work::WRITE)
        }
    }

    /// Has each of the first `threads` threads do `each` operations. They run to their end one by one, the
    /// thread furthest behind first: nobody waits for a lock.
    pub fn in_turn(&mut self, threads: usize, each: u64, does: impl Operation) -> Result<Ran> {
        let (before, costs) = (self.counts(), Costs::of(&self.options));
        let failed = RefCell::new(None);
        let time = {
            let (machine, does, failed) = (&self.machine, &does, &failed);
            let mut steps: Vec<_> = self.workers[..threads]
                .iter_mut()
                .zip(0..)
                .map(|((worker, random), thread)| {
                    let mut number = 0;
                    move || {
                        if number == each || failed.borrow().is_some() {
                            return false;
                        }
                        match one(machine, costs, worker, does, [thread, number], random) {
                            Ok(()) => number += 1,
                            Err(error) => drop(failed.borrow_mut().get_or_insert(error)),
                        }
                        true
                    }
                })
                .collect();
            machine.run_steps(&mut steps)
        };
        failed.into_inner().map_or(Ok(()), Err)?;
        Ok(self.ran(threads, each, time, before))
    }

    /// The same with operations that overlap: a thread that finds a lock held waits for it. Slower to simulate.
    pub fn at_once(&mut self, threads: usize, each: u64, does: impl Operation) -> Result<Ran> {
        let (before, costs) = (self.counts(), Costs::of(&self.options));
        let failed = Mutex::new(None);
        let time = {
            let (machine, does, failed) = (&self.machine, &does, &failed);
            let bodies = self.workers[..threads].iter_mut().zip(0..);
            let bodies = bodies.map(|((worker, random), thread)| {
                let body = move || {
                    let mut numbers = 0..each;
                    let done = numbers.try_for_each(|number| {
                        one(machine, costs, worker, does, [thread, number], random)
                    });
                    if let Err(error) = done {
                        failed.lock().expect("no thread panicked").get_or_insert(error);
                    }
                };
                Box::new(body) as Box<dyn FnOnce() + Send>
            });
            machine.run_threads(bodies.collect())
        };
        failed.into_inner().expect("no thread panicked").map_or(Ok(()), Err)?;
        Ok(self.ran(threads, each, time, before))
    }

    fn ran(&self, threads: usize, each: u64, time: Duration, before: (NodeCounts, u64)) -> Ran {
        let (pmem, paused_ps) = self.counts();
        let paused_ns = (paused_ps - before.1) as f64 / 1e3;
        let operations = each * threads as u64;
        Ran { operations, threads, time, pmem: pmem - before.0, paused_ns }
    }

    fn counts(&self) -> (NodeCounts, u64) {
        let pmem = self.machine.node_counts(self.node).expect("the memory of the values");
        let paused = |thread| -> u64 {
            let counts: ThreadCounts = self.machine.thread_counts(thread);
            counts.paused_ps
        };
        (pmem, (0..self.machine.threads()).map(paused).sum())
    }
}

/// A memory of the machine.
fn memory(machine: &Machine, node: &str, bytes: u64, domain: Domain) -> Result<Modelled> {
    machine
        .memory(node, bytes, domain)
        .map_err(Error::system("reserve memory for the modelled machine"))
}

/// Opens a map, for the first time if `lifetime` is 0.
fn open(
    machine: &Machine,
    values: &Modelled,
    index: Option<&Modelled>,
    dram_bytes: u64,
    options: &MapOptions,
    lifetime: u32,
) -> Result<Map<Modelled, Modelled>> {
    let (values, is_new, options) = (values.clone(), lifetime == 0, options.clone());
    Ok(match index {
        Some(index) => Map::over_with_index(values, index.clone(), is_new, lifetime, options)?,
        None => {
            let dram = memory(machine, DRAM, dram_bytes, options.domain)?;
            Map::over_with_dram(values, &dram, is_new, lifetime, options)?
        }
    })
}

/// The same, waiting for the collector whenever its queue is full: the thread collects itself. An item
/// moved is charged as a write.
pub(super) fn collecting(does: impl Operation, value_bytes: usize) -> impl Operation {
    move |worker, thread, number, random| {
        let mut work = does(worker, thread, number, random)?;
        if number % COLLECT_EVERY == 0 {
            work.writes += collected(worker, value_bytes)?;
        }
        Ok(work)
    }
}

/// A round of the collector, if it is due: items moved.
fn collected(worker: &Worker, value_bytes: usize) -> terrace_store::Result<u64> {
    let before = worker.map().stats().moved_bytes;
    if worker.map().collect()? == 0 {
        return Ok(0);
    }
    Ok((worker.map().stats().moved_bytes - before) / (value_bytes as u64 + 16))
}

/// One operation of a thread, and its commit.
fn one(
    machine: &Machine,
    costs: Costs,
    worker: &mut Worker,
    does: &impl Operation,
    [thread, number]: [u64; 2],
    random: &mut Random,
) -> Result<()> {
    let work = does(worker, thread, number, random)?;
    worker.commit()?;
    machine.compute_ns(costs.ns(work));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updated(at_once: bool, threads: usize) -> Ran {
        let preset = preset().with_caches_divided(64);
        let options = options(ValueDesign::Log, 4);
        let mut map = ModelledMap::new(&preset, 8_000, 100, options).expect("a map");
        map.fill(4_000).expect("filled");
        assert_eq!(map.machine.elapsed(), Duration::ZERO, "filled in no time");
        let update = map.update();
        match at_once {
            true => map.at_once(threads, 100, update),
            false => map.in_turn(threads, 100, update),
        }
        .expect("updated")
    }

    #[test]
    fn a_run_in_virtual_time_is_the_same_each_time_and_more_threads_do_more() {
        for at_once in [false, true] {
            let [once, again, alone] = [4, 4, 1].map(|threads| updated(at_once, threads));
            assert_eq!((once.time, once.pmem), (again.time, again.pmem));
            let least_ns = Costs::of(&options(ValueDesign::Log, 4)).ns(Work::WRITE);
            assert!(once.ns() > least_ns && once.million_s() > 2.0 * alone.million_s());
        }
    }

    #[test]
    fn items_beyond_the_caches_are_more_bytes_than_the_caches() {
        let preset = preset();
        let bytes = keys_beyond_caches(&preset, 20, 1000) * 1016;
        assert!(bytes > 2 * 47_000_000, "27.5 MiB and 20 times 1 MiB");
        assert!(keys_beyond_caches(&preset, 1, 1000) < keys_beyond_caches(&preset, 20, 1000));
    }
}
