//! The parts: each takes its settings from the plan and its figures from a generator.

use super::deadline::Deadline;
use super::plan::{Part, ProbePlan};
use super::print;
use crate::idiosyncrasies::{self, Settings, Sweep};
use std::io;
use terrace_machine::chase::Chase;
use terrace_machine::copy::{self, CopyMethod};
use terrace_machine::files::{self, FileSetting};
use terrace_machine::load::{Load, Op};
use terrace_machine::loaded::Loaded;
use terrace_machine::stores::Stores;
use terrace_machine::test_bed::{At, Bench, TestBed};
use terrace_machine::timed::Times;
use terrace_memory::profile::{
    Bandwidth, Copy, DirtyCache, Estimate, FileCost, FileOp, Flavour, Latency,
    Loaded as LoadedPoint, Measured, NodeProfile, Pages, Profile, Quantiles, Remote, StoreCost,
};
use terrace_memory::{ByteSize, Domain};

/// How much larger than the largest cache the largest working set is.
const CACHES: u64 = 4;
/// Bytes of a file that is measured: more than devices keep in memory of their own for reading.
const FILE: u64 = 256 << 20;
/// The least of the largest working set, bytes.
const OUTGROWN_MIN: u64 = 64 << 20;

/// What every part follows.
pub(super) struct Run<'a, G: TestBed> {
    pub test_bed: &'a G,
    pub plan: &'a ProbePlan,
    pub until: Deadline,
}

/// Measures a part of a node into its profile. A refusal becomes the part's content.
pub(super) fn measure<G: TestBed>(
    run: &Run<'_, G>,
    node: &str,
    part: Part,
    found: &mut NodeProfile,
    profile: &mut Profile,
) {
    let until = &run.until;
    let is_tier = run.test_bed.tiers().iter().any(|tier| tier == node);
    match part {
        Part::Latency => found.latency = until.part(|| latency(run, node)),
        Part::Bandwidth => found.bandwidth = until.part(|| Ok(bandwidth(run, node))),
        Part::Loaded => found.loaded = until.part(|| Ok(loaded(run, node))),
        Part::Stores => found.stores = until.part(|| Ok(stores(run, node))),
        Part::DirtyCache => found.dirty_cache = until.part(|| dirty_cache(run.test_bed, node)),
        Part::Files if is_tier => found.files = until.part(|| files(run, node)),
        // Memory that is no tier of files: nothing to ask.
        Part::Files => {}
        Part::Copies => profile.copies.join(told_of(node, until.part(|| Ok(copies(run, node))))),
        Part::Remote => profile.remote.join(told_of(node, until.part(|| Ok(remote(run, node))))),
        // All nodes have pages of the same kinds: those of the first are measured, and no tier of files has them.
        Part::Pages if profile.pages == Measured::not_asked_for() && !is_tier => {
            profile.pages = until.part(|| pages(run.test_bed, node));
        }
        Part::Pages => {}
    }
}

/// Where the figures of several memories stand together, a reason is that of one of them.
fn told_of<P>(node: &str, found: Measured<P>) -> Measured<P> {
    match found {
        Measured::Not { not_measured } => Measured::not(format!("{node}: {not_measured}")),
        found => found,
    }
}

fn estimate(value: f64) -> io::Result<Estimate> {
    let nothing = || io::Error::other("a measurement gave no figure");
    Estimate::of(value).ok_or_else(nothing)
}

fn quantiles(times: Times) -> io::Result<Quantiles> {
    Ok(Quantiles {
        mean_ns: estimate(times.mean_ns)?,
        p50_ns: estimate(times.p50_ns)?,
        p99_ns: estimate(times.p99_ns)?,
    })
}

/// A working set that no cache has a quarter of.
fn outgrown<G: TestBed>(test_bed: &G) -> u64 {
    (CACHES * test_bed.cache_bytes()).max(OUTGROWN_MIN).next_power_of_two()
}

/// Working sets from 16 KiB on, each four times the one before (twice, if not quick), up to one that no
/// cache has a quarter of. That one is the first: whatever there is time for, the figure over the most bytes is of the
/// memory.
fn latency<G: TestBed>(run: &Run<'_, G>, node: &str) -> io::Result<Measured<Latency>> {
    let bench = run.test_bed.bench(1)?;
    let most = outgrown(run.test_bed);
    let memory = bench.memory(node, most, Domain::None)?;
    let factor = if run.plan.is_quick { 4 } else { 2 };
    let smaller = std::iter::successors(Some(most), |bytes| Some(bytes / factor));
    let sizes = smaller.take_while(|bytes| *bytes >= 16 << 10);
    let of_size = |bytes: u64| {
        let load = Chase::lay(&bench, &memory, bytes).follow(run.plan.samples());
        Ok(Latency { bytes, load: quantiles(load)? })
    };
    let name = |bytes: &u64| ByteSize(*bytes).to_string();
    let mut found = run.until.each(sizes, name, of_size);
    found.sort_by_key(|point| point.bytes);
    Ok(found)
}

fn bandwidth<G: TestBed>(run: &Run<'_, G>, node: &str) -> Measured<Bandwidth> {
    let mut settings = Vec::new();
    for threads in run.plan.threads_of(run.test_bed) {
        for flavour in [Flavour::Read, Flavour::Store, Flavour::StoreFlush, Flavour::Stream] {
            for is_random in [false, true] {
                let pieces = run.plan.pieces().iter();
                settings.extend(pieces.map(|bytes| (threads, flavour, is_random, *bytes)));
            }
        }
    }
    let name = |&(threads, flavour, is_random, piece_bytes): &(usize, Flavour, bool, u64)| {
        let order = if is_random { "random" } else { "sequential" };
        format!("{} {order}, {}, {threads} threads", print::name(flavour), ByteSize(piece_bytes))
    };
    run.until.each(settings, name, |(threads, flavour, is_random, piece_bytes)| {
        let (op, random, bytes) = (flavour.into(), is_random, piece_bytes);
        let load = Load { node, op, random, bytes, threads, overhead_ns: 0.0 };
        let gb_s = estimate(load.run(run.test_bed)?.gb_s())?;
        Ok(Bandwidth { flavour, is_random, piece_bytes, threads, gb_s })
    })
}

fn loaded<G: TestBed>(run: &Run<'_, G>, node: &str) -> Measured<LoadedPoint> {
    let threads = run.plan.threads.unwrap_or(run.test_bed.most_threads()) - 1;
    if threads == 0 {
        return Measured::not("needs 2 processors: one thread loads, at least one moves bytes");
    }
    let mixtures = run.plan.mixtures().iter();
    let settings =
        mixtures.flat_map(|writes| run.plan.pauses().iter().map(move |pause| (*writes, *pause)));
    let name = |(writes, pause): &(u64, u64)| format!("{writes} % writes, pause {pause} ns");
    run.until.each(settings, name, |(writes_percent, pause_ns)| {
        let samples = run.plan.samples();
        let setting = Loaded { node, writes_percent, pause_ns: pause_ns as f64, threads, samples };
        loaded_point(&setting, pause_ns, setting.run(run.test_bed)?)
    })
}

fn loaded_point(
    setting: &Loaded<'_>,
    pause_ns: u64,
    found: terrace_machine::loaded::Point,
) -> io::Result<LoadedPoint> {
    Ok(LoadedPoint {
        writes_percent: setting.writes_percent,
        pause_ns,
        threads: setting.threads,
        gb_s: estimate(found.gb_s)?,
        load: quantiles(found.times)?,
    })
}

fn stores<G: TestBed>(run: &Run<'_, G>, node: &str) -> Measured<StoreCost> {
    let pieces = || run.plan.pieces().iter().copied().filter(|bytes| *bytes <= 4096);
    let settings = [Flavour::Store, Flavour::StoreFlush, Flavour::Stream]
        .into_iter()
        .flat_map(|flavour| pieces().map(move |bytes| (flavour, bytes)));
    let name = |(flavour, bytes): &(Flavour, u64)| {
        format!("{} of {}", print::name(*flavour), ByteSize(*bytes))
    };
    run.until.each(settings, name, |(flavour, piece_bytes)| {
        let samples = run.plan.samples() / 2;
        let setting = Stores { node, op: flavour.into(), bytes: piece_bytes, samples };
        let piece = quantiles(setting.run(run.test_bed)?)?;
        Ok(StoreCost { flavour, piece_bytes, piece })
    })
}

/// Test I8: what a cache full of written lines costs a reader.
fn dirty_cache<G: TestBed>(test_bed: &G, node: &str) -> io::Result<Measured<DirtyCache>> {
    let sweep = Sweep::new(test_bed, Settings::brief());
    let found = idiosyncrasies::DirtyCache::measure(&sweep, node)?;
    Ok(Measured::Points(vec![DirtyCache {
        dirty_bytes: found.region_bytes / 2,
        clean_ns: estimate(found.clean_ns)?,
        dirty_ns: estimate(found.dirty_ns)?,
    }]))
}

/// From this memory to each.
fn copies<G: TestBed>(run: &Run<'_, G>, from: &str) -> Measured<Copy> {
    let test_bed = run.test_bed;
    let threads = run.plan.threads.unwrap_or(test_bed.most_threads());
    let bytes = (CACHES * test_bed.cache_bytes()).max(OUTGROWN_MIN);
    let mut engines = vec![(CopyMethod::Store, "store"), (CopyMethod::Stream, "stream")];
    if !test_bed.is_modelled() {
        // What the C library chooses, and the processor's own instruction, are one with the first on a model.
        engines.extend([(CopyMethod::Library, "library"), (CopyMethod::String, "string")]);
    }
    let all = [test_bed.nodes(), test_bed.tiers()].concat();
    let pairs = all.iter().flat_map(|to| engines.iter().map(move |engine| (to, *engine)));
    let name = |(to, (_, engine)): &(&String, (_, &str))| format!("{from} to {to} by {engine}");
    run.until.each(pairs, name, |(to, (engine, name))| {
        let copy = copy::Copy { from, to, engine, bytes, threads, times: 1 };
        Ok(Copy {
            engine: name.into(),
            from: from.into(),
            to: to.clone(),
            piece_bytes: bytes / threads as u64,
            threads,
            gb_s: estimate(copy.run(test_bed)?)?,
        })
    })
}

/// The processors of each node on this memory.
fn remote<G: TestBed>(run: &Run<'_, G>, to: &str) -> Measured<Remote> {
    let (test_bed, plan) = (run.test_bed, run.plan);
    let name = |home: &String| format!("{home} on {to}");
    run.until.each(test_bed.homes(), name, |home| {
        let at = At::new(test_bed, &home)?;
        let threads = plan.threads.unwrap_or(usize::MAX).min(at.most_threads());
        let bandwidth = |op| {
            let load = Load { node: to, op, random: false, bytes: 4096, threads, overhead_ns: 0.0 };
            estimate(load.run(&at)?.gb_s())
        };
        let bench = at.bench(1)?;
        let bytes = outgrown(test_bed);
        let memory = bench.memory(to, bytes, Domain::None)?;
        let load_ns = Chase::lay(&bench, &memory, bytes).follow(plan.samples()).p50_ns;
        Ok(Remote {
            from: home.clone(),
            to: to.into(),
            threads,
            load_ns: estimate(load_ns)?,
            read_gb_s: bandwidth(Op::Read)?,
            stream_gb_s: bandwidth(Op::Stream)?,
        })
    })
}

/// By one thread and by the most.
fn files<G: TestBed>(run: &Run<'_, G>, tier: &str) -> io::Result<Measured<FileCost>> {
    let file = run.test_bed.file(tier, FILE)?;
    let most = run.plan.threads.unwrap_or(run.test_bed.most_threads());
    let mut counts = vec![1, most];
    counts.dedup();
    let mut settings = Vec::new();
    for op in [FileOp::Read, FileOp::WriteSync] {
        for threads in counts.iter().copied() {
            // Each thread has its own part of the file.
            let fits = |piece: &u64| threads as u64 * piece <= file.bytes();
            let pieces = run.plan.file_pieces().iter().copied().filter(fits);
            settings.extend(pieces.map(|piece_bytes| (op, threads, piece_bytes)));
        }
    }
    let name = |(op, threads, bytes): &(FileOp, usize, u64)| {
        let what = if *op == FileOp::Read { "read" } else { "write, sync" };
        format!("{what}, {}, {threads} threads", ByteSize(*bytes))
    };
    Ok(run.until.each(settings, name, |(op, threads, piece_bytes)| {
        let known = match op {
            FileOp::Read => files::FileOp::Read,
            FileOp::WriteSync => files::FileOp::WriteSync,
        };
        let time = run.plan.file_time();
        let found = file.run(FileSetting { op: known, piece_bytes, threads, time })?;
        let (is_direct, gb_s) = (found.is_direct, estimate(found.gb_s)?);
        Ok(FileCost { op, is_direct, piece_bytes, threads, gb_s, piece: quantiles(found.times)? })
    }))
}

fn pages<G: TestBed>(test_bed: &G, node: &str) -> io::Result<Measured<Pages>> {
    let cost = |page: terrace_machine::pages::PageCost| {
        Ok(Pages {
            page_bytes: page.page_bytes,
            fault_ns: estimate(page.fault_ns)?,
            random_load_ns: estimate(page.random_load_ns)?,
        })
    };
    let costs: io::Result<Vec<Pages>> = test_bed.pages(node)?.into_iter().map(cost).collect();
    costs.map(Measured::Points)
}
