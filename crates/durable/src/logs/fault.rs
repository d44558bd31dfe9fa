//! Mistakes made on purpose, for negative controls: a crash test that passes with one of them tests
//! nothing. Compiled for tests, and with the feature `faults`.

use super::Logs;
use std::sync::atomic::{AtomicU8, Ordering};
use terrace_memory::Memory;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The collector is told that no other log is older: it drops tombstones whose keys have older
    /// versions elsewhere.
    TombstonesEarly,
    /// Items are overwritten although they were handed to the medium.
    OverwriteFrozen,
    /// Nothing is flushed while a log is being collected: it is freed before what moved is safe.
    FreeUnflushed,
    /// A commit mark says that everything before it is durable, whether it is or not.
    MarksEarly,
    /// Items of a batch are told before it ends, where each of them is durable at once.
    BatchesToldEarly,
    /// The leader of a commit queue says that everything is durable before it has written it.
    ReachedEarly,
    /// A checkpoint record is stored before what the last commit queue handed over is written.
    RecordEarly,
}

/// The mistakes that are made.
#[derive(Debug, Default)]
pub(super) struct Faults(AtomicU8);

impl Faults {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.0.load(Ordering::Relaxed) >> fault as u8 & 1 == 1
    }
}

impl<M: Memory> Logs<M> {
    /// Whether a flush is left out by mistake.
    pub(super) fn forgets_to_flush(&self) -> bool {
        let is_collected = |view: &super::SegmentView| view.state == super::State::Collecting;
        self.faults.has(Fault::FreeUnflushed) && self.survey().iter().any(is_collected)
    }

    /// What a checkpoint writes after its record, by mistake: the last writer's ranges.
    pub(super) fn writes_late(&self, handed: &mut super::commit::Handed) -> Vec<(u64, u64)> {
        let is_late = self.faults.has(Fault::RecordEarly);
        if is_late { handed.ranges.pop().into_iter().collect() } else { Vec::new() }
    }

    /// From here on makes this mistake.
    pub fn commit_fault(&self, fault: Fault) {
        self.faults.0.fetch_or(1 << fault as u8, Ordering::Relaxed);
    }
}
