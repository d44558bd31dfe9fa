//! `pmem-i4`: p-stores to another socket's memory (Gugnani, I4, figure 5).

use super::pmem_i5::percents;
use super::{Check, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{
    DRAM, MODEL, PMEM, REMOTE_DRAM, REMOTE_PMEM, here, measured, optane, sweep,
};
use terrace_advise::idiosyncrasies::{Grid, Losses, Reading};
use terrace_machine::test_bed::TestBed;
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i4",
    source: "Gugnani, I4, figure 5",
    runs_on: "model optane-001 + native where there are two nodes",
    must_show: "what p-stores lose remotely grows with threads and size, and more on PMEM than on DRAM",
    run,
};

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, generator) = optane(1)?;
    let model = sweep(&preset, generator, run.full);
    let lost = |near: &str, far: &str| {
        (run.tell)(&format!("model, {near} and {far}"));
        Losses::of_remote(&model, near, Some(far)).map_err(measured())
    };
    let (pmem, dram) = (lost(PMEM, REMOTE_PMEM)?, lost(DRAM, REMOTE_DRAM)?);
    let (machine, node) = here()?;
    let far = machine.nodes().get(1).cloned();
    let native = sweep(&machine, Generator::default(), run.full);
    let native = Losses::of_remote(&native, &node, far.as_deref()).map_err(measured())?;
    let mut outcome = Outcome::default();
    if let (Reading::Measured(pmem), Reading::Measured(dram)) = (&pmem, &dram) {
        judge(&mut outcome, pmem, dram);
    }
    let here = match &native {
        Reading::Measured(found) => format!("This machine loses {:.0} %.", 100.0 * found.most()),
        Reading::NotMeasurable(why) => format!("This machine cannot be asked: {why}."),
    };
    outcome.note = format!(
        "{MODEL} Store, write-back and fence by threads of the first socket. What \
         another socket reads is noted in the memory, a write; the notes of few writers wait until their own \
         writes take their place, those of many do not, which doubles what is written. On the machine more \
         breaks down from there on, and what that is was not published: the paper blames lanes shared by \
         threads for a disorder that the device's prefetcher punishes. A p-store of 64 B in sequence costs \
         hardly more remotely there; here it waits for the link. {here}"
    );
    Ok(outcome)
}

/// The loss at the corners of the grid: one thread and many, small pieces and large.
fn judge(outcome: &mut Outcome, pmem: &Losses, dram: &Losses) {
    let at = |grid: &Grid, threads, bytes| {
        100.0 * grid.at(threads, bytes).unwrap_or(f64::NAN)
    };
    for (losses, node, paper, most) in [
        (pmem, "PMEM", ["1", "21", "91", "93", "86"], [(70.0, 97.0), (70.0, 97.0), (60.0, 97.0)]),
        (dram, "DRAM", ["2", "41", "42", "67", "60"], [(30.0, 55.0), (50.0, 80.0), (45.0, 75.0)]),
    ] {
        let (one, all) = (&losses.sequential, &losses.random);
        let mut push = |what: &str, paper: &str, value: f64, low: f64, high: f64| {
            let what = format!("% lost, model {node}, {what}");
            outcome.checks.push(Check::within(what, paper, value, low, high));
        };
        push("sequential 64 B, 1 thread", paper[0], at(one, 1, 64), -5.0, 15.0);
        push("sequential 4 KiB, 1 thread", paper[1], at(one, 1, 4096), 10.0, 50.0);
        push("sequential 4 KiB, 8 threads", paper[2], at(one, 8, 4096), most[0].0, most[0].1);
        push("sequential 4 KiB, 28 threads", paper[3], at(one, 28, 4096), most[1].0, most[1].1);
        push("random 4 KiB, 28 threads", paper[4], at(all, 28, 4096), most[2].0, most[2].1);
    }
    for (losses, node) in [(pmem, "PMEM"), (dram, "DRAM")] {
        let lost = |threads, bytes| at(&losses.sequential, threads, bytes);
        let what = format!("% lost more with 28 threads than with one, model {node}, sequential 4 KiB");
        outcome.checks.push(Check::at_least(what, "grows", lost(28, 4096) - lost(1, 4096), 0.0).order());
        let what = format!("% lost more of 4 KiB than of 64 B, model {node}, sequential, 1 thread");
        outcome.checks.push(Check::at_least(what, "grows", lost(1, 4096) - lost(1, 64), 0.0).order());
    }
    let more = at(&pmem.sequential, 28, 4096) - at(&dram.sequential, 28, 4096);
    let what = "% lost more on PMEM than on DRAM, sequential 4 KiB, 28 threads";
    outcome.checks.extend(Check::at_least(what, "26", more, 10.0).and_order_from(0.0));
    for (losses, node) in [(pmem, "PMEM"), (dram, "DRAM")] {
        for (grid, pattern) in [(&losses.sequential, "sequential"), (&losses.random, "random")] {
            let title = format!("% of p-stores lost remotely, model {node}, {pattern}");
            outcome.figures.push(percents(grid, &title));
        }
    }
}
