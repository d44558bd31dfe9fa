//! Pre-stores: the microbenchmarks of Wu, chapter 3.

use super::super::Preset;
use super::Check;
use super::load::load_latency_ns;
use crate::kernels::{self, Cost, Listing2, Prestore};

/// Bytes written while Listing 2 counts.
const BYTES: u64 = 64 << 20;

fn listing_2(preset: &Preset, threads: usize, element: u64, prestore: Prestore) -> Cost {
    let listing = Listing2 { node: "pmem0", threads, element, prestore, reads: true, bytes: BYTES };
    kernels::listing_2(preset, listing).expect("the preset has the node and the threads")
}

/// Machine A.
pub(super) fn on_optane(preset: &Preset) -> Vec<Check> {
    let source = "Wu, figure 3.3";
    let scattered =
        "what makes the order of evictions depend on the number of threads is not published";
    let mut checks = Vec::new();
    for (threads, published) in [(1, 1.8), (2, 3.3), (5, 3.3)] {
        let cost = listing_2(preset, threads, 1024, Prestore::Nothing);
        checks.push(Check {
            what: format!("Listing 2, 1 KiB, {threads} threads, write amplification"),
            source,
            published,
            modelled: cost.amplification(),
            given: threads <= 2,
            reason: scattered,
        });
    }
    let cost = listing_2(preset, 2, 1024, Prestore::Clean);
    checks.push(Check {
        what: "Listing 2 with clean, 1 KiB, 2 threads, write amplification".into(),
        source,
        published: 1.0,
        modelled: cost.amplification(),
        given: false,
        reason: "",
    });
    let cost = listing_2(preset, 2, 128, Prestore::Clean);
    checks.push(Check {
        what: "Listing 2 with clean, 128 B, 2 threads, write amplification".into(),
        source: "Wu, section 3.7 (halved)",
        published: 2.0,
        modelled: cost.amplification(),
        given: false,
        reason: "",
    });
    for (threads, published) in [(1, 1.0), (2, 2.2), (5, 3.0)] {
        // The paper's are the best of its sizes of elements.
        let gains = [256, 1024, 4096].map(|element| {
            let plain = listing_2(preset, threads, element, Prestore::Nothing);
            listing_2(preset, threads, element, Prestore::Clean).gain_over(&plain)
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
        source: "Wu, 3.5",
        published: 75.0,
        modelled: listing_4(preset),
        given: false,
        reason: "how long a core keeps a line that is being written back is not published",
    });
    checks
}

/// Listing 4: the slowdown by cleaning.
fn listing_4(preset: &Preset) -> f64 {
    let ns = |prestore| {
        let cost = kernels::listing_4(preset, "pmem0", prestore, 20_000);
        cost.expect("the preset has the node").ns()
    };
    ns(Prestore::Clean) / ns(Prestore::Nothing)
}

/// Listing 3, nanoseconds a round.
fn listing_3(preset: &Preset, reads: u64, prestore: Prestore) -> f64 {
    let (nodes, line) = (("fpga", "dram0"), preset.processor.line_bytes);
    let cost = kernels::listing_3(preset, nodes, line, reads, prestore, 20_000);
    cost.expect("the preset has the nodes").ns()
}

/// Machine B.
pub(super) fn on_enzian(preset: &Preset) -> Vec<Check> {
    let gain = |reads| {
        listing_3(preset, reads, Prestore::Nothing) / listing_3(preset, reads, Prestore::Demote)
            - 1.0
    };
    let sweep: Vec<(u64, f64)> = (0..=14)
        .map(|power| if power == 0 { 0 } else { 1 << (power - 1) })
        .map(|reads| (reads, gain(reads)))
        .collect();
    let (at, most) = sweep.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0));
    let last = sweep.last().map_or(0.0, |(_, gain)| *gain);
    let check = |what: String, published, modelled, reason| Check {
        what,
        source: "Wu, figure 3.5",
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
        Check {
            source: "AnandTech 10353",
            given: true,
            ..check(
                "dram0 idle random load, ns".into(),
                103.0,
                load_latency_ns(preset, "dram0", true),
                "",
            )
        },
    ]
}
