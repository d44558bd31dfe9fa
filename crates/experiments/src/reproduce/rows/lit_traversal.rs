//! `lit-traversal`: what a look-up in the lookup table goes through (Miller, section 6.5).

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use terrace_lockfree::lookup::{LookupTable, Options};
use terrace_workload::random::Rng;

pub(super) const ROW: Row = Row {
    id: "lit-traversal",
    source: "Miller, section 6.5, figure 6.5",
    runs_on: "counted",
    must_show: "levels / nodes of a look-up: 1 / 1.03, 1 / 3.7, 2 / 3.2 at 10 k, 100 k, 1 M keys, 10 k buckets, \
                half full",
    run,
};

/// Key range, and levels and nodes of the paper.
const PAPER: [(u64, f64, f64); 3] = [(10_000, 1.0, 1.03), (100_000, 1.0, 3.7), (1_000_000, 2.0, 3.2)];
/// How far a mean number of nodes may be from the paper's: it tells two digits and not how it counts the last node.
const NEAR: f64 = 0.15;

/// Means over look-ups.
struct Found {
    levels: f64,
    nodes: f64,
    splits: u64,
    resizes: u64,
    bytes: f64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut paper, mut ours) = (Vec::new(), Vec::new());
    for (range, levels, nodes) in PAPER {
        (run.tell)(&format!("range {range}"));
        let gets = run.size(10_000_000, 1_000_000);
        let found = of(Options::paper(0, range), range, gets)?;
        let what = format!("levels, range {range}");
        outcome.checks.push(Check::within(what, &levels.to_string(), found.levels, levels, levels + 0.01).order());
        let what = format!("nodes, range {range}");
        let (low, high) = (nodes * (1.0 - NEAR), nodes * (1.0 + NEAR));
        outcome.checks.push(Check::within(what, &nodes.to_string(), found.nodes, low, high));
        outcome.size(&format!("splits, resizes, range {range}"), format!("{}, {}", found.splits, found.resizes));
        paper.push(found);
        // The table's own settings, of which nothing is predicted: not judged.
        ours.push(of(Options::default(), range, gets)?);
    }
    outcome.size("bucket count at first", "10000, split after 10 nodes, resize after 10 levels");
    let figure = Figure::new("Nodes of a look-up by key range", "keys of the range", "nodes", FigureKind::Bars);
    let figure = figure.over(PAPER.map(|(range, ..)| range)).with("paper", PAPER.map(|(.., nodes)| nodes));
    let figure = figure.with("the paper's settings", paper.iter().map(|found| found.nodes));
    outcome.figures.push(figure.with("settings of our own", ours.iter().map(|found| found.nodes)));
    let told: Vec<String> = ours
        .iter()
        .map(|found| format!("{:.2} / {:.2}, {:.0} bytes a key", found.levels, found.nodes, found.bytes))
        .collect();
    outcome.note = format!(
        "Counted: a look-up of a random key of the range, half of which are there, inserted in random order. Nodes are \
         the links behind the bucket's own marker up to where the search ends, markers of later buckets among them. \
         With half of a bucket's ten possible keys present that is 1 + 4.5 / 2 = 3.25 on the average, and 1 with one: \
         what the table shows. The paper's 3.7 at 100 k is above this; it would need six \
         of ten keys. Our own settings, not judged: {}.",
        told.join("; ")
    );
    Ok(outcome)
}

fn of(options: Options<u64>, range: u64, gets: u64) -> Result<Found> {
    let refused = |error| Error::system("have a lookup table")(io::Error::other(error));
    let table = LookupTable::new(options).map_err(refused)?;
    let mut random = Rng::new(range);
    let mut keys: Vec<u64> = (0..range).collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    for key in &keys[..keys.len() / 2] {
        table.insert(*key, *key);
    }
    let (mut levels, mut nodes, mut there) = (0, 0, 0);
    for _ in 0..gets {
        let (value, visited) = table.get_visited(&random.below(range));
        levels += visited.levels;
        nodes += visited.nodes;
        there += u64::from(value.is_some());
    }
    let stats = table.stats();
    assert!(stats.keys as u64 == range / 2 && there.abs_diff(gets / 2) < gets / 50, "half of the keys are there");
    let mean = |sum: usize| sum as f64 / gets as f64;
    Ok(Found {
        levels: mean(levels),
        nodes: mean(nodes),
        splits: stats.splits,
        resizes: stats.resizes,
        bytes: stats.bytes as f64 / stats.keys as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bucket_a_key_is_one_node_and_a_few_buckets_are_more() {
        let found = of(Options::paper(0, 10_000), 10_000, 10_000).expect("a table");
        assert_eq!((found.levels, found.nodes), (1.0, 1.0));
        let few = Options::paper(0, 10_000).with_buckets(100).with_split_after(1 << 20);
        let found = of(few, 10_000, 10_000).expect("a table");
        assert!(found.nodes > 20.0, "{}", found.nodes);
    }
}
