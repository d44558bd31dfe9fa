//! Measurements in a form that can be drawn.

use serde::{Deserialize, Serialize};
use terrace_memory::profile::four_digits;

/// How the values of a figure are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureKind {
    /// Groups of bars from zero.
    Bars,
    /// Bars of a group one above the other: the series add up.
    Stacked,
    /// A line through the values of each series.
    Lines,
    /// The same over a vertical axis of powers of ten.
    LogLines,
    /// A line through points of each series, in their order; the horizontal axis has numbers as well.
    Curves,
}

/// One series: a name and a value for each place on the horizontal axis; of a curve, points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// Of a curve: where on the horizontal axis each value is, to four digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub across: Vec<f64>,
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
    pub form: FigureKind,
    /// The drawn values.
    pub series: Vec<Series>,
    /// Vertical lines with a label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// A vertical line with a label, such as the size of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Where, in places of the horizontal axis from 0; between two of them too.
    pub at: f64,
    /// What is there.
    pub label: String,
}

impl Figure {
    /// A figure without series.
    pub fn new(title: &str, across: &str, up: &str, form: FigureKind) -> Figure {
        Figure {
            title: title.into(),
            across: across.into(),
            places: Vec::new(),
            up: up.into(),
            form,
            series: Vec::new(),
            marks: Vec::new(),
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
        self.series.push(Series { name: name.into(), across: Vec::new(), values });
        self
    }

    /// One more curve, through these points: across, up.
    #[must_use]
    pub fn through(mut self, name: &str, points: impl IntoIterator<Item = [f64; 2]>) -> Figure {
        let points = points.into_iter().map(|point| point.map(four_digits));
        let (across, values) = points.map(|[across, up]| (across, up)).unzip();
        self.series.push(Series { name: name.into(), across, values });
        self
    }

    /// One more mark.
    #[must_use]
    pub fn marked(mut self, at: f64, label: impl Into<String>) -> Figure {
        self.marks.push(Mark { at: four_digits(at), label: label.into() });
        self
    }
}
