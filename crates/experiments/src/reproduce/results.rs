//! The file of records: the last one of each row.

use super::calibrated::Calibrated;
use super::error::{Error, Result};
use super::record::ExperimentRecord;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What is wrong with a file from before checks had kinds: its verdicts are of other meanings.
const LACKS_KINDS: &str = "missing field `kind`";

/// Records, one for each row that was run, by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The records.
    pub experiments: Vec<ExperimentRecord>,
    /// The calibrations that rows ran behind, the last of each preset, with their checks.
    #[serde(default)]
    pub models: Vec<Calibrated>,
}

impl Results {
    /// Reads the file; no file is no records.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Results`] for what is no such file, or holds a verdict that does not
    /// follow from its figures.
    pub fn read(path: &Path) -> Result<Results> {
        let text = match fs::read_to_string(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Results::default()),
            other => other.map_err(Error::io("read", path))?,
        };
        let bad = |what: String| Error::Results { path: path.into(), what };
        let results: Results = serde_json::from_str(&text).map_err(|e| match e.to_string() {
            what if what.contains(LACKS_KINDS) => bad(format!(
                "{what}: an earlier version wrote it; run its rows again, into another file"
            )),
            what => bad(what),
        })?;
        let edited = results.experiments.iter().find(|record| !record.experiment.is_consistent());
        match edited {
            None => Ok(results),
            Some(record) => Err(bad(format!(
                "the verdict of `{}` does not follow from its figures; run it again",
                record.experiment.id
            ))),
        }
    }

    /// The record of a row.
    pub fn of(&self, id: &str) -> Option<&ExperimentRecord> {
        self.experiments.iter().find(|record| record.experiment.id == id)
    }

    /// Takes a record in place of the last one of its row, and its calibrations' checks in place of the last of
    /// their presets.
    pub fn take(&mut self, mut record: ExperimentRecord) {
        for of_row in &mut record.calibrations {
            let full = of_row.clone();
            of_row.checks.clear();
            if !full.checks.is_empty() {
                self.models.retain(|other| other.preset != full.preset);
                self.models.push(full);
            }
        }
        self.models.sort_by(|a, b| a.preset.cmp(&b.preset));
        self.experiments.retain(|other| other.experiment.id != record.experiment.id);
        self.experiments.push(record);
        self.experiments.sort_by(|a, b| a.experiment.id.cmp(&b.experiment.id));
        // A model that no record rests on any more is no evidence of any.
        let rests = |record: &ExperimentRecord, preset: &str| {
            record.calibrations.iter().any(|of_row| of_row.preset == preset)
        };
        let experiments = &self.experiments;
        self.models.retain(|model| experiments.iter().any(|of| rests(of, &model.preset)));
    }

    /// Finds out whether [`Results::write`] could write to `path`, and leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn check_writable(path: &Path) -> Result<()> {
        // What is there is replaced: a directory cannot be, and a device had better not be.
        if path.exists() && !path.is_file() {
            let source = io::Error::other("exists and is no regular file");
            return Err(Error::io("write", path)(source));
        }
        let beside = beside(path);
        let was_there = beside.exists();
        fs::File::options()
            .create(true)
            .append(true)
            .open(&beside)
            .map_err(Error::io("write", path))?;
        if was_there {
            return Ok(());
        }
        fs::remove_file(&beside).map_err(Error::io("remove", &beside))
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| {
            let path = path.to_path_buf();
            Error::Results { path, what: e.to_string() }
        })?;
        let beside = beside(path);
        fs::write(&beside, text + "\n").map_err(Error::io("write", &beside))?;
        fs::rename(&beside, path).map_err(Error::io("write", path))
    }
}

/// Where the file is written before it takes its name.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

#[cfg(test)]
mod tests {
    use super::super::calibrated::CalibrationCheck;
    use super::super::record::{Check, Experiment, Verdict};
    use super::*;
    use terrace_workload::system::Machine;

    fn record(id: &str, measured: f64) -> ExperimentRecord {
        let checks = vec![Check::at_least("ratio", "2.2", measured, 1.5).order()];
        let experiment = Experiment {
            id: id.into(),
            runs_on: "native".into(),
            verdict: Verdict::of("native", &checks),
            seconds: 0.5,
            checks,
            note: String::new(),
        };
        let sizes = vec![("keys".into(), "10".into())];
        ExperimentRecord {
            experiment,
            full: false,
            machine: Machine::here(),
            commit: None,
            date: None,
            sizes,
            figures: Vec::new(),
            calibrations: Vec::new(),
        }
    }

    #[test]
    fn the_last_record_of_a_row_is_kept_and_read_back() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("results.json");
        let mut results = Results::read(&path).expect("no file is no records");
        assert_eq!(results, Results::default());
        results.take(record("b", 1.0));
        results.take(record("a", 1.0));
        results.take(record("b", 2.0));
        results.write(&path).expect("written");
        let read = Results::read(&path).expect("read");
        assert_eq!(read, results);
        let ids: Vec<_> = read.experiments.iter().map(|r| r.experiment.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        let verdict = |id| read.of(id).map(|record| record.experiment.verdict);
        assert_eq!([verdict("a"), verdict("b")], [Some(Verdict::Miss), Some(Verdict::Pass)]);
        assert_eq!(verdict("c"), None);
    }

    #[test]
    fn checks_of_a_model_stand_once_whichever_rows_rest_on_it() {
        let calibrated = |modelled| Calibrated {
            preset: "cxl".into(),
            summary: format!("cxl: {modelled}"),
            seconds: 0.1,
            checks: vec![CalibrationCheck {
                what: "a load, ns".into(),
                source: "somewhere".into(),
                published: 2.0,
                modelled,
                error: modelled / 2.0 - 1.0,
                verdict: "agrees".into(),
                reason: String::new(),
            }],
        };
        let mut results = Results::default();
        for (id, modelled) in [("a", 2.0), ("b", 2.1)] {
            results.take(ExperimentRecord {
                calibrations: vec![calibrated(modelled)],
                ..record(id, 1.0)
            });
        }
        assert_eq!(results.models, [calibrated(2.1)]);
        let of_row = &results.of("a").expect("taken").calibrations[0];
        assert_eq!((of_row.summary.as_str(), of_row.checks.len()), ("cxl: 2", 0));
    }

    #[test]
    fn an_edited_file_is_refused_with_the_row_and_what_to_do() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("results.json");
        let mut results = Results::default();
        results.take(record("a", 1.0));
        results.write(&path).expect("written");
        let text = fs::read_to_string(&path).expect("text");
        let edited = text.replace("\"miss\"", "\"pass\"");
        assert_ne!(edited, text);
        fs::write(&path, edited).expect("written");
        let error = Results::read(&path).expect_err("refused").to_string();
        assert!(error.contains("`a`") && error.contains("run it again"), "{error}");
        let older = text.replace("\"kind\": \"order\",", "");
        assert_ne!(older, text);
        fs::write(&path, older).expect("written");
        let error = Results::read(&path).expect_err("refused").to_string();
        assert!(error.contains("earlier version") && error.contains("run its rows"), "{error}");
        let other = text
            .replace("\"kind\": \"order\"", "\"kind\": \"size\"")
            .replace("\"miss\"", "\"order\"");
        fs::write(&path, other).expect("written");
        assert!(Results::read(&path).is_err(), "a size alone that fails shows no order");
        fs::write(&path, "{").expect("written");
        assert!(Results::read(&path).is_err());
    }
}
