//! The loads of the papers' microbenchmarks.

use super::super::{Machine, Modelled, NodeCounts, Preset};
use crate::random::Rng;
use std::time::Duration;
use terrace_memory::{Domain, Memory};

/// What is done to each piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// It is read.
    Read,
    /// It is stored, written back and fenced: a p-store.
    StoreFlush,
    /// It is streamed and fenced.
    Stream,
    /// It is streamed, and nobody waits.
    StreamOn,
    /// It is stored: caches decide when it reaches the memory.
    Store,
}

/// Threads that each go over a file of their own, as the papers' load generators do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub node: &'static str,
    pub op: Op,
    pub random: bool,
    /// Bytes of a piece.
    pub bytes: u64,
    pub threads: usize,
    /// The generator's own work for a piece.
    pub overhead_ns: f64,
}

/// What came of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub bytes: u64,
    pub time: Duration,
    pub counts: NodeCounts,
}

impl Run {
    pub fn gb_s(self) -> f64 {
        self.bytes as f64 / 1e9 / self.time.as_secs_f64()
    }
    pub fn mib_s(self) -> f64 {
        self.bytes as f64 / (1 << 20) as f64 / self.time.as_secs_f64()
    }
}

/// Bytes that a measured run moves, all threads together.
const BYTES: u64 = 16 << 20;
/// The largest part of a piece that is done in one step.
const PART: u64 = 256;

impl Load {
    /// Runs it on a fresh machine: first as long as it takes to fill the caches, then measured.
    pub fn run(self, preset: &Preset) -> Run {
        let machine = Machine::pinned(preset, &on_one_socket(preset, self.threads), 1);
        let shared = preset.cache.last().map_or(0, |level| level.bytes);
        // Plain stores reach the memory only when the caches are full of them.
        let warm = if self.op == Op::Store { 2 * shared } else { BYTES / 8 };
        let file = (16 * shared).max(BYTES).div_ceil(self.threads as u64).next_multiple_of(1 << 20);
        let memory = machine.memory(self.node, file * self.threads as u64, Domain::Adr);
        let memory = memory.expect("the presets have the nodes that are calibrated");
        let mut threads: Vec<File<'_>> = (0..self.threads)
            .map(|thread| File::new(self, &machine, &memory, thread as u64 * file, file))
            .collect();
        self.go(&machine, &mut threads, warm);
        let before = machine.node_counts(self.node).expect("as above");
        let (bytes, time) = self.go(&machine, &mut threads, BYTES);
        let counts = machine.node_counts(self.node).expect("as above") - before;
        Run { bytes, time, counts }
    }

    /// All threads until the first has done its part of `bytes`: no tail with fewer threads.
    fn go(self, machine: &Machine, threads: &mut [File<'_>], bytes: u64) -> (u64, Duration) {
        let each = (bytes / self.threads as u64 / self.bytes).max(4);
        let count = std::cell::Cell::new(0);
        let over = std::cell::Cell::new(false);
        let mut steps: Vec<_> = threads
            .iter_mut()
            .map(|file| {
                let mut left = each;
                let (count, over) = (&count, &over);
                move || {
                    if over.get() {
                        return false;
                    }
                    if file.step() {
                        count.set(count.get() + 1);
                        left -= 1;
                        over.set(left == 0);
                    }
                    true
                }
            })
            .collect();
        let time = machine.run_steps(&mut steps);
        (count.get() * self.bytes, time)
    }
}

/// Cores of the first socket, one thread each before any has two.
pub(super) fn on_one_socket(preset: &Preset, threads: usize) -> Vec<usize> {
    (0..threads).map(|thread| thread % preset.processor.cores_per_socket).collect()
}

/// A thread's file.
struct File<'a> {
    load: Load,
    machine: &'a Machine,
    memory: &'a Modelled,
    start: u64,
    bytes: u64,
    next: u64,
    /// Where the piece is that is worked on, and how much of it is done: twice, where it is written and
    /// then flushed.
    piece: u64,
    done: u64,
    rng: Rng,
}

impl<'a> File<'a> {
    fn new(load: Load, machine: &'a Machine, memory: &'a Modelled, start: u64, bytes: u64) -> Self {
        let mut rng = Rng::new(start);
        // Threads that all begin at their file's start would go from DIMM to DIMM together.
        let next = rng.below(bytes / load.bytes);
        File { load, machine, memory, start, bytes, next, piece: 0, done: 0, rng }
    }

    /// A part of a piece; whether the piece is done. Parts are small because what one step does to the
    /// DIMMs' buffers is not interleaved with what other threads do.
    fn step(&mut self) -> bool {
        let (size, memory) = (self.load.bytes, self.memory);
        if self.done == 0 {
            let pieces = self.bytes / size;
            let piece = if self.load.random { self.rng.below(pieces) } else { self.next % pieces };
            self.next += 1;
            self.piece = self.start + piece * size;
        }
        let flushes = self.load.op == Op::StoreFlush;
        let (second, offset) = (self.done >= size, self.done % size);
        let part = PART.min(size - offset);
        let at = self.piece + offset;
        // SAFETY: the piece lies in the thread's own file, which nobody else touches.
        unsafe {
            match self.load.op {
                Op::Read => {
                    // One copy: its lines overlap.
                    memory.bytes(at, size);
                    self.done = size - part;
                }
                Op::StoreFlush if second => memory.write_back(at, part),
                Op::StoreFlush | Op::Store => {
                    memory.write(at, &[7; PART as usize][..part as usize])
                }
                Op::Stream | Op::StreamOn => {
                    memory.stream(at, &[7; PART as usize][..part as usize])
                }
            }
        }
        self.done += part;
        if self.done < if flushes { 2 * size } else { size } {
            return false;
        }
        self.done = 0;
        if flushes || self.load.op == Op::Stream {
            memory.fence();
        }
        if self.load.overhead_ns > 0.0 {
            self.machine.compute_ns(self.load.overhead_ns);
        }
        true
    }
}

/// The mean time of a dependent load, nanoseconds, over a region far larger than the caches.
pub(super) fn load_latency_ns(preset: &Preset, node: &str, random: bool) -> f64 {
    // The papers' tool switches prefetchers of the processor off for it.
    let mut preset = preset.clone();
    preset.processor.prefetch_lines = 0;
    let machine = Machine::new(&preset, 1, 1);
    let bytes = 256 << 20;
    let memory = machine.memory(node, bytes, Domain::None).expect("the node exists");
    let mut rng = Rng::new(3);
    let loads = 50_000;
    let start = machine.now_ps();
    for load in 0..loads {
        let line = if random { rng.below(bytes / 64) } else { load };
        // SAFETY: inside and aligned; nobody else is there.
        unsafe { memory.load(line * 64) };
    }
    (machine.now_ps() - start) as f64 / 1000.0 / loads as f64
}

/// The mean time from a write-back of a dirty line, or a streaming store, to the end of its fence.
pub(super) fn persist_ns(preset: &Preset, node: &str, stream: bool) -> f64 {
    let machine = Machine::new(preset, 1, 1);
    let memory = machine.memory(node, 16 << 20, Domain::Adr).expect("the node exists");
    let (mut total, rounds) = (0, 1000);
    for round in 0..rounds {
        let at = round * 4096;
        // SAFETY: inside and aligned; nobody else is there.
        unsafe {
            if !stream {
                memory.store(at, 1);
                machine.compute_ns(1000.0);
            }
            let start = machine.now_ps();
            if stream {
                memory.stream(at, &[1; 64]);
            } else {
                memory.write_back(at, 64);
            }
            memory.fence();
            total += machine.now_ps() - start;
        }
        machine.compute_ns(1000.0);
    }
    total as f64 / 1000.0 / rounds as f64
}

/// Bandwidth of single lines all over, as many at a time as a core has fill buffers.
pub(super) fn random_lines_gb_s(preset: &Preset, node: &'static str, threads: usize) -> f64 {
    let machine = Machine::pinned(preset, &on_one_socket(preset, threads), 1);
    let bytes = 512 << 20;
    let memory = machine.memory(node, bytes, Domain::None).expect("the node exists");
    let line = preset.processor.line_bytes;
    let batch = preset.processor.line_fill_buffers as u64;
    let rounds = 400_000 / threads as u64 / batch;
    let mut steps: Vec<_> = (0..threads)
        .map(|thread| {
            let (mut rng, mut left, memory) = (Rng::new(thread as u64), rounds, &memory);
            move || {
                let lines: Vec<u64> = (0..batch).map(|_| rng.below(bytes / line) * line).collect();
                lines.iter().for_each(|at| memory.prefetch(*at));
                // SAFETY: inside and aligned; nobody writes.
                lines.iter().for_each(|at| unsafe {
                    memory.load(*at);
                });
                left -= 1;
                left > 0
            }
        })
        .collect();
    let time = machine.run_steps(&mut steps);
    (threads as u64 * rounds * batch * line) as f64 / 1e9 / time.as_secs_f64()
}
