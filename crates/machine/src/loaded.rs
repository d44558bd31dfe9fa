//! Latency under load: one thread follows a chain of loads while the others move bytes, at a mixture
//! of reads and writes and with a pause that sets how many.

use crate::chase::{Chase, LOADS};
use crate::load::{File, Load, Op};
use crate::test_bed::{Bench, TestBed};
use crate::timed::{Timed, Times};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_memory::{Divide, Domain};

/// Bytes that a thread under load moves between two pauses.
const PIECE: u64 = 1024;
/// How much larger than the largest cache the cycle is, and all files that bytes are moved in.
const CACHES: u64 = 2;
/// The least of a file, bytes.
const FILE_MIN: u64 = 16 << 20;

/// What one thread waits for while others move bytes.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The memory.
    pub node: &'a str,
    /// Of 100 pieces that are moved, those written (streamed); the others are read.
    pub writes_percent: u64,
    /// How long each thread pauses after a piece, ns.
    pub pause_ns: f64,
    /// Threads that move bytes.
    pub threads: usize,
    /// Samples of 32 loads together and of one alone.
    pub samples: u64,
}

/// A point of the curve of latency by bandwidth.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What the others moved, 10^9 bytes a second.
    pub gb_s: f64,
    /// What a load took.
    pub times: Times,
}

impl Loaded<'_> {
    /// Measures it, with one thread more than those that move bytes.
    ///
    /// # Errors
    /// The machine has fewer threads, or no such node, or refuses the memory.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Point> {
        let bench = test_bed.bench(self.threads + 1)?;
        let threads = self.threads as u64;
        let outgrown = (CACHES * test_bed.cache_bytes()).max(FILE_MIN);
        let cycle = outgrown.next_power_of_two();
        let file = (outgrown / threads.max(1)).max(FILE_MIN).next_multiple_of(FILE_MIN);
        let memory = bench.memory(self.node, cycle + threads * file, Domain::Adr)?;
        let chased = memory.part(0, cycle);
        let mut chase = Chase::lay(&bench, &chased, cycle);
        let load = |op| Load {
            node: self.node,
            op,
            random: false,
            bytes: PIECE,
            threads: self.threads,
            overhead_ns: 0.0,
        };
        let mut others: Vec<_> = (0..threads)
            .map(|thread| {
                let of = |op| File::new(load(op), &bench, &memory, cycle + thread * file, file);
                Mover { read: of(Op::Read), write: of(Op::StreamOn), pieces: 0 }
            })
            .collect();
        let mut timed = Timed::new(&bench, LOADS, self.samples, true);
        let over = AtomicBool::new(false);
        let mut steps: Vec<Box<dyn FnMut() -> bool + Send + '_>> = Vec::new();
        let (chase, taken) = (&mut chase, &mut timed);
        steps.push(Box::new(|| {
            let goes_on = chase.sample(taken);
            over.store(!goes_on, Relaxed);
            goes_on
        }));
        for mover in &mut others {
            let (over, bench) = (&over, &bench);
            steps.push(Box::new(move || {
                mover.piece(self.writes_percent);
                if self.pause_ns > 0.0 {
                    bench.wait_ns(self.pause_ns);
                }
                !over.load(Relaxed)
            }));
        }
        let time = bench.run(&mut steps);
        drop(steps);
        let pieces: u64 = others.iter().map(|mover| mover.pieces).sum();
        let gb_s = (pieces * PIECE) as f64 / 1e9 / time.as_secs_f64();
        Ok(Point { gb_s, times: timed.times() })
    }
}

/// A thread that moves bytes.
struct Mover<'a, B: Bench> {
    read: File<'a, B>,
    write: File<'a, B>,
    pieces: u64,
}

impl<B: Bench> Mover<'_, B> {
    /// Moves the next piece; writes are spread evenly among reads.
    fn piece(&mut self, writes_percent: u64) {
        let due = |pieces: u64| pieces * writes_percent / 100;
        let writes = due(self.pieces + 1) > due(self.pieces);
        let file = if writes { &mut self.write } else { &mut self.read };
        while !file.step() {}
        self.pieces += 1;
    }
}
