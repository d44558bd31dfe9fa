//! What a recovery found, of logs or of slabs.

use std::time::Duration;

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Segments that hold items.
    pub segments: u64,
    /// Items that count, older versions and tombstones included.
    pub items: u64,
    /// Bytes of segments read and verified.
    pub bytes: u64,
    /// Unfinished ends of logs that were open; never acknowledged.
    pub torn: Vec<TornTail>,
    /// What should have been intact and was not.
    pub damage: Vec<Damage>,
    /// Parts of the wall time, in order.
    pub steps: Vec<(&'static str, Duration)>,
    /// Wall time.
    pub elapsed: Duration,
}

impl Recovered {
    /// Notes the last step, at `elapsed` from the beginning.
    pub(crate) fn end(&mut self, step: &'static str, elapsed: Duration) {
        let before: Duration = self.steps.iter().map(|(_, took)| *took).sum();
        self.steps.push((step, elapsed.saturating_sub(before)));
        self.elapsed = elapsed;
    }
}

/// The end of an open log that did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Offset in the file at which the log ends now.
    pub offset: u64,
    /// Bytes of intact items that were dropped with it: of an unfinished batch, or behind what does not verify and
    /// was in no commit that is known to have returned.
    pub dropped_bytes: u64,
}

/// A part of the file that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes lost from there on.
    pub bytes: u64,
    /// What it was.
    pub what: String,
}
