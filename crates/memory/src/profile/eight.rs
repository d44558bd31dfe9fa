//! The eight tests of Gugnani in a profile: their factors, their causes, and what follows.

use super::estimate::Estimate;
use super::measured::Point;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one of the tests I1 to I8 (Gugnani) found of a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// `I1` to `I8`.
    pub test: String,
    /// The factor that the test looks for; 1 is no effect.
    pub factor: Estimate,
    /// What the memory's components had to do with it, as its causes were found in the last run.
    pub because: Vec<String>,
    /// The same factor of the DRAM that it was compared with.
    #[serde(default)]
    pub on_dram: Option<Estimate>,
    /// The classes of memory that the causes concern (table 1 of the paper), with a star where it is worse for them.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Why no cause is named, where none is or one is missing.
    #[serde(default)]
    pub unexplained: Option<String>,
}

/// How much a recommendation is worth (the scale of Gugnani, table 4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// Nothing: what it avoids does not happen here.
    None,
    /// Less than a factor of 1.5.
    Low,
    /// A factor of 1.5 to 3.
    Moderate,
    /// More than a factor of 3.
    High,
}

impl fmt::Display for Impact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Impact::None => "none",
            Impact::Low => "low",
            Impact::Moderate => "moderate",
            Impact::High => "high",
        })
    }
}

impl Impact {
    /// The grade of a factor. Within 5 % it is none: so much a repetition may differ.
    pub fn of(factor: f64) -> Impact {
        match factor {
            high if high > 3.0 => Impact::High,
            moderate if moderate >= 1.5 => Impact::Moderate,
            low if low > 1.05 => Impact::Low,
            _ => Impact::None,
        }
    }
}

/// One of the recommendations R1 to R7 of Gugnani, table 4, for a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recommendation {
    /// `R1` to `R7`.
    pub name: String,
    /// What it recommends.
    pub words: String,
    /// By what factor what it avoids is worse; absent where that was not measured.
    pub factor: Option<Estimate>,
    /// What that is worth here, by the median of the factor; absent without one.
    pub impact: Option<Impact>,
    /// Whether it applies here: its impact is more than none. Absent where that was not measured.
    pub applies: Option<bool>,
    /// Where the factor comes from in the last run, or why there is none.
    pub because: String,
}

impl Recommendation {
    /// A recommendation with the grade that its factor gives it.
    pub fn new(name: &str, words: &str, factor: Option<Estimate>, because: &str) -> Recommendation {
        let impact = factor.as_ref().map(|factor| Impact::of(factor.median()));
        Recommendation {
            name: name.into(),
            words: words.into(),
            factor,
            impact,
            applies: impact.map(|impact| impact > Impact::None),
            because: because.into(),
        }
    }
}

impl Point for Effect {
    fn is_of_setting(&self, other: &Self) -> bool {
        self.test == other.test
    }

    fn refine(&mut self, later: Self) {
        self.factor.refine(later.factor);
        self.on_dram = refined(self.on_dram.take(), later.on_dram);
        self.because = later.because;
        self.classes = later.classes;
        self.unexplained = later.unexplained;
    }
}

impl Point for Recommendation {
    fn is_of_setting(&self, other: &Self) -> bool {
        self.name == other.name
    }

    /// A run that could not tell the factor takes nothing away.
    fn refine(&mut self, later: Self) {
        if later.factor.is_some() || self.factor.is_none() {
            let factor = refined(self.factor.take(), later.factor);
            *self = Recommendation::new(&later.name, &later.words, factor, &later.because);
        }
    }
}

/// The runs of both, as far as there are any.
fn refined(known: Option<Estimate>, later: Option<Estimate>) -> Option<Estimate> {
    match (known, later) {
        (Some(mut known), Some(later)) => {
            known.refine(later);
            Some(known)
        }
        (known, later) => known.or(later),
    }
}
