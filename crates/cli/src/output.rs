//! What every command shares: how it fails and how it prints.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use terrace::memory::Topology;
use terrace::memory::profile::ProfiledMachine;
use terrace_advise::machine::test_bed::Here;
use terrace_advise::probe;

/// Why a command ends without having done what it was asked.
pub enum Failure {
    /// It was not understood: exit code 2.
    Usage(String),
    /// It was not done: exit code 1.
    Failed(String),
    /// Exit code 1, and everything has been said.
    Quiet,
    /// Whoever reads our output has gone.
    ClosedPipe,
}

/// How a command ends.
pub type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure in the words of `what`.
    pub fn new(what: impl Display) -> Self {
        Self::Failed(what.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::new(error),
        }
    }
}

impl From<terrace::ConfigError> for Failure {
    fn from(error: terrace::ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Prints one JSON document and a line end.
pub fn print_json(value: &impl serde::Serialize) -> Outcome {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Prints lines of text; a closed pipe is not an error worth words.
pub fn print(text: impl Display) -> Outcome {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// A table with columns as wide as their widest cell; the first column is text, the rest numbers.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(c, (cell, width))| match c {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A rate in the unit that keeps three digits: `812`, `81.2k`, `8.12M`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e7 => format!("{:.1}M", r / 1e6),
        r if r >= 1e6 => format!("{:.2}M", r / 1e6),
        r if r >= 1e4 => format!("{:.0}k", r / 1e3),
        r if r >= 1e3 => format!("{:.1}k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

/// Says something beside the output, on standard error. Whoever reads it may have gone, which ends nothing.
pub fn say(what: impl Display) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// Warns once where a figure would be of no use.
pub fn warn_if_unoptimised() {
    if cfg!(debug_assertions) {
        say("warning: this is a debug build; measure a release build");
    }
}

/// Warns where the profile at `path`, of this `machine`, is taken for one of the machine that it is used on.
pub fn warn_if_elsewhere(path: &Path, machine: &ProfiledMachine) {
    let here = Topology::read().map_err(io::Error::other).and_then(Here::new);
    let (profile, way) = (path.display(), "`terrace probe --out FILE` measures this one");
    match here.map(|here| machine.differs_from(&probe::machine_of(&here))) {
        Ok(None) => {}
        Ok(Some(differs)) => say(format_args!("warning: {profile} is {differs}; {way}")),
        Err(error) => {
            say(format_args!("warning: {profile} may be of another machine: {error}; {way}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_rates() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "7".into()]];
        assert_eq!(table(&rows), "a     10\nlong   7");
        let rates = [812.0, 8_120.0, 81_200.0, 8_120_000.0, 81_200_000.0].map(rate);
        assert_eq!(rates, ["812", "8.1k", "81k", "8.12M", "81.2M"]);
    }
}
