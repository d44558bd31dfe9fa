//! `ring-crash`: what recovery makes of a bounded ring after any crash (Gugnani, section 5.2.2).
//!
//! The crash explorer runs two producers and two consumers on the ring in both persistent forms and domains. Then
//! every step that orders stores or that recovery relies on is left out in turn; and the ring as published, whose
//! recovery knows each thread's last position alone, is run in its own domain.

use super::{Check, Outcome, Result, Row, Run};
use crate::crash::{self, Control, Settings};
use terrace_memory::Domain;

pub(super) const ROW: Row = Row {
    id: "ring-crash",
    source: "Gugnani, section 5.2.2",
    runs_on: "crash",
    must_show: "published recovery loses completed pushes; the corrected ring loses none",
    run,
};

const TESTS: [&str; 2] = ["ring-tx", "ring-tx-free"];
const DOMAINS: [Domain; 2] = [Domain::Adr, Domain::Eadr];
/// The control that is the published protocol.
const PUBLISHED: &str = "ring-published";

/// What the ring came to.
#[derive(Default)]
struct Explored {
    asked: u64,
    states: u64,
    violations: Vec<String>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let states = run.size(400_000, 15_000);
    let mut explored = Explored::default();
    let mut controls = Vec::new();
    for name in TESTS {
        let test = crash::named(name).expect("invariant: a test of this name");
        for domain in DOMAINS {
            (run.tell)(&format!("{name}, {domain}"));
            let report = test.run(&Settings { states, domain, ..Settings::default() });
            explored.asked += states;
            explored.states += report.states;
            explored
                .violations
                .extend(report.failure.map(|failure| format!("{name}: {}", failure.message)));
        }
        let mut tell = |control: &Control| (run.tell)(&format!("left out: {}", control.step));
        let most = run.size(400_000, 40_000);
        controls.extend(test.controls(most, Settings::default().seed, &mut tell));
    }
    Ok(judge(states, &explored, &controls))
}

fn judge(states: u64, explored: &Explored, controls: &[Control]) -> Outcome {
    let (published, steps): (Vec<&Control>, Vec<&Control>) =
        controls.iter().partition(|control| control.engine == PUBLISHED);
    let missed: Vec<&str> =
        steps.iter().filter(|c| c.caught_by.is_none()).map(|c| c.step.as_str()).collect();
    let lost = published.iter().filter(|control| control.caught_by.is_some()).count();
    let mut outcome = Outcome::default();
    outcome.checks.extend([
        Check::at_most(
            "scenarios of the corrected ring with a loss",
            "0",
            explored.violations.len() as f64,
            0.0,
        ).order(),
        Check::at_least(
            "crash states recovered, for each asked for",
            "none told",
            explored.states as f64 / explored.asked as f64,
            1.0,
        ).order(),
        Check::at_least(
            "published recovery, found to lose what was acknowledged",
            "yes",
            lost as f64,
            1.0,
        ).order(),
        Check::at_most("steps left out that nothing noticed", "0", missed.len() as f64, 0.0).order(),
    ]);
    outcome.size("states of a scenario", states);
    outcome.size("steps left out", steps.len());
    let what = published.first().map_or("not run".into(), |control| {
        format!(
            "{} after {} states",
            if control.caught_by.is_some() { "caught" } else { "not caught" },
            control.states
        )
    });
    outcome.note = format!(
        "Two producers and two consumers, elements of one slot and of two, crashes in recovery among the {} states; \
         histories before the crash and what is left after it must have an order. The published ring (eADR, one \
         crash): {what}.{}{}",
        explored.states,
        explored.violations.first().map(|what| format!(" First loss: {what}.")).unwrap_or_default(),
        if missed.is_empty() {
            String::new()
        } else {
            format!(" Unnoticed: {}.", missed.join(", "))
        }
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(engine: &str, caught: bool) -> Control {
        Control {
            step: "Fence".into(),
            meaning: "order",
            engine: engine.into(),
            caught_by: caught.then(|| "a scenario".into()),
            states: 7,
            message: String::new(),
        }
    }

    #[test]
    fn a_loss_an_unnoticed_step_and_a_published_ring_that_loses_nothing_are_misses() {
        let passes = |violations: &[&str], step, published| {
            let violations = violations.iter().map(|what| (*what).to_string()).collect();
            let explored = Explored { asked: 10, states: 10, violations };
            let controls = [control("ring-tx", step), control(PUBLISHED, published)];
            judge(10, &explored, &controls).checks.iter().all(|check| check.pass)
        };
        assert!(passes(&[], true, true));
        assert!(!passes(&["lost"], true, true));
        assert!(!passes(&[], false, true) && !passes(&[], true, false));
    }
}
