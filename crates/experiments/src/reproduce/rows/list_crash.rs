//! `list-crash`: the four lists in every state a crash may leave (Gugnani, case study 2).
//!
//! Two threads on the same keys; what they were told and what recovery found must have an order. The
//! published TLog must be caught in three ways, and every step of the four protocols that is left out.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::crash::{self, Control, CrashTest, Settings};
use terrace_memory::Domain;

pub(super) const ROW: Row = Row {
    id: "list-crash",
    source: "Gugnani, case study 2, lists",
    runs_on: "crash",
    must_show: "TLog as published is caught in three named ways; corrected, Log-free, Link-free, SOFT: none found",
    run,
};

const DOMAINS: [Domain; 2] = [Domain::Adr, Domain::Eadr];
/// Seeds of scenarios whose calls are drawn.
const SEEDS: u64 = 4;
const PUBLISHED: &str = "Published";

fn lists() -> impl Iterator<Item = &'static CrashTest> {
    crash::ALL.iter().filter(|test| test.name.starts_with("list-"))
}

/// What one test came to, in both domains and by all seeds.
struct Explored {
    test: &'static str,
    states: u64,
    first: Option<String>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let states = run.size(200_000, 6_000);
    let mut explored = Vec::new();
    for test in lists() {
        (run.tell)(test.name);
        explored.push(explore(test, states));
    }
    let mut tell = |control: &Control| (run.tell)(&format!("left out: {}", control.step));
    let controls: Vec<Control> =
        lists().flat_map(|test| test.controls(states.max(20_000), 1, &mut tell)).collect();
    Ok(judge(&explored, &controls))
}

fn explore(test: &'static CrashTest, states: u64) -> Explored {
    let mut explored = Explored { test: test.name, states: 0, first: None };
    for domain in DOMAINS {
        for seed in 1..=SEEDS {
            let report = test.run(&Settings { states, seed, domain });
            explored.states += report.states;
            let words = report.failure.map(|failure| format!("{}: {}", test.name, failure.message));
            explored.first = explored.first.or(words);
            if report.exhausted {
                // Every state was met: another seed meets the same.
                break;
            }
        }
    }
    explored
}

fn judge(explored: &[Explored], controls: &[Control]) -> Outcome {
    let mut outcome = Outcome::default();
    let (published, steps): (Vec<&Control>, Vec<&Control>) =
        controls.iter().partition(|control| control.step.starts_with(PUBLISHED));
    let caught = |controls: &[&Control]| {
        controls.iter().filter(|control| control.caught_by.is_some()).count() as f64
    };
    let violations = explored.iter().filter(|explored| explored.first.is_some()).count();
    let states: u64 = explored.iter().map(|explored| explored.states).sum();
    outcome.checks.extend([
        Check::within("ways in which TLog as published is caught", "3", caught(&published), 3.0, 3.0).order(),
        Check::at_most("scenarios without an order", "0", violations as f64, 0.0).order(),
        Check::at_least("crash states recovered", "none told", states as f64, 10_000.0).order(),
        Check::at_most(
            "steps left out that nothing noticed",
            "0",
            steps.len() as f64 - caught(&steps),
            0.0,
        ).order(),
    ]);
    outcome.size("scenarios", explored.len());
    outcome.size("steps left out", steps.len());
    outcome.size("seeds of drawn calls", SEEDS);
    let ways: Vec<String> = published
        .iter()
        .map(|way| match way.caught_by {
            Some(_) => format!("{}: not that {} ({} states)", way.step, way.meaning, way.states),
            None => format!("{}: not caught in {} states", way.step, way.states),
        })
        .collect();
    let unnoticed: Vec<&str> = steps
        .iter()
        .filter(|control| control.caught_by.is_none())
        .map(|control| control.step.as_str())
        .collect();
    let first = explored.iter().find_map(|explored| explored.first.as_ref());
    outcome.note = format!(
        "{states} crash states, in ADR and eADR (Log-free in eADR alone), crashes in recovery among them. {}. \
         {} steps left out, one at a time.{}{}",
        ways.join("; "),
        steps.len(),
        first.map(|what| format!(" First violation: {what}.")).unwrap_or_default(),
        if unnoticed.is_empty() { String::new() } else { format!(" Unnoticed: {}.", unnoticed.join(", ")) },
    );
    outcome.figures.push(
        Figure::new("Crash states recovered", "scenario", "states", FigureKind::LogLines)
            .over(explored.iter().map(|explored| explored.test.trim_start_matches("list-")))
            .with("states", explored.iter().map(|explored| explored.states as f64)),
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_or_a_step_that_nobody_notices_is_a_miss() {
        let control = |step: &str, caught: bool| Control {
            step: step.into(),
            meaning: "order",
            engine: "list-tlog".into(),
            caught_by: caught.then(|| "a scenario".into()),
            states: 7,
            message: String::new(),
        };
        let passes = |violation: Option<&str>, way, step| {
            let first = violation.map(String::from);
            let explored = [Explored { test: "list-tlog", states: 20_000, first }];
            let ways = ["(a)", "(b)", "(c)"].map(|name| format!("{PUBLISHED} {name}"));
            let mut controls: Vec<Control> = ways.iter().map(|name| control(name, way)).collect();
            controls.extend((0..20).map(|_| control("LinkWriteBack", step)));
            judge(&explored, &controls).checks.iter().all(|check| check.pass)
        };
        assert!(passes(None, true, true));
        assert!(!passes(Some("lost"), true, true));
        assert!(!passes(None, false, true) && !passes(None, true, false));
    }
}
