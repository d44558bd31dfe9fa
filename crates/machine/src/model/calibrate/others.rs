//! Machines of which few figures were published.

use super::super::Preset;
use super::Check;
use super::load::load_latency_ns;
use super::run;
use crate::load::{Load, Op};

pub(super) fn of(preset: &Preset) -> Vec<Check> {
    match preset.name.as_str() {
        "xeon-max" => xeon_max(preset),
        "m2-ultra" => m2_ultra(preset),
        "two-socket" | "four-socket" => dram(preset),
        "cxl" => cxl(preset),
        _ => Vec::new(),
    }
}

fn read_gb_s(preset: &Preset, node: &'static str, threads: usize) -> f64 {
    let load = Load { node, op: Op::Read, random: false, bytes: 4096, threads, overhead_ns: 0.0 };
    run(load, preset).gb_s()
}

fn check(
    what: &str,
    source: &'static str,
    published: f64,
    modelled: f64,
    reason: &'static str,
) -> Check {
    Check { what: what.into(), source, published, modelled, given: true, reason }
}

fn xeon_max(preset: &Preset) -> Vec<Check> {
    let reason = "twelve cores with their fill buffers reach no more than latency lets them";
    vec![
        check(
            "DDR5 of a tile, 12 threads, GB/s",
            "paper 003, 4",
            65.5,
            read_gb_s(preset, "dram0", 12),
            "",
        ),
        check(
            "HBM of a tile, 12 threads, GB/s",
            "paper 003, 4",
            155.7,
            read_gb_s(preset, "hbm0", 12),
            reason,
        ),
    ]
}

fn m2_ultra(preset: &Preset) -> Vec<Check> {
    let load = |op, threads| {
        let load =
            Load { node: "dram0", op, random: false, bytes: 4096, threads, overhead_ns: 0.0 };
        run(load, preset).gb_s()
    };
    // A copy reads and writes: the rate of one after the other.
    let (read, write) = (load(Op::Read, 16), load(Op::Stream, 16));
    let copy = Check {
        given: false,
        ..check(
            "copy, 16 threads, GB/s",
            "paper 000, F4.6",
            114.0,
            1.0 / (1.0 / read + 1.0 / write),
            "what limits copies of the processor alone is not published",
        )
    };
    vec![
        check(
            "pointer chase, ns",
            "paper 000, F4.5",
            150.0,
            load_latency_ns(preset, "dram0", true),
            "",
        ),
        copy,
    ]
}

fn dram(preset: &Preset) -> Vec<Check> {
    vec![
        check(
            "local read, all cores of a socket, GB/s",
            "paper 004, T2.1",
            105.9,
            read_gb_s(preset, "dram0", 24),
            "",
        ),
        check(
            "idle random load, ns",
            "paper 004, T2.1",
            101.0,
            load_latency_ns(preset, "dram0", true),
            "",
        ),
        check(
            "idle random remote load, ns",
            "preset: 101 and 60",
            161.0,
            load_latency_ns(preset, "dram1", true),
            "",
        ),
    ]
}

fn cxl(preset: &Preset) -> Vec<Check> {
    let (near, far) =
        (load_latency_ns(preset, "dram0", false), load_latency_ns(preset, "cxl", false));
    vec![check("expander's latency by the local one", "issue: 2 to 3", 2.5, far / near, "")]
}
