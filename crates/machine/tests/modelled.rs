//! Modelled machines do what their parts are there for, and stop doing it when the parts are left out.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_machine::load::{Load, Op};
use terrace_machine::model::{Ablation, Machine, Modelled, Preset};
use terrace_memory::{Backing, Domain, Memory, Region};

fn preset(name: &str) -> Preset {
    Preset::named(name).unwrap()
}

fn optane(threads: usize) -> Machine {
    Machine::new(&preset("optane-004"), threads, 7)
}

fn pmem(machine: &Machine, bytes: u64) -> Modelled {
    machine.memory("pmem0", bytes, Domain::Adr).unwrap()
}

/// Numbers that look random and are the same each time.
fn scattered(count: u64, bound: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    })
}

/// Safe shorthands: all offsets of these tests are inside and aligned, and steps run one at a time.
trait Shorthand {
    fn get(&self, at: u64) -> u64;
    fn look(&self, at: u64) {
        self.get(at);
    }
    fn put(&self, at: u64, value: u64);
    fn write_out(&self, at: u64, bytes: u64);
    fn streamed(&self, at: u64, bytes: usize);
    fn wrote(&self, at: u64, bytes: usize);
}

impl<M: Memory> Shorthand for M {
    fn get(&self, at: u64) -> u64 {
        assert!(at + 8 <= self.len());
        // SAFETY: inside, and aligned by the callers.
        unsafe { self.load(at) }
    }
    fn put(&self, at: u64, value: u64) {
        assert!(at + 8 <= self.len());
        // SAFETY: as above.
        unsafe { self.store(at, value) }
    }
    fn write_out(&self, at: u64, bytes: u64) {
        // SAFETY: nothing is asked of a write-back but that it is inside.
        unsafe { self.write_back(at, bytes) }
    }
    fn streamed(&self, at: u64, bytes: usize) {
        assert!(at + bytes as u64 <= self.len());
        // SAFETY: inside; one thread at a time.
        unsafe { self.stream(at, &vec![3; bytes]) }
    }
    fn wrote(&self, at: u64, bytes: usize) {
        assert!(at + bytes as u64 <= self.len());
        // SAFETY: as above.
        unsafe { self.write(at, &vec![3; bytes]) }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let machine = Machine::new(&preset("optane-004").with_caches_divided(64), 3, seed);
        let memory = pmem(&machine, 16 << 20);
        let mut steps: Vec<_> = (0..3u64)
            .map(|thread| {
                let memory = &memory;
                let mut places = scattered(3000 + thread, (16 << 20) / 256);
                move || places.next().map(|place| memory.wrote(place * 256, 256)).is_some()
            })
            .collect();
        let time = machine.run_steps(&mut steps);
        (time, machine.node_counts("pmem0").unwrap(), machine.thread_counts(1))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2), "the seed decides what is evicted");
}

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
fn a_fence_waits_for_what_was_written_back() {
    let machine = optane(1);
    let memory = pmem(&machine, 1 << 20);
    memory.put(0, 1);
    memory.fence();
    let start = machine.now_ps();
    memory.put(0, 2);
    memory.write_out(0, 8);
    let issued = machine.now_ps();
    memory.fence();
    let fenced = machine.now_ps();
    assert!(issued - start < 10_000, "{} ps: it goes on behind", issued - start);
    assert!(fenced - issued >= 60_000, "{} ps: 62 ns to the controller", fenced - issued);
    let waited = machine.thread_counts(0).fence_wait_ps;
    memory.fence();
    assert_eq!(machine.thread_counts(0).fence_wait_ps, waited, "nothing was left to wait for");
}

#[test]
fn prefetched_lines_overlap_and_loads_do_not() {
    let machine = optane(1);
    let memory = pmem(&machine, 64 << 20);
    let places: Vec<u64> = scattered(12, (64 << 20) / 4096).map(|place| place * 4096).collect();
    let start = machine.now_ps();
    places.iter().for_each(|at| memory.look(*at));
    let one_by_one = machine.now_ps() - start;
    machine.clear_caches();
    let start = machine.now_ps();
    places.iter().for_each(|at| memory.prefetch(*at));
    places.iter().for_each(|at| memory.look(*at));
    let together = machine.now_ps() - start;
    assert!(one_by_one > 12 * 300_000, "{one_by_one}");
    assert!(together < one_by_one / 6, "{together} of {one_by_one}: twelve fill buffers");
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

#[test]
fn dirty_persistent_lines_slow_a_chase_in_dram() {
    let chase_ns = |dirty: bool, clean: bool| {
        let machine = Machine::new(&preset("optane-000").with_caches_divided(16), 16, 7);
        let persistent = machine.memory("pmem0", 64 << 20, Domain::Eadr).unwrap();
        let dram = machine.memory("dram0", 64 << 20, Domain::None).unwrap();
        let (chased, waited) = (Cell::new(0u64), Cell::new(0u64));
        let mut steps: Vec<Box<dyn FnMut() -> bool + '_>> = Vec::new();
        for thread in 0..16u64 {
            let (machine, persistent, dram) = (&machine, &persistent, &dram);
            let (chased, waited) = (&chased, &waited);
            let blocks = (64 << 20) / 256;
            let mut places =
                scattered(1500, blocks).map(move |place| (place * 31 + thread * 999_983) % blocks);
            steps.push(Box::new(move || {
                let Some(place) = places.next() else {
                    return false;
                };
                if dirty {
                    persistent.wrote(place * 256, 256);
                    if clean {
                        persistent.write_out(place * 256, 256);
                    }
                }
                let start = machine.now_ps();
                (0..4).for_each(|step| dram.look((place * 8191 + step * 77_777) % (1 << 20) * 64));
                chased.set(chased.get() + 4);
                waited.set(waited.get() + machine.now_ps() - start);
                true
            }));
        }
        machine.run_steps(&mut steps);
        waited.get() as f64 / 1000.0 / chased.get() as f64
    };
    let (idle, dirty, cleaned) =
        (chase_ns(false, false), chase_ns(true, false), chase_ns(true, true));
    println!("a step of the chase: {idle:.0} ns alone, {dirty:.0} dirty, {cleaned:.0} cleaned");
    assert!(dirty > 1.5 * idle, "{dirty} and {idle}");
    assert!(cleaned < 0.75 * dirty, "{cleaned} and {dirty}");
}

/// A list of nodes of two words, value and next: written against any memory.
fn list_sum<M: Memory>(memory: &M, values: &[u64]) -> u64 {
    let mut head = 0;
    for (place, value) in scattered(values.len() as u64, 1 << 14).zip(values) {
        let at = 64 + place * 64;
        if memory.get(at) != 0 {
            continue;
        }
        memory.put(at, *value);
        memory.put(at + 8, head);
        // SAFETY: inside.
        unsafe { memory.persist(at, 16) };
        head = at;
    }
    let mut sum = 0;
    while head != 0 {
        sum += memory.get(head);
        head = memory.get(head + 8);
    }
    sum
}

#[test]
fn a_structure_runs_on_it_unchanged() {
    let values: Vec<u64> = (1..=1000).collect();
    let region = Region::reserve(2 << 20, Backing::Anonymous).unwrap();
    region.commit(0, 2 << 20).unwrap();
    let expected = list_sum(&region.native(), &values);
    let machine = optane(1);
    let memory = pmem(&machine, 2 << 20);
    assert_eq!(list_sum(&memory, &values), expected);
    let counts = machine.node_counts("pmem0").unwrap();
    assert!(counts.written_back_bytes >= 64 * 900, "{counts:?}");
    assert!(machine.elapsed().as_micros() > 100);
}

#[test]
fn threads_that_are_closures_exclude_one_another() {
    let run = || {
        let machine = optane(4);
        let memory = pmem(&machine, 4096);
        let threads = (0..4)
            .map(|_| -> Box<dyn FnOnce() + Send + '_> {
                Box::new(|| {
                    for _ in 0..200 {
                        // A lock in the memory, and a counter that is not exchanged but stored.
                        // SAFETY: inside and aligned.
                        while unsafe { memory.compare_exchange(0, 0, 1) }.is_err() {
                            memory.pause();
                        }
                        let count = memory.get(64);
                        memory.put(64, count + 1);
                        memory.put(0, 0);
                    }
                })
            })
            .collect();
        let time = machine.run_threads(threads);
        assert_eq!(memory.get(64), 800);
        let taken: u64 = (0..4).map(|thread| machine.thread_counts(thread).from_cores).sum();
        assert!(taken >= 8, "{taken}: the lock goes from core to core");
        time
    };
    assert_eq!(run(), run(), "not even the operating system's threads make a difference");
}

#[test]
fn a_thread_that_panics_ends_the_run() {
    let machine = optane(2);
    let memory = pmem(&machine, 4096);
    let ran = AtomicU64::new(0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        machine.run_threads(vec![
            Box::new(|| panic!("on purpose")),
            Box::new(|| {
                memory.put(0, 1);
                ran.fetch_add(1, Relaxed);
            }),
        ])
    }));
    assert!(result.is_err());
    assert_eq!(ran.load(Relaxed), 1, "the other went on");
}

#[test]
fn what_one_core_wrote_another_takes_from_it() {
    let machine = optane(2);
    let memory = pmem(&machine, 4096);
    memory.put(0, 1);
    memory.fence();
    machine.barrier();
    machine.enter(1);
    let start = machine.now_ps();
    assert_eq!(memory.get(0), 1);
    let shared = machine.now_ps() - start;
    assert_eq!(machine.thread_counts(1).from_cores, 1);
    assert!((50_000..60_000).contains(&shared), "{shared} ps: 55 ns from core to core");
    // Writing it asks the first for it; its next load finds it gone.
    memory.put(0, 2);
    memory.fence();
    machine.barrier();
    machine.enter(0);
    let before = machine.thread_counts(0).from_cores;
    assert_eq!(memory.get(0), 2);
    assert_eq!(machine.thread_counts(0).from_cores, before + 1);
}

#[test]
fn another_socket_is_further_and_its_link_is_shared() {
    let preset = preset("four-socket");
    let latency = |node: &str| {
        let machine = Machine::new(&preset, 1, 7);
        let memory = machine.memory(node, 64 << 20, Domain::None).unwrap();
        let start = machine.now_ps();
        scattered(1000, (64 << 20) / 4096).for_each(|place| memory.look(place * 4096));
        (machine.now_ps() - start) as f64 / 1e6
    };
    let (near, far) = (latency("dram0"), latency("dram1"));
    assert!((55.0..65.0).contains(&(far - near)), "{near} and {far} ns");
    let bandwidth = |node: &str| {
        let machine = Machine::new(&preset, 24, 7);
        let memory = machine.memory(node, 96 << 20, Domain::None).unwrap();
        let mut steps: Vec<_> = (0..24u64)
            .map(|thread| {
                let memory = &memory;
                let mut pieces = 0..256u64;
                move || {
                    let next = pieces.next();
                    // SAFETY: inside; nobody writes.
                    next.map(|piece| unsafe { memory.bytes((thread << 22) + piece * 4096, 4096) })
                        .is_some()
                }
            })
            .collect();
        (24.0 * 256.0 * 4096.0) / 1e9 / machine.run_steps(&mut steps).as_secs_f64()
    };
    let (near, far) = (bandwidth("dram0"), bandwidth("dram1"));
    assert!(near > 80.0, "{near} GB/s");
    assert!((18.0..21.5).contains(&far), "{far} GB/s: one link of 20.8");
}

#[test]
fn demoting_early_pays_where_a_fence_follows() {
    // Paper 000, Listing 3: nothing without reads between, nothing with very many, a hump between, and
    // further out on the slower device.
    let best = |name: &str| {
        let round = |reads: u64, demote: bool| {
            let machine = Machine::new(&preset(name), 1, 7);
            let fpga = machine.memory("fpga", 64 << 20, Domain::None).unwrap();
            let near = machine.memory("dram0", 8192, Domain::None).unwrap();
            for place in scattered(2000, (64 << 20) / 128) {
                fpga.wrote(place * 128, 128);
                if demote {
                    // SAFETY: inside.
                    unsafe { fpga.demote(place * 128, 128) };
                }
                (0..reads).for_each(|read| near.look(read * 128 % 8192));
                fpga.fence();
            }
            machine.elapsed().as_secs_f64()
        };
        let gains: Vec<(u64, f64)> = [0, 8, 16, 32, 64, 128, 256, 4096]
            .map(|reads| (reads, round(reads, false) / round(reads, true)))
            .into();
        assert!(gains[0].1 < 1.02 && gains[7].1 < 1.05, "{name}: {gains:?}");
        let best = gains.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        assert!((1.4..2.0).contains(&best.1), "{name}: {best:?}");
        best.0
    };
    let (fast, slow) = (best("enzian-fast"), best("enzian-slow"));
    assert!(fast < slow, "{fast} and {slow} reads");
}

#[test]
fn whether_a_write_back_keeps_the_line_shows_in_the_next_load() {
    let reread = |name: &str| {
        let machine = Machine::new(&preset(name), 1, 7);
        let memory = pmem(&machine, 4096);
        memory.put(0, 1);
        memory.write_out(0, 8);
        memory.fence();
        let start = machine.now_ps();
        memory.get(0);
        machine.now_ps() - start
    };
    assert!(reread("optane-000") < 10_000, "kept");
    assert!(reread("optane-001") > 160_000, "flushed");
}

#[test]
fn every_preset_makes_a_machine_of_all_its_threads() {
    for name in Preset::names() {
        let preset = preset(name);
        assert_eq!(preset.name, name);
        let machine = Machine::new(&preset, preset.threads(), 7);
        let memories: Vec<Modelled> = preset
            .node
            .iter()
            .map(|node| machine.memory(&node.name, 1 << 20, Domain::None).unwrap())
            .collect();
        let mut steps: Vec<_> = (0..preset.threads() as u64)
            .map(|thread| {
                let memories = &memories;
                let mut left = 20;
                move || {
                    let memory = &memories[thread as usize % memories.len()];
                    memory.put((thread * 64 + left * 4096) % (1 << 20), thread);
                    left -= 1;
                    left > 0
                }
            })
            .collect();
        let time = machine.run_steps(&mut steps);
        println!("{name}: {} threads, {time:?}", preset.threads());
        assert!(time.as_nanos() > 0);
    }
}

#[test]
fn a_preset_is_refused_in_one_line() {
    let text = Preset::text("cxl").unwrap();
    let cases = [
        (
            text.replace("clock_mhz", "clock_ghz"),
            "unknown field `clock_ghz`, expected one of `sockets`",
        ),
        (
            text.replace("\"eager\"", "\"soon\""),
            "unknown variant `soon`, expected `eager` or `lazy`",
        ),
        (text.replace("sockets = 1", "sockets = 500"), "it must be 1 to 128"),
        (text.replace("ways = 12", "ways = 77"), "cache[0].ways = 77"),
        (text.replace("channels = 2  ", "channels = 0  "), "at least one channel"),
    ];
    for (text, expected) in cases {
        let error = Preset::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    let error = Preset::named("optane").unwrap_err().to_string();
    assert!(error.contains("optane-004, enzian-fast"), "{error}");
    let machine = optane(1);
    let error = machine.memory("hbm0", 4096, Domain::None).unwrap_err().to_string();
    assert!(error.contains("there are dram0, pmem0"), "{error}");
}

#[test]
fn the_model_agrees_with_the_reference_device() {
    let table = terrace_machine::model::calibrate::calibrate("optane-004").unwrap();
    println!("{table}");
    let misses: Vec<_> = table.checks.iter().filter(|check| !check.agrees()).collect();
    assert!(misses.is_empty(), "{misses:?}");
}

#[test]
fn this_machine_can_be_modelled_too() {
    use terrace_machine::model::preset::Measured;

    let topology = terrace_memory::Topology::read().unwrap();
    let given = Measured {
        cache_ns: [2.0, 6.0, 40.0],
        random_read_ns: 120.0,
        read_gb_s: 10.0,
        write_gb_s: 8.0,
        write_back_ns: 60.0,
        stream_ns: 90.0,
    };
    let preset = Preset::of_machine(&topology, &given);
    let machine = Machine::new(&preset, 1, 7);
    let memory = machine.memory("dram0", 1 << 20, Domain::None).unwrap();
    memory.look(0);
    assert_eq!(machine.now_ps(), 120_000);
    memory.look(0);
    assert_eq!(machine.now_ps(), 122_000);
}

#[test]
fn a_read_of_another_socket_is_noted_in_memory_until_the_line_is_written() {
    // Notes written while 1000 lines are looked at, and while they are again, from memory too.
    let noted = |node: &str, notes: bool, write: bool| {
        let mut preset = preset("optane-001");
        preset.link.as_mut().unwrap().notes_in_memory = notes;
        let machine = Machine::new(&preset, 1, 7);
        let memory = machine.memory(node, 1 << 20, Domain::Adr).unwrap();
        // The processor's own prefetcher sees no sequence in every fourth line.
        let look = || {
            let before = machine.node_counts(node).unwrap().noted_bytes;
            (0..1000u64).for_each(|block| memory.look(block * 256));
            (machine.node_counts(node).unwrap().noted_bytes - before) / 64
        };
        let first = look();
        if write {
            (0..1000u64).for_each(|block| memory.wrote(block * 256, 64));
        }
        machine.clear_caches();
        (first, look())
    };
    // The last ones wait in the queues of six channels, of 72 lines each.
    let most = 1000 - 6 * 72;
    let (first, again) = noted("pmem1", true, false);
    assert!((most..most + 50).contains(&first) && again < 50, "{first}, and {again}: notes stand");
    let (first, again) = noted("pmem1", true, true);
    assert!((most..most + 50).contains(&first), "{first}");
    assert!((most..most + 50).contains(&again), "{again}: a line that was written is news again");
    assert_eq!(noted("pmem0", true, true), (0, 0));
    assert_eq!(noted("pmem1", false, true), (0, 0));
}

#[test]
fn notes_in_memory_cost_many_remote_writers_of_persistent_memory_half() {
    let remote_by_local = |notes: bool, threads| {
        let mut preset = preset("optane-001");
        preset.link.as_mut().unwrap().notes_in_memory = notes;
        let rate = |node: &str| {
            let load = Load {
                node,
                op: Op::StoreFlush,
                random: false,
                bytes: 4096,
                threads,
                overhead_ns: 0.0,
            };
            load.run(&preset).unwrap().gb_s()
        };
        rate("pmem1") / rate("pmem0")
    };
    let (with, without) = (remote_by_local(true, 8), remote_by_local(false, 8));
    println!("remote by local, 8 threads: {with:.2} with notes, {without:.2} without");
    assert!(with < 0.6 && without > 0.9, "{with} and {without}");
    // One writer's notes wait until its own writes come.
    let (with, without) = (remote_by_local(true, 1), remote_by_local(false, 1));
    println!("remote by local, 1 thread: {with:.2} with notes, {without:.2} without");
    assert!(with > 0.9 * without, "{with} and {without}");
}

#[test]
fn a_line_takes_as_many_cycles_as_it_takes_stores() {
    let machine = optane(1);
    let memory = pmem(&machine, 4096);
    memory.put(0, 1);
    memory.fence();
    let time = |bytes: usize| {
        let start = machine.now_ps();
        (0..1000).for_each(|_| memory.wrote(0, bytes));
        (machine.now_ps() - start) as f64 / 1000.0 / 1000.0
    };
    let (word, line) = (time(8), time(64));
    assert!((line / word - 2.0).abs() < 0.05, "{word} and {line} ns: 32 bytes a cycle");
}

#[test]
fn a_borrow_costs_what_is_looked_at_and_what_is_free_of_charge_nothing() {
    let machine = optane(1);
    let memory = pmem(&machine, 1 << 20);
    // SAFETY: inside, and nobody writes it.
    let borrowed = unsafe { memory.borrow(4096, 640) };
    assert_eq!((borrowed.len(), machine.now_ps()), (640, 0));
    machine.free_of_charge(|| memory.wrote(4096, 640));
    assert_eq!((machine.now_ps(), borrowed.len()), (0, 640));
    memory.looked_at(4096, 640);
    assert!(machine.now_ps() > 0);
    assert_eq!(machine.thread_counts(0).accesses, 10);
}

#[test]
fn dirty_persistent_lines_slow_a_chase_through_dram_and_clean_ones_do_not() {
    use terrace_machine::beside::{Chase, Dirty};

    let step_ns = |dirty, written, threads| {
        let chase = Chase { chased: "dram0", written, dirty, bytes: 1024, steps: 4, threads };
        chase.run(&preset("optane-004").with_caches_divided(8)).unwrap().step_ns
    };
    let (dram, kept) = (step_ns(Dirty::Kept, "dram0", 16), step_ns(Dirty::Kept, "pmem0", 16));
    assert!(kept > 1.5 * dram, "{kept} {dram}");
    let cleaned = step_ns(Dirty::Cleaned, "pmem0", 16);
    assert!(cleaned < (kept + dram) / 2.0, "{cleaned} {kept} {dram}");
}
