//! `pmem-i8`: loads that miss while caches are full of dirty lines (Gugnani, the artifact's I8).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::DirtyCache;
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i8",
    source: "Gugnani, I8 of the artifact",
    runs_on: "native + model optane-001",
    must_show: "the hypothesis: a load that misses costs more where every line to evict is dirty",
    run,
};

/// What a repetition may differ by.
const MORE: f64 = 1.02;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let divisor = run.size(1, 8);
    let (preset, generator) = optane(divisor)?;
    let model = sweep(&preset, generator, run.full);
    let on_model = |node: &str| {
        (run.tell)(&format!("model, {node}"));
        DirtyCache::measure(&model, node).map_err(measured())
    };
    let (pmem, dram) = (on_model(PMEM)?, on_model(DRAM)?);
    (run.tell)("this machine");
    let (machine, node) = here()?;
    let native = DirtyCache::measure(&sweep(&machine, Generator::default(), run.full), &node)
        .map_err(measured())?;
    Ok(judge(divisor, &pmem, &dram, &native))
}

fn judge(divisor: u64, pmem: &DirtyCache, dram: &DirtyCache, native: &DirtyCache) -> Outcome {
    let mut outcome = Outcome::default();
    for (found, where_) in [(pmem, "model PMEM"), (native, "native DRAM")] {
        outcome.checks.push(Check::at_least(
            format!("load with dirty caches over clean, {where_}"),
            "more than 1 (a hypothesis, no figure published)",
            found.effect(),
            MORE,
        ).order());
    }
    outcome.size("model's caches divided by", divisor);
    outcome.size("region", format!("{} MiB, native {} MiB", pmem.region_bytes >> 20, native.region_bytes >> 20));
    outcome.note = format!(
        "{MODEL} One thread; 256 B items in no order. Clean: the caches are full of clean lines. One thread's \
         misses alone hardly fill the queue of lines that leave, so what they wait is the medium's being \
         busy with them: {:.0} and {:.0} ns on the modelled PMEM, {:.0} and {:.0} on its DRAM, {:.0} and \
         {:.0} here.",
        pmem.clean_ns, pmem.dirty_ns, dram.clean_ns, dram.dirty_ns, native.clean_ns, native.dirty_ns
    );
    outcome.figures.push(
        Figure::new("Four lines that miss", "", "ns", FigureKind::Bars)
            .over(["model PMEM", "model DRAM", "native DRAM"])
            .with("clean caches", [pmem.clean_ns, dram.clean_ns, native.clean_ns])
            .with("dirty caches", [pmem.dirty_ns, dram.dirty_ns, native.dirty_ns]),
    );
    outcome
}
