//! What keeping more costs in YCSB where the medium is slower than DRAM: slabs on the modelled server, one
//! worker. (What the collector does to logs takes more operations than a model does in a minute; see
//! `kv-sustained`.)

use super::super::{Check, Figure, Form, Outcome, Result, Run};
use crate::reproduce::modelled::{
    ModelledMap, drawn, keys_beyond_caches, label, options, preset, ycsb,
};
use terrace_machine::Preset;
use terrace_store::{MapOptions, Persist, ValueDesign};
use terrace_workload::ycsb::Distribution;

const VALUE_BYTES: usize = 256;
const LEVELS: [(Persist, &str); 3] =
    [(Persist::Values, "slabs"), (Persist::Index, "slabs, index kept"), (Persist::Full, "slabs, sections")];
/// Choice of records, of 100 operations those that update, what figures call it, and how much faster the
/// paper says that an index in DRAM is.
const CELLS: [(Distribution, u64, &str, &str); 6] = [
    (Distribution::Uniform, 0, "C uniform", "1.6"),
    (Distribution::ZIPFIAN, 0, "C Zipf", "1.3"),
    (Distribution::Uniform, 5, "B uniform", "up to 1.5"),
    (Distribution::ZIPFIAN, 5, "B Zipf", "up to 1.8"),
    (Distribution::Uniform, 50, "A uniform", "2"),
    (Distribution::ZIPFIAN, 50, "A Zipf", "2"),
];
/// From here on an index counts as faster.
const FASTER: f64 = 1.1;

/// Operations a second, millions.
type Rates = [f64; CELLS.len()];

pub(super) fn run(run: &Run<'_>, outcome: &mut Outcome) -> Result<()> {
    let preset = preset();
    let keys = run.size(10_000_000, keys_beyond_caches(&preset, 1, VALUE_BYTES));
    let mut found = Vec::new();
    for (persist, name) in LEVELS {
        (run.tell)(&format!("modelled: {name}, {keys} values of {VALUE_BYTES} B"));
        found.push(rates(&preset, persist, keys)?);
    }
    judge(outcome, keys, &found);
    Ok(())
}

fn rates(preset: &Preset, persist: Persist, keys: u64) -> Result<Rates> {
    let options = MapOptions { persist, ..options(ValueDesign::Slab, 1) };
    let mut map = ModelledMap::new(preset, 2 * keys, VALUE_BYTES, options)?;
    map.fill(keys)?;
    let mut rates = Rates::default();
    for (rate, (distribution, updates, ..)) in rates.iter_mut().zip(CELLS) {
        let choices = drawn(distribution, keys);
        map.in_turn(1, keys / 4, ycsb(&choices, updates, VALUE_BYTES, 0))?;
        *rate = map.in_turn(1, keys / 8, ycsb(&choices, updates, VALUE_BYTES, keys / 4))?.million_s();
    }
    Ok(rates)
}

fn judge(outcome: &mut Outcome, keys: u64, found: &[Rates]) {
    let [values, index, full] = found else { return };
    for (cell, (.., name, paper)) in CELLS.iter().enumerate() {
        let what = format!("modelled: {name}, index in DRAM over index kept, slabs");
        outcome.checks.push(Check::at_least(what, paper, values[cell] / index[cell], FASTER));
    }
    let last = CELLS.len() - 2;
    let what = "modelled: A uniform, index kept over sections, slabs";
    outcome.checks.push(Check::at_least(what, "up to 11", index[last] / full[last], 1.0));
    outcome.size("keys, modelled", keys);
    outcome.note += &format!(
        " Modelled: {}; one worker. An index that is kept is read from persistent memory, a line a lookup: a \
         tree's reads depend on one another, and cost the paper more.",
        label()
    );
    let places = CELLS.map(|(.., name, _)| name);
    let mut figure =
        Figure::new("YCSB on the modelled server", "workload", "million a second", Form::Bars).over(places);
    for (rates, (_, name)) in found.iter().zip(LEVELS) {
        figure = figure.with(name, *rates);
    }
    outcome.figures.push(figure);
}
