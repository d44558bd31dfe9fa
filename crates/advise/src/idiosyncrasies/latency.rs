//! I1 and I8: what a load or a p-store costs, by what the caches hold.

use super::sweep::Sweep;
use serde::{Deserialize, Serialize};
use std::io;
use terrace_machine::lines::{Lines, Pass};
use terrace_machine::test_bed::TestBed;

/// Threads of I1.
const THREADS: usize = 8;
/// The region of I1, at most: that of the paper's program, about half of its last-level cache.
const REGION_BYTES: u64 = 16 << 20;
/// Bytes of an item of I8.
const ITEM_BYTES: u64 = 256;
/// Shares of the lines that a cache holds, in tenths.
const TENTHS: u64 = 10;
/// Measured so often in real time; the quickest counts, since whatever else the machine does only slows it.
const REPEATS: usize = 3;

/// I1: a load and a p-store by the share of lines that a cache holds.
///
/// A region about half as large as the last-level cache; an item is 64 bytes, loaded word by word, or
/// each of its eight words stored, written back and fenced. The artifact of the paper writes back the
/// region's first line in each round instead of the one just written; here it is that one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CachedLatency {
    /// Threads.
    pub threads: usize,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Shares of the lines that were loaded before.
    pub hit_ratios: Vec<f64>,
    /// A load of an item, ns.
    pub load_ns: Vec<f64>,
    /// A p-store of an item, ns.
    pub persist_ns: Vec<f64>,
}

impl CachedLatency {
    /// Measures it.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<CachedLatency> {
        let threads = THREADS.min(sweep.most_threads());
        let bench = sweep.test_bed.bench(threads)?;
        let bytes = (sweep.test_bed.cache_bytes() / 2).min(REGION_BYTES);
        let lines = Lines::new(&bench, node, bytes, 64)?;
        let mut found = CachedLatency {
            threads,
            region_bytes: lines.bytes(),
            hit_ratios: Vec::new(),
            load_ns: Vec::new(),
            persist_ns: Vec::new(),
        };
        let all = 0..lines.items();
        for tenth in 0..=TENTHS {
            let ns = |what: Pass| {
                quickest(sweep.test_bed, || {
                    lines.pass(Pass::Store, all.clone(), 0.0);
                    lines.forget();
                    lines.pass(Pass::Load, 0..lines.items() * tenth / TENTHS, 0.0);
                    lines.pass(what, all.clone(), sweep.item_ns())
                })
            };
            found.hit_ratios.push(tenth as f64 / TENTHS as f64);
            found.load_ns.push(ns(Pass::Load));
            found.persist_ns.push(ns(Pass::Persist));
        }
        Ok(found)
    }

    /// How much longer a p-store takes than a load where the cache holds every line.
    pub fn effect(&self) -> f64 {
        last(&self.persist_ns) / last(&self.load_ns)
    }
}

/// I8 (of the paper's artifact alone): a load that misses, while the caches are full of clean lines, and
/// while they are full of dirty ones that must be written out for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirtyCache {
    /// Bytes of the region: two to four times the last-level cache.
    pub region_bytes: u64,
    /// An item of 256 bytes, with clean caches, ns.
    pub clean_ns: f64,
    /// The same with dirty ones.
    pub dirty_ns: f64,
}

impl DirtyCache {
    /// Measures it.
    ///
    /// # Errors
    /// There is no such node, or the system refuses memory or threads.
    pub fn measure<G: TestBed>(sweep: &Sweep<'_, G>, node: &str) -> io::Result<DirtyCache> {
        let bench = sweep.test_bed.bench(1)?;
        let lines = Lines::new(&bench, node, 4 * sweep.test_bed.cache_bytes(), ITEM_BYTES)?;
        let half = lines.items() / 2;
        let ns = |dirty: bool| {
            quickest(sweep.test_bed, || {
                lines.forget();
                lines.pass(Pass::Store, 0..half, 0.0);
                if !dirty {
                    lines.forget();
                    lines.pass(Pass::Load, 0..half, 0.0);
                }
                lines.pass(Pass::Load, half..half + half / 4, 0.0)
            })
        };
        Ok(DirtyCache { region_bytes: lines.bytes(), clean_ns: ns(false), dirty_ns: ns(true) })
    }

    /// How much longer it takes with dirty caches.
    pub fn effect(&self) -> f64 {
        self.dirty_ns / self.clean_ns
    }
}

/// The value of a measurement; in real time the least of several.
fn quickest<G: TestBed>(test_bed: &G, mut measure: impl FnMut() -> f64) -> f64 {
    let repeats = if test_bed.is_modelled() { 1 } else { REPEATS };
    (0..repeats).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

fn last(values: &[f64]) -> f64 {
    values.last().copied().unwrap_or(f64::NAN)
}
