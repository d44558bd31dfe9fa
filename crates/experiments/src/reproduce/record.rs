//! What a run of a row leaves behind: checks, the verdict they give, and what a report draws.
//!
//! A verdict is never stated, only computed: from checks, whose `pass` follows from what was measured
//! and the bounds beside it. [`Experiment::is_consistent`] asks the same of a record read back, so that
//! an edited figure is noticed.

use super::Calibrated;
use super::figure::Figure;
use serde::{Deserialize, Serialize};
use terrace_memory::profile::four_digits;
use terrace_workload::system::Machine;

/// One thing that must show, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The compared quantity, with its unit.
    pub what: String,
    /// What the paper says, in its words.
    pub paper: String,
    /// What was found, to four digits; none if it could not be computed.
    pub measured: Option<f64>,
    /// The least that passes.
    pub low: Option<f64>,
    /// The most that passes.
    pub high: Option<f64>,
    /// Whether it lies between them.
    pub pass: bool,
}

impl Check {
    /// `measured` must be at least `low`.
    pub fn at_least(what: impl Into<String>, paper: &str, measured: f64, low: f64) -> Check {
        Check::new(what.into(), paper, measured, Some(low), None)
    }

    /// `measured` must be at most `high`.
    pub fn at_most(what: impl Into<String>, paper: &str, measured: f64, high: f64) -> Check {
        Check::new(what.into(), paper, measured, None, Some(high))
    }

    /// `measured` must lie between `low` and `high`.
    pub fn within(
        what: impl Into<String>,
        paper: &str,
        measured: f64,
        low: f64,
        high: f64,
    ) -> Check {
        Check::new(what.into(), paper, measured, Some(low), Some(high))
    }

    fn new(what: String, paper: &str, measured: f64, low: Option<f64>, high: Option<f64>) -> Check {
        // Judged as it is printed, so that a reader comes to the same verdict.
        let measured = Some(four_digits(measured)).filter(|value| value.is_finite());
        let [low, high] = [low, high].map(|bound| bound.map(four_digits));
        let pass = lies_within(measured, low, high);
        Check { what, paper: paper.into(), measured, low, high, pass }
    }
}

fn lies_within(measured: Option<f64>, low: Option<f64>, high: Option<f64>) -> bool {
    measured.is_some_and(|value| {
        low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high)
    })
}

/// What a row's checks come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check passed.
    Pass,
    /// Some check did not.
    Miss,
    /// The hardware of every column is absent: nothing was checked.
    Skipped,
}

impl Verdict {
    /// The verdict of these checks.
    pub fn of(checks: &[Check]) -> Verdict {
        match checks {
            [] => Verdict::Skipped,
            checks if checks.iter().all(|check| check.pass) => Verdict::Pass,
            _ => Verdict::Miss,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Pass => "pass",
            Verdict::Miss => "miss",
            Verdict::Skipped => "skipped",
        })
    }
}

/// One row's result, as `terrace reproduce run --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The row.
    pub id: String,
    /// What it ran on, and what is still to follow.
    pub runs_on: String,
    /// What the checks come to.
    pub verdict: Verdict,
    /// How long it took, wall clock.
    pub seconds: f64,
    /// What must show.
    pub checks: Vec<Check>,
    /// How it was measured, on what, and why a check was missed.
    pub note: String,
}

impl Experiment {
    /// Whether verdict and checks follow from the figures beside them.
    pub fn is_consistent(&self) -> bool {
        let follows =
            |check: &Check| check.pass == lies_within(check.measured, check.low, check.high);
        self.checks.iter().all(follows) && self.verdict == Verdict::of(&self.checks)
    }
}

/// An experiment with what a reader needs to judge it, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentRecord {
    /// The result.
    #[serde(flatten)]
    pub experiment: Experiment,
    /// Whether it ran at the paper's sizes.
    pub full: bool,
    /// Where it ran.
    pub machine: Machine,
    /// What it was run on and how often: name and value.
    pub sizes: Vec<(String, String)>,
    /// The measurements, drawn in the report.
    pub figures: Vec<Figure>,
    /// How far the models it rests on are from their machines; none in a record without models, or from before
    /// this was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calibrations: Vec<Calibrated>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(checks: Vec<Check>) -> Experiment {
        Experiment {
            id: "row".into(),
            runs_on: "native".into(),
            verdict: Verdict::of(&checks),
            seconds: 1.5,
            checks,
            note: "a note".into(),
        }
    }

    #[test]
    fn a_figure_outside_its_range_is_a_miss() {
        let inside = Check::within("ratio", "2.2", 2.0, 1.5, 3.0);
        assert!(inside.pass);
        for outside in [1.49, 3.01, f64::NAN, f64::INFINITY] {
            let check = Check::within("ratio", "2.2", outside, 1.5, 3.0);
            assert!(!check.pass, "{check:?}");
            assert_eq!(Verdict::of(&[inside.clone(), check]), Verdict::Miss);
        }
        assert!(!Check::at_least("ratio", "2.2", 1.4, 1.5).pass);
        assert!(!Check::at_most("ratio", "2.2", 1.6, 1.5).pass);
        assert_eq!(Verdict::of(&[inside]), Verdict::Pass);
        assert_eq!(Verdict::of(&[]), Verdict::Skipped);
    }

    #[test]
    fn a_check_is_judged_as_it_is_printed() {
        let check = Check::at_least("ratio", "2.2", 1.499_96, 1.5);
        assert_eq!((check.measured, check.pass), (Some(1.5), true));
    }

    #[test]
    fn json_is_what_the_contract_says() {
        let found = experiment(vec![Check::at_least("updates, slabs over logs", "2.2", 1.75, 1.5)]);
        let json = serde_json::to_string(&found).expect("JSON");
        assert_eq!(
            json,
            "{\"id\":\"row\",\"runs_on\":\"native\",\"verdict\":\"pass\",\"seconds\":1.5,\
             \"checks\":[{\"what\":\"updates, slabs over logs\",\"paper\":\"2.2\",\"measured\":1.75,\
             \"low\":1.5,\"high\":null,\"pass\":true}],\"note\":\"a note\"}"
        );
        assert_eq!(serde_json::from_str::<Experiment>(&json).expect("read back"), found);
    }

    #[test]
    fn an_edited_figure_or_verdict_is_noticed() {
        let sound = experiment(vec![Check::at_least("ratio", "2.2", 1.0, 1.5)]);
        assert!(sound.is_consistent());
        let mut verdict = sound.clone();
        verdict.verdict = Verdict::Pass;
        assert!(!verdict.is_consistent());
        let mut figure = sound;
        figure.checks[0].measured = Some(1.6);
        assert!(!figure.is_consistent());
    }
}
