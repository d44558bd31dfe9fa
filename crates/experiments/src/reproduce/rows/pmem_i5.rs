//! `pmem-i5`: stores that nobody writes back (Gugnani, I5, figure 6).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::test_beds::{DRAM, MODEL, PMEM, here, measured, optane, sweep};
use terrace_advise::idiosyncrasies::{Grid, Losses};
use terrace_machine::model::calibrate::Generator;

pub(super) const ROW: Row = Row {
    id: "pmem-i5",
    source: "Gugnani, I5, figure 6",
    runs_on: "native + model optane-001",
    must_show: "plain stores below p-stores on PMEM (up to 66 %), not on DRAM",
    run,
};

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (preset, generator) = optane(1)?;
    let model = &sweep(&preset, generator, run.full);
    (run.tell)("model, PMEM and DRAM side by side");
    let (pmem, dram) = std::thread::scope(|scope| {
        let pmem = scope.spawn(move || Losses::of_plain_stores(model, PMEM));
        let dram = Losses::of_plain_stores(model, DRAM);
        (pmem.join().expect("invariant: a test does not panic"), dram)
    });
    let (pmem, dram) = (pmem.map_err(measured())?, dram.map_err(measured())?);
    (run.tell)("this machine");
    let (machine, node) = here()?;
    let native = sweep(&machine, Generator::default(), run.full);
    let native = Losses::of_plain_stores(&native, &node).map_err(measured())?;
    Ok(judge(&pmem, &dram, &native))
}

fn judge(pmem: &Losses, dram: &Losses, native: &Losses) -> Outcome {
    let mut outcome = Outcome::default();
    let at = |grid: &Grid, threads| 100.0 * grid.at(threads, 4096).unwrap_or(f64::NAN);
    let what = |what: &str| format!("% lost, {what}");
    for (name, paper, value, low, high) in [
        ("most of the grid, model PMEM", "66", 100.0 * pmem.most(), 50.0, 80.0),
        ("sequential 4 KiB, 1 thread, model PMEM", "7", at(&pmem.sequential, 1), 0.0, 25.0),
        ("sequential 4 KiB, 8 threads, model PMEM", "66", at(&pmem.sequential, 8), 50.0, 80.0),
        ("sequential 4 KiB, 28 threads, model PMEM", "55", at(&pmem.sequential, 28), 40.0, 70.0),
        ("random 4 KiB, 28 threads, model PMEM", "48", at(&pmem.random, 28), 30.0, 65.0),
    ] {
        let check = Check::within(what(name), paper, value, low, high);
        outcome.checks.extend(check.and_order_from(0.0));
    }
    outcome.checks.extend([
        Check::at_most(what("most of the grid, model DRAM"), "11", 100.0 * dram.most(), 20.0),
        Check::at_most(what("most of the grid, native DRAM"), "11", 100.0 * native.most(), 20.0),
    ]);
    let more = 100.0 * (pmem.most() - dram.most());
    let name = what("most of the grid, more on model PMEM than on DRAM");
    outcome.checks.push(Check::at_least(name, "55", more, 0.0).order());
    outcome.note = format!(
        "{MODEL} Plain stores after the caches are full of stored lines, against store, write-back and \
         fence; losses are negative where stores are ahead: by much for small pieces on DRAM, where a p-store \
         is all waiting and fio's figures hardly differ. Lines of random 4 KiB pieces leave these caches in \
         better order than the machine's while all threads fill them. This machine: its DRAM, the quicker of \
         two runs."
    );
    for (losses, node) in [(pmem, "model PMEM"), (dram, "model DRAM"), (native, "native DRAM")] {
        for (grid, pattern) in [(&losses.sequential, "sequential"), (&losses.random, "random")] {
            let title = format!("% by which stores are below p-stores, {node}, {pattern}");
            outcome.figures.push(percents(grid, &title));
        }
    }
    outcome
}

/// A grid of shares as lines of percents, one for each number of threads.
pub(super) fn percents(grid: &Grid, title: &str) -> Figure {
    let figure = Figure::new(title, "bytes of a piece", "%", FigureKind::Lines).over(&grid.sizes);
    grid.threads.iter().zip(&grid.values).fold(figure, |figure, (threads, row)| {
        let name = format!("{threads} thread{}", if *threads == 1 { "" } else { "s" });
        figure.with(&name, row.iter().map(|share| 100.0 * share))
    })
}
