//! `pmem-i3`: small random writes (Gugnani, I3, figure 4).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, NO_COMBINING, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::{Reading, SmallWrites};
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i3",
    source: "Gugnani, I3, figure 4",
    runs_on: "native + model optane-001",
    must_show: "EWR 0.25 for random 64 B, >= 0.94 in sequence; random 64 B written 2.5x slower",
    run,
};

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, generator) = optane(1)?;
    let on_model = |preset, node: &str| {
        (run.tell)(&format!("model, {node}"));
        SmallWrites::measure(&sweep(preset, generator, run.full), node).map_err(measured())
    };
    let pmem = on_model(&preset, PMEM)?;
    let dram = on_model(&preset, DRAM)?;
    let without = on_model(&preset.clone().without(NO_COMBINING), PMEM)?;
    (run.tell)("this machine");
    let (machine, node) = here()?;
    let native = SmallWrites::measure(&sweep(&machine, Generator::default(), run.full), &node)
        .map_err(measured())?;
    Ok(judge(&pmem, &dram, &without, &native))
}

fn judge(
    pmem: &SmallWrites,
    dram: &SmallWrites,
    without: &SmallWrites,
    native: &SmallWrites,
) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.checks.extend(checks(pmem, without));
    outcome.size("threads", format!("{}, native {}", pmem.threads, native.threads));
    outcome.note = format!(
        "{MODEL} Streamed and fenced pieces. What the paper shows for persistent memory only: DRAM writes \
         64 B in sequence {:.2} times faster than at random in the model, {:.2} times on this machine, \
         whose devices tell no EWR.",
        dram.effect(),
        native.effect()
    );
    let rates = |figure: Figure, found: &SmallWrites, name: &str| {
        figure
            .with(&format!("{name}, in sequence"), found.sequential.iter().copied())
            .with(&format!("{name}, at random"), found.random.iter().copied())
    };
    let figure = Figure::new("Streamed writes", "bytes of a piece", "MiB/s", FigureKind::LogLines);
    let figure = rates(figure.over(&pmem.sizes), pmem, "PMEM");
    let figure = rates(figure, without, "PMEM without combining");
    outcome.figures.push(rates(rates(figure, dram, "DRAM"), native, "native"));
    let ratios = |reading: &Reading<Vec<f64>>| reading.measured().cloned().unwrap_or_default();
    outcome.figures.push(
        Figure::new("Effective write ratio, model", "bytes of a piece", "EWR", FigureKind::Bars)
            .over(&pmem.sizes)
            .with("in sequence", ratios(&pmem.sequential_ewr))
            .with("at random", ratios(&pmem.random_ewr)),
    );
    outcome
}

fn checks(pmem: &SmallWrites, without: &SmallWrites) -> Vec<Check> {
    let ewr = |reading: &Reading<Vec<f64>>, at: usize| {
        reading.measured().map_or(f64::NAN, |ratios| ratios[at])
    };
    let least = pmem.sequential_ewr.measured().into_iter().flatten().copied().fold(1.0, f64::min);
    let mut checks = Vec::new();
    let random = ewr(&pmem.random_ewr, 0);
    checks.push(Check::within("EWR, random 64 B, model", "0.248", random, 0.24, 0.27));
    checks.push(Check::within(
        "EWR, random 128 B, model",
        "0.248, which its own bandwidth contradicts; 0.5 by the line size",
        ewr(&pmem.random_ewr, 1),
        0.24,
        0.52,
    ));
    checks.push(Check::at_least("least EWR in sequence, model", "0.944 to 0.991", least, 0.94));
    checks.extend(Check::about("sequential over random 64 B, model PMEM", 2.48, pmem.effect()).and_order());
    let wider = pmem.random[2] / pmem.random[0];
    checks.extend(Check::about("random 256 B over random 64 B, model PMEM", 3.7, wider).and_order());
    checks.push(Check::at_most(
        "control: sequential over random 64 B without combining, model",
        "none: the buffer makes the difference",
        without.effect(),
        1.2,
    ).order());
    checks.push(Check::at_most(
        "control: EWR in sequence, 64 B, without combining, model",
        "0.25: each line a write of the medium",
        ewr(&without.sequential_ewr, 0),
        0.26,
    ).order());
    checks
}
