//! What a run of a row leaves behind: checks, the verdict they give, and what a report draws.
//!
//! A verdict is never stated, only computed: from checks, whose `pass` follows from what was measured
//! and the bounds beside it. [`Experiment::is_consistent`] asks the same of a record read back, so that
//! an edited figure is noticed.
//!
//! Checks are of two kinds, since a model or a machine of today may show an effect of a paper and not its size: *order*
//! (who is ahead, whether something grows, where a knee is, what must be none or all) and *size* (how much).

use super::Calibrated;
use super::figure::Figure;
use serde::{Deserialize, Serialize};
use terrace_memory::profile::four_digits;
use terrace_workload::system::Machine;

/// What a check is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckKind {
    /// Who is ahead, whether something grows or falls, where a knee or a peak is, what must be none, equal or caught.
    Order,
    /// How much: a factor, a share, a band.
    #[default]
    Size,
}

impl std::fmt::Display for CheckKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CheckKind::Order => "order",
            CheckKind::Size => "size",
        })
    }
}

/// One thing that must show, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The compared quantity, with its unit.
    pub what: String,
    /// Whether it is about an order or about a size.
    pub kind: CheckKind,
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

    /// `measured` must lie in the band about a `paper`'s ratio that holds where nothing else is said: from half of its
    /// effect to twice of it, which is from 1 + (r - 1) / 2 to 1 + 2 (r - 1); for a ratio below 1 the same of 1 / r.
    pub(super) fn about(what: impl Into<String>, paper: f64, measured: f64) -> Check {
        Check::about_all(what, &paper.to_string(), [paper, paper], measured)
    }

    /// The same of ratios from the first to the second, which the paper tells in its words.
    pub(super) fn about_all(
        what: impl Into<String>,
        paper: &str,
        [first, second]: [f64; 2],
        measured: f64,
    ) -> Check {
        let half = |ratio: f64| 1.0 + (ratio - 1.0) / 2.0;
        let twice = |ratio: f64| 1.0 + (ratio - 1.0) * 2.0;
        let (low, high) = match second < 1.0 {
            true => (1.0 / twice(1.0 / first), 1.0 / half(1.0 / second)),
            false => (half(first), twice(second)),
        };
        Check::within(what, paper, measured, low, high)
    }

    /// The same check, about an order. Checks are about sizes otherwise.
    #[must_use]
    pub fn order(self) -> Check {
        Check { kind: CheckKind::Order, ..self }
    }

    /// This check of a ratio's size behind one of its order: on the side of 1 on which the bounds lie.
    pub(super) fn and_order(self) -> [Check; 2] {
        self.and_order_from(1.0)
    }

    /// This check of a size behind one of its order: on the side of `limit` on which the bounds lie.
    pub(super) fn and_order_from(self, limit: f64) -> [Check; 2] {
        let above = self.low.is_some_and(|low| low >= limit);
        let below = self.high.is_some_and(|high| high <= limit);
        debug_assert!(
            above || below,
            "invariant: the bounds of {self:?} lie on one side of {limit}"
        );
        let [low, high] = if above { [Some(limit), None] } else { [None, Some(limit)] };
        let pass = lies_within(self.measured, low, high);
        let what = format!("order: {}", self.what);
        let order = Check { what, kind: CheckKind::Order, low, high, pass, ..self.clone() };
        [order, self]
    }

    fn new(what: String, paper: &str, measured: f64, low: Option<f64>, high: Option<f64>) -> Check {
        // Judged as it is printed, so that a reader comes to the same verdict.
        let measured = Some(four_digits(measured)).filter(|value| value.is_finite());
        let [low, high] = [low, high].map(|bound| bound.map(four_digits));
        let pass = lies_within(measured, low, high);
        Check { what, kind: CheckKind::Size, paper: paper.into(), measured, low, high, pass }
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
    /// Every check of an order passed, and some size is out of its band or some column is not built.
    Order,
    /// Some check of an order did not pass; or there is none, and some size is out of its band.
    Miss,
    /// The hardware of every column is absent: nothing was checked.
    Skipped,
}

impl Verdict {
    /// All of them, the best first.
    pub const ALL: [Verdict; 4] = [Verdict::Pass, Verdict::Order, Verdict::Miss, Verdict::Skipped];

    /// The verdict of these checks, of a row that runs on what `runs_on` says.
    pub fn of(runs_on: &str, checks: &[Check]) -> Verdict {
        let is_order = |check: &&Check| check.kind == CheckKind::Order;
        let mut orders = checks.iter().filter(is_order).peekable();
        let all_pass = checks.iter().all(|check| check.pass);
        if checks.is_empty() {
            Verdict::Skipped
        } else if all_pass && !lacks_a_column(runs_on) {
            Verdict::Pass
        } else if all_pass || (orders.peek().is_some() && orders.all(|check| check.pass)) {
            Verdict::Order
        } else {
            Verdict::Miss
        }
    }
}

/// Whether a column is named as not built. One of a GPU is not counted: no row needs it where there is none.
pub(super) fn lacks_a_column(runs_on: &str) -> bool {
    let mut before: Vec<&str> = runs_on.split(": not built").collect();
    before.pop();
    before.iter().any(|column| !column.ends_with("gpu"))
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Verdict::Pass => "pass",
            Verdict::Order => "order",
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
        self.checks.iter().all(follows) && self.verdict == Verdict::of(&self.runs_on, &self.checks)
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
    /// The commit that was checked out where it ran, with `+` if files differed from it; none outside of the
    /// repository, and in a record from before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The day on which it ran, UTC, as in 2026-11-29; none in a record from before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
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

    const RUNS_ON: &str = "native; gpu: not built";

    fn experiment(checks: Vec<Check>) -> Experiment {
        Experiment {
            id: "row".into(),
            runs_on: RUNS_ON.into(),
            verdict: Verdict::of(RUNS_ON, &checks),
            seconds: 1.5,
            checks,
            note: "a note".into(),
        }
    }

    /// A check that passes, or one that does not.
    fn check(pass: bool) -> Check {
        let check = Check::at_least("ratio", "2.2", if pass { 1.6 } else { 1.4 }, 1.5);
        assert_eq!(check.pass, pass);
        check
    }

    #[test]
    fn a_figure_outside_its_range_does_not_pass() {
        let inside = Check::within("ratio", "2.2", 2.0, 1.5, 3.0);
        assert!(inside.pass);
        for outside in [1.49, 3.01, f64::NAN, f64::INFINITY] {
            let check = Check::within("ratio", "2.2", outside, 1.5, 3.0);
            assert!(!check.pass, "{check:?}");
        }
        assert!(!Check::at_least("ratio", "2.2", 1.4, 1.5).pass);
        assert!(!Check::at_most("ratio", "2.2", 1.6, 1.5).pass);
    }

    #[test]
    fn an_order_that_fails_is_a_miss_and_a_size_beside_orders_that_hold_is_none() {
        let (order, size) = (|pass| check(pass).order(), check);
        for (checks, verdict) in [
            (vec![], Verdict::Skipped),
            (vec![size(true)], Verdict::Pass),
            (vec![order(true)], Verdict::Pass),
            (vec![order(true), size(true)], Verdict::Pass),
            (vec![order(true), size(false)], Verdict::Order),
            (vec![size(false), size(true), order(true)], Verdict::Order),
            (vec![order(false)], Verdict::Miss),
            (vec![order(true), order(false), size(true)], Verdict::Miss),
            (vec![order(false), size(false)], Verdict::Miss),
            // No order has been shown.
            (vec![size(false)], Verdict::Miss),
            (vec![size(true), size(false)], Verdict::Miss),
        ] {
            assert_eq!(Verdict::of(RUNS_ON, &checks), verdict, "{checks:?}");
        }
    }

    #[test]
    fn a_row_without_one_of_its_columns_is_at_best_of_the_order() {
        let of = |runs_on, checks: &[Check]| Verdict::of(runs_on, checks);
        for whole in ["native", "native + model optane-001", "native; gpu: not built"] {
            assert_eq!(of(whole, &[check(true)]), Verdict::Pass, "{whole}");
        }
        for part in ["native (warp: not built)", "a (gpu: not built; warp: not built)"] {
            assert_eq!(of(part, &[check(true)]), Verdict::Order, "{part}");
            assert_eq!(of(part, &[check(false).order()]), Verdict::Miss, "{part}");
            assert_eq!(of(part, &[check(false)]), Verdict::Miss, "{part}");
            assert_eq!(of(part, &[]), Verdict::Skipped, "{part}");
        }
    }

    #[test]
    fn a_ratio_has_a_band_of_half_to_twice_its_effect_and_an_order_beside_it() {
        let bounds = |check: &Check| (check.low, check.high);
        let [order, size] = Check::about("ratio", 1.8, 1.2).and_order();
        assert_eq!((bounds(&order), order.pass), ((Some(1.0), None), true));
        assert_eq!((bounds(&size), size.pass), ((Some(1.4), Some(2.6)), false));
        assert_eq!([order.kind, size.kind], [CheckKind::Order, CheckKind::Size]);
        assert_eq!((order.what.as_str(), size.what.as_str()), ("order: ratio", "ratio"));
        let [order, size] = Check::about("ratio", 0.5, 0.9).and_order();
        assert_eq!((bounds(&order), order.pass), ((None, Some(1.0)), true));
        assert_eq!((bounds(&size), size.pass), ((Some(0.3333), Some(0.6667)), false));
        let found = Check::about("ratio", 1.8, 0.9).and_order();
        assert_eq!(Verdict::of(RUNS_ON, &found), Verdict::Miss, "it is behind, the paper's ahead");
        let range = Check::about_all("ratio", "1.2 to 1.5", [1.2, 1.5], 1.3);
        assert_eq!(bounds(&range), (Some(1.1), Some(2.0)));
        let range = Check::about_all("ratio", "0.5 to 0.8", [0.5, 0.8], 1.3);
        assert_eq!(bounds(&range), (Some(0.3333), Some(0.8889)));
        let [order, _] = Check::at_most("left", "none", 0.3, 0.2).and_order_from(0.5);
        assert_eq!((bounds(&order), order.pass), ((None, Some(0.5)), true));
    }

    #[test]
    fn a_check_is_judged_as_it_is_printed() {
        let check = Check::at_least("ratio", "2.2", 1.499_96, 1.5);
        assert_eq!((check.measured, check.pass), (Some(1.5), true));
    }

    #[test]
    fn json_is_what_the_contract_says() {
        let found = experiment(vec![
            Check::at_least("updates, slabs over logs", "2.2", 1.75, 1.5),
            Check::at_most("answers that differ", "0", 0.0, 0.0).order(),
        ]);
        let json = serde_json::to_string(&found).expect("JSON");
        assert_eq!(
            json,
            "{\"id\":\"row\",\"runs_on\":\"native; gpu: not built\",\"verdict\":\"pass\",\"seconds\":1.5,\
             \"checks\":[{\"what\":\"updates, slabs over logs\",\"kind\":\"size\",\"paper\":\"2.2\",\
             \"measured\":1.75,\"low\":1.5,\"high\":null,\"pass\":true},\
             {\"what\":\"answers that differ\",\"kind\":\"order\",\"paper\":\"0\",\
             \"measured\":0.0,\"low\":null,\"high\":0.0,\"pass\":true}],\"note\":\"a note\"}"
        );
        assert_eq!(serde_json::from_str::<Experiment>(&json).expect("read back"), found);
    }

    #[test]
    fn an_edited_figure_kind_column_or_verdict_is_noticed() {
        let sound = experiment(vec![check(false).order(), check(true)]);
        assert!(sound.is_consistent());
        let edited = |edit: fn(&mut Experiment)| {
            let mut edited = sound.clone();
            edit(&mut edited);
            !edited.is_consistent()
        };
        assert!(edited(|of| of.verdict = Verdict::Pass));
        assert!(edited(|of| of.verdict = Verdict::Order));
        assert!(edited(|of| of.checks[0].measured = Some(1.6)));
        assert!(edited(|of| {
            of.checks[0].kind = CheckKind::Size;
            of.checks[1].kind = CheckKind::Order;
        }));
        let mut column = experiment(vec![check(true)]);
        column.runs_on = "native (warp: not built)".into();
        assert!(!column.is_consistent());
    }
}
