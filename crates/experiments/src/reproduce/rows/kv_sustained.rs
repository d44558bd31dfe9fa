//! `kv-sustained`: updates and deletes for as long as one likes (Wu, figures 2.1 to 2.4).
//!
//! In logs what is written must be collected at some time. Here the collector's queue is bounded and
//! kept full: the worker looks after every few operations whether more logs are due than the bound (a
//! sixteenth of all) and collects before it goes on, on its own processor. Slabs have nothing to
//! collect. The time of an operation is all of the worker's processor time over the operations.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::measure::{Samples, ns_per_operation};
use crate::reproduce::modelled::{self, ModelledMap, collecting, keys_beyond_caches};
use crate::reproduce::emulated::{DESIGNS, LABEL, Emulated};
use terrace_machine::Preset;
use terrace_store::ValueDesign;

pub(super) const ROW: Row = Row {
    id: "kv-sustained",
    source: "Wu, figures 2.1 to 2.4",
    runs_on: "native (emulated medium) and model optane-000",
    must_show: "slabs over logs >= 1.5 on sustained updates (paper 2.2), >= 2 on deletes (paper 4.5)",
    run,
};

const UPDATES: f64 = 1.5;
const DELETES: f64 = 2.0;
/// Values of the modelled half.
const MODELLED_BYTES: usize = 256;
/// Windows of half as many updates as there are keys.
const WINDOWS: usize = 5;

/// One design at one size of values.
struct Cost {
    update_ns: f64,
    delete_ns: f64,
    /// Items the collector moved for each update measured.
    moved: f64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let keys = run.size(10_000_000, 300_000);
    // Ten million values of 1 KB, and as much again that waits for the collector, are left out.
    let sizes: &[usize] = if run.full { &[64, 128, 256, 512] } else { &[64, 256, 1024] };
    let mut costs: [Vec<Cost>; 2] = Default::default();
    for &value_bytes in sizes {
        for (costs, (design, name)) in costs.iter_mut().zip(DESIGNS) {
            (run.tell)(&format!("{name}, values of {value_bytes} B"));
            costs.push(cost(design, keys, value_bytes)?);
        }
    }
    let mut outcome = judge(keys, sizes, &costs);
    let preset = modelled::preset();
    let keys = run.size(10_000_000, keys_beyond_caches(&preset, 1, MODELLED_BYTES));
    let mut costs = Vec::new();
    for (design, name) in DESIGNS {
        (run.tell)(&format!("modelled: {name}, {keys} values of {MODELLED_BYTES} B"));
        costs.push(modelled_cost(&preset, design, keys)?);
    }
    judge_modelled(&mut outcome, keys, &costs);
    Ok(outcome)
}

/// The same in virtual time, by one thread.
fn modelled_cost(preset: &Preset, design: ValueDesign, keys: u64) -> Result<Cost> {
    let (bytes, options) = (MODELLED_BYTES, modelled::options(design, 1));
    let mut map = ModelledMap::new(preset, keys * 5 / 2, bytes, options)?;
    map.fill(keys)?;
    let updating = |map: &ModelledMap| collecting(map.update(), bytes);
    map.machine.clone().free_of_charge(|| map.in_turn(1, 3 * keys, updating(&map)))?;
    map.in_turn(1, keys / 4, updating(&map))?;
    let moved_before = map.map.stats().moved_bytes;
    let updates = map.in_turn(1, keys, updating(&map))?;
    let moved_bytes = map.map.stats().moved_bytes - moved_before;
    let deletes = map.in_turn(1, keys, collecting(map.delete(), bytes))?;
    let moved = moved_bytes as f64 / (bytes + 16) as f64 / keys as f64;
    Ok(Cost { update_ns: updates.ns(), delete_ns: deletes.ns(), moved })
}

fn judge_modelled(outcome: &mut Outcome, keys: u64, costs: &[Cost]) {
    let [slabs, logs] = costs else { return };
    let what = |operation| {
        format!("modelled: sustained {operation} a second, slabs over logs, {MODELLED_BYTES} B")
    };
    let (updates, deletes) = (logs.update_ns / slabs.update_ns, logs.delete_ns / slabs.delete_ns);
    outcome.checks.extend(Check::at_least(what("updates"), "up to 2.2", updates, UPDATES).and_order());
    outcome.checks.extend(Check::at_least(what("deletes"), "up to 4.5", deletes, DELETES).and_order());
    outcome.size("keys, modelled", keys);
    outcome.note += &format!(
        " Modelled: {}; an item moved is charged as a write; one thread, which collects itself: an update takes \
         {:.0} ns in slabs and {:.0} in logs, a delete {:.0} and {:.0}; logs moved {:.2} items an update.",
        modelled::label(),
        slabs.update_ns,
        logs.update_ns,
        slabs.delete_ns,
        logs.delete_ns,
        logs.moved
    );
}

fn cost(design: ValueDesign, keys: u64, value_bytes: usize) -> Result<Cost> {
    let mut map = Emulated::new(keys * 5 / 2, value_bytes, Emulated::options(design))?;
    map.fill(keys)?;
    // Until as many logs are due at any time as will be.
    map.update_and_collect(3 * keys)?;
    let moved_before = map.map.stats().moved_bytes;
    let mut samples = Samples::default();
    for _ in 0..WINDOWS {
        samples.push(ns_per_operation(keys / 2, || map.update_and_collect(keys / 2))?);
    }
    let moved_bytes = map.map.stats().moved_bytes - moved_before;
    let updates = (WINDOWS as u64 * (keys / 2)) as f64;
    let delete_ns = ns_per_operation(keys, || map.delete_all_and_collect())?;
    let moved = moved_bytes as f64 / (value_bytes + 24) as f64 / updates;
    Ok(Cost { update_ns: samples.median(), delete_ns, moved })
}

fn judge(keys: u64, sizes: &[usize], [slabs, logs]: &[Vec<Cost>; 2]) -> Outcome {
    let ratios = |ns: fn(&Cost) -> f64| -> Vec<f64> {
        slabs.iter().zip(logs).map(|(slabs, logs)| ns(logs) / ns(slabs)).collect()
    };
    let largest = |ratios: &[f64]| ratios.iter().copied().fold(f64::NAN, f64::max);
    let (updates, deletes) = (ratios(|c| c.update_ns), ratios(|c| c.delete_ns));
    let over = "slabs over logs, the largest of the sizes of values";
    let mut outcome = Outcome::default();
    let what = format!("sustained updates a second, {over}");
    outcome.checks.extend(Check::at_least(what, "up to 2.2", largest(&updates), UPDATES).and_order());
    let what = format!("sustained deletes a second, {over}");
    outcome.checks.extend(Check::at_least(what, "up to 4.5", largest(&deletes), DELETES).and_order());
    outcome.size("keys", keys);
    outcome.size("values", format!("{sizes:?} B"));
    outcome.size("windows", format!("{WINDOWS} of {} updates", keys / 2));
    let moved: Vec<String> = logs.iter().map(|cost| format!("{:.2}", cost.moved)).collect();
    outcome.note = format!(
        "{LABEL}; one worker, collector on the same thread, its queue full (one log in 16 due). Logs \
         moved {} items an update. The index is a hash table of about one cache miss a lookup, where \
         the paper's is a tree of 1064 ns: the collector, whose work is lookups, is cheaper here, and \
         so the gap is smaller. Deletes end with every key gone.",
        moved.join(", ")
    );
    for (title, ns) in [
        ("Sustained updates", (|cost| cost.update_ns) as fn(&Cost) -> f64),
        ("Sustained deletes", |cost| cost.delete_ns),
    ] {
        let million = |costs: &[Cost]| costs.iter().map(|c| 1e3 / ns(c)).collect::<Vec<_>>();
        outcome.figures.push(
            Figure::new(title, "value, B", "million a second", FigureKind::Bars)
                .over(sizes)
                .with("slabs", million(slabs))
                .with("logs", million(logs)),
        );
    }
    outcome
}
