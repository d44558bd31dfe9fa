//! `btree-crash`: the trees that are kept, in every state a crash may leave that is drawn (Ni, chapter 5).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::crash::{self, Control, CrashTest, Settings};
use terrace_memory::Domain;

pub(super) const ROW: Row = Row {
    id: "btree-crash",
    source: "Ni, section 5.1",
    runs_on: "crash",
    must_show: "every acknowledged insert is present once, ranges are in order, the tree is usable after \
                recovery; a step left out is caught",
    run,
};

const DOMAINS: [Domain; 2] = [Domain::Adr, Domain::Eadr];

fn tests() -> impl Iterator<Item = &'static CrashTest> {
    crash::ALL.iter().filter(|test| test.name.starts_with("tree-"))
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (states, most) = run.size((200_000, 200_000), (2_000, 20_000));
    let seed = Settings::default().seed;
    let (mut scenarios, mut found, mut broken) = (0, 0, Vec::new());
    for domain in DOMAINS {
        for test in tests() {
            (run.tell)(&format!("{}, {domain}", test.name));
            let report = test.run(&Settings { states, domain, ..Settings::default() });
            (scenarios, found) = (scenarios + 1, found + report.states);
            broken.extend(report.failure.map(|failure| format!("{}: {}", test.name, failure.message)));
        }
    }
    let mut tell = |control: &Control| {
        (run.tell)(&format!("left out: {} of {}", control.step, control.engine));
    };
    let controls: Vec<Control> = tests().flat_map(|test| test.controls(most, seed, &mut tell)).collect();
    let missed = controls.iter().filter(|control| control.caught_by.is_none());
    let missed: Vec<&str> = missed.map(|control| control.step.as_str()).collect();
    let mut outcome = Outcome::default();
    let asked = states * scenarios;
    outcome.checks.extend([
        Check::at_most("scenarios that lose or double an entry", "0", broken.len() as f64, 0.0).order(),
        Check::at_least("states recovered, for each asked for", "none told", found as f64 / asked as f64, 1.0).order(),
        Check::at_most("steps left out that went unnoticed", "0", missed.len() as f64, 0.0).order(),
    ]);
    let names = controls.iter().map(|control| format!("{} {}", control.engine, control.step));
    outcome.figures.push(
        Figure::new("States until a step left out was noticed", "step", "states", FigureKind::Bars)
            .over(names)
            .with("states", controls.iter().map(|control| control.states as f64)),
    );
    outcome.size("states of a scenario", states);
    outcome.size("steps left out", controls.len());
    outcome.size("seed", seed);
    outcome.note = match (broken.first(), missed.is_empty()) {
        (Some(first), _) => first.clone(),
        (None, false) => format!("Not noticed: {}.", missed.join(", ")),
        (None, true) => "Two crashes in a row, the second during or after recovery. The volatile trees keep \
                         nothing."
            .into(),
    };
    Ok(outcome)
}
