//! What was measured, in a form that can be drawn.

use serde::{Deserialize, Serialize};
use terrace_memory::profile::four_digits;

/// How the values of a figure are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Groups of bars from zero.
    Bars,
    /// Bars of a group one above the other: the series add up.
    Stacked,
    /// A line through the values of each series.
    Lines,
    /// The same over a vertical axis of powers of ten.
    LogLines,
}

/// One series: a name and a value for each place on the horizontal axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// Values in the unit of the figure, to four digits.
    pub values: Vec<f64>,
}

/// A figure: medians, unless its title says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What the horizontal axis is, with its unit.
    pub across: String,
    /// The places on it.
    pub places: Vec<String>,
    /// What the vertical axis is, with its unit.
    pub up: String,
    /// How it is drawn.
    pub form: Form,
    /// What is drawn.
    pub series: Vec<Series>,
}

impl Figure {
    /// A figure without series.
    pub fn new(title: &str, across: &str, up: &str, form: Form) -> Figure {
        Figure {
            title: title.into(),
            across: across.into(),
            places: Vec::new(),
            up: up.into(),
            form,
            series: Vec::new(),
        }
    }

    /// The places on the horizontal axis.
    #[must_use]
    pub fn over(mut self, places: impl IntoIterator<Item = impl ToString>) -> Figure {
        self.places = places.into_iter().map(|place| place.to_string()).collect();
        self
    }

    /// One more series.
    #[must_use]
    pub fn with(mut self, name: &str, values: impl IntoIterator<Item = f64>) -> Figure {
        let values = values.into_iter().map(four_digits).collect();
        self.series.push(Series { name: name.into(), values });
        self
    }

    /// The largest value drawn: of a stack, its height.
    pub(super) fn largest(&self) -> f64 {
        let height = |place: usize| {
            let values = self.series.iter().filter_map(|series| series.values.get(place));
            match self.form {
                Form::Stacked => values.sum::<f64>(),
                _ => values.fold(0.0, |most, value| f64::max(most, *value)),
            }
        };
        (0..self.places.len()).map(height).fold(0.0, f64::max)
    }

    /// The smallest value above zero.
    pub(super) fn smallest(&self) -> Option<f64> {
        let values = self.series.iter().flat_map(|series| series.values.iter().copied());
        values.filter(|value| *value > 0.0).reduce(f64::min)
    }
}
