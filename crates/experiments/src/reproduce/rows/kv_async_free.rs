//! `kv-async-free`: what logs gain in bursts by not freeing (Wu, chapter 2, asynchronous deletion).
//!
//! A burst is half as many updates as there are keys: no log is half dead at its end, so the collector
//! never runs. Logs have then freed nothing. Slabs free every superseded slot, by a write-back and a
//! fence of its own; with deferred frees they too leave that for later (`Laboratory::deferred_frees`),
//! and if the paper is right the lead of logs goes with it. Beside the question: slabs that defer 64
//! frees at a time and pay for them within the burst.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::measure::{Samples, ns_per_operation};
use crate::reproduce::modelled::{self, ModelledMap, keys_beyond_caches};
use crate::reproduce::emulated::{LABEL, Emulated};
use terrace_store::laboratory::Laboratory;
use terrace_store::{MapOptions, ValueDesign};

pub(super) const ROW: Row = Row {
    id: "kv-async-free",
    source: "Wu, chapter 2, asynchronous deletion",
    runs_on: "native (emulated medium) and model optane-000",
    must_show: "slabs with deferred frees close >= 60 % of the burst gap to logs",
    run,
};

const CLOSED: f64 = 0.6;
const REPEATS: usize = 5;
const BATCH: usize = 64;
/// Values of the modelled half.
const MODELLED_BYTES: usize = 128;

/// A design, how many frees a writer defers, and what figures call it.
const VARIANTS: [(ValueDesign, usize, &str); 4] = [
    (ValueDesign::Slab, 0, "slabs"),
    (ValueDesign::Slab, BATCH, "slabs, 64 frees at a time"),
    (ValueDesign::Slab, usize::MAX, "slabs, frees after the burst"),
    (ValueDesign::Log, 0, "logs"),
];

/// Nanoseconds an update, of each variant.
type Costs = [f64; 4];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let keys = run.size(10_000_000, 250_000);
    let sizes: &[usize] = if run.full { &[64, 128, 256, 512] } else { &[64, 128, 256] };
    let mut costs = Vec::new();
    let mut widest: f64 = 0.0;
    for &value_bytes in sizes {
        let mut samples: [Samples; 4] = Default::default();
        for repeat in 1..=REPEATS {
            (run.tell)(&format!("values of {value_bytes} B, run {repeat} of {REPEATS}"));
            for (samples, (design, deferred_frees, _)) in samples.iter_mut().zip(VARIANTS) {
                samples.push(burst(design, deferred_frees, keys, value_bytes)?);
            }
        }
        widest = samples.iter().map(Samples::spread).fold(widest, f64::max);
        costs.push(samples.each_ref().map(Samples::median));
    }
    let mut outcome = judge(keys, sizes, &costs, widest);
    modelled_half(run, &mut outcome)?;
    Ok(outcome)
}

/// The same in virtual time: by one thread, and by all cores of a socket.
fn modelled_half(run: &Run<'_>, outcome: &mut Outcome) -> Result<()> {
    let preset = modelled::preset();
    let threads = modelled::all_threads(&preset);
    let keys = run.size(10_000_000, keys_beyond_caches(&preset, threads, MODELLED_BYTES));
    let [mut alone, mut all, mut media, mut read] = [Costs::default(); 4];
    for (number, (design, deferred_frees, name)) in VARIANTS.iter().enumerate() {
        (run.tell)(&format!("modelled: {name}, {keys} values of {MODELLED_BYTES} B"));
        let options =
            MapOptions { laboratory: freeing(*deferred_frees), ..modelled::options(*design, threads) };
        let mut map = ModelledMap::new(&preset, 2 * keys, MODELLED_BYTES, options)?;
        map.fill(keys)?;
        map.in_turn(threads, keys / 4 / threads as u64, map.update())?;
        let ran = map.in_turn(threads, keys / 8 / threads as u64, map.update())?;
        (all[number], media[number]) = (ran.ns(), ran.media_bytes());
        let ran = map.in_turn(1, keys / 64, map.update())?;
        (alone[number], read[number]) = (ran.ns(), ran.read_bytes());
    }
    for (costs, who) in [(&alone, "one thread"), (&all, "all cores")] {
        let what = format!("modelled: part of the burst gap that deferred frees close, {MODELLED_BYTES} B, {who}");
        let check = Check::at_least(what, "most of it", closed(costs, 2), CLOSED);
        outcome.checks.extend(check.and_order_from(0.0));
    }
    outcome.size("keys, modelled", keys);
    let lead = |costs: &Costs| format!("{:.0} %", 100.0 * (costs[0] / costs[3] - 1.0));
    outcome.note += &format!(
        " Modelled: {}. Logs are ahead by {} with one thread and by {} with all cores of a socket, which bring \
         the DIMMs to their limit: there the bytes decide that an update writes to the medium, {:.0} in slabs, \
         {:.0} if they free after the burst, and {:.0} in logs. What deferring cannot close is that slots \
         are anywhere and logs are not. And it costs something: one thread reads {:.0} B of persistent memory for \
         an update in slabs and {:.0} B if they free after the burst, since a slot that is freed at once is \
         written again while the caches have it, and a fresh one is read first to be stored to.",
        modelled::label(),
        lead(&alone),
        lead(&all),
        media[0],
        media[2],
        media[3],
        read[0],
        read[2],
    );
    Ok(())
}

fn burst(
    design: ValueDesign,
    deferred_frees: usize,
    keys: u64,
    value_bytes: usize,
) -> Result<f64> {
    let options = MapOptions { laboratory: freeing(deferred_frees), ..Emulated::options(design) };
    let mut map = Emulated::new(keys * 8 / 5, value_bytes, options)?;
    map.fill(keys)?;
    ns_per_operation(keys / 2, || map.update(keys / 2))
}

fn freeing(deferred_frees: usize) -> Laboratory {
    Laboratory { deferred_frees, ..Laboratory::default() }
}

/// The part of the way in throughput from slabs to logs that a variant goes; none if there is no way.
fn closed(costs: &Costs, variant: usize) -> f64 {
    let [slabs, logs] = [1.0 / costs[0], 1.0 / costs[3]];
    if logs > slabs { (1.0 / costs[variant] - slabs) / (logs - slabs) } else { f64::NAN }
}

fn judge(keys: u64, sizes: &[usize], costs: &[Costs], widest: f64) -> Outcome {
    let mut outcome = Outcome::default();
    for (value_bytes, costs) in sizes.iter().zip(costs) {
        let what = format!("part of the burst gap to logs that deferred frees close, {value_bytes} B");
        let check = Check::at_least(what, "most of it", closed(costs, 2), CLOSED);
        outcome.checks.extend(check.and_order_from(0.0));
    }
    outcome.size("keys", keys);
    outcome.size("burst", format!("{} updates", keys / 2));
    outcome.size("repeats", REPEATS);
    let percent = |number: f64| format!("{:.0} %", 100.0 * number);
    let lead: Vec<_> = costs.iter().map(|costs| percent(costs[0] / costs[3] - 1.0)).collect();
    let batched: Vec<_> = costs.iter().map(|costs| percent(closed(costs, 1))).collect();
    outcome.note = format!(
        "{LABEL}. Logs are ahead of slabs by {} at values of {sizes:?} B (paper up to 25 %). Frees of {BATCH} \
         slots behind one fence, paid within the burst, close {} of that. What is left between deferring slabs \
         and logs is not freeing: logs write one item behind the other and ask for the lines ahead. \
         Medians of {REPEATS} maps each (widest spread {}).",
        lead.join(", "),
        batched.join(", "),
        percent(widest)
    );
    let mut figure =
        Figure::new("Updates in a burst", "value, B", "million a second", FigureKind::Bars).over(sizes);
    for (variant, (.., name)) in VARIANTS.iter().enumerate() {
        figure = figure.with(name, costs.iter().map(|costs| 1e3 / costs[variant]));
    }
    outcome.figures.push(figure);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_closed_as_far_as_the_variant_goes_and_none_is_no_number() {
        let costs = [200.0, 150.0, 100.0, 100.0];
        assert_eq!([closed(&costs, 0), closed(&costs, 2)], [0.0, 1.0]);
        assert!((closed(&costs, 1) - 1.0 / 3.0).abs() < 1e-9);
        assert!(closed(&[100.0, 90.0, 80.0, 100.0], 2).is_nan());
        let missed = judge(10, &[64], &[[100.0, 90.0, 80.0, 100.0]], 0.0);
        assert!(!missed.checks[0].pass && missed.checks[0].measured.is_none());
    }
}
