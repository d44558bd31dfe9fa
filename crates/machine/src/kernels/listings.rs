//! The microbenchmarks: Listings 2, 3 and 4 of Wu.

use super::{Cost, Piece, Prestore, measure};
use crate::random::Rng;
use crate::test_bed::{Bench, TestBed};
use std::io;
use terrace_memory::{Domain, Memory};

/// Least bytes of Listing 2's array: several times the shared cache of Wu's machines.
const ARRAY_BYTES: u64 = 192 << 20;
/// Bytes that fill the caches with written elements before anything counts.
const WARM_BYTES: u64 = 64 << 20;

/// Listing 2: threads write random elements of an array.
#[derive(Clone, Copy, Debug)]
pub struct Listing2<'a> {
    /// The array's memory.
    pub node: &'a str,
    /// How many write.
    pub threads: usize,
    /// Bytes of an element.
    pub element: u64,
    /// The operation on each element after it is written.
    pub prestore: Prestore,
    /// Whether a field of it is read then.
    pub reads: bool,
    /// Bytes written while it counts.
    pub bytes: u64,
}

/// Runs Listing 2; an operation is an element.
///
/// # Errors
/// The machine has fewer threads, or no such node, or refuses the memory.
pub fn listing_2<G: TestBed>(test_bed: &G, listing: Listing2<'_>) -> io::Result<Cost> {
    let Listing2 { node, threads, element, prestore, reads, bytes } = listing;
    let bench = test_bed.bench(threads)?;
    let array = ARRAY_BYTES.max(4 * test_bed.cache_bytes()).next_multiple_of(1 << 20);
    let warm = WARM_BYTES.max(2 * test_bed.cache_bytes());
    let memory = bench.memory(node, array, Domain::Eadr)?;
    // Each thread has elements of its own, between those of the others: no two write one at once.
    let elements = array / element / threads as u64;
    let mut workers: Vec<_> = (0..threads as u64)
        .map(|thread| {
            let (mut rng, mut piece, memory) = (Rng::new(100 + thread), Piece::default(), &memory);
            move || {
                if piece.done == piece.bytes {
                    let number = rng.below(elements) * threads as u64 + thread;
                    piece = Piece::new(number * element, element);
                }
                // SAFETY: inside the array, and the thread's own.
                unsafe {
                    if !piece.step(memory, prestore) {
                        return false;
                    }
                    if reads {
                        std::hint::black_box(memory.load(piece.at));
                    }
                }
                true
            }
        })
        .collect();
    let each = |bytes: u64| bytes / element / threads as u64;
    Ok(measure(&bench, node, &mut workers, each(warm), each(bytes)))
}

/// Listing 3: a line of `line` bytes on `node` is written, demoted or not, `reads` words are read from
/// `near` out of the nearest cache, and a fence follows. An operation is such a round.
///
/// # Errors
/// As for [`listing_2`].
pub fn listing_3<G: TestBed>(
    test_bed: &G,
    (node, near): (&str, &str),
    line: u64,
    reads: u64,
    prestore: Prestore,
    rounds: u64,
) -> io::Result<Cost> {
    let bench = test_bed.bench(1)?;
    let array = bench.memory(node, 256 << 20, Domain::None)?;
    let near = bench.memory(near, 8192, Domain::None)?;
    let mut rng = Rng::new(9);
    let round = || {
        let mut piece = Piece::new(rng.below(array.len() / line) * line, line);
        // SAFETY: inside; nobody else is there.
        unsafe {
            while !piece.step(&array, prestore) {}
            for read in 0..reads {
                near.load(read * line % near.len());
            }
        }
        array.fence();
        true
    };
    Ok(measure(&bench, node, &mut [round], 0, rounds))
}

/// Listing 4: one line is written again and again, and pre-stored each time or not. An operation is
/// such a write.
///
/// # Errors
/// As for [`listing_2`].
pub fn listing_4<G: TestBed>(
    test_bed: &G,
    node: &str,
    prestore: Prestore,
    writes: u64,
) -> io::Result<Cost> {
    let bench = test_bed.bench(1)?;
    let memory = bench.memory(node, 4096, Domain::Eadr)?;
    // SAFETY: inside; nobody else is there.
    let write = || unsafe { Piece::new(0, 64).step(&memory, prestore) };
    Ok(measure(&bench, node, &mut [write], 0, writes))
}
