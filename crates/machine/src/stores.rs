//! What it takes to write a piece, by how it is written.

use crate::chase::Times;
use crate::ground::{Bench, Ground};
use crate::load::{File, Load, Op};
use std::io;
use terrace_memory::Domain;

/// Pieces that make one sample: the clock costs as much as a store does.
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
    /// Samples of 16 pieces.
    pub samples: u64,
}

impl Stores<'_> {
    /// Measures it; times are of a piece, percentiles of samples.
    ///
    /// # Errors
    /// There is no such node, or it has not enough memory.
    pub fn run<G: Ground>(self, ground: &G) -> io::Result<Times> {
        let bench = ground.bench(1)?;
        let file = (CACHES * ground.cache_bytes()).max(64 << 20);
        let memory = bench.memory(self.node, file, Domain::Adr)?;
        let Stores { node, op, bytes, samples } = self;
        let load = Load { node, op, random: true, bytes, threads: 1, overhead_ns: 0.0 };
        let mut file = File::new(load, &bench, &memory, 0, file);
        let (mut taken, mut warm) = (Vec::with_capacity(samples as usize), samples / 8);
        let mut step = || {
            let start = bench.now_ps();
            (0..PIECES).for_each(|_| while !file.step() {});
            if warm > 0 {
                warm -= 1;
            } else {
                taken.push(bench.now_ps() - start);
            }
            (taken.len() as u64) < samples
        };
        bench.run(std::slice::from_mut(&mut step));
        Ok(Times::of(taken, PIECES))
    }
}
