//! What a medium does with lines: they are combined, fetched ahead, and waited for.

use super::{Shorthand, optane, pmem, preset, scattered};
use terrace_machine::model::{Ablation, Machine, Preset};
use terrace_memory::Memory;

#[test]
fn whole_lines_of_the_medium_cost_once_and_single_lines_four_times() {
    let machine = optane(1);
    let memory = pmem(&machine, 64 << 20);
    (0..4000).for_each(|block| memory.streamed(block * 256, 256));
    memory.fence();
    machine.settle();
    let whole = machine.node_counts("pmem0").unwrap();
    assert_eq!(whole.ewr(), 1.0);
    scattered(4000, (64 << 20) / 256).for_each(|block| memory.streamed(block * 256, 64));
    memory.fence();
    machine.settle();
    let single = machine.node_counts("pmem0").unwrap() - whole;
    assert_eq!(single.streamed_bytes, 4000 * 64);
    let amplification = single.write_amplification();
    assert!((3.95..=4.0).contains(&amplification), "{amplification}: few fell into one block");
    assert_eq!(single.ewr(), 1.0 / amplification);
}

#[test]
fn without_a_combining_buffer_whole_lines_are_written_piece_by_piece() {
    let preset = preset("optane-004").without(Ablation { combining: true, ..Ablation::default() });
    let machine = Machine::new(&preset, 1, 7);
    let memory = pmem(&machine, 1 << 20);
    (0..1000).for_each(|block| memory.streamed(block * 256, 256));
    machine.settle();
    assert_eq!(machine.node_counts("pmem0").unwrap().ewr(), 0.25);
}

#[test]
fn without_prefetchers_sequential_reads_wait_as_random_ones_do() {
    let time = |without| {
        let machine = Machine::new(&preset("optane-004").without(without), 1, 7);
        let memory = pmem(&machine, 4 << 20);
        (0..(4 << 20) / 64).for_each(|line| memory.look(line * 64));
        machine.elapsed().as_secs_f64()
    };
    let with = time(Ablation::default());
    let without = time(Ablation { prefetching: true, ..Ablation::default() });
    assert!(without > 2.5 * with, "{without} and {with} s");
}

#[test]
fn plain_stores_lose_what_write_backs_keep_in_order() {
    // I5 of the persistent memory study, small: caches evict in an order of their own.
    let bandwidth_and_ewr = |flush: bool| {
        let preset = preset("optane-004").with_caches_divided(32);
        let machine = Machine::new(&preset, 8, 7);
        let memory = pmem(&machine, 64 << 20);
        let mut steps: Vec<_> = (0..8u64)
            .map(|thread| {
                let (memory, start) = (&memory, thread * (8 << 20));
                let mut blocks = 0..(4u64 << 20) / 256;
                move || {
                    blocks
                        .next()
                        .map(|block| {
                            memory.wrote(start + block * 256, 256);
                            if flush {
                                memory.write_out(start + block * 256, 256);
                            }
                        })
                        .is_some()
                }
            })
            .collect();
        let time = machine.run_steps(&mut steps);
        (1.0 / time.as_secs_f64(), machine.node_counts("pmem0").unwrap().ewr())
    };
    let ((plain, scattered), (flushed, whole)) =
        (bandwidth_and_ewr(false), bandwidth_and_ewr(true));
    assert!(whole > 0.99, "{whole}");
    assert!(scattered < 0.5, "{scattered}");
    assert!(plain < 0.7 * flushed, "{plain} of {flushed}");
}

/// Bytes a second of one thread among `threads` that stream pieces to persistent memory.
fn streamed_by_each(preset: &Preset, threads: usize) -> f64 {
    let cores: Vec<usize> = (0..threads).map(|t| t % preset.processor.cores_per_socket).collect();
    let machine = Machine::pinned(preset, &cores, 7);
    let memory = pmem(&machine, 256 << 20);
    let pieces = 60_000 / threads as u64;
    let mut steps: Vec<_> = (0..threads as u64)
        .map(|thread| {
            let (memory, start) = (&memory, thread * (5 << 20));
            let mut places = 0..pieces;
            move || {
                let next = places.next();
                next.map(|place| memory.streamed(start + place * 256 % (5 << 20), 256)).is_some()
            }
        })
        .collect();
    let time = machine.run_steps(&mut steps);
    (pieces * 256) as f64 / time.as_secs_f64()
}

#[test]
fn forty_eight_writers_get_less_each_than_one() {
    let preset = preset("optane-004");
    let (one, many) = (streamed_by_each(&preset, 1), streamed_by_each(&preset, 48));
    let all = 48.0 * many / 1e9;
    assert!(many < one / 10.0, "{many} of {one}");
    assert!((10.0..12.0).contains(&all), "{all} GB/s: the medium's 11.5");
    let alone = preset.clone().without(Ablation { queueing: true, ..Ablation::default() });
    let free = streamed_by_each(&alone, 48);
    assert!(free > 0.9 * one, "{free} of {one}: without queueing nobody hinders anybody");
}
