//! One piece of memory, streamed again and again (PMIdioBench, Gugnani, I7): what a device with a buffer
//! makes of it shows in its counters alone.

use crate::model::NodeCounts;
use crate::test_bed::{Bench, TestBed};
use std::io;
use terrace_memory::{Domain, Memory};

/// Bytes of the memory that the piece lies in: the paper's mapping.
const MEMORY: u64 = 1 << 20;

/// One thread streams the first `bytes` of a memory and fences, `rounds` times; what the node's devices
/// counted, `None` where they do not tell.
///
/// # Errors
/// There is no such node.
///
/// # Panics
/// If the piece is larger than 4096 bytes.
pub fn rewrite<G: TestBed>(
    test_bed: &G,
    node: &str,
    bytes: usize,
    rounds: u64,
) -> io::Result<Option<NodeCounts>> {
    let bench = test_bed.bench(1)?;
    let memory = bench.memory(node, MEMORY, Domain::Adr)?;
    let piece = &[1; 4096][..bytes];
    let before = bench.counts(node);
    let mut left = rounds;
    bench.run(&mut [|| {
        // SAFETY: the memory is larger than any piece, and nobody else is there.
        unsafe { memory.stream(0, piece) };
        memory.fence();
        left -= 1;
        left > 0
    }]);
    Ok(bench.counts(node).zip(before).map(|(after, before)| after - before))
}
