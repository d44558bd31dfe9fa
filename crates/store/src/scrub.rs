//! The scrub: a map on a disk reads its logs again, slowly and for as long as it is open, and verifies them.
//!
//! A map that is opened by its saved index has verified nothing of what it did not read, and what a flash disk loses it
//! loses silently. A pass takes one log a second, so 4 MiB/s at the most; the next begins a day after it, and begins
//! anywhere, so that a process that never runs for a whole pass gets round all the same.
//!
//! # What becomes of damage
//! Where memory still has the log, its items are moved to another one, as the collector moves them, and are durable
//! there before the log is freed: nothing is lost. Where it has not, the log is named by [`ScrubStats`] until it is
//! gone. Its other items can be read, and whoever asks for the damaged one is told.

use crate::engine::Engine;
use crate::error::Error;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use terrace_durable::lock;
use terrace_durable::logs::{Logs, OnDisk, SegmentView, State};
use terrace_memory::Memory;

/// How often a log is read.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// How long after the beginning of a pass the next one begins, if the pass took less.
const PASS: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an opening is left alone.
const AFTER_OPENING: Duration = Duration::from_secs(60);

/// What a map has found by reading its logs again. Maps that hold nothing but what memory has do not scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// Passes that came to their end since the map was opened.
    pub passes: u64,
    /// Logs of the pass that is under way, and how many of them were read; both 0 between two passes.
    pub logs: usize,
    /// Those that were read.
    pub logs_done: usize,
    /// Bytes that were read and found intact since the map was opened.
    pub intact_bytes: u64,
    /// Damaged logs that were moved from memory to another place.
    pub moved_logs: u64,
    /// Damaged logs that are there: each has lost an item at least.
    pub damaged_logs: usize,
    /// What is wrong with the one found last.
    pub damage: Option<String>,
}

/// How far the scrub of a map is.
pub(crate) struct Scrub(Mutex<Progress>);

struct Progress {
    not_before: Instant,
    /// Those of the pass that are still to be read; none between two passes.
    left: Vec<u32>,
    /// Sequence numbers of the logs found damaged, by segment.
    damaged: HashMap<u32, u64>,
    stats: ScrubStats,
}

impl Scrub {
    /// Of a map that is about to be opened.
    pub fn new() -> Scrub {
        Scrub::from(Instant::now() + AFTER_OPENING)
    }

    fn from(not_before: Instant) -> Scrub {
        Scrub(Mutex::new(Progress {
            not_before,
            left: Vec::new(),
            damaged: HashMap::new(),
            stats: ScrubStats::default(),
        }))
    }

    /// The next log of the pass under way, or of a new one if it is time.
    fn next(&self, closed: impl FnOnce() -> Vec<SegmentView>) -> Option<u32> {
        let mut progress = self.0.lock();
        if progress.left.is_empty() && Instant::now() >= progress.not_before {
            let mut segments: Vec<u32> = closed().iter().map(|log| log.number).collect();
            let anywhere = random_below(segments.len());
            segments.rotate_left(anywhere);
            progress.not_before = Instant::now() + PASS;
            progress.stats.logs = segments.len();
            progress.left = segments;
        }
        let next = progress.left.pop();
        progress.stats.logs_done = progress.stats.logs - progress.left.len();
        next
    }

    /// The pass under way is over if nothing is left of it.
    fn may_end(&self) {
        let mut progress = self.0.lock();
        if progress.left.is_empty() && progress.stats.logs > 0 {
            progress.stats.passes += 1;
            (progress.stats.logs, progress.stats.logs_done) = (0, 0);
        }
    }
}

/// Any number below `end`, or 0. Nothing depends on it but where a pass begins.
fn random_below(end: usize) -> usize {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.subsec_nanos() as usize % end.max(1)
}

impl<M: Memory, I: Memory> Engine<M, I> {
    /// Reads the next log if one is due. Called again and again by a thread of the map, each [`EVERY`].
    pub fn scrub_one(&self) {
        let Some(logs) = self.scrubbed() else { return };
        if self.warmed_below.load(Ordering::Relaxed) > 0 {
            return;
        }
        let Some(segment) = self.scrub.next(|| closed(logs)) else { return };
        if let Some(log) = logs.closed_log(segment) {
            self.scrub_log(logs, &log);
        }
        self.scrub.may_end();
    }

    /// Reads all logs that are closed, at once; the damage that there is then.
    pub fn scrub_all(&self) -> ScrubStats {
        if let Some(logs) = self.scrubbed() {
            closed(logs).iter().for_each(|log| self.scrub_log(logs, log));
            self.scrub.0.lock().stats.passes += 1;
        }
        self.scrub_stats()
    }

    /// What was found so far.
    pub fn scrub_stats(&self) -> ScrubStats {
        let mut progress = self.scrub.0.lock();
        if let Some(logs) = self.scrubbed().filter(|_| !progress.damaged.is_empty()) {
            let there: HashMap<u32, u64> =
                logs.survey().iter().map(|log| (log.number, log.sequence)).collect();
            progress.damaged.retain(|segment, sequence| there.get(segment) == Some(sequence));
        }
        if progress.damaged.is_empty() {
            progress.stats.damage = None;
        }
        progress.stats.damaged_logs = progress.damaged.len();
        progress.stats.clone()
    }

    /// The logs of a map that has values on the disk alone.
    fn scrubbed(&self) -> Option<&Logs<M>> {
        self.values.logs().filter(|_| self.plan.may_spill)
    }

    fn scrub_log(&self, logs: &Logs<M>, log: &SegmentView) {
        match logs.check_on_disk(log) {
            OnDisk::InUse => {}
            OnDisk::Intact(bytes) => self.scrub.0.lock().stats.intact_bytes += bytes,
            OnDisk::Damaged(_) if self.moved_out(logs, log) => {
                self.scrub.0.lock().stats.moved_logs += 1;
            }
            OnDisk::Damaged(error) => {
                let mut progress = self.scrub.0.lock();
                progress.damaged.insert(log.number, log.sequence);
                progress.stats.damage = Some(Error::from(error).to_string());
            }
        }
    }

    /// Moves what lives in a log out of it, if memory has that.
    fn moved_out(&self, logs: &Logs<M>, log: &SegmentView) -> bool {
        // Logs leave memory, and are freed, under this lock alone.
        let _one = lock(self.values.medium().memory(), &self.collecting);
        if self.values.stopped().is_some() {
            return false;
        }
        let now = logs.closed_log(log.number);
        let is_it = |now: &SegmentView| now.sequence == log.sequence && now.residence.is_resident;
        let Some(now) = now.filter(is_it) else { return false };
        let moved = self.collect_segments(logs, &[now], false);
        moved.is_ok_and(|round| round.freed_segments > 0)
    }
}

/// Logs that nobody writes or collects.
fn closed<M: Memory>(logs: &Logs<M>) -> Vec<SegmentView> {
    let mut closed = logs.survey();
    closed.retain(|log| log.state == State::Sealed);
    closed
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_durable::values::{Home, Residence};

    fn logs(count: u32) -> Vec<SegmentView> {
        let log = |number| SegmentView {
            number,
            state: State::Sealed,
            used_bytes: 100,
            dead_bytes: 0,
            sequence: number.into(),
            residence: Residence { home: Home::Near, is_resident: true },
            has_expired: false,
            is_of_collector: false,
        };
        (1..=count).map(log).collect()
    }

    #[test]
    fn a_pass_takes_each_log_once_and_the_next_one_waits() {
        let scrub = Scrub::from(Instant::now());
        let mut taken = Vec::new();
        for done in 1..=5 {
            taken.extend(scrub.next(|| logs(5)));
            let stats = scrub.0.lock().stats.clone();
            assert_eq!((stats.logs_done, stats.logs, stats.passes), (done, 5, 0));
            scrub.may_end();
        }
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        let stats = scrub.0.lock().stats.clone();
        assert_eq!((stats.logs_done, stats.logs, stats.passes), (0, 0, 1));
        assert_eq!(scrub.next(|| logs(5)), None, "a day has not gone by");
        scrub.0.lock().not_before = Instant::now();
        assert!(scrub.next(|| logs(5)).is_some());
    }

    #[test]
    fn a_map_without_logs_has_no_passes_and_one_just_opened_is_left_alone() {
        let scrub = Scrub::from(Instant::now());
        assert_eq!(scrub.next(|| logs(0)), None);
        scrub.may_end();
        assert_eq!(scrub.0.lock().stats, ScrubStats::default());
        assert_eq!(Scrub::new().next(|| logs(3)), None);
    }
}
