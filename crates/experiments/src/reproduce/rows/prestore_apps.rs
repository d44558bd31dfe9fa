//! `prestore-apps`: the programs that Wu pre-stores in (3.7), as kernels on its two
//! machines, modelled.
//!
//! On machine A (persistent memory) cleaning and skipping put evictions in order: a store's puts, two loops
//! of NAS MG, the tensor operation of TensorFlow. On machine B (an FPGA's memory) they make writes public
//! before the atomic or the fence that waits for them: the same puts, and messages. What its tool advises
//! against is here too: it must cost, or do nothing.
//!
//! Judged are signs and orders. Sizes of gains are beside them: kernels do nothing but access memory, so
//! where a program also computes they gain more than it.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use std::io;
use terrace_machine::Preset;
use terrace_machine::kernels::{Cost, Inbox, Index, Loop, Prestore, Puts, Ranks, Scratch, Stencil, Tensor};

pub(super) const ROW: Row = Row {
    id: "prestore-apps",
    source: "Wu, section 3.7",
    runs_on: "model (optane-000, enzian-fast, enzian-slow)",
    must_show: "hash PUT, ordered PUT, stencil (MG), tensor op, message inbox: sign and order of the gains as \
                in the table",
    run,
};

/// Threads that put, as in the paper; the NAS programs and TensorFlow here have as many.
const THREADS: usize = 10;
const PMEM: &str = "pmem0";
const FPGA: &str = "fpga";
/// What the paper's clean is on machine B: `dc cvau`, to where all cores see it and no further.
const CLEAN_ON_B: Prestore = Prestore::Demote;
/// No change: within so much of 1.
const NONE: f64 = 0.05;
/// Advised, and of no use on this machine: it may cost so much. (The paper's is 0.3 %.)
const HARMLESS: f64 = 0.997;

fn run(run: &Run<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    puts_on_optane(run, &mut outcome)?;
    loops_on_optane(run, &mut outcome)?;
    on_enzian(run, &mut outcome)?;
    outcome.size("threads", THREADS);
    outcome.note = "Modelled machines, virtual time: no instruction costs anything but its accesses, so gains \
                    are those of programs that wait for memory alone. Keys are chosen alike, of a store that \
                    is several times the caches; the paper's has 100 million. Sizes of messages, and what the \
                    other functions of TensorFlow write, are not published. On machine B the paper's clean \
                    goes to the shared cache, as its demote does."
        .into();
    if outcome.checks.iter().any(|check| check.what.contains("hash over ordered") && !check.pass) {
        outcome.note += " Where the ordered map gains as much as the hash table: walking its tree is nearly free here, \
                         its inner nodes in the caches and its comparisons without cost, where in the paper it takes \
                         time that no pre-store spares.";
    }
    if outcome.checks.iter().any(|check| check.what.starts_with("B (") && !check.pass) {
        outcome.note += " Where machine B gains less than in the paper: between the pre-store and the atomic \
                         or the fence these kernels have nearly nothing to overlap it with, since no \
                         instruction of theirs takes time; and the model's fence asks for all private lines at \
                         once, where the real one may make them public one after the other.";
    }
    Ok(outcome)
}

fn preset(name: &str) -> Preset {
    Preset::named(name).expect("a preset that is compiled in")
}

/// Runs a kernel with each of these, at once: every run has a machine of its own.
fn each<const N: usize>(
    prestores: [Prestore; N],
    run: impl Fn(Prestore) -> io::Result<Cost> + Sync,
) -> Result<[Cost; N]> {
    let costs = std::thread::scope(|scope| {
        let run = &run;
        let threads = prestores.map(|prestore| scope.spawn(move || run(prestore)));
        threads.map(|thread| thread.join().expect("a kernel does not panic"))
    });
    let costs: io::Result<Vec<Cost>> = costs.into_iter().collect();
    let costs = costs.map_err(Error::system("run a kernel on the modelled machine"))?;
    Ok(costs.try_into().expect("as many as there were"))
}

/// How many times as fast a kernel is with a pre-store as with none.
fn gain(prestore: Prestore, run: impl Fn(Prestore) -> io::Result<Cost> + Sync) -> Result<f64> {
    let [plain, with] = each([Prestore::Nothing, prestore], run)?;
    Ok(with.gain_over(&plain))
}

fn puts(run: &Run<'_>, node: &'static str, index: Index, value_bytes: u64, threads: usize) -> Puts<'static> {
    let operations = run.size(1_000_000, 40_000);
    // Several times the shared cache of either machine.
    let keys = run.size(1 << 30, 128 << 20) / value_bytes;
    Puts { node, index, keys, value_bytes, threads, prestore: Prestore::Nothing, operations }
}

/// A store of one size of values on machine A.
struct Store {
    plain: Cost,
    clean: f64,
    skip: f64,
    cleaned: Cost,
}

fn puts_on_optane(run: &Run<'_>, outcome: &mut Outcome) -> Result<()> {
    let preset = preset("optane-000");
    let sizes: &[u64] = run.size(&[64, 128, 256, 512, 1024, 2048, 4096], &[128, 1024]);
    let store = |index: Index, value_bytes: u64| -> Result<Store> {
        (run.tell)(&format!("{index:?}, values of {value_bytes} B"));
        let puts = puts(run, PMEM, index, value_bytes, THREADS);
        let [plain, cleaned, skipped] =
            each([Prestore::Nothing, Prestore::Clean, Prestore::Skip], |prestore| {
                Puts { prestore, ..puts }.run(&preset)
            })?;
        Ok(Store { clean: cleaned.gain_over(&plain), skip: skipped.gain_over(&plain), plain, cleaned })
    };
    let small = sizes.iter().position(|bytes| *bytes == 128).expect("a size of the sweep");
    let mut most_of = Vec::new();
    let ordered = Index::Ordered { fences: false };
    for (index, name, clean, skip, at_128) in
        [(Index::Hash, "hash PUT", "2.3", "2.9", "1.214"), (ordered, "ordered PUT", "1.9", "2.5", "1.07")]
    {
        let stores = sizes.iter().map(|bytes| store(index, *bytes)).collect::<Result<Vec<_>>>()?;
        let most = |gain: fn(&Store) -> f64| stores.iter().map(gain).fold(0.0, f64::max);
        let (cleans, skips) = (most(|store| store.clean), most(|store| store.skip));
        most_of.push(cleans);
        let what = |of: &str| format!("A, {name}: {of}");
        outcome.checks.extend([
            Check::at_least(what("most gain of clean"), clean, cleans, 1.0 + NONE).order(),
            Check::at_least(what("most gain of skip"), skip, skips, 1.0 + NONE).order(),
            Check::at_least(what("most gain of skip over that of clean"), "1.3", skips / cleans, 1.0).order(),
            Check::at_least(what("gain of clean at 128 B"), at_128, stores[small].clean, 1.0).order(),
        ]);
        if index == Index::Hash {
            let large = stores.last().expect("a sweep of some");
            outcome.checks.extend([
                Check::within(what("written by the medium, large values"), "3.8", large.plain.amplification(), 3.0, 4.0),
                Check::at_most(what("the same, cleaned"), "1", large.cleaned.amplification(), 1.2),
            ]);
        }
        let title = format!("Machine A, {name}: operations a second over those without");
        outcome.figures.push(
            Figure::new(&title, "value, B", "ratio", FigureKind::Bars)
                .over(sizes)
                .with("clean", stores.iter().map(|store| store.clean))
                .with("skip", stores.iter().map(|store| store.skip)),
        );
    }
    let order = most_of[0] / most_of[1];
    outcome.checks.push(Check::at_least("A: gain of clean, hash over ordered", "1.2", order, 1.0).order());
    Ok(())
}

fn loops_on_optane(run: &Run<'_>, outcome: &mut Outcome) -> Result<()> {
    let (full, preset) = (run.full, preset("optane-000"));
    let lines = run.size(4_000_000, 400_000);
    let tensor = |prestore| Tensor { node: PMEM, threads: THREADS, prestore, lines }.run(&preset);
    let scratch = |prestore| Scratch { node: PMEM, threads: 1, prestore, lines }.run(&preset);
    let ranks =
        |prestore| Ranks { node: PMEM, threads: THREADS, prestore, counts: lines }.run(&preset);
    for (kind, name) in [(Loop::Psinv, "psinv"), (Loop::Resid, "resid")] {
        (run.tell)(&format!("MG {name}"));
        let gain = gain(Prestore::Clean, |prestore| stencil(full, &preset, PMEM, kind, prestore))?;
        outcome.checks.push(Check::at_least(
            format!("A, stencil MG {name}: gain of clean"),
            "up to 1.4 (runtime 0.7)",
            gain,
            1.0 + NONE,
        ).order());
    }
    (run.tell)("the tensor operation");
    let [plain, clean, skip] =
        each([Prestore::Nothing, Prestore::Clean, Prestore::Skip], tensor)?;
    outcome.checks.extend([
        Check::at_least("A, tensor op: gain of clean", "1.2 to 1.47", clean.gain_over(&plain), 1.0 + NONE).order(),
        Check::at_most("A, tensor op: gain of skip", "0.8", skip.gain_over(&plain), 1.0 - NONE).order(),
        Check::within("A, tensor op: written by the medium", "3.7", plain.amplification(), 3.2, 4.0),
        Check::within("A, tensor op: the same, cleaned", "2.7", clean.amplification(), 2.2, 3.2),
    ]);
    (run.tell)("what is not advised");
    let slower = 1.0 / gain(Prestore::Clean, scratch)?;
    let ranks = gain(Prestore::Clean, ranks)?;
    outcome.checks.extend(Check::about("A, not advised, FT fftz2: slowdown by clean", 3.0, slower).and_order());
    let what = "A, not advised, IS rank: gain of clean";
    outcome.checks.push(Check::within(what, "1", ranks, 1.0 - NONE, 1.0 + NONE).order());
    Ok(())
}

fn stencil(
    full: bool,
    preset: &Preset,
    node: &str,
    kind: Loop,
    prestore: Prestore,
) -> io::Result<Cost> {
    // Larger than the caches, and a share of planes for each thread.
    let side = if full { 258 } else { 162 };
    Stencil { node, kind, side, threads: THREADS, prestore }.run(preset)
}

fn on_enzian(run: &Run<'_>, outcome: &mut Outcome) -> Result<()> {
    let full = run.full;
    let mut inbox_of = Vec::new();
    for (name, latency) in [("enzian-fast", "0.62"), ("enzian-slow", "0.40")] {
        let preset = preset(name);
        let indexes = [
            (Index::Hash, "hash PUT", "up to 1.52"),
            (Index::Ordered { fences: true }, "ordered PUT", "up to 1.25"),
        ];
        for (index, what, paper) in indexes {
            (run.tell)(&format!("{name}, {index:?}"));
            // One thread: what is hidden is latency, which others do not share.
            let puts = puts(run, FPGA, index, 1024, 1);
            let gain = gain(CLEAN_ON_B, |prestore| Puts { prestore, ..puts }.run(&preset))?;
            let what = format!("B ({name}), {what}, 1 KB: gain of clean");
            outcome.checks.push(Check::at_least(what, paper, gain, 1.0 + NONE).order());
        }
        (run.tell)(&format!("{name}, messages"));
        let messages = run.size(1_000_000, 20_000);
        let faster = gain(Prestore::Demote, |prestore| {
            Inbox { node: FPGA, message_bytes: 128, slots: 1024, prestore, messages }.run(&preset)
        })?;
        let shorter = 1.0 - 1.0 / faster;
        inbox_of.push(shorter);
        let what = format!("B ({name}), message inbox: latency saved by demote");
        outcome.checks.push(Check::at_least(what, latency, shorter, NONE).order());
        (run.tell)(&format!("{name}, MG psinv"));
        let unneeded = gain(CLEAN_ON_B, |prestore| {
            stencil(full, &preset, FPGA, Loop::Psinv, prestore)
        })?;
        let what = format!("B ({name}), stencil MG psinv, advised and of no use: gain of clean");
        outcome.checks.push(Check::at_least(what, ">= 0.997", unneeded, HARMLESS).order());
    }
    outcome.checks.push(Check::at_least(
        "B, message inbox: latency saved, fast over slow",
        "1.5",
        inbox_of[0] / inbox_of[1],
        1.0,
    ).order());
    Ok(())
}
