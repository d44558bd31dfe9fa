//! The load generator of the papers' microbenchmarks (PMIdioBench, Gugnani, I1 to I8): threads that each go
//! over a file of their own, piece by piece, on this machine or on a modelled one.

use crate::kernels::look_at;
use crate::model::NodeCounts;
use crate::random::Rng;
use crate::test_bed::{Bench, TestBed};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace_memory::profile::Flavour;
use terrace_memory::{Domain, Memory};

/// The operation on each piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
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

impl From<Flavour> for Op {
    fn from(flavour: Flavour) -> Op {
        match flavour {
            Flavour::Read => Op::Read,
            Flavour::Store => Op::Store,
            Flavour::StoreFlush => Op::StoreFlush,
            Flavour::Stream => Op::Stream,
        }
    }
}

/// Threads that each go over a file of their own, as the papers' load generators do.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The memory.
    pub node: &'a str,
    /// The operation on a piece.
    pub op: Op,
    /// Whether pieces are taken at random, or one after the other.
    pub random: bool,
    /// Bytes of a piece.
    pub bytes: u64,
    /// How many.
    pub threads: usize,
    /// The generator's own work for a piece, where time is virtual: there instructions cost nothing.
    pub overhead_ns: f64,
}

/// What came of a load.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Bytes of the pieces done.
    pub bytes: u64,
    /// From the first piece to the last.
    pub time: Duration,
    /// What the node's devices counted meanwhile; `None` where they do not tell.
    pub counts: Option<NodeCounts>,
}

impl Run {
    /// 10^9 bytes a second.
    pub fn gb_s(self) -> f64 {
        self.bytes as f64 / 1e9 / self.time.as_secs_f64()
    }

    /// 2^20 bytes a second.
    pub fn mib_s(self) -> f64 {
        self.bytes as f64 / (1 << 20) as f64 / self.time.as_secs_f64()
    }
}

/// The largest part of a piece that is done in one step.
const PART: u64 = 256;
/// How much larger than the largest cache all files together are.
const CACHES: u64 = 8;
/// The least of all files together, bytes.
const FILES_MIN: u64 = 64 << 20;
/// Pieces between two looks of a thread at the clock.
const LOOK: u64 = 64;

impl Load<'_> {
    /// Runs it: first as long as it takes to fill the caches, then measured until one thread has done its
    /// part of the test bed's effort, so that no tail runs with fewer threads.
    ///
    /// # Errors
    /// The machine has fewer threads, or no such node, or refuses the memory.
    ///
    /// # Panics
    /// If a piece has no bytes.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Run> {
        assert!(self.bytes > 0, "a piece has bytes");
        let bench = test_bed.bench(self.threads)?;
        let (cache, effort) = (test_bed.cache_bytes(), test_bed.effort());
        let file = (CACHES * cache)
            .max(FILES_MIN)
            .div_ceil(self.threads as u64)
            .max(self.bytes)
            .next_multiple_of(1 << 20);
        let memory = bench.memory(self.node, file * self.threads as u64, Domain::Adr)?;
        let mut threads: Vec<File<'_, G::Bench>> = (0..self.threads as u64)
            .map(|thread| File::new(self, &bench, &memory, thread * file, file))
            .collect();
        // Plain stores reach the memory only when the caches are full of them, however long it takes.
        let (warm, most) = match self.op {
            Op::Store => (2 * cache, Duration::MAX),
            _ => (effort.bytes / 8, effort.time / 4),
        };
        self.go(&bench, &mut threads, warm, most);
        let before = bench.counts(self.node);
        let (bytes, time) = self.go(&bench, &mut threads, effort.bytes, effort.time);
        let counts = bench.counts(self.node).zip(before).map(|(after, before)| after - before);
        Ok(Run { bytes, time, counts })
    }

    /// All threads until the first has done its part of `bytes`, or so much time has passed.
    fn go<B: Bench>(
        self,
        bench: &B,
        threads: &mut [File<'_, B>],
        bytes: u64,
        time: Duration,
    ) -> (u64, Duration) {
        let each = (bytes / self.threads as u64 / self.bytes).max(4);
        let time_ps = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000);
        let over = AtomicBool::new(false);
        threads.iter_mut().for_each(|file| file.begin());
        let mut steps: Vec<_> = threads
            .iter_mut()
            .map(|file| {
                let (over, mut end_ps) = (&over, None);
                move || {
                    if over.load(Relaxed) {
                        return false;
                    }
                    if file.step() {
                        let mut late = || {
                            let now = bench.now_ps();
                            now > *end_ps.get_or_insert(now.saturating_add(time_ps))
                        };
                        if file.count == each || file.count % LOOK == 1 && late() {
                            over.store(true, Relaxed);
                        }
                    }
                    true
                }
            })
            .collect();
        let time = bench.run(&mut steps);
        drop(steps);
        (threads.iter().map(|file| file.count).sum::<u64>() * self.bytes, time)
    }
}

/// A thread's file.
pub(crate) struct File<'a, B: Bench> {
    load: Load<'a>,
    bench: &'a B,
    memory: &'a B::Memory,
    start: u64,
    bytes: u64,
    next: u64,
    /// Pieces done since it began.
    count: u64,
    /// Where the piece is that is worked on, and how much of it is done: twice, where it is written and
    /// then flushed.
    piece: u64,
    done: u64,
    rng: Rng,
}

impl<'a, B: Bench> File<'a, B> {
    pub(crate) fn new(
        load: Load<'a>,
        bench: &'a B,
        memory: &'a B::Memory,
        start: u64,
        bytes: u64,
    ) -> Self {
        let mut rng = Rng::new(start);
        // Threads that all begin at their file's start would go from DIMM to DIMM together.
        let next = rng.below(bytes / load.bytes);
        File { load, bench, memory, start, bytes, next, count: 0, piece: 0, done: 0, rng }
    }

    fn begin(&mut self) {
        self.count = 0;
    }

    /// A part of a piece; whether the piece is done. Parts are small because what one step does to the
    /// DIMMs' buffers is not interleaved with what other modelled threads do.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
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
                    look_at(memory.bytes(at, size));
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
        self.count += 1;
        if flushes || self.load.op == Op::Stream {
            memory.fence();
        }
        if self.load.overhead_ns > 0.0 {
            self.bench.compute_ns(self.load.overhead_ns);
        }
        true
    }
}
