//! `kv-flush`: values written back at once, or kept in persistent caches (Wu, 2.5, figure 2.7).
//!
//! YCSB C and A on slabs with the least persistence, all cores of a socket, caches that survive (eADR). The
//! lines of a new value are written back at once, and the fence waits for them; or they are kept; or the
//! map decides by itself (*auto*): by what it assumes of persistent memory, or by a profile of the memory it has
//! (*auto by profile*), and that with pre-stores switched off, to see what they are worth. Caches are full of what
//! the workload leaves before it is measured; C comes first, since nothing is dirty then.
//!
//! The same again with the values in DRAM of the same server, as if it survived: a medium without lines of its own,
//! where there is less to be gained by writing back, and a profile is to say so.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::modelled::{
    DRAM, Mix, ModelledMap, PMEM, Ran, Ycsb, all_threads, keys_beyond_caches, label, options, preset,
};
use crate::reproduce::profiled::bandwidths;
use std::sync::Arc;
use terrace_machine::Preset;
use terrace_memory::profile::{Flavour, Measured, MemoryCosts, NodeProfile};
use terrace_memory::{Domain, prestore};
use terrace_store::{MapOptions, ValueDesign};
use terrace_store::laboratory::{Flush, Laboratory};
use terrace_workload::ycsb::Distribution;

pub(super) const ROW: Row = Row {
    id: "kv-flush",
    source: "Wu, figure 2.7",
    runs_on: "model optane-000",
    must_show: "flushing >= 1.3 times keeping at 1 KB uniform; keeping ahead by <= 14 % and for small Zipfian values alone; no effect on YCSB C; auto by profile within 5 % of the better, on a memory where it pays and on one where it does not",
    run,
};

const FLUSHED: f64 = 1.3;
/// How far ahead keeping may be, and from which to which ratio the two count as equal.
const KEPT: f64 = 1.14;
const EQUAL: [f64; 2] = [0.95, 1.05];
/// Values from here on are not small.
const LARGE: usize = 1024;
/// Bytes of values; and memories of the server, what figures call them, and the sizes there of a small run.
const SIZES: &[usize] = &[64, 128, 256, 512, LARGE];
const MEMORIES: [(&str, &str, &[usize]); 2] =
    [(PMEM, "persistent memory", &[64, 256, LARGE]), (DRAM, "DRAM that survives", &[LARGE])];
/// Pieces that are measured for a profile: about as large as items.
const PIECES: [u64; 5] = [64, 128, 256, 512, 1024];

/// When items are written back.
struct Way {
    name: &'static str,
    flush: Flush,
    is_profiled: bool,
    pre_stores: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "flushed", flush: Flush::Eager, is_profiled: false, pre_stores: true },
    Way { name: "kept", flush: Flush::Keep, is_profiled: false, pre_stores: true },
    Way { name: "auto", flush: Flush::Auto, is_profiled: false, pre_stores: true },
    Way { name: "auto by profile", flush: Flush::Auto, is_profiled: true, pre_stores: true },
    Way { name: "the same, pre-stores off", flush: Flush::Auto, is_profiled: true, pre_stores: false },
];
/// Where they are.
const FLUSHING: usize = 0;
const KEEPING: usize = 1;
const ASSUMING: usize = 2;
const PROFILED: usize = 3;
const OFF: usize = 4;

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
    let mut outcome = Outcome::default();
    let mut told = Vec::new();
    for (node, name, small) in MEMORIES {
        let sizes = run.size(SIZES, small);
        let costs = Arc::new(profiled(&preset, node).map_err(Error::system("measure a modelled memory"))?);
        let mut found = Vec::new();
        for &value_bytes in sizes {
            let keys = run.size(10_000_000, keys_beyond_caches(&preset, all_threads(&preset), value_bytes));
            (run.tell)(&format!("{name}, {keys} values of {value_bytes} B"));
            found.push(ways(|way| measure(&preset, node, way, &costs, keys, value_bytes))?);
        }
        if node == PMEM {
            judge_as_published(&mut outcome, sizes, &found);
        }
        told.push(judge_auto(&mut outcome, name, sizes, &found));
        draw(&mut outcome, name, sizes, &found);
    }
    outcome.size("threads", all_threads(&preset));
    outcome.size("values", format!("{:?} B", run.size(SIZES, MEMORIES[0].2)));
    outcome.size("keys", "as many as fill the caches of a socket twice");
    outcome.note = format!(
        "{}. Operations run to their end one by one: nobody waits at a hot key's lock. {}. On A Zipfian a wait for a \
         write-back weighs more here than in the paper, whose index takes most of an operation, and so does sparing it.",
        label(),
        told.join(". "),
    );
    Ok(outcome)
}

/// Each way's runs. One after the other: slots come back when the process's epoch has gone on, and what another run
/// does meanwhile would decide when that is.
fn ways(measure: impl Fn(&Way) -> Result<Loads>) -> Result<Ways> {
    let mut found = [[Ran::default(); LOADS.len()]; WAYS.len()];
    for (found, way) in found.iter_mut().zip(&WAYS) {
        let _switch = Switch::to(way.pre_stores);
        *found = measure(way)?;
    }
    Ok(found)
}

/// What a probe finds of the memory's ways to be written, by all threads of a socket.
fn profiled(preset: &Preset, node: &str) -> std::io::Result<MemoryCosts> {
    let threads = all_threads(preset);
    let loads = [(Flavour::Store, true, threads), (Flavour::StoreFlush, true, threads)];
    let points = bandwidths(preset, node, &loads, &PIECES)?;
    let profile = NodeProfile { bandwidth: Measured::Points(points), ..NodeProfile::new(node) };
    Ok(MemoryCosts::of(&profile).expect("both ways were measured"))
}

fn measure(
    preset: &Preset,
    node: &'static str,
    way: &Way,
    costs: &Arc<MemoryCosts>,
    keys: u64,
    value_bytes: usize,
) -> Result<Loads> {
    let threads = all_threads(preset);
    let costs = way.is_profiled.then(|| Arc::clone(costs));
    let slabs = options(ValueDesign::Slab, threads);
    let laboratory = Laboratory { flush: way.flush, ..Laboratory::default() };
    let options = MapOptions { domain: Domain::Eadr, laboratory, costs, ..slabs };
    let mut map = ModelledMap::on(preset, node, 3 * keys / 2, value_bytes, options)?;
    map.fill(keys)?;
    let mut loads = Vec::new();
    for (seed, (distribution, updates, parts, _)) in (1..).zip(LOADS) {
        let mix = Mix { updates, ..Mix::default() };
        let ycsb = Ycsb::new(mix, distribution, keys, value_bytes, seed);
        let [before, measured] = parts.map(|part| part * keys / 16 / threads as u64);
        map.in_turn(threads, before, ycsb.from(0))?;
        loads.push(map.in_turn(threads, measured, ycsb.from(before))?);
    }
    Ok([loads[0], loads[1], loads[2]])
}

/// The process's switch of pre-stores, for as long as it lives; what it was before. Rows run one after the other.
struct Switch(bool);

impl Switch {
    fn to(is_on: bool) -> Switch {
        let before = prestore::is_enabled();
        prestore::set_enabled(is_on);
        Switch(before)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        prestore::set_enabled(self.0);
    }
}

fn over(ways: &Ways, [a, b]: [usize; 2], load: usize) -> f64 {
    ways[a][load].million_s() / ways[b][load].million_s()
}

fn judge_as_published(outcome: &mut Outcome, sizes: &[usize], found: &[Ways]) {
    let kept_over_flushed = |load: usize| found.iter().map(move |ways| over(ways, [KEEPING, FLUSHING], load));
    let kept = |load: usize| kept_over_flushed(load).fold(f64::NAN, f64::max);
    let large = sizes.iter().position(|size| *size == LARGE).map(|size| &found[size]);
    let at_large = |load: usize| large.map_or(f64::NAN, |ways| over(ways, [FLUSHING, KEEPING], load));
    let what = "A uniform, flushed over kept, 1024 B";
    outcome.checks.extend(Check::at_least(what, "1.5", at_large(A_UNIFORM), FLUSHED).and_order());
    let uniform = "A uniform, kept over flushed, the largest of the sizes";
    outcome.checks.extend([
        Check::at_most(uniform, "1", kept(A_UNIFORM), EQUAL[1]).order(),
        Check::at_most("A Zipfian, kept over flushed, the largest of the sizes", "up to 1.14", kept(A_ZIPF), KEPT),
        Check::at_least("A Zipfian, flushed over kept, 1024 B", "above 1", at_large(A_ZIPF), EQUAL[0]).order(),
    ]);
    for (size, ways) in sizes.iter().zip(found) {
        let what = format!("C, kept over flushed, {size} B");
        outcome.checks.push(Check::within(what, "1", over(ways, [KEEPING, FLUSHING], C), EQUAL[0], EQUAL[1]));
    }
    let on_off = large.map_or(f64::NAN, |ways| over(ways, [PROFILED, OFF], A_UNIFORM));
    let what = "A uniform, auto by profile over the same with pre-stores switched off, 1024 B";
    outcome.checks.extend(Check::at_least(what, "none told", on_off, FLUSHED).and_order());
}

/// What the map's own choice comes to, of the better of both; what there is to say of it.
fn judge_auto(outcome: &mut Outcome, memory: &str, sizes: &[usize], found: &[Ways]) -> String {
    let of_better = |way: usize| {
        let each = found.iter().flat_map(|ways| {
            [A_UNIFORM, A_ZIPF].map(|load| over(ways, [way, FLUSHING], load).min(over(ways, [way, KEEPING], load)))
        });
        each.fold(f64::NAN, f64::min)
    };
    let what = format!("{memory}: A, auto by profile over the better of flushed and kept, the least of all");
    outcome.checks.push(Check::at_least(what, "none told", of_better(PROFILED), EQUAL[0]));
    let ahead: Vec<_> = found
        .iter()
        .map(|ways| over(ways, [PROFILED, FLUSHING], A_ZIPF).min(over(ways, [PROFILED, KEEPING], A_ZIPF)))
        .map(|ratio| format!("{ratio:.2}"))
        .collect();
    let amplification = |way: usize| {
        let all = found.iter().map(|ways| format!("{:.1}", ways[way][A_UNIFORM].pmem.write_amplification()));
        all.collect::<Vec<_>>().join("/")
    };
    format!(
        "In {memory} ({sizes:?} B) the medium writes on A uniform {} bytes for each that leaves the caches if \
         flushed, {} if kept; without a profile auto comes to {:.2} of the better at the least. On A Zipfian, auto by \
         profile is {} times as fast as the better: it keeps what supersedes an item of a short while ago, and writes \
         all else back",
        amplification(FLUSHING),
        amplification(KEEPING),
        of_better(ASSUMING),
        ahead.join("/"),
    )
}

fn draw(outcome: &mut Outcome, memory: &str, sizes: &[usize], found: &[Ways]) {
    for (load, (.., name)) in LOADS.iter().enumerate() {
        let title = format!("YCSB {name} on slabs in {memory}");
        let mut figure =
            Figure::new(&title, "value, B", "million a second", FigureKind::Lines).over(sizes);
        for (number, way) in WAYS.iter().enumerate() {
            figure = figure.with(way.name, found.iter().map(|ways| ways[number][load].million_s()));
        }
        outcome.figures.push(figure);
    }
}
