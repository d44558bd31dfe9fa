//! Caches by the steps in a profile's latencies: a profile tells the size of the largest cache alone.

use super::{LINE, Text, number, refuse};
use crate::model::preset::PresetError;
use terrace_memory::profile::NodeProfile;

/// Latencies of two levels differ at least by this factor; what differs less is one level.
const STEP: f64 = 1.5;
/// Ways of the private caches and of the shared one.
const WAYS: u64 = 8;
const SHARED_WAYS: u64 = 16;
/// The latency that a first cache is given which is smaller than all that was measured, by the next level's.
const UNSEEN: f64 = 0.25;

/// A level: the most bytes that were seen to be within it, the fewest that were not, and what a load takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    pub bytes: u64,
    pub beyond: u64,
    pub ns: f64,
}

/// Levels from the core outwards, the last the shared one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Caches(pub Vec<Level>);

/// The caches in front of a memory.
pub(super) fn of(node: &NodeProfile, cache_bytes: u64) -> Result<Caches, PresetError> {
    let mut points: Vec<(u64, f64)> = node
        .latency
        .points()
        .iter()
        // Half of the largest: what others have in it is not this thread's.
        .filter(|point| point.bytes <= cache_bytes / 2)
        .map(|point| (point.bytes, point.load.p50_ns.median()))
        .filter(|(_, ns)| *ns > 0.0)
        .collect();
    points.sort_by_key(|(bytes, _)| *bytes);
    if points.is_empty() {
        let name = &node.name;
        return refuse(
            format_args!("nodes.{name}.latency"),
            format_args!("no working set fits into the largest cache, {cache_bytes} B"),
            format_args!("`terrace probe --node {name} --part latency --out FILE` measures such"),
        );
    }
    let parts = [3, 2, 1].into_iter().find_map(|levels| steps(&points, levels));
    let mut levels = levels_of(&points, &parts.unwrap_or_default());
    if let [only] = levels[..] {
        // The model has a private cache at least: one so small that nothing was measured of it.
        let bytes = (points[0].0 / 2).max(LINE * WAYS);
        levels.insert(0, Level { bytes, beyond: points[0].0, ns: only.ns * UNSEEN });
    }
    let shared = levels.last_mut().expect("there are two");
    (shared.bytes, shared.beyond) = (cache_bytes, cache_bytes);
    Ok(Caches(levels))
}

/// Where so many levels begin, if their latencies differ by a step: the split into plateaus that leaves the least
/// variance of logarithms.
fn steps(points: &[(u64, f64)], levels: usize) -> Option<Vec<usize>> {
    let logs: Vec<f64> = points.iter().map(|(_, ns)| ns.ln()).collect();
    let spread = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        part.iter().map(|log| (log - mean).powi(2)).sum::<f64>()
    };
    let n = points.len();
    let cuts: Vec<Vec<usize>> = match levels {
        1 => vec![vec![0]],
        2 => (1..n).map(|one| vec![0, one]).collect(),
        _ => (1..n).flat_map(|one| (one + 1..n).map(move |two| vec![0, one, two])).collect(),
    };
    let cost = |starts: &Vec<usize>| {
        let ends = starts.iter().skip(1).copied().chain([n]);
        starts.iter().zip(ends).map(|(start, end)| spread(&logs[*start..end])).sum::<f64>()
    };
    let best = cuts.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let found = levels_of(points, &best);
    found.windows(2).all(|pair| pair[1].ns >= STEP * pair[0].ns).then_some(best)
}

fn levels_of(points: &[(u64, f64)], starts: &[usize]) -> Vec<Level> {
    let n = points.len();
    let ends = starts.iter().skip(1).copied().chain([n]);
    let level = |(start, end): (&usize, usize)| {
        let mut ns: Vec<f64> = points[*start..end].iter().map(|(_, ns)| *ns).collect();
        ns.sort_by(f64::total_cmp);
        let beyond = points.get(end).map_or(points[n - 1].0, |(bytes, _)| *bytes);
        Level { bytes: points[end - 1].0, beyond, ns: ns[ns.len() / 2] }
    };
    starts.iter().zip(ends).map(level).collect()
}

impl Caches {
    pub fn shared_ns(&self) -> f64 {
        self.0.last().map_or(0.0, |level| level.ns)
    }

    pub fn write(&self, text: &mut Text) {
        let count = self.0.len();
        for (number_of, level) in self.0.iter().enumerate() {
            let is_shared = number_of + 1 == count;
            let ways = if is_shared { SHARED_WAYS } else { WAYS };
            let set = LINE * ways;
            let bytes = (level.bytes / set * set).max(set);
            text.line("\n[[cache]]");
            if is_shared {
                text.figure(
                    "bytes",
                    bytes,
                    "MEASURED: the largest cache, as the system tells it, in whole sets",
                );
            } else {
                let seen = format!(
                    "loads over {} B are of it, those over {} B are not",
                    level.bytes, level.beyond
                );
                text.figure("bytes", bytes, format_args!("MEASURED: {seen}"));
            }
            text.assumed("ways", ways, "a power of two; a profile does not tell");
            text.figure(
                "latency_ns",
                number(level.ns),
                "MEASURED: the median over working sets of this level",
            );
            if is_shared {
                text.assumed(
                    "replacement",
                    "\"mixed\"",
                    "as the presets of x86, with their shares",
                );
                text.assumed("random_percent", 1, "as optane-000");
                text.assumed("random_percent_shared", 8, "as optane-000");
            } else {
                text.assumed("replacement", "\"tree-plru\"", "as the presets of x86");
            }
        }
    }
}
