//! `pmem-i2`: how much is read and how much is written, and by how many threads (Gugnani, I2, figure 3b
//! to 3d).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, NO_QUEUEING, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::Asymmetry;
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i2",
    source: "Gugnani, I2, figures 3b to 3d",
    runs_on: "native + model optane-001",
    must_show: "PMEM written most by 8 threads, less by more; 30 GB/s read, 8 GB/s written",
    run,
};

const MIB: f64 = 1_048_576.0;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, generator) = optane(1)?;
    let on_model = |preset, node: &str| {
        (run.tell)(&format!("model, {node}"));
        Asymmetry::measure(&sweep(preset, generator, run.full), node).map_err(measured())
    };
    let pmem = on_model(&preset, PMEM)?;
    let dram = on_model(&preset, DRAM)?;
    (run.tell)("model, without queueing");
    let without = on_model(&preset.clone().without(NO_QUEUEING), PMEM)?;
    (run.tell)("this machine");
    let (machine, node) = here()?;
    let native = Asymmetry::measure(&sweep(&machine, Generator::default(), run.full), &node)
        .map_err(measured())?;
    Ok(judge(&pmem, &dram, &without, &native))
}

fn judge(pmem: &Asymmetry, dram: &Asymmetry, without: &Asymmetry, native: &Asymmetry) -> Outcome {
    let mut outcome = Outcome::default();
    let most = |values: &[f64]| values.iter().copied().fold(f64::NAN, f64::max) * MIB / 1e9;
    let checks = &mut outcome.checks;
    let (read, written) = (most(&pmem.reads), most(&pmem.writes_by_threads));
    checks.push(Check::within("most read, model PMEM, GB/s", "30", read, 27.0, 33.0));
    checks.push(Check::within("most p-stored, model PMEM, GB/s", "8", written, 7.2, 8.8));
    checks.push(Check::within(
        "threads that p-store most, model PMEM",
        "8",
        pmem.best_writers() as f64,
        8.0,
        8.0,
    ).order());
    let (what, paper) = ("8 writers over all, 4 KiB, model PMEM", "1.44 (8013 and 5561 MiB/s)");
    checks.extend(Check::about_all(what, paper, [1.44; 2], pmem.decline()).and_order());
    checks.push(Check::at_most(
        "best writers over all, 4 KiB, model DRAM",
        "1: all of them",
        dram.decline(),
        1.05,
    ).order());
    let asymmetry = [pmem, dram, native].map(Asymmetry::effect);
    checks.extend(Check::about("read over written, model PMEM", 3.7, asymmetry[0]).and_order());
    checks.extend(Check::about("read over written, model DRAM", 1.7, asymmetry[1]).and_order());
    checks.push(Check::at_least("read over written, native DRAM", "1.7", asymmetry[2], 1.0).order());
    checks.push(Check::at_most(
        "control: best writers over all without queueing, model PMEM",
        "none: writers wait for one another",
        without.decline(),
        1.05,
    ).order());
    let alone = |found: &Asymmetry| most(&found.writes_by_threads) / written;
    checks.push(Check::at_least(
        "control: p-stored without queueing over with, model PMEM",
        "none: the limit is the medium's",
        alone(without),
        2.0,
    ).order());
    outcome.size("threads", format!("{:?}, native {:?}", pmem.threads, native.threads));
    outcome.note = format!(
        "{MODEL} Sequential pieces; reads of all threads, p-stores (store, write-back, fence) and streams of \
         the number of threads that p-stores most. This machine: its DRAM, {:.1} GB/s read and {:.1} GB/s \
         p-stored.",
        most(&native.reads),
        most(&native.flushes).max(most(&native.streams))
    );
    outcome.figures = figures(pmem, dram, native);
    outcome
}

fn figures(pmem: &Asymmetry, dram: &Asymmetry, native: &Asymmetry) -> Vec<Figure> {
    let sizes = Figure::new("Read and written by size", "bytes of a piece", "MiB/s", FigureKind::LogLines);
    let mut sizes = sizes.over(&pmem.sizes);
    for (found, name) in [(pmem, "PMEM"), (dram, "DRAM"), (native, "native")] {
        sizes = sizes
            .with(&format!("{name} read"), found.reads.iter().copied())
            .with(&format!("{name} p-store"), found.flushes.iter().copied())
            .with(&format!("{name} stream"), found.streams.iter().copied());
    }
    let threads = Figure::new("P-stores of 4 KiB by threads, model", "threads", "MiB/s", FigureKind::LogLines)
        .over(&pmem.threads)
        .with("PMEM", pmem.writes_by_threads.iter().copied())
        .with("DRAM", dram.writes_by_threads.iter().copied());
    vec![sizes, threads]
}
