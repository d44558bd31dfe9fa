//! `prestore-clean`: what cleaning elements gains where they are written to persistent memory (Wu,
//! figure 3.3a).
//!
//! The same loop as `prestore-amplification`. One thread does not keep the DIMMs busy, so that what they
//! write in vain costs nothing; several do.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::listing_2::{self, LABEL, Sweep, elements, sweeps};

pub(super) const ROW: Row = Row {
    id: "prestore-clean",
    source: "Wu, figure 3.3a",
    runs_on: "model (optane-000)",
    must_show: "no gain at 1 thread, >= 1.8x at 2, >= 2.5x at 5 threads",
    run,
};

/// What counts as no gain: a tenth.
const NO_GAIN: f64 = 1.1;
/// What five threads are to gain.
const AT_FIVE: f64 = 2.5;

fn gains(sweep: &Sweep) -> Vec<f64> {
    sweep.cleaned.iter().zip(&sweep.plain).map(|(cleaned, plain)| cleaned.gain_over(plain)).collect()
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let threads: &[usize] = run.size(&[1, 2, 5, 10], &[1, 2, 5]);
    let (sweeps, elements) = (sweeps(run, threads)?, elements(run));
    let most = |sweep: &Sweep| gains(sweep).into_iter().fold(0.0, f64::max);
    let mut outcome = Outcome::default();
    let what = |threads: usize| format!("{threads} threads, most gain of clean over sizes");
    let gained = [0, 1, 2].map(|threads: usize| most(&sweeps[threads]));
    outcome.checks.push(Check::at_most(what(1), "1.0", gained[0], NO_GAIN).order());
    outcome.checks.extend(Check::at_least(what(2), "2.2", gained[1], 1.8).and_order());
    outcome.checks.extend(Check::at_least(what(5), "3.0", gained[2], AT_FIVE).and_order());
    let name = "the gain with 5 threads over that with 2";
    outcome.checks.push(Check::at_least(name, "grows", gained[2] / gained[1], 1.0).order());
    let mut figure =
        Figure::new("Elements a second, cleaned over not", "element, B", "ratio", FigureKind::Lines)
            .over(&elements);
    for sweep in &sweeps {
        figure = figure.with(&format!("{} threads", sweep.threads), gains(sweep));
    }
    outcome.figures.push(figure);
    listing_2::sizes(&mut outcome, run);
    let gb_s = |sweep: &Sweep| -> String {
        let both = sweep.plain.iter().zip(&sweep.cleaned).zip(&elements).map(|((plain, cleaned), element)| {
            let rate = |per_second: f64| per_second * *element as f64 / 1e9;
            let (plain, cleaned) = (rate(plain.per_second()), rate(cleaned.per_second()));
            format!("{element} B {plain:.2} and {cleaned:.2}")
        });
        both.collect::<Vec<_>>().join(", ")
    };
    outcome.note = format!(
        "{LABEL}. Written without and with clean, GB/s: by one thread {}; by five {}.",
        gb_s(&sweeps[0]),
        gb_s(&sweeps[2])
    );
    if most(&sweeps[0]) > NO_GAIN {
        outcome.note += " One thread gains more than in the paper: what a thread does between two elements \
                         (drawing an index, the copy's own instructions) takes no time here, and its stores \
                         wait for the medium in turn, so that it is nearer to saturating the DIMMs.";
    }
    if most(&sweeps[2]) < AT_FIVE {
        outcome.note += " Five threads are bound by the medium in both ways. That they gain less than it writes less is \
                         suspected to be its reads: every line is fetched before it is written, cleaned or not, and \
                         on the model reads may take a larger part of the medium's time than on the paper's.";
    }
    Ok(outcome)
}
