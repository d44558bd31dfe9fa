//! YCSB where the medium is slower than DRAM: A to E on the modelled server, both designs of values, all levels of what
//! is kept, one worker. Judged as the native half is.
//!
//! Before the cells each map is updated until the collector has as much to do as it will have.

use super::super::{Figure, FigureKind, Outcome, Result, Run};
use super::{CELLS, COMBINATIONS, Combination, Rates, VALUE_BYTES, designs, levels, scans, sections};
use crate::reproduce::modelled::{
    Collector, Mix, ModelledMap, Ycsb, keys_beyond_caches, label, label_of_ordered, options, preset,
};
use terrace_machine::Preset;
use terrace_store::{Kind, MapOptions};
use terrace_workload::ycsb::{Distribution, Workload};

/// What is updated before the cells, in records.
const UPDATED: u64 = 2;

pub(super) fn run(run: &Run<'_>, outcome: &mut Outcome) -> Result<()> {
    let preset = preset();
    let keys = run.size(10_000_000, keys_beyond_caches(&preset, 1, VALUE_BYTES));
    let first = outcome.checks.len();
    let mut found = Vec::new();
    for combination in &COMBINATIONS {
        (run.tell)(&format!("modelled: {}, {keys} values of {VALUE_BYTES} B", combination.name));
        let cells = CELLS.map(|(workload, distribution, _)| (workload, distribution));
        let rates = rates(&preset, combination, Kind::Hash, &cells, keys)?;
        found.push(Rates::try_from(rates).expect("a rate of each cell"));
    }
    let mut ordered = Vec::new();
    for combination in &scans::COMBINATIONS {
        (run.tell)(&format!("modelled, ordered: {}, {keys} values of {VALUE_BYTES} B", combination.name));
        let cells = scans::CELLS.map(|(workload, distribution, _)| (workload, Some(distribution)));
        let rates = rates(&preset, combination, Kind::Ordered, &cells, keys)?;
        ordered.push(scans::Rates::try_from(rates).expect("a rate of each cell"));
    }
    let [slabs, logs, slabs_kept, _, slabs_full, _] = &found[..] else { return Ok(()) };
    outcome.checks.extend(designs(slabs, logs));
    outcome.checks.extend(levels(slabs, slabs_kept));
    outcome.checks.extend(sections(slabs_kept, slabs_full));
    outcome.checks.extend(scans::designs(&ordered));
    outcome.checks.extend(scans::levels(&ordered));
    for check in &mut outcome.checks[first..] {
        check.what = format!("modelled: {}", check.what);
    }
    outcome.size("keys, modelled", keys);
    outcome.note += &format!(
        " Modelled: {}; {}; one worker, which collects: each update bears its part of all \
         rounds so far, which come after more operations than a cell has. A kept hash table is read a line a lookup: a \
         tree's reads depend on one another, and cost the paper more.",
        label(),
        label_of_ordered(),
    );
    outcome.figures.push(drawn("YCSB on the modelled server", CELLS.map(|(.., name)| name), &COMBINATIONS, &found));
    let title = "YCSB on ordered maps on the modelled server";
    outcome.figures.push(drawn(title, scans::CELLS.map(|(.., name)| name), &scans::COMBINATIONS, &ordered));
    Ok(())
}

/// Million operations a second of each cell, all on one map.
fn rates(
    preset: &Preset,
    combination: &Combination,
    kind: Kind,
    cells: &[(Workload, Option<Distribution>)],
    keys: u64,
) -> Result<Vec<f64>> {
    let options = MapOptions { persist: combination.persist, kind, ..options(combination.design, 1) };
    let mut map = ModelledMap::new(preset, super::ROOM * keys, VALUE_BYTES, options)?;
    map.fill(keys)?;
    let collector = Collector::of(&map);
    let update = map.update();
    collector.million_s(&mut map, UPDATED * keys, update)?;
    let mut all = Vec::new();
    let mut records = keys;
    for (seed, (workload, distribution)) in (1..).zip(cells) {
        let distribution = distribution.unwrap_or(Distribution::Latest);
        let ycsb = Ycsb::new(mix(*workload), distribution, records, VALUE_BYTES, seed);
        // A scan is worth many operations.
        let part = if *workload == Workload::E { 32 } else { 4 };
        collector.million_s(&mut map, keys / part, ycsb.from(0))?;
        all.push(collector.million_s(&mut map, keys / part / 2, ycsb.from(keys / part))?);
        records = ycsb.records();
    }
    Ok(all)
}

fn mix(workload: Workload) -> Mix {
    match workload {
        Workload::A => Mix { updates: 50, ..Mix::default() },
        Workload::B => Mix { updates: 5, ..Mix::default() },
        Workload::D => Mix { inserts: 5, ..Mix::default() },
        Workload::E => Mix { inserts: 5, scans: 95, ..Mix::default() },
        _ => Mix::default(),
    }
}

fn drawn<const N: usize>(
    title: &str,
    cells: [&str; N],
    combinations: &[Combination],
    rates: &[[f64; N]],
) -> Figure {
    let figure = Figure::new(title, "workload", "million a second", FigureKind::Bars).over(cells);
    combinations.iter().zip(rates).fold(figure, |figure, (combination, rates)| figure.with(combination.name, *rates))
}
