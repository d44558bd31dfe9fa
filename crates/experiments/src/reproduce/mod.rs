//! The papers' experiments on what Terrace has built of them, each with a verdict.
//!
//! A *row* is one experiment: a file of `rows/` that says what it must show and measures it. Adding one
//! is that file and a line in [`ALL`]. A row prints what it found and never tunes itself to what it
//! should find; a miss is a result, with its reason in the note.
//!
//! A check is of an *order* or of a *size*, and says which: see [`CheckKind`] and [`Verdict`].
//!
//! # What the figures are of
//! Rows say on what they ran. *native* is this machine's own processor and memory. Where a paper used
//! persistent memory and this machine has none, an *emulated* one serves: DRAM declared to be in the ADR
//! domain, so that every write-back and fence of the real path is executed. Its write-backs end in DRAM,
//! which is faster than what it stands for, so orderings and shapes mean something there and absolute
//! times do not. What needs the slower device runs on a *model* of it, the whole map as it is, in virtual
//! time (`modelled.rs`): the same figures on every computer.
//!
//! Time is the processor time of the thread (or process) measured, unless a row says otherwise: on a
//! machine shared with others a wall clock measures them too.

mod calibrated;
mod causes;
mod coalesced;
mod emulated;
mod error;
mod htap;
mod ledgers;
mod listing_2;
mod lists;
mod measure;
mod modelled;
mod profiled;
mod provenance;
mod record;
mod report;
mod results;
mod rings;
mod rows;
mod test_beds;
mod tiles;

pub use calibrated::{Calibrated, CalibrationCheck};
pub use error::{Error, Result};
pub use record::{Check, CheckKind, Experiment, ExperimentRecord, Verdict};
pub use report::{html, markdown};
pub use results::Results;
pub use rows::{ALL, BEYOND, LAST_DAY, Lines, NOT_BUILT, Sums, victim};
pub use terrace_advise::page::{Figure, FigureKind, Series};

use std::sync::Arc;
use std::time::Instant;
use terrace_advise::page as figure;
use terrace_workload::system::Machine;

/// One experiment.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it is called.
    pub id: &'static str,
    /// Where its claim stands: paper, section, figure or table.
    pub source: &'static str,
    /// What it runs on here, modelled machines by their presets' names, and what is to follow.
    pub runs_on: &'static str,
    /// What must show, in one line.
    pub must_show: &'static str,
    run: fn(&Run<'_>) -> Result<Outcome>,
}

/// How a row is to run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// At the paper's sizes; otherwise so small that it ends within a minute.
    pub full: bool,
    /// Calibrations of the models it rests on, which go into its record: see [`Row::calibrate`].
    pub calibrations: &'a [Arc<Calibrated>],
    /// Receives progress messages.
    pub tell: &'a dyn Fn(&str),
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("full", &self.full).finish_non_exhaustive()
    }
}

impl Run<'_> {
    /// The paper's size, or the small one.
    fn size<T>(&self, full: T, small: T) -> T {
        if self.full { full } else { small }
    }
}

/// What a row found.
#[derive(Clone, Debug, Default)]
struct Outcome {
    checks: Vec<Check>,
    note: String,
    sizes: Vec<(String, String)>,
    figures: Vec<Figure>,
}

impl Outcome {
    /// Notes a size or a setting.
    fn size(&mut self, name: &str, value: impl ToString) {
        self.sizes.push((name.into(), value.to_string()));
    }
}

impl Row {
    /// Runs it and judges what it found.
    ///
    /// # Errors
    /// [`Error`] if it came to no verdict.
    pub fn run(&self, run: &Run<'_>) -> Result<ExperimentRecord> {
        let start = Instant::now();
        let Outcome { checks, note, sizes, figures } = (self.run)(run)?;
        let calibrations = run.calibrations.iter().map(|found| Calibrated::clone(found)).collect();
        let experiment = Experiment {
            id: self.id.into(),
            runs_on: self.runs_on.into(),
            verdict: Verdict::of(self.runs_on, &checks),
            seconds: (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            checks,
            note,
        };
        Ok(ExperimentRecord {
            experiment,
            full: run.full,
            machine: Machine::here(),
            commit: provenance::commit(),
            date: provenance::today(),
            sizes,
            figures,
            calibrations,
        })
    }
}

/// Every id there is to show, once: the rows, and those that are not built.
///
/// ```
/// use terrace_experiments::reproduce::{self, ALL};
///
/// assert!(reproduce::ids().count() >= ALL.len());
/// assert!(reproduce::ids().any(|id| id == "kv-burst"));
/// ```
pub fn ids() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|row| row.id).chain(NOT_BUILT.iter().copied())
}

/// The row of this id.
pub fn named(id: &str) -> Option<&'static Row> {
    ALL.iter().find(|row| row.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_known_by_their_ids() {
        assert!(ALL.iter().all(|row| named(row.id).is_some_and(|found| found.id == row.id)));
        assert!(named("no-such-row").is_none());
    }

    #[test]
    fn an_id_is_named_once_and_has_a_row_or_is_not_built() {
        let mut all: Vec<&str> = ids().collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
        assert!(NOT_BUILT.iter().all(|id| named(id).is_none()));
        assert!(BEYOND.iter().all(|id| named(id).is_some()));
        // What the papers' systems must show, and what is ours beside it.
        assert_eq!(all.len(), 90 + BEYOND.len());
    }

    #[test]
    fn a_row_outside_its_bounds_is_a_miss_and_its_record_says_when_it_ran() {
        fn found(measured: f64) -> Result<Outcome> {
            let checks = vec![Check::at_most("gap, us", "26000", measured, 5.0).order()];
            Ok(Outcome { checks, ..Outcome::default() })
        }
        let verdict = |run: fn(&Run<'_>) -> Result<Outcome>| {
            let row = Row { run, ..ALL[0] };
            let record = row.run(&Run { full: false, calibrations: &[], tell: &|_| {} });
            let record = record.expect("a record");
            assert_eq!(record.date, provenance::today());
            record.experiment.verdict
        };
        assert_eq!(verdict(|_| found(7.0)), Verdict::Miss);
        assert_eq!(verdict(|_| found(5.0)), Verdict::Pass);
        assert_eq!(verdict(|_| Ok(Outcome::default())), Verdict::Skipped);
    }
}
