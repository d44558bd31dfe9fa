//! A figure and the runs it comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Runs that are kept: the latest.
const RUNS_MAX: usize = 32;

/// What runs measured of one thing, oldest first; never empty, every value finite and not negative.
/// In the file an array of numbers, to four digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
#[schemars(with = "Vec<f64>", extend("minItems" = 1, "maxItems" = 32))]
pub struct Estimate(Vec<f64>);

impl Estimate {
    /// Of one run; `None` of what is no figure: not finite, or negative.
    pub fn of(value: f64) -> Option<Estimate> {
        (value.is_finite() && value >= 0.0).then(|| Estimate(vec![four_digits(value)]))
    }

    /// The middle of the runs.
    pub fn median(&self) -> f64 {
        let mut runs = self.0.clone();
        runs.sort_by(f64::total_cmp);
        let (below, above) = (runs[(runs.len() - 1) / 2], runs[runs.len() / 2]);
        (below + above) / 2.0
    }

    /// The least and the most of any run.
    pub fn range(&self) -> [f64; 2] {
        let by = |choose: fn(f64, f64) -> f64| self.0.iter().copied().reduce(choose).unwrap_or(0.0);
        [by(f64::min), by(f64::max)]
    }

    /// How many runs.
    pub fn runs(&self) -> usize {
        self.0.len()
    }

    pub(super) fn refine(&mut self, later: Estimate) {
        self.0.extend(later.0);
        self.0.drain(..self.0.len().saturating_sub(RUNS_MAX));
    }
}

impl TryFrom<Vec<f64>> for Estimate {
    type Error = String;

    fn try_from(runs: Vec<f64>) -> Result<Estimate, String> {
        let whole = |value: &f64| value.is_finite() && *value >= 0.0;
        if runs.is_empty() || runs.len() > RUNS_MAX || !runs.iter().all(whole) {
            return Err(format!("1 to {RUNS_MAX} finite values from 0 on, one for each run"));
        }
        Ok(Estimate(runs))
    }
}

impl From<Estimate> for Vec<f64> {
    fn from(estimate: Estimate) -> Vec<f64> {
        estimate.0
    }
}

/// `value` to four significant digits: more are noise.
pub fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.3e}").parse().unwrap_or(value)
}
