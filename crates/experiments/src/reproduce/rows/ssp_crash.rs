//! `ssp-crash`: failure-atomic sections in every state a crash may leave (Ni, chapter 3).
//!
//! The crash explorer runs each scenario of [`crate::crash`] that is about sections: shadow sub-paging,
//! and undo and redo beside it. After a crash anywhere, inside commit, journal, consolidation, checkpoint
//! or recovery itself, the recovered heap must be that of a prefix of the commits with every
//! acknowledged one in it. Then every step that orders stores is left out in turn, of every engine that
//! has it, and some scenario must notice.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::crash::{self, Control, Settings};
use terrace_memory::Domain;

pub(super) const ROW: Row = Row {
    id: "ssp-crash",
    source: "Ni, chapter 3",
    runs_on: "crash",
    must_show: "a prefix of commits with every acknowledged one after any crash; a fence left out is caught",
    run,
};

const DOMAINS: [Domain; 2] = [Domain::Adr, Domain::Eadr];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let states = run.size(200_000, 700);
    let seed = Settings::default().seed;
    (run.tell)("scenarios, and steps left out beside them");
    let (explored, controls) = std::thread::scope(|scope| {
        let explored = scope.spawn(|| explore(states));
        let mut tell = |control: &Control| {
            (run.tell)(&format!("left out: {} of {}", control.step, control.engine));
        };
        let most = run.size(200_000, 5_000);
        let controls: Vec<Control> =
            crash::sections().flat_map(|test| test.controls(most, seed, &mut tell)).collect();
        (explored.join().expect("invariant: the explorer catches panics of a recovery"), controls)
    });
    Ok(judge(states, seed, &explored, &controls))
}

/// What the scenarios came to, all of them in both domains.
#[derive(Default)]
struct Explored {
    scenarios: u64,
    states: u64,
    violations: u32,
    first: Option<String>,
}

fn explore(states: u64) -> Explored {
    let mut explored = Explored::default();
    for domain in DOMAINS {
        for test in crash::sections() {
            let report = test.run(&Settings { states, domain, ..Settings::default() });
            explored.scenarios += 1;
            explored.states += report.states;
            if let Some(failure) = report.failure {
                explored.violations += 1;
                explored.first.get_or_insert(format!("{}: {}", test.name, failure.message));
            }
        }
    }
    explored
}

fn judge(states: u64, seed: u64, explored: &Explored, controls: &[Control]) -> Outcome {
    let missed: Vec<&str> =
        controls.iter().filter(|c| c.caught_by.is_none()).map(|c| c.step.as_str()).collect();
    let mut outcome = Outcome::default();
    outcome.checks.extend([
        Check::at_most(
            "scenarios whose recovered heap is no prefix of the commits",
            "0",
            f64::from(explored.violations),
            0.0,
        ).order(),
        Check::at_least(
            "crash states recovered, for each asked for",
            "none told",
            explored.states as f64 / (states * explored.scenarios) as f64,
            1.0,
        ).order(),
        Check::at_most("steps left out that nothing noticed", "0", missed.len() as f64, 0.0).order(),
    ]);
    outcome.size("scenarios", format!("{}, half in ADR and half in eADR", explored.scenarios));
    outcome.size("states of a scenario", states);
    outcome.size("steps left out", controls.len());
    let first = explored.first.as_ref().map(|what| format!(" First violation: {what}."));
    outcome.note = format!(
        "{} states drawn with seed {seed}, crashes in recovery among them; {} steps left out one at a \
         time, each in every engine that has it.{}{}",
        explored.states,
        controls.len(),
        first.unwrap_or_default(),
        if missed.is_empty() { String::new() } else { format!(" Unnoticed: {}.", missed.join(", ")) }
    );
    outcome.figures.push(caught_after(controls));
    outcome
}

/// How long each engine's controls took to be noticed.
fn caught_after(controls: &[Control]) -> Figure {
    let engines = ["undo", "redo", "shadow"];
    let mut sorted: Vec<Vec<f64>> = engines
        .iter()
        .map(|engine| {
            let of = controls.iter().filter(|control| control.engine == *engine);
            let mut states: Vec<f64> = of.map(|control| control.states as f64).collect();
            states.sort_by(f64::total_cmp);
            states
        })
        .collect();
    let most = sorted.iter().map(Vec::len).max().unwrap_or(0);
    let mut figure = Figure::new(
        "States until a step left out was noticed",
        "steps of the engine, the soonest first",
        "states",
        FigureKind::LogLines,
    )
    .over((1..=most).map(|n| if n % 5 == 0 { n.to_string() } else { String::new() }));
    for (engine, states) in engines.iter().zip(&mut sorted) {
        figure = figure.with(engine, std::mem::take(states));
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(caught: bool) -> Control {
        Control {
            step: "Fence".into(),
            meaning: "order",
            engine: "undo".into(),
            caught_by: caught.then(|| "a scenario".into()),
            states: 7,
            message: String::new(),
        }
    }

    #[test]
    fn a_violation_and_an_unnoticed_step_are_misses() {
        let passes = |violations, caught| {
            let explored = Explored { scenarios: 2, states: 20, violations, first: None };
            judge(10, 1, &explored, &[control(caught)]).checks.iter().all(|check| check.pass)
        };
        assert!(passes(0, true));
        assert!(!passes(1, true) && !passes(0, false));
        assert!(!judge(10, 1, &Explored::default(), &[]).checks.iter().all(|check| check.pass));
    }
}
