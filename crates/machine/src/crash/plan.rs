//! One run of a scenario: its questions, and its findings.

use super::choices::Search;
use std::collections::HashSet;

/// Where executions of one level crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Points {
    /// At every point whose images are not a subset of those of a later point.
    Every,
    /// After this many events.
    After(u64),
}

/// The crashes of one level and how the level above is searched.
#[derive(Clone, Debug)]
pub(crate) struct Crashes {
    pub points: Points,
    pub search: Search,
}

/// One crash of a failing case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crash {
    /// Events of the execution before the crash.
    pub after: u64,
    /// Options chosen by the recovery after it, read by read; 0 is the newest value.
    pub choices: Vec<u16>,
}

/// A case that failed: enough to run it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// The thread that ran at each point.
    pub schedule: Vec<u8>,
    /// From the scenario's crash to that of the deepest recovery. Empty: the scenario itself failed.
    pub crashes: Vec<Crash>,
}

/// A failure as it was met.
#[derive(Clone, Debug)]
pub(crate) struct FailingCase {
    pub case: Case,
    pub message: String,
}

/// What a state costs beside its events, in events of a recovery: opening what is recovered.
pub(crate) const STATE_WORK: u64 = 2000;
/// What an event of the scenario's threads costs, in the same: they hand the baton on.
pub(crate) const THREAD_EVENT_WORK: u64 = 40;

/// Counts of one exploration, over all its runs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub states: u64,
    pub states_max: u64,
    /// What was done so far, in events of a recovery, with [`STATE_WORK`] and [`THREAD_EVENT_WORK`].
    pub work: u64,
    pub work_max: u64,
    /// Events of level 0.
    pub events: u64,
    /// Crash points of level 0 that a run came by and of which not all images were looked at.
    pub points_left: u64,
    /// Those that were explored.
    pub points: u64,
    /// Those all whose images were drawn, by the events before them.
    pub exhausted: HashSet<u64>,
    pub merged: u64,
    pub images: f64,
    pub hash: u64,
    /// Crash points of level 0 that were explored before; equal ones need no second look.
    pub seen: HashSet<u64>,
}

impl Tally {
    pub fn new(states_max: u64) -> Self {
        Tally { states_max, work_max: u64::MAX, ..Tally::default() }
    }

    /// One that also ends with a certain amount of work.
    pub fn within(work_max: u64) -> Self {
        Tally { work_max, ..Tally::new(u64::MAX) }
    }

    /// Whether no more states are to be met.
    pub fn is_full(&self) -> bool {
        self.states >= self.states_max || self.work >= self.work_max
    }

    /// Folds a number into the hash of everything that happened.
    pub fn mix(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
