//! `uma-memory`: what a processor's memory gives by itself, against the number of threads (Wu, section 4.2,
//! figures 4.4 to 4.6): sequential reads and writes, a chase of pointers, copies of a gigabyte.
//!
//! The paper compares two machines; this is a third, so its orders are looked for and not its figures:
//! more threads get more, a copy gets less than a read, and a chase hardly notices that others chase too.

use super::{Check, Figure, FigureKind, Outcome, Result, Row, Run};
use crate::reproduce::error::Error;
use crate::reproduce::measure::Samples;
use std::io;
use terrace_machine::copy::{Copy, CopyMethod};
use terrace_machine::test_bed::{TestBed, Here};
use terrace_machine::lines::{Lines, Pass};
use terrace_machine::load::{Load, Op};
use terrace_memory::Topology;

pub(super) const ROW: Row = Row {
    id: "uma-memory",
    source: "Wu, figures 4.4 to 4.6",
    runs_on: "native; launch latency on a gpu: not built",
    must_show: "reads, writes, a pointer chase and 1 GB copies, each against the number of threads",
    run,
};

/// Bytes of a copy, as in the paper.
const COPY_BYTES: u64 = 1 << 30;
/// Bytes of a sequential piece.
const PIECE: u64 = 4096;
/// The chase goes over a region so many times as large as the largest cache.
const CACHES: u64 = 4;
/// Steps of a chase, of each thread.
const STEPS: u64 = 1 << 20;
const LINE: u64 = 64;

/// Medians of one number of threads.
struct Measured {
    threads: usize,
    read_gb_s: f64,
    write_gb_s: f64,
    chase_ns: f64,
    copy_gb_s: f64,
    spread: f64,
}

fn run(run: &Run<'_>) -> Result<Outcome> {
    let repeats = run.size(9, 3);
    let ask = || {
        let here = Topology::read().map_err(io::Error::other).and_then(Here::new);
        here.map_err(Error::system("ask for this machine's memories"))
    };
    // Memory that is chased through is used for nothing else: it holds zeros.
    let (here, chased) = (ask()?, ask()?);
    let most = here.most_threads();
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    let measured = counts.into_iter().map(|threads| {
        (run.tell)(&format!("{threads} threads"));
        measure(&here, &chased, threads, repeats).map_err(Error::system("measure this machine's memory"))
    });
    let measured = measured.collect::<Result<Vec<_>>>()?;
    let mut outcome = judge(&measured);
    outcome.size("repeats", repeats);
    outcome.size("largest cache", format!("{} MiB", here.cache_bytes() >> 20));
    outcome.size("chase", format!("{} MiB, one load a line", (CACHES * here.cache_bytes()) >> 20));
    Ok(outcome)
}

fn copy(here: &Here, node: &str, threads: usize) -> io::Result<f64> {
    let (from, to, engine) = (node, node, CopyMethod::Library);
    Copy { from, to, engine, bytes: COPY_BYTES, threads, times: 1 }.run(here)
}

fn measure(here: &Here, chased: &Here, threads: usize, repeats: u32) -> io::Result<Measured> {
    let node = &here.nodes()[0];
    let load = |op| {
        let load = Load { node, op, random: false, bytes: PIECE, threads, overhead_ns: 0.0 };
        Ok::<f64, io::Error>(load.run(here)?.gb_s())
    };
    let mut samples: [Samples; 4] = Default::default();
    for _ in 0..repeats {
        samples[0].push(load(Op::Read)?);
        samples[1].push(load(Op::Store)?);
        samples[2].push(chase(chased, node, threads)?);
        samples[3].push(copy(here, node, threads)?);
    }
    let [read_gb_s, write_gb_s, chase_ns, copy_gb_s] = samples.each_ref().map(Samples::median);
    let spread = samples.iter().map(Samples::spread).fold(0.0, f64::max);
    Ok(Measured { threads, read_gb_s, write_gb_s, chase_ns, copy_gb_s, spread })
}

/// A step through memory, nanoseconds, while every thread takes them.
fn chase(here: &Here, node: &str, threads: usize) -> io::Result<f64> {
    let bench = here.bench(threads)?;
    let lines = Lines::new(&bench, node, CACHES * here.cache_bytes(), LINE)?;
    Ok(lines.pass(Pass::Load, 0..STEPS.min(lines.items()), 0.0))
}

fn judge(measured: &[Measured]) -> Outcome {
    let mut outcome = Outcome::default();
    let (one, all) = (&measured[0], &measured[measured.len() - 1]);
    let gain = |of: fn(&Measured) -> f64| of(all) / of(one);
    let threads = all.threads;
    outcome.checks.extend([
        Check::at_least(
            format!("sequential reads, {threads} threads over one"),
            "grows, then flat",
            gain(|m| m.read_gb_s),
            1.2,
        ).order(),
        Check::at_least(
            format!("sequential writes, {threads} threads over one"),
            "grows, then flat",
            gain(|m| m.write_gb_s),
            1.2,
        ).order(),
        Check::within("pointer chase, one thread, ns", "about 150", one.chase_ns, 60.0, 300.0),
        Check::at_most(
            format!("pointer chase, {threads} threads over one"),
            "1.13 (20 of 150 ns)",
            gain(|m| m.chase_ns),
            1.5,
        ),
        Check::at_least(
            format!("1 GB copies, {threads} threads over one"),
            "grows",
            gain(|m| m.copy_gb_s),
            1.2,
        ).order(),
        Check::at_most(
            format!("bytes copied for a byte read, {threads} threads"),
            "below 1",
            all.copy_gb_s / all.read_gb_s,
            1.0,
        ).order(),
    ]);
    let widest = measured.iter().map(|m| m.spread).fold(0.0, f64::max);
    outcome.note = format!(
        "Wall clock, threads pinned to a processor each; on a machine that others use, they are measured too \
         (widest spread {:.0} % of the median). One thread: reads {:.1} GB/s, writes {:.1} GB/s, chase {:.0} ns, \
         copies {:.1} GB/s; {threads} threads: {:.1}, {:.1}, {:.0} ns, {:.1}. The paper's machines have 20 and 24 \
         cores.",
        100.0 * widest,
        one.read_gb_s,
        one.write_gb_s,
        one.chase_ns,
        one.copy_gb_s,
        all.read_gb_s,
        all.write_gb_s,
        all.chase_ns,
        all.copy_gb_s,
    );
    let over = || measured.iter().map(|m| m.threads);
    outcome.figures = vec![
        Figure::new("Sequential accesses and copies", "threads", "GB/s", FigureKind::Lines)
            .over(over())
            .with("read", measured.iter().map(|m| m.read_gb_s))
            .with("write", measured.iter().map(|m| m.write_gb_s))
            .with("copy", measured.iter().map(|m| m.copy_gb_s)),
        Figure::new("Pointer chase", "threads", "ns a step", FigureKind::Bars)
            .over(over())
            .with("median", measured.iter().map(|m| m.chase_ns)),
    ];
    outcome
}
