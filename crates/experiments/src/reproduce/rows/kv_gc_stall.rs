//! `kv-gc-stall`: how long a worker waits between two of its operations (Wu, figure 2.2).
//!
//! A map with its own threads, opened and driven from a thread bound to one processor: collector and
//! checkpointer inherit the binding, so that the collector's turns are taken from the worker, as in the
//! paper. Gaps are measured in the processor time of the whole process. It stands still while other
//! programs run, and goes on while the collector does: a gap is the worker's operation and our own
//! threads' work, and nobody else's.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::{Samples, process_ns};
use crate::reproduce::emulated::{DESIGNS, Emulated};
use crate::structures::Random;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;
use terrace_store::{Map, MapOptions, ValueDesign};

pub(super) const ROW: Row = Row {
    id: "kv-gc-stall",
    source: "Wu, figure 2.2",
    runs_on: "native (emulated medium)",
    must_show: "longest gap between a worker's operations: logs, collector on its core, >= 5x slabs",
    run,
};

const LONGER: f64 = 5.0;
const REPEATS: usize = 5;
const VALUE_BYTES: usize = 256;
const WINDOW_MS: u64 = 50;

/// What one run of a worker saw.
struct Seen {
    longest_gap_us: f64,
    /// Operations in each window, a second.
    rates: Vec<f64>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let keys = run.size(10_000_000, 200_000);
    let windows = run.size(200, 30);
    let mut gaps: [Samples; 2] = Default::default();
    let mut rates: [Vec<f64>; 2] = Default::default();
    for repeat in 0..REPEATS {
        for (at, (design, name)) in DESIGNS.into_iter().enumerate() {
            (run.tell)(&format!("{name}, run {} of {REPEATS}", repeat + 1));
            let worker = std::thread::spawn(move || work(design, keys, windows));
            let seen = worker.join().expect("invariant: a worker does not panic")?;
            gaps[at].push(seen.longest_gap_us);
            rates[at] = seen.rates;
        }
    }
    Ok(judge(keys, windows, &gaps, rates))
}

/// Binds this thread, and those it makes, to one processor it may use.
fn stay_on_one_processor() -> Result<()> {
    let refused = || Error::system("bind a thread to one processor");
    let allowed = sched_getaffinity(None).map_err(refused())?;
    let mut one = CpuSet::new();
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu));
    one.set(last.unwrap_or(0));
    sched_setaffinity(None, &one).map_err(refused())
}

fn directory() -> Result<tempfile::TempDir> {
    let shared = Path::new("/dev/shm");
    let made = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
    made.map_err(Error::system("make a directory in memory"))
}

fn work(design: ValueDesign, keys: u64, windows: u64) -> Result<Seen> {
    stay_on_one_processor()?;
    let dir = directory()?;
    let options = MapOptions { memory_budget_bytes: 16 << 30, ..Emulated::options(design) };
    let map = Map::open(dir.path(), options)?;
    let value = [1; VALUE_BYTES];
    (0..keys).try_for_each(|key| map.put(&key.to_be_bytes(), &value))?;
    let mut random = Random(7);
    let mut update = || map.put(&random.below(keys).to_be_bytes(), &value);
    // Room that the first updates need is made; no log is half dead yet.
    (0..keys / 4).try_for_each(|_| update())?;
    let (start, mut last) = (process_ns(), process_ns());
    let (mut longest, mut counts) = (0, vec![0u64; windows as usize]);
    while let Some(count) = counts.get_mut(((last - start) / (WINDOW_MS * 1_000_000)) as usize) {
        update()?;
        *count += 1;
        let now = process_ns();
        longest = longest.max(now - last);
        last = now;
    }
    map.close()?;
    let rate = |count: u64| count as f64 * 1e3 / WINDOW_MS as f64;
    Ok(Seen {
        longest_gap_us: longest as f64 / 1e3,
        rates: counts.into_iter().map(rate).collect(),
    })
}

fn judge(keys: u64, windows: u64, gaps: &[Samples; 2], rates: [Vec<f64>; 2]) -> Outcome {
    let [slabs_us, logs_us] = gaps.each_ref().map(Samples::median);
    let mut outcome = Outcome::default();
    let what = "longest gap between a worker's operations, logs over slabs";
    let check = Check::at_least(what, "26 ms in logs, none told of slabs", logs_us / slabs_us, LONGER);
    outcome.checks.extend(check.and_order());
    outcome.size("keys", keys);
    outcome.size("values", format!("{VALUE_BYTES} B"));
    outcome.size("repeats", REPEATS);
    outcome.size("run", format!("{} ms of processor time", windows * WINDOW_MS));
    outcome.note = format!(
        "Emulated persistent memory: a file in shared memory declared ADR. Worker, collector and \
         checkpointer on one processor. Medians of the longest gap: slabs {slabs_us:.0} us, logs \
         {logs_us:.0} us (spreads {:.0} % and {:.0} %), in the processor time of this process, so that \
         other programs' turns do not count.",
        100.0 * gaps[0].spread(),
        100.0 * gaps[1].spread()
    );
    let [slabs, logs] = rates.map(|rates| rates.into_iter().map(|rate| rate / 1e6));
    outcome.figures.push(
        Figure::new(
            "One worker's updates over time (last run)",
            "window of 50 ms of processor time",
            "million a second",
            FigureKind::Lines,
        )
        .over((1..=windows).map(|n| if n % 5 == 0 { n.to_string() } else { String::new() }))
        .with("slabs", slabs)
        .with("logs", logs),
    );
    outcome.figures.push(
        Figure::new("Longest gap between two operations", "values", "us", FigureKind::LogLines)
            .over(["slabs", "logs"])
            .with("median of the runs", [slabs_us, logs_us]),
    );
    outcome
}
