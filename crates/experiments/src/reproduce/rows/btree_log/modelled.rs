//! btree-LS, and FAST/FAIR beside it, on the modelled Optane server of Ni: of btree-LS the logs lie on `pmem0`,
//! mapping table and inner nodes on `dram0`; threads are on the cores of that socket, two to a core where there are
//! more.
//!
//! On the model no instruction takes time but accesses; those that find their line in the nearest cache stand
//! for the rest of an operation's work.

use super::super::Result;
use crate::reproduce::error::Error;
use crate::structures::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use terrace_index::Reserved;
use terrace_index::deltas::{Change, Deltas, Regions, Options, Pass, Replay};
use terrace_index::keys::Sixteen;
use terrace_index::tree::{Tree, TreeOptions};
use terrace_machine::model::NodeCounts;
use terrace_machine::{Machine, Modelled, Preset};
use terrace_memory::{Budget, Domain, Memory, lab};

/// The paper's machine.
const PRESET: &str = "optane-004";
/// Caches are so many times smaller than the paper's: its 160 million entries met them as a few million do.
const CACHES_DIVIDED: u64 = 16;
const SEED: u64 = 1;
/// Bytes of logs for an entry, and of DRAM.
const LOG_BYTES: u64 = 400;
const DRAM_BYTES: u64 = 80;
/// Bytes of a tree for an entry: leaves that are half full, and room for splits.
const TREE_BYTES: u64 = 256;
const ASIDE_BYTES: u64 = 1 << 20;
/// Threads that collect, beside those that write.
const COLLECTORS: usize = 4;

/// What notes say of it.
pub(in super::super) fn label() -> String {
    format!("modelled server {PRESET} with caches divided by {CACHES_DIVIDED}, virtual time")
}

type Index = Deltas<Modelled, Modelled>;

/// An index on a machine of its own.
pub(in super::super) struct ModelledIndex {
    machine: Machine,
    threads: usize,
    pub index: Index,
    logs: Modelled,
    options: Options,
    entries: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Ran {
    pub million_s: f64,
    pub pmem: NodeCounts,
}

/// The `n`-th key, in no order.
pub(in super::super) fn key(n: u64) -> [u8; 16] {
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(scattered) << 64 | u128::from(n)).to_be_bytes()
}

pub(in super::super) fn insert<P: Memory, D: Memory>(index: &Deltas<P, D>, n: u64) -> std::io::Result<()> {
    index.update(&key(n), &Sixteen, |_| Change::Set([n + 1, 0])).map(drop)
}

pub(in super::super) fn failed() -> impl FnOnce(std::io::Error) -> Error {
    Error::system("run an index of deltas")
}

fn reserve(memory: &Modelled) -> Reserved<Modelled> {
    Reserved { memory: memory.clone(), commit: Box::new(|_, _| Ok(())), start: 0 }
}

fn dram(machine: &Machine, entries: u64) -> std::io::Result<[Reserved<Modelled>; 2]> {
    let bytes = entries * DRAM_BYTES + ASIDE_BYTES;
    let memory = || machine.memory("dram0", bytes, Domain::None).map(|memory| reserve(&memory));
    Ok([memory()?, memory()?])
}

/// The paper's server with smaller caches.
pub(in super::super) fn preset() -> std::io::Result<Preset> {
    let preset = Preset::named(PRESET).map_err(std::io::Error::other)?;
    Ok(preset.with_caches_divided(CACHES_DIVIDED))
}

/// The same with so many threads on the cores of a socket.
fn server(threads: usize) -> Result<Machine> {
    let preset = preset().map_err(failed())?;
    let cores = preset.processor.cores_per_socket;
    let pins: Vec<usize> = (0..threads).map(|thread| thread % cores).collect();
    Ok(Machine::pinned(&preset, &pins, SEED))
}

/// What so many operations came to.
fn ran(machine: &Machine, operations: u64, run: impl FnOnce() -> Duration) -> Ran {
    let counts = || {
        machine.settle();
        machine.node_counts("pmem0").expect("the persistent memory")
    };
    let before = counts();
    let time = run();
    Ran { million_s: operations as f64 / 1e6 / time.as_secs_f64(), pmem: counts() - before }
}

/// Inserts and lookups in a tree on such a server, its inner nodes in a memory of this name and its leaves in
/// persistent memory.
pub(in super::super) fn in_tree(
    threads: usize,
    options: &TreeOptions,
    inner: &str,
    entries: u64,
    each: u64,
) -> Result<[Ran; 2]> {
    let machine = server(threads)?;
    let memory = |node: &str| {
        let bytes = entries * TREE_BYTES + ASIDE_BYTES;
        machine.memory(node, bytes, Domain::Adr).map(|memory| reserve(&memory)).map_err(failed())
    };
    let (leaves, inner) = (memory("pmem0")?, memory(inner)?);
    let insert = |tree: &Tree<Modelled, Modelled>, n: u64| {
        tree.update(&key(n), &Sixteen, |_| Change::Set([n + 1, 0])).map(drop)
    };
    let made = machine.free_of_charge(|| {
        let tree = Tree::over(options, leaves, inner, &Arc::new(Budget::new(1 << 60)))?;
        (0..entries).try_for_each(|n| insert(&tree, n))?;
        Ok(tree)
    });
    let (tree, insert) = (&made.map_err(failed())?, &insert);
    let inserts = (0..threads as u64).map(|thread| -> Box<dyn FnOnce() + Send> {
        let numbers = entries + thread * each..entries + (thread + 1) * each;
        Box::new(move || numbers.for_each(|n| insert(tree, n).expect("there is room")))
    });
    let inserts = inserts.collect();
    let operations = each * threads as u64;
    let inserts = ran(&machine, operations, || machine.run_threads(inserts));
    let get = |wanted: &[u8]| assert!(tree.get(wanted, &Sixteen).is_some(), "every key is there");
    Ok([inserts, ran(&machine, operations, || lookups(&machine, threads, entries, each, &get))])
}

/// Has each thread look `each` keys up.
fn lookups(machine: &Machine, threads: usize, entries: u64, each: u64, get: &dyn Fn(&[u8])) -> Duration {
    let mut threads: Vec<_> = (0..threads as u64)
        .map(|thread| {
            let (mut random, mut number) = (Random(thread), 0);
            move || {
                number += 1;
                get(&key(random.below(entries)));
                number < each
            }
        })
        .collect();
    machine.run_steps(&mut threads)
}

impl ModelledIndex {
    /// An index with so many entries, inserted in no order and in no time, and collected down to `garbage`
    /// bytes a log, if that is said.
    pub fn new(threads: usize, options: &Options, entries: u64, garbage: Option<u64>) -> Result<ModelledIndex> {
        let machine = server(threads + COLLECTORS)?;
        let bytes = entries * LOG_BYTES + 4 * u64::from(options.logs * options.segment_bytes) + ASIDE_BYTES;
        let logs = machine.memory("pmem0", bytes, Domain::Adr).map_err(failed())?;
        let [table, inner] = dram(&machine, entries).map_err(failed())?;
        let regions = Regions { logs: reserve(&logs), table, inner };
        let budget = Arc::new(Budget::new(1 << 60));
        let made = machine.free_of_charge(|| {
            let index = Deltas::create(regions, options, &Sixteen, &budget)?;
            for n in 0..entries {
                insert(&index, n)?;
                if let Some(garbage) = garbage {
                    while index.collect(garbage, &Sixteen)? {}
                }
            }
            Ok(index)
        });
        let index = made.map_err(failed())?;
        Ok(ModelledIndex { machine, threads, index, logs, options: *options, entries })
    }

    /// Has each thread insert `each` new entries, all at once: a thread that finds a latch held waits for it. Beside
    /// them a few collect, if `garbage` says what a log may have.
    pub fn inserts(&self, each: u64, garbage: Option<u64>) -> Result<Ran> {
        let left = AtomicUsize::new(self.threads);
        let first = self.entries;
        let worker = |thread: u64| {
            for number in 0..each {
                insert(&self.index, first + thread * each + number).expect("there is room");
            }
            left.fetch_sub(1, Relaxed);
        };
        let collector = |garbage: u64| {
            while left.load(Relaxed) > 0 {
                if !self.index.collect(garbage, &Sixteen).expect("there is room") {
                    lab::pause(&self.logs);
                }
            }
        };
        let (worker, collector) = (&worker, &collector);
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for thread in 0..self.threads as u64 {
            bodies.push(Box::new(move || worker(thread)));
        }
        for garbage in garbage.into_iter().flat_map(|garbage| [garbage; COLLECTORS]) {
            bodies.push(Box::new(move || collector(garbage)));
        }
        Ok(ran(&self.machine, each * self.threads as u64, || self.machine.run_threads(bodies)))
    }

    /// Has each thread look `each` keys up.
    pub fn lookups(&self, each: u64) -> Ran {
        let get = |wanted: &[u8]| assert!(self.index.get(wanted, &Sixteen).is_some(), "every key is there");
        let run = || lookups(&self.machine, self.threads, self.entries, each, &get);
        ran(&self.machine, each * self.threads as u64, run)
    }

    /// How long so many threads take to recover the index, with cold caches.
    pub fn recovery(&self, threads: usize) -> Result<Duration> {
        let machine = &self.machine;
        machine.clear_caches();
        machine.barrier();
        machine.enter(0);
        let [table, inner] = dram(machine, self.entries).map_err(failed())?;
        let regions = Regions { logs: reserve(&self.logs), table, inner };
        let start = machine.elapsed();
        let budget = Arc::new(Budget::new(1 << 60));
        let replay = Replay::open(regions, &self.options, &budget).map_err(failed())?;
        let pass = |count: u32, does: &dyn Fn(u32)| {
            let next = std::cell::Cell::new(0);
            let next = &next;
            let mut steps: Vec<_> = (0..threads)
                .map(|_| {
                    move || {
                        let number = next.replace(next.get() + 1);
                        if number < count {
                            does(number);
                        }
                        number < count
                    }
                })
                .collect();
            machine.run_steps(&mut steps);
        };
        pass(replay.logs(), &|log| replay.log(log).expect("it is whole"));
        pass(replay.logs(), &|log| replay.attach(log).expect("it is whole"));
        pass(threads as u32, &|share| replay.order(share, threads as u32).expect("no damage"));
        machine.barrier();
        machine.enter(0);
        let build: Pass<'_> = &|count, does| {
            pass(count, &|share| does(share));
            machine.barrier();
            machine.enter(0);
        };
        let index = replay.finish(&Sixteen, threads, build).map_err(failed())?;
        assert_eq!(index.len(), self.index.len(), "all is recovered");
        Ok(machine.elapsed() - start)
    }
}
