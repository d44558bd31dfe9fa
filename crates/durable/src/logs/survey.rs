//! What there is of logs at a moment: how full each is, how much of it is dead, and where it lies.

use super::appender::Writer;
use super::pool::COLLECTOR_SPARE;
use super::{COLLECTOR, Logs, SEGMENT_BYTES, State};
use crate::item;
use crate::values::Residence;
use crossbeam_utils::CachePadded;
use parking_lot::ReentrantMutex;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_memory::Memory;

/// So many short logs are made one.
const SHORT_TOGETHER: usize = 4;

/// Of a hundred bytes in sealed logs on a disk so many may be dead. The file takes at most half as much again as what
/// lives, and a few segments: where it would take more, writers wait for the collector as long as it finds something.
const DEAD_MOST: u64 = 28;

/// A small file may have so many beside those that writers and the collector have: it is full of dead values long
/// before a round is worth it.
const SMALL: usize = 6;

/// How long a survey waits for a writer.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

impl<M: Memory> Logs<M> {
    /// Every segment that is in use: number, state, bytes in use, dead bytes, sequence number.
    pub fn survey(&self) -> Vec<SegmentView> {
        self.survey_with(&HashMap::new())
    }

    /// The same with the bytes in use of open ones, but of those whose writer is at work for long: nobody waits here
    /// for one who may wait for him.
    pub fn survey_exactly(&self) -> Vec<SegmentView> {
        let tail = |writer: &CachePadded<ReentrantMutex<RefCell<Writer>>>| {
            let lock = writer.try_lock_for(PATIENCE)?;
            let writer = lock.try_borrow().ok()?;
            Some((writer.segment, writer.tail))
        };
        self.survey_with(&self.writers.iter().filter_map(tail).collect())
    }

    fn survey_with(&self, tails: &HashMap<u32, u32>) -> Vec<SegmentView> {
        let (fresh, now) = (self.lock_pool().fresh, item::now_ms());
        let tail = |number: u32| tails.get(&number).copied().unwrap_or(0);
        let views = (1..fresh).map(|number| self.view(number, tail(number), now));
        views.filter(|view| view.state.is_of_log()).collect()
    }

    /// Whether there is enough to collect: when a sixteenth of the segments is at least half dead, for the longer one
    /// waits the less of it has to be moved; on a disk also when more is dead than may be.
    pub(super) fn backlog_of(&self, views: &[SegmentView]) -> Backlog {
        let (due, total) = (views.iter().filter(|v| v.is_due()).count(), self.total_segments());
        if due > (total / 11).max(2) {
            return Backlog::Behind;
        }
        let wasted = self.wasted(views) / u64::from(SEGMENT_BYTES);
        if due > total / 16 || wasted > 1 { Backlog::Due } else { Backlog::None }
    }

    /// Dead bytes of sealed logs beyond what may be dead; none where it is not the disk that they take. Those of a
    /// round count until they are free: else writers would go on while it lasts.
    fn wasted(&self, views: &[SegmentView]) -> u64 {
        if self.medium.is_byte_addressable() {
            return 0;
        }
        let is_in_round = self.is_in_round.load(Ordering::Relaxed);
        let counts = |v: &&SegmentView| {
            v.state == State::Sealed || is_in_round && v.state == State::Collecting
        };
        let add = |(dead, used), v: &SegmentView| (dead + v.dead_bytes, used + v.used_bytes);
        let (dead, used) = views.iter().filter(counts).fold((0, 0), add);
        dead.saturating_sub(used * DEAD_MOST / 100)
    }

    /// How many segments a file with these logs may have before writers wait for the collector, which has something to
    /// collect: half as much again as what lives, the logs that are written to, and the spare ones. Beyond it the
    /// collector's copies, and what waits for readers.
    pub(super) fn segments_most(&self, views: &[SegmentView]) -> usize {
        if self.medium.is_byte_addressable() {
            return usize::MAX;
        }
        let live: u64 = views.iter().map(SegmentView::live_bytes).sum();
        let logs = ((live * 3 / 2).div_ceil(u64::from(SEGMENT_BYTES)) as usize).max(SMALL);
        logs + self.writers.len() + COLLECTOR_SPARE
    }

    /// Marks a round of the collector, until the mark is dropped.
    pub fn begin_round(&self) -> InRound<'_> {
        self.is_in_round.store(true, Ordering::Relaxed);
        InRound(&self.is_in_round)
    }

    /// The sealed logs to collect, the best first: those that are half dead, the deadest first.
    ///
    /// If more is dead on a disk than may be, enough to change that, those first where what is freed, times how long
    /// it is likely to stay so, is most against what is read and written for it (cost-benefit: Rosenblum and
    /// Ousterhout, SOSP 1991). How long: as long as nothing was written to it. A young log that is mostly dead will
    /// soon be dead all through, and costs less then. Where there is no `room` for what lives in them, those with the
    /// least.
    pub fn due(&self, sealed: &[SegmentView], room: u64) -> Vec<SegmentView> {
        let wasted = self.wasted(sealed);
        if wasted <= u64::from(SEGMENT_BYTES) {
            let mut due: Vec<_> = sealed.iter().copied().filter(SegmentView::is_due).collect();
            due.sort_by_key(|v| std::cmp::Reverse(v.dead_bytes * 1024 / v.used_bytes.max(1)));
            return due;
        }
        let next = self.next_sequence();
        let worth = |v: &SegmentView| {
            let age = next.saturating_sub(v.sequence) as f64;
            v.dead_bytes as f64 * age / (v.used_bytes + v.live_bytes()).max(1) as f64
        };
        let mut due: Vec<_> = sealed.iter().copied().filter(|v| v.dead_bytes > 0).collect();
        due.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
        let best = enough(&due, wasted);
        if best.iter().map(SegmentView::live_bytes).sum::<u64>() <= room {
            return best.to_vec();
        }
        due.sort_by_key(SegmentView::live_bytes);
        enough(&due, wasted).to_vec()
    }

    /// The log in a segment that was surveyed, if nobody writes it, or collects it.
    pub fn closed_log(&self, segment: u32) -> Option<SegmentView> {
        let view = self.view(segment, 0, item::now_ms());
        (view.state == State::Sealed).then_some(view)
    }

    /// `tail`: bytes in use, if it is open.
    fn view(&self, number: u32, tail: u32, now_ms: u64) -> SegmentView {
        let segment = &self.segments[number as usize];
        let residence = segment.place.residence();
        let end = match segment.end.load(Ordering::Relaxed) {
            0 => tail,
            end => end,
        };
        SegmentView {
            number,
            state: segment.state(),
            used_bytes: end.into(),
            dead_bytes: self.dead_bytes(number),
            sequence: segment.sequence.load(Ordering::Relaxed),
            residence,
            has_expired: !residence.is_resident
                && segment.half_expires_at_ms.load(Ordering::Relaxed) <= now_ms,
            is_of_collector: segment.origin.load(Ordering::Relaxed) as u8 == COLLECTOR as u8,
        }
    }
}

/// A round of the collector.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct InRound<'a>(&'a AtomicBool);

impl Drop for InRound<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// How much there is to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Backlog {
    None,
    /// Enough for a round.
    Due,
    /// So much half dead that writers wait.
    Behind,
}

/// A segment as [`Logs::survey`] saw it.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView {
    /// Its number in the file.
    pub number: u32,
    /// What it is.
    pub state: State,
    /// Bytes in use; of an open one, unknown (0).
    pub used_bytes: u64,
    /// Bytes nobody points to.
    pub dead_bytes: u64,
    /// Its place in the order of opening.
    pub sequence: u64,
    /// Where it is.
    pub residence: Residence,
    /// Whether it is away, and half of it has expired.
    pub has_expired: bool,
    /// Whether the collector wrote it since the logs were opened.
    pub is_of_collector: bool,
}

/// The first of these in which so many bytes are dead.
fn enough(views: &[SegmentView], dead_bytes: u64) -> &[SegmentView] {
    let mut found = 0;
    let is_needed = |view: &&SegmentView| {
        let is_needed = found < dead_bytes;
        found += view.dead_bytes;
        is_needed
    };
    &views[..views.iter().take_while(is_needed).count()]
}

impl SegmentView {
    /// Bytes that somebody points to, of those in use.
    pub fn live_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.dead_bytes)
    }

    /// Whether it is sealed and at least half dead.
    pub fn is_due(&self) -> bool {
        self.state == State::Sealed && self.dead_bytes * 2 >= self.used_bytes
    }

    /// Whether it was sealed before it was half full, as at the end of each process that wrote little.
    fn is_short(&self) -> bool {
        self.state == State::Sealed
            && !self.is_due()
            && self.used_bytes * 2 < u64::from(SEGMENT_BYTES)
    }
}

/// Short logs, where these are many enough that moving them together gives back most of what they take.
pub fn short(views: &[SegmentView]) -> Vec<SegmentView> {
    let short: Vec<_> = views.iter().filter(|v| v.is_short()).copied().collect();
    if short.len() < SHORT_TOGETHER { Vec::new() } else { short }
}
