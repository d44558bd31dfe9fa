//! The parts: each takes its settings from the plan and its figures from a generator.

use super::plan::{Part, Plan};
use crate::idiosyncrasies::{self, Settings, Sweep};
use std::io;
use std::time::{Duration, Instant};
use terrace_machine::chase::Chase;
use terrace_machine::copy::{self, Engine};
use terrace_machine::files::{self, FileSetting};
use terrace_machine::ground::{At, Bench, Ground};
use terrace_machine::load::{Load, Op};
use terrace_machine::loaded::Loaded;
use terrace_machine::stores::Stores;
use terrace_machine::timed::Times;
use terrace_memory::Domain;
use terrace_memory::profile::{
    Bandwidth, Copy, DirtyCache, Estimate, FileCost, FileOp, Flavour, Latency,
    Loaded as LoadedPoint, Measured, NodeProfile, Pages, Profile, Quantiles, Remote, StoreCost,
};

/// How much larger than the largest cache the largest working set is.
const CACHES: u64 = 4;
/// Bytes of a file that is measured: more than devices keep in memory of their own for reading.
const FILE: u64 = 256 << 20;
/// A quick run begins nothing after so long: what it is at may take some seconds more.
const QUICK: Duration = Duration::from_secs(45);
/// The least of the largest working set, bytes.
const OUTGROWN_MIN: u64 = 64 << 20;

/// When a quick run ends what it has not begun.
pub(super) struct Deadline(pub(super) Option<Instant>);

const NO_TIME: &str = "--quick had no time left; --part and --node choose, or without --quick";

impl Deadline {
    pub(super) fn of<G: Ground>(ground: &G, plan: &Plan) -> Deadline {
        // Virtual time is never short.
        Deadline((plan.is_quick && !ground.is_modelled()).then(|| Instant::now() + QUICK))
    }

    fn is_over(&self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    fn unless_over<P>(&self, measure: impl FnOnce() -> Measured<P>) -> Measured<P> {
        if self.is_over() { Measured::not(NO_TIME) } else { measure() }
    }
}

/// Measures a part of a node into its profile. A refusal becomes the part's content.
pub(super) fn measure<G: Ground>(
    (ground, plan, until): (&G, &Plan, &Deadline),
    node: &str,
    part: Part,
    found: &mut NodeProfile,
    profile: &mut Profile,
) {
    let is_tier = ground.tiers().iter().any(|tier| tier == node);
    match part {
        Part::Latency => {
            found.latency = until.unless_over(|| measured(latency(ground, plan, node)));
        }
        Part::Bandwidth => {
            found.bandwidth = until.unless_over(|| measured(bandwidth(ground, plan, node)));
        }
        Part::Loaded => found.loaded = until.unless_over(|| loaded(ground, plan, node)),
        Part::Stores => found.stores = until.unless_over(|| measured(stores(ground, plan, node))),
        Part::DirtyCache => {
            found.dirty_cache = until.unless_over(|| measured(dirty_cache(ground, node)));
        }
        Part::Files if is_tier => {
            found.files = until.unless_over(|| measured(files(ground, plan, node)));
        }
        // Memory that is no tier of files: nothing to ask.
        Part::Files => {}
        Part::Copies => {
            let found = until.unless_over(|| copies(ground, plan, until, node));
            profile.copies.refine(found);
        }
        Part::Remote => {
            let found = until.unless_over(|| remote(ground, plan, until, node));
            profile.remote.refine(found);
        }
        // All nodes have pages of the same kinds: those of the first are measured, and no tier of files has them.
        Part::Pages if profile.pages == Measured::not_asked_for() && !is_tier => {
            profile.pages = until.unless_over(|| measured(pages(ground, node)));
        }
        Part::Pages => {}
    }
}

fn measured<P>(found: io::Result<Vec<P>>) -> Measured<P> {
    match found {
        Ok(points) => Measured::Points(points),
        Err(error) => Measured::not(error.to_string()),
    }
}

fn estimate(value: f64) -> io::Result<Estimate> {
    let nothing = || io::Error::other("a measurement came to no figure");
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
fn outgrown<G: Ground>(ground: &G) -> u64 {
    (CACHES * ground.cache_bytes()).max(OUTGROWN_MIN).next_power_of_two()
}

/// Working sets from 16 KiB on, each four times the one before (twice, if not quick), up to one that no
/// cache has a quarter of.
fn latency<G: Ground>(ground: &G, plan: &Plan, node: &str) -> io::Result<Vec<Latency>> {
    let bench = ground.bench(1)?;
    let most = outgrown(ground);
    let memory = bench.memory(node, most, Domain::None)?;
    let factor = if plan.is_quick { 4 } else { 2 };
    let smaller = std::iter::successors(Some(most), |bytes| Some(bytes / factor));
    let mut sizes: Vec<u64> = smaller.take_while(|bytes| *bytes >= 16 << 10).collect();
    sizes.reverse();
    let of_size = |bytes: u64| {
        let load = Chase::lay(&bench, &memory, bytes).follow(plan.samples());
        Ok(Latency { bytes, load: quantiles(load)? })
    };
    sizes.into_iter().map(of_size).collect()
}

fn bandwidth<G: Ground>(ground: &G, plan: &Plan, node: &str) -> io::Result<Vec<Bandwidth>> {
    let mut points = Vec::new();
    for threads in plan.threads_of(ground) {
        for flavour in [Flavour::Read, Flavour::Store, Flavour::StoreFlush, Flavour::Stream] {
            for is_random in [false, true] {
                for piece_bytes in plan.pieces().iter().copied() {
                    let load = Load {
                        node,
                        op: flavour.into(),
                        random: is_random,
                        bytes: piece_bytes,
                        threads,
                        overhead_ns: 0.0,
                    };
                    let gb_s = estimate(load.run(ground)?.gb_s())?;
                    points.push(Bandwidth { flavour, is_random, piece_bytes, threads, gb_s });
                }
            }
        }
    }
    Ok(points)
}

fn loaded<G: Ground>(ground: &G, plan: &Plan, node: &str) -> Measured<LoadedPoint> {
    let threads = plan.threads.unwrap_or(ground.most_threads()) - 1;
    if threads == 0 {
        return Measured::not("one thread chases and at least one moves bytes: 2 processors");
    }
    let mut points = Vec::new();
    for writes_percent in plan.mixtures().iter().copied() {
        for pause_ns in plan.pauses().iter().copied() {
            let samples = plan.samples();
            let setting =
                Loaded { node, writes_percent, pause_ns: pause_ns as f64, threads, samples };
            match setting.run(ground).and_then(|point| loaded_point(&setting, pause_ns, point)) {
                Err(error) => return Measured::not(error.to_string()),
                Ok(point) => points.push(point),
            }
        }
    }
    Measured::Points(points)
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

fn stores<G: Ground>(ground: &G, plan: &Plan, node: &str) -> io::Result<Vec<StoreCost>> {
    let mut points = Vec::new();
    for flavour in [Flavour::Store, Flavour::StoreFlush, Flavour::Stream] {
        for piece_bytes in plan.pieces().iter().copied().filter(|bytes| *bytes <= 4096) {
            let samples = plan.samples() / 2;
            let setting = Stores { node, op: flavour.into(), bytes: piece_bytes, samples };
            let piece = quantiles(setting.run(ground)?)?;
            points.push(StoreCost { flavour, piece_bytes, piece });
        }
    }
    Ok(points)
}

/// Test I8: what a cache full of written lines costs a reader.
fn dirty_cache<G: Ground>(ground: &G, node: &str) -> io::Result<Vec<DirtyCache>> {
    let sweep = Sweep::new(ground, Settings::brief());
    let found = idiosyncrasies::DirtyCache::measure(&sweep, node)?;
    Ok(vec![DirtyCache {
        dirty_bytes: found.region_bytes / 2,
        clean_ns: estimate(found.clean_ns)?,
        dirty_ns: estimate(found.dirty_ns)?,
    }])
}

/// Those that could be measured, and before the deadline; without any, why the first could not.
fn those_measured<P>(until: &Deadline, found: impl Iterator<Item = io::Result<P>>) -> Measured<P> {
    let mut points = Vec::new();
    let mut refused = None;
    for point in found {
        match point {
            Ok(point) => points.push(point),
            Err(error) => refused = refused.or(Some(error.to_string())),
        }
        if until.is_over() {
            break;
        }
    }
    match refused {
        Some(why) if points.is_empty() => Measured::not(why),
        _ => Measured::Points(points),
    }
}

/// From this memory to each.
fn copies<G: Ground>(ground: &G, plan: &Plan, until: &Deadline, from: &str) -> Measured<Copy> {
    let threads = plan.threads.unwrap_or(ground.most_threads());
    let bytes = (CACHES * ground.cache_bytes()).max(OUTGROWN_MIN);
    let mut engines = vec![(Engine::Store, "store"), (Engine::Stream, "stream")];
    if !ground.is_modelled() {
        // What the C library chooses, and the processor's own instruction, are one with the first on a model.
        engines.extend([(Engine::Library, "library"), (Engine::String, "string")]);
    }
    let all = [ground.nodes(), ground.tiers()].concat();
    let pairs = all.iter().flat_map(|to| engines.iter().map(move |engine| (to, *engine)));
    those_measured(
        until,
        pairs.map(|(to, (engine, name))| {
            let copy = copy::Copy { from, to, engine, bytes, threads, times: 1 };
            Ok(Copy {
                engine: name.into(),
                from: from.into(),
                to: to.clone(),
                piece_bytes: bytes / threads as u64,
                threads,
                gb_s: estimate(copy.run(ground)?)?,
            })
        }),
    )
}

/// The processors of each node on this memory.
fn remote<G: Ground>(ground: &G, plan: &Plan, until: &Deadline, to: &str) -> Measured<Remote> {
    let homes = ground.homes();
    those_measured(
        until,
        homes.iter().map(|home| {
            let at = At::new(ground, home)?;
            let threads = plan.threads.unwrap_or(usize::MAX).min(at.most_threads());
            let bandwidth = |op| {
                let load =
                    Load { node: to, op, random: false, bytes: 4096, threads, overhead_ns: 0.0 };
                estimate(load.run(&at)?.gb_s())
            };
            let bench = at.bench(1)?;
            let bytes = outgrown(ground);
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
        }),
    )
}

/// By one thread and by the most.
fn files<G: Ground>(ground: &G, plan: &Plan, tier: &str) -> io::Result<Vec<FileCost>> {
    let file = ground.file(tier, FILE)?;
    let most = plan.threads.unwrap_or(ground.most_threads());
    let mut counts = vec![1, most];
    counts.dedup();
    let mut points = Vec::new();
    for (op, known) in
        [(FileOp::Read, files::FileOp::Read), (FileOp::WriteSync, files::FileOp::WriteSync)]
    {
        for threads in counts.iter().copied() {
            // Each thread has its own part of the file.
            let fits = |piece: &u64| threads as u64 * piece <= file.bytes();
            for piece_bytes in plan.file_pieces().iter().copied().filter(fits) {
                let run = file.run(FileSetting {
                    op: known,
                    piece_bytes,
                    threads,
                    time: plan.file_time(),
                })?;
                let (gb_s, piece) = (estimate(run.gb_s)?, quantiles(run.times)?);
                points.push(FileCost {
                    op,
                    is_direct: run.is_direct,
                    piece_bytes,
                    threads,
                    gb_s,
                    piece,
                });
            }
        }
    }
    Ok(points)
}

fn pages<G: Ground>(ground: &G, node: &str) -> io::Result<Vec<Pages>> {
    let cost = |page: terrace_machine::pages::PageCost| {
        Ok(Pages {
            page_bytes: page.page_bytes,
            fault_ns: estimate(page.fault_ns)?,
            random_load_ns: estimate(page.random_load_ns)?,
        })
    };
    ground.pages(node)?.into_iter().map(cost).collect()
}
