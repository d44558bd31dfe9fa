//! A preset that was made from a machine's profile, held against the figures of that profile.

use super::{Calibration, Check};
use crate::chase::Chase;
use crate::load::Load;
use crate::loaded::Loaded;
use crate::model::Preset;
use crate::stores::Stores;
use crate::test_bed::{Bench, TestBed};
use std::io;
use terrace_memory::profile::{
    Bandwidth, Flavour, Latency, Loaded as LoadedPoint, NodeProfile, StoreCost,
};
use terrace_memory::{Domain, Profile};

/// Samples of 32 loads, or of 16 pieces.
const SAMPLES: u64 = 500;
/// The largest cache that memory is measured behind: larger ones are divided, and working sets with them.
const CACHE_MAX: u64 = 1 << 20;
/// Working sets within caches up to here are laid as they are: each costs a store for each line.
const LAID_MAX: u64 = 32 << 20;
const SOURCE: &str = "the profile";

/// How far a preset is from a profile, by the profile's own settings: what its figures were taken from, which is
/// given, and others that follow from the model.
///
/// # Errors
/// The preset has not the profile's memories or threads.
///
/// # Cost
/// A second or two for each memory.
pub fn against(preset: &Preset, profile: &Profile) -> io::Result<Calibration> {
    let divisor = (preset.cache_bytes() / CACHE_MAX).max(1);
    let near = preset.clone().with_caches_divided(divisor);
    let mut checks = Vec::new();
    for node in preset.nodes() {
        let Some(known) = profile.node(&node) else {
            let what = format!("the profile has no memory {node}");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        };
        let test_bed = Measure { preset, near: &near, divisor, known };
        test_bed.latencies(&mut checks)?;
        test_bed.bandwidths(&mut checks)?;
        test_bed.stores(&mut checks)?;
        test_bed.loaded(&mut checks)?;
    }
    Ok(Calibration { preset: preset.name.clone(), whose: "profile", checks })
}

struct Measure<'a> {
    preset: &'a Preset,
    /// The same with caches that are soon outgrown.
    near: &'a Preset,
    divisor: u64,
    known: &'a NodeProfile,
}

impl Measure<'_> {
    fn check(
        &self,
        what: String,
        [known, modelled]: [f64; 2],
        given: bool,
        reason: &'static str,
    ) -> Check {
        let what = format!("{} {what}", self.known.name);
        Check { what, source: SOURCE, published: known, modelled, given, reason }
    }

    /// A load within each private cache, within the shared one, and of the memory.
    fn latencies(&self, checks: &mut Vec<Check>) -> io::Result<()> {
        let points = self.known.latency.points();
        let mut within: Vec<&Latency> = Vec::new();
        for (place, level) in self.preset.cache.iter().enumerate() {
            // Half of the shared one: the rest may be others'.
            let is_shared = place + 1 == self.preset.cache.len();
            let most = if is_shared { level.bytes / 2 } else { level.bytes }.min(LAID_MAX);
            let fitting = points.iter().filter(|point| point.bytes <= most);
            let Some(point) = fitting.max_by_key(|point| point.bytes) else { continue };
            if within.last().is_none_or(|last| last.bytes < point.bytes) {
                within.push(point);
            }
        }
        let reason = "translation of addresses is not modelled, nor a cache's slices";
        for point in within {
            let ns = self.chase_ns(self.preset, point.bytes)?;
            let what = format!("load over {} B, ns", point.bytes);
            checks.push(self.check(what, [point.load.p50_ns.median(), ns], true, reason));
        }
        if let Some(idle) = self.known.idle_latency() {
            let ns = self.chase_ns(self.near, (idle.bytes / self.divisor).max(128))?;
            let what = format!("load over {} B, ns", idle.bytes);
            checks.push(self.check(what, [idle.load.p50_ns.median(), ns], true, reason));
        }
        Ok(())
    }

    fn chase_ns(&self, preset: &Preset, bytes: u64) -> io::Result<f64> {
        let bench = preset.bench(1)?;
        let memory = bench.memory(&self.known.name, bytes, Domain::None)?;
        let mut chase = Chase::lay(&bench, &memory, bytes);
        if bytes > preset.cache_bytes() {
            bench.forget(&memory);
        } else {
            // Once around: what a cache keeps is there then.
            chase.follow((bytes / 64 / 32).max(1));
        }
        Ok(chase.follow(SAMPLES).p50_ns)
    }

    /// The best in order and one thread alone, which are given where they are the preset's, and single lines of all
    /// threads, which follow.
    fn bandwidths(&self, checks: &mut Vec<Check>) -> io::Result<()> {
        let points = self.known.bandwidth.points();
        let of = |flavour, is_random| {
            points
                .iter()
                .filter(move |point| (point.flavour, point.is_random) == (flavour, is_random))
        };
        let place = self.preset.node_named(&self.known.name).map_err(io::Error::other)?;
        let node = &self.preset.node[place];
        let most = |a: &&Bandwidth, b: &&Bandwidth| a.gb_s.median().total_cmp(&b.gb_s.median());
        for flavour in [Flavour::Read, Flavour::Stream, Flavour::StoreFlush] {
            let peak = of(flavour, false).max_by(most);
            let alone = of(flavour, false).filter(|point| point.threads == 1).max_by(most);
            let lines = of(flavour, true).filter(|point| point.piece_bytes == 64);
            let lines = lines.max_by_key(|point| point.threads);
            let mut seen: Vec<&Bandwidth> = Vec::new();
            let is_read = flavour == Flavour::Read;
            let is_peak = peak.is_some_and(|point| point.gb_s.median() == node.write_gb_s);
            for (point, given) in [(peak, is_read || is_peak), (alone, is_read), (lines, false)] {
                let Some(point) = point.filter(|point| !seen.contains(point)) else { continue };
                seen.push(point);
                checks.push(self.bandwidth(point, given)?);
            }
        }
        Ok(())
    }

    fn bandwidth(&self, point: &Bandwidth, given: bool) -> io::Result<Check> {
        let load = Load {
            node: &self.known.name,
            op: point.flavour.into(),
            random: point.is_random,
            bytes: point.piece_bytes,
            threads: point.threads,
            overhead_ns: 0.0,
        };
        let modelled = load.run(self.near)?.gb_s();
        let order = if point.is_random { "at random" } else { "in order" };
        let (flavour, bytes, threads) = (name_of(point.flavour), point.piece_bytes, point.threads);
        let what = format!("{flavour} {order}, {bytes} B, {threads} threads, GB/s");
        let reason = "a modelled thread has one piece on its way at a time; a processor runs ahead into the next";
        Ok(self.check(what, [point.gb_s.median(), modelled], given, reason))
    }

    /// A line written, whose cost is given, and the largest piece, which follows.
    fn stores(&self, checks: &mut Vec<Check>) -> io::Result<()> {
        for flavour in [Flavour::StoreFlush, Flavour::Stream] {
            let of = self.known.stores.points().iter().filter(|point| point.flavour == flavour);
            let mut of: Vec<&StoreCost> = of.collect();
            of.sort_by_key(|point| point.piece_bytes);
            of.dedup_by_key(|point| point.piece_bytes);
            let ends = [of.first(), of.last().filter(|_| of.len() > 1)];
            for point in ends.into_iter().flatten() {
                let setting = Stores {
                    node: &self.known.name,
                    op: flavour.into(),
                    bytes: point.piece_bytes,
                    samples: SAMPLES,
                };
                let ns = setting.run(self.near)?.p50_ns;
                let what = format!("{} at random, {} B, ns", name_of(flavour), point.piece_bytes);
                let reason = "lines that are not waited for overlap otherwise than in the model";
                let given = point.piece_bytes == 64;
                checks.push(self.check(what, [point.piece.p50_ns.median(), ns], given, reason));
            }
        }
        Ok(())
    }

    /// Loads while others read, and while they write, as much as they can: nothing of it is given.
    fn loaded(&self, checks: &mut Vec<Check>) -> io::Result<()> {
        let busy = self.known.loaded.points().iter().filter(|point| point.pause_ns == 0);
        let mut busy: Vec<&LoadedPoint> = busy.collect();
        busy.sort_by_key(|point| (point.writes_percent, point.threads));
        busy.dedup_by_key(|point| point.writes_percent);
        for point in [busy.first(), busy.last().filter(|_| busy.len() > 1)].into_iter().flatten() {
            let setting = Loaded {
                node: &self.known.name,
                writes_percent: point.writes_percent,
                pause_ns: 0.0,
                threads: point.threads,
                samples: SAMPLES,
            };
            let ns = setting.run(self.near)?.times.p50_ns;
            let (writes, threads) = (point.writes_percent, point.threads);
            let what = format!("load beside {threads} threads, {writes} % writes, ns");
            let reason =
                "the order in which a controller serves reads before writes is not modelled";
            checks.push(self.check(what, [point.load.p50_ns.median(), ns], false, reason));
        }
        Ok(())
    }
}

fn name_of(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Read => "read",
        Flavour::Store => "store",
        Flavour::StoreFlush => "store and flush",
        Flavour::Stream => "stream",
    }
}
