//! `dsa-submit`: one descriptor at a time beside batches of them (Fuerst, figure 3.4), the emulated half.
//!
//! The device is emulated and paced. What a submission costs is what this driver and this machine's threads cost, which
//! is more than the device's; so the size from which one descriptor is as fast as a batch lies higher or lower, and
//! follows from the pace. Orders are checked, and no absolute rate. The submitter polls, as the paper's library does.
//! Both ways take turns, and the best round of each counts: whatever else runs on this machine only makes one slower.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use std::time::Instant;
use terrace_movement::{Buffer, Emulated, EmulatedOptions, Source, Task};

pub(super) const ROW: Row = Row {
    id: "dsa-submit",
    source: "Fuerst, figure 3.4",
    runs_on: "emulated engine (fluid simulation: not built)",
    must_show: "batch at least as fast as single below 1 MiB, equal (95 %) from 1 MiB; small batches below peak",
    run,
};

const BATCH: usize = 16;
const SIZES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const BYTES_PER_SECOND: u64 = 512 << 20;

/// Shares of the pace that were reached with one size.
#[derive(Clone, Copy, Debug)]
struct Reached {
    bytes: usize,
    single: f64,
    batch: f64,
}

fn other(error: terrace_movement::Error) -> Error {
    Error::system("emulate a copy engine")(io::Error::other(error))
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let rounds = run.size(45, 15);
    let options = EmulatedOptions { bytes_per_second: BYTES_PER_SECOND, ..EmulatedOptions::default() };
    let emulated = Emulated::new(options).map_err(other)?;
    let mut reached = Vec::new();
    for bytes in SIZES {
        (run.tell)(&format!("{bytes} bytes"));
        let source = Source::from(vec![1; bytes]);
        let total = BATCH * bytes;
        let ideal = total as f64 / BYTES_PER_SECOND as f64;
        let mut target = Buffer::new(vec![0; total]);
        let (mut single, mut batch) = (0.0f64, 0.0f64);
        for _ in 0..rounds {
            let start = Instant::now();
            for at in 0..BATCH {
                target = copied(&emulated, Task::copy(&source, target, at * bytes))?;
            }
            single = single.max(ideal / start.elapsed().as_secs_f64());
            let pieces: Vec<(Source, usize)> = (0..BATCH).map(|at| (source.clone(), at * bytes)).collect();
            let start = Instant::now();
            target = copied(&emulated, Task::gather(&pieces, target))?;
            batch = batch.max(ideal / start.elapsed().as_secs_f64());
        }
        reached.push(Reached { bytes, single, batch });
    }
    Ok(judge(&reached))
}

/// Copies, and waits.
fn copied(emulated: &Emulated, task: terrace_movement::Result<Task>) -> Result<Buffer> {
    let handle = emulated.engine().submit(task.map_err(other)?).map_err(|refused| other(refused.error))?;
    while !handle.poll() {
        std::thread::yield_now();
    }
    let target = handle.wait().target;
    target.ok_or_else(|| Error::system("emulate a copy engine")(io::Error::other("a copy without a target")))
}

fn judge(reached: &[Reached]) -> Outcome {
    let mut outcome = Outcome::default();
    let (large, small): (Vec<Reached>, Vec<Reached>) = reached.iter().partition(|of| of.bytes >= 1 << 20);
    for of in &small {
        let what = format!("{} KiB: batch to single", of.bytes >> 10);
        outcome.checks.push(Check::at_least(what, "at least 1", of.batch / of.single, 1.0));
    }
    for of in &large {
        let what = format!("{} KiB: single to batch", of.bytes >> 10);
        outcome.checks.push(Check::at_least(what, "equal", of.single / of.batch, 0.95));
    }
    if let Some(least) = small.first() {
        let what = format!("{} KiB: batch, of the device's peak", least.bytes >> 10);
        outcome.checks.push(Check::at_most(what, "below", least.batch, 0.95));
    }
    outcome.size("descriptors of a batch", BATCH);
    outcome.size("pace, MiB/s", BYTES_PER_SECOND >> 20);
    outcome.note = "Emulated device, paced; submission and waiting cost what they cost here. Best rounds.".into();
    outcome.figures.push(
        Figure::new("Share of the device's peak", "bytes of a copy", "share", FigureKind::Bars)
            .over(reached.iter().map(|of| format!("{} KiB", of.bytes >> 10)))
            .with("single", reached.iter().map(|of| of.single))
            .with("batch", reached.iter().map(|of| of.batch)),
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_batches_and_slow_large_singles_are_misses() {
        let passes = |small: (f64, f64), large: f64| {
            let of = |bytes, single, batch| Reached { bytes, single, batch };
            judge(&[of(1 << 10, small.0, small.1), of(1 << 20, large, 1.0)]).checks.iter().all(|check| check.pass)
        };
        assert!(passes((0.1, 0.5), 0.97));
        assert!(!passes((0.5, 0.1), 0.97) && !passes((0.1, 0.5), 0.8) && !passes((0.1, 0.99), 0.97));
    }
}
