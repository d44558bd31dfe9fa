//! Compares what `terrace probe` measures with loops written by hand:
//! `cargo run --release -p terrace-advise --example by_hand`. Both sides run in turn, medians of nine.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use terrace_machine::chase::Chase;
use terrace_machine::copy::{Copy, CopyMethod};
use terrace_machine::load::{Load, Op};
use terrace_machine::test_bed::{Bench, Here, TestBed};
use terrace_memory::{Backing, Domain, Region, Topology};

/// A line of a chase by hand: the number of the next in its first word.
type Line = [u8; 64];

const REPEATS: usize = 9;

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
        let load = |op| {
            let (node, bytes) = (node.as_str(), 65536);
            let load = Load { node, op, random: false, bytes, threads, overhead_ns: 0.0 };
            load.run(&here).expect("memory to go over").gb_s()
        };
        let of = |what: &str| format!("{what}, {threads} threads, GB/s");
        compare(&of("read"), || load(Op::Read), || sum(own, threads));
        compare(&of("store"), || load(Op::Store), || fill(own, threads));
        let copied = |engine| {
            let (from, to) = (node.as_str(), node.as_str());
            let copy = Copy { from, to, engine, bytes: bytes / 2, threads, times: 2 };
            copy.run(&here).expect("memory to copy")
        };
        compare(&of("copy"), || copied(CopyMethod::Library), || copy(own, threads));
    }

    let bench = here.bench(1).expect("a processor");
    for bytes in [256 << 10, here.cache_bytes().next_power_of_two() / 4, bytes] {
        let (lines, _) = own[..bytes as usize].as_chunks_mut();
        lay_cycle(lines);
        let memory = bench.memory(&node, bytes, Domain::None).expect("memory to chase through");
        let mut chase = Chase::lay(&bench, &memory, bytes);
        let mut at = 0;
        let what = format!("a load over {} KiB, ns", bytes >> 10);
        compare(&what, || chase.follow(20_000).mean_ns, || follow(lines, &mut at));
    }
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

/// STREAM's reading: every word is added up, in as many sums as there are words in a piece, so that no addition waits
/// for another.
fn sum(bytes: &mut [u8], threads: usize) -> f64 {
    in_shares(bytes, threads, |block| {
        let mut sums = [0u64; 32];
        for piece in block.as_chunks::<8>().0.as_chunks::<32>().0 {
            for (sum, word) in sums.iter_mut().zip(piece) {
                *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        black_box(sums);
    })
}

/// STREAM's filling, in pieces that no library passes the caches with.
fn fill(bytes: &mut [u8], threads: usize) -> f64 {
    let value = black_box([1u8; 256]);
    in_shares(bytes, threads, |block| {
        block.as_chunks_mut::<256>().0.iter_mut().for_each(|piece| *piece = value);
    })
}

/// Threads that each go over a share three times, block by block, until the first is done, as in the probe: no tail
/// runs with fewer. Bytes by nanoseconds.
fn in_shares(bytes: &mut [u8], threads: usize, work: impl Fn(&mut [u8]) + Sync) -> f64 {
    const BLOCK: usize = 1 << 20;
    let share = bytes.len().div_ceil(threads);
    let (begin, over) = (Barrier::new(threads), AtomicBool::new(false));
    let rate_of = |share: &mut [u8]| {
        begin.wait();
        let (start, mut done) = (Instant::now(), 0);
        for _ in 0..3 {
            for block in share.chunks_mut(BLOCK) {
                if over.load(Relaxed) {
                    break;
                }
                work(block);
                done += block.len();
            }
        }
        over.store(true, Relaxed);
        done as f64 / start.elapsed().as_nanos() as f64
    };
    std::thread::scope(|scope| {
        let start = |share| scope.spawn(|| rate_of(share));
        let threads: Vec<_> = bytes.chunks_mut(share).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("it has no cause to end")).sum()
    })
}

/// STREAM's copy by the C library, twice: each thread its share of one half to the other, as a whole. From when all are
/// there until the last is done.
fn copy(bytes: &mut [u8], threads: usize) -> f64 {
    let (from, to) = bytes.split_at_mut(bytes.len() / 2);
    let share = from.len().div_ceil(threads);
    let begin = Barrier::new(threads);
    let copied = |from: &[u8], to: &mut [u8]| {
        begin.wait();
        let start = Instant::now();
        for _ in 0..2 {
            to.copy_from_slice(from);
        }
        start.elapsed()
    };
    let copied = &copied;
    let longest = std::thread::scope(|scope| {
        let shares = from.chunks(share).zip(to.chunks_mut(share));
        let threads: Vec<_> = shares.map(|(from, to)| scope.spawn(|| copied(from, to))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it has no cause to end")).max()
    });
    2.0 * from.len() as f64 / longest.expect("a thread").as_nanos() as f64
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
