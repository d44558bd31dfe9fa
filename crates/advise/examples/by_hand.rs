//! Compares what `terrace probe` measures with loops written by hand:
//! `cargo run --release -p terrace-advise --example by_hand`. Both sides run in turn, medians of five.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;
use terrace_machine::chase::Chase;
use terrace_machine::ground::{Bench, Ground, Here};
use terrace_machine::load::{Load, Op};
use terrace_memory::{Backing, Domain, Region, Topology};

/// A line of a chase by hand: the number of the next in its first word.
type Line = [u8; 64];

const REPEATS: usize = 5;

fn main() {
    let topology = Topology::read().expect("the system tells its topology");
    let here = Here::new(topology).expect("and its processors");
    let bytes = (4 * here.cache_bytes()).next_power_of_two().max(256 << 20);
    let node = here.nodes().first().cloned().expect("there is memory");
    println!("{} MiB on {node}, largest cache {} MiB", bytes >> 20, here.cache_bytes() >> 20);

    // Huge pages on both sides: what they spare would be the larger difference.
    let mut region = Region::reserve(bytes, Backing::HugePages).expect("address space");
    region.populate(0, bytes).expect("memory");
    let own = region.bytes_mut(0, bytes).expect("the region has it");
    for threads in [1, here.most_threads()] {
        let load = Load {
            node: &node,
            op: Op::Read,
            random: false,
            bytes: 65536,
            threads,
            overhead_ns: 0.0,
        };
        let probe = || load.run(&here).expect("memory to read").gb_s();
        compare(&format!("read, {threads} threads, GB/s"), probe, || sum(own, threads));
    }

    let lines = own.as_chunks_mut().0;
    lay_cycle(lines);
    let bench = here.bench(1).expect("a processor");
    let memory = bench.memory(&node, bytes, Domain::None).expect("memory to chase through");
    let mut chase = Chase::lay(&bench, &memory, bytes);
    let mut at = 0;
    compare("a dependent load, ns", || chase.follow(20_000).mean_ns, || follow(lines, &mut at));
}

fn compare(what: &str, mut probe: impl FnMut() -> f64, mut hand: impl FnMut() -> f64) {
    let (mut probed, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        probed.push(probe());
        by_hand.push(hand());
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[REPEATS / 2]
    };
    let (probed, by_hand) = (median(&mut probed), median(&mut by_hand));
    println!(
        "{what:28} probe {probed:8.2}   by hand {by_hand:8.2}   ratio {:.3}",
        probed / by_hand
    );
}

/// STREAM's reading: every word is added up, each thread its share.
fn sum(bytes: &[u8], threads: usize) -> f64 {
    let words = bytes.as_chunks::<8>().0;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for share in words.chunks(words.len().div_ceil(threads)) {
            let add = |sum: u64, word: &[u8; 8]| sum.wrapping_add(u64::from_ne_bytes(*word));
            scope.spawn(move || black_box(share.iter().fold(0u64, add)));
        }
    });
    bytes.len() as f64 / start.elapsed().as_nanos() as f64
}

/// One cycle through all lines, shuffled (Sattolo).
fn lay_cycle(lines: &mut [Line]) {
    for (number, line) in lines.iter_mut().enumerate() {
        line[..8].copy_from_slice(&(number as u64).to_ne_bytes());
    }
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for line in (1..lines.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        lines.swap(line, (state % line as u64) as usize);
    }
}

fn follow(lines: &[Line], at: &mut usize) -> f64 {
    const STEPS: u64 = 640_000;
    let start = Instant::now();
    for _ in 0..STEPS {
        let next = lines[*at].first_chunk().expect("a line has a word");
        *at = u64::from_ne_bytes(*next) as usize;
    }
    start.elapsed().as_nanos() as f64 / STEPS as f64
}
