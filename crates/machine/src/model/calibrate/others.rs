//! Machines of which few figures were published.
//!
//! What Intel's Memory Latency Checker found is published for machines of the same generations, whose figures
//! the presets of these were not given: two Xeon Platinum 8180 (FDio/csit, `test_environment_sut_calib_skx.rst`),
//! two Xeon Gold 6240 and two Xeon Platinum 8468 (gjbex/Code-optimization, `info`).

use super::super::Preset;
use super::load::{changed_line_ns, load_latency_ns, mixed, random_lines_gb_s, remote_gb_s};
use super::{Check, run};
use crate::copy::{Copy, CopyMethod};
use crate::load::{Load, Op};

const MLC_SKYLAKE: &str = "MLC, 2 x Xeon 8180 (FD.io CSIT)";
const MLC_CASCADE_LAKE: &str = "MLC, 2 x Xeon Gold 6240";
const MLC_SAPPHIRE_RAPIDS: &str = "MLC, 2 x Xeon 8468";
const CARD: &str = "CacheLib wiki, OCP demo";
const WIRES: &str = "reads and writes of a channel share its wires here and lose nothing by turns";
const WAIT: &str =
    "a modelled thread has one piece on its way at a time; a processor runs ahead into the next";

pub(super) fn of(preset: &Preset) -> Vec<Check> {
    match preset.name.as_str() {
        "xeon-max" => xeon_max(preset),
        "m2-ultra" => m2_ultra(preset),
        "two-socket" | "four-socket" => dram(preset),
        "cxl" => cxl(preset),
        _ => Vec::new(),
    }
}

fn gb_s(preset: &Preset, node: &'static str, op: Op, threads: usize) -> f64 {
    run(Load { node, op, random: false, bytes: 4096, threads, overhead_ns: 0.0 }, preset).gb_s()
}

/// A figure that the preset has, as it was published or as ASSUMED.
fn given(what: &str, source: &'static str, published: f64, modelled: f64) -> Check {
    Check { what: what.into(), source, published, modelled, given: true, reason: "" }
}

/// A figure that nothing in the preset was taken from.
fn predicted(
    what: &str,
    source: &'static str,
    [published, modelled]: [f64; 2],
    reason: &'static str,
) -> Check {
    Check { what: what.into(), source, published, modelled, given: false, reason }
}

/// What threads that read two bytes for each that they write move, one after the other.
fn triad_gb_s(preset: &Preset, node: &'static str, threads: usize) -> f64 {
    let [read, write] = [Op::Read, Op::StreamOn].map(|op| gb_s(preset, node, op, threads));
    3.0 / (2.0 / read + 1.0 / write)
}

/// Bytes that all cores of a socket move where of 100 pieces so many are written, by those of reads alone.
fn mix_by_reads(preset: &Preset, writes_percent: u64) -> f64 {
    let others = preset.processor.cores_per_socket - 1;
    let moved = |percent| mixed(preset, "dram0", percent, others).gb_s;
    moved(writes_percent) / moved(0)
}

fn xeon_max(preset: &Preset) -> Vec<Check> {
    let few = "twelve cores with their fill buffers reach no more than latency lets them";
    let [ddr, hbm] = ["dram0", "hbm0"].map(|node| gb_s(preset, node, Op::Read, 12));
    let latency = |node| load_latency_ns(preset, node, false);
    let copy = Copy {
        from: "dram0",
        to: "hbm0",
        engine: CopyMethod::Stream,
        bytes: 96 << 20,
        threads: 12,
        times: 1,
    };
    // Far more than the caches, of which what was copied last would be found again.
    let copied = copy.run(&preset.clone().with_caches_divided(32));
    let copied = copied.expect("the preset has the nodes and the threads");
    vec![
        given("DDR5 of a tile, 12 threads, GB/s", "Fuerst, table 6.1", 65.5, ddr),
        Check {
            reason: few,
            ..given("HBM of a tile, 12 threads, GB/s", "Fuerst, table 6.1", 155.7, hbm)
        },
        given("idle load, ns", MLC_SAPPHIRE_RAPIDS, 95.4, latency("dram0")),
        given(
            "idle load of the other tiles, mean, ns",
            MLC_SAPPHIRE_RAPIDS,
            156.4,
            latency("dram1"),
        ),
        Check { reason: few, ..given("HBM by DDR5, reads", "McCalpin, ISC 2023", 2.3, hbm / ddr) },
        predicted(
            "HBM by DDR5, STREAM",
            "McCalpin, ISC 2023",
            [3.5, triad_gb_s(preset, "hbm0", 12) / triad_gb_s(preset, "dram0", 12)],
            "writes of both are ASSUMED to be half of the reads; few loads at a time reach HBM's",
        ),
        predicted("copy of DDR5 to HBM, 12 threads, GB/s", "Fuerst, 3.2.3", [68.7, copied], WAIT),
        predicted(
            "DDR5 of a tile of the other socket, 12 threads, GB/s",
            MLC_SAPPHIRE_RAPIDS,
            [56.3, remote_gb_s(preset, "dram4")],
            "links between all eight tiles are alike here",
        ),
        predicted(
            "as many writes as reads by reads, DDR5",
            MLC_SAPPHIRE_RAPIDS,
            [401.3 / 491.9, mix_by_reads(preset, 50)],
            WIRES,
        ),
    ]
}

fn m2_ultra(preset: &Preset) -> Vec<Check> {
    // A copy reads and writes: the rate of one after the other.
    let [read, write] = [Op::Read, Op::Stream].map(|op| gb_s(preset, "dram0", op, 16));
    let line = preset.processor.line_bytes as f64;
    let limits = "what limits copies of the processor alone is not published";
    vec![
        given("pointer chase, ns", "Wu, figure 4.5", 150.0, load_latency_ns(preset, "dram0", true)),
        predicted(
            "copy, 16 threads, GB/s",
            "Wu, figure 4.6",
            [114.0, 1.0 / (1.0 / read + 1.0 / write)],
            limits,
        ),
        predicted(
            "pointer chase, 16 threads, ns",
            "Wu, figure 4.5",
            [170.0, 16.0 * line / random_lines_gb_s(preset, "dram0", 16, 1)],
            "",
        ),
    ]
}

fn dram(preset: &Preset) -> Vec<Check> {
    let cores = preset.processor.cores_per_socket;
    let latency = |node, random| load_latency_ns(preset, node, random);
    let [near, far] = ["dram0", "dram1"].map(|node| latency(node, false));
    // As many as that machine's sockets have, but for the one that waits.
    let beside = mixed(preset, "dram0", 0, 17).times.mean_ns;
    let alone = mixed(preset, "dram0", 0, 0).times.mean_ns;
    let mut checks = vec![
        given(
            "local read, all cores of a socket, GB/s",
            "Ni, table 2.1",
            105.9,
            gb_s(preset, "dram0", Op::Read, cores),
        ),
        given("idle random load, ns", "Ni, table 2.1", 101.0, latency("dram0", true)),
        given("remote load beyond a local one, ns", MLC_CASCADE_LAKE, 59.6, far - near),
        predicted(
            "read and written by one thread (triad), GB/s",
            "AnandTech 11544",
            [12.0, triad_gb_s(preset, "dram0", 1)],
            WAIT,
        ),
        predicted(
            "load beside readers on 17 other cores, by an idle one",
            MLC_CASCADE_LAKE,
            [155.6 / 80.8, beside / alone],
            "no more waits for a channel here than its readers' buffers have on their way",
        ),
    ];
    if preset.processor.sockets == 2 {
        let what = "remote read, all cores of a socket, GB/s";
        checks.push(given(what, MLC_SKYLAKE, 50.7, remote_gb_s(preset, "dram1")));
    }
    for (mix, percent, published) in
        [("a third as many", 25, 208.3 / 225.6), ("as many", 50, 200.0 / 225.6)]
    {
        let what = format!("{mix} writes as reads by reads, all cores");
        let modelled = mix_by_reads(preset, percent);
        checks.push(predicted(&what, MLC_CASCADE_LAKE, [published, modelled], WIRES));
    }
    let changed = |core| changed_line_ns(preset, [core, 0]);
    checks.push(given(
        "line that a core of this socket has changed, ns",
        MLC_SKYLAKE,
        50.3,
        changed(1),
    ));
    checks.push(predicted(
        "line that a core of another socket has changed, ns",
        MLC_SKYLAKE,
        [108.6, changed(cores)],
        "",
    ));
    checks
}

fn cxl(preset: &Preset) -> Vec<Check> {
    let [near, far] = ["dram0", "cxl"].map(|node| load_latency_ns(preset, node, false));
    let moved = |percent| mixed(preset, "cxl", percent, 16).gb_s;
    let card = "the memory behind the card's link has limits of its own, which were not published";
    let mut checks = vec![
        given("idle load of the expander, ns", CARD, 250.0, far),
        given(
            "read of the expander, 16 threads, GB/s",
            CARD,
            17.8,
            gb_s(preset, "cxl", Op::Read, 16),
        ),
        given(
            "local read, 56 threads, GB/s",
            MLC_SAPPHIRE_RAPIDS,
            246.0,
            gb_s(preset, "dram0", Op::Read, 56),
        ),
        given("idle load, mean of a socket's tiles, ns", MLC_SAPPHIRE_RAPIDS, 109.2, near),
        given("expander's latency by the local one", "arXiv 2411.02282, ASIC", 2.18, far / near),
        predicted(
            "as many writes as reads by reads, DDR5",
            MLC_SAPPHIRE_RAPIDS,
            [401.3 / 491.9, mix_by_reads(preset, 50)],
            WIRES,
        ),
    ];
    for (mix, percent, published) in
        [("a third as many", 25, 23.6), ("half as many", 33, 25.1), ("as many", 50, 27.2)]
    {
        let what = format!("{mix} writes as reads of the expander, GB/s");
        let check = predicted(&what, CARD, [published, moved(percent)], card);
        // The last is what the preset's rate of writes was derived from.
        checks.push(Check { given: percent == 50, ..check });
    }
    checks
}
