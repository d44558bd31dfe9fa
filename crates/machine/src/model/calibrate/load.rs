//! Loads that only the calibration has.

use super::super::{Machine, Preset};
use super::run;
use crate::load::{Load, Op};
use crate::loaded::{Loaded, Point};
use crate::random::Rng;
use crate::test_bed::TestBed;
use terrace_memory::{Domain, Memory};

/// The mean time of a dependent load, nanoseconds, over a region far larger than the caches.
pub(super) fn load_latency_ns(preset: &Preset, node: &str, random: bool) -> f64 {
    // The papers' tool switches prefetchers of the processor off for it.
    let mut preset = preset.clone();
    preset.processor.prefetch_lines = 0;
    let machine = Machine::new(&preset, 1, 1);
    let bytes = 256 << 20;
    let memory = machine.memory(node, bytes, Domain::None).expect("the node exists");
    let mut rng = Rng::new(3);
    let loads = 50_000;
    let start = machine.now_ps();
    for load in 0..loads {
        let line = if random { rng.below(bytes / 64) } else { load };
        // SAFETY: inside and aligned; nobody else is there.
        unsafe { memory.load(line * 64) };
    }
    (machine.now_ps() - start) as f64 / 1000.0 / loads as f64
}

/// The mean time from a write-back of a dirty line, or a streaming store, to the end of its fence.
pub(super) fn persist_ns(preset: &Preset, node: &str, stream: bool) -> f64 {
    let machine = Machine::new(preset, 1, 1);
    let memory = machine.memory(node, 16 << 20, Domain::Adr).expect("the node exists");
    let (mut total, rounds) = (0, 1000);
    for round in 0..rounds {
        let at = round * 4096;
        // SAFETY: inside and aligned; nobody else is there.
        unsafe {
            if !stream {
                memory.store(at, 1);
                machine.compute_ns(1000.0);
            }
            let start = machine.now_ps();
            if stream {
                memory.stream(at, &[1; 64]);
            } else {
                memory.write_back(at, 64);
            }
            memory.fence();
            total += machine.now_ps() - start;
        }
        machine.compute_ns(1000.0);
    }
    total as f64 / 1000.0 / rounds as f64
}

/// Bandwidth of single lines at random places, with this many in flight from each thread.
pub(super) fn random_lines_gb_s(
    preset: &Preset,
    node: &'static str,
    threads: usize,
    batch: u64,
) -> f64 {
    let machine = preset.bench(threads).expect("a socket has so many threads");
    let bytes = 512 << 20;
    let memory = machine.memory(node, bytes, Domain::None).expect("the node exists");
    let line = preset.processor.line_bytes;
    let rounds = 400_000 / threads as u64 / batch;
    let mut steps: Vec<_> = (0..threads)
        .map(|thread| {
            let (mut rng, mut left, memory) = (Rng::new(thread as u64), rounds, &memory);
            move || {
                let lines: Vec<u64> = (0..batch).map(|_| rng.below(bytes / line) * line).collect();
                lines.iter().for_each(|at| memory.prefetch(*at));
                // SAFETY: inside and aligned; nobody writes.
                lines.iter().for_each(|at| unsafe {
                    memory.load(*at);
                });
                left -= 1;
                left > 0
            }
        })
        .collect();
    let time = machine.run_steps(&mut steps);
    (threads as u64 * rounds * batch * line) as f64 / 1e9 / time.as_secs_f64()
}

/// Caches are divided where memory is loaded from all sides: the less is laid before it.
const DIVISOR: u64 = 32;
/// Samples of 32 loads.
const SAMPLES: u64 = 300;

/// Loads beside threads that move bytes as fast as they can, this percentage of them written.
pub(super) fn mixed(preset: &Preset, node: &str, writes_percent: u64, threads: usize) -> Point {
    let near = preset.clone().with_caches_divided(DIVISOR);
    let setting = Loaded { node, writes_percent, pause_ns: 0.0, threads, samples: SAMPLES };
    setting.run(&near).expect("the preset has the nodes and the threads")
}

/// What all cores of the first socket read of another's memory. The papers' tool reads the same lines again and
/// again, whose notes in memory stand after the first time.
pub(super) fn remote_gb_s(preset: &Preset, node: &'static str) -> f64 {
    let mut preset = preset.clone();
    preset.link.as_mut().expect("it has several sockets").notes_in_memory = false;
    let threads = preset.processor.cores_per_socket;
    let load = Load { node, op: Op::Read, random: false, bytes: 4096, threads, overhead_ns: 0.0 };
    run(load, &preset).gb_s()
}

/// The mean time to load a line that the first core has changed and the second has not.
pub(super) fn changed_line_ns(preset: &Preset, cores: [usize; 2]) -> f64 {
    let mut preset = preset.clone();
    preset.processor.prefetch_lines = 0;
    let machine = Machine::pinned(&preset, &cores, 1);
    let memory = machine.memory("dram0", 1 << 20, Domain::None).expect("the node exists");
    // Few enough for the first core's private caches.
    let lines = 128;
    // SAFETY: inside and aligned; nobody else is there.
    (0..lines).for_each(|line| unsafe { memory.store(line * 320, 1) });
    memory.fence();
    machine.barrier();
    machine.enter(1);
    let start = machine.now_ps();
    // SAFETY: as above.
    (0..lines).for_each(|line| unsafe {
        memory.load(line * 320);
    });
    (machine.now_ps() - start) as f64 / 1000.0 / lines as f64
}
