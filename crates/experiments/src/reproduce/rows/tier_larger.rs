//! `tier-larger`: a map whose data is five times its memory, on the disk at hand.
//!
//! What the disk gives is measured by `fio` on the map's own file, in turn with the map, with as many reads under way.
//! Reads of the map are counted where they reach the disk: what was found in memory does not count. Against RocksDB
//! with the same memory, YCSB's workloads: `terrace bench peers -- run --larger --engines terrace,rocksdb`.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::Samples;
use crate::structures::Random;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_store::{Map, MapOptions, Session};
use terrace_workload::system::{Memory, reset_peak_memory};

pub(super) const ROW: Row = Row {
    id: "tier-larger",
    source: "F2, PVLDB 18(12), 2025",
    runs_on: "native",
    must_show: "uniform reads >= 80 % of what fio gets with the same queue depth; a hot set that fits within 10 % of \
                all in memory; p99 of resident reads at most doubled by cold ones; memory within budget + 5 % + 32 MiB",
    run,
};

const VALUE_BYTES: u64 = 1024;
const DATA_OVER_MEMORY: u64 = 5;
/// Reads under way, as a map has them for one key and for many, and keys that are looked up together for that.
const DEPTHS: [(usize, usize); 2] = [(1, 1), (64, 1024)];
const REPEATS: usize = 3;
/// One key in so many is in the hot set.
const HOT: u64 = 20;
/// Beside the budget and a twentieth of it: the program itself, and what threads have.
const FIXED_BYTES: u64 = 32 << 20;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let budget = run.size(256u64, 64) << 20;
    let time = Duration::from_secs(run.size(5, 1));
    let keys = DATA_OVER_MEMORY * budget / VALUE_BYTES;
    let mut outcome = Outcome::default();
    outcome.size("memory budget", format!("{} MiB", budget >> 20));
    outcome.size("data", format!("{keys} values of {VALUE_BYTES} B, {DATA_OVER_MEMORY} times the budget"));

    (run.tell)("filling");
    let dir = directory()?;
    let before = Memory::now().resident_bytes;
    reset_peak_memory();
    let map = filled(dir.path(), keys, budget)?;
    (run.tell)("uniform reads");
    let disk = against_disk(&map, keys, time)?;
    let hot = hot_set(keys);
    (run.tell)("a hot set that fits");
    let warm = hot_reads(&map, &hot, time)?;
    // Before this program keeps a time for each read.
    let taken = Memory::now().peak_bytes.saturating_sub(before) as f64;
    (run.tell)("a hot set while others read what is cold");
    let [alone, beside] = p99s(&map, &hot, keys, time)?;
    let spilled = map.stats().away;
    drop(map);

    (run.tell)("the same, all in memory");
    let dir = directory()?;
    let all_in_memory = filled(dir.path(), keys, 4 * DATA_OVER_MEMORY * budget)?;
    let resident = hot_reads(&all_in_memory, &hot, time)?;

    for ((depth, _), found) in DEPTHS.iter().zip(&disk) {
        let what = format!("uniform reads from the disk over fio's, {depth} under way");
        outcome.checks.extend(found.fio.map(|fio| Check::at_least(what, "(ours)", found.map / fio, 0.8)));
    }
    outcome.checks.extend([
        Check::at_least("hot set in a map larger than memory over all in memory", "(ours)", warm / resident, 0.9),
        Check::at_most("p99 of reads of a hot set, cold ones beside over alone", "(ours)", beside / alone, 2.0),
        Check::at_most(
            "peak of resident memory over budget + 5 % + 32 MiB",
            "(ours)",
            taken / (budget as f64 * 1.05 + FIXED_BYTES as f64),
            1.0,
        ),
    ]);
    let of = |pick: &dyn Fn(&OfDisk) -> f64| disk.iter().map(pick).collect::<Vec<_>>();
    let figure = Figure::new("Uniform reads from the disk", "under way", "reads/s", FigureKind::Bars)
        .over(DEPTHS.map(|(depth, _)| depth.to_string()))
        .with("the map", of(&|found| found.map));
    outcome.figures.push(match disk.iter().all(|found| found.fio.is_some()) {
        true => figure.with("fio", of(&|found| found.fio.unwrap_or_default())),
        false => figure,
    });
    outcome.note = format!(
        "One thread, medians of {REPEATS}. Reads of the disk: {}. The hot set, one key in {HOT}: {warm:.0} reads/s, \
         {resident:.0} with all in memory; p99 {alone:.2} us alone, {beside:.2} us beside cold reads. {} logs of 4 MiB \
         had left memory. Most resident beyond the start: {:.0} MiB.",
        disk.iter().map(OfDisk::told).collect::<Vec<_>>().join("; "),
        spilled.logs,
        taken / (1 << 20) as f64,
    );
    Ok(outcome)
}

fn directory() -> Result<tempfile::TempDir> {
    tempfile::tempdir().map_err(Error::system("make a directory for the map"))
}

fn key_of(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn filled(dir: &Path, keys: u64, budget: u64) -> Result<Map> {
    let map = Map::open(dir, MapOptions { memory_budget_bytes: budget, ..MapOptions::default() })?;
    let mut value = vec![0; VALUE_BYTES as usize];
    let mut session = map.session();
    for number in 0..keys {
        value[..8].copy_from_slice(&key_of(number));
        session.put(&key_of(number), &value, None)?;
    }
    session.commit()?;
    map.sync()?;
    Ok(map)
}

/// Reads a second that reached the disk.
struct OfDisk {
    depth: usize,
    map: f64,
    spread: f64,
    /// Of `fio`, with its command; none where it is not installed.
    fio: Option<f64>,
}

impl OfDisk {
    fn told(&self) -> String {
        let Self { depth, map, spread, fio } = self;
        match fio {
            Some(fio) => format!("{map:.0}/s of {fio:.0}/s with {depth} under way (spread {spread:.2})"),
            None => format!("{map:.0}/s with {depth} under way (fio is not installed: apt-get install fio)"),
        }
    }
}

fn against_disk(map: &Map, keys: u64, time: Duration) -> Result<Vec<OfDisk>> {
    let of_depth = |(depth, keys_at_once): &(usize, usize)| {
        let (mut of_map, mut of_fio) = (Samples::default(), Vec::new());
        for repeat in 0..REPEATS {
            of_fio.extend(fio(map.medium().path(), *depth, time)?);
            of_map.push(uniform_reads(map, keys, *keys_at_once, time, repeat as u64)?);
        }
        let fio = (!of_fio.is_empty()).then(|| of_fio.into_iter().collect::<Samples>().median());
        Ok(OfDisk { depth: *depth, map: of_map.median(), spread: of_map.spread(), fio })
    };
    DEPTHS.iter().map(of_depth).collect()
}

/// Reads of the disk a second while keys are looked up at random, so many as one.
fn uniform_reads(map: &Map, keys: u64, at_once: usize, time: Duration, seed: u64) -> Result<f64> {
    let (mut random, mut session) = (Random(seed + 1), map.session());
    let (before, start) = (map.stats().away.fetched, Instant::now());
    while start.elapsed() < time {
        let wanted: Vec<[u8; 8]> = (0..at_once).map(|_| key_of(random.below(keys))).collect();
        let wanted: Vec<&[u8]> = wanted.iter().map(|key| &key[..]).collect();
        let mut right = 0;
        session.multi_get(&wanted, |number, value| {
            right += usize::from(value.is_some_and(|value| &value.bytes[..8] == wanted[number]));
        })?;
        assert_eq!(right, at_once, "invariant: every key has its value");
    }
    Ok((map.stats().away.fetched - before) as f64 / start.elapsed().as_secs_f64())
}

/// What `fio` reads of the file, in blocks of 4 KiB at random past the page cache.
fn fio(file: &Path, depth: usize, time: Duration) -> Result<Option<f64>> {
    let asked = [
        "--name=reads",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--ioengine=io_uring",
        "--readonly",
        "--time_based",
        "--output-format=json",
    ];
    let told = Command::new("fio")
        .args(asked)
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={}", time.as_secs().max(1)))
        .output();
    let Ok(told) = told else { return Ok(None) };
    // A version that tells nothing of the kind is as good as none.
    let found: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    Ok(found["jobs"][0]["read"]["iops"].as_f64().filter(|iops| *iops > 0.0))
}

fn hot_set(keys: u64) -> Vec<[u8; 8]> {
    (0..keys).step_by(HOT as usize).map(key_of).collect()
}

fn read_hot(session: &mut Session, hot: &[[u8; 8]], random: &mut Random) -> Result<()> {
    let key = &hot[random.below(hot.len() as u64) as usize];
    let is_right = session.get(key, |value| &value.bytes[..8] == key)?;
    assert_eq!(is_right, Some(true), "invariant: every key has its value");
    Ok(())
}

/// Reads a second of the hot set, once each of it was read twice.
fn hot_reads(map: &Map, hot: &[[u8; 8]], time: Duration) -> Result<f64> {
    let (mut random, mut session) = (Random(7), map.session());
    for _ in 0..2 {
        hot.iter().try_for_each(|key| session.get(key, |_| ()).map(|_| ()))?;
    }
    let mut rates = Samples::default();
    for _ in 0..REPEATS {
        let (mut reads, start) = (0u64, Instant::now());
        while start.elapsed() < time {
            for _ in 0..256 {
                read_hot(&mut session, hot, &mut random)?;
            }
            reads += 256;
        }
        rates.push(reads as f64 / start.elapsed().as_secs_f64());
    }
    Ok(rates.median())
}

/// The 99th percentile of reads of the hot set, in us: alone, and while another thread reads what is cold.
fn p99s(map: &Map, hot: &[[u8; 8]], keys: u64, time: Duration) -> Result<[f64; 2]> {
    let p99 = || -> Result<f64> {
        let (mut random, mut session) = (Random(9), map.session());
        let (mut took, start) = (Vec::new(), Instant::now());
        while start.elapsed() < time {
            let before = Instant::now();
            read_hot(&mut session, hot, &mut random)?;
            took.push(before.elapsed().as_nanos() as u64);
        }
        took.sort_unstable();
        Ok(took[took.len() * 99 / 100] as f64 / 1e3)
    };
    let (mut alone, mut beside) = (Samples::default(), Samples::default());
    for _ in 0..REPEATS {
        alone.push(p99()?);
        let is_over = AtomicBool::new(false);
        beside.push(std::thread::scope(|scope| {
            let cold = scope.spawn(|| -> Result<()> {
                let (mut random, mut session) = (Random(11), map.session());
                while !is_over.load(Ordering::Relaxed) {
                    session.get(&key_of(random.below(keys)), |_| ())?;
                }
                Ok(())
            });
            let found = p99();
            is_over.store(true, Ordering::Relaxed);
            cold.join().expect("it reads").and(found)
        })?);
    }
    Ok([alone.median(), beside.median()])
}
