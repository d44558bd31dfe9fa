//! The step `crashes`: crash states of every persistent structure, and every ordering point left out in turn. No other
//! step draws them again. The binary is the one that tests use: where few states are drawn, building the optimised one
//! would take longer than it saves.

use crate::run::{binary, optimised_binary};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Seeds of further scripts of `map-disk`, which is explored to the end.
const SEEDS: [&str; 3] = ["2", "3", "4"];

pub fn main(root: &Path, is_long: bool) -> Result<(), String> {
    let (many, few) = if is_long { ("1700000", "500000") } else { ("10000", "2000") };
    let in_eadr = if is_long { "100000" } else { "1000" };
    let binary = &if is_long { optimised_binary(root) } else { binary(root) }?;
    let (all, on_disk) = (names(binary, "adr")?, names(binary, "page-cache")?);
    let others: Vec<_> = all.iter().filter(|name| !MAPS.contains(&name.as_str())).collect();
    // A disk has the same sectors in either domain.
    let in_lines: Vec<_> = all.iter().filter(|name| !on_disk.contains(name)).collect();
    each(binary, &MAPS, &["--states", many])?;
    for seed in SEEDS {
        each(binary, &["map-disk"], &["--states", many, "--seed", seed])?;
    }
    each(binary, &MAPS, &["--controls", "--states", few])?;
    each(binary, &others, &["--all", "--states", few])?;
    each(binary, &on_disk, &["--domain", "page-cache", "--states", few])?;
    each(binary, &in_lines, &["--domain", "eadr", "--states", in_eadr])
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

/// Runs each test in a process of its own, as many at a time as there are processors. Not in threads: what a seed leads
/// to is repeatable only as long as nobody else in the process keeps what is to be freed.
fn each<S: AsRef<str> + Sync>(
    binary: &Path,
    tests: &[S],
    arguments: &[&str],
) -> Result<(), String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(tests.len());
    println!("    {} crash tests, {processors} at a time: {}", tests.len(), arguments.join(" "));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            println!("    {}", test.as_ref());
            let output = crash_test(binary).arg(test.as_ref()).args(arguments).output();
            let what = match &output {
                Ok(output) if output.status.success() => None,
                Ok(output) => Some(output.status.to_string()),
                Err(refused) => Some(refused.to_string()),
            };
            let mut failed = failed.lock().expect("no panic");
            // Whole, under the lock: what two tests say is not mixed.
            if let Ok(output) = output {
                print!("{}", String::from_utf8_lossy(&output.stdout));
                eprint!("{}", String::from_utf8_lossy(&output.stderr));
            }
            failed.extend(what.map(|what| format!("{}: {what}", test.as_ref())));
        }
    };
    std::thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(work))));
    match failed.into_inner().expect("no panic") {
        failed if failed.is_empty() => Ok(()),
        failed => Err(format!("`crash-test {}`: {}", arguments.join(" "), failed.join("; "))),
    }
}
