//! From tallies to a report.

use super::regions::{Mean, Tally};
use super::report::{
    Advice, CallPath, Findings, FunctionReport, Measured, PlaceReport, PrefetchReport, SizeClass,
    SourceLine, Stack,
};
use super::{Analysis, judge};
use std::collections::{BTreeMap, HashMap};

/// Functions in a report at most.
const FUNCTIONS: usize = 25;
/// Lines, classes and paths of each at most.
const DETAILS: usize = 8;
/// Callers that a function's paths name.
const CALLERS: usize = 6;
/// Stacks at most.
const STACKS: usize = 5_000;
/// Prefetches at most.
const PREFETCHES: usize = 5;
/// Reads that a prefetch must be worth.
const FEWEST_READS: u64 = 10_000;
/// A prefetch further ahead than this is nonsense.
const MOST_AHEAD: u64 = 256;

/// A region: its range, and what was measured.
type Extent = ((u64, u64), Tally);
/// Regions by the unit that writes them.
type Places = BTreeMap<u32, Vec<Extent>>;

impl<P: super::Places> Analysis<P> {
    /// Closes what is open and judges every function with enough of the writes.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Analysis, Symbols, Thresholds};
    /// let findings = Analysis::new(Symbols::default(), Thresholds::default()).finish();
    /// assert!(findings.functions.is_empty());
    /// ```
    pub fn finish(mut self) -> Findings {
        for run in self.runs.finish() {
            self.regions.close(&run, &self.thresholds);
        }
        let totals = self.totals();
        let mut functions: HashMap<u32, Places> = HashMap::new();
        let roots: Vec<(u32, Extent)> =
            self.regions.roots().map(|r| (r.unit, (r.range(), r.tally))).collect();
        for (unit, region) in roots {
            let unit = self.units.of(unit);
            let function = self.sites[unit as usize].function;
            functions.entry(function).or_default().entry(unit).or_default().push(region);
        }
        let sum = |of: &Places| of.values().flatten().map(|(_, tally)| tally.writes).sum::<u64>();
        let mut ranked: Vec<(u32, Places)> = functions.into_iter().collect();
        ranked.sort_by_key(|(function, of)| (std::cmp::Reverse(sum(of)), *function));
        let least = self.thresholds.function_share * totals.writes as f64;
        ranked.retain(|(_, of)| sum(of) as f64 >= least);
        ranked.truncate(FUNCTIONS);
        let functions =
            ranked.into_iter().map(|(function, of)| self.function_report(function, of)).collect();
        let prefetches = self.prefetches();
        let stacks = self.stacks();
        Findings { totals, functions, prefetches, stacks, thresholds: self.thresholds }
    }

    fn function_report(&mut self, function: u32, of: Places) -> FunctionReport {
        let mut all = Tally::default();
        of.values().flatten().for_each(|(_, tally)| all.merge(tally));
        let mut places: Vec<PlaceReport> = of
            .into_iter()
            .map(|(unit, regions)| self.place_report(unit, regions, all.writes))
            .collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.measured.writes));
        let least = self.thresholds.class_share;
        let worth = |place: &&PlaceReport| {
            place.verdict.advice != Advice::Nothing && place.measured.share >= least
        };
        let chosen = places.iter().find(worth).or(places.first());
        let verdict = chosen
            .map_or_else(|| judge(&measured(&all), &[], &self.thresholds), |p| p.verdict.clone());
        places.truncate(DETAILS);
        let (name, image) = self.places.name(function);
        let callers = self.callers(function);
        let measured = Measured { share: share(all.writes, self.totals.writes), ..measured(&all) };
        FunctionReport { function: name, image, measured, places, callers, verdict }
    }

    fn place_report(&mut self, unit: u32, regions: Vec<Extent>, of_function: u64) -> PlaceReport {
        let mut all = Tally::default();
        regions.iter().for_each(|(_, tally)| all.merge(tally));
        let measured = Measured { share: share(all.writes, of_function), ..measured(&all) };
        let classes = classes(regions, all.writes);
        let verdict = judge(&measured, &classes, &self.thresholds);
        PlaceReport { lines: self.source_lines(unit, all.writes), measured, classes, verdict }
    }

    fn source_lines(&mut self, unit: u32, writes: u64) -> Vec<SourceLine> {
        let mut lines: BTreeMap<String, (u64, Mean, Mean)> = BTreeMap::new();
        for (number, site) in self.sites.iter().enumerate().filter(|(_, site)| site.writes > 0) {
            if self.units.of(number as u32) != unit {
                continue;
            }
            let of = lines.entry(self.places.location(site.ip)).or_default();
            of.0 += site.writes;
            of.1.merge(site.reread);
            of.2.merge(site.rewrite);
        }
        let line = |(location, (of, reread, rewrite)): (String, (u64, Mean, Mean))| SourceLine {
            location,
            writes: of,
            share: share(of, writes),
            reread_distance: reread.value(),
            rewrite_distance: rewrite.value(),
        };
        let mut lines: Vec<SourceLine> = lines.into_iter().map(line).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.writes));
        lines.truncate(DETAILS);
        lines
    }

    fn callers(&mut self, function: u32) -> Vec<CallPath> {
        let mut paths: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        for ((_, path), along) in self.paths.iter().filter(|((to, _), _)| *to == function) {
            let near = path[..path.len().min(CALLERS)].to_vec();
            *paths.entry(near).or_default() += along.writes;
        }
        let mut paths: Vec<(Vec<u32>, u64)> =
            paths.into_iter().filter(|(_, writes)| *writes > 0).collect();
        paths.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        paths.truncate(DETAILS);
        let named = |(path, writes): (Vec<u32>, u64)| CallPath {
            callers: path.into_iter().map(|function| self.places.name(function).0).collect(),
            writes,
        };
        paths.into_iter().map(named).collect()
    }

    fn stacks(&mut self) -> Vec<Stack> {
        let paths = std::mem::take(&mut self.paths);
        let mut paths: Vec<_> = paths.into_iter().collect();
        paths.sort_by(|(a, x), (b, y)| {
            (y.writes, y.fences).cmp(&(x.writes, x.fences)).then(a.cmp(b))
        });
        paths.truncate(STACKS);
        let named = |((function, callers), along): (super::Path, super::Along)| {
            let all = callers.into_iter().rev().chain([function]);
            let functions = all.map(|function| self.places.name(function).0).collect();
            Stack { functions, writes: along.writes, fences: along.fences }
        };
        paths.into_iter().map(named).collect()
    }

    fn prefetches(&mut self) -> Vec<PrefetchReport> {
        let of = &self.thresholds;
        let worth = |reads: u64, irregular: u64| {
            reads >= FEWEST_READS && share(irregular, reads) >= of.irregular
        };
        let mut sites: Vec<_> =
            self.sites.iter().filter(|site| worth(site.reads, site.irregular)).copied().collect();
        sites.sort_by_key(|site| (std::cmp::Reverse(site.irregular), site.ip));
        sites.truncate(PREFETCHES);
        let report = |site: super::Site| {
            let each = (site.last_read - site.first_read.min(site.last_read)) / site.reads.max(1);
            let ahead = self.thresholds.latency.div_ceil(each.max(1)).clamp(1, MOST_AHEAD);
            PrefetchReport {
                function: self.places.name(site.function).0,
                location: self.places.location(site.ip),
                reads: site.reads,
                irregular_share: share(site.irregular, site.reads),
                ahead,
                warning: "only where the address is known that far ahead, as from an array of indexes; a chain of pointers \
                          cannot be prefetched"
                    .into(),
            }
        };
        sites.into_iter().map(report).collect()
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

fn measured(tally: &Tally) -> Measured {
    Measured {
        writes: tally.writes,
        bytes: tally.bytes,
        share: 0.0,
        sequential_share: share(tally.sequential, tally.writes),
        fenced_share: share(tally.fenced, tally.writes),
        fence_distance: tally.fence_distance,
        reread_distance: tally.reread.value(),
        reread_share: share(tally.reread_visits, tally.visits).min(1.0),
        rewrite_distance: tally.rewrite.value(),
        rewritten_share: share(tally.rewritten, tally.writes),
        shared_share: share(tally.shared_visits, tally.visits).min(1.0),
    }
}

/// Regions by powers of two of their size. Two that lie in one another are one: they were begun by different stores.
fn classes(mut regions: Vec<Extent>, writes: u64) -> Vec<SizeClass> {
    regions.sort_by_key(|(range, _)| *range);
    let mut apart: Vec<Extent> = Vec::new();
    for ((start, end), tally) in regions {
        match apart.last_mut() {
            Some(((_, last), merged)) if start < *last => {
                *last = end.max(*last);
                merged.merge(&tally);
            }
            _ => apart.push(((start, end), tally)),
        }
    }
    let mut by_size: BTreeMap<u32, (u64, u64, Tally)> = BTreeMap::new();
    for ((start, end), tally) in apart {
        let bytes = end.saturating_sub(start).max(1);
        let class = by_size.entry(bytes.ilog2()).or_default();
        class.0 = class.0.saturating_add(bytes);
        class.1 += 1;
        class.2.merge(&tally);
    }
    let class = |(bytes, regions, tally): (u64, u64, Tally)| SizeClass {
        bytes: bytes / regions.max(1),
        regions,
        run_bytes: tally.run_bytes / tally.sequential_runs.max(1),
        share: share(tally.writes, writes),
        reread_distance: tally.reread.value(),
        reread_share: share(tally.reread_visits, tally.visits).min(1.0),
        rewrite_distance: tally.rewrite.value(),
    };
    let mut classes: Vec<SizeClass> = by_size.into_values().map(class).collect();
    classes.sort_by(|a, b| b.share.total_cmp(&a.share));
    classes.truncate(DETAILS);
    classes
}
