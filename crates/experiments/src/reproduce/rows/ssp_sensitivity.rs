//! `ssp-sensitivity`: how the gain of shadow sub-paging depends on the latency of persistent memory and of the SSP
//! cache (Ni, figures 3.8 and 3.9), and on what a designer could change, on the modelled processor `ssp-sim`.

use super::ssp_speed::{played, recorded, settings};
use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::sections::{Designs, RecordedWorkload, Settings};
use terrace_machine::ssp::{Consolidation, Design, Durable, Parameters};

pub(super) const ROW: Row = Row {
    id: "ssp-sensitivity",
    source: "Ni, figures 3.8 and 3.9",
    runs_on: "simulated processor (ssp-sim)",
    must_show: "the gain grows with PMEM's latency; SPS and Hash-Rand suffer most from a slow SSP cache",
    run,
};

/// Write latencies, as multiples of DRAM's 50 ns.
const MULTIPLES: [u64; 5] = [1, 2, 4, 8, 16];
/// Cycles of a look at the SSP cache.
const CYCLES: [u64; 5] = [27, 50, 100, 185, 370];
/// What leaving a bus for CXL adds to an access, ns: half of it each way.
const CXL_NS: u64 = 85;

type Variation = (&'static str, fn(&mut Parameters));

/// What a designer could change.
const DESIGNS: [Variation; 12] = [
    ("as it is", |_| {}),
    ("256-byte sub-pages", |p| p.sub_page_lines = 4),
    ("the same, open rows take writes in 15 ns", |p| {
        (p.sub_page_lines, p.pmem.write_hit_ns) = (4, Some(p.pmem.row_hit_ns));
    }),
    ("64-byte sub-pages, open rows take writes in 15 ns", |p| {
        p.pmem.write_hit_ns = Some(p.pmem.row_hit_ns);
    }),
    ("lazy consolidation", |p| p.consolidation = Consolidation::Lazy(16)),
    ("TLB of 256", |p| p.tlb_entries = 256),
    ("TLB of 1024", |p| p.tlb_entries = 1024),
    ("PMEM of half the latencies", |p| (p.pmem.read_ns, p.pmem.write_ns) = (25, 100)),
    ("PMEM of 4 times the latencies", |p| (p.pmem.read_ns, p.pmem.write_ns) = (200, 800)),
    ("PMEM behind CXL", |p| p.pmem.link_ns = CXL_NS / 2),
    ("durable in the queue", |p| p.durable = Durable::InQueue(64)),
    ("CXL, durable in its queue", |p| {
        (p.pmem.link_ns, p.durable) = (CXL_NS / 2, Durable::InQueue(64));
    }),
];
/// Keys of structures whose trees a TLB covers.
const FEW_KEYS: u64 = 4_000;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let settings = settings(run);
    let sections = settings.sections / 2;
    let workloads = recorded(run, &settings, 1)?;
    let of = |workloads: &[RecordedWorkload], vary: &dyn Fn(&mut Parameters)| {
        let mut parameters = Parameters::ssp_sim(1);
        vary(&mut parameters);
        played(workloads, &parameters, sections)
    };
    (run.tell)("latencies of persistent memory");
    let multiples = MULTIPLES.map(|multiple| of(&workloads, &|p| p.pmem.write_ns = 50 * multiple));
    let multiples = multiples.into_iter().collect::<Result<Vec<Designs>>>()?;
    (run.tell)("latencies of the SSP cache");
    let cycles = CYCLES.map(|cycles| of(&workloads, &|p| p.ssp_cache_cycles = cycles));
    let cycles = cycles.into_iter().collect::<Result<Vec<Designs>>>()?;
    (run.tell)("what a designer could change");
    let designs = DESIGNS.map(|(_, vary)| of(&workloads, &vary));
    let designs = designs.into_iter().collect::<Result<Vec<Designs>>>()?;
    (run.tell)("smaller structures");
    let few = Settings { keys: FEW_KEYS, sections, ..settings.clone() };
    let few = recorded(run, &few, 1)?;
    let [fast, slow] = [CYCLES[0], CYCLES[CYCLES.len() - 1]]
        .map(|cycles| of(&few, &|p| p.ssp_cache_cycles = cycles));
    // PMEM as fast as DRAM, where REDO's log lines do not wait for each other.
    let spread = of(&workloads, &|p| (p.pmem.write_ns, p.pmem.run_lines) = (50, 1))?;
    let mut outcome = judge(&multiples, &cycles, &designs, &[fast?, slow?]);
    outcome.note += &format!(
        " With PMEM as fast as DRAM and consecutive lines in banks of their own, RBTree's gain over REDO is {:.2}.",
        spread.of("RBTree-Rand", &gains(&spread))
    );
    outcome.size("sections", sections);
    outcome.size("keys", settings.keys);
    Ok(outcome)
}

fn gains(designs: &Designs) -> Vec<f64> {
    designs.speed_over(Design::Redo)
}

/// Of each workload, what a slow SSP cache leaves of its sections a second.
fn kept(cycles: &[Designs]) -> Vec<f64> {
    let (Some(fast), Some(slow)) = (cycles.first(), cycles.last()) else { return Vec::new() };
    let speeds = |designs: &Designs| designs.each(Design::Redo, |ours, _| ours.sections_per_second);
    speeds(slow).iter().zip(speeds(fast)).map(|(slow, fast)| slow / fast).collect()
}

/// The workload's place among those whom a slow SSP cache hurts most, from 1.
fn place(names: &[&str], kept: &[f64], name: &str) -> usize {
    let own = names.iter().position(|of| *of == name).map_or(f64::NAN, |at| kept[at]);
    1 + kept.iter().take(7).filter(|other| **other < own).count()
}

fn judge(
    multiples: &[Designs],
    cycles: &[Designs],
    designs: &[Designs],
    few: &[Designs],
) -> Outcome {
    let mut outcome = Outcome::default();
    let first = &multiples[0];
    let of = |at: usize, name: &str| multiples[at].of(name, &gains(&multiples[at]));
    let growing = first
        .names
        .iter()
        .filter(|name| of(MULTIPLES.len() - 1, name) > of(0, name))
        .count();
    let kept = kept(cycles);
    let place = |name: &str| place(&first.names, &kept, name) as f64;
    let last = of(MULTIPLES.len() - 1, "BTree-Rand");
    outcome.checks.extend([
        Check::at_least(
            "order: workloads whose gain over REDO grows with latency",
            "all",
            growing as f64,
            9.0,
        ).order(),
        Check::at_most(
            "order: place of SPS among those whom a slow SSP cache hurts",
            "1 or 2",
            place("SPS"),
            2.0,
        ).order(),
        Check::at_most(
            "order: place of Hash-Rand among those whom a slow SSP cache hurts",
            "1 or 2",
            place("Hash-Rand"),
            2.0,
        ).order(),
    ]);
    for (what, paper, measured) in [
        ("BTree, SSP over REDO, PMEM as fast as DRAM", 1.1, of(0, "BTree-Rand")),
        ("BTree, SSP over REDO, PMEM 16 times slower", 1.8, last),
        ("RBTree, SSP over REDO, PMEM as fast as DRAM", 0.92, of(0, "RBTree-Rand")),
    ] {
        outcome.checks.extend(Check::about(what, paper, measured).and_order());
    }
    outcome.note = note(cycles, designs, few);
    let mut latency =
        Figure::new("SSP over REDO", "PMEM write latency, multiples of DRAM's", "ratio", FigureKind::Lines)
            .over(MULTIPLES);
    let mut cache =
        Figure::new("SSP over REDO", "SSP cache, cycles", "ratio", FigureKind::Lines).over(CYCLES);
    for (at, name) in first.names.iter().enumerate().take(7) {
        latency = latency.with(name, multiples.iter().map(|designs| gains(designs)[at]));
        cache = cache.with(name, cycles.iter().map(|designs| gains(designs)[at]));
    }
    let mut design =
        Figure::new("Means over the micro-benchmarks", "design", "SSP over REDO", FigureKind::Bars)
            .over(DESIGNS.map(|(name, _)| name));
    design = design.with("speed", designs.iter().map(|of| Designs::micro(&gains(of))));
    design = design.with(
        "lines",
        designs.iter().map(|of| Designs::micro(&of.lines_over(Design::Redo))),
    );
    outcome.figures.extend([latency, cache, design]);
    outcome
}

/// Of each workload what a slow SSP cache leaves, and its TLB misses.
fn hurt(cycles: &[Designs]) -> String {
    let Some(fast) = cycles.first() else { return String::new() };
    let each = fast.names.iter().zip(&fast.runs).zip(kept(cycles)).map(|((name, runs), kept)| {
        let events = runs[3].events;
        format!("{name} {kept:.2} ({:.1})", events.tlb_misses as f64 / events.sections as f64)
    });
    each.collect::<Vec<String>>().join(", ")
}

fn note(cycles: &[Designs], designs: &[Designs], few: &[Designs]) -> String {
    let [base, ..] = designs else { return String::new() };
    let own = |of: &Designs| {
        let speeds = of.runs.iter().zip(&base.runs).map(|(runs, base)| {
            runs[3].sections_per_second / base[3].sections_per_second
        });
        Designs::micro(&speeds.collect::<Vec<f64>>())
    };
    let changed: Vec<String> = DESIGNS
        .iter()
        .zip(designs)
        .map(|((name, _), of)| {
            let (gain, lines) =
                (Designs::micro(&gains(of)), Designs::micro(&of.lines_over(Design::Redo)));
            format!("{name} {:.2}, {gain:.2}, {lines:.2}", own(of))
        })
        .collect();
    format!(
        "One thread, virtual time. Only write latency is scaled. Left of SSP's speed with an SSP cache of {} cycles \
         instead of {} (TLB misses a section): {}. A section that misses the TLB oftener suffers more: a red-black \
         tree of {} keys misses at nearly every level. Of {FEW_KEYS} keys, array and buckets as before: {}. What a \
         designer could change, not judged (speed over that of `ssp-sim`, speed over REDO's, lines over REDO's): {}. \
         CXL adds {CXL_NS} ns to an access. A sub-page of 256 bytes is written whole, as lines of 64, of which \
         sections seldom change more than one: this memory has no unit of 256 bytes that would be written in any case.",
        CYCLES[CYCLES.len() - 1],
        CYCLES[0],
        hurt(cycles),
        Settings::default().keys,
        hurt(few),
        changed.join("; ")
    )
}
