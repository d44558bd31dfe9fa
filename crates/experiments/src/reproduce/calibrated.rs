//! How far a model is from its machine, before a row rests on it.
//!
//! A row names its modelled machines in `runs_on`. Their calibration is run first, once in a process since a model is
//! the same every time, and goes into the record beside the row's own figures: whoever reads a verdict sees how much
//! of the machine the model is.

use super::{Error, Result, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use terrace_machine::Preset;
use terrace_machine::model::calibrate;
use terrace_memory::profile::four_digits;

/// A model beside its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// The preset.
    pub preset: String,
    /// In a line: how many figures that the preset was not given agree, and how many that it was.
    pub summary: String,
    /// How long the checks took, wall clock.
    pub seconds: f64,
    /// The checks; in a file of records they stand once for each preset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CalibrationCheck>,
}

/// A published figure and the model's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrationCheck {
    /// The measured quantity, with its unit.
    pub what: String,
    /// Where it was published.
    pub source: String,
    /// The figure there.
    pub published: f64,
    /// The model's.
    pub modelled: f64,
    /// Its error, as a share of the published figure.
    pub error: f64,
    /// `predicted`, or `given`, which is no success: the preset has the figure itself. With `, MISS` where the model
    /// is off; older records have `agrees` for what was predicted, and `MISS` alone.
    pub verdict: String,
    /// Where the model is off, what is suspected; empty where nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

type Known = BTreeMap<&'static str, Arc<Calibrated>>;
static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());

impl Row {
    /// The modelled machines that it rests on.
    pub fn presets(&self) -> impl Iterator<Item = &'static str> {
        let runs_on = self.runs_on;
        Preset::names().filter(move |name| runs_on.contains(name))
    }

    /// The calibration of each of them; `tell` hears which is run. A preset is calibrated once in a process.
    ///
    /// # Errors
    /// [`Error`] if the preset is not what its name says.
    pub fn calibrate(&self, tell: &dyn Fn(&str)) -> Result<Vec<Arc<Calibrated>>> {
        self.presets().map(|name| calibrated(name, tell)).collect()
    }
}

fn calibrated(name: &'static str, tell: &dyn Fn(&str)) -> Result<Arc<Calibrated>> {
    // Held while it runs: other threads that need the same calibration wait.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(name) {
        return Ok(Arc::clone(found));
    }
    tell(&format!("calibrating {name}"));
    let start = Instant::now();
    let refused = |error| Error::system("calibrate a preset")(std::io::Error::other(error));
    let found = calibrate::calibrate(name).map_err(refused)?;
    let checks = found.checks.iter().map(|check| CalibrationCheck {
        what: check.what.clone(),
        source: check.source.into(),
        published: four_digits(check.published),
        modelled: four_digits(check.modelled),
        error: four_digits(check.error()),
        verdict: check.verdict().into(),
        reason: if check.agrees() { String::new() } else { check.reason.into() },
    });
    let calibrated = Arc::new(Calibrated {
        preset: name.into(),
        summary: found.summary(),
        seconds: (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        checks: checks.collect(),
    });
    known.insert(name, Arc::clone(&calibrated));
    Ok(calibrated)
}

impl std::fmt::Display for Calibrated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "calibration of {} (in {} s)", self.summary, self.seconds)?;
        if self.checks.is_empty() {
            return Ok(());
        }
        writeln!(f, "  {:58} {:>10} {:>10} {:>8}", "", "published", "modelled", "error")?;
        self.checks.iter().try_for_each(|check| {
            writeln!(
                f,
                "  {:58} {:>10} {:>10} {:>+6.0} %  {:15}  {}",
                check.what,
                check.published,
                check.modelled,
                100.0 * check.error,
                check.verdict,
                check.source
            )?;
            if check.reason.is_empty() {
                Ok(())
            } else {
                writeln!(f, "    suspected: {}", check.reason)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;
    use std::cell::Cell;

    #[test]
    fn every_row_on_a_model_names_its_machine() {
        for row in ALL {
            let named = row.presets().count();
            assert_eq!(row.runs_on.contains("model"), named > 0, "{}: {}", row.id, row.runs_on);
        }
        let of =
            |id: &str| -> Vec<&str> { super::super::named(id).expect("a row").presets().collect() };
        assert_eq!(of("prestore-apps"), ["optane-000", "enzian-fast", "enzian-slow"]);
        assert_eq!(of("numa-placement"), ["optane-001"]);
    }

    #[test]
    fn a_preset_is_calibrated_once_and_what_it_was_given_is_no_success() {
        let row = Row { runs_on: "model m2-ultra", ..ALL[0] };
        let told = Cell::new(0);
        let found = [0; 2].map(|_| {
            row.calibrate(&|_| told.set(told.get() + 1)).expect("a preset that is compiled in")
        });
        assert_eq!((told.get(), &found[0]), (1, &found[1]));
        let [ultra] = &found[0][..] else { panic!("one preset") };
        let verdicts: Vec<_> = ultra.checks.iter().map(|check| check.verdict.as_str()).collect();
        assert_eq!(verdicts, ["given", "predicted", "predicted"], "{ultra}");
        assert!(
            ultra.summary.contains("2 of 2 published figures that it was not given"),
            "{ultra}"
        );
        let json = serde_json::to_string(&**ultra).expect("JSON");
        assert_eq!(serde_json::from_str::<Calibrated>(&json).expect("read back"), **ultra);
    }
}
