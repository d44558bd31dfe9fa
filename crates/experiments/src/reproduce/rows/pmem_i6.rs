//! `pmem-i6`: reads in sequence and at random (Gugnani, I6, figure 7a to 7c).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, NO_PREFETCHING, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::{Reading, Reads};
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i6",
    source: "Gugnani, I6, figure 7a and 7b",
    runs_on: "native + model optane-001",
    must_show: "sequential over random reads up to 3.5 on PMEM, 1.7 on DRAM; buffer hits 0.74 and 0.60",
    run,
};

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, generator) = optane(1)?;
    let on_model = |preset, node: &str| {
        (run.tell)(&format!("model, {node}"));
        Reads::measure(&sweep(preset, generator, run.full), node).map_err(measured())
    };
    let pmem = on_model(&preset, PMEM)?;
    let dram = on_model(&preset, DRAM)?;
    (run.tell)("model, without prefetchers");
    let without = on_model(&preset.clone().without(NO_PREFETCHING), PMEM)?;
    (run.tell)("this machine");
    let (machine, node) = here()?;
    let native = Reads::measure(&sweep(&machine, Generator::default(), run.full), &node)
        .map_err(measured())?;
    Ok(judge(&pmem, &dram, &without, &native))
}

fn judge(pmem: &Reads, dram: &Reads, without: &Reads, native: &Reads) -> Outcome {
    let mut outcome = Outcome::default();
    let [one, other] = pmem.buffer_hits.measured().copied().unwrap_or([f64::NAN; 2]);
    let checks = &mut outcome.checks;
    let ratio = |where_: &str| format!("most of sequential over random, {where_}");
    checks.extend(Check::about(ratio("model PMEM"), 3.5, pmem.effect()).and_order());
    checks.extend(Check::about(ratio("model DRAM"), 1.7, dram.effect()).and_order());
    let more = pmem.effect() / dram.effect();
    checks.push(Check::at_least(ratio("model PMEM over DRAM"), "2.1", more, 1.0).order());
    checks.extend(Check::about(ratio("native DRAM"), 1.7, native.effect()).and_order());
    checks.push(Check::within("buffer hits, sequential 256 B, model", "0.74", one, 0.65, 0.85));
    checks.push(Check::within("buffer hits, random 256 B, model", "0.60", other, 0.50, 0.70));
    let what = "buffer hits, sequential over random 256 B, model";
    checks.push(Check::at_least(what, "1.23", one / other, 1.0).order());
    checks.push(Check::at_most(
        ratio("model PMEM, control: without prefetchers"),
        "less: prefetchers serve the sequence",
        without.effect() / pmem.effect(),
        0.6,
    ).order());
    let hits = without.buffer_hits.measured().copied().unwrap_or([f64::NAN; 2]);
    checks.push(Check::within(
        "control: buffer hits, random over sequential, without prefetchers, model",
        "less than 1 with them (0.81)",
        hits[1] / hits[0],
        0.95,
        1.05,
    ).order());
    outcome.size("threads", format!("{}, native {}", pmem.threads, native.threads));
    let here = match &native.buffer_hits {
        Reading::Measured(_) => "",
        Reading::NotMeasurable(why) => why,
    };
    outcome.note = format!("{MODEL} The control leaves out the processor's prefetchers and the device's. \
                            This machine: its DRAM; {here}.");
    let mut figure =
        Figure::new("Reads", "bytes of a piece", "MiB/s", FigureKind::LogLines).over(&pmem.sizes);
    for (found, name) in [
        (pmem, "PMEM"),
        (without, "PMEM without prefetchers"),
        (dram, "DRAM"),
        (native, "native"),
    ] {
        figure = figure
            .with(&format!("{name}, in sequence"), found.sequential.iter().copied())
            .with(&format!("{name}, at random"), found.random.iter().copied());
    }
    outcome.figures.push(figure);
    outcome
}
