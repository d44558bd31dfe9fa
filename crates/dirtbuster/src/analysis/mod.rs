//! Steps 2 and 3 of DirtBuster (Wu, chapter 3): from a stream of events to findings.
//!
//! One pass, as the events come. A write of a monitored function
//! 1. continues a run of adjacent writes or breaks one ([`runs`]), and belongs to a region ([`regions`]);
//! 2. is a *re-write* if it breaks a run and overwrites bytes that are remembered ([`lines`]);
//! 3. waits for a fence.
//!
//! A read of bytes that a monitored function wrote is a *re-read*. At the end each function is judged ([`judge`]).
//!
//! # Threads
//! A tracer does not know the order between threads. Runs, distances and fences are those of one thread; bytes that one
//! thread wrote and another accesses are *shared*, a share of its own, and no distance.
//!
//! # Bounds
//! What is remembered of lines and regions is at most [`MEMORY_BYTES`]; beyond it no further line is remembered, and
//! [`Analysis::is_full`] says so.

mod lines;
mod regions;
mod report;
mod runs;
mod summary;
mod thresholds;
mod units;
mod verdict;

pub(crate) use lines::ByAddress;
pub use report::{
    Advice, CallPath, Findings, FunctionReport, Measured, PlaceReport, PrefetchReport, SizeClass,
    SourceLine, Stack, Totals, Verdict,
};
pub(crate) use report::{bytes, distance};
pub use thresholds::{LINE_BYTES, SettingError, Thresholds};
pub use verdict::judge;

use crate::event::{Event, Image, Kind, Sink};
use lines::Lines;
use regions::{Mean, Regions};
use runs::{Placed, Run, Runs, Write};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use units::Units;

/// The most that an analysis remembers of lines and regions.
pub const MEMORY_BYTES: u64 = 384 << 20;
/// Instructions that are told apart; more come from code that is made at run time, or from a damaged trace.
const SITES: usize = 1 << 20;
/// Writes of one thread that wait for a fence.
const UNFENCED: usize = 1 << 14;
/// One write in so many notes its path of calls.
const PATH_EVERY: u64 = 61;
/// Callers that a path has at most.
const PATH_CALLERS: usize = 32;
/// Paths that are remembered: a recursive program has any number.
const PATHS: usize = 1 << 16;
/// The deepest stack of calls that is followed.
const DEEPEST: usize = 4096;
/// Lines that count as touched lately: 1 MiB.
const TOUCHED_LINES: usize = 1 << 14;
const SITE_CACHE: usize = 1 << 12;

/// Who knows functions and lines of code.
pub trait Places {
    /// Notes that a file's code lies somewhere from now on.
    fn image(&mut self, image: &Image);
    /// The function of an instruction: a number of this trace, the same for all its instructions.
    fn function(&mut self, ip: u64) -> u32;
    /// The function's name, and the name of its program or library.
    fn name(&mut self, function: u32) -> (String, String);
    /// `file:line` of an instruction, or its address.
    fn location(&mut self, ip: u64) -> String;
    /// Whether the instruction writes only where the stack pointer points, where that is known.
    fn spills(&mut self, ip: u64) -> bool;
    /// Whether the function is to be looked at.
    fn is_monitored(&self, function: u32) -> bool;
}

/// An instruction that accesses memory.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    ip: u64,
    function: u32,
    is_monitored: bool,
    spills: bool,
    writes: u64,
    reads: u64,
    irregular: u64,
    first_read: u64,
    last_read: u64,
    last_line: u64,
    last_stride: i64,
    reread: Mean,
    rewrite: Mean,
}

/// A write that no fence has followed yet.
#[derive(Clone, Copy, Debug)]
struct Unfenced {
    count: u64,
    region: u32,
}

/// A function, and its callers, the innermost first.
type Path = (u32, Vec<u32>);

/// What came along a path: writes in units of [`PATH_EVERY`], fences each.
#[derive(Clone, Copy, Debug, Default)]
struct Along {
    writes: u64,
    fences: u64,
}

#[derive(Debug, Default)]
struct Thread {
    count: u64,
    unfenced: VecDeque<Unfenced>,
    calls: Vec<u64>,
}

/// An analysis in progress.
#[derive(Debug)]
pub struct Analysis<P> {
    places: P,
    thresholds: Thresholds,
    totals: Totals,
    lines: Lines,
    runs: Runs,
    regions: Regions,
    sites: Vec<Site>,
    site_of: ByAddress<u64, u32>,
    site_cache: Vec<(u64, u32)>,
    units: Units,
    threads: Vec<Thread>,
    touched: Vec<u64>,
    paths: HashMap<Path, Along>,
    memory_bytes: u64,
    is_full: bool,
}

impl<P: Places> Analysis<P> {
    /// An analysis without events.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Advice, Analysis, Event, Kind, Sink, Symbols, Thresholds};
    /// let mut analysis = Analysis::new(Symbols::default(), Thresholds::default());
    /// for count in 1..10_000 {
    ///     let address = 0x10_0000 + 8 * count;
    ///     analysis.take(&Event { count, kind: Kind::Write, ip: 0x400, address, size: 8, thread: 0 });
    /// }
    /// let findings = analysis.finish();
    /// assert_eq!(findings.functions[0].verdict.advice, Advice::Stream);
    /// ```
    pub fn new(places: P, thresholds: Thresholds) -> Analysis<P> {
        Analysis {
            places,
            thresholds,
            totals: Totals::default(),
            lines: Lines::default(),
            runs: Runs::new(),
            regions: Regions::default(),
            sites: Vec::new(),
            site_of: ByAddress::default(),
            site_cache: vec![(0, u32::MAX); SITE_CACHE],
            units: Units::default(),
            threads: Vec::new(),
            touched: vec![u64::MAX; TOUCHED_LINES],
            paths: HashMap::new(),
            memory_bytes: MEMORY_BYTES,
            is_full: false,
        }
    }

    /// The same, which remembers at most so much of lines and regions, instead of [`MEMORY_BYTES`].
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Analysis, Symbols, Thresholds};
    /// let analysis = Analysis::new(Symbols::default(), Thresholds::default()).within(64 << 20);
    /// assert_eq!(analysis.remembered_bytes(), 0);
    /// ```
    #[must_use]
    pub fn within(mut self, memory_bytes: u64) -> Analysis<P> {
        self.memory_bytes = memory_bytes;
        self
    }

    /// What lines and regions take.
    ///
    /// # Examples
    /// As for [`Analysis::within`].
    pub fn remembered_bytes(&self) -> u64 {
        self.lines.bytes() + self.regions.bytes()
    }

    /// Whether there were more lines, or more code, than is remembered.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Analysis, Symbols, Thresholds};
    /// assert!(!Analysis::new(Symbols::default(), Thresholds::default()).is_full());
    /// ```
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Who knows the functions.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Analysis, Symbols, Thresholds};
    /// let analysis = Analysis::new(Symbols::default(), Thresholds::default());
    /// assert_eq!(analysis.places().instruction_sets().to_string(), "x86-64");
    /// ```
    pub fn places(&self) -> &P {
        &self.places
    }

    /// What the events so far add up to.
    ///
    /// # Examples
    /// ```
    /// use terrace_dirtbuster::{Analysis, Symbols, Thresholds};
    /// assert_eq!(Analysis::new(Symbols::default(), Thresholds::default()).totals().events, 0);
    /// ```
    pub fn totals(&self) -> Totals {
        let counts = self.threads.iter().map(|thread| thread.count);
        let instructions = counts.fold(0, u64::saturating_add);
        let threads = self.threads.iter().filter(|thread| thread.count > 0).count() as u32;
        Totals { instructions, threads, ..self.totals }
    }

    fn site(&mut self, ip: u64) -> u32 {
        let slot = (ip ^ ip >> 12) as usize % SITE_CACHE;
        let (cached, site) = self.site_cache[slot];
        if cached == ip && site != u32::MAX {
            return site;
        }
        let next = self.sites.len() as u32;
        if self.sites.len() >= SITES && !self.site_of.contains_key(&ip) {
            self.is_full = true;
            return next - 1;
        }
        let site = *self.site_of.entry(ip).or_insert(next);
        if site == next {
            let function = self.places.function(ip);
            let is_monitored = self.places.is_monitored(function);
            let spills = self.places.spills(ip);
            self.sites.push(Site { ip, function, is_monitored, spills, ..Site::default() });
            self.units.add();
        }
        self.site_cache[slot] = (ip, site);
        site
    }

    fn write(&mut self, event: &Event) {
        let site = self.site(event.ip);
        let at = &mut self.sites[site as usize];
        if at.spills {
            self.totals.spills += 1;
            return;
        }
        at.writes += 1;
        let (function, is_monitored) = (at.function, at.is_monitored);
        let line = event.address / LINE_BYTES;
        self.touched[touched_slot(line)] = line;
        if !is_monitored || event.size == 0 {
            return;
        }
        let write = Write {
            count: event.count,
            address: event.address,
            size: u64::from(event.size),
            function,
            thread: event.thread,
        };
        let mut closed = None;
        let (region, breaks) = match self.runs.place(&write, &mut closed) {
            Placed::Continued(slot, new_line) => {
                let (unit, region) = self.runs.owner(slot).unwrap_or((site, 0));
                let own = self.units.link(site, unit);
                let line_in_page = line % 64;
                let crosses = new_line && (line_in_page == 0 || line_in_page == 63);
                let region = match own == self.units.of(unit) {
                    true if crosses => self.regions.enter(region, write.address, write.end()),
                    true => region,
                    // Another store in the same run: what it writes is counted as its own.
                    false => self.regions.of(own, write.address, write.end()),
                };
                (region, false)
            }
            Placed::Alone => {
                let unit = self.units.of(site);
                (self.regions.of(unit, write.address, write.end()), true)
            }
        };
        self.close(closed);
        let rewritten = self.touch_lines(&write, region, site, breaks);
        if breaks {
            let unit = self.units.of(site);
            let closed = self.runs.open(&write, unit, region, rewritten.is_some());
            self.close(closed);
        }
        let tally = self.regions.tally(region);
        tally.writes += 1;
        tally.bytes += write.size;
        if let Some(distance) = rewritten {
            tally.rewrite.add(distance);
            self.sites[site as usize].rewrite.add(distance);
        }
        self.wait_for_fence(event, region);
        if self.totals.writes.is_multiple_of(PATH_EVERY) {
            self.note_path(event.thread, function, |along| along.writes += PATH_EVERY);
        }
    }

    fn close(&mut self, run: Option<Run>) {
        if let Some(run) = run {
            self.regions.close(&run, &self.thresholds);
        }
    }

    /// Remembers the write in the lines that it touches: how long ago its first line's bytes were written, if it
    /// breaks a run and that was within the horizon.
    fn touch_lines(&mut self, write: &Write, region: u32, site: u32, breaks: bool) -> Option<u64> {
        let first = write.address / LINE_BYTES;
        let last = write.end().saturating_sub(1) / LINE_BYTES;
        let mut rewritten = None;
        for line in first..=last.min(first.saturating_add(64)) {
            let bits = match line == first {
                true => write.mask(),
                false => runs::bytes_of(line * LINE_BYTES, write.end() - line * LINE_BYTES),
            };
            if self.is_full && self.lines.seen(line).is_none() {
                continue;
            }
            let known = self.lines.line(line);
            let was_written = known.written != 0;
            let same_thread = known.thread == write.thread;
            let overlaps = was_written && known.mask & bits != 0;
            let distance = write.count.saturating_sub(known.written);
            if breaks
                && overlaps
                && same_thread
                && distance <= self.thresholds.horizon
                && rewritten.is_none()
            {
                rewritten = Some(distance);
            }
            let shared = was_written && !same_thread && !known.was_shared;
            let before = known.region;
            // The run's own line, written on: one visit. A line from an earlier pass: another one.
            let goes_on =
                !breaks && known.region == region && distance <= self.thresholds.fence_soon;
            if !was_written || overlaps && !goes_on || !same_thread {
                known.mask = bits;
                known.was_read = false;
                known.was_shared = false;
                self.regions.tally(region).visits += 1;
            } else {
                known.mask |= bits;
            }
            known.written = write.count.max(1);
            known.region = region;
            known.site = site;
            known.thread = write.thread;
            if shared {
                self.regions.tally(before).shared_visits += 1;
            }
        }
        rewritten
    }

    fn wait_for_fence(&mut self, event: &Event, region: u32) {
        let Some(thread) = self.threads.get_mut(event.thread as usize) else { return };
        let oldest = event.count.saturating_sub(self.thresholds.fence_soon);
        let is_long = thread.unfenced.len() >= UNFENCED;
        while thread.unfenced.front().is_some_and(|write| write.count < oldest || is_long) {
            thread.unfenced.pop_front();
            if is_long {
                break;
            }
        }
        thread.unfenced.push_back(Unfenced { count: event.count, region });
    }

    fn fence(&mut self, event: &Event) {
        let function = self.places.function(event.ip);
        self.note_path(event.thread, function, |along| along.fences += 1);
        let Some(thread) = self.threads.get_mut(event.thread as usize) else { return };
        let oldest = event.count.saturating_sub(self.thresholds.fence_soon);
        for write in thread.unfenced.drain(..).filter(|write| write.count >= oldest) {
            let distance = event.count.saturating_sub(write.count);
            self.regions.tally(write.region).fence(distance);
        }
    }

    fn read(&mut self, event: &Event) {
        self.read_for_prefetch(event);
        if event.size == 0 {
            return;
        }
        let first = event.address / LINE_BYTES;
        let last = event.address.saturating_add(u64::from(event.size) - 1) / LINE_BYTES;
        for line in first..=last.min(first.saturating_add(64)) {
            let from = event.address.max(line * LINE_BYTES);
            let bits =
                runs::bytes_of(from, event.address.saturating_add(u64::from(event.size)) - from);
            let Some(known) = self.lines.seen(line) else { continue };
            if known.written == 0 || known.mask & bits == 0 {
                continue;
            }
            let (region, site) = (known.region, known.site as usize);
            if known.thread != event.thread {
                if !std::mem::replace(&mut known.was_shared, true) {
                    self.regions.tally(region).shared_visits += 1;
                }
                continue;
            }
            let distance = event.count.saturating_sub(known.written);
            if distance > self.thresholds.horizon {
                continue;
            }
            let first_time = !std::mem::replace(&mut known.was_read, true);
            let tally = self.regions.tally(region);
            tally.reread.add(distance);
            tally.reread_visits += u64::from(first_time);
            self.sites[site].reread.add(distance);
        }
    }

    /// Counts reads that miss at no regular stride: what no hardware prefetcher foresees.
    fn read_for_prefetch(&mut self, event: &Event) {
        let line = event.address / LINE_BYTES;
        let touched = std::mem::replace(&mut self.touched[touched_slot(line)], line) == line;
        let site = self.site(event.ip);
        let site = &mut self.sites[site as usize];
        if site.reads == 0 {
            site.first_read = event.count;
        }
        site.reads += 1;
        site.last_read = event.count;
        if line != site.last_line {
            let stride = line.wrapping_sub(site.last_line) as i64;
            let regular = stride == site.last_stride || stride.unsigned_abs() <= 2;
            site.irregular += u64::from(!touched && !regular);
            site.last_stride = stride;
            site.last_line = line;
        }
    }

    fn note_path(&mut self, thread: u32, function: u32, note: impl FnOnce(&mut Along)) {
        let Some(calls) = self.threads.get(thread as usize).map(|thread| &thread.calls) else {
            return;
        };
        let from: Vec<u64> = calls.iter().rev().take(PATH_CALLERS).copied().collect();
        let path = from.into_iter().map(|ip| self.places.function(ip)).collect();
        let is_full = self.paths.len() >= PATHS;
        match self.paths.entry((function, path)) {
            Entry::Occupied(along) => note(along.into_mut()),
            Entry::Vacant(along) if !is_full => note(along.insert(Along::default())),
            Entry::Vacant(_) => {}
        }
    }

    fn count(&mut self, event: &Event) {
        let thread = event.thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, Thread::default);
        }
        let thread = &mut self.threads[thread];
        thread.count = thread.count.max(event.count);
        self.totals.events += 1;
        match event.kind {
            Kind::Read => self.totals.reads += 1,
            Kind::Write => self.totals.writes += 1,
            Kind::Spill => {
                self.totals.writes += 1;
                self.totals.spills += 1;
            }
            Kind::Fence => self.totals.fences += 1,
            Kind::Call if thread.calls.len() < DEEPEST => thread.calls.push(event.ip),
            Kind::Call => {}
            Kind::Return => {
                thread.calls.pop();
            }
        }
        // So often that the bound is passed by no more than some pages.
        if self.totals.events.is_multiple_of(1 << 12) && self.remembered_bytes() > self.memory_bytes
        {
            self.is_full = true;
            self.regions.keep_no_more();
        }
    }
}

fn touched_slot(line: u64) -> usize {
    (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize % TOUCHED_LINES
}

/// Threads beyond this are counted as the last one: a trace with more is damaged.
const MOST_THREADS: u32 = 1 << 12;

impl<P: Places> Sink for Analysis<P> {
    fn take(&mut self, event: &Event) -> bool {
        let event = &Event { thread: event.thread.min(MOST_THREADS - 1), ..*event };
        self.count(event);
        match event.kind {
            Kind::Read => self.read(event),
            Kind::Write => self.write(event),
            Kind::Fence => self.fence(event),
            Kind::Spill | Kind::Call | Kind::Return => {}
        }
        true
    }

    fn image(&mut self, image: &Image) {
        self.places.image(image);
    }
}

#[cfg(test)]
mod tests;
