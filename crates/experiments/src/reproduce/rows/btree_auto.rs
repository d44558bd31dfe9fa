//! `btree-auto`: the index that `index = "auto"` keeps by a memory's profile, beside the others it might
//! (Ni, figure 5.8 and findings 3 and 7: the size of nodes is to be chosen anew for a memory).

use super::btree_log::modelled::{ModelledIndex, Ran, in_tree, preset};
use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::profiled::{bandwidths, estimate};
use std::io;
use terrace_index::deltas::Options;
use terrace_index::tree::TreeOptions;
use terrace_machine::chase::Chase;
use terrace_machine::test_bed::TestBed;
use terrace_memory::Domain;
use terrace_memory::profile::{Accesses, Flavour, Latency, Measured, NodeProfile, Quantiles};
use terrace_store::{Advised, advised};
use terrace_store::laboratory::{LeafForm, TreeForm};

pub(super) const ROW: Row = Row {
    id: "btree-auto",
    source: "Ni, figure 5.8, findings 3 and 7",
    runs_on: "model (optane-004)",
    must_show: "lookups and inserts in the index that auto keeps take at most 1.15 times as long as in the best",
    run,
};

const THREADS: [usize; 3] = [1, 8, 48];
const LEAVES: [u64; 4] = [128, 256, 512, 1024];
const LOGS: [u32; 2] = [256, 512];
const PIECES: [u64; 3] = [64, 256, 1024];
const PMEM: &str = "pmem0";
/// Inner nodes, as an ordered map's.
const INNER: &str = "dram0";
const INNER_BYTES: u64 = 1024;
/// Bytes that the latency is measured over: many times the caches of the model.
const CHASED: u64 = 64 << 20;
/// Of an index in logs, of which there are as many as threads write.
const SEGMENT_BYTES: u32 = 16 << 10;

/// An index that was tried: its form, bytes of a leaf, and nanoseconds of a thread for a lookup and an insert.
type Tried = (TreeForm, u64, f64);

fn run(run: &Run<'_>) -> Result<Outcome> {
    let entries = run.size(4_000_000, 300_000);
    let mut outcome = Outcome::default();
    let mut told = Vec::new();
    for threads in THREADS {
        let each = run.size(240_000, 24_000) / threads as u64;
        (run.tell)(&format!("what accesses cost, {threads} threads"));
        let accesses = measured(threads).map_err(Error::system("measure a modelled memory"))?;
        let advice = advised(&accesses);
        let mut tried = Vec::new();
        for node_bytes in LEAVES {
            (run.tell)(&format!("leaves of {node_bytes} B, {threads} threads"));
            let options = TreeOptions::of(LeafForm::FastFair, node_bytes);
            let options = TreeOptions { inner_bytes: INNER_BYTES, ..options };
            let ran = in_tree(threads, &options, INNER, entries, each)?;
            tried.push((LeafForm::FastFair.into(), node_bytes, both_ns(threads, ran)));
        }
        for node_bytes in LOGS {
            (run.tell)(&format!("logs, leaves of {node_bytes} B, {threads} threads"));
            let logs = threads as u32;
            let options = Options { logs, segment_bytes: SEGMENT_BYTES, node_bytes, ..Options::default() };
            let index = ModelledIndex::new(threads, &options, entries, None)?;
            let ran = [index.inserts(each, None)?, index.lookups(each)];
            tried.push((TreeForm::Logs, u64::from(node_bytes), both_ns(threads, ran)));
        }
        let chosen = chosen(&advice, &tried);
        let best = tried.iter().copied().min_by(|a, b| a.2.total_cmp(&b.2)).expect("some were tried");
        let what = format!("{threads} threads: a lookup and an insert in what auto keeps, of the best");
        outcome.checks.push(Check::at_most(what, "none told", chosen.2 / best.2, 1.15));
        told.push((threads, chosen, best, tried));
    }
    let name = |(form, bytes, _): &Tried| format!("{form} {bytes}");
    let mut figure = Figure::new("A lookup and an insert", "threads", "ns", FigureKind::Lines).over(THREADS);
    for at in 0..LEAVES.len() + LOGS.len() {
        figure = figure.with(&name(&told[0].3[at]), told.iter().map(|(_, _, _, tried)| tried[at].2));
    }
    outcome.figures.push(figure);
    let each = told.iter().map(|(threads, chosen, best, _)| {
        format!("{threads} threads: {} ({:.0} ns), best {} ({:.0} ns)", name(chosen), chosen.2, name(best), best.2)
    });
    outcome.note = format!(
        "What auto follows is measured on the same machine by the load generator of `terrace probe`, with as many \
         threads; it knows nothing of the trees that are run then. {}.",
        each.collect::<Vec<_>>().join("; ")
    );
    outcome.size("entries", entries);
    Ok(outcome)
}

fn both_ns(threads: usize, ran: [Ran; 2]) -> f64 {
    ran.iter().map(|ran| 1e3 * threads as f64 / ran.million_s).sum()
}

/// The first of what is advised that was tried.
fn chosen(advice: &[Advised], tried: &[Tried]) -> Tried {
    let found = advice.iter().find_map(|advised| {
        tried.iter().find(|(form, bytes, _)| (*form, *bytes) == (advised.form, advised.node_bytes))
    });
    *found.expect("what is tried is advised too")
}

/// What a probe of the persistent memory with so many threads finds.
pub(super) fn measured(threads: usize) -> io::Result<Accesses> {
    let preset = preset()?;
    let loads = [
        (Flavour::Read, true, 1),
        (Flavour::Read, true, threads),
        (Flavour::StoreFlush, true, threads),
        (Flavour::StoreFlush, false, threads),
    ];
    let points = bandwidths(&preset, PMEM, &loads, &PIECES)?;
    let bench = preset.bench(1)?;
    let memory = bench.memory(PMEM, CHASED, Domain::Adr)?;
    let times = Chase::lay(&bench, &memory, CHASED).follow(200);
    let load = Quantiles {
        mean_ns: estimate(times.mean_ns)?,
        p50_ns: estimate(times.p50_ns)?,
        p99_ns: estimate(times.p99_ns)?,
    };
    let profile = NodeProfile {
        latency: Measured::Points(vec![Latency { bytes: CHASED, load }]),
        bandwidth: Measured::Points(points),
        ..NodeProfile::new(PMEM)
    };
    Accesses::of(&profile).ok_or_else(|| io::Error::other("a figure is missing"))
}
