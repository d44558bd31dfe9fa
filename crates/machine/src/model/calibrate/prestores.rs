//! Pre-stores: the microbenchmarks of paper 000, chapter 3.

use super::super::{Machine, NodeCounts, Preset};
use super::Check;
use crate::ground::Ground;
use crate::random::Rng;
use std::time::Duration;
use terrace_memory::{Domain, Memory};

/// Elements of Listing 2's array, all together: several times the shared cache.
const ARRAY_BYTES: u64 = 192 << 20;

/// The largest part of an element that is written in one step.
const PART: u64 = 256;

/// Listing 2: random elements are written, cleaned or not, and a field of them is read.
fn listing_2(preset: &Preset, threads: usize, element: u64, clean: bool) -> (f64, NodeCounts) {
    let machine = preset.bench(threads).expect("a socket has so many threads");
    let memory = machine.memory("pmem0", ARRAY_BYTES, Domain::Eadr).expect("the node exists");
    let elements = ARRAY_BYTES / element;
    let run = |bytes: u64, seed: u64| -> Duration {
        let each = bytes / element / threads as u64;
        let mut steps: Vec<_> = (0..threads)
            .map(|thread| {
                let (mut rng, mut left, mut at, mut done) =
                    (Rng::new(seed + thread as u64), each, 0, 0);
                let memory = &memory;
                // A part of an element at a time, so that threads interleave as on real cores.
                move || {
                    if done == 0 {
                        at = rng.below(elements) * element;
                    }
                    let part = PART.min(element - done);
                    // SAFETY: inside; steps run one at a time.
                    unsafe { memory.write(at + done, &[5; PART as usize][..part as usize]) };
                    done += part;
                    if done < element {
                        return true;
                    }
                    done = 0;
                    // SAFETY: as above.
                    unsafe {
                        if clean {
                            memory.write_back(at, element);
                        }
                        memory.load(at);
                    }
                    left -= 1;
                    left > 0
                }
            })
            .collect();
        machine.run_steps(&mut steps)
    };
    // Until the caches are full of written elements, then measured.
    run(96 << 20, 100);
    let before = machine.node_counts("pmem0").expect("the node exists");
    let bytes = 64 << 20;
    let time = run(bytes, 200);
    let counts = machine.node_counts("pmem0").expect("the node exists") - before;
    (bytes as f64 / element as f64 / time.as_secs_f64(), counts)
}

/// Machine A.
pub(super) fn on_optane(preset: &Preset) -> Vec<Check> {
    let source = "paper 000, F3.3";
    let scattered =
        "what makes the order of evictions depend on the number of threads is not published";
    let mut checks = Vec::new();
    for (threads, published) in [(1, 1.8), (2, 3.3), (5, 3.3)] {
        let (_, counts) = listing_2(preset, threads, 1024, false);
        checks.push(Check {
            what: format!("Listing 2, 1 KiB, {threads} threads, write amplification"),
            source,
            published,
            modelled: counts.write_amplification(),
            given: threads <= 2,
            reason: scattered,
        });
    }
    let (_, counts) = listing_2(preset, 2, 1024, true);
    checks.push(Check {
        what: "Listing 2 with clean, 1 KiB, 2 threads, write amplification".into(),
        source,
        published: 1.0,
        modelled: counts.write_amplification(),
        given: false,
        reason: "",
    });
    let (_, counts) = listing_2(preset, 2, 128, true);
    checks.push(Check {
        what: "Listing 2 with clean, 128 B, 2 threads, write amplification".into(),
        source: "paper 000, 4.5 (halved)",
        published: 2.0,
        modelled: counts.write_amplification(),
        given: false,
        reason: "",
    });
    for (threads, published) in [(1, 1.0), (2, 2.2), (5, 3.0)] {
        // The paper's are the best of its sizes of elements.
        let gains = [256, 1024, 4096].map(|element| {
            let (plain, _) = listing_2(preset, threads, element, false);
            let (cleaned, _) = listing_2(preset, threads, element, true);
            cleaned / plain
        });
        checks.push(Check {
            what: format!("Listing 2, {threads} threads, most gain of clean"),
            source,
            published,
            modelled: gains.into_iter().fold(0.0, f64::max),
            given: false,
            reason: "a thread's stores wait for the medium in turn here, so few threads saturate it less",
        });
    }
    checks.push(Check {
        what: "Listing 4, slowdown of cleaning one line again and again".into(),
        source: "paper 000, 3.5",
        published: 75.0,
        modelled: listing_4(preset),
        given: false,
        reason: "how long a core keeps a line that is being written back is not published",
    });
    checks
}

/// Listing 4: one line is written and cleaned, again and again; the slowdown by cleaning.
fn listing_4(preset: &Preset) -> f64 {
    let time = |clean: bool| {
        let machine = Machine::new(preset, 1, 1);
        let memory = machine.memory("pmem0", 4096, Domain::Eadr).expect("the node exists");
        for _ in 0..20_000 {
            // SAFETY: inside; nobody else is there.
            unsafe {
                memory.write(0, &[1; 64]);
                if clean {
                    memory.write_back(0, 64);
                }
            }
        }
        machine.elapsed().as_secs_f64()
    };
    time(true) / time(false)
}

/// Listing 3: a line is written, demoted or not, `reads` lines are read from the nearest cache, and a
/// fence follows; nanoseconds a round.
pub(super) fn listing_3(preset: &Preset, reads: u64, demote: bool) -> f64 {
    let machine = Machine::new(preset, 1, 1);
    let line = preset.processor.line_bytes;
    let array = machine.memory("fpga", 256 << 20, Domain::None).expect("the node exists");
    let near = machine.memory("dram0", 8192, Domain::None).expect("the node exists");
    let mut rng = Rng::new(9);
    let rounds = 20_000;
    let start = machine.now_ps();
    for _ in 0..rounds {
        let at = rng.below(array.len() / line) * line;
        // SAFETY: inside; nobody else is there.
        unsafe {
            array.write(at, &[1; 128]);
            if demote {
                array.demote(at, line);
            }
            for read in 0..reads {
                near.load(read * line % near.len());
            }
        }
        array.fence();
    }
    (machine.now_ps() - start) as f64 / 1000.0 / rounds as f64
}

/// Machine B.
pub(super) fn on_enzian(preset: &Preset) -> Vec<Check> {
    let gain = |reads| listing_3(preset, reads, false) / listing_3(preset, reads, true) - 1.0;
    let sweep: Vec<(u64, f64)> = (0..=14)
        .map(|power| if power == 0 { 0 } else { 1 << (power - 1) })
        .map(|reads| (reads, gain(reads)))
        .collect();
    let (at, most) = sweep.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0));
    let last = sweep.last().map_or(0.0, |(_, gain)| *gain);
    let check = |what: String, published, modelled, reason| Check {
        what,
        source: "paper 000, F3.5",
        published,
        modelled,
        given: false,
        reason,
    };
    vec![
        check(
            format!("Listing 3, most gain of demote, at {at} reads"),
            1.65,
            1.0 + most,
            "a part of the fetch does not overlap on the machine; 2 is the most where all of it does",
        ),
        check("Listing 3, gain of demote without reads".into(), 1.0, 1.0 + sweep[0].1, ""),
        check("Listing 3, gain of demote with 8192 reads".into(), 1.0, 1.0 + last, ""),
    ]
}
