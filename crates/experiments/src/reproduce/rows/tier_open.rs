//! `tier-open`: how long a map takes to open, by its size: after it was closed, and after its process was killed while
//! it wrote.
//!
//! The process that is killed is this program, started again (`terrace reproduce victim`). Before each opening the page
//! cache is dropped where that is permitted; a map reads and writes past it anyway.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::Samples;
use crate::structures::Random;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use terrace_store::{Map, MapOptions, RecoveryProcedure, WhenFull};

pub(super) const ROW: Row = Row {
    id: "tier-open",
    source: "(ours)",
    runs_on: "native",
    must_show: "10 million items of 100 B: opened after a clean close in <= 0.5 s, and after kill -9 under load in <= 1.5 s; \
                the time grows with the index, not with the values",
    run,
};

/// Items, and bytes of each value. The first two differ in their values alone.
const SIZES: [(u64, usize); 4] =
    [(1_000_000, 100), (1_000_000, 1000), (10_000_000, 100), (100_000_000, 100)];
const JUDGED: (u64, usize) = (10_000_000, 100);
const BUDGET_BYTES: u64 = 4 << 30;
const REPEATS: usize = 3;
/// Keys that are looked up after each opening.
const LOOKED_UP: u64 = 1000;
/// How long the process writes before it is killed: some checkpoints long.
const KILLED_AFTER: Duration = Duration::from_millis(3700);

/// Seconds of one size.
struct Opened {
    keys: u64,
    value_bytes: usize,
    closed: Samples,
    killed: Samples,
    /// All logs read, as without a saved index.
    whole: f64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let sizes = if run.full { &SIZES[..] } else { &SIZES[..3] };
    let mut outcome = Outcome::default();
    outcome.size("memory budget", format!("{} MiB", BUDGET_BYTES >> 20));
    outcome.size("written before the kill", format!("{KILLED_AFTER:?} at full speed, keys at random"));
    let mut found = Vec::new();
    for (keys, value_bytes) in sizes {
        (run.tell)(&format!("{keys} items of {value_bytes} B"));
        found.push(opened(*keys, *value_bytes)?);
    }
    let of = |size: (u64, usize)| {
        let is_it = |found: &&Opened| (found.keys, found.value_bytes) == size;
        found.iter().find(is_it).expect("it was measured")
    };
    let (judged, short, long) = (of(JUDGED), of(SIZES[0]), of(SIZES[1]));
    outcome.checks.extend([
        Check::at_most("10 million items of 100 B, closed: seconds", "(ours)", judged.closed.median(), 0.5),
        Check::at_most("10 million items of 100 B, killed: seconds", "(ours)", judged.killed.median(), 1.5),
        Check::at_most(
            "closed: values of 1000 B over values of 100 B, 1 million of each",
            "(ours)",
            long.closed.median() / short.closed.median(),
            1.5,
        )
        .order(),
        Check::at_least(
            "closed: 10 million items over 1 million, of 100 B each",
            "grows",
            judged.closed.median() / short.closed.median(),
            1.0,
        )
        .order(),
    ]);
    let name = |found: &Opened| format!("{} x {} B", found.keys, found.value_bytes);
    let seconds = |pick: &dyn Fn(&Opened) -> f64| found.iter().map(pick).collect::<Vec<_>>();
    outcome.figures.push(
        Figure::new("Time to open", "items", "s", FigureKind::Bars)
            .over(found.iter().map(name))
            .with("closed", seconds(&|found| found.closed.median()))
            .with("killed", seconds(&|found| found.killed.median()))
            .with("all logs read", seconds(&|found| found.whole)),
    );
    let told = |found: &Opened| {
        format!(
            "{}: closed {:.3} s (spread {:.2}), killed {:.3} s (spread {:.2}), with all logs read {:.3} s",
            name(found),
            found.closed.median(),
            found.closed.spread(),
            found.killed.median(),
            found.killed.spread(),
            found.whole
        )
    };
    outcome.note = format!(
        "Medians of {REPEATS}. {}. After a kill the redo log is replayed as well.",
        found.iter().map(told).collect::<Vec<_>>().join("; ")
    );
    Ok(outcome)
}

fn key_of(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn options() -> MapOptions {
    MapOptions { memory_budget_bytes: BUDGET_BYTES, ..MapOptions::default() }
}

fn value_of(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn opened(keys: u64, value_bytes: usize) -> Result<Opened> {
    let dir = tempfile::tempdir().map_err(Error::system("make a directory for the map"))?;
    let map = Map::open(dir.path(), options())?;
    let mut session = map.session();
    for number in 0..keys {
        session.put(&key_of(number), &value_of(number, value_bytes), None)?;
    }
    session.commit()?;
    drop(session);
    map.close()?;
    drop(map);
    let mut found = Opened {
        keys,
        value_bytes,
        closed: Samples::default(),
        killed: Samples::default(),
        whole: 0.0,
    };
    for _ in 0..REPEATS {
        found.closed.push(opens(dir.path(), &found, options(), RecoveryProcedure::SavedIndex)?);
    }
    for _ in 0..REPEATS {
        kill(dir.path(), keys, value_bytes)?;
        found.killed.push(opens(dir.path(), &found, options(), RecoveryProcedure::SavedIndex)?);
    }
    // Where values may not leave memory, all of them are read.
    let whole = MapOptions {
        when_full: WhenFull::Refuse,
        memory_budget_bytes: 4 * BUDGET_BYTES,
        ..options()
    };
    found.whole = opens(dir.path(), &found, whole, RecoveryProcedure::ReadLogs)?;
    Ok(found)
}

/// Seconds that an opening takes, after which the map holds what it did, and is closed.
fn opens(dir: &Path, found: &Opened, options: MapOptions, by: RecoveryProcedure) -> Result<f64> {
    // Only root may.
    let _kept = std::fs::write("/proc/sys/vm/drop_caches", "1");
    let start = Instant::now();
    let map = Map::open(dir, options)?;
    let seconds = start.elapsed().as_secs_f64();
    let report = map.recovery();
    assert_eq!(report.procedure, by, "invariant: {:?}", report.unfit);
    assert_eq!(map.len(), found.keys, "invariant: every key is there");
    let mut random = Random(found.keys);
    for _ in 0..LOOKED_UP {
        let number = random.below(found.keys);
        let value = map.get(&key_of(number))?;
        assert_eq!(value, Some(value_of(number, found.value_bytes)), "invariant: with its value");
    }
    map.close()?;
    Ok(seconds)
}

/// Starts a process that writes to the map, and kills it.
fn kill(dir: &Path, keys: u64, value_bytes: usize) -> Result<()> {
    let program = std::env::current_exe().map_err(Error::system("find this program"))?;
    let mut child = Command::new(program)
        .args(["reproduce", "victim"])
        .arg(dir)
        .args([keys.to_string(), value_bytes.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::system("start a process that is to be killed"))?;
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let is_ready = lines.next().is_some_and(|line| line.is_ok_and(|line| line == READY));
    std::thread::sleep(KILLED_AFTER);
    child.kill().map_err(Error::system("kill a process"))?;
    child.wait().map_err(Error::system("wait for a process"))?;
    assert!(is_ready, "invariant: the process opens the map");
    Ok(())
}

const READY: &str = "ready";

/// What the process does that is killed: it writes values again, of keys at random, without end.
///
/// # Errors
/// Those of the map.
pub fn victim(dir: &Path, keys: u64, value_bytes: usize) -> Result<()> {
    let map = Map::open(dir, options())?;
    println!("{READY}");
    let (mut random, mut session) = (Random(u64::from(std::process::id())), map.session());
    loop {
        let number = random.below(keys.max(1));
        session.put(&key_of(number), &value_of(number, value_bytes), None)?;
    }
}
