//! The machine that this runs on, as a preset: from its topology and a second of measuring.
//!
//! The other presets are what was published of machines that are elsewhere. This one has what was
//! measured here, so a model's figures can be set beside native ones; what cannot be measured by one
//! thread from outside (buffers, queues) is assumed as for its relatives, and said below.

use super::{CacheLevel, NodeSpec, Policy, Preset, Processor, Stores, WriteBack};
use crate::random::Rng;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::topology::CacheKind;
use terrace_memory::{Backing, Domain, Memory, Native, Region, Topology};

/// Measurements of a machine's memory by one thread, in nanoseconds and 10^9 bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// A dependent load that stays in the first, the second and the shared cache.
    pub cache_ns: [f64; 3],
    /// A dependent load of a random line of memory.
    pub random_read_ns: f64,
    /// Reads of consecutive lines, of one thread.
    pub read_gb_s: f64,
    /// Streamed writes of consecutive lines, of one thread.
    pub write_gb_s: f64,
    /// A write-back and its fence.
    pub write_back_ns: f64,
    /// A streamed line and its fence.
    pub stream_ns: f64,
}

const MIB: u64 = 1 << 20;
/// Memory is measured over at most so much, though caches may be larger.
const REGION_MAX: u64 = 1 << 30;

impl Measured {
    /// Measures this machine: about a second, on whichever processor the thread runs.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn take(topology: &Topology) -> io::Result<Measured> {
        let sizes = cache_sizes(topology);
        let bytes = (4 * sizes[2]).clamp(256 * MIB, REGION_MAX);
        let region = Region::reserve(bytes, Backing::HugePages)?;
        region.commit(0, bytes)?;
        region.populate(0, bytes)?;
        let memory = region.declared(Domain::Adr);
        let native = memory.native();
        // Half of a private cache, and little of the shared one, which others use too.
        let within = [sizes[0] / 2, sizes[1] / 2, (2 * sizes[1]).min(sizes[2] / 2)];
        Ok(Measured {
            cache_ns: within.map(|bytes| chase_ns(&native, bytes.max(4096), 200_000)),
            random_read_ns: chase_ns(&native, bytes, 500_000),
            read_gb_s: rate(bytes, || read_all(&native, bytes)),
            write_gb_s: rate(bytes, || {
                // SAFETY: inside, and nobody else has this memory.
                (0..bytes / 4096)
                    .for_each(|page| unsafe { native.stream(page * 4096, &[1; 4096]) });
                native.fence();
            }),
            write_back_ns: each_ns(10_000, |round| {
                let at = round % (bytes / 4096) * 4096;
                // SAFETY: as above.
                unsafe {
                    native.store(at, round);
                    native.write_back(at, LINE);
                }
                native.fence();
            }),
            stream_ns: each_ns(10_000, |round| {
                // SAFETY: as above.
                unsafe { native.stream(round % (bytes / 4096) * 4096, &[1; LINE as usize]) };
                native.fence();
            }),
        })
    }
}

/// A cycle through random lines of `[0, bytes)`, followed; nanoseconds a step.
fn chase_ns(memory: &Native, bytes: u64, steps: u64) -> f64 {
    let lines = bytes / LINE;
    // A permutation with one cycle: Sattolo's shuffle, on the lines themselves.
    (0..lines).for_each(|line| put(memory, line, line));
    let mut rng = Rng::new(bytes);
    for line in (1..lines).rev() {
        let other = rng.below(line);
        let (one, two) = (get(memory, line), get(memory, other));
        put(memory, line, two);
        put(memory, other, one);
    }
    let mut line = (0..lines.min(steps)).fold(0, |line, _| get(memory, line));
    let start = Instant::now();
    for _ in 0..steps {
        line = get(memory, line);
    }
    let time = start.elapsed();
    std::hint::black_box(line);
    time.as_nanos() as f64 / steps as f64
}

fn get(memory: &Native, line: u64) -> u64 {
    // SAFETY: lines are of the region that was measured out.
    unsafe { memory.load(line * LINE) }
}

fn put(memory: &Native, line: u64, next: u64) {
    // SAFETY: as above.
    unsafe { memory.store(line * LINE, next) };
}

fn read_all(memory: &Native, bytes: u64) {
    // SAFETY: inside, and nobody writes.
    let all = unsafe { memory.bytes(0, bytes) };
    let words = all.chunks_exact(8).map(|word| u64::from(word[0]) + u64::from(word[7]));
    std::hint::black_box(words.fold(0u64, u64::wrapping_add));
}

fn rate(bytes: u64, action: impl FnOnce()) -> f64 {
    let start = Instant::now();
    action();
    bytes as f64 / start.elapsed().as_nanos() as f64
}

fn each_ns(rounds: u64, action: impl Fn(u64)) -> f64 {
    let start = Instant::now();
    (0..rounds).for_each(action);
    start.elapsed().as_nanos() as f64 / rounds as f64
}

/// Bytes of the first and second cache of a core and of the shared one; usual ones where the system
/// does not tell.
fn cache_sizes(topology: &Topology) -> [u64; 3] {
    let found = |level, usual| {
        let mut caches = topology.caches.iter();
        let of_level = caches.find(|c| c.level == level && c.kind != CacheKind::Instruction);
        of_level.and_then(|cache| cache.size_bytes).unwrap_or(usual)
    };
    [found(1, 32 << 10), found(2, MIB), found(3, 32 * MIB)]
}

impl Preset {
    /// The machine of a topology, with what was measured of it: one socket, one memory, `dram0`.
    ///
    /// Fill buffers, store buffer, queues and replacement are assumed as in the other presets of x86;
    /// the bandwidth is one thread's, the least that the memory can do.
    #[must_use]
    pub fn of_machine(topology: &Topology, measured: &Measured) -> Preset {
        let threads =
            topology.nodes.iter().map(|node| node.cpus.len()).sum::<usize>().clamp(1, 128);
        let sizes = cache_sizes(topology);
        let level = |place: usize, ways: u64| CacheLevel {
            bytes: (sizes[place] / (LINE * ways) * LINE * ways).max(LINE * ways),
            ways: ways as usize,
            latency_ns: measured.cache_ns[place],
            replacement: if place < 2 { Policy::TreePlru } else { Policy::Mixed },
            random_percent: u8::from(place == 2),
            random_percent_shared: if place == 2 { 8 } else { 0 },
        };
        Preset {
            name: "this-machine".into(),
            about: "the machine that this runs on, as measured by one thread".into(),
            processor: Processor {
                sockets: 1,
                cores_per_socket: threads,
                threads_per_core: 1,
                clock_mhz: 2000,
                line_bytes: LINE,
                line_fill_buffers: 12,
                store_buffer: 56,
                store_bytes: 32,
                stores: Stores::Eager,
                write_back: WriteBack::Keeps,
                write_back_queue: 64,
                fence_cycles: 6,
                exchange_cycles: 18,
                prefetch_lines: 20,
                core_to_core_ns: 2.0 * measured.cache_ns[2],
            },
            cache: vec![level(0, 8), level(1, 16), level(2, 16)],
            node: vec![dram(measured)],
            link: None,
            generator: None,
            engines: None,
            without: super::Ablation::default(),
        }
    }
}

fn dram(measured: &Measured) -> NodeSpec {
    NodeSpec {
        name: "dram0".into(),
        socket: 0,
        channels: 1,
        interleave_bytes: 4096,
        read_gb_s: measured.read_gb_s,
        write_gb_s: measured.write_gb_s,
        random_read_gb_s: None,
        random_write_gb_s: None,
        both_ways: false,
        read_ns: measured.random_read_ns,
        random_read_ns: measured.random_read_ns,
        write_back_ns: measured.write_back_ns,
        stream_ns: measured.stream_ns,
        write_queue: 32,
        directory_ns: 0.0,
        media: None,
    }
}
