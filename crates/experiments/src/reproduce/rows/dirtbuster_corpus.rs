//! `dirtbuster-corpus`: mini-programs with the accesses of the paper's applications, each with the paper's verdict (Wu,
//! section 3.7).

use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use std::time::Duration;
use terrace_dirtbuster::corpus::{CASES, Case, CompileError, compile};
use terrace_dirtbuster::{Limits, Report, Request, TracerChoice, bust};

pub(super) const ROW: Row = Row {
    id: "dirtbuster-corpus",
    source: "Wu, section 3.7, tables 3.2 and in the text",
    runs_on: "native, traced",
    must_show: "each labelled mini-program (tensor op, psinv, resid, cffts1, fftz2, rank, compute_rhs, hash PUT, ordered \
                PUT, inbox, read-only, compute-only) gets the paper's verdict",
    run,
};

/// More than any of them has.
const EVENTS: u64 = 200_000_000;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let tracer = match TracerChoice::Any.find() {
        Ok(tracer) => tracer,
        Err(missing) => {
            outcome.note = format!("Not run: {missing}.");
            return Ok(outcome);
        }
    };
    let folder = tempfile::tempdir().map_err(Error::system("make a folder"))?;
    let mut instructions = String::new();
    for case in CASES {
        (run.tell)(case.program);
        let program = match compile(case.program, folder.path()) {
            Ok(program) => program,
            Err(missing @ CompileError::NoCompiler { .. }) => {
                outcome = Outcome { note: format!("Not run: {missing}."), ..Outcome::default() };
                return Ok(outcome);
            }
            Err(error) => return Err(failed(error)),
        };
        let request = Request {
            samples: false,
            past_the_gate: true,
            limits: Limits { events: EVENTS, time: Duration::from_secs(300) },
            ..Request::of(vec![program.display().to_string()])
        };
        let report = bust(&request, &|_| {}).map_err(failed)?;
        outcome.checks.push(check(case, &report));
        instructions = report.instruction_sets.clone();
        if let Some(traced) = &report.traced {
            outcome.size(case.program, format!("{:.1} s traced", traced.seconds));
        }
    }
    outcome.note = format!(
        "The programs were written for this row from the paper's description of its applications; they are not the \
         applications. Thresholds other than the 10 % gate are ours, the same for all. Traced by {tracer}, which \
         showed these instructions: {instructions}. Where the paper prints no kind of pre-store (cffts1, \
         compute_rhs), clean and skip both agree."
    );
    Ok(outcome)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::system("trace a program of the corpus")(io::Error::other(error))
}

/// 1 if the report says all that the paper says.
fn check(case: &Case, report: &Report) -> Check {
    let found = case.judge(report);
    let expected: Vec<String> = case.expected.iter().map(ToString::to_string).collect();
    let what = format!("{} ({}) agrees; found {}", case.program, case.stands_for, found.found);
    Check::at_least(what, &expected.join(", "), f64::from(u8::from(found.agrees)), 1.0).order()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_dirtbuster::{Thresholds, analyze};

    /// A report of another program agrees with none of them.
    #[test]
    fn another_verdict_is_a_miss() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lackey.txt");
        let lines: String =
            (0..1000).map(|i| format!("I  1000,3\n S {:x},8\n", 0x50000 + 8 * i)).collect();
        std::fs::write(&path, lines).expect("written");
        let report = analyze(&path, &[], &Thresholds::default()).expect("a report");
        assert!(CASES.iter().all(|case| !check(case, &report).pass));
    }
}
