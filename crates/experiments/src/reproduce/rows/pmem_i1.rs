//! `pmem-i1`: loads that a cache serves, and p-stores that none does (Gugnani, I1, figure 3a).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::CachedLatency;
use terrace_machine::test_bed::TestBed;
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i1",
    source: "Gugnani, I1, figure 3a",
    runs_on: "native + model optane-001",
    must_show: "p-store over load at full hit >= 10 on PMEM (paper 23.3), < 10 on DRAM (paper 6.7)",
    run,
};

/// The paper's ratio on DRAM is below this, and on persistent memory above.
const RATIO: f64 = 10.0;
/// A p-store does not get quicker by what caches hold: within so much over all hit ratios.
const FLAT: f64 = 1.25;

fn run(run: &Run<'_>) -> Result<Outcome> {
    // Caches and region in the same proportion, so that a run of eight threads ends in seconds.
    let divisor = run.size(1, 16);
    let (preset, generator) = optane(divisor)?;
    (run.tell)("model, persistent memory");
    let model = sweep(&preset, generator, run.full);
    let pmem = CachedLatency::measure(&model, PMEM).map_err(measured())?;
    (run.tell)("model, DRAM");
    let dram = CachedLatency::measure(&model, DRAM).map_err(measured())?;
    (run.tell)("this machine");
    let (machine, node) = here()?;
    let native = CachedLatency::measure(&sweep(&machine, Generator::default(), run.full), &node)
        .map_err(measured())?;
    Ok(judge(divisor, [&pmem, &dram, &native], machine.name()))
}

fn judge(divisor: u64, [pmem, dram, native]: [&CachedLatency; 3], machine: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let what = |where_: &str| format!("p-store over load where all lines are cached, {where_}");
    outcome.checks.extend(Check::at_least(what("model PMEM"), "23.3", pmem.effect(), RATIO).and_order());
    let more = pmem.effect() / dram.effect();
    outcome.checks.push(Check::at_least(what("model PMEM over DRAM"), "3.5", more, 1.0).order());
    outcome.checks.push(Check::within(what("model DRAM"), "6.7", dram.effect(), 1.0, RATIO));
    outcome.checks.push(Check::within(what("native DRAM"), "6.7", native.effect(), 1.0, RATIO));
    for (found, where_, paper) in
        [(pmem, "model PMEM", 3.7), (dram, "model DRAM", 1.7), (native, "native DRAM", 1.7)]
    {
        let what = format!("load without hits over load with all, {where_}");
        outcome.checks.extend(Check::about(what, paper, first_over_last(&found.load_ns)).and_order());
        outcome.checks.push(Check::within(
            format!("p-store without hits over p-store with all, {where_}"),
            "0.97 to 1.03",
            first_over_last(&found.persist_ns),
            1.0 / FLAT,
            FLAT,
        ));
    }
    outcome.size("threads", format!("{}, native {}", pmem.threads, native.threads));
    outcome.size("region", format!("{} KiB, native {} KiB", pmem.region_bytes >> 10, native.region_bytes >> 10));
    outcome.size("model's caches divided by", divisor);
    outcome.note = format!(
        "{MODEL} An item is 64 B, of which each word is stored, written back and fenced; the artifact of \
         the paper writes back another line than the one stored to, so its p-stores are not quite these: on \
         DRAM they wait less than the idle latencies of its own generation of machines add up to, and this \
         ratio is larger. Lines come in no order and each address depends on the load before: prefetchers, \
         which the paper switched off, see nothing. {machine}: its DRAM; {:.0} ns a load and {:.0} ns a \
         p-store where all is cached, and its write-back is no flush.",
        native.load_ns.last().copied().unwrap_or(f64::NAN),
        native.persist_ns.last().copied().unwrap_or(f64::NAN),
    );
    if outcome.checks.iter().any(|check| check.what.contains("hits over load with all, native") && !check.pass) {
        outcome.note += " Suspected where loads cost about as much with hits as without: the region is not in the \
                         caches, which tell their whole size here and may be shared with other machines.";
    }
    outcome.figures.push(
        Figure::new("An item of 64 B by what the cache holds", "share of lines cached", "ns", FigureKind::LogLines)
            .over(&pmem.hit_ratios)
            .with("PMEM load", pmem.load_ns.iter().copied())
            .with("PMEM p-store", pmem.persist_ns.iter().copied())
            .with("DRAM load", dram.load_ns.iter().copied())
            .with("DRAM p-store", dram.persist_ns.iter().copied())
            .with("native load", native.load_ns.iter().copied())
            .with("native p-store", native.persist_ns.iter().copied()),
    );
    outcome
}

fn first_over_last(values: &[f64]) -> f64 {
    match values {
        [first, .., last] => first / last,
        _ => f64::NAN,
    }
}
