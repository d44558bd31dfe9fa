//! Group flushing by load: whether it pays depends on how busy the memory is (Ni, section 5.4.2). A
//! memory that writes large pieces gains by seeing the lines of a change together once it is short of bandwidth;
//! before that a write-back is only work.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Whether the lines that a change dirtied are asked to be written back together, where they need not be: a
/// [pre-store](terrace_memory::prestore), which nothing comes of where these are switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupFlush {
    /// Caches decide.
    #[default]
    Never,
    /// At each change.
    Always,
    /// While changes move entries of more lines a second than this. The tree hears of time by
    /// [`Tree::went_by`](super::Tree::went_by).
    Above(u64),
}

/// What was decided, and what it is decided by.
pub(super) struct Grouping {
    when: GroupFlush,
    is_on: AtomicBool,
    /// Lines that changes moved since time went by; apart from what every reader of the tree looks at.
    lines: Box<CachePadded<AtomicU64>>,
}

impl Grouping {
    pub(super) fn new(when: GroupFlush) -> Grouping {
        let is_on = AtomicBool::new(when == GroupFlush::Always);
        Grouping { when, is_on, lines: Box::default() }
    }

    /// Whether lines never are.
    #[inline]
    pub(super) fn is_never(&self) -> bool {
        self.when == GroupFlush::Never
    }

    /// Whether lines are asked for; so many are counted where that hangs on their number.
    #[inline]
    pub(super) fn counts_and_asks(&self, lines: u64) -> bool {
        if matches!(self.when, GroupFlush::Above(_)) {
            self.lines.fetch_add(lines, Relaxed);
        }
        self.is_on.load(Relaxed)
    }

    /// When lines are asked for, and whether they are now.
    pub(super) fn state(&self) -> (GroupFlush, bool) {
        (self.when, self.is_on.load(Relaxed))
    }

    /// So much time went by since this was told before; returns whether lines are asked for from here on.
    pub(super) fn went_by(&self, time: Duration) -> bool {
        if let GroupFlush::Above(most) = self.when {
            let lines = self.lines.swap(0, Relaxed) as f64;
            self.is_on.store(lines > most as f64 * time.as_secs_f64(), Relaxed);
        }
        self.is_on.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_on_above_a_load_and_off_below_it() {
        let grouping = Grouping::new(GroupFlush::Above(1000));
        let changed = |count| (0..count).filter(|_| grouping.counts_and_asks(2)).count();
        assert_eq!(changed(100), 0, "nothing is known of the load yet");
        assert!(grouping.went_by(Duration::from_millis(100)), "2000 a second");
        assert_eq!(changed(45), 45);
        assert!(!grouping.went_by(Duration::from_millis(100)), "900 a second");
        assert_eq!(changed(45), 0);
        for (when, is_on) in [(GroupFlush::Never, false), (GroupFlush::Always, true)] {
            let grouping = Grouping::new(when);
            assert_eq!(grouping.counts_and_asks(1), is_on);
            assert_eq!(grouping.went_by(Duration::from_secs(1)), is_on);
        }
    }
}
