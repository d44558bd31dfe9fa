//! Regions: the objects that a unit of stores writes, with what was measured of the writes to each.

use super::lines::ByAddress;
use super::runs::Run;
use super::thresholds::Thresholds;

const PAGE_BYTES: u64 = 4096;
/// A write this close to a region of the page before or behind belongs to it: rows that no run connects.
const NEAR_BYTES: u64 = 2048;

/// A mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    sum: u64,
    pub(super) count: u64,
}

impl Mean {
    pub(super) fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
    }

    pub(super) fn merge(&mut self, other: Mean) {
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
    }

    pub(super) fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

/// What was measured of writes, of one region or several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) writes: u64,
    pub(super) bytes: u64,
    pub(super) sequential: u64,
    pub(super) sequential_runs: u64,
    pub(super) run_bytes: u64,
    pub(super) rewritten: u64,
    pub(super) fenced: u64,
    pub(super) visits: u64,
    pub(super) reread_visits: u64,
    pub(super) shared_visits: u64,
    pub(super) reread: Mean,
    pub(super) rewrite: Mean,
    pub(super) fence_distance: Option<u64>,
}

impl Tally {
    /// Notes that a fence followed one of the writes after so many instructions.
    pub(super) fn fence(&mut self, distance: u64) {
        self.fenced += 1;
        self.fence_distance =
            Some(self.fence_distance.map_or(distance, |least| least.min(distance)));
    }

    pub(super) fn merge(&mut self, other: &Tally) {
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.sequential += other.sequential;
        self.sequential_runs += other.sequential_runs;
        self.run_bytes = self.run_bytes.saturating_add(other.run_bytes);
        self.rewritten += other.rewritten;
        self.fenced += other.fenced;
        self.visits += other.visits;
        self.reread_visits += other.reread_visits;
        self.shared_visits += other.shared_visits;
        self.reread.merge(other.reread);
        self.rewrite.merge(other.rewrite);
        self.fence_distance =
            [self.fence_distance, other.fence_distance].into_iter().flatten().min();
    }

    fn close(&mut self, run: &Run, thresholds: &Thresholds) {
        if run.is_sequential(thresholds.run_bytes) {
            self.sequential += run.writes;
            self.sequential_runs += 1;
            self.run_bytes = self.run_bytes.saturating_add(run.extent());
        }
        if run.rewrites {
            self.rewritten += run.writes;
        }
    }
}

/// One region.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) unit: u32,
    /// Another one that it was found to be a part of; itself if none.
    parent: u32,
    start: u64,
    end: u64,
    pub(super) tally: Tally,
}

impl Region {
    pub(super) fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }
}

/// All regions.
#[derive(Debug, Default)]
pub(super) struct Regions {
    all: Vec<Region>,
    by_page: ByAddress<(u32, u64), u32>,
    /// Once there are too many: one region for each unit, of whatever it writes elsewhere.
    elsewhere: Option<ByAddress<u32, u32>>,
}

impl Regions {
    /// The region that this one is part of by now.
    pub(super) fn root(&mut self, mut at: u32) -> u32 {
        while self.all[at as usize].parent != at {
            let above = self.all[at as usize].parent;
            self.all[at as usize].parent = self.all[above as usize].parent;
            at = above;
        }
        at
    }

    pub(super) fn tally(&mut self, at: u32) -> &mut Tally {
        let root = self.root(at);
        &mut self.all[root as usize].tally
    }

    /// The region of `unit` that a write at `address` belongs to.
    pub(super) fn of(&mut self, unit: u32, address: u64, end: u64) -> u32 {
        let page = address / PAGE_BYTES;
        let here = self.by_page.get(&(unit, page)).copied();
        let beside = [page.wrapping_sub(1), page.wrapping_add(1)];
        let found = here.or_else(|| {
            let mut regions =
                beside.into_iter().filter_map(|page| self.by_page.get(&(unit, page)).copied());
            regions.find(|region| self.is_near(*region, address, end))
        });
        if let Some(region) = found {
            return self.enter(region, address, end);
        }
        let next = self.all.len() as u32;
        let elsewhere = self.elsewhere.as_mut().map(|all| *all.entry(unit).or_insert(next));
        if let Some(known) = elsewhere.filter(|known| *known != next) {
            return self.root(known);
        }
        self.all.push(Region { unit, parent: next, start: address, end, tally: Tally::default() });
        self.enter(next, address, end)
    }

    /// Makes no further regions, but one for each unit.
    pub(super) fn keep_no_more(&mut self) {
        self.elsewhere.get_or_insert_default();
    }

    fn is_near(&self, mut region: u32, address: u64, end: u64) -> bool {
        while self.all[region as usize].parent != region {
            region = self.all[region as usize].parent;
        }
        let region = &self.all[region as usize];
        address.saturating_sub(region.end) <= NEAR_BYTES
            && region.start.saturating_sub(end) <= NEAR_BYTES
    }

    /// Notes that a write of the region's unit is in a page that may be new to it.
    pub(super) fn enter(&mut self, region: u32, address: u64, end: u64) -> u32 {
        let root = self.root(region);
        let unit = self.all[root as usize].unit;
        let page = address / PAGE_BYTES;
        if self.elsewhere.is_some() && !self.by_page.contains_key(&(unit, page)) {
            return root;
        }
        let there = *self.by_page.entry((unit, page)).or_insert(root);
        let there = self.root(there);
        let one = if there == root { root } else { self.join(root, there) };
        let region = &mut self.all[one as usize];
        region.start = region.start.min(address);
        region.end = region.end.max(end);
        one
    }

    fn join(&mut self, one: u32, other: u32) -> u32 {
        let (start, end, tally) = {
            let other = &mut self.all[other as usize];
            other.parent = one;
            (other.start, other.end, std::mem::take(&mut other.tally))
        };
        let region = &mut self.all[one as usize];
        region.start = region.start.min(start);
        region.end = region.end.max(end);
        region.tally.merge(&tally);
        one
    }

    /// Notes where a run has come to, and counts what it was.
    pub(super) fn close(&mut self, run: &Run, thresholds: &Thresholds) {
        let root = self.root(run.region);
        let region = &mut self.all[root as usize];
        let (start, end) = run.range();
        region.start = region.start.min(start);
        region.end = region.end.max(end);
        region.tally.close(run, thresholds);
    }

    /// Those that are no part of another.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Region> {
        self.all
            .iter()
            .enumerate()
            .filter(|(at, r)| r.parent == *at as u32)
            .map(|(_, region)| region)
    }

    /// Bytes that this table takes, about.
    pub(super) fn bytes(&self) -> u64 {
        (self.all.len() * size_of::<Region>() + self.by_page.len() * 24) as u64
    }
}
