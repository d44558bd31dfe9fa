//! `btree-scaling`: what persistent memory costs inserts as threads are added, and what unsorted leaves
//! cost ranges (Ni, figures 5.1 and 5.2).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::ns_per_operation;
use crate::trees::{self, DRAM, OnModel, PMEM};
use std::hint::black_box;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use terrace_index::tree::{self, Direction, Sixteen, Tree, TreeOptions};
use terrace_memory::Budget;

pub(super) const ROW: Row = Row {
    id: "btree-scaling",
    source: "Ni, figures 5.1 and 5.2",
    runs_on: "model (optane-004), 1-48 threads; ranges native (DRAM)",
    must_show: "the slowdown of inserts by persistent memory grows from 2.2 to 4.4 (btree) and from 2.0 to 3.0 \
                (unsorted), more for the sorted one; unsorted ranges lose",
    run,
};

const THREADS: [usize; 5] = [1, 8, 16, 32, 48];
/// Form, and the paper's slowdown with one thread and with all.
const FORMS: [(tree::Form, f64, f64); 2] =
    [(tree::Form::Sorted, 2.2, 4.4), (tree::Form::Unsorted, 2.0, 3.0)];
/// Entries of a range: what the paper's selectivity comes to.
const RANGE: usize = 1600;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (entries, inserts) = run.size((4_000_000, 400_000), (100_000, 19_200));
    let mut outcome = Outcome::default();
    let mut figure =
        Figure::new("Time of an insert in persistent memory, of that in DRAM", "threads", "ratio", FigureKind::Lines)
            .over(THREADS);
    let mut most = Vec::new();
    for (form, alone, all) in FORMS {
        (run.tell)(&format!("{form}"));
        let times = |node| -> io::Result<Vec<f64>> {
            let options = TreeOptions::of(form, 512);
            let mut tree = OnModel::new(&options, [node, node], entries, THREADS[4])?;
            let each = |threads: usize| inserts / threads as u64;
            THREADS.into_iter().map(|t| Ok(tree.inserts(t, each(t))?.ns())).collect()
        };
        let measured = times(PMEM).and_then(|pmem| Ok((pmem, times(DRAM)?)));
        let (pmem, dram) = measured.map_err(Error::system("run a tree on the model"))?;
        let slowdown: Vec<f64> = pmem.iter().zip(&dram).map(|(pmem, dram)| pmem / dram).collect();
        let last = slowdown[THREADS.len() - 1];
        for (what, said, found) in [("1 thread", alone, slowdown[0]), ("48 threads", all, last)] {
            let what = format!("{form}, {what}: persistent memory, of DRAM");
            outcome.checks.push(Check::about(what, said, found));
        }
        let what = format!("{form}: slowdown with 48 threads, of that with one");
        outcome.checks.push(Check::at_least(what, "grows", last / slowdown[0], 1.0).order());
        most.push(last);
        figure = figure.with(form.name(), slowdown);
    }
    let what = "48 threads: slowdown of the sorted tree, of the unsorted one's";
    outcome.checks.push(Check::at_least(what, "1.47", most[0] / most[1], 1.0).order());
    let [sorted, unsorted] = [ranged(entries, FORMS[0].0)?, ranged(entries, FORMS[1].0)?];
    let what = "time of an entry of a range in unsorted leaves, of sorted ones, DRAM";
    outcome.checks.push(Check::at_least(what, "up to 3", unsorted / sorted, 1.0).order());
    outcome.figures.push(figure);
    outcome.size("entries", entries);
    outcome.note = format!(
        "An entry of a range takes {sorted:.1} ns here in sorted leaves and {unsorted:.1} ns in unsorted ones. On \
         the model instructions take no time but for the words they load and store, so its DRAM is faster \
         against its persistent memory than the paper's, the more so the more threads the latter keeps waiting."
    );
    Ok(outcome)
}

/// Nanoseconds of an entry of a range, of this thread on this machine.
fn ranged(entries: u64, form: tree::Form) -> Result<f64> {
    let made = || -> io::Result<f64> {
        let budget = Arc::new(Budget::new(u64::MAX >> 1));
        let tree = Tree::new(&TreeOptions::of(form, 512), entries, &budget)?;
        (0..entries).try_for_each(|number| trees::insert(&tree, number))?;
        let ranges = 200;
        ns_per_operation(ranges * RANGE as u64, || {
            for number in 0..ranges {
                let from = trees::key(trees::drawn(number, entries));
                tree.range(Bound::Included(&from), Direction::Up, RANGE, &Sixteen, |entries| {
                    _ = black_box(entries.len());
                });
            }
            Ok(())
        })
    };
    made().map_err(Error::system("visit ranges of a tree"))
}
