//! `kv-flush`: values written back at once, or kept in persistent caches (paper 000, 2.5, figure 2.7).
//!
//! YCSB C and A on slabs with the least persistence, all cores of a socket, caches that survive (eADR). The
//! lines of a new value are written back at once, and the fence waits for them; or they are kept; or the
//! map decides by itself (*auto*). Caches are full of what the workload leaves before it is measured;
//! C comes first, since nothing is dirty then.

use super::{Check, Figure, Form, Outcome, Result, Row, Run};
use crate::reproduce::modelled::{
    ModelledMap, Ran, all_threads, drawn, keys_beyond_caches, label, options, preset, ycsb,
};
use terrace_machine::Preset;
use terrace_memory::Domain;
use terrace_store::{Flush, MapOptions, ValueDesign};
use terrace_workload::ycsb::Distribution;

pub(super) const ROW: Row = Row {
    id: "kv-flush",
    source: "000 section 4.3, figure 2.7",
    runs_on: "model optane-000",
    must_show: "flushing >= 1.3 times keeping at 1 KB uniform; keeping ahead by <= 14 % and for small Zipfian values alone; no effect on YCSB C",
    run,
};

const FLUSHED: f64 = 1.3;
/// How far ahead keeping may be, and from which to which ratio the two count as equal.
const KEPT: f64 = 1.14;
const EQUAL: [f64; 2] = [0.95, 1.05];
/// Values from here on are not small.
const LARGE: usize = 1024;

/// When items are written back, and what figures call it.
const WAYS: [(Flush, &str); 3] =
    [(Flush::Eager, "flushed"), (Flush::Keep, "kept"), (Flush::Auto, "auto")];
/// Choice of keys, of 100 operations those that update, the operations that fill the caches and those
/// that are measured, in sixteenths of the keys, and what figures call it.
const LOADS: [(Distribution, u64, [u64; 2], &str); 3] = [
    (Distribution::Uniform, 0, [4, 1], "C uniform"),
    (Distribution::Uniform, 50, [6, 2], "A uniform"),
    (Distribution::ZIPFIAN, 50, [4, 2], "A Zipf"),
];
/// Where they are.
const C: usize = 0;
const A_UNIFORM: usize = 1;
const A_ZIPF: usize = 2;

/// Runs by load.
type Loads = [Ran; LOADS.len()];
/// By way.
type Ways = [Loads; WAYS.len()];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let preset = preset();
    let sizes: &[usize] = run.size(&[64, 128, 256, 512, 1024], &[64, 256, 1024]);
    let mut found = Vec::new();
    for &value_bytes in sizes {
        let keys = run.size(10_000_000, keys_beyond_caches(&preset, all_threads(&preset), value_bytes));
        let mut ways = Vec::new();
        for (flush, name) in WAYS {
            (run.tell)(&format!("{name}, {keys} values of {value_bytes} B"));
            ways.push(measure(&preset, flush, keys, value_bytes)?);
        }
        found.push([ways[0], ways[1], ways[2]]);
    }
    Ok(judge(&preset, sizes, &found))
}

fn measure(preset: &Preset, flush: Flush, keys: u64, value_bytes: usize) -> Result<Loads> {
    let threads = all_threads(preset);
    let options = MapOptions { domain: Domain::Eadr, flush, ..options(ValueDesign::Slab, threads) };
    let mut map = ModelledMap::new(preset, 3 * keys / 2, value_bytes, options)?;
    map.fill(keys)?;
    let mut loads = Vec::new();
    for (distribution, updates, parts, _) in LOADS {
        let choices = drawn(distribution, keys);
        let [before, measured] = parts.map(|part| part * keys / 16 / threads as u64);
        map.in_turn(threads, before, ycsb(&choices, updates, value_bytes, 0))?;
        loads.push(map.in_turn(threads, measured, ycsb(&choices, updates, value_bytes, before))?);
    }
    Ok([loads[0], loads[1], loads[2]])
}

fn judge(preset: &Preset, sizes: &[usize], found: &[Ways]) -> Outcome {
    let mut outcome = Outcome::default();
    let over = |ways: &Ways, [a, b]: [usize; 2], load: usize| {
        ways[a][load].million_s() / ways[b][load].million_s()
    };
    let kept_over_flushed = |load: usize| found.iter().map(move |ways| over(ways, [1, 0], load));
    let most = |ratios: &mut dyn Iterator<Item = f64>| ratios.fold(f64::NAN, f64::max);
    let large = || sizes.iter().position(|size| *size == LARGE).map(|size| &found[size]);
    let at_large = |load: usize| large().map_or(f64::NAN, |ways| over(ways, [0, 1], load));
    outcome.checks.extend([
        Check::at_least("A uniform, flushed over kept, 1024 B", "1.5", at_large(A_UNIFORM), FLUSHED),
        Check::at_most("A uniform, kept over flushed, the largest of the sizes", "1", most(&mut kept_over_flushed(A_UNIFORM)), EQUAL[1]),
        Check::at_most("A Zipfian, kept over flushed, the largest of the sizes", "up to 1.14", most(&mut kept_over_flushed(A_ZIPF)), KEPT),
        Check::at_least("A Zipfian, flushed over kept, 1024 B", "above 1", at_large(A_ZIPF), EQUAL[0]),
    ]);
    for (size, ways) in sizes.iter().zip(found) {
        let what = format!("C, kept over flushed, {size} B");
        outcome.checks.push(Check::within(what, "1", over(ways, [1, 0], C), EQUAL[0], EQUAL[1]));
    }
    outcome.size("threads", all_threads(preset));
    outcome.size("values", format!("{sizes:?} B"));
    outcome.size("keys", "as many as fill the caches of a socket twice");
    let better = |ways: &Ways, load: usize| {
        let best = ways[0][load].million_s().max(ways[1][load].million_s());
        ways[2][load].million_s() / best
    };
    let autos = found.iter().flat_map(|ways| [better(ways, A_UNIFORM), better(ways, A_ZIPF)]);
    let amplification = |way: usize| {
        let all = found.iter().map(|ways| format!("{:.1}", ways[way][A_UNIFORM].pmem.write_amplification()));
        all.collect::<Vec<_>>().join("/")
    };
    outcome.note = format!(
        "{}. Operations run to their end one by one: nobody waits at a hot key's lock. On A uniform the medium \
         writes {} bytes for each that leaves the caches if flushed, {} if kept ({sizes:?} B): lines that are \
         kept leave one by one. On A Zipfian a wait for a write-back weighs more here than in the paper, whose \
         index takes most of an operation, and so does sparing it. Auto comes to {:.2} of the better of the two at the least.",
        label(),
        amplification(0),
        amplification(1),
        autos.fold(f64::NAN, f64::min),
    );
    for (load, (.., name)) in LOADS.iter().enumerate() {
        let title = format!("YCSB {name} on slabs");
        let mut figure =
            Figure::new(&title, "value, B", "million a second", Form::Lines).over(sizes);
        for (way, (.., name)) in WAYS.iter().enumerate() {
            figure = figure.with(name, found.iter().map(|ways| ways[way][load].million_s()));
        }
        outcome.figures.push(figure);
    }
    outcome
}
