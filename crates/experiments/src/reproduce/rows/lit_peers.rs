//! `lit-peers`: the lookup table beside skip lists and trees, in one run (Miller, sections 6.4 to 6.6).
//!
//! The comparison is a program of the peers' workspace, so that the rivals are not compiled with Terrace.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const ROW: Row = Row {
    id: "lit-peers",
    source: "Miller, sections 6.4 to 6.6, figures 6.5, 6.6, 6.7, 6.9",
    runs_on: "native (four sockets: not built)",
    must_show: "beside skip lists and trees in one run: reads ahead of the skip list at every key range, the lead in \
                updates grows with the key range, ahead under skew",
    run,
};

const PROGRAM: &str = "terrace-peers-ordered";
const KEYS: [usize; 3] = [10_000, 100_000, 1_000_000];
const CHANGES: &str = "50 insert, 50 remove";
const MIXED: &str = "80 get, 10 insert, 10 remove";
const SKEWED: &str = "80 get, 10 insert, 10 remove, zipf 0.8";
const READS: &str = "read uniform";

/// A line of the program.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    map: String,
    keys: usize,
    what: String,
    threads: usize,
    value: f64,
}

/// All that it measured.
struct Lines(Vec<Line>);

impl Lines {
    fn of(&self, map: &str, keys: usize, what: &str, threads: usize) -> f64 {
        let is_it =
            |line: &&Line| line.map == map && (line.keys, line.threads) == (keys, threads) && line.what == what;
        self.0.iter().find(is_it).map_or(f64::NAN, |line| line.value)
    }

    /// The table's figure over another's.
    fn ratio(&self, to: &str, keys: usize, what: &str, threads: usize) -> f64 {
        self.of("lit", keys, what, threads) / self.of(to, keys, what, threads)
    }

    /// The best of the others, and the table's figure over its own.
    fn best(&self, keys: usize, what: &str, threads: usize) -> (&str, f64) {
        let others = self.0.iter().filter(|line| line.map != "lit" && line.what == what);
        let others = others.filter(|line| (line.keys, line.threads) == (keys, threads));
        let best = others.max_by(|a, b| a.value.total_cmp(&b.value));
        best.map_or(("none", f64::NAN), |line| (&line.map, self.of("lit", keys, what, threads) / line.value))
    }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let Some(program) = program() else {
        outcome.note = format!(
            "skipped: peers not built. In peers/ of a checkout: cargo build --release -p {PROGRAM}"
        );
        return Ok(outcome);
    };
    let lines = measured(&program, run)?;
    outcome.checks = checks(&lines);
    let figure = Figure::new("Point reads by number of keys, 1 thread", "keys", "Mops/s", FigureKind::Bars);
    let mut figure = figure.over(KEYS);
    for map in maps(&lines) {
        figure = figure.with(map, KEYS.map(|keys| lines.of(map, keys, READS, 1) / 1e6));
    }
    outcome.figures.push(figure);
    outcome.note = note(&lines);
    Ok(outcome)
}

fn maps(lines: &Lines) -> Vec<&str> {
    let mut maps: Vec<&str> = Vec::new();
    for line in &lines.0 {
        if !maps.contains(&line.map.as_str()) {
            maps.push(&line.map);
        }
    }
    maps
}

/// Where the program is, if it was built.
fn program() -> Option<PathBuf> {
    let current = std::env::current_dir().ok();
    let binary = std::env::current_exe().ok();
    let starts = [current.as_deref(), binary.as_deref()];
    let folders = starts.into_iter().flatten().flat_map(Path::ancestors);
    let mut built = folders.map(|folder| folder.join("peers/target"));
    let elsewhere = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let release = |target: PathBuf| target.join("release").join(PROGRAM);
    let found = built.find(|target| release(target.clone()).is_file());
    found.or(elsewhere).map(release).filter(|program| program.is_file())
}

fn measured(program: &Path, run: &Run<'_>) -> Result<Lines> {
    (run.tell)("six maps with 10 k, 100 k and 1 M keys");
    let mut command = Command::new(program);
    if !run.full {
        command.arg("--quick");
    }
    let output = command.arg("--narrow").output().map_err(Error::system("start the comparison"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Line> = told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !output.status.success() || lines.is_empty() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::system("compare maps")(std::io::Error::other(error)));
    }
    Ok(Lines(lines))
}

fn checks(lines: &Lines) -> Vec<Check> {
    let list = |keys, what, threads| lines.ratio("skiplist", keys, what, threads);
    let mut checks = Vec::new();
    for (keys, paper) in KEYS.into_iter().zip(["1.3 to 1.5", "ahead", "1.04 to 1.21"]) {
        let what = format!("reads, {keys} keys: over the skip list");
        checks.push(Check::at_least(what, paper, list(keys, READS, 1), 1.0).order());
    }
    let [small, _, large] = KEYS;
    let growth = list(large, CHANGES, 2) / list(small, CHANGES, 2);
    let what = "insertions and removals, 2 threads: lead over the skip list with 1 M keys over that with 10 k";
    checks.push(Check::at_least(what, "grows: below 1, then 1.9 with 48 threads", growth, 1.0).order());
    let what = "insertions and removals, 2 threads, 1 M keys: over the skip list";
    checks.push(Check::at_least(what, "1.2 to 1.9 with 48 threads", list(large, CHANGES, 2), 1.0).order());
    let what = "80 % reads, 2 threads, 1 M keys: over the skip list";
    checks.push(Check::at_least(what, "1.8 to 2.9 with 192 threads", list(large, MIXED, 2), 1.0).order());
    let what = "80 % reads, Zipf 0.8, 2 threads, 1 M keys: over the skip list";
    checks.push(Check::at_least(what, "2.8 to 4.4 with 192 threads", list(large, SKEWED, 2), 1.0).order());
    let (_, best) = lines.best(large, READS, 1);
    checks.push(Check::at_least("reads, 1 M keys: over the best of the others", "ours: ahead", best, 1.0).order());
    checks
}

/// Where the table is ahead and where it is not.
fn note(lines: &Lines) -> String {
    let mut whats: Vec<(&str, usize)> = Vec::new();
    for line in lines.0.iter().filter(|line| line.what != "bytes") {
        if !whats.contains(&(&line.what, line.threads)) {
            whats.push((&line.what, line.threads));
        }
    }
    let large = KEYS[2];
    let (mut ahead, mut behind) = (Vec::new(), Vec::new());
    for (what, threads) in whats {
        let (best, ratio) = lines.best(large, what, threads);
        let told = format!("{what}, {threads} threads: {ratio:.2} ({best})");
        if ratio >= 1.0 { ahead.push(told) } else { behind.push(told) }
    }
    let bytes: Vec<String> = maps(lines)
        .into_iter()
        .map(|map| format!("{map} {:.0}", lines.of(map, large, "bytes", 1)))
        .collect();
    format!(
        "Keys of 8 bytes in random order; operations a second of processor time. The skip list is crossbeam's, which \
         has no versions: its ranges are not of one moment, its values change in place; the paper's are versioned. \
         With 1 M keys the table, over the best of the others, is ahead in: {}. It is behind in: {}. Bytes a key: {}. \
         The paper's leads are those of four sockets, where lines move between them; a model of that is not built.",
        ahead.join("; "),
        behind.join("; "),
        bytes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lit: f64) -> Lines {
        let mut all = Vec::new();
        for (map, factor) in [("lit", lit), ("skiplist", 1.0), ("congee", 1.5)] {
            for keys in KEYS {
                for (what, threads) in [(READS, 1), (CHANGES, 2), (MIXED, 2), (SKEWED, 2), ("bytes", 1)] {
                    let value = factor * if map == "lit" { (keys as f64).ln() } else { 1.0 };
                    all.push(Line { map: map.into(), keys, what: what.into(), threads, value });
                }
            }
        }
        Lines(all)
    }

    #[test]
    fn checks_tell_a_table_that_is_ahead_from_one_that_is_not() {
        assert!(checks(&lines(1.0)).iter().all(|check| check.pass));
        let slow = checks(&lines(0.05));
        assert_eq!(slow.iter().filter(|check| check.pass).count(), 1, "it grows all the same: {slow:?}");
        assert!(note(&lines(0.05)).contains("behind in: read uniform, 1 threads: 0.46 (congee)"));
        assert!(checks(&Lines(Vec::new())).iter().all(|check| !check.pass));
    }
}
