//! The step `crashes`: crash states of every persistent structure, drawn by the optimised binary, and every ordering
//! point left out in turn. States drawn per second are what makes it worth while, so no other step draws them again.

use crate::run::binary;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What whole maps consist of: most states are theirs.
const MAPS: [&str; 11] = [
    "map-logs",
    "map-slabs",
    "map-logs-threads",
    "map-slabs-threads",
    "map-logs-batches",
    "map-collector",
    "map-collector-disk",
    "map-disk",
    "map-mirrored-threads",
    "map-slabs-deferred",
    "kept-index",
];

pub fn main(root: &Path, is_long: bool) -> Result<(), String> {
    let (many, few) = if is_long { ("1700000", "500000") } else { ("92000", "6000") };
    let in_eadr = if is_long { "100000" } else { "2000" };
    let binary = &binary(root)?;
    let (all, on_disk) = (names(binary, "adr")?, names(binary, "page-cache")?);
    let others: Vec<_> = all.iter().filter(|name| !MAPS.contains(&name.as_str())).collect();
    // A disk has the same sectors in either domain.
    let in_lines: Vec<_> = all.iter().filter(|name| !on_disk.contains(name)).collect();
    dealt(binary, &MAPS, &["--states", many])?;
    dealt(binary, &MAPS, &["--controls", "--states", few])?;
    dealt(binary, &others, &["--all", "--states", few])?;
    dealt(binary, &on_disk, &["--domain", "page-cache", "--states", few])?;
    dealt(binary, &in_lines, &["--domain", "eadr", "--states", in_eadr])
}

fn crash_test(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg("crash-test");
    command
}

/// The tests that there are in this domain.
fn names(binary: &Path, domain: &str) -> Result<Vec<String>, String> {
    let mut list = crash_test(binary);
    let listed = list.args(["--list", "--domain", domain]).stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|e| format!("crash tests could not be listed: {e}"))?;
    if !listed.status.success() {
        return Err(format!("`crash-test --list` ended with {}", listed.status));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    Ok(listed.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect())
}

/// Runs the tests in as many processes as there are processors, each with every so many-th. Not in threads: what a
/// seed leads to is repeatable only as long as nobody else in the process keeps what is to be freed.
fn dealt<S: AsRef<str>>(binary: &Path, tests: &[S], arguments: &[&str]) -> Result<(), String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(tests.len());
    println!("    {} crash tests in {processors} processes: {}", tests.len(), arguments.join(" "));
    let start = |first: usize| -> Result<Child, String> {
        let hand = tests.iter().skip(first).step_by(processors).map(AsRef::as_ref);
        let started = crash_test(binary).args(hand).args(arguments).spawn();
        started.map_err(|e| format!("crash tests could not be started: {e}"))
    };
    let started: Vec<Child> = (0..processors).map(start).collect::<Result<_, _>>()?;
    // All are waited for before one that failed is told of.
    let ended: Vec<_> = started.into_iter().map(|mut child| child.wait()).collect();
    for status in ended {
        let status = status.map_err(|e| format!("crash tests could not be waited for: {e}"))?;
        if !status.success() {
            return Err(format!("`crash-test {}` ended with {status}", arguments.join(" ")));
        }
    }
    Ok(())
}
