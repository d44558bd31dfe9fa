//! The error of the model against published figures.
//!
//! For each preset whose machine somebody measured, [`calibrate`] runs the same loads on the model and
//! puts both figures side by side. Nothing in the model was adjusted to them, with one exception that
//! its preset names. A figure that is off by more than [`TOLERANCE`] is a miss and is printed as
//! one; experiments that rest on it must say so.

mod generator;
mod load;
mod optane;
mod others;
mod prestores;
mod profiled;

pub use generator::Generator;
pub use profiled::against;

use super::preset::{Preset, PresetError};
use crate::load::{Load, Run};
use std::fmt;

/// A modelled figure within this share of the published one agrees with it.
pub const TOLERANCE: f64 = 0.20;

/// A published figure and the model's.
#[derive(Clone, Debug)]
pub struct Check {
    /// The measured quantity, with its unit.
    pub what: String,
    /// Where it was published.
    pub source: &'static str,
    /// The figure there.
    pub published: f64,
    /// The model's.
    pub modelled: f64,
    /// Whether the figure itself, or what it follows from alone, stands in the preset, taken from a
    /// publication or assumed: agreement then says that the model keeps to its preset and no more.
    pub given: bool,
    /// Why the model is thought to miss it, where it does.
    pub reason: &'static str,
}

impl Check {
    /// The model's error, as a share of the published figure.
    pub fn error(&self) -> f64 {
        self.modelled / self.published - 1.0
    }

    /// Whether the model agrees.
    pub fn agrees(&self) -> bool {
        self.error().abs() <= TOLERANCE
    }

    /// Whether the figure was `given` to the preset, where agreement is no success, or `predicted`; and if the model
    /// misses it.
    pub fn verdict(&self) -> &'static str {
        match (self.agrees(), self.given) {
            (true, true) => "given",
            (true, false) => "predicted",
            (false, true) => "given, MISS",
            (false, false) => "predicted, MISS",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:58} {:>10} {:>10} {:>+7.0} %  {:15} {}",
            self.what,
            figure(self.published),
            figure(self.modelled),
            100.0 * self.error(),
            self.verdict(),
            self.source,
        )?;
        if !self.agrees() && !self.reason.is_empty() {
            write!(f, "\n{:58} because {}", "", self.reason)?;
        }
        Ok(())
    }
}

/// Four digits that mean something.
fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// All checks of a preset, printed.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The preset's name.
    pub preset: String,
    /// Whose figures the model is held against: `published`, or a `profile`'s.
    pub whose: &'static str,
    /// Its checks.
    pub checks: Vec<Check>,
}

impl Calibration {
    /// Its checks in a line: figures that follow from the model apart from those that the preset was given.
    pub fn summary(&self) -> String {
        let count = |given| {
            let of = self.checks.iter().filter(|check| check.given == given);
            (of.clone().filter(|check| check.agrees()).count(), of.count())
        };
        let ((agree, of), (kept, given)) = (count(false), count(true));
        let percent = 100.0 * TOLERANCE;
        if of + given == 0 {
            return format!("{}: no {} figures to hold the model against", self.preset, self.whose);
        }
        format!(
            "{}: {agree} of {of} {} figures that it was not given within {percent:.0} %, and {kept} of {given} that it was",
            self.preset, self.whose
        )
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        if self.checks.is_empty() {
            return Ok(());
        }
        writeln!(f, "{:58} {:>10} {:>10} {:>9}", "", self.whose, "modelled", "error")?;
        self.checks.iter().try_for_each(|check| writeln!(f, "{check}"))
    }
}

/// The checks of a preset that comes with this crate; none where nobody published figures.
///
/// # Errors
/// There is no such preset.
///
/// # Cost
/// Seconds, up to half a minute for the Optane presets.
pub fn calibrate(name: &str) -> Result<Calibration, PresetError> {
    let preset = Preset::named(name)?;
    let checks = match name {
        "optane-004" => optane::of_ni(&preset),
        "optane-001" => optane::of_gugnani(&preset),
        "optane-000" => prestores::on_optane(&preset),
        "enzian-fast" | "enzian-slow" => prestores::on_enzian(&preset),
        _ => others::of(&preset),
    };
    Ok(Calibration { preset: name.into(), whose: "published", checks })
}

fn run(load: Load<'_>, preset: &Preset) -> Run {
    load.run(preset).expect("the preset has the nodes and threads that are calibrated")
}
