//! `kv-ycsb`: YCSB on both designs of values (Wu, figure 2.6).
//!
//! A, B and C with uniform and with Zipfian choice, D with its own; values of 256 B, one worker, which
//! collects on its own processor when the queue is full. E scans in key order and runs on ordered maps.
//! Each design runs with only its values persistent (recovery rebuilds the index and the allocation metadata),
//! with a persistent index, and with every operation a section.
//!
//! The paper's text speaks of equal throughput and of leads without figures for most cells; what
//! counts as equal here is a tenth.

mod modelled_half;
mod scans;

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::MapTarget;
use crate::reproduce::error::Error;
use crate::reproduce::measure::Samples;
use crate::reproduce::emulated::{LABEL, Emulated};
use std::time::Duration;
use terrace_store::{MapOptions, Persist, ValueDesign};
use terrace_workload::ycsb::{Bench, Distribution, LoadBy, PhaseReport, Settings, Workload};

pub(super) const ROW: Row = Row {
    id: "kv-ycsb",
    source: "Wu, figure 2.6",
    runs_on: "native (emulated medium) and model optane-000",
    must_show: "slabs ahead on A, more so if Zipfian, and on Zipfian B; equal on uniform B, D, E and on C; a persistent index slower, sections slower yet",
    run,
};

const VALUE_BYTES: usize = 256;
const REPEATS: usize = 5;
/// Memory of a map, in records: what is loaded, what D inserts, and what waits for the collector.
const ROOM: u64 = 3;
/// How values are kept and what beside them. The first two are what the paper compares as designs.
const COMBINATIONS: [Combination; 6] = [
    Combination { design: ValueDesign::Slab, persist: Persist::Values, name: "slabs" },
    Combination { design: ValueDesign::Log, persist: Persist::Values, name: "logs" },
    Combination { design: ValueDesign::Slab, persist: Persist::Index, name: "slabs, index kept" },
    Combination { design: ValueDesign::Log, persist: Persist::Index, name: "logs, index kept" },
    Combination { design: ValueDesign::Slab, persist: Persist::Full, name: "slabs, sections" },
    Combination { design: ValueDesign::Log, persist: Persist::Full, name: "logs, sections" },
];
/// From which to which ratio two designs count as equal.
const EQUAL: [f64; 2] = [0.9, 1.1];

/// A workload, its choice of records (its own if none), and what figures call it.
const CELLS: [(Workload, Option<Distribution>, &str); 7] = [
    (Workload::A, Some(Distribution::Uniform), "A uniform"),
    (Workload::A, Some(Distribution::ZIPFIAN), "A Zipf"),
    (Workload::B, Some(Distribution::Uniform), "B uniform"),
    (Workload::B, Some(Distribution::ZIPFIAN), "B Zipf"),
    (Workload::C, Some(Distribution::Uniform), "C uniform"),
    (Workload::C, Some(Distribution::ZIPFIAN), "C Zipf"),
    (Workload::D, None, "D latest"),
];

/// Operations a second of processor time, of each cell.
type Rates = [f64; CELLS.len()];

impl YcsbSamples {
    fn rates(&self) -> Rates {
        self.samples.each_ref().map(Samples::median)
    }
}

/// How values are kept, what is kept beside them, and what figures call the two.
#[derive(Clone, Copy)]
struct Combination {
    design: ValueDesign,
    persist: Persist,
    name: &'static str,
}

/// A loaded map, and the series of runs on it.
struct Loaded {
    target: MapTarget,
    // Beside the target, which uses its memory.
    _emulated: Emulated,
    benches: Vec<(Option<Distribution>, Bench)>,
    found: YcsbSamples,
}

/// What the runs on one map came to.
#[derive(Clone, Default)]
struct YcsbSamples {
    samples: [Samples; CELLS.len()],
    collected: [Collected; CELLS.len()],
    /// By updates alone before the cells, once the queue was full.
    updates: Collected,
}

/// Bytes that clients wrote, and bytes that the collector moved meanwhile.
#[derive(Clone, Copy, Default)]
struct Collected {
    written_bytes: u64,
    moved_bytes: u64,
}

impl Collected {
    fn add(&mut self, more: Collected) {
        self.written_bytes += more.written_bytes;
        self.moved_bytes += more.moved_bytes;
    }

    /// Of each byte that clients wrote.
    fn moved(&self) -> f64 {
        self.moved_bytes as f64 / self.written_bytes as f64
    }
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let settings = Settings {
        records: run.size(10_000_000, 250_000),
        key_bytes: 8,
        value_bytes: VALUE_BYTES,
        duration: Duration::from_millis(run.size(1_000, 150)),
        // What is drawn ahead for a run takes time as well.
        operations: run.size(4_000_000, 500_000),
        warm_up: Duration::ZERO,
        ..Settings::default()
    };
    // At the paper's sizes one map at a time is what this kind of machine holds.
    let together = run.size(1, COMBINATIONS.len());
    let mut found = Vec::new();
    for combinations in COMBINATIONS.chunks(together) {
        let mut loaded = Vec::new();
        for combination in combinations {
            (run.tell)(&format!("{}: load", combination.name));
            loaded.push(load(combination, &settings)?);
        }
        for repeat in 1..=REPEATS {
            for (cell, (.., name)) in CELLS.iter().enumerate() {
                (run.tell)(&format!("{name}, run {repeat} of {REPEATS}"));
                loaded.iter_mut().try_for_each(|loaded| loaded.measure(cell))?;
            }
        }
        found.extend(loaded.into_iter().map(|loaded| loaded.found));
    }
    let mut outcome = judge(&settings, &found);
    scans::run(run, &settings, &mut outcome)?;
    modelled_half::run(run, &mut outcome)?;
    Ok(outcome)
}

fn load(combination: &Combination, settings: &Settings) -> Result<Loaded> {
    let options =
        MapOptions { persist: combination.persist, ..Emulated::options(combination.design) };
    let emulated = Emulated::new(settings.records * ROOM, settings.value_bytes, options)?;
    let target = MapTarget::that_collects(emulated.map.clone());
    let mut benches = Vec::new();
    for distribution in [Some(Distribution::Uniform), Some(Distribution::ZIPFIAN), None] {
        let settings = Settings { distribution, ..settings.clone() };
        let bench = Bench::new(settings).map_err(|e| Error::Workload(e.into()))?;
        if benches.is_empty() {
            bench.load(&target, LoadBy::Puts, &|_| {}).map_err(Error::Workload)?;
        }
        benches.push((distribution, bench));
    }
    let mut loaded = Loaded { target, _emulated: emulated, benches, found: YcsbSamples::default() };
    // Until the collector has as much to do as it will have, and then for a look at that.
    let updated = settings.records * (settings.key_bytes + settings.value_bytes) as u64;
    loaded.update(3 * updated)?;
    loaded.found.updates = loaded.update(updated)?;
    Ok(loaded)
}

impl Loaded {
    fn run(
        &mut self,
        workload: Workload,
        distribution: Option<Distribution>,
    ) -> Result<(PhaseReport, Collected)> {
        let Loaded { target, benches, .. } = self;
        let found = benches.iter_mut().find(|(of, _)| *of == distribution);
        let (_, bench) = found.expect("invariant: there is a bench for every choice of a cell");
        let moved_before = target.map().stats().moved_bytes;
        let phase = bench.run(target, workload).map_err(Error::Workload)?;
        if !phase.is_sound() {
            let what = format!("{workload}: {} reads missed, {} wrong", phase.misses, phase.bad);
            return Err(Error::Workload(what.into()));
        }
        let collected = Collected {
            written_bytes: phase.user_bytes_written,
            moved_bytes: target.map().stats().moved_bytes - moved_before,
        };
        Ok((phase, collected))
    }

    fn measure(&mut self, cell: usize) -> Result<()> {
        let (workload, distribution, _) = CELLS[cell];
        let (phase, collected) = self.run(workload, distribution)?;
        self.found.samples[cell].push(per_processor_second(&phase));
        self.found.collected[cell].add(collected);
        Ok(())
    }

    /// Updates of records chosen alike, `bytes` of them at least.
    fn update(&mut self, bytes: u64) -> Result<Collected> {
        let mut all = Collected::default();
        while all.written_bytes < bytes {
            all.add(self.run(Workload::U, Some(Distribution::Uniform))?.1);
        }
        Ok(all)
    }
}

/// Other programs' turns do not count.
fn per_processor_second(phase: &PhaseReport) -> f64 {
    phase.ops_per_s / phase.processors.own_cores.clamp(0.05, 1.0)
}

fn judge(settings: &Settings, found: &[YcsbSamples]) -> Outcome {
    let mut outcome = Outcome::default();
    let rates: Vec<Rates> = found.iter().map(YcsbSamples::rates).collect();
    // What is kept beside the values is judged on the model alone: DRAM cannot show what it costs on a slower medium.
    outcome.checks = designs(&rates[0], &rates[1]);
    outcome.size("records", settings.records);
    outcome.size("keys and values", format!("{} + {VALUE_BYTES} B", settings.key_bytes));
    outcome.size("memory", format!("{ROOM} times the records"));
    outcome.size("runs", format!("{REPEATS} of at most {} ms", settings.duration.as_millis()));
    outcome.note = note(found, &rates);
    let figure = Figure::new("YCSB, values of 256 B", "workload", "million a second", FigureKind::Bars)
        .over(CELLS.map(|(.., name)| name));
    outcome.figures.push(COMBINATIONS.iter().zip(&rates).fold(figure, |figure, (of, rates)| {
        figure.with(of.name, rates.map(|rate| rate / 1e6))
    }));
    outcome
}

/// What the paper says of slabs and logs.
fn designs(slabs: &Rates, logs: &Rates) -> Vec<Check> {
    let ratio = |cell: usize| slabs[cell] / logs[cell];
    let [low, high] = EQUAL;
    let over = "operations a second, slabs over logs";
    vec![
        Check::at_least(format!("A uniform, {over}"), "slabs ahead", ratio(0), 1.0).order(),
        Check::at_least(format!("A Zipfian, {over}"), "slabs ahead", ratio(1), 1.0).order(),
        Check::at_least("the lead on A Zipfian over that on A uniform", "larger", ratio(1) / ratio(0), 1.0).order(),
        Check::within(format!("B uniform, {over}"), "equal", ratio(2), low, high),
        Check::at_least(format!("B Zipfian, {over}"), "slabs ahead", ratio(3), 1.0).order(),
        Check::within(format!("C uniform, {over}"), "equal", ratio(4), low, high),
        Check::within(format!("C Zipfian, {over}"), "equal", ratio(5), low, high),
        Check::within(format!("D, {over}"), "equal", ratio(6), low, high),
    ]
}

/// What it says of an index in DRAM over one that is kept.
fn levels(values: &Rates, index: &Rates) -> Vec<Check> {
    const PAPER: [&str; 6] = ["about 2", "about 2", "up to 1.5", "up to 1.8", "1.6", "1.3"];
    let check = |cell: usize| {
        let (.., name) = CELLS[cell];
        let what = format!("{name}, operations a second in slabs, index in DRAM over index kept");
        Check::at_least(what, PAPER[cell], values[cell] / index[cell], 1.0).order()
    };
    (0..PAPER.len()).map(check).collect()
}

/// What it says of transactions, on the workloads with updates.
fn sections(index: &Rates, full: &Rates) -> Vec<Check> {
    const PAPER: [&str; 4] =
        ["slower", "slower (22 times below values kept)", "slower", "slower (3.6 times below)"];
    let check = |cell: usize| {
        let (.., name) = CELLS[cell];
        let what = format!("{name}, operations a second in slabs, index kept over sections");
        Check::at_least(what, PAPER[cell], index[cell] / full[cell], 1.0).order()
    };
    (0..PAPER.len()).map(check).collect()
}

fn note(found: &[YcsbSamples], rates: &[Rates]) -> String {
    let samples = found.iter().flat_map(|found| &found.samples);
    let spread = samples.map(Samples::spread).fold(0.0, f64::max);
    let logs = &found[1];
    let moved = |cell: usize| logs.collected[cell].moved();
    let mut note = format!(
        "{LABEL}; one worker, which collects when the queue is full. D inserts and reads the latest, as \
         YCSB has it. Rates are per second of processor time, medians of {REPEATS} in turn (widest spread \
         {:.0} %). For \
         each byte written the collector of logs moved {:.2} B where \
         all operations were updates of records chosen alike, {:.2} B on A uniform, {:.2} B on A Zipfian, \
         {:.2} B on B Zipfian.",
        100.0 * spread,
        logs.updates.moved(),
        moved(0),
        moved(1),
        moved(3),
    );
    let missed = |checks: &[Check]| checks.iter().any(|check| !check.pass);
    let [slabs, logs, kept] = [&rates[0], &rates[1], &rates[2]];
    if missed(&designs(slabs, logs)[3..4]) {
        // One operation of B in twenty writes.
        let bytes = moved(3) * (8 + VALUE_BYTES) as f64 / 20.0;
        note += &format!(" B gives the collector {bytes:.0} B to move for each operation.");
    }
    note + &format!(
        " What is kept beside the values is judged on the model alone: an index lies in DRAM here whether it is kept \
         or not, and C, which only reads it, ran {:.2} times as fast in slabs without.",
        slabs[4] / kept[4]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orderings_other_than_the_papers_are_misses() {
        let passed = |rates: [Rates; 6]| {
            let found = rates.map(|rates| YcsbSamples {
                samples: rates.map(|rate| [rate].into_iter().collect()),
                ..YcsbSamples::default()
            });
            let outcome = judge(&Settings::default(), &found);
            outcome.checks.iter().map(|check| check.pass).collect::<Vec<_>>()
        };
        let [slabs, logs] = [[1.2, 1.5, 1.0, 1.1, 1.0, 1.0, 1.0], [1.0; 7]];
        let slower = slabs.map(|rate: f64| rate / 1.2);
        let slowest = slower.map(|rate: f64| rate / 1.2);
        assert_eq!(passed([slabs, logs, slower, logs, slowest, logs]), [true; 8]);
        let pass = |checks: Vec<Check>| checks.iter().map(|check| check.pass).collect::<Vec<_>>();
        assert_eq!(pass(levels(&slabs, &slower)), [true; 6]);
        assert_eq!(pass(sections(&slower, &slowest)), [true; 4]);
        let wrong = [2.0, 2.5, 2.0, 2.0, 2.0, 0.5, 2.0];
        let faster = logs.map(|rate: f64| rate * 1.2);
        assert_eq!(passed([logs, wrong, logs, logs, faster, logs]), [false; 8]);
        assert_eq!(pass(levels(&logs, &faster)), [false; 6]);
        assert_eq!(pass(sections(&logs, &faster)), [false; 4]);
    }
}
