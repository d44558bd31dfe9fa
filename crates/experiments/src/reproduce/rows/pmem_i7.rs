//! `pmem-i7`: a line of the medium, written whole again and again (Gugnani, I7, figure 7d).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{MODEL, NO_COMBINING, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::{Reading, Rewritten};
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i7",
    source: "Gugnani, I7, figure 7d",
    runs_on: "model optane-001",
    must_show: "EWR and RWR near 1 (paper 0.91 and 0.79): whole lines leave at once and are read first",
    run,
};

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, generator) = optane(1)?;
    let on_model = |preset| {
        let found = Rewritten::measure(&sweep(preset, generator, run.full), PMEM);
        found.map_err(measured())
    };
    let found = on_model(&preset)?;
    let without = on_model(&preset.clone().without(NO_COMBINING))?;
    let (machine, node) = here()?;
    let native = Rewritten::measure(&sweep(&machine, Generator::default(), run.full), &node)
        .map_err(measured())?;
    Ok(judge(&found, &without, &native))
}

fn judge(
    found: &Reading<Rewritten>,
    without: &Reading<Rewritten>,
    native: &Reading<Rewritten>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let of = |reading: &Reading<Rewritten>, value: fn(&Rewritten) -> f64| {
        reading.measured().map_or(f64::NAN, value)
    };
    let (ewr, rwr) = (of(found, |f| f.ewr), of(found, |f| f.rwr));
    let checks = &mut outcome.checks;
    checks.push(Check::within("EWR, model", "0.913", ewr, 0.75, 1.25));
    checks.push(Check::within("RWR, model", "0.793", rwr, 0.75, 1.25));
    let hits = of(found, |f| f.write_hits);
    checks.push(Check::within("write hits of the buffer, model", "0.726", hits, 0.65, 0.80));
    checks.push(Check::at_most(
        "control: EWR without combining, model",
        "0.25: each of the four writes is one of the medium",
        of(without, |f| f.ewr),
        0.26,
    ).order());
    let missing = match native {
        Reading::Measured(_) => String::new(),
        Reading::NotMeasurable(why) => format!("This machine cannot be asked: {why}."),
    };
    outcome.note = format!(
        "{MODEL} One thread streams and fences the same 256 B. The device saved about a fifth of the reads \
         before writes; by the rule here every line is read before it is written. {missing}"
    );
    outcome.figures.push(
        Figure::new("One line of the medium rewritten", "", "ratio", FigureKind::Bars)
            .over(["EWR", "RWR", "write hits"])
            .with("paper", [0.913, 0.793, 0.726])
            .with("model", [ewr, rwr, hits]),
    );
    outcome
}
