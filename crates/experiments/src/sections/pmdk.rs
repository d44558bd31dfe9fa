//! The same operations as transactions of PMDK's libpmemobj, where that is installed.
//!
//! The program is compiled when it is needed, so nobody needs the library to build Terrace. Both sides
//! write back by the processor's instruction to a file of the same length in the same folder:
//! libpmemobj is told that the file is persistent memory, as our pools are declared to be.

use super::loads::{Draw, operations};
use super::{PLACES, Settings};
use crate::structures::{HashTable, Structure, Swaps};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

const SOURCE: &str = include_str!("pmdk.c");

/// What libpmemobj was measured at.
#[derive(Clone, Debug)]
pub enum Libpmemobj {
    /// Workload and median sections a second.
    Measured(Vec<(&'static str, f64)>),
    /// It is not there: what is missing, and what would help.
    Missing(String),
}

impl Libpmemobj {
    /// Sections a second on a workload, if that was measured.
    pub fn sections_per_second(&self, workload: &str) -> Option<f64> {
        match self {
            Libpmemobj::Measured(all) => {
                all.iter().find(|(name, _)| *name == workload).map(|(_, speed)| *speed)
            }
            Libpmemobj::Missing(_) => None,
        }
    }
}

struct Peer {
    workload: &'static str,
    draw: Draw,
    /// How the contents change: what they are at first, and with each operation.
    created: fn() -> BTreeMap<u64, u64>,
    toggle: fn(&mut BTreeMap<u64, u64>, u64, u64),
}

fn peer<S: Structure>(workload: &'static str, draw: Draw) -> Peer {
    Peer { workload, draw, created: S::model_created, toggle: S::model_toggle }
}

/// Compiles the program and runs it for each workload it knows.
///
/// # Errors
/// The file system's; what the program says if it fails; and contents that are not what the operations
/// make of them.
pub(super) fn measure(settings: &Settings, mut begin: impl FnMut(&str)) -> io::Result<Libpmemobj> {
    let dir = tempfile::tempdir_in(&settings.dir)?;
    if let Err(missing) = compile(dir.path())? {
        return Ok(Libpmemobj::Missing(missing));
    }
    // A tree and a table of the same keys have the same contents.
    type Table = HashTable<PLACES>;
    let peers = [
        peer::<Table>("RBTree-Rand", Draw::Uniform),
        peer::<Table>("Hash-Rand", Draw::Uniform),
        peer::<Swaps<PLACES>>("SPS", Draw::Uniform),
        peer::<Table>("RBTree-Zipf", Draw::Zipf),
        peer::<Table>("Hash-Zipf", Draw::Zipf),
    ];
    let speeds = peers.iter().map(|peer| {
        begin(peer.workload);
        Ok((peer.workload, run(settings, dir.path(), peer)?))
    });
    speeds.collect::<io::Result<_>>().map(Libpmemobj::Measured)
}

/// Builds the program in `dir`; what is missing if that fails.
fn compile(dir: &Path) -> io::Result<Result<(), String>> {
    let source = dir.join("pmdk.c");
    std::fs::write(&source, SOURCE)?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(dir.join("pmdk")).arg(&source).arg("-lpmemobj");
    let Ok(output) = cc.output() else {
        return Ok(Err("libpmemobj not measured: no C compiler `cc` on the search path".into()));
    };
    if output.status.success() {
        return Ok(Ok(()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().find(|line| line.contains("error") || line.contains("cannot find"));
    Ok(Err(format!(
        "libpmemobj not measured: {}; Debian has it as libpmemobj-dev",
        why.unwrap_or("its program does not compile").trim()
    )))
}

fn run(settings: &Settings, dir: &Path, peer: &Peer) -> io::Result<f64> {
    let file = dir.join("pool");
    let rounds = settings.rounds.max(1);
    let numbers = [settings.pool_bytes, settings.sections, rounds, settings.keys, PLACES];
    let output = Command::new(dir.join("pmdk"))
        .args([peer.workload, &format!("{:?}", peer.draw)])
        .arg(&file)
        .args(numbers.map(|number| number.to_string()))
        .arg(settings.seed.to_string())
        .env("PMEM_IS_PMEM_FORCE", "1")
        .output()?;
    std::fs::remove_file(&file).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let (mut speeds, digest) = parse(peer.workload, &output)?;
    let expected = contents_digest(settings, peer);
    if digest != Some(expected) {
        let what = format!("{}: contents {digest:?} of {expected}", peer.workload);
        return Err(io::Error::other(what));
    }
    speeds.sort_unstable_by(f64::total_cmp);
    speeds
        .get(speeds.len() / 2)
        .copied()
        .ok_or_else(|| io::Error::other("libpmemobj's program timed no round"))
}

/// Speeds of the rounds, and the digest.
fn parse(workload: &str, output: &Output) -> io::Result<(Vec<f64>, Option<u64>)> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("libpmemobj's {workload}: {}", said.trim())));
    }
    let (mut speeds, mut digest) = (Vec::new(), None);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(' ') {
            Some(("round", speed)) => speeds.extend(speed.parse::<f64>()),
            Some(("digest", number)) => digest = number.parse().ok(),
            _ => {}
        }
    }
    Ok((speeds, digest))
}

/// What the program must say of its contents: those that the operations make of a map.
fn contents_digest(settings: &Settings, peer: &Peer) -> u64 {
    let mut contents = (peer.created)();
    if contents.is_empty() {
        for number in 0..settings.keys / 2 {
            (peer.toggle)(&mut contents, super::loads::filled(number, settings.keys), number);
        }
    }
    let drawn = |seed, count| operations(peer.draw, settings.keys, settings.seed + seed, count);
    let timed = settings.sections * settings.rounds.max(1);
    for (key, word) in drawn(0, settings.sections).into_iter().chain(drawn(1, timed)) {
        (peer.toggle)(&mut contents, key, word);
    }
    contents.iter().fold(0, |sum, (key, value)| {
        let entry = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value;
        entry.wrapping_add(sum)
    })
}
