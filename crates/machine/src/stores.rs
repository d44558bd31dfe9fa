//! What it takes to write a piece, by how it is written.

use crate::load::{File, Load, Op};
use crate::test_bed::{Bench, TestBed};
use crate::timed::{Timed, Times};
use std::io;
use terrace_memory::Domain;

/// Pieces that are timed together: the clock costs as much as a store does.
const PIECES: u64 = 16;
/// How much larger than the largest cache the memory is.
const CACHES: u64 = 4;

/// Pieces at random places of a memory much larger than the caches, written one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Stores<'a> {
    /// The memory.
    pub node: &'a str,
    /// How a piece is written.
    pub op: Op,
    /// Bytes of a piece.
    pub bytes: u64,
    /// Samples of 16 pieces together and of one alone.
    pub samples: u64,
}

impl Stores<'_> {
    /// Measures it; times are of a piece.
    ///
    /// # Errors
    /// There is no such node, or it has not enough memory.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Times> {
        let bench = test_bed.bench(1)?;
        let file = (CACHES * test_bed.cache_bytes()).max(64 << 20);
        let memory = bench.memory(self.node, file, Domain::Adr)?;
        let Stores { node, op, bytes, samples } = self;
        let load = Load { node, op, random: true, bytes, threads: 1, overhead_ns: 0.0 };
        let mut file = File::new(load, &bench, &memory, 0, file);
        let is_waited_for = matches!(op, Op::StoreFlush | Op::Stream);
        let mut timed = Timed::new(&bench, PIECES, samples, is_waited_for);
        let mut step = || timed.sample(&bench, |_| while !file.step() {});
        bench.run(std::slice::from_mut(&mut step));
        Ok(timed.times())
    }
}
