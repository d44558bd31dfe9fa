//! `pmem-classify`: table 1 of Gugnani from measurements alone.

use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, PMEM, REMOTE_DRAM, REMOTE_PMEM, measured, optane};
use terrace_advise::idiosyncrasies::{
    Advice, Cause, Findings, Reading, Settings, Sweep, Thresholds, classify, recommend,
};

pub(super) const ROW: Row = Row {
    id: "pmem-classify",
    source: "Gugnani, table 1 and section 3",
    runs_on: "model optane-001",
    must_show: "the root-cause procedure returns table 1 (I1 to I7, C1 to C4) from measurements",
    run,
};

/// Table 1: tests and the classes they apply to, starred where it is worse.
const TABLE_1: [(&str, &str); 7] = [
    ("I1", "C1, C2, C3, C4"),
    ("I2", "C4"),
    ("I3", "C3, C4"),
    ("I4", "C1, C2*, C3, C4*"),
    ("I5", "C2, C4"),
    ("I6", "C1, C2*, C3, C4*"),
    ("I7", "C4"),
];

fn run(run: &Run<'_>) -> Result<Outcome> {
    // Where tests fill caches, smaller ones are sooner full; nothing else changes.
    let (preset, generator) = optane(run.size(1, 16))?;
    let settings = run.size(Settings::paper(), Settings::briefest());
    let model = &Sweep::new(&preset, Settings { generator, ..settings });
    (run.tell)("all eight tests of PMEM and of DRAM, side by side");
    let (pmem, dram) = std::thread::scope(|scope| {
        let findings = |node, remote| Findings::measure(model, node, Some(remote), &|_| {});
        let pmem = scope.spawn(move || findings(PMEM, REMOTE_PMEM));
        let dram = findings(DRAM, REMOTE_DRAM);
        (pmem.join().expect("invariant: a test does not panic"), dram)
    });
    let (pmem, dram) = (pmem.map_err(measured())?, dram.map_err(measured())?);
    let by = Thresholds::default();
    Ok(judge(&classify(&pmem, &dram, by), &classify(&dram, &dram, by), &recommend(&pmem)))
}

fn judge(causes: &[Cause], of_dram: &[Cause], advice: &[Advice]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut lines = Vec::new();
    for ((test, classes), cause) in TABLE_1.into_iter().zip(causes) {
        let found = cause.classes_text();
        let same = if found == classes && cause.test == test { 1.0 } else { 0.0 };
        let what = format!("{test}: classes as in table 1 (1 is yes)");
        outcome.checks.push(Check::at_least(what, classes, same, 1.0).order());
        lines.push(line(cause));
    }
    let inside = of_dram.iter().flat_map(|cause| &cause.components);
    let inside = inside.filter(|component| component.classes().len() < 4).count();
    outcome.checks.push(Check::at_most(
        "control: causes inside of the memory named for DRAM beside itself",
        "none: it has no such parts",
        inside as f64,
        0.0,
    ).order());
    let advised: Vec<String> = advice
        .iter()
        .map(|advice| format!("{:?} {:?}", advice.recommendation, advice.impact))
        .collect();
    outcome.note = format!(
        "{MODEL} {} Impact of the recommendations by these measurements (the paper grades all as high): {}.",
        lines.join(" "),
        advised.join(", ")
    );
    if outcome.checks.iter().any(|check| check.what.starts_with("I4:") && !check.pass) {
        outcome.note += " Where I4 has no star: p-stores to remote DRAM lose as much on the model as those to remote \
                         PMEM, so that the link explains all of it, and nothing is left for the device's prefetcher.";
    }
    outcome
}

fn line(cause: &Cause) -> String {
    let figure = |reading: &Reading<f64>| {
        reading.measured().map_or("-".to_string(), |value| format!("{value:.2}"))
    };
    let why = cause.unexplained.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!(
        "{}: {} against {} on DRAM, {:?}, {}{why}.",
        cause.test,
        figure(&cause.effect),
        figure(&cause.on_dram),
        cause.components,
        cause.classes_text()
    )
}
