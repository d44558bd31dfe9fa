//! The contents of the crashing memory at every level, as overlays with undo.
//!
//! Level 0 is the scenario, level 1 its recovery after a crash, level 2 the recovery after a crash
//! of that recovery, and so on. `images[l]` is what an execution at level `l` sees. Below a running
//! execution at level `l`, `images[l + 1]` is the part of it that is certain to survive, so a crash
//! copies nothing: the next level runs on that image, and words that are *uncertain* there get their
//! value when, and only when, they are read. What an execution at level 1 or deeper changes is
//! undone when it ends.
//!
//! Invariants:
//! * a word is uncertain in `images[l]` only if some log of a level below `l` has a piece on it;
//! * of those logs the highest decides: a level that may crash resolves a word before it stores;
//! * a span of level `i` in an execution of level `l` starts as that of level `l - 1` stood, and
//!   only shrinks.

use super::choices::Choices;
use super::versions::{Candidate, Span, StoreLog};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use terrace_memory::Domain;

/// What one level sees. Read without a lock: only the thread that holds the baton is here.
#[derive(Debug)]
pub(crate) struct Image {
    pub words: Box<[AtomicU64]>,
    /// A bit for each word of a line: set while the word's value is not decided.
    uncertain: Box<[AtomicU8]>,
}

impl Image {
    fn new(lines: usize) -> Self {
        Image {
            words: (0..lines * 8).map(|_| AtomicU64::new(0)).collect(),
            uncertain: (0..lines).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    #[inline]
    pub fn get(&self, word: u64) -> u64 {
        self.words[word as usize].load(Relaxed)
    }

    #[inline]
    pub fn is_uncertain(&self, word: u64) -> bool {
        self.uncertain[(word / 8) as usize].load(Relaxed) & bit(word) != 0
    }
}

fn bit(word: u64) -> u8 {
    1 << (word % 8)
}

/// Unit in which it is known that nothing was stored.
pub(super) const PAGE_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug)]
enum Undo {
    Word { level: u8, word: u64, value: u64 },
    Uncertain { level: u8, line: u32, bits: u8 },
}

/// Spans as refined by one execution, valid where the stamp is the execution's.
#[derive(Debug)]
struct Spans {
    stamps: Vec<u64>,
    spans: Vec<Span>,
}

/// Write-backs and streams that a fence of their thread will make certain.
#[derive(Clone, Debug, Default)]
struct Pending {
    write_backs: Vec<(u32, u32)>,
    streams: Vec<(u32, u64)>,
}

/// How a store is ordered with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Plain,
    Streamed,
}

/// One choice that an execution met, for the printed case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub word: u64,
    pub value: u64,
    pub newest: u64,
    pub option: usize,
    /// As in [`Candidate::group`].
    pub group: u32,
    pub unit: usize,
    /// Level of the log that was chosen from.
    pub from: usize,
}

/// The mutable records beside the images.
#[derive(Debug)]
pub(crate) struct Layers {
    domain: Domain,
    depth: usize,
    logs: Vec<StoreLog>,
    /// By level of the execution, then level of the log.
    spans: Vec<Vec<Spans>>,
    serials: Vec<u64>,
    undo: Vec<Vec<Undo>>,
    pending: Vec<Vec<Pending>>,
    /// Lines that any run stored to, to be zeroed before the next.
    touched: Vec<u32>,
    listed: Vec<bool>,
    /// By page, whether an execution of any level stored anything but zeros to it in this run. If not,
    /// it is zero, and certain, at every level.
    pages: Vec<bool>,
    candidates: Vec<Candidate>,
    settled: Vec<(u64, u64)>,
    /// Decisions of the running execution, while someone wants to read of them.
    pub decisions: Option<Vec<Decision>>,
}

/// Allocates what `depth` successive crashes of `lines` lines need.
pub(crate) fn layers(
    domain: Domain,
    lines: usize,
    depth: usize,
    threads: usize,
) -> (Vec<Image>, Layers) {
    let unit = if domain == Domain::PageCache { 6 } else { 0 };
    let units = (lines >> unit) + 1;
    let spans = || Spans { stamps: vec![0; units], spans: vec![Span::default(); units] };
    let layers = Layers {
        domain,
        depth,
        logs: (0..depth).map(|_| StoreLog::new(lines, unit)).collect(),
        spans: (0..=depth).map(|level| (0..level).map(|_| spans()).collect()).collect(),
        serials: vec![0; depth + 1],
        undo: vec![Vec::new(); depth + 1],
        pending: vec![vec![Pending::default(); threads.max(1)]; depth + 1],
        touched: Vec::new(),
        listed: vec![false; lines],
        pages: vec![false; (lines * 64).div_ceil(PAGE_BYTES as usize)],
        candidates: Vec::new(),
        settled: Vec::new(),
        decisions: None,
    };
    ((0..=depth).map(|_| Image::new(lines)).collect(), layers)
}

impl Layers {
    /// Zeroes every image, as before setup.
    pub fn reset(&mut self, images: &[Image]) {
        self.logs.iter_mut().for_each(StoreLog::clear);
        self.pages.fill(false);
        for line in self.touched.drain(..) {
            let line = line as usize;
            self.listed[line] = false;
            for image in images {
                image.uncertain[line].store(0, Relaxed);
                image.words[line * 8..line * 8 + 8].iter().for_each(|w| w.store(0, Relaxed));
            }
        }
        self.pending.iter_mut().flatten().for_each(|pending| *pending = Pending::default());
    }

    /// Stores outside of any crash: setup's stores are certain, except where nothing ever is.
    pub fn preset(&mut self, images: &[Image], word: u64, value: u64) {
        self.touch(word);
        self.fill(word, value);
        let reached = if self.domain == Domain::None { 1 } else { images.len() };
        images[..reached].iter().for_each(|image| image.words[word as usize].store(value, Relaxed));
    }

    /// How many bytes from `at` on, of `bytes`, lie in pages that nothing was stored to.
    pub fn untouched(&self, at: u64, bytes: u64) -> u64 {
        let first = at / PAGE_BYTES;
        let pages = first..(at + bytes).div_ceil(PAGE_BYTES);
        let end = pages.take_while(|page| !self.pages[*page as usize]).last();
        end.map_or(0, |last| ((last + 1) * PAGE_BYTES - at).min(bytes))
    }

    /// Notes that a word's page is no longer zero; a zero stored to a page of zeros changes nothing.
    fn fill(&mut self, word: u64, value: u64) {
        if value != 0 {
            self.pages[(word * 8 / PAGE_BYTES) as usize] = true;
        }
    }

    fn touch(&mut self, word: u64) {
        let line = (word / 8) as usize;
        if !self.listed[line] {
            self.listed[line] = true;
            self.touched.push(line as u32);
        }
    }

    fn set(&mut self, images: &[Image], by: usize, level: usize, word: u64, value: u64) {
        let slot = &images[level].words[word as usize];
        if by > 0 {
            let value = slot.load(Relaxed);
            self.undo[by].push(Undo::Word { level: level as u8, word, value });
        }
        slot.store(value, Relaxed);
    }

    fn mark(&mut self, images: &[Image], by: usize, level: usize, word: u64, uncertain: bool) {
        let line = (word / 8) as usize;
        let slot = &images[level].uncertain[line];
        let bits = slot.load(Relaxed);
        let after = if uncertain { bits | bit(word) } else { bits & !bit(word) };
        if after != bits {
            if by > 0 {
                self.undo[by].push(Undo::Uncertain { level: level as u8, line: line as u32, bits });
            }
            slot.store(after, Relaxed);
        }
    }

    /// Stores `value` at a word in an execution of `level`; `logged` if that execution may crash.
    /// True if there are images that there were not before.
    pub fn store(
        &mut self,
        images: &[Image],
        level: usize,
        (word, value): (u64, u64),
        (event, kind, thread): (u64, StoreKind, usize),
        logged: bool,
    ) -> bool {
        if level == 0 {
            self.touch(word);
        }
        self.fill(word, value);
        let was_uncertain = images[level].is_uncertain(word);
        let same = !was_uncertain && images[level].get(word) == value;
        let logged = logged && self.domain != Domain::None;
        let streamed = kind == StoreKind::Streamed && self.domain != Domain::PageCache;
        // An equal value makes no new image. It must be kept where it may become certain in another
        // way than the store before it.
        if same {
            let kept =
                |log: &StoreLog| if streamed { log.has(word) } else { log.has_streamed(word) };
            if !logged || !kept(&self.logs[level]) {
                return false;
            }
        }
        self.set(images, level, level, word, value);
        self.mark(images, level, level, word, false);
        if !logged {
            return false;
        }
        self.logs[level].push(word, value, event, streamed);
        if streamed {
            let streams = &mut self.pending[level][thread].streams;
            let line = (word / 8) as u32;
            if streams.last() != Some(&(line, event)) {
                streams.push((line, event));
            }
        }
        for above in level + 1..=self.depth {
            self.mark(images, level, above, word, true);
        }
        true
    }

    /// Notes the write-back of a line: the thread's next fence makes it certain as it is now.
    pub fn write_back(&mut self, level: usize, thread: usize, line: u64) {
        let unit = self.logs[level].unit_of(line as usize);
        let span = self.logs[level].span(unit);
        if self.domain == Domain::Adr && span.hi > span.lo {
            self.pending[level][thread].write_backs.push((unit as u32, span.hi));
        }
    }

    /// Whether a fence would make anything certain.
    pub fn is_pending(&self, level: usize, thread: usize) -> bool {
        let pending = &self.pending[level][thread];
        !pending.write_backs.is_empty() || !pending.streams.is_empty()
    }

    /// Makes the thread's write-backs and streams certain.
    pub fn fence(&mut self, images: &[Image], level: usize, thread: usize) {
        let mut pending = std::mem::take(&mut self.pending[level][thread]);
        let mut settled = std::mem::take(&mut self.settled);
        for (unit, group) in pending.write_backs.drain(..) {
            self.logs[level].raise(unit as usize, group, &mut settled);
        }
        for (line, event) in pending.streams.drain(..) {
            self.logs[level].fix_streamed(line as usize, event, &mut settled);
        }
        self.pending[level][thread] = pending;
        self.settle(images, level, settled);
    }

    /// Makes the lines of a range certain as they are: a store under persistent caches.
    pub fn settle_lines(&mut self, images: &[Image], level: usize, first: u64, last: u64) {
        let mut settled = std::mem::take(&mut self.settled);
        for line in first..=last {
            let newest = self.logs[level].span(line as usize).hi;
            self.logs[level].raise(line as usize, newest, &mut settled);
        }
        self.settle(images, level, settled);
    }

    /// Makes everything certain.
    pub fn sync(&mut self, images: &[Image], level: usize) {
        let mut settled = std::mem::take(&mut self.settled);
        self.logs[level].raise_all(&mut settled);
        for pending in &mut self.pending[level] {
            *pending = Pending::default();
        }
        self.settle(images, level, settled);
    }

    fn settle(&mut self, images: &[Image], level: usize, mut settled: Vec<(u64, u64)>) {
        for (word, value) in settled.drain(..) {
            let certain = !self.logs[level].has(word);
            for above in level + 1..=self.depth {
                self.set(images, level, above, word, value);
                if certain {
                    self.mark(images, level, above, word, false);
                }
            }
        }
        self.settled = settled;
    }

    fn span(&self, level: usize, log: usize, unit: usize) -> Span {
        let refined = &self.spans[level][log];
        if refined.stamps[unit] == self.serials[level] {
            refined.spans[unit]
        } else if log + 1 < level {
            self.span(level - 1, log, unit)
        } else {
            self.logs[log].span(unit)
        }
    }

    /// Decides an uncertain word of an execution at `level`.
    pub fn resolve(&mut self, images: &[Image], level: usize, word: u64, choices: &mut Choices) {
        let held = (0..level).rev().find(|log| self.logs[*log].has(word));
        let from = held.expect("an uncertain word has a store in a log below");
        let unit = self.logs[from].unit_of((word / 8) as usize);
        let span = self.span(level, from, unit);
        let mut candidates = std::mem::take(&mut self.candidates);
        self.logs[from].candidates(word, span, &mut candidates);
        let options = candidates.len();
        let option = if options > 1 { choices.choose(options, unit) } else { 0 };
        let below = images[level].get(word);
        let value = candidates[option].value.unwrap_or(below);
        if options > 1 {
            let refined = &mut self.spans[level][from];
            refined.stamps[unit] = self.serials[level];
            refined.spans[unit] = candidates[option].span;
        }
        if let Some(decisions) = &mut self.decisions {
            let newest = candidates[0].value.unwrap_or(below);
            let group = candidates[option].group;
            decisions.push(Decision { word, value, newest, option, group, unit, from });
        }
        self.candidates = candidates;
        for above in level..=self.depth {
            self.set(images, level, above, word, value);
            self.mark(images, level, above, word, false);
        }
    }

    /// Begins an execution at `level`, 1 or deeper.
    pub fn begin(&mut self, level: usize) {
        self.serials[level] += 1;
        if level < self.depth {
            self.logs[level].clear();
            self.pending[level][0] = Pending::default();
        }
    }

    /// Ends it: its images are as they were.
    pub fn end(&mut self, images: &[Image], level: usize) {
        while let Some(undo) = self.undo[level].pop() {
            match undo {
                Undo::Word { level, word, value } => {
                    images[usize::from(level)].words[word as usize].store(value, Relaxed);
                }
                Undo::Uncertain { level, line, bits } => {
                    images[usize::from(level)].uncertain[line as usize].store(bits, Relaxed);
                }
            }
        }
    }

    /// How many images a crash at level 0 may leave.
    pub fn images_possible(&self) -> f64 {
        self.logs[0].images()
    }

    /// Mixes everything a crash at level 0 may leave.
    pub fn fingerprint(&self, images: &[Image], mut mix: impl FnMut(u64)) {
        let mut lines = self.touched.clone();
        lines.sort_unstable();
        for line in lines {
            let first = line as usize * 8;
            for word in first..first + 8 {
                let value = images[1].words[word].load(Relaxed);
                if value != 0 {
                    mix(word as u64);
                    mix(value);
                }
            }
        }
        // No word has this number: values that are certain never read like stores that are not.
        mix(u64::MAX);
        self.logs[0].fingerprint(&mut mix);
    }

    /// Where an execution at `level` left a unit, for the printed case.
    pub fn lost(&self, level: usize, decision: Decision) -> (Span, Span) {
        (
            self.span(level, decision.from, decision.unit),
            self.logs[decision.from].span(decision.unit),
        )
    }

    /// Bytes of the units in which memory persists.
    pub fn unit_bytes(&self) -> u64 {
        if self.domain == Domain::PageCache { 4096 } else { 64 }
    }
}
