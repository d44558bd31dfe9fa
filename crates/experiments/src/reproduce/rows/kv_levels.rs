//! `kv-levels`: what it costs to keep more than the values (Wu, 2.4, figure 2.5, left).
//!
//! Bursts of updates by more and more threads, operations that overlap: with the index in DRAM; with the
//! index kept in persistent memory, word by word; and with every operation a section over index, allocation metadata
//! and values, which commit one at a time. Time at locks is what threads say that they wait.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::modelled::{
    ModelledMap, Ran, all_threads, keys_beyond_caches, label, options, preset,
};
use crate::reproduce::emulated::DESIGNS;
use terrace_machine::Preset;
use terrace_store::{MapOptions, Persist, ValueDesign};

pub(super) const ROW: Row = Row {
    id: "kv-levels",
    source: "Wu, figure 2.5",
    runs_on: "model optane-000",
    must_show: "a persistent index 1.3 to 2.5 times slower on updates; sections >= 4 times, the more at locks the more threads",
    run,
};

const VALUE_BYTES: usize = 256;
const LEVELS: [(Persist, &str); 3] =
    [(Persist::Values, "values"), (Persist::Index, "index"), (Persist::Full, "full")];
const THREADS: [usize; 4] = [1, 4, 8, 20];
/// How many times slower a persistent index may be, and how many times sections must be.
const INDEX: [f64; 2] = [1.3, 2.5];
const FULL: f64 = 4.0;
/// Updates of each thread that are measured.
const UPDATES: u64 = 1_000;

/// Runs of one design and level, by threads.
type Runs = [Ran; THREADS.len()];

fn run(run: &Run<'_>) -> Result<Outcome> {
    let preset = preset();
    let keys = run.size(10_000_000, keys_beyond_caches(&preset, all_threads(&preset), VALUE_BYTES));
    let updates = run.size(10 * UPDATES, UPDATES);
    let mut found = Vec::new();
    for (design, name) in DESIGNS {
        let mut levels = Vec::new();
        for (persist, level) in LEVELS {
            (run.tell)(&format!("{name}, {level} kept"));
            levels.push(measure(&preset, design, persist, keys, updates)?);
        }
        found.push(levels);
    }
    Ok(judge(keys, &found))
}

fn measure(
    preset: &Preset,
    design: ValueDesign,
    persist: Persist,
    keys: u64,
    updates: u64,
) -> Result<Runs> {
    let threads = all_threads(preset);
    let options = MapOptions { persist, ..options(design, threads) };
    let mut map = ModelledMap::new(preset, 2 * keys, VALUE_BYTES, options)?;
    map.fill(keys)?;
    map.in_turn(threads, keys / 8 / threads as u64, map.update())?;
    let mut runs = Vec::new();
    for threads in THREADS {
        runs.push(map.at_once(threads, updates, map.update())?);
    }
    Ok([runs[0], runs[1], runs[2], runs[3]])
}

/// How much slower a level is than the first, with one of the numbers of threads.
fn slower(levels: &[Runs], level: usize, threads: usize) -> f64 {
    levels[0][threads].million_s() / levels[level][threads].million_s()
}

fn judge(keys: u64, found: &[Vec<Runs>]) -> Outcome {
    let mut outcome = Outcome::default();
    let last = THREADS.len() - 1;
    for (levels, (_, name)) in found.iter().zip(DESIGNS) {
        let full = |threads: usize| levels[2][threads].at_locks();
        let what = format!("{name}: updates a second, index in DRAM over index kept, {} threads", THREADS[last]);
        let index = Check::within(what, "about 2 (50 % slower)", slower(levels, 1, last), INDEX[0], INDEX[1]);
        let what = format!("{name}: updates a second, values kept over full, {} threads", THREADS[last]);
        let sections = Check::at_least(what, "9", slower(levels, 2, last), FULL);
        let what = format!("{name}: full, part of the time at locks, {} threads less 4", THREADS[last]);
        let locks = Check::at_least(what, "above 0 (0.7 in all)", full(last) - full(1), 0.0).order();
        outcome.checks.extend([index, sections].into_iter().flat_map(Check::and_order).chain([locks]));
    }
    outcome.size("keys", keys);
    outcome.size("values", format!("{VALUE_BYTES} B"));
    outcome.size("threads", format!("{THREADS:?}"));
    let percent = |of: fn(&Ran) -> f64, runs: &Runs| {
        runs.iter().map(|ran| format!("{:.0}", 100.0 * of(ran))).collect::<Vec<_>>().join("/")
    };
    let alone = |levels: &[Runs], level| format!("{:.2}", slower(levels, level, 0));
    outcome.note = format!(
        "{}. By one thread, which finds no limit of the DIMMs and no lock, a persistent index is {} times slower in \
         slabs and {} in logs, full persistence {} and {}. Of their time, threads under full persistence wait \
         {} % at locks in slabs and {} % in logs ({THREADS:?} threads; paper 70 %). The index fits the caches at \
         this size: what a kept one costs here are the write-back and fence of an entry, and not, as in the \
         paper, the latency of a tree's nodes.",
        label(),
        alone(&found[0], 1),
        alone(&found[1], 1),
        alone(&found[0], 2),
        alone(&found[1], 2),
        percent(Ran::at_locks, &found[0][2]),
        percent(Ran::at_locks, &found[1][2]),
    );
    if slower(&found[0], 2, last) < FULL {
        outcome.note += &format!(
            " Slabs lose less by sections than in the paper because they are slower without: an update ends the item \
             before by a write of its own, a line of the medium each, where logs write none ({:.1} and {:.1} million a \
             second with {} threads).",
            found[0][0][last].million_s(),
            found[1][0][last].million_s(),
            THREADS[last],
        );
    }
    for (levels, (_, name)) in found.iter().zip(DESIGNS) {
        let title = format!("Updates of 256 B in {name}, by what is kept");
        let mut figure =
            Figure::new(&title, "threads", "million a second", FigureKind::LogLines).over(THREADS);
        for (runs, (_, level)) in levels.iter().zip(LEVELS) {
            figure = figure.with(level, runs.iter().map(Ran::million_s));
        }
        outcome.figures.push(figure);
    }
    outcome
}
