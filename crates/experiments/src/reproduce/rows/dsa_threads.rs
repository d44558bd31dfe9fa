//! `dsa-threads`: several threads submit to one shared queue (Fuerst, figure 3.5), of a modelled and of an emulated
//! engine.
//!
//! On the model the paper's sizes are copied, 1 MiB and 1 GiB, by threads that have a core each.
//!
//! The other engine is emulated: a thread behind the driver of the device, which answers retry when its queue is full.
//! Every byte that comes back is checked, the device's count of executed descriptors is compared with the tasks, and
//! the throughput of a paced device is measured with each number of threads. Controls are devices that lose a
//! descriptor, execute one twice, or report success of a part.

use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::error::Result as Found;
use crate::reproduce::tiles::{RESTS_ON, Tiles, other};
use std::time::{Duration, Instant};
use terrace_machine::fluid::Submitter;
use terrace_movement::{Buffer, Emulated, EmulatedOptions, Misdeed, Soak, SoakCounts, Source, Task};

pub(super) const ROW: Row = Row {
    id: "dsa-threads",
    source: "Fuerst, figure 3.5",
    runs_on: "model xeon-max (fluid) + emulated engine",
    must_show: "1, 2 and 12 submitters on one shared queue: no loss, no duplicated descriptor",
    run,
};

const THREADS: [u64; 3] = [1, 2, 12];
const MISDEEDS: [Misdeed; 3] = [Misdeed::Lose, Misdeed::Twice, Misdeed::FalseSuccess];
const TASK_BYTES: usize = 1 << 20;
/// Far slower than this processor copies, so that the device is the limit.
const BYTES_PER_SECOND: u64 = 512 << 20;

/// One number of threads.
struct Measured {
    threads: u64,
    tasks: u64,
    counts: SoakCounts,
    executed: u64,
    /// Of the paced device, bytes in a second.
    throughput: f64,
}

/// One number of threads on the model.
#[derive(Clone, Copy, Debug)]
struct Modelled {
    threads: u64,
    /// GiB a second with copies of 1 MiB, and of 1 GiB.
    gib_s: [f64; 2],
    /// Descriptors executed more than, or fewer than, submitted.
    astray: u64,
}

/// Copies of 1 MiB and of 1 GiB that all threads make together, both multiples of all numbers of threads.
const MODELLED: [(u64, u32); 2] = [(1 << 20, 4_800), (1 << 30, 24)];

fn modelled(tiles: &Tiles, threads: u64) -> Found<Modelled> {
    let mut found = Modelled { threads, gib_s: [0.0; 2], astray: 0 };
    for (at, (bytes, copies)) in MODELLED.into_iter().enumerate() {
        let one = Submitter {
            repetitions: copies / threads as u32,
            ..tiles.by_engine(0, 0, 0, bytes, 1)
        };
        let copied = tiles.run(vec![one; threads as usize])?;
        found.gib_s[at] = copied.gib_s();
        found.astray += copied.executed.abs_diff(copies.into());
    }
    Ok(found)
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (tasks, copies) = (run.size(24_000, 2_400), run.size(240, 48));
    let mut measured = Vec::new();
    for threads in THREADS {
        (run.tell)(&format!("{threads} threads"));
        measured.push(measure(threads, tasks, copies)?);
    }
    let mut controls = Vec::new();
    for misdeed in MISDEEDS {
        (run.tell)(&format!("a device that is not right: {misdeed:?}"));
        controls.push((misdeed, control(misdeed)?));
    }
    let tiles = Tiles::new()?;
    let model = THREADS.into_iter().map(|threads| modelled(&tiles, threads));
    Ok(judge(&model.collect::<Found<Vec<_>>>()?, &measured, &controls))
}

fn measure(threads: u64, tasks: u64, copies: u64) -> Result<Measured> {
    // A queue shorter than the threads are many, so that it is full at times.
    let emulated = Emulated::new(EmulatedOptions { queue: 4, ..EmulatedOptions::default() }).map_err(other)?;
    let soak = Soak { threads, tasks: tasks / threads, patience: Duration::from_secs(20), seed: 35 };
    let counts = soak.run(emulated.engine()).map_err(other)?;
    let throughput = throughput(threads, copies / threads)?;
    Ok(Measured { threads, tasks, counts, executed: emulated.stats().executed, throughput })
}

/// Bytes in a second, of threads that copy one MiB after another by a paced device.
fn throughput(threads: u64, copies: u64) -> Result<f64> {
    let options = EmulatedOptions { bytes_per_second: BYTES_PER_SECOND, ..EmulatedOptions::default() };
    let emulated = Emulated::new(options).map_err(other)?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let source = Source::from(vec![1; TASK_BYTES]);
                let mut target = Buffer::new(vec![0; TASK_BYTES]);
                for _ in 0..copies {
                    let Ok(task) = Task::copy(&source, target, 0) else { return };
                    let Ok(handle) = emulated.engine().submit(task) else { return };
                    let Some(back) = handle.wait().target else { return };
                    target = back;
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    // Counted by the device: a thread that stopped early lowers it.
    Ok(emulated.stats().executed as f64 * TASK_BYTES as f64 / seconds)
}

fn control(misdeed: Misdeed) -> Result<SoakCounts> {
    let emulated = Emulated::new(EmulatedOptions::default()).map_err(other)?;
    emulated.misbehave(misdeed, 50);
    let soak = Soak { threads: 2, tasks: 200, patience: Duration::from_secs(3), seed: 35 };
    soak.run(emulated.engine()).map_err(other)
}

fn judge_model(outcome: &mut Outcome, model: &[Modelled]) {
    for of in model {
        let what = format!("model, {}: descriptors executed, more or fewer than submitted", submitters(of.threads));
        outcome.checks.push(Check::at_most(what, "none", of.astray as f64, 0.0).order());
    }
    let Some((one, others)) = model.split_first() else { return };
    for of in others {
        for (at, size) in ["1 MiB", "1 GiB"].into_iter().enumerate() {
            let what = format!("model: throughput at {size}, {} to one", submitters(of.threads));
            outcome.checks.push(Check::at_least(what, "no loss", of.gib_s[at] / one.gib_s[at], 1.0).order());
        }
    }
    let what = "model: throughput of one submitter, 1 GiB to 1 MiB";
    outcome.checks.push(Check::at_least(what, "higher", one.gib_s[1] / one.gib_s[0], 1.001).order());
}

fn submitters(threads: u64) -> String {
    format!("{threads} submitter{}", if threads == 1 { "" } else { "s" })
}

fn judge(model: &[Modelled], measured: &[Measured], controls: &[(Misdeed, SoakCounts)]) -> Outcome {
    let mut outcome = Outcome::default();
    judge_model(&mut outcome, model);
    for of in measured {
        let name = submitters(of.threads);
        let right = of.tasks - of.tasks.min(of.counts.right);
        let more = of.executed.abs_diff(of.tasks);
        outcome.checks.extend([
            Check::at_most(format!("{name}: tasks lost, wrong or failed"), "none", right as f64, 0.0).order(),
            Check::at_most(format!("{name}: descriptors executed, more or fewer than tasks"), "none", more as f64, 0.0).order(),
        ]);
    }
    if let Some((one, others)) = measured.split_first() {
        for of in others {
            let what = format!("throughput at 1 MiB, {} submitters to one", of.threads);
            outcome.checks.push(Check::at_least(what, "no loss", of.throughput / one.throughput, 0.95));
        }
    }
    let is_noticed = |(misdeed, counts): &&(Misdeed, SoakCounts)| match misdeed {
        Misdeed::Lose => counts.lost > 0,
        _ => counts.wrong > 0,
    };
    let refused: u64 = measured.iter().map(|of| of.counts.refused).sum();
    outcome.checks.extend([
        Check::at_least("tasks refused by a full queue and submitted again", "none told", refused as f64, 1.0).order(),
        Check::at_least(
            "devices that lose, duplicate or lie, noticed",
            "none told",
            controls.iter().filter(is_noticed).count() as f64,
            MISDEEDS.len() as f64,
        )
        .order(),
    ]);
    outcome.size("tasks", measured.first().map_or(0, |of| of.tasks));
    outcome.size("queue, descriptors", 4);
    outcome.size("pace, MiB/s", BYTES_PER_SECOND >> 20);
    let rates: Vec<String> = measured
        .iter()
        .map(|of| format!("{:.0} MiB/s with {}", of.throughput / f64::from(1 << 20), of.threads))
        .collect();
    let gib_s = |at: usize| -> Vec<String> { model.iter().map(|of| format!("{:.2}", of.gib_s[at])).collect() };
    outcome.note = format!(
        "{RESTS_ON}. Modelled, GiB/s with 1, 2 and 12 submitters: {} at 1 MiB, {} at 1 GiB. Emulated device \
         behind the driver of the real one; its pace is set, so absolute rates mean nothing: {}. Half \
         of the tasks move bytes inside of a buffer, so that executing one twice is seen.",
        gib_s(0).join(", "),
        gib_s(1).join(", "),
        rates.join(", ")
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(right: u64, executed: u64, throughput: f64) -> Measured {
        let counts = SoakCounts { right, refused: 1, ..SoakCounts::default() };
        Measured { threads: 2, tasks: 100, counts, executed, throughput }
    }

    #[test]
    fn a_lost_a_duplicated_and_a_slow_task_and_a_blind_soak_are_misses() {
        let noticed = SoakCounts { lost: 1, wrong: 1, ..SoakCounts::default() };
        let controls = |counts: SoakCounts| MISDEEDS.map(|misdeed| (misdeed, counts));
        let passes = |of: Measured, counts| {
            judge(&[], &[measured(100, 100, 1.0), of], &controls(counts)).checks.iter().all(|check| check.pass)
        };
        assert!(passes(measured(100, 100, 0.99), noticed));
        assert!(!passes(measured(99, 100, 1.0), noticed));
        assert!(!passes(measured(100, 101, 1.0), noticed));
        assert!(!passes(measured(100, 100, 0.5), noticed));
        assert!(!passes(measured(100, 100, 1.0), SoakCounts::default()));
    }

    #[test]
    fn a_loss_and_an_astray_descriptor_of_the_model_are_misses() {
        let of = |threads, small, large, astray| Modelled { threads, gib_s: [small, large], astray };
        let passes = |other: Modelled| {
            let mut outcome = Outcome::default();
            judge_model(&mut outcome, &[of(1, 28.0, 29.0, 0), other]);
            outcome.checks.iter().all(|check| check.pass)
        };
        assert!(passes(of(12, 29.0, 29.0, 0)));
        assert!(!passes(of(12, 27.0, 29.0, 0)) && !passes(of(12, 29.0, 28.0, 0)) && !passes(of(12, 29.0, 29.0, 1)));
    }
}
