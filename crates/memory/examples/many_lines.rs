//! How many lines can be asked for at once: nanoseconds a line when batches of lines at random places of a large
//! memory are prefetched as a batch and then read one after the other, by the hint that asks.
//!
//! `cargo run --release -p terrace-memory --example many_lines`
//!
//! Reads wait for each other, so that a line which was asked for in vain costs what a miss costs.

use std::time::Instant;
use terrace_memory::{Backing, Memory, Native, Region};

const BYTES: u64 = 256 << 20;
const LINE: u64 = 64;
const READS: usize = 1 << 20;
const BATCHES: [usize; 9] = [1, 4, 8, 12, 16, 24, 32, 64, 128];

fn main() -> std::io::Result<()> {
    let region = Region::reserve(BYTES, Backing::HugePages)?;
    region.populate(0, BYTES)?;
    let memory = region.native();
    println!("{:>5} {:>8} {:>9} {:>17}", "batch", "no hint", "prefetch", "prefetch_of_many");
    for batch in BATCHES {
        let none = best(|| per_line(&memory, batch, |_, _| ()));
        let near = best(|| per_line(&memory, batch, Native::prefetch));
        let many = best(|| per_line(&memory, batch, Native::prefetch_of_many));
        println!("{batch:>5} {none:>8.1} {near:>9.1} {many:>17.1}");
    }
    Ok(())
}

fn best(run: impl Fn() -> f64) -> f64 {
    (0..3).map(|_| run()).fold(f64::MAX, f64::min)
}

/// Nanoseconds a line.
fn per_line(memory: &Native, batch: usize, ask: impl Fn(&Native, u64)) -> f64 {
    let mut places = vec![0; batch];
    let (mut random, mut seen) = (0x9e37_79b9_7f4a_7c15u64, 0);
    let start = Instant::now();
    for _ in 0..READS / batch {
        // Nor does a batch begin before the one before it is over.
        for place in &mut places {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1 + seen);
            *place = (random >> 20) % (BYTES / LINE) * LINE;
        }
        places.iter().for_each(|place| ask(memory, *place));
        for place in &places {
            // Memory is all zeros: each address depends on the value before it.
            // SAFETY: a word of the region, which is populated; nobody writes.
            seen = unsafe { memory.load(*place + seen) };
        }
    }
    assert_eq!(seen, 0, "nobody has written");
    start.elapsed().as_nanos() as f64 / (READS / batch * batch) as f64
}
