//! `btree-interleave`: lookups of several keys at once, whose misses overlap (Ni, figure 5.10).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::{Samples, ns_per_operation};
use crate::trees::{self, DRAM, OnModel, PMEM};
use std::io;
use std::sync::Arc;
use terrace_index::tree::{self, Entry, Keys, Sixteen, Tree, TreeOptions};
use terrace_memory::Budget;

pub(super) const ROW: Row = Row {
    id: "btree-interleave",
    source: "Ni, figure 5.10",
    runs_on: "native (DRAM) and model (optane-004)",
    must_show: "batched lookups >= 1.8x at nodes of 256 B in DRAM; the gain falls with the size of nodes",
    run,
};

const NODE_BYTES: [u64; 4] = [128, 256, 512, 1024];
const BATCHES: [usize; 4] = [1, 2, 4, 16];
const REPEATS: usize = 3;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let (entries, lookups) = run.size((40_000_000, 4_000_000), (2_000_000, 200_000));
    let modelled = run.size(4_000_000, 100_000);
    let mut outcome = Outcome::default();
    let (mut native, mut model) = (Vec::new(), [Vec::new(), Vec::new()]);
    for node_bytes in NODE_BYTES {
        (run.tell)(&format!("nodes of {node_bytes} B"));
        let options = TreeOptions::of(tree::Form::Sorted, node_bytes);
        let measured = here(&options, entries, lookups);
        native.push(measured.map_err(Error::system("look keys up in a tree"))?);
        for (node, gains) in [DRAM, PMEM].into_iter().zip(&mut model) {
            let measured = on_model(&options, node, modelled);
            gains.push(measured.map_err(Error::system("run a tree on the model"))?);
        }
    }
    let best = |gains: &[f64]| gains.iter().copied().fold(0.0, f64::max);
    let what = "nodes of 256 B here: lookups in batches, of one by one";
    outcome.checks.extend(Check::at_least(what, "2.1", best(&native[1]), 1.8).and_order());
    let what = "gain at nodes of 1024 B, of that at 256 B, here";
    outcome.checks.push(Check::at_most(what, "0.57", best(&native[3]) / best(&native[1]), 1.0).order());
    for ((name, said), gains) in [("DRAM", 2.5), ("persistent memory", 3.4)].into_iter().zip(&model) {
        let what = format!("nodes of 128 B, modelled {name}: lookups in batches, of one by one");
        outcome.checks.extend(Check::about(what, said, best(&gains[0])).and_order());
        let what = format!("gain at nodes of 1024 B, of that at 128 B, modelled {name}");
        let falls = best(&gains[3]) / best(&gains[0]);
        outcome.checks.push(Check::at_most(what, "falls", falls, 1.0).order());
    }
    let [dram, pmem] = model;
    for (title, gains) in [("here", native), ("modelled DRAM", dram), ("modelled persistent memory", pmem)] {
        let title = format!("Lookups in batches, of one by one: {title}");
        let mut figure = Figure::new(&title, "keys at once", "ratio", FigureKind::Lines).over(BATCHES);
        for (node_bytes, gains) in NODE_BYTES.iter().zip(gains) {
            figure = figure.with(&format!("{node_bytes} B"), gains);
        }
        outcome.figures.push(figure);
    }
    outcome.size("entries, here", entries);
    outcome.size("entries, modelled", modelled);
    outcome.note = "Here times are processor times of one thread, the middle of three; others share the caches. \
                    On the model the paper's line fill buffers bound the gain; instructions take no time there, \
                    so one lookup at a time is faster than the paper's and has less to gain."
        .into();
    Ok(outcome)
}

/// The gain of each size of batch over single lookups.
fn gains(mut ns: impl FnMut(usize) -> io::Result<f64>) -> io::Result<Vec<f64>> {
    let one = ns(1)?;
    BATCHES.iter().map(|batch| if *batch == 1 { Ok(1.0) } else { Ok(one / ns(*batch)?) }).collect()
}

fn on_model(options: &TreeOptions, node: &str, entries: u64) -> io::Result<Vec<f64>> {
    let tree = OnModel::new(options, [node, node], entries, 1)?;
    gains(|batch| Ok(tree.gets(1, entries / 20 / batch as u64, batch)?.ns()))
}

fn here(options: &TreeOptions, entries: u64, lookups: u64) -> io::Result<Vec<f64>> {
    let budget = Arc::new(Budget::new(u64::MAX >> 1));
    let tree = Tree::new(options, entries, &budget)?;
    let mut sorted: Vec<u128> = (0..entries).map(|n| Sixteen.head(&trees::key(n))).collect();
    sorted.sort_unstable();
    tree.bulk_load(sorted.into_iter().map(|head| Entry { head, value: [1, 1] }), &Sixteen)?;
    let mut from = 0;
    gains(|batch| {
        let mut samples = Samples::default();
        for _ in 0..REPEATS {
            from += lookups;
            samples.push(ns_per_operation(lookups, || looked_up(&tree, batch, from, lookups, entries))?);
        }
        Ok(samples.median())
    })
}

/// So many lookups, `batch` at once.
fn looked_up(tree: &Tree, batch: usize, from: u64, lookups: u64, entries: u64) -> io::Result<()> {
    let mut values = vec![None; batch];
    let mut wanted = vec![[0; 16]; batch];
    for first in (from..from + lookups).step_by(batch) {
        for (key, number) in wanted.iter_mut().zip(first..) {
            *key = trees::key(trees::drawn(number, entries));
        }
        match &wanted[..] {
            [one] => values[0] = tree.get(one, &Sixteen),
            _ => tree.multi_get(&wanted, &Sixteen, &mut values),
        }
        assert!(values.iter().all(Option::is_some), "every key is there");
    }
    Ok(())
}
