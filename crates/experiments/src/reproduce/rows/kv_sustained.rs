//! `kv-sustained`: updates and deletes for as long as one likes (paper 000, A3, A9, figures 2.3, 2.4).
//!
//! In logs what is written must be collected at some time. Here the collector's queue is bounded and
//! kept full: the worker looks after every few operations whether more logs are due than the bound (a
//! sixteenth of all) and collects before it goes on, on its own processor. Slabs have nothing to
//! collect. The time of an operation is all of the worker's processor time over the operations.

use super::{Check, Figure, Form, Outcome, Result, Row, Run};
use crate::reproduce::measure::{Samples, ns_per_operation};
use crate::reproduce::stand_in::{DESIGNS, LABEL, StandIn};
use terrace_store::ValueDesign;

pub(super) const ROW: Row = Row {
    id: "kv-sustained",
    source: "000 section 4.2",
    runs_on: "native (stand-in); model optane to follow",
    must_show: "slabs over logs >= 1.5 on sustained updates (paper 2.2), >= 2 on deletes (paper 4.5)",
    run,
};

const UPDATES: f64 = 1.5;
const DELETES: f64 = 2.0;
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
    Ok(judge(keys, sizes, &costs))
}

fn cost(design: ValueDesign, keys: u64, value_bytes: usize) -> Result<Cost> {
    let mut map = StandIn::new(keys * 5 / 2, value_bytes, StandIn::options(design))?;
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
    outcome.checks.push(Check::at_least(
        format!("sustained updates a second, {over}"),
        "up to 2.2",
        largest(&updates),
        UPDATES,
    ));
    outcome.checks.push(Check::at_least(
        format!("sustained deletes a second, {over}"),
        "up to 4.5",
        largest(&deletes),
        DELETES,
    ));
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
            Figure::new(title, "value, B", "million a second", Form::Bars)
                .over(sizes)
                .with("slabs", million(slabs))
                .with("logs", million(logs)),
        );
    }
    outcome
}
