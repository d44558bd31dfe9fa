//! `terrace doctor`: what this machine offers, what is missing, and what would enable it.
//!
//! Every check reads what the system tells and comes to one line; nothing is changed or asks for root. One
//! thing the system does not tell and a short try does ([`try_out`]). A check that could not be made
//! says so; it never passes for an absence.

mod engines;
mod memories;
mod system;

#[cfg(test)]
mod tests;

use serde::Serialize;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_memory::Topology;
use terrace_memory::prestore::{self, Verdict};
use terrace_memory::topology::Roots;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// It is there and can be used.
    Found,
    /// It is there, and something keeps it from being used well.
    Limited,
    /// It is not there.
    Missing,
    /// The system does not tell.
    Unknown,
}

impl fmt::Display for CheckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CheckState::Found => "found",
            CheckState::Limited => "limited",
            CheckState::Missing => "missing",
            CheckState::Unknown => "unknown",
        })
    }
}

/// One line of the doctor's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub subject: &'static str,
    /// What it came to.
    pub state: CheckState,
    /// The finding, in words.
    pub what: String,
    /// The command or setting that would enable it, or better it.
    pub enable: Option<String>,
}

impl Finding {
    fn found(subject: &'static str, what: impl Into<String>) -> Finding {
        Finding { subject, state: CheckState::Found, what: what.into(), enable: None }
    }

    fn limited(
        subject: &'static str,
        what: impl Into<String>,
        enable: impl Into<String>,
    ) -> Finding {
        let (what, enable) = (what.into(), Some(enable.into()));
        Finding { subject, state: CheckState::Limited, what, enable }
    }

    fn missing(
        subject: &'static str,
        what: impl Into<String>,
        enable: impl Into<String>,
    ) -> Finding {
        let (what, enable) = (what.into(), Some(enable.into()));
        Finding { subject, state: CheckState::Missing, what, enable }
    }

    fn unknown(subject: &'static str, what: impl Into<String>) -> Finding {
        Finding { subject, state: CheckState::Unknown, what: what.into(), enable: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<18} {}", self.state, self.subject, self.what)?;
        match &self.enable {
            Some(enable) => write!(f, "\n{:<27} -> {enable}", ""),
            None => Ok(()),
        }
    }
}

/// Where the system's files are.
#[derive(Debug)]
struct System<'a> {
    topology: &'a Topology,
    roots: &'a Roots,
}

impl System<'_> {
    fn sys(&self, path: &str) -> PathBuf {
        self.roots.sys.join(path)
    }

    fn proc(&self, path: &str) -> PathBuf {
        self.roots.proc.join(path)
    }
}

/// Examines the machine of a topology, whose other files are below `roots`.
pub fn examine(topology: &Topology, roots: &Roots) -> Vec<Finding> {
    let place = System { topology, roots };
    let mut findings = memories::examine(&place);
    findings.extend(engines::examine(&place));
    findings.extend(system::examine(&place));
    findings
}

/// What only a try can tell of the processor that this runs on: some milliseconds, nothing changed.
pub fn try_out() -> Vec<Finding> {
    const SUBJECT: &str = "cleaned lines";
    let found = prestore::retention();
    let times = format!(
        "{:.1} ns to read one again, {:.1} cached, {:.1} evicted",
        found.cleaned_ns, found.cached_ns, found.evicted_ns
    );
    vec![match found.verdict {
        Verdict::Keeps => Finding::found(SUBJECT, format!("stay where they were: {times}")),
        Verdict::KeepsFurther => {
            Finding::found(SUBJECT, format!("stay in a further cache: {times}"))
        }
        Verdict::Evicts => Finding::limited(
            SUBJECT,
            format!("leave the caches: {times}"),
            "clean only what is not read again soon",
        ),
        Verdict::Absent => Finding::missing(
            SUBJECT,
            "no instruction cleans without evicting; cleaning does nothing here",
            "a processor with clwb",
        ),
        Verdict::Unclear => Finding::unknown(SUBJECT, times),
    }]
}

/// A small file's text, without the line's end; `None` if it is not there or may not be read.
fn line_of(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_string())
}

/// The same, which tells a file that is not there (`None`) from one that cannot be read.
fn text_of(path: &Path) -> Result<Option<String>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Names in a folder, rising; none if it is not there, and which one it is if it cannot be read.
fn names_in(path: &Path) -> Result<Vec<String>, String> {
    let unread = |error: std::io::Error| format!("{}: {error}", path.display());
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unread)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(unread)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}
