//! `kv-burst`: updates and deletes without a collector (Wu, 2.3, figures 2.1 and 2.3).
//!
//! A burst is an eighth as many operations as there are keys, after twice as many that fill the caches, by
//! all cores of a socket: no log is half dead at its end. Keys are chosen alike; items fill the caches twice.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::modelled::{
    ModelledMap, Ran, all_threads, keys_beyond_caches, label, options, preset,
};
use crate::reproduce::emulated::DESIGNS;
use terrace_machine::Preset;
use terrace_store::ValueDesign;

pub(super) const ROW: Row = Row {
    id: "kv-burst",
    source: "Wu, figures 2.1 and 2.3",
    runs_on: "model optane-000",
    must_show: "logs ahead of slabs in bursts of updates for 64 to 512 B, equal at 1 KB; ahead in bursts of deletes",
    run,
};

const SIZES: [usize; 5] = [64, 128, 256, 512, 1024];
/// From which to which ratio the two count as equal.
const EQUAL: [f64; 2] = [0.95, 1.05];
/// Threads of the figure over threads, and its size of values.
const THREADS: [usize; 5] = [1, 2, 4, 8, 20];
const THREADS_AT: usize = 64;

/// One design at one size of values.
struct Burst {
    updates: Ran,
    deletes: Ran,
    /// Updates by fewer threads.
    fewer: Vec<Ran>,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let preset = preset();
    let mut bursts: [Vec<Burst>; 2] = Default::default();
    for value_bytes in SIZES {
        let keys = run.size(10_000_000, keys_beyond_caches(&preset, all_threads(&preset), value_bytes));
        for (bursts, (design, name)) in bursts.iter_mut().zip(DESIGNS) {
            (run.tell)(&format!("{name}, {keys} values of {value_bytes} B"));
            bursts.push(burst(&preset, design, keys, value_bytes)?);
        }
    }
    Ok(judge(&preset, &bursts))
}

fn burst(preset: &Preset, design: ValueDesign, keys: u64, value_bytes: usize) -> Result<Burst> {
    let threads = all_threads(preset);
    let mut map = ModelledMap::new(preset, 2 * keys, value_bytes, options(design, threads))?;
    map.fill(keys)?;
    let each = |part: u64, threads: usize| keys / part / threads as u64;
    map.in_turn(threads, each(4, threads), map.update())?;
    let updates = map.in_turn(threads, each(8, threads), map.update())?;
    let fewer = THREADS.iter().filter(|_| value_bytes == THREADS_AT);
    let fewer = fewer
        .map(|threads| map.in_turn(*threads, each(128, *threads), map.update()))
        .collect::<Result<_>>()?;
    let deletes = map.in_turn(threads, each(8, threads), map.delete())?;
    Ok(Burst { updates, deletes, fewer })
}

fn judge(preset: &Preset, [slabs, logs]: &[Vec<Burst>; 2]) -> Outcome {
    let mut outcome = Outcome::default();
    let ahead = |of: fn(&Burst) -> &Ran| -> Vec<f64> {
        let pairs = logs.iter().zip(slabs);
        pairs.map(|(logs, slabs)| of(logs).million_s() / of(slabs).million_s()).collect()
    };
    let (updates, deletes) = (ahead(|b| &b.updates), ahead(|b| &b.deletes));
    let last = SIZES.len() - 1;
    for (size, ratio) in SIZES.iter().zip(&updates).take(last) {
        let what = format!("updates a second, logs over slabs, {size} B");
        outcome.checks.push(Check::at_least(what, "up to 1.25", *ratio, 1.0).order());
    }
    let largest = |ratios: &[f64]| ratios.iter().copied().fold(f64::NAN, f64::max);
    let what = "updates a second, logs over slabs, the largest of the sizes";
    outcome.checks.push(Check::about_all(what, "up to 1.25", [1.25; 2], largest(&updates)));
    let what = "updates a second, logs over slabs, 1024 B";
    outcome.checks.push(Check::within(what, "1", updates[last], EQUAL[0], EQUAL[1]));
    let what = "deletes a second, logs over slabs, the largest of the sizes";
    outcome.checks.extend(Check::about_all(what, "up to 1.42", [1.42; 2], largest(&deletes)).and_order());
    outcome.size("threads", all_threads(preset));
    outcome.size("values", format!("{SIZES:?} B"));
    outcome.size("keys", "as many as fill the caches of a socket twice");
    outcome.size("burst", "an eighth as many operations as keys, after twice as many");
    outcome.note = note(slabs, logs);
    for (title, of) in [
        ("Updates in a burst", (|b| &b.updates) as fn(&Burst) -> &Ran),
        ("Deletes in a burst", |b| &b.deletes),
    ] {
        let million = |bursts: &[Burst]| bursts.iter().map(|b| of(b).million_s()).collect::<Vec<_>>();
        outcome.figures.push(
            Figure::new(title, "value, B", "million a second", FigureKind::Lines)
                .over(SIZES)
                .with("slabs", million(slabs))
                .with("logs", million(logs)),
        );
    }
    let by_threads =
        |bursts: &[Burst]| bursts.iter().flat_map(|b| b.fewer.iter().map(Ran::million_s)).collect::<Vec<_>>();
    outcome.figures.push(
        Figure::new("Updates of 64 B in a burst", "threads", "million a second", FigureKind::Lines)
            .over(THREADS)
            .with("slabs", by_threads(slabs))
            .with("logs", by_threads(logs)),
    );
    outcome
}

fn note(slabs: &[Burst], logs: &[Burst]) -> String {
    let list = |bursts: &[Burst], of: fn(&Ran) -> f64| {
        bursts.iter().map(|b| format!("{:.0}", of(&b.updates))).collect::<Vec<_>>().join("/")
    };
    let by_threads = |bursts: &[Burst]| bursts.iter().flat_map(|b| b.fewer.iter().map(Ran::ns)).collect::<Vec<_>>();
    let pairs = by_threads(slabs).into_iter().zip(by_threads(logs));
    let leads: Vec<_> = pairs.map(|(slabs, logs)| format!("{:.0}", 100.0 * (slabs / logs - 1.0))).collect();
    format!(
        "{}. An update writes {} B to the medium in slabs and {} B in logs, {:?} B values. The paper's index \
         is a tree of 1064 ns, this one a hash table of a cache miss or two, so that here all cores of a \
         socket bring the DIMMs to their limit at any size, and the lead of logs is that of the bytes: a slab \
         writes an item to lines of the medium that it fills in part, and the checksum that it clears to one \
         more. At {THREADS_AT} B logs lead by {} % with {THREADS:?} threads: where the DIMMs are not at their limit, \
         by what a clear and its fence take. They could be equal at 1 KB, suspectedly, if a cleared slot were \
         written again at once, when its line is still in the DIMM's buffer; here a slot waits until no reader \
         can hold it.",
        label(),
        list(slabs, Ran::media_bytes),
        list(logs, Ran::media_bytes),
        SIZES,
        leads.join("/"),
    )
}
