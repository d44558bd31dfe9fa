//! Mistakes made on purpose, for negative controls: a crash test that passes with one of them tests
//! nothing. Compiled for tests, and with the feature `faults`.

use super::Logs;
use std::sync::atomic::{AtomicU32, Ordering};
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
    /// The first word of a record of the redo log is stored before the record.
    WordEarly,
    /// Chunks of the redo log are given back before the checkpoint is durable that has what they hold.
    RedoFreedEarly,
    /// A checkpoint is taken after each item of a batch.
    CheckpointInBatch,
    /// Sealed logs leave memory before they are written.
    LeaveUnwritten,
    /// The memory of logs that leave is given back while readers look at it.
    ReleaseEarly,
    /// The saved index is named before what it names is durable.
    SavedUnflushed,
    /// The saved index knows logs that were closed while it was passed on.
    SavedLate,
    /// A blind write has the first version, whatever versions there are.
    BlindVersion,
    /// Blind writes stay unknown to the index when a log is collected, or the index saved.
    BlindForgotten,
    /// A map takes a checkpoint alone though a transaction has tied it to others.
    CheckpointAlone,
    /// A transaction over several maps is said to be over before they hold it.
    EndedEarly,
}

/// The mistakes that are made.
#[derive(Debug, Default)]
pub(crate) struct Faults(AtomicU32);

impl Faults {
    #[inline(always)]
    pub(crate) fn has(&self, fault: Fault) -> bool {
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

    /// Takes a checkpoint in a batch, by mistake: under the writer's lock, which is reentrant, but against the order of
    /// locks. For scenarios of one thread.
    pub(super) fn checkpoint_in_batch(&self, in_batch: bool) {
        if in_batch && self.faults.has(Fault::CheckpointInBatch) {
            self.flush_all().expect("a checkpoint");
        }
    }

    /// Whether logs that leave are not written before, by mistake.
    pub(super) fn leaves_unwritten(&self) -> bool {
        self.faults.has(Fault::LeaveUnwritten)
    }

    /// Whether it makes this mistake, of those that are made above the logs.
    pub fn has_fault(&self, fault: Fault) -> bool {
        self.faults.has(fault)
    }

    /// From here on makes this mistake.
    pub fn commit_fault(&self, fault: Fault) {
        self.faults.0.fetch_or(1 << fault as u8, Ordering::Relaxed);
    }
}
