//! Loops over arrays: the NAS programs MG, FT and IS, and the tensor operation of Eigen.

use super::{Cost, Piece, Prestore, look_at, measure};
use crate::random::Rng;
use crate::test_bed::{Bench, TestBed};
use std::io;
use terrace_memory::instructions::LINE_BYTES as LINE;
use terrace_memory::{Domain, Memory};

/// A loop of MG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// `u` gets smoothed residuals added: its rows are read, and those of `r` around them.
    Psinv,
    /// `r` is recomputed from `v` and the rows of `u` around.
    Resid,
}

/// A stencil of 27 points over cubes of numbers of 8 bytes, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Stencil<'a> {
    /// The memory of the three cubes.
    pub node: &'a str,
    /// Which loop.
    pub kind: Loop,
    /// Numbers along a side of a cube.
    pub side: u64,
    /// How many share the planes.
    pub threads: usize,
    /// The operation on a row that was written, after the inner loop.
    pub prestore: Prestore,
}

impl Stencil<'_> {
    /// Goes over the cube twice, of which the second time counts; an operation is a row.
    ///
    /// # Errors
    /// The machine has fewer threads, or no such node, or refuses the memory.
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Cost> {
        let Stencil { node, kind, side, threads, prestore } = self;
        let bench = test_bed.bench(threads)?;
        let (row, cube) = (side * 8, side * side * side * 8);
        let memory = bench.memory(node, (3 * cube).next_multiple_of(1 << 20), Domain::Eadr)?;
        let [read, around, written] = match kind {
            Loop::Psinv => [0, cube, 0],
            Loop::Resid => [cube, 0, 2 * cube],
        };
        let planes = (side - 2) / threads as u64;
        let mut workers: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (mut number, mut piece, memory) = (0, Piece::default(), &memory);
                move || {
                    if piece.done == piece.bytes {
                        let (plane, y) = (number / (side - 2), number % (side - 2) + 1);
                        let z = 1 + thread * planes + plane % planes;
                        let at = |z: u64, y: u64| (z * side + y) * row;
                        // SAFETY: rows inside the cubes. Those read around are of a cube that nobody
                        // writes, the others the thread's own.
                        unsafe {
                            for (z, y) in
                                (z - 1..=z + 1).flat_map(|z| (y - 1..=y + 1).map(move |y| (z, y)))
                            {
                                look_at(memory.bytes(around + at(z, y), row));
                            }
                            look_at(memory.bytes(read + at(z, y), row));
                        }
                        piece = Piece::new(written + at(z, y), row);
                        number += 1;
                    }
                    // SAFETY: the row is the thread's own.
                    unsafe { piece.step(memory, prestore) }
                }
            })
            .collect();
        let rows = planes * (side - 2);
        Ok(measure(&bench, node, &mut workers, rows, rows))
    }
}

/// Packets of tensors, each computed from one before it, among writes that nobody pre-stores.
///
/// Of what the operation writes, six of seven bytes are in tensors of 240 B, which are read at once when
/// they are complete, and one in tensors of 16.2 MB (Wu, 3.7.2.1, leaves out sizes in between). A
/// line for every line it writes is written elsewhere by other functions, in no order.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// The memory of all of it.
    pub node: &'a str,
    /// How many compute.
    pub threads: usize,
    /// The operation on each line of packets.
    pub prestore: Prestore,
    /// Lines of packets that count, of all threads.
    pub lines: u64,
}

/// A large tensor, and the lines that small ones of a thread are taken from, one after the other.
const LARGE: u64 = 16_200_000 / 4096 * 4096;
/// Lines of a small tensor, the last not full.
const SMALL_LINES: u64 = 4;
/// Bytes that other functions write to.
const ELSEWHERE: u64 = 64 << 20;
/// Bytes of a packet.
const PACKET: usize = 16;

impl Tensor<'_> {
    /// Runs it; an operation is a line of packets.
    ///
    /// # Errors
    /// As for [`Stencil::run`].
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Cost> {
        let bench = test_bed.bench(self.threads)?;
        let (small, elsewhere) = (LARGE, 2 * LARGE);
        let own = 2 * LARGE + ELSEWHERE / self.threads as u64 / 4096 * 4096;
        let bytes = (own * self.threads as u64).next_multiple_of(1 << 20);
        let memory = bench.memory(self.node, bytes, Domain::Eadr)?;
        let prestore = self.prestore;
        let mut workers: Vec<_> = (0..self.threads as u64)
            .map(|thread| {
                let (start, memory) = (thread * own, &memory);
                let (mut rng, mut number) = (Rng::new(3 + thread), 0);
                move || {
                    // Six small tensors, and as many lines of the large one as one has.
                    let (round, of_round) =
                        (number / (7 * SMALL_LINES), number % (7 * SMALL_LINES));
                    let (tensor, line) = (of_round / SMALL_LINES, of_round % SMALL_LINES);
                    let is_small = tensor < 6;
                    let at = match is_small {
                        true => small + ((round * 6 + tensor) * SMALL_LINES + line) * LINE % LARGE,
                        false => (round * SMALL_LINES + line) * LINE % LARGE,
                    };
                    number += 1;
                    let has_before = line > 0 || (!is_small && at > 0);
                    // SAFETY: all of it is the thread's own part of the memory.
                    unsafe {
                        packets(memory, start + at, has_before, prestore);
                        if is_small && line + 1 == SMALL_LINES {
                            look_at(memory.bytes(start + at - line * LINE, SMALL_LINES * LINE));
                        }
                        let other = rng.below((own - elsewhere) / LINE) * LINE;
                        memory.write(start + elsewhere + other, &[1; LINE as usize]);
                    }
                    true
                }
            })
            .collect();
        let each = self.lines / self.threads as u64;
        let warm = 2 * test_bed.cache_bytes() / LINE / self.threads as u64;
        Ok(measure(&bench, self.node, &mut workers, warm, each))
    }
}

/// Computes the four packets of a line, each from the one a line before it.
///
/// # Safety
/// The line, and the one before it if there is one, are the caller's own.
unsafe fn packets<M: Memory>(memory: &M, at: u64, has_before: bool, prestore: Prestore) {
    // SAFETY: by contract.
    unsafe {
        let before = if has_before { memory.load_line(at - LINE) } else { [0; 8] };
        let packet = (before[0] as u128 + 1).to_ne_bytes();
        for number in 0..LINE / PACKET as u64 {
            match prestore {
                Prestore::Skip => memory.stream(at + number * PACKET as u64, &packet),
                _ => memory.write(at + number * PACKET as u64, &packet),
            }
        }
        match prestore {
            Prestore::Clean => memory.clean(at, LINE),
            Prestore::Demote => memory.demote(at, LINE),
            Prestore::Nothing | Prestore::Skip => {}
        }
    }
}

/// The loop `fftz2` of FT: a small buffer is read and written again and again. Not to be pre-stored.
#[derive(Clone, Copy, Debug)]
pub struct Scratch<'a> {
    /// The buffers' memory.
    pub node: &'a str,
    /// How many have one.
    pub threads: usize,
    /// The operation on each line that was written.
    pub prestore: Prestore,
    /// Lines that count, of all threads.
    pub lines: u64,
}

/// Lines of such a buffer, which the nearest cache holds.
const SCRATCH_LINES: u64 = 256;

impl Scratch<'_> {
    /// Runs it; an operation is a line.
    ///
    /// # Errors
    /// As for [`Stencil::run`].
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Cost> {
        let bench = test_bed.bench(self.threads)?;
        let own = SCRATCH_LINES * LINE;
        let bytes = (own * self.threads as u64).next_multiple_of(1 << 20);
        let memory = bench.memory(self.node, bytes, Domain::Eadr)?;
        let mut workers: Vec<_> = (0..self.threads as u64)
            .map(|thread| {
                let (memory, mut number) = (&memory, 0);
                move || {
                    let at = thread * own + number % SCRATCH_LINES * LINE;
                    number += 1;
                    // SAFETY: the thread's own buffer.
                    unsafe {
                        std::hint::black_box(memory.load(at));
                        Piece::new(at, LINE).step(memory, self.prestore)
                    }
                }
            })
            .collect();
        let each = self.lines / self.threads as u64;
        Ok(measure(&bench, self.node, &mut workers, 4 * SCRATCH_LINES, each))
    }
}

/// The loop `rank` of IS: counters anywhere in an array are counted up. Not to be pre-stored.
#[derive(Clone, Copy, Debug)]
pub struct Ranks<'a> {
    /// The counters' memory.
    pub node: &'a str,
    /// How many count, each in an array of its own.
    pub threads: usize,
    /// The operation on a counter's line.
    pub prestore: Prestore,
    /// Counts of all threads together.
    pub counts: u64,
}

/// Bytes of all counters.
const COUNTERS: u64 = 192 << 20;

impl Ranks<'_> {
    /// Runs it; an operation is a count.
    ///
    /// # Errors
    /// As for [`Stencil::run`].
    pub fn run<G: TestBed>(self, test_bed: &G) -> io::Result<Cost> {
        let bench = test_bed.bench(self.threads)?;
        let memory = bench.memory(self.node, COUNTERS, Domain::Eadr)?;
        let words = COUNTERS / 8 / self.threads as u64;
        let mut workers: Vec<_> = (0..self.threads as u64)
            .map(|thread| {
                let (memory, mut rng) = (&memory, Rng::new(5 + thread));
                move || {
                    let at = (thread * words + rng.below(words)) * 8;
                    // SAFETY: a word of the thread's own array.
                    unsafe {
                        memory.store(at, memory.load(at) + 1);
                        match self.prestore {
                            Prestore::Clean => memory.clean(at, 8),
                            Prestore::Demote => memory.demote(at, 8),
                            Prestore::Nothing | Prestore::Skip => {}
                        }
                    }
                    true
                }
            })
            .collect();
        let each = self.counts / self.threads as u64;
        let warm = 2 * test_bed.cache_bytes() / LINE / self.threads as u64;
        Ok(measure(&bench, self.node, &mut workers, warm, each))
    }
}
