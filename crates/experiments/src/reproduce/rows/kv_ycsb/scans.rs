//! E, which scans in order: on ordered maps, both designs of values, their index in DRAM or kept. B runs on the same
//! maps beside it, since what the paper says of E is said by comparison with B.
//!
//! A scan reads 1 to 100 records (uniform, as YCSB has it), and five operations of a hundred insert; the paper speaks
//! of updates there. Sections are not among them: ordered maps have none.

use super::super::{Check, Figure, FigureKind, Outcome, Result, Run};
use super::{Combination, EQUAL, ROOM, VALUE_BYTES, per_processor_second};
use crate::MapTarget;
use crate::reproduce::error::Error;
use crate::reproduce::measure::Samples;
use crate::reproduce::emulated::Emulated;
use terrace_store::{Kind, MapOptions, Persist, ValueDesign};
use terrace_workload::ycsb::{Bench, Distribution, LoadBy, Settings, Workload};

const REPEATS: usize = 5;
pub(super) const COMBINATIONS: [Combination; 4] = [
    Combination { design: ValueDesign::Slab, persist: Persist::Values, name: "slabs" },
    Combination { design: ValueDesign::Log, persist: Persist::Values, name: "logs" },
    Combination { design: ValueDesign::Slab, persist: Persist::Index, name: "slabs, index kept" },
    Combination { design: ValueDesign::Log, persist: Persist::Index, name: "logs, index kept" },
];
pub(super) const CELLS: [(Workload, Distribution, &str); 4] = [
    (Workload::B, Distribution::Uniform, "B uniform"),
    (Workload::B, Distribution::ZIPFIAN, "B Zipf"),
    (Workload::E, Distribution::Uniform, "E uniform"),
    (Workload::E, Distribution::ZIPFIAN, "E Zipf"),
];

/// Operations a second of processor time, of each cell; a scan is one.
pub(super) type Rates = [f64; CELLS.len()];

/// A loaded map, and the series of runs on it.
struct Loaded {
    target: MapTarget,
    // Beside the target, which uses its memory.
    _emulated: Emulated,
    benches: [Bench; 2],
    samples: [Samples; CELLS.len()],
}

pub(super) fn run(run: &Run<'_>, settings: &Settings, outcome: &mut Outcome) -> Result<()> {
    // At the paper's sizes one map at a time is what this kind of machine holds.
    let together = run.size(1, COMBINATIONS.len());
    let mut rates = Vec::new();
    let mut spread: f64 = 0.0;
    for combinations in COMBINATIONS.chunks(together) {
        let mut loaded = Vec::new();
        for combination in combinations {
            (run.tell)(&format!("ordered, {}: load", combination.name));
            loaded.push(Loaded::new(combination, settings)?);
        }
        for repeat in 1..=REPEATS {
            for (cell, (.., name)) in CELLS.iter().enumerate() {
                (run.tell)(&format!("ordered: {name}, run {repeat} of {REPEATS}"));
                loaded.iter_mut().try_for_each(|loaded| loaded.measure(cell))?;
            }
        }
        for Loaded { samples, .. } in &loaded {
            spread = samples.iter().map(Samples::spread).fold(spread, f64::max);
            rates.push(samples.each_ref().map(Samples::median));
        }
    }
    judge(outcome, &rates, spread);
    Ok(())
}

impl Loaded {
    fn new(combination: &Combination, settings: &Settings) -> Result<Loaded> {
        let options = MapOptions {
            kind: Kind::Ordered,
            persist: combination.persist,
            ..Emulated::options(combination.design)
        };
        let emulated = Emulated::new(settings.records * ROOM, settings.value_bytes, options)?;
        let target = MapTarget::that_collects(emulated.map.clone());
        let bench = |distribution| {
            let settings = Settings { distribution: Some(distribution), ..settings.clone() };
            Bench::new(settings).map_err(|e| Error::Workload(e.into()))
        };
        let benches = [bench(Distribution::Uniform)?, bench(Distribution::ZIPFIAN)?];
        benches[0].load(&target, LoadBy::Puts, &|_| {}).map_err(Error::Workload)?;
        Ok(Loaded { target, _emulated: emulated, benches, samples: Default::default() })
    }

    fn measure(&mut self, cell: usize) -> Result<()> {
        let (workload, distribution, _) = CELLS[cell];
        let bench = &mut self.benches[usize::from(distribution != Distribution::Uniform)];
        let phase = bench.run(&self.target, workload).map_err(Error::Workload)?;
        if !phase.is_sound() {
            let what = format!("{workload}: {} reads missed, {} wrong", phase.misses, phase.bad);
            return Err(Error::Workload(what.into()));
        }
        self.samples[cell].push(per_processor_second(&phase));
        Ok(())
    }
}

fn judge(outcome: &mut Outcome, rates: &[Rates], spread: f64) {
    outcome.checks.extend(designs(rates));
    outcome.note += &format!(
        " E: ordered maps, a B+-tree over the same values (B beside it on the same maps); a scan of 1 to 100 records \
         is one operation, medians of {REPEATS} in turn (widest spread {:.0} %). Ordered maps have no sections.",
        100.0 * spread
    );
    let figure =
        Figure::new(&format!("YCSB on ordered maps, values of {VALUE_BYTES} B"), "workload", "million a second", FigureKind::Bars)
            .over(CELLS.map(|(.., name)| name));
    outcome.figures.push(COMBINATIONS.iter().zip(rates).fold(figure, |figure, (of, rates)| {
        figure.with(of.name, rates.map(|rate| rate / 1e6))
    }));
}

/// What the paper says of slabs and logs on E; nothing where not all combinations ran.
pub(super) fn designs(rates: &[Rates]) -> Vec<Check> {
    let [slabs, logs, ..] = rates else { return Vec::new() };
    let over = "operations a second, slabs over logs";
    let [low, high] = EQUAL;
    vec![
        Check::within(format!("E uniform, {over}"), "as B: equal", slabs[2] / logs[2], low, high),
        Check::at_least(format!("E Zipfian, {over}"), "as B: slabs ahead", slabs[3] / logs[3], 1.0).order(),
    ]
}

/// What it says of an index that is kept, on E beside B.
pub(super) fn levels(rates: &[Rates]) -> Vec<Check> {
    let [slabs, _, kept, _] = rates else { return Vec::new() };
    let lead = |b: usize, e: usize, name: &str| {
        // By less than what counts as equal it is no larger.
        let what = format!("E {name}, the lead of an index in DRAM over one that is kept, by that on B, slabs");
        Check::at_most(what, "smaller", (slabs[e] / kept[e]) / (slabs[b] / kept[b]), EQUAL[1]).order()
    };
    vec![lead(0, 2, "uniform"), lead(1, 3, "Zipfian")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn orderings_other_than_the_papers_are_misses() {
        let passed = |rates: [Rates; 4]| {
            let mut outcome = Outcome::default();
            judge(&mut outcome, &rates, 0.0);
            outcome.checks.iter().map(|check| check.pass).collect::<Vec<_>>()
        };
        let slabs = [2.0, 2.2, 1.0, 1.2];
        let kept = [1.0, 1.1, 0.8, 0.9];
        let pass = |checks: Vec<Check>| checks.iter().map(|check| check.pass).collect::<Vec<_>>();
        let as_told = [slabs, [2.0, 2.0, 1.0, 1.0], kept, kept];
        assert_eq!(passed(as_told), [true; 2]);
        assert_eq!(pass(levels(&as_told)), [true; 2]);
        let more = [2.0, 2.2, 0.4, 0.4];
        let otherwise = [slabs, [1.0, 1.0, 2.0, 2.0], more, more];
        assert_eq!(passed(otherwise), [false; 2]);
        assert_eq!(pass(levels(&otherwise)), [false; 2]);
        assert!(designs(&[]).is_empty() && levels(&[]).is_empty());
    }

    #[test]
    fn e_runs_on_every_ordered_map() {
        let settings = Settings {
            records: 20_000,
            key_bytes: 8,
            value_bytes: VALUE_BYTES,
            duration: Duration::from_millis(20),
            operations: 2_000,
            warm_up: Duration::ZERO,
            ..Settings::default()
        };
        let mut outcome = Outcome::default();
        let small = Run { full: false, calibrations: &[], tell: &|_| {} };
        let start = std::time::Instant::now();
        run(&small, &settings, &mut outcome).expect("it runs");
        println!("{:?}: {:#?}", start.elapsed(), outcome.checks);
        assert_eq!((outcome.checks.len(), outcome.figures.len()), (2, 1));
        let computed = |check: &Check| check.measured.is_some_and(|value| value > 0.0);
        assert!(outcome.checks.iter().all(computed), "{:?}", outcome.checks);
    }
}
