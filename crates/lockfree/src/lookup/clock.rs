//! Time: when a version began, and which moments are still read.
//!
//! A version is installed first and stamped afterwards, by its writer or by whoever reads it before. The stamp is one
//! more than the time that is read *after* the version was there. So a snapshot of time `t`, which is taken by reading
//! the clock, contains all versions that were stamped with at most `t`, and none of them can still be without a stamp
//! that a later reader would make `t` or less: whoever stamps it reads at least `t`.
//!
//! The clock advances with a stamp by a single compare-exchange. If that fails, another thread advanced it meanwhile,
//! after this version was installed, and both may have the same stamp (the paper adds one for each: a line that all
//! writers fight for until they have it). Versions of one key never share a stamp, since a writer stamps what it
//! replaces before it installs its own.
//!
//! Whoever reads a snapshot announces it, so that versions which it needs are not pruned: first the time as a
//! bound, then the clock is read again, which is the moment of the snapshot. A pruner reads the announcements
//! when the version that superseded another is stamped. If it misses an announcement, that reader reads the
//! clock afterwards, and so a time from which the older version cannot be seen.

use super::error::{Error, Result};
use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Snapshots that can be open at once.
pub(super) const SNAPSHOTS: usize = 512;
/// The stamp of a version that has none yet.
pub(super) const UNSTAMPED: u64 = 0;
const FREE: u64 = 0;
/// The moment lies at or after the announced time.
const BOUND: u64 = 1;

/// The clock of a table, and who reads which moment.
#[derive(Debug)]
pub(super) struct Clock {
    now: CachePadded<AtomicU64>,
    /// Slots from here on were never in use.
    used: CachePadded<AtomicU64>,
    /// Announced moments, shifted by one for [`BOUND`].
    slots: Box<[CachePadded<AtomicU64>]>,
}

/// An announced moment, until it is given back.
#[derive(Debug)]
pub(super) struct Moment {
    slot: usize,
    /// The time that was announced first.
    pub bound: u64,
    pub time: u64,
}

impl Clock {
    pub fn new() -> Clock {
        let slots = (0..SNAPSHOTS).map(|_| CachePadded::new(AtomicU64::new(FREE))).collect();
        Clock { now: CachePadded::new(AtomicU64::new(1)), used: CachePadded::default(), slots }
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// A stamp for a version that is installed.
    pub fn stamp(&self) -> u64 {
        let now = self.now();
        super::step::step();
        // Whoever was faster advanced it after the version was installed, so the stamp is not in the future
        // either way.
        let _ = self.now.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::SeqCst);
        now + 1
    }

    /// The present moment, announced.
    pub fn open(&self) -> Result<Moment> {
        let bound = self.now();
        let slot = self.claim(bound << 1 | BOUND).ok_or(Error::Snapshots { most: SNAPSHOTS })?;
        super::step::step();
        let time = self.now();
        super::step::step();
        self.slots[slot].store(time << 1, Ordering::SeqCst);
        Ok(Moment { slot, bound, time })
    }

    fn claim(&self, bound: u64) -> Option<usize> {
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.load(Ordering::Relaxed) != FREE {
                continue;
            }
            // Before the announcement: who does not see it here reads the clock before this thread does.
            if self.used.load(Ordering::SeqCst) <= number as u64 {
                self.used.fetch_max(number as u64 + 1, Ordering::SeqCst);
            }
            if slot.compare_exchange(FREE, bound, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Some(number);
            }
        }
        None
    }

    pub fn close(&self, moment: &Moment) {
        self.slots[moment.slot].store(FREE, Ordering::SeqCst);
    }

    /// Whether anyone reads, or is about to read, a moment from `from` on and before `until`, which has been reached.
    pub fn is_read(&self, from: u64, until: u64) -> bool {
        let used = self.used.load(Ordering::SeqCst) as usize;
        self.slots[..used].iter().any(|slot| {
            let announced = slot.load(Ordering::SeqCst);
            let (time, is_bound) = (announced >> 1, announced & BOUND != 0);
            announced != FREE && time < until && (is_bound || from <= time)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_version_is_needed_from_its_stamp_until_it_is_superseded() {
        let clock = Clock::new();
        let (first, second) = (clock.stamp(), clock.stamp());
        let moment = clock.open().unwrap();
        assert_eq!(moment.time, second);
        clock.stamp();
        assert!(!clock.is_read(first, second));
        assert!(clock.is_read(first, second + 1) && clock.is_read(second, second + 1));
        assert!(!clock.is_read(second + 1, second + 2));
        clock.close(&moment);
        assert!(!clock.is_read(0, u64::MAX >> 1));
    }

    #[test]
    fn too_many_snapshots_are_refused() {
        let clock = Clock::new();
        let all: Vec<Moment> = (0..SNAPSHOTS).map(|_| clock.open().unwrap()).collect();
        assert_eq!(clock.open().unwrap_err(), Error::Snapshots { most: SNAPSHOTS });
        clock.close(&all[7]);
        assert_eq!(clock.open().unwrap().slot, 7);
    }
}
